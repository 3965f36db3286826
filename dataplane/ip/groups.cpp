#include "ip/groups.hpp"

#include <algorithm>

#include "wire/ipv6.hpp"

namespace rnic::ip {
namespace {

constexpr std::uint8_t kRobustness = 2;                // RFC 3810 s9.1
constexpr Duration kUnsolicitedInterval = seconds(1);  // s9.11

}  // namespace

bool Groups::has(const wire::IpAddress& address) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& group) { return group.used && group.address == address; });
}

Groups::Group* Groups::find(const wire::IpAddress& address) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& group) { return group.used && group.address == address; });
  return found == groups_.end() ? nullptr : &*found;
}

bool Groups::add(const Group& group) {
  const auto free = std::find_if(groups_.begin(), groups_.end(), [](const Group& each) { return !each.used; });
  if (free == groups_.end()) return false;
  *free = group;
  return true;
}

void Groups::follow(const std::array<OwnAddress, OwnAddresses::kMax>& addresses, Instant now) {
  const auto listens = [](const OwnAddress& own) { return own.state != AddressState::none && own.address.is_v6(); };
  for (Group& group : groups_)
    if (group.used && group.of_address && std::none_of(addresses.begin(), addresses.end(), [&](const OwnAddress& own) {
          return listens(own) && wire::solicited_node(own.address) == group.address;
        })) {
      group.of_address = false;
      if (group.joined == 0) group = {};
    }
  for (const OwnAddress& own : addresses) {
    if (!listens(own)) continue;
    const wire::IpAddress address = wire::solicited_node(own.address);
    if (Group* group = find(address))
      group->of_address = true;
    else  // there are as many places as addresses, besides those that others join
      add({.address = address, .used = true, .of_address = true, .joins_left = kRobustness, .join_due = now});
  }
  find_earliest();
}

bool Groups::join(const wire::IpAddress& address, Instant now) {
  Group* group = find(address);
  if (group == nullptr || group->joined == 0) {
    if (joined_ == kJoinedMax) return false;
    if (group == nullptr) {
      add({.address = address, .used = true, .joins_left = kRobustness, .join_due = now});
      group = find(address);
    }
    ++joined_;
  }
  ++group->joined;
  find_earliest();
  return true;
}

void Groups::leave(const wire::IpAddress& address) {
  Group* group = find(address);
  if (group == nullptr || group->joined == 0 || --group->joined != 0) return;
  --joined_;
  if (!group->of_address) *group = {};
  find_earliest();
}

void Groups::rejoin(Instant now) {
  for (Group& group : groups_) {
    if (!group.used) continue;
    group.joins_left = kRobustness;
    group.join_due = now;
  }
  find_earliest();
}

void Groups::on_query(const wire::ListenerQuery& query, Instant now) {
  ask(query.group, false, milliseconds(query.answer_within_ms), now);
}

void Groups::on_query(const wire::MemberQuery& query, Instant now) {
  version_ = query.version == 3 ? 3 : 2;
  ask(query.group, true, milliseconds(query.answer_within_ms), now);
}

void Groups::ask(const wire::IpAddress& asked, bool v4, Duration within, Instant now) {
  for (Group& group : groups_) {
    if (!group.used || group.address.is_v4() != v4 || (!asked.is_unspecified() && asked != group.address)) continue;
    group.answer_due = std::min(group.answer_due, now + chance_.between(Duration{0}, within));
  }
  find_earliest();
}

std::optional<Groups::Report> Groups::next_report(Instant now) {
  if (earliest_ > now) return std::nullopt;
  for (Group& group : groups_) {
    if (!group.used) continue;
    if (group.join_due <= now) {
      --group.joins_left;
      group.join_due = group.joins_left > 0 ? now + chance_.between(Duration{0}, kUnsolicitedInterval) : kNever;
      find_earliest();
      return Report{group.address, wire::ListenerReport::kToExclude, version_};
    }
    if (group.answer_due <= now) {
      group.answer_due = kNever;
      find_earliest();
      return Report{group.address, wire::ListenerReport::kIsExclude, version_};
    }
  }
  return std::nullopt;
}

void Groups::find_earliest() {
  earliest_ = kNever;
  for (const Group& group : groups_)
    if (group.used) earliest_ = std::min({earliest_, group.join_due, group.answer_due});
}

}  // namespace rnic::ip
