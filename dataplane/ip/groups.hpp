// The multicast groups that we listen to, and the reports of them (RFC 3810 s6, a listener that wants
// all sources; RFC 3376 of IPv4's): at joining, twice, and when somebody asks. All-nodes needs none. A
// switch forgets by itself what nobody reports, so nothing is said at leaving.
//
// Pure; nothing is allocated after construction. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/chance.hpp"
#include "base/time.hpp"
#include "ip/own_addresses.hpp"
#include "wire/address.hpp"
#include "wire/igmp.hpp"
#include "wire/mld.hpp"

namespace rnic::ip {

class Groups {
 public:
  static constexpr std::size_t kJoinedMax = 74;  // 64 for one application, and for others (control/shares.hpp)
  static constexpr std::size_t kMax = OwnAddresses::kMax + kJoinedMax;

  explicit Groups(std::uint64_t seed) : chance_(seed) {}

  // Joins and leaves, so that there is the solicited-node group of each of these IPv6 addresses.
  void follow(const std::array<OwnAddress, OwnAddresses::kMax>& addresses, Instant now);
  // A group of somebody's who is above IP, of either version. False: there are too many. Whoever joins one twice leaves
  // it twice.
  bool join(const wire::IpAddress& group, Instant now);
  void leave(const wire::IpAddress& group);
  void rejoin(Instant now);  // the link has come up
  void on_query(const wire::ListenerQuery& query, Instant now);
  void on_query(const wire::MemberQuery& query, Instant now);

  struct Report {
    wire::IpAddress group;
    std::uint8_t record_type = wire::ListenerReport::kIsExclude;
    unsigned version = 3;  // of one of IPv4
  };
  std::optional<Report> next_report(Instant now);  // until nothing
  Instant next_deadline() const { return earliest_; }

  bool has(const wire::IpAddress& group) const;
  bool any_joined() const { return joined_ != 0; }

 private:
  struct Group {
    wire::IpAddress address;
    bool used = false;
    bool of_address = false;   // of an address of ours
    std::uint32_t joined = 0;  // so many times
    std::uint8_t joins_left = 0;
    Instant join_due = kNever, answer_due = kNever;
  };
  Group* find(const wire::IpAddress& group);
  bool add(const Group& group);
  void ask(const wire::IpAddress& group, bool v4, Duration within, Instant now);
  void find_earliest();

  Chance chance_;
  std::array<Group, kMax> groups_{};
  std::size_t joined_ = 0;  // groups
  unsigned version_ = 3;    // of the last query of IPv4
  Instant earliest_ = kNever;
};

}  // namespace rnic::ip
