// Where packets go next.
#include "ip/routes.hpp"

#include "support/catch.hpp"

using namespace rnic;
using wire::IpAddress;

namespace {
ip::Routes one_network() {
  ip::Routes routes;
  routes.add_own(IpAddress::v4(10, 1, 2, 3), 24);
  return routes;
}
}  // namespace

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
