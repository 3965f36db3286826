// The multicast groups that we listen to, and the reports of them (RFC 3810 s6, a listener that wants
// all sources): at joining, twice, and when somebody asks. All-nodes needs none.
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
#include "wire/mld.hpp"

namespace rnic::ip {

class Groups {
 public:
  static constexpr std::size_t kMax = OwnAddresses::kMax;

  explicit Groups(std::uint64_t seed) : chance_(seed) {}

  // Joins and leaves, so that there is the solicited-node group of each of these IPv6 addresses.
  void follow(const std::array<OwnAddress, OwnAddresses::kMax>& addresses, Instant now);
  void rejoin(Instant now);  // the link has come up
  void on_query(const wire::ListenerQuery& query, Instant now);

  struct Report {
    wire::IpAddress group;
    std::uint8_t record_type = wire::ListenerReport::kIsExclude;
  };
  std::optional<Report> next_report(Instant now);  // until nothing
  Instant next_deadline() const { return earliest_; }

  bool has(const wire::IpAddress& group) const;

 private:
  struct Group {
    wire::IpAddress address;
    bool used = false;
    std::uint8_t joins_left = 0;
    Instant join_due = kNever, answer_due = kNever;
  };
  void find_earliest();

  Chance chance_;
  std::array<Group, kMax> groups_{};
  Instant earliest_ = kNever;
};

}  // namespace rnic::ip
