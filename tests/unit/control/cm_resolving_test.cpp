// The connection manager: by which device and from which address a destination is reached.
#include "control/connection_manager.hpp"

#include <cerrno>

#include "kit/catch.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;

// ---- resolving --------------------------------------------------------------------------------

TEST_CASE("an address is resolved, and the route after it", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(0xABC);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 7174)) == 0);
  CHECK(w.host.counts[w.channel] == 1);
  const auto resolved = w.event();
  CHECK(resolved.event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(resolved.status == 0);
  CHECK(resolved.id == id);
  CHECK(resolved.uid == 0xABC);
  const auto q = w.cm.query(id);
  CHECK(control::ip_of(q->source) == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(control::port_of(q->source) != 0);
  CHECK(control::port_of(q->destination) == 7174);
  REQUIRE(w.cm.resolve_route(id) == 0);
  CHECK(w.event().event == RNIC_CM_ROUTE_RESOLVED);
  CHECK(w.cm.resolve_route(id) == EINVAL);
}

TEST_CASE("commands in the wrong state are EINVAL", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  CHECK(w.cm.resolve_route(id) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.reject(id, {}) == EINVAL);
  CHECK(w.cm.disconnect(id) == EINVAL);
  w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1));
  CHECK(w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1)) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.listen(id, 1) == EINVAL);
  CHECK(w.cm.bind(999, ipv4(0, 0, 0, 0)) == EINVAL);
}

TEST_CASE("a pair's end is reached by its other end", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(127, 0, 1, 2, 1)) == 0xA0);
  CHECK(device_toward(w, ipv4(127, 0, 1, 1, 1)) == 0xA1);
  CHECK(device_toward(w, ipv4(127, 0, 1, 2, 1), 0x1) == 0xA0);
}

TEST_CASE("where its other end is not seen, a pair's end is reached by itself", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(127, 0, 1, 2, 1), 0x2) == 0xA1);
}

TEST_CASE("a device's own address is reached by that device", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(127, 0, 2, 1, 1)) == 0xA3);
  CHECK(device_toward(w, ipv4(10, 0, 0, 1, 1)) == 0xA2);
}

TEST_CASE("an address on a device's network is reached by it, from the address there", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  w.cm.resolve_address(id, {}, ipv4(10, 9, 44, 5, 1));
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->source) == wire::IpAddress::v4(10, 9, 0, 1));
}

TEST_CASE("any other address is reached by a gateway", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(192, 0, 2, 1, 1)) == 0xA2);
}

TEST_CASE("an address that no device reaches is an ADDRESS_ERROR, and the id can try another", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(1, 0x9);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(192, 0, 2, 1, 1)) == 0);
  const auto failed = w.event();
  CHECK(failed.event == RNIC_CM_ADDRESS_ERROR);
  CHECK(failed.status == -ENODEV);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(127, 0, 2, 1, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
}

TEST_CASE("a source chooses the device; one that does not reach the destination says so", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, ipv4(127, 0, 2, 1), ipv4(10, 0, 0, 2, 1)) == 0);
  const auto failed = w.event();
  CHECK(failed.event == RNIC_CM_ADDRESS_ERROR);
  CHECK(failed.status == -ENETUNREACH);
  CHECK(w.cm.resolve_address(w.id(), ipv4(10, 0, 0, 9), ipv4(10, 0, 0, 2, 1)) == EADDRNOTAVAIL);
}

TEST_CASE("a wildcard destination is this host", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(1, 0x8);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->destination) == wire::IpAddress::v4(127, 0, 2, 1));
}

// ---- IPv6 -------------------------------------------------------------------------------------

namespace {

// Two devices on links of their own, each with a link-local address; the second has a static route.
std::vector<control::CmDevice> two_links() {
  std::vector<control::CmDevice> list;
  list.push_back(CmWorld::device(0xB0, {cidr6("2001:db8:1::1"), cidr6("fe80::1"), cidr(10, 0, 0, 1, 24)}));
  list.push_back(CmWorld::device(0xB1, {cidr6("2001:db8:2::1"), cidr6("fe80::2")}));
  list[0].scope = 5;
  list[1].scope = 6;
  list[0].routes.set_gateway(*wire::parse_ip("fe80::fe"));
  list[1].routes.add(
      {.prefix = *wire::parse_ip("2001:db8:77::"), .bits = 48, .gateway = *wire::parse_ip("2001:db8:2::fe")});
  return list;
}

}  // namespace

TEST_CASE("an IPv6 destination is reached by the longest prefix of all devices, static routes among them",
          "[control][cm]") {
  CmWorld w(two_links());
  CHECK(device_toward(w, ipv6("2001:db8:2::9", 1)) == 0xB1);
  CHECK(device_toward(w, ipv6("2001:db8:77::9", 1)) == 0xB1);
  CHECK(device_toward(w, ipv6("2001:db8:78::9", 1)) == 0xB0);  // the default route
  const auto id = w.id();
  w.cm.resolve_address(id, {}, ipv6("2001:db8:2::9", 1));
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->source) == *wire::parse_ip("2001:db8:2::1"));
}

TEST_CASE("a link-local destination needs its scope where there is more than one link", "[control][cm]") {
  CmWorld w(two_links());
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, {}, ipv6("fe80::9", 1)) == 0);
  const auto failed = w.event();
  CHECK(failed.event == RNIC_CM_ADDRESS_ERROR);
  CHECK(failed.status == -EINVAL);
  for (const auto& [scope, guid] : {std::pair{5u, 0xB0u}, {6u, 0xB1u}}) {
    const auto scoped = w.id();
    REQUIRE(w.cm.resolve_address(scoped, {}, ipv6("fe80::9", 1, scope)) == 0);
    CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
    const auto q = w.cm.query(scoped);
    CHECK(q->node_guid == guid);
    CHECK(control::ip_of(q->source)->is_link_local());
    CHECK(q->source.scope == scope);
    CHECK(q->destination.scope == scope);
  }
  const auto nowhere = w.id();
  REQUIRE(w.cm.resolve_address(nowhere, {}, ipv6("fe80::9", 1, 7)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_ERROR);
  // With one link to see there is nothing to choose.
  CHECK(device_toward(w, ipv6("fe80::9", 1), 0x2) == 0xB1);
}

TEST_CASE("a link-local address is bound on the link that its scope names", "[control][cm]") {
  CmWorld w(two_links());
  CHECK(w.cm.bind(w.id(), ipv6("fe80::1", 0, 6)) == EADDRNOTAVAIL);
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv6("fe80::1", 7174, 5)) == 0);
  CHECK(w.cm.query(id)->source.scope == 5);
}

TEST_CASE("a listener on :: is for both versions of IP, with the option for IPv6 alone", "[control][cm]") {
  CmWorld w(two_links());
  const auto both = w.id();
  REQUIRE(w.cm.bind(both, ipv6("::", 7174)) == 0);
  REQUIRE(w.cm.listen(both, 1) == 0);
  REQUIRE(w.host.listening.size() == 2);
  CHECK_FALSE(w.host.listening[0].v6_only);
  CHECK(w.host.listening[0].address == wire::IpAddress());
  REQUIRE(w.cm.destroy_id(both));
  const std::int32_t on = 1;
  const auto alone = w.id();
  REQUIRE(w.cm.set_option(alone, 0, 2, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(alone, ipv6("::", 7174)) == 0);
  REQUIRE(w.cm.listen(alone, 1) == 0);
  CHECK(w.host.listening[0].v6_only);
}

TEST_CASE("a wildcard source of the other version of IP leaves the choice open, another address does not",
          "[control][cm]") {
  CmWorld w(two_links());
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, ipv6("::"), ipv4(10, 0, 0, 9, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->source) == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(w.cm.resolve_address(w.id(), ipv6("2001:db8:1::1"), ipv4(10, 0, 0, 9, 1)) == EINVAL);
}

TEST_CASE("an address that a device gets later can be bound, one that it loses cannot", "[control][cm]") {
  CmWorld w(two_links());
  CHECK(w.cm.bind(w.id(), ipv6("2001:db8:9::1")) == EADDRNOTAVAIL);
  w.cm.set_device(1, CmWorld::device(0xB1, {cidr6("2001:db8:9::1")}));
  CHECK(w.cm.bind(w.id(), ipv6("2001:db8:9::1")) == 0);
  CHECK(w.cm.bind(w.id(), ipv6("2001:db8:2::1")) == EADDRNOTAVAIL);
  CHECK(device_toward(w, ipv6("2001:db8:9::7", 1)) == 0xB1);
}
