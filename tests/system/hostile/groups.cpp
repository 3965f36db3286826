// Multicast groups: as many, and as many places in them, as one process gets, then leaving and coming again without
// end; those of rdma_cm's ids, too. Somebody else finds a group, and a place in each of these.
#include <algorithm>
#include <utility>

#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint8_t kGroups = 80;   // more than a device has
constexpr std::uint32_t kPairs = 300;  // and more than a group holds
constexpr std::uint32_t kInEach = 48;  // of the others, where nothing else is said
constexpr std::uint32_t kAtOnce = 64;  // requests on their way

rnic_address group(std::uint32_t number) { return bare::group_at(7, static_cast<std::uint8_t>(number)); }

struct Members : Bench {
  explicit Members(const std::string& socket) : Bench(socket, 64, RNIC_FACE_ROCE) {}

  std::uint32_t pair() {
    const bare::QueuePair qp = app.adopt(app.try_datagram_pair(pd, cq.handle, 1));
    app.to_rts(qp.number, kQkey);
    return qp.number;
  }
  // Asked in one go; how many were given.
  std::uint32_t each(std::uint32_t type, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& places) {
    std::uint32_t good = 0;
    for (std::size_t at = 0; at < places.size(); at += kAtOnce) {
      const std::size_t end = std::min(places.size(), at + kAtOnce);
      for (std::size_t i = at; i < end; ++i) {
        rnic_mcast request{places[i].first, 0, {}};
        std::memcpy(request.gid, bare::gid_of(group(places[i].second)).data(), sizeof request.gid);
        if (!app.control.say(type, request)) bare::fail("the daemon is gone");
      }
      for (std::size_t i = at; i < end; ++i) {
        const int status = app.control.hear().status;
        if (status < 0) bare::fail("the daemon is gone");
        good += status == 0;
      }
    }
    return good;
  }
};

// An id that is in as many groups as it may be, and leaves them.
std::uint32_t join_and_leave(bare::Channel& channel, const rnic_address& at) {
  const std::uint32_t id = channel.create_id(0, bare::Channel::kUdp);
  if (!channel.bind(id, at).good()) bare::fail("CM_BIND");
  std::vector<std::uint32_t> memberships;
  for (std::uint32_t i = 0; i < kGroups; ++i) {
    const bare::Answer joined = channel.join(id, group(i));
    if (joined.good()) memberships.push_back(joined.as<rnic_handle_reply>().handle);
  }
  // Half of them are left, of the others the id's end is the end.
  for (std::size_t i = 0; i < memberships.size() / 2; ++i)
    if (!channel.control.by_handle(RNIC_CM_LEAVE, memberships[i]).good()) bare::fail("CM_LEAVE");
  if (!channel.destroy_id(id).good()) bare::fail("CM_DESTROY_ID");
  return static_cast<std::uint32_t>(memberships.size());
}

// Who comes when all of that is taken.
void come_late(const std::string& socket, Victim::Line line) {
  Members late(socket);
  const std::uint32_t qp = late.pair();
  std::uint64_t ask = 0;
  while (line.hear(ask)) {
    const bool own = late.app.attach(qp, bare::group_at(8, 1)).good();
    const bool theirs = late.app.attach(qp, group(0)).good();
    line.tell(own && theirs ? 1 : 0);
    late.app.detach(qp, bare::group_at(8, 1));
    late.app.detach(qp, group(0));
  }
}

}  // namespace

int groups(const Options& options) {
  const Victim late([&](Victim::Line line) { come_late(options.socket, line); });
  Members members(options.socket);
  std::vector<std::uint32_t> pairs;
  for (std::uint32_t i = 0; i < kPairs; ++i) pairs.push_back(members.pair());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
  const std::uint32_t in_each = std::min(options.count != 0 ? options.count : kInEach, kPairs);
  for (std::uint32_t number = 0; number < kGroups; ++number)
    for (std::uint32_t i = 0; i < (number == 0 ? kPairs : in_each); ++i) all.emplace_back(pairs[i], number);
  attacking();
  const Seconds start = now();
  const std::uint32_t got = members.each(RNIC_ATTACH_MCAST, all);
  late.tell(1);
  const bool served = late.hear() == 1;

  bare::Channel channel(options.socket);
  const rnic_address at = bare::address_of(members.app.device());
  std::uint64_t rounds = 0, joins = 0;
  while (now() - start < options.seconds) {
    joins += join_and_leave(channel, at);
    const std::vector some(all.begin(), all.begin() + kPairs);
    members.each(rounds % 2 == 0 ? RNIC_DETACH_MCAST : RNIC_ATTACH_MCAST, some);
    ++rounds;
  }
  say(std::to_string(got) + " of " + std::to_string(all.size()) + " places in groups; " + std::to_string(rounds) +
      " times " + std::to_string(kPairs) + " left or taken; " + std::to_string(joins) + " joins of rdma_cm's ids");
  if (!served) {
    say("somebody else found no group, or no place in one");
    return 1;
  }
  return 0;
}

}  // namespace rnic::hostile
