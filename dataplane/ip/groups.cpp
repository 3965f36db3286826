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

void Groups::follow(const std::array<OwnAddress, OwnAddresses::kMax>& addresses, Instant now) {
  const auto listens = [](const OwnAddress& own) { return own.state != AddressState::none && own.address.is_v6(); };
  // A switch forgets by itself what nobody reports.
  for (Group& group : groups_)
    if (group.used && std::none_of(addresses.begin(), addresses.end(), [&](const OwnAddress& own) {
          return listens(own) && wire::solicited_node(own.address) == group.address;
        }))
      group = {};
  for (const OwnAddress& own : addresses) {
    if (!listens(own) || has(wire::solicited_node(own.address))) continue;
    // There are as many places as addresses.
    const auto free = std::find_if(groups_.begin(), groups_.end(), [](const Group& group) { return !group.used; });
    *free = {.address = wire::solicited_node(own.address), .used = true, .joins_left = kRobustness, .join_due = now};
  }
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
  for (Group& group : groups_) {
    if (!group.used || (!query.group.is_unspecified() && query.group != group.address)) continue;
    const Instant due = now + chance_.between(Duration{0}, milliseconds(query.answer_within_ms));
    group.answer_due = std::min(group.answer_due, due);
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
      return Report{group.address, wire::ListenerReport::kToExclude};
    }
    if (group.answer_due <= now) {
      group.answer_due = kNever;
      find_earliest();
      return Report{group.address, wire::ListenerReport::kIsExclude};
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
