// The connection manager: what an id is bound to, which ports it has, and where it listens.
#include "control/connection_manager.hpp"

#include <cerrno>

#include "kit/catch.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;
using core::StreamError;

// ---- binding ----------------------------------------------------------------------------------

TEST_CASE("an id is bound to an address of a device, and says which", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv4(10, 0, 0, 1, 7174)) == 0);
  const auto q = w.cm.query(id);
  REQUIRE(q);
  CHECK(q->node_guid == 0xA2);
  CHECK(q->port_number == 1);
  CHECK(control::port_of(q->source) == 7174);
  CHECK(q->destination.family == 0);
}

TEST_CASE("an id bound to a wildcard has no device yet", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.cm.query(id)->node_guid == 0);
}

TEST_CASE("an address of no device cannot be bound", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.bind(w.id(), ipv4(10, 0, 0, 77, 7174)) == EADDRNOTAVAIL);
}

TEST_CASE("an address of a device that the application does not see cannot be bound", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.bind(w.id(1, 0x1), ipv4(127, 0, 1, 2, 7174)) == EADDRNOTAVAIL);
  CHECK(w.cm.bind(w.id(1, 0x1), ipv4(127, 0, 1, 1, 7174)) == 0);
}

TEST_CASE("a family that is none of IP's is refused", "[control][cm]") {
  CmWorld w;
  rnic_address ib{};
  ib.family = 27;
  CHECK(w.cm.bind(w.id(), ib) == EAFNOSUPPORT);
}

TEST_CASE("an id is bound once", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(id, ipv4(10, 0, 0, 1, 7175)) == EINVAL);
}

TEST_CASE("a port in use is in use, for the address and for the wildcard", "[control][cm]") {
  CmWorld w;
  REQUIRE(w.cm.bind(w.id(), ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(w.id(), ipv4(10, 0, 0, 1, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(), ipv4(127, 0, 1, 1, 7174)) == 0);
}

TEST_CASE("a port comes free with its id", "[control][cm]") {
  CmWorld w;
  const auto first = w.id();
  REQUIRE(w.cm.bind(first, ipv4(10, 0, 0, 1, 7174)) == 0);
  REQUIRE(w.cm.destroy_id(first));
  CHECK(w.cm.bind(w.id(), ipv4(10, 0, 0, 1, 7174)) == 0);
}

TEST_CASE("applications that see different devices do not meet in the port space", "[control][cm]") {
  CmWorld w;
  REQUIRE(w.cm.bind(w.id(1, 0x1), ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0x2), ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0x3), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
}

TEST_CASE("both with the reuse option share a port; one alone does not", "[control][cm]") {
  CmWorld w;
  const std::int32_t on = 1;
  const auto a = w.id(), b = w.id(), c = w.id();
  REQUIRE(w.cm.set_option(a, 0, 1, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.set_option(b, 0, 1, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(a, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(b, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(c, ipv4(10, 0, 0, 1, 7174)) == EADDRINUSE);
  CHECK(w.cm.listen(a, 1) == EADDRINUSE);
  REQUIRE(w.cm.destroy_id(b));
  CHECK(w.cm.listen(a, 1) == 0);
}

TEST_CASE("port 0 is an ephemeral port that nobody has", "[control][cm]") {
  CmWorld w;
  const auto a = w.id(), b = w.id();
  REQUIRE(w.cm.bind(a, ipv4(10, 0, 0, 1)) == 0);
  REQUIRE(w.cm.bind(b, ipv4(10, 0, 0, 1)) == 0);
  const auto port_a = control::port_of(w.cm.query(a)->source), port_b = control::port_of(w.cm.query(b)->source);
  CHECK(port_a >= control::PortSpace::kEphemeralFirst);
  CHECK(port_a <= control::PortSpace::kEphemeralLast);
  CHECK(port_a != port_b);
}

TEST_CASE("when all ephemeral ports are taken, there is none", "[control][cm]") {
  control::PortSpace ports(3);
  const std::uint32_t all = control::PortSpace::kEphemeralLast - control::PortSpace::kEphemeralFirst + 1u;
  control::Binding binding{wire::IpAddress::v4(10, 0, 0, 1), 0, 1};
  for (std::uint32_t owner = 1; owner <= all; ++owner) {
    binding.port = 0;
    REQUIRE(ports.bind(owner, binding));
  }
  binding.port = 0;
  CHECK_FALSE(ports.bind(all + 1, binding));
  ports.release(17);
  CHECK(ports.bind(all + 1, binding));
}

TEST_CASE("a binding that does not say so is not for IPv6 alone", "[control][cm]") {
  control::PortSpace ports(3);
  control::Binding any6{.address = wire::IpAddress(), .port = 7174, .devices = 1};
  control::Binding any4{.address = wire::IpAddress::v4(0), .port = 7174, .devices = 1};
  REQUIRE(ports.bind(1, any6));
  CHECK_FALSE(ports.bind(2, any4));
}

TEST_CASE("an IPv6 wildcard takes IPv4's port too, unless it is for IPv6 alone", "[control][cm]") {
  CmWorld w;
  const rnic_address any6 = control::to_abi(wire::IpAddress(), 7174);
  const auto both = w.id();
  REQUIRE(w.cm.bind(both, any6) == 0);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
  REQUIRE(w.cm.destroy_id(both));

  const std::int32_t on = 1;
  const auto alone = w.id();
  REQUIRE(w.cm.set_option(alone, 0, 2, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(alone, any6) == 0);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == 0);
}

// ---- listening --------------------------------------------------------------------------------

TEST_CASE("a wildcard listener listens on every device that its application sees", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(1, 0x5);
  REQUIRE(w.cm.bind(id, ipv4(0, 0, 0, 0, 7174)) == 0);
  REQUIRE(w.cm.listen(id, 9) == 0);
  REQUIRE(w.host.listening.size() == 2);
  CHECK(w.host.listening[0].device == 0);
  CHECK(w.host.listening[1].device == 2);
  CHECK(w.host.listening[1].backlog == 9);
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.listening.empty());
}

TEST_CASE("a listener that is bound to an address listens there alone", "[control][cm]") {
  CmWorld w;
  w.listening(ipv4(127, 0, 1, 2, 7174));
  REQUIRE(w.host.listening.size() == 1);
  CHECK(w.host.listening[0].device == 1);
  CHECK(w.host.listening[0].address == wire::IpAddress::v4(127, 0, 1, 2));
}

TEST_CASE("an unbound id listens at an ephemeral port", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.listen(id, 1) == 0);
  CHECK(control::port_of(w.cm.query(id)->source) >= control::PortSpace::kEphemeralFirst);
}

TEST_CASE("a listener that cannot be on all of its devices is on none", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  w.cm.bind(id, ipv4(0, 0, 0, 0, 7174));
  w.host.listen_errors = {};
  REQUIRE(w.cm.listen(id, 1) == 0);
  REQUIRE(w.cm.destroy_id(id));
  const auto next = w.id();
  w.cm.bind(next, ipv4(0, 0, 0, 0, 7174));
  w.host.listen_errors = {StreamError::address_in_use};
  CHECK(w.cm.listen(next, 1) == EADDRINUSE);
  CHECK(w.host.listening.empty());
  CHECK(w.cm.listen(next, 1) == 0);
}
