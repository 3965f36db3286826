// Where packets go next.
#include "ip/routes.hpp"

#include "ip/host_loopback.hpp"
#include "kit/catch.hpp"

using namespace rnic;
using wire::IpAddress;

namespace {
ip::Routes one_network() {
  ip::Routes routes;
  routes.add_own(IpAddress::v4(10, 1, 2, 3), 24);
  return routes;
}
}  // namespace

TEST_CASE("127.0.0.1 and ::1 are every host itself, the others of 127.0.0.0/8 are not", "[ip]") {
  for (const auto& [text, is] : {std::pair{"127.0.0.1", true},
                                 {"::1", true},
                                 {"127.0.1.1", false},
                                 {"127.0.0.2", false},
                                 {"::2", false},
                                 {"10.0.0.1", false},
                                 {"0.0.0.0", false},
                                 {"::", false}}) {
    INFO(text);
    CHECK(ip::is_host_loopback(*wire::parse_ip(text)) == is);
    CHECK(ip::Routes().is_self(*wire::parse_ip(text)) == is);
  }
}

TEST_CASE("an address of our network is its own next hop, the first outside is not", "[ip]") {
  const ip::Routes routes = one_network();
  CHECK(routes.next_hop(IpAddress::v4(10, 1, 2, 254)) == IpAddress::v4(10, 1, 2, 254));
  CHECK_FALSE(routes.next_hop(IpAddress::v4(10, 1, 3, 0)));
  CHECK_FALSE(routes.next_hop(IpAddress::v4(10, 1, 1, 255)));
}

TEST_CASE("what is not on the link goes to the gateway", "[ip]") {
  ip::Routes routes = one_network();
  routes.set_gateway(IpAddress::v4(10, 1, 2, 1));
  CHECK(routes.next_hop(IpAddress::v4(192, 0, 2, 7)) == IpAddress::v4(10, 1, 2, 1));
  CHECK(routes.next_hop(IpAddress::v4(10, 1, 2, 7)) == IpAddress::v4(10, 1, 2, 7));
}

TEST_CASE("a gateway of one IP version does not serve the other", "[ip]") {
  ip::Routes routes = one_network();
  routes.set_gateway(IpAddress::v4(10, 1, 2, 1));
  CHECK_FALSE(routes.next_hop(*wire::parse_ip("2001:db8::1")));
}

TEST_CASE("broadcast, multicast and the unspecified address are nobody's", "[ip]") {
  ip::Routes routes = one_network();
  routes.set_gateway(IpAddress::v4(10, 1, 2, 1));
  CHECK_FALSE(routes.next_hop(IpAddress::v4(10, 1, 2, 255)));
  CHECK_FALSE(routes.next_hop(IpAddress::v4(255, 255, 255, 255)));
  CHECK_FALSE(routes.next_hop(IpAddress::v4(224, 0, 0, 1)));
  CHECK_FALSE(routes.next_hop(IpAddress::v4(0, 0, 0, 0)));
}

TEST_CASE("a network of two addresses has no broadcast", "[ip]") {
  ip::Routes routes;
  routes.add_own(IpAddress::v4(10, 0, 0, 0), 31);
  CHECK(routes.next_hop(IpAddress::v4(10, 0, 0, 1)) == IpAddress::v4(10, 0, 0, 1));
}

TEST_CASE("the longest prefix decides who speaks", "[ip]") {
  ip::Routes routes;
  routes.add_own(IpAddress::v4(10, 0, 0, 1), 8);
  routes.add_own(IpAddress::v4(10, 5, 0, 1), 16);
  CHECK(routes.source_for(IpAddress::v4(10, 5, 9, 9)) == IpAddress::v4(10, 5, 0, 1));
  CHECK(routes.source_for(IpAddress::v4(10, 6, 9, 9)) == IpAddress::v4(10, 0, 0, 1));
  CHECK(routes.source_for(IpAddress::v4(10, 5, 0, 1)) == IpAddress::v4(10, 5, 0, 1));
}

TEST_CASE("IPv6 networks are found by their own prefix lengths", "[ip]") {
  ip::Routes routes;
  routes.add_own(*wire::parse_ip("2001:db8:1::1"), 48);
  CHECK(routes.next_hop(*wire::parse_ip("2001:db8:1:ffff::2")));
  CHECK_FALSE(routes.next_hop(*wire::parse_ip("2001:db8:2::2")));
}

// ---- static routes and advertised ones ----------------------------------------------------------------

TEST_CASE("of several routes the one with the longest prefix is taken, in either version of IP", "[ip]") {
  ip::Routes routes = one_network();
  routes.add_own(*wire::parse_ip("2001:db8:1::3"), 64);
  const auto via = [](std::uint8_t last) { return IpAddress::v4(10, 1, 2, last); };
  const auto six = [](const char* text) { return *wire::parse_ip(text); };
  routes.set_gateway(via(1));
  REQUIRE(routes.add({.prefix = IpAddress::v4(192, 168, 0, 0), .bits = 16, .gateway = via(2)}));
  REQUIRE(routes.add({.prefix = IpAddress::v4(192, 168, 7, 0), .bits = 24, .gateway = via(3)}));
  REQUIRE(routes.add({.prefix = six("2001:db8::"), .bits = 32, .gateway = six("2001:db8:1::fe")}));
  REQUIRE(routes.add({.prefix = six("2001:db8:7::"), .bits = 48, .gateway = six("2001:db8:1::fd")}));
  CHECK(routes.next_hop(IpAddress::v4(192, 168, 7, 255)) == via(3));
  CHECK(routes.next_hop(IpAddress::v4(192, 168, 8, 0)) == via(2));
  CHECK(routes.next_hop(IpAddress::v4(192, 169, 0, 0)) == via(1));
  CHECK(routes.next_hop(six("2001:db8:7:ffff::1")) == six("2001:db8:1::fd"));
  CHECK(routes.next_hop(six("2001:db8:8::1")) == six("2001:db8:1::fe"));
  CHECK(routes.next_hop(six("2001:db8:1::77")) == six("2001:db8:1::77"));
  CHECK_FALSE(routes.next_hop(six("2001:db9::1")));
  CHECK(routes.prefix_toward(IpAddress::v4(192, 168, 7, 1)) == 24);
  CHECK(routes.prefix_toward(IpAddress::v4(8, 8, 8, 8)) == 0);
  CHECK(routes.prefix_toward(six("2001:db9::1")) == -1);
  CHECK(routes.prefix_toward(IpAddress::v4(10, 1, 2, 3)) == 33);
  CHECK(routes.prefix_toward(six("2001:db8:1::3")) == 129);
}

TEST_CASE("a part of our network can be behind a gateway", "[ip]") {
  ip::Routes routes = one_network();
  REQUIRE(routes.add({.prefix = IpAddress::v4(10, 1, 2, 128), .bits = 25, .gateway = IpAddress::v4(10, 1, 2, 1)}));
  CHECK(routes.next_hop(IpAddress::v4(10, 1, 2, 129)) == IpAddress::v4(10, 1, 2, 1));
  CHECK(routes.next_hop(IpAddress::v4(10, 1, 2, 127)) == IpAddress::v4(10, 1, 2, 127));
}

TEST_CASE("a route without a gateway is on the link", "[ip]") {
  ip::Routes routes;
  const auto ours = *wire::parse_ip("fe80::1"), theirs = *wire::parse_ip("2001:db8::7");
  routes.add_own(ours, 64);
  CHECK_FALSE(routes.next_hop(theirs));
  REQUIRE(routes.add({.prefix = *wire::parse_ip("2001:db8::"), .bits = 64, .gateway = {}}));
  CHECK(routes.next_hop(theirs) == theirs);
  routes.remove(*wire::parse_ip("2001:db8::"), 64, {});
  CHECK_FALSE(routes.next_hop(theirs));
}

TEST_CASE("a route is there once; there are sixty-four", "[ip]") {
  ip::Routes routes = one_network();
  for (int i = 0; i < 3; ++i)
    CHECK(routes.add({.prefix = IpAddress::v4(192, 168, 0, 0), .bits = 16, .gateway = IpAddress::v4(10, 1, 2, 1)}));
  CHECK(routes.routes().size() == 1);
  for (std::uint8_t i = 1; i < 64; ++i)
    CHECK(routes.add({.prefix = IpAddress::v4(192, i, 0, 0), .bits = 16, .gateway = IpAddress::v4(10, 1, 2, 1)}));
  CHECK_FALSE(routes.add({.prefix = IpAddress::v4(193, 0, 0, 0), .bits = 16, .gateway = IpAddress::v4(10, 1, 2, 1)}));
}

TEST_CASE("a suspect gateway gives way to another for the same prefix, not to a shorter one", "[ip]") {
  ip::Routes routes = one_network();
  const auto first = IpAddress::v4(10, 1, 2, 1), second = IpAddress::v4(10, 1, 2, 2);
  routes.set_gateway(first);
  routes.set_gateway(second);
  const auto far = IpAddress::v4(8, 8, 8, 8), near = IpAddress::v4(192, 168, 0, 1);
  REQUIRE(routes.add({.prefix = IpAddress::v4(192, 168, 0, 0), .bits = 16, .gateway = first}));
  CHECK(routes.next_hop(far) == first);
  CHECK(routes.suspect(first));
  CHECK_FALSE(routes.suspect(first));
  CHECK(routes.next_hop(far) == second);
  CHECK(routes.next_hop(near) == first);
  CHECK(routes.suspect(second));
  CHECK(routes.next_hop(far) == first);
  CHECK(routes.trust(second));
  CHECK_FALSE(routes.trust(second));
  CHECK(routes.next_hop(far) == second);
}

TEST_CASE("who speaks: of the destination's scope, preferred, of the next hop's network (RFC 6724 s5)", "[ip]") {
  const auto six = [](const char* text) { return *wire::parse_ip(text); };
  ip::Routes routes;
  routes.add_own(six("fe80::1"), 64);
  routes.add_own(six("2001:db8:1::1"), 64);
  routes.add_own(six("2001:db8:2::1"), 64);
  routes.set_gateway(six("fe80::fe"));
  CHECK(routes.source_for(six("fe80::7")) == six("fe80::1"));
  CHECK(routes.source_for(six("2001:db8:2::7")) == six("2001:db8:2::1"));
  CHECK(routes.source_for(six("2001:db8:1::7")) == six("2001:db8:1::1"));
  // Beyond the router: the longest common prefix.
  CHECK(routes.source_for(six("2001:db8:3::7")) == six("2001:db8:2::1"));
  routes.set_preferred(six("2001:db8:2::1"), false);
  CHECK(routes.source_for(six("2001:db8:3::7")) == six("2001:db8:1::1"));
  CHECK(routes.source_for(six("2001:db8:2::7")) == six("2001:db8:1::1"));
  routes.remove_own(six("2001:db8:1::1"));
  CHECK(routes.source_for(six("2001:db8:3::7")) == six("2001:db8:2::1"));
  CHECK_FALSE(routes.source_for(IpAddress::v4(8, 8, 8, 8)));
}

TEST_CASE("who speaks: of two that are equal else, the one with the most bits in common, to the last of an octet",
          "[ip]") {
  const auto six = [](const char* text) { return *wire::parse_ip(text); };
  const auto to = six("2001:db8:100::7");
  // They differ from it in a bit of their own: the last of an octet, and the first of the next.
  const auto earlier = six("2001:db8:0::1"), later = six("2001:db8:180::1");
  for (const bool earlier_first : {true, false}) {
    ip::Routes routes;
    routes.add_own(earlier_first ? earlier : later, 64);
    routes.add_own(earlier_first ? later : earlier, 64);
    routes.set_gateway(six("fe80::fe"));
    CHECK(routes.source_for(to) == later);
  }
}

TEST_CASE("127.0.0.1 and ::1 are oneself without being own addresses; no gateway gets what goes there", "[ip]") {
  ip::Routes routes = one_network();
  routes.set_gateway(IpAddress::v4(10, 1, 2, 1));
  routes.set_gateway(*wire::parse_ip("fe80::1"));
  for (const char* text : {"127.0.0.1", "::1"}) {
    INFO(text);
    const IpAddress self = *wire::parse_ip(text);
    CHECK(routes.is_self(self));
    CHECK_FALSE(routes.is_own(self));
    CHECK(routes.next_hop(self) == self);
    CHECK(routes.source_for(self) == self);
    CHECK(routes.prefix_toward(self) == (self.is_v4() ? 33 : 129));
  }
  CHECK(routes.is_self(IpAddress::v4(10, 1, 2, 3)));
  for (const char* text : {"127.0.0.0", "127.0.0.2", "127.0.1.1", "::2", "::"}) {
    INFO(text);
    CHECK_FALSE(routes.is_self(*wire::parse_ip(text)));
  }
}

TEST_CASE("who has 127.0.0.1 for an address does not speak to others from it", "[ip]") {
  ip::Routes routes;
  routes.add_own(IpAddress::v4(127, 0, 0, 1), 8);
  CHECK_FALSE(routes.source_for(IpAddress::v4(127, 0, 0, 2)));
  CHECK(routes.source_for(IpAddress::v4(127, 0, 0, 1)) == IpAddress::v4(127, 0, 0, 1));
  routes.add_own(IpAddress::v4(127, 0, 9, 1), 24);
  CHECK(routes.source_for(IpAddress::v4(127, 0, 0, 2)) == IpAddress::v4(127, 0, 9, 1));
}
