// IPv6's extension headers: to the upper layer, or to what is wrong.
#include "ip/extensions.hpp"

#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/checksum.hpp"
#include "wire/icmp.hpp"

using namespace rnic;
using End = ip::Walk::End;
using test::hex;

namespace {
constexpr std::uint8_t kHopByHop = 0, kRouting = 43, kFragment = 44, kNothing = 59, kDestination = 60;

// What Linux sends: hop-by-hop with Router Alert, then ICMPv6.
const auto kRouterAlert = hex("3a00050200000100 8f0003910000000204000000");
}  // namespace

TEST_CASE("W-TCP-20: the headers that Linux sends are stepped over", "[ip][W-TCP-20]") {
  const ip::Walk walk = ip::walk_extensions(kHopByHop, kRouterAlert);
  CHECK(walk.end == End::upper);
  CHECK(walk.protocol == wire::protocol::kIcmpV6);
  CHECK(walk.offset == 8);
  CHECK(walk.pointer == 40);  // the octet that says ICMPv6 is the header's first
}

TEST_CASE("W-TCP-20: without extension headers the upper layer begins at once", "[ip][W-TCP-20]") {
  const ip::Walk walk = ip::walk_extensions(wire::protocol::kTcp, {});
  CHECK(walk.end == End::upper);
  CHECK(walk.offset == 0);
  CHECK(walk.pointer == 6);
}

TEST_CASE("W-TCP-20: a chain of several, and nothing behind it", "[ip][W-TCP-20]") {
  // Destination options (PadN), routing with no segments left, then nothing.
  const auto chain = hex("2b00010400000000 3b00000000000000");
  const ip::Walk walk = ip::walk_extensions(kDestination, chain);
  CHECK(walk.end == End::nothing);
  CHECK(walk.offset == 16);
}

TEST_CASE("W-TCP-20: a header that is cut off ends the packet", "[ip][W-TCP-20]") {
  CHECK(ip::walk_extensions(kHopByHop, Bytes(kRouterAlert).first(7)).end == End::drop);
  CHECK(ip::walk_extensions(kHopByHop, Bytes(kRouterAlert).first(8)).end == End::upper);
  auto longer = kRouterAlert;
  longer[1] = std::byte{2};  // 24 octets, and there are 20
  CHECK(ip::walk_extensions(kHopByHop, longer).end == End::drop);
}

TEST_CASE("W-TCP-20: eight headers are walked, a ninth is not", "[ip][W-TCP-20]") {
  std::vector<std::byte> chain;
  const auto one = hex("3c00010400000000");
  for (int i = 0; i < 8; ++i) chain.insert(chain.end(), one.begin(), one.end());
  chain[7 * 8] = std::byte{wire::protocol::kTcp};
  CHECK(ip::walk_extensions(kDestination, chain).end == End::upper);
  chain[7 * 8] = std::byte{kDestination};
  chain.insert(chain.end(), one.begin(), one.end());
  CHECK(ip::walk_extensions(kDestination, chain).end == End::drop);
}

TEST_CASE("W-TCP-20: sixteen options are looked at, a seventeenth ends the packet", "[ip][W-TCP-20]") {
  std::vector<std::byte> header(24);
  header[0] = std::byte{wire::protocol::kTcp};
  header[1] = std::byte{2};
  // 15 times Pad1, then PadN to the end.
  header[17] = std::byte{1};
  header[18] = std::byte{5};
  CHECK(ip::walk_extensions(kDestination, header).end == End::upper);
  header[17] = std::byte{0};
  header[18] = std::byte{1};
  header[19] = std::byte{4};
  CHECK(ip::walk_extensions(kDestination, header).end == End::drop);
}

TEST_CASE("W-TCP-20: an option that is not known does what its first two bits say", "[ip][W-TCP-20]") {
  const auto with = [](std::uint8_t type) {
    auto header = hex("0600 0000 00000000");
    header[2] = std::byte{type};
    header[3] = std::byte{4};
    return header;
  };
  CHECK(ip::walk_extensions(kDestination, with(0x3e)).end == End::upper);
  CHECK(ip::walk_extensions(kDestination, with(0x7e)).end == End::drop);
  const ip::Walk tell = ip::walk_extensions(kDestination, with(0xbe));
  CHECK(tell.end == End::problem);
  CHECK(tell.code == wire::icmp6_code::kUnknownOption);
  CHECK(tell.pointer == 42);
  CHECK(tell.even_if_multicast);
  const ip::Walk unicast = ip::walk_extensions(kDestination, with(0xfe));
  CHECK(unicast.end == End::problem);
  CHECK_FALSE(unicast.even_if_multicast);
}

TEST_CASE("W-TCP-20: an option beyond its header's end ends the packet", "[ip][W-TCP-20]") {
  CHECK(ip::walk_extensions(kDestination, hex("0600 0104 00000000")).end == End::upper);
  CHECK(ip::walk_extensions(kDestination, hex("0600 0105 00000000")).end == End::drop);
  CHECK(ip::walk_extensions(kDestination, hex("0600 0103 00000001")).end == End::drop);  // a type, no length
}

TEST_CASE("W-TCP-20: a route that would have to be followed is refused", "[ip][W-TCP-20]") {
  CHECK(ip::walk_extensions(kRouting, hex("0600 0000 00000000")).end == End::upper);
  const ip::Walk walk = ip::walk_extensions(kRouting, hex("0600 0001 00000000"));
  CHECK(walk.end == End::problem);
  CHECK(walk.code == wire::icmp6_code::kErroneousField);
  CHECK(walk.pointer == 42);
}

TEST_CASE("W-TCP-20: hop-by-hop options may only come first", "[ip][W-TCP-20]") {
  const auto chain = hex("0000010400000000 0600010400000000");
  const ip::Walk walk = ip::walk_extensions(kDestination, chain);
  CHECK(walk.end == End::problem);
  CHECK(walk.code == wire::icmp6_code::kUnknownNextHeader);
  CHECK(walk.pointer == 40);
  CHECK(ip::walk_extensions(kHopByHop, kRouterAlert, ip::Behind::another_header).end == End::problem);
}

TEST_CASE("W-TCP-20: the walk ends at a fragment header", "[ip][W-TCP-20]") {
  const auto chain = hex("2c00010400000000 0600000900000009");
  const ip::Walk walk = ip::walk_extensions(kDestination, chain);
  CHECK(walk.end == End::fragment);
  CHECK(walk.offset == 8);
}

TEST_CASE("W-TCP-07: in a quoted packet the upper layer is found behind extension headers", "[ip][W-TCP-07]") {
  std::uint8_t protocol = 0;
  std::size_t offset = 0;
  CHECK(ip::find_quoted_upper(kHopByHop, kRouterAlert, protocol, offset));
  CHECK(protocol == wire::protocol::kIcmpV6);
  CHECK(offset == 8);
  CHECK(ip::find_quoted_upper(kFragment, hex("0600000100000009"), protocol, offset));
  CHECK(protocol == wire::protocol::kTcp);
  CHECK_FALSE(ip::find_quoted_upper(kFragment, hex("0600000900000009"), protocol, offset));  // not the first
  CHECK_FALSE(ip::find_quoted_upper(kHopByHop, Bytes(kRouterAlert).first(7), protocol, offset));
  CHECK(ip::find_quoted_upper(kNothing, {}, protocol, offset));
}
