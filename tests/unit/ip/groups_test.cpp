// Groups that somebody above IP joins.
#include "ip/groups.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using ip::Groups;
using wire::IpAddress;

namespace {
constexpr Instant kNow{seconds(1000).ns};
const IpAddress kGroup4 = IpAddress::v4(239, 1, 2, 3), kGroup6 = *wire::parse_ip("ff0e::17");

IpAddress group(unsigned i) { return IpAddress::v4(0xEF000000 + i); }
}  // namespace

TEST_CASE("a group is listened to until it was left as often as joined", "[ip][groups]") {
  Groups groups(1);
  CHECK_FALSE(groups.any_joined());
  REQUIRE(groups.join(kGroup4, kNow));
  REQUIRE(groups.join(kGroup4, kNow));
  CHECK(groups.has(kGroup4));
  groups.leave(kGroup4);
  CHECK(groups.has(kGroup4));
  groups.leave(kGroup4);
  CHECK_FALSE(groups.has(kGroup4));
  CHECK_FALSE(groups.any_joined());
  groups.leave(kGroup4);
}

TEST_CASE("a group is reported at joining, twice, and when it is asked for", "[ip][groups]") {
  for (const IpAddress& each : {kGroup4, kGroup6}) {
    Groups groups(1);
    REQUIRE(groups.join(each, kNow));
    const auto first = groups.next_report(kNow);
    REQUIRE(first);
    CHECK(first->group == each);
    CHECK(first->record_type == 4);
    CHECK(groups.next_report(kNow + seconds(2)));
    CHECK_FALSE(groups.next_report(kNow + seconds(2)));
    groups.on_query(wire::MemberQuery{IpAddress::v4(0), 1'000, 3}, kNow + seconds(3));
    groups.on_query(wire::ListenerQuery{{}, 1'000}, kNow + seconds(3));
    const auto asked = groups.next_report(kNow + seconds(5));
    REQUIRE(asked);
    CHECK(asked->record_type == 2);
    CHECK_FALSE(groups.next_report(kNow + seconds(5)));
  }
}

TEST_CASE("a query is of its version of IP, and of its group", "[ip][groups]") {
  Groups groups(1);
  REQUIRE(groups.join(kGroup4, kNow));
  REQUIRE(groups.join(kGroup6, kNow));
  for (const int after : {0, 2})
    while (groups.next_report(kNow + seconds(after))) {
    }
  groups.on_query(wire::MemberQuery{group(77), 1'000, 3}, kNow + seconds(3));
  CHECK_FALSE(groups.next_report(kNow + seconds(5)));
  groups.on_query(wire::MemberQuery{kGroup4, 1'000, 2}, kNow + seconds(6));
  const auto report = groups.next_report(kNow + seconds(8));
  REQUIRE(report);
  CHECK(report->group == kGroup4);
  CHECK(report->version == 2);
  CHECK_FALSE(groups.next_report(kNow + seconds(8)));
}

TEST_CASE("so many groups and no more, and those of our addresses have their places all the same", "[ip][groups]") {
  Groups groups(1);
  for (unsigned i = 0; i < Groups::kJoinedMax; ++i) REQUIRE(groups.join(group(i), kNow));
  CHECK_FALSE(groups.join(group(9999), kNow));
  CHECK(groups.join(group(0), kNow));  // one that is there
  std::array<ip::OwnAddress, ip::OwnAddresses::kMax> own{};
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i].state = ip::AddressState::preferred;
    own[i].address = *wire::parse_ip("fe80::" + std::to_string(i + 1));
  }
  groups.follow(own, kNow);
  for (const ip::OwnAddress& each : own) CHECK(groups.has(wire::solicited_node(each.address)));
  CHECK(groups.has(group(5)));
  groups.follow({}, kNow);
  CHECK_FALSE(groups.has(wire::solicited_node(own[0].address)));
  CHECK(groups.has(group(5)));
}

TEST_CASE("a group of an address of ours that is joined as well stays until both are over", "[ip][groups]") {
  Groups groups(1);
  std::array<ip::OwnAddress, ip::OwnAddresses::kMax> own{};
  own[0].state = ip::AddressState::preferred;
  own[0].address = *wire::parse_ip("fe80::1");
  const IpAddress both = wire::solicited_node(own[0].address);
  groups.follow(own, kNow);
  REQUIRE(groups.join(both, kNow));
  groups.follow({}, kNow);
  CHECK(groups.has(both));
  groups.follow(own, kNow);
  groups.leave(both);
  CHECK(groups.has(both));
  groups.follow({}, kNow);
  CHECK_FALSE(groups.has(both));
}
