// The connection manager: 127.0.0.1 and ::1.
#include "control/connection_manager.hpp"

#include <cerrno>

#include "kit/catch.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

const auto kLoop4 = wire::IpAddress::v4(127, 0, 0, 1);
const auto kLoop6 = *wire::parse_ip("::1");

rnic_address loop(const wire::IpAddress& address, std::uint16_t port = 0) { return control::to_abi(address, port); }

// Two devices of IPv4 only, of which the second has 127.0.0.1, and one of IPv6.
std::vector<control::CmDevice> one_owns_it() {
  return {CmWorld::device(0xC0, {cidr(10, 0, 0, 1, 24)}),
          CmWorld::device(0xC1, {cidr(127, 0, 0, 1, 8), cidr(127, 0, 3, 1, 24)}),
          CmWorld::device(0xC2, {cidr6("2001:db8::1")})};
}

// The place in the list of the device that an id is bound to; -1: none.
int bound_to(CmWorld& w, const rnic_address& address, control::DeviceSet visible = CmWorld::kAll) {
  const auto id = w.id(1, visible);
  if (w.cm.bind(id, address) != 0) return -1;
  for (const control::IdInfo& info : w.cm.ids())
    if (info.id == id) return info.device;
  return -1;
}

}  // namespace

TEST_CASE("127.0.0.1 and ::1 are the lowest-numbered device that the application sees, whatever its addresses",
          "[control][cm]") {
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    CmWorld w;
    for (const auto& [visible, device] : {std::pair{0xFu, 0}, {0xEu, 1}, {0xCu, 2}, {0x8u, 3}, {0u, -1}}) {
      INFO(visible);
      CHECK(bound_to(w, loop(address), visible) == device);
      CHECK(device_toward(w, loop(address, 1), visible) == (device < 0 ? 0u : 0xA0u + static_cast<unsigned>(device)));
    }
  }
}

TEST_CASE("127.0.0.1 is the visible device that has it for an address, before any lower one", "[control][cm]") {
  CmWorld w(one_owns_it());
  CHECK(bound_to(w, loop(kLoop4), 0x7) == 1);
  CHECK(device_toward(w, loop(kLoop4, 1), 0x7) == 0xC1);
  CHECK(bound_to(w, loop(kLoop4), 0x5) == 0);
  CHECK(device_toward(w, loop(kLoop4, 1), 0x4) == 0xC2);
  CHECK(bound_to(w, loop(kLoop6), 0x7) == 0);
}

TEST_CASE("an id at 127.0.0.1 or ::1 shows no device before it calls, as in the kernel, unless it is configured there",
          "[control][cm]") {
  CmWorld w(one_owns_it());
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    for (const std::uint64_t guid : {0xC0u, 0xC1u}) {
      const bool owner = guid == 0xC1 && address == kLoop4;
      const auto id = w.id(1, guid == 0xC0 ? 0x1 : 0x2);
      REQUIRE(w.cm.bind(id, loop(address, 7174)) == 0);
      CHECK(w.cm.query(id)->node_guid == (owner ? guid : 0));
      CHECK(w.cm.query(id)->port_number == (owner ? 1u : 0u));
      REQUIRE(w.cm.listen(id, 1) == 0);
      CHECK(w.cm.query(id)->node_guid == (owner ? guid : 0));
      const auto calls = w.id(1, guid == 0xC0 ? 0x1 : 0x2);
      REQUIRE(w.cm.bind(calls, loop(address)) == 0);
      REQUIRE(w.cm.resolve_address(calls, {}, loop(address, 7174)) == 0);
      CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
      CHECK(w.cm.query(calls)->node_guid == guid);
    }
  }
}

TEST_CASE("who is bound to 127.0.0.1 or ::1 is told so, and listens there alone", "[control][cm]") {
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    CmWorld w;
    const auto id = w.listening(loop(address, 7174));
    const auto q = w.cm.query(id);
    CHECK(control::ip_of(q->source) == address);
    CHECK(control::port_of(q->source) == 7174);
    CHECK(q->source.scope == 0);
    REQUIRE(w.host.listening.size() == 1);
    CHECK(w.host.listening[0].device == 0);
    CHECK(w.host.listening[0].address == address);
  }
}

TEST_CASE("a port of 127.0.0.1 is taken as one of any address of that device", "[control][cm]") {
  CmWorld w;
  REQUIRE(w.cm.bind(w.id(), loop(kLoop4, 7174)) == 0);
  CHECK(w.cm.bind(w.id(), loop(kLoop4, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(1, 0x1), control::to_abi(wire::IpAddress(), 7174)) == EADDRINUSE);
  // Another address of the same device, another version of IP, another device.
  CHECK(w.cm.bind(w.id(), ipv4(127, 0, 1, 1, 7174)) == 0);
  CHECK(w.cm.bind(w.id(), loop(kLoop6, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0x2), loop(kLoop4, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0xC), ipv4(0, 0, 0, 0, 7174)) == 0);
}

TEST_CASE("who calls 127.0.0.1 or ::1 speaks from it, unless bound to another address of that device",
          "[control][cm]") {
  CmWorld w;
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    const auto id = w.route_resolved(loop(address, 7174));
    REQUIRE(w.cm.connect(id, CmWorld::parameters()) == 0);
    const auto& made = w.host.connects.back();
    CHECK(made.device == 0);
    CHECK(made.options.local == address);
    CHECK(made.options.remote == address);
    CHECK(control::ip_of(w.cm.query(id)->source) == address);
    CHECK(control::ip_of(w.cm.query(id)->destination) == address);
  }
  for (const auto& [from, to] :
       {std::pair{wire::IpAddress::v4(127, 0, 1, 1), kLoop4}, {kLoop4, wire::IpAddress::v4(127, 0, 1, 1)}}) {
    const auto id = w.id();
    REQUIRE(w.cm.resolve_address(id, loop(from), loop(to, 1)) == 0);
    CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
    CHECK(w.cm.query(id)->node_guid == 0xA0);
    CHECK(control::ip_of(w.cm.query(id)->source) == from);
    CHECK(control::ip_of(w.cm.query(id)->destination) == to);
  }
}

TEST_CASE("from 127.0.0.1 nobody is reached beyond its device, and from elsewhere nobody at 127.0.0.1",
          "[control][cm]") {
  CmWorld w;
  const auto fails = [&](const rnic_address& from, const rnic_address& to) {
    const auto id = w.id();
    REQUIRE(w.cm.resolve_address(id, from, to) == 0);
    const auto told = w.event();
    CHECK(told.event == RNIC_CM_ADDRESS_ERROR);
    return -told.status;
  };
  CHECK(fails(loop(kLoop4), ipv4(127, 0, 1, 2, 1)) == EINVAL);  // the other end of the pair
  CHECK(fails(loop(kLoop4), ipv4(10, 0, 0, 2, 1)) == EINVAL);
  CHECK(fails(ipv4(127, 0, 1, 2), loop(kLoop4, 1)) == ENETUNREACH);
  CHECK(fails(ipv4(10, 0, 0, 1), loop(kLoop4, 1)) == ENETUNREACH);
  // A device with a default route.
  const auto id = w.id(1, 0x4);
  REQUIRE(w.cm.resolve_address(id, loop(kLoop4), ipv4(192, 0, 2, 1, 1)) == 0);
  CHECK(w.event().status == -EINVAL);
}

TEST_CASE("who has 127.0.0.1 for its only address reaches nobody else by it", "[control][cm]") {
  auto list = CmWorld::devices();
  list[0] = CmWorld::device(0xA0, {cidr(127, 0, 0, 1, 8)}, 1);
  CmWorld w(list);
  const auto id = w.id(1, 0x1);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(127, 0, 1, 2, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_ERROR);
  const auto bound = w.id(1, 0x1);
  REQUIRE(w.cm.resolve_address(bound, loop(kLoop4), ipv4(127, 0, 1, 2, 1)) == 0);
  CHECK(w.event().status == -EINVAL);
  CHECK(device_toward(w, ipv4(127, 0, 0, 1, 1)) == 0xA0);
}

TEST_CASE("127.0.0.1 and ::1 are of different versions of IP; ::ffff:127.0.0.1 is 127.0.0.1", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.resolve_address(w.id(), loop(kLoop4), loop(kLoop6, 1)) == EINVAL);
  CHECK(w.cm.resolve_address(w.id(), loop(kLoop6), ipv4(127, 0, 1, 1, 1)) == EINVAL);
  rnic_address mapped{};
  mapped.family = AF_INET6;
  std::memcpy(mapped.octets, kLoop4.octets().data(), 16);
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, mapped) == 0);
  CHECK(control::ip_of(w.cm.query(id)->source) == kLoop4);
  REQUIRE(w.cm.resolve_address(id, {}, loop(kLoop4, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(w.cm.query(id)->node_guid == 0xA0);
  // A wildcard of the other version leaves the choice open.
  const auto open = w.id();
  REQUIRE(w.cm.resolve_address(open, control::to_abi(wire::IpAddress(), 0), loop(kLoop4, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(open)->source) == kLoop4);
}

TEST_CASE("a wildcard destination is ::1 where no device has an address of IPv6", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, {}, control::to_abi(wire::IpAddress(), 7174)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->destination) == kLoop6);
  CHECK(w.cm.query(id)->node_guid == 0xA0);
}

TEST_CASE("a request to 127.0.0.1 is of the device that it came to, and told with the addresses that were called",
          "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  for (const std::uint32_t device : {0u, 3u}) {
    INFO(device);
    auto request = w.request_for(listener, {device + 1});
    request.device = device;
    request.local = request.remote = kLoop4;
    w.cm.on_stream_event(request);
    const auto id = w.event().id;
    const auto q = w.cm.query(id);
    CHECK(q->node_guid == 0xA0 + device);
    CHECK(control::ip_of(q->source) == kLoop4);
    CHECK(control::ip_of(q->destination) == kLoop4);
    REQUIRE(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
    CHECK(w.host.accepts.back().device == device);
  }
}
