// The words for what becomes of a device's addresses.
#include "control/network.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using control::address_changes;
using control::OwnList;
using ip::AddressState;

namespace {

OwnList one(const char* address, AddressState state, std::uint32_t conflicts = 0) {
  OwnList list{};
  list[0].address = *wire::parse_ip(address);
  list[0].prefix_bits = 24;
  list[0].state = state;
  list[0].conflicts = conflicts;
  list[0].conflict_with = *wire::parse_mac("02:00:00:00:00:09");
  return list;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("an address's life in the log", "[control]") {
  const OwnList none{};
  const auto asked = one("10.0.0.1", AddressState::tentative);
  const auto used = one("10.0.0.1", AddressState::preferred);
  const auto deprecated = one("10.0.0.1", AddressState::deprecated);
  CHECK(address_changes(none, none).empty());
  CHECK(address_changes(none, asked) == Lines{"10.0.0.1 is being asked for"});
  CHECK(address_changes(asked, used) == Lines{"10.0.0.1 is nobody else's: it may be used"});
  CHECK(address_changes(none, used) == Lines{"10.0.0.1 may be used"});  // nobody was asked
  CHECK(address_changes(deprecated, used) == Lines{"10.0.0.1 may be used"});
  CHECK(address_changes(used, used).empty());
  CHECK(address_changes(used, deprecated) == Lines{"10.0.0.1 is deprecated"});
  CHECK(address_changes(deprecated, none) == Lines{"10.0.0.1 is gone"});
}

TEST_CASE("a conflict is told with who it is", "[control]") {
  const auto asked = one("10.0.0.1", AddressState::tentative);
  const auto used = one("10.0.0.1", AddressState::preferred);
  CHECK(address_changes(asked, one("10.0.0.1", AddressState::duplicate, 1)) ==
        Lines{"10.0.0.1 is taken by 02:00:00:00:00:09: it is not used"});
  CHECK(address_changes(used, one("10.0.0.1", AddressState::preferred, 1)) ==
        Lines{"10.0.0.1 is ours, but 02:00:00:00:00:09 claims it too"});
  // Heard of again.
  CHECK(address_changes(one("10.0.0.1", AddressState::preferred, 1), one("10.0.0.1", AddressState::preferred, 2)) ==
        Lines{"10.0.0.1 is ours, but 02:00:00:00:00:09 claims it too"});
}

TEST_CASE("an address that was made up anew names the one that was taken", "[control]") {
  CHECK(
      address_changes(one("fe80::1", AddressState::tentative), one("fe80::2", AddressState::tentative, 1)) ==
      Lines{"fe80::1 is gone", "fe80::1 is taken by 02:00:00:00:00:09: it is not used", "fe80::2 is being asked for"});
}

TEST_CASE("a link in the log, and an interface that is no more", "[control]") {
  CHECK(control::link_change(true, "lo") == "the link is up");
  CHECK(control::link_change(false, "lo") == "the link is down");
  CHECK(control::link_change(false, "") == "the link is down");  // memif's
  CHECK(control::link_change(false, "rnic-none") ==
        "the interface rnic-none is gone, and the link with it; once there is one again, restart the daemon");
}

TEST_CASE("an address with what is to be said of it", "[control]") {
  CHECK(control::describe(one("10.0.0.1", AddressState::preferred)[0]) == "10.0.0.1/24");
  CHECK(control::describe(one("10.0.0.1", AddressState::duplicate)[0]) == "10.0.0.1/24 duplicate");
}
