// Which shard a received frame is for.
#include "port/steering.hpp"

#include <array>
#include <random>
#include <set>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "wire/rss.hpp"

namespace rnic::port {
namespace {

namespace frames = rnic::test::frames;
using rnic::test::Octets;
using wire::IpAddress;

constexpr unsigned kShards = 5;
constexpr Steered kFirst{0, false}, kAll{0, true};
constexpr std::uint16_t kTag[] = {7}, kTags[] = {7, 8};

const IpAddress kNear4 = IpAddress::v4(192, 0, 2, 1), kFar4 = IpAddress::v4(198, 51, 100, 77);
const IpAddress kNear6 = *wire::parse_ip("2001:db8::1"), kFar6 = *wire::parse_ip("2001:db8:0:1:2:3:4:5");

Octets segment(const IpAddress& from, std::uint16_t from_port, const IpAddress& to, std::uint16_t to_port,
               std::span<const std::uint16_t> tags = {}) {
  wire::TcpHeader header;
  header.source_port = from_port;
  header.destination_port = to_port;
  return frames::packet({}, wire::protocol::kTcp, from, to, frames::tcp(header, from, to, Octets(20)), tags);
}
Octets message(const IpAddress& from, const IpAddress& to, std::uint8_t type,
               std::span<const std::uint16_t> tags = {}) {
  const wire::IcmpHeader header{.type = type, .code = 0, .rest = 0};
  return from.is_v4()
             ? frames::packet({}, wire::protocol::kIcmp, from, to, frames::icmp(header, Octets(28)), tags)
             : frames::packet({}, wire::protocol::kIcmpV6, from, to, frames::icmp6(header, Octets(48), from, to), tags);
}
Octets arp(std::uint16_t operation) {
  wire::ArpPacket packet;
  packet.operation = operation;
  return frames::arp({}, packet);
}
Octets ipv4_frame(const wire::Ipv4Header& header, Bytes payload) {
  return frames::ethernet({.destination = {}, .source = {}, .type = wire::ether_type::kIpv4},
                          frames::ipv4(header, payload));
}
Steered where(const Octets& frame, unsigned shards = kShards) { return steer(frame, shards); }

// Not 0, so that it shows that the shard was computed.
std::uint16_t port_of_shard_4(const IpAddress& from, const IpAddress& to) {
  std::uint16_t port = 1000;
  while (wire::rss::shard_of(from, port, to, 4420, kShards) != 4) ++port;
  return port;
}

}  // namespace

TEST_CASE("a segment of TCP is its connection's shard's, in both directions, with a tag or none", "[port][steering]") {
  std::mt19937 chance(1);
  for (const unsigned shards : {1u, 2u, 3u, 4u, 8u}) {
    std::set<unsigned> reached;
    for (unsigned i = 0; i < 400; ++i) {
      const bool v4 = i % 2 == 0;
      std::array<std::uint8_t, 16> octets;
      for (auto& octet : octets) octet = static_cast<std::uint8_t>(chance());
      const IpAddress near = v4 ? kNear4 : kNear6,
                      far = v4 ? IpAddress::v4(static_cast<std::uint32_t>(chance())) : IpAddress::from_octets(octets);
      const auto near_port = static_cast<std::uint16_t>(chance()), far_port = static_cast<std::uint16_t>(chance());
      const Steered expected{wire::rss::shard_of(near, near_port, far, far_port, shards), false};
      REQUIRE(where(segment(far, far_port, near, near_port), shards) == expected);
      REQUIRE(where(segment(near, near_port, far, far_port), shards) == expected);
      REQUIRE(where(segment(far, far_port, near, near_port, kTag), shards) == expected);
      reached.insert(expected.shard);
    }
    CHECK(reached.size() == shards);
  }
}

TEST_CASE("options of IPv4 do not hide a segment's ports", "[port][steering]") {
  const std::uint16_t port = port_of_shard_4(kFar4, kNear4);
  Octets frame = segment(kFar4, port, kNear4, 4420);
  REQUIRE(where(frame) == Steered{4, false});
  for (unsigned words = 6; words <= 15; ++words) {
    frame.insert(frame.begin() + 34, 4, std::byte{1});
    frame[14] = static_cast<std::byte>(0x40 | words);
    CHECK(where(frame) == Steered{4, false});
  }
}

TEST_CASE("what is behind two tags, or is no IP, is shard 0's", "[port][steering]") {
  const std::uint16_t port = port_of_shard_4(kFar4, kNear4);
  CHECK(where(segment(kFar4, port, kNear4, 4420, kTag)) == Steered{4, false});
  CHECK(where(segment(kFar4, port, kNear4, 4420, kTags)) == kFirst);
  Octets frame = segment(kFar4, port, kNear4, 4420);
  for (const unsigned type : {0x0801u, 0x88b5u, 0x88a8u, 0x05dcu}) {
    store_be(MutableBytes(frame), 12, static_cast<std::uint16_t>(type));
    CHECK(where(frame) == kFirst);
  }
}

TEST_CASE("questions and answers of ARP are for all shards: who asks may have moved", "[port][steering]") {
  for (const unsigned operation : {0u, 1u, 2u, 3u, 0x0102u, 0x0200u}) {
    const Octets frame = arp(static_cast<std::uint16_t>(operation));
    const bool known = operation == wire::ArpPacket::kReply || operation == wire::ArpPacket::kRequest;
    CHECK(where(frame) == (known ? kAll : kFirst));
  }
  const Octets answer = arp(wire::ArpPacket::kReply);
  CHECK(where(frames::ethernet({.destination = {}, .source = {}, .type = wire::ether_type::kArp},
                               Bytes(answer).subspan(14), kTag)) == kAll);
}

TEST_CASE("a fragment of IPv4 is for all shards", "[port][steering]") {
  const Octets payload(32);
  for (const std::uint8_t protocol : {wire::protocol::kTcp, wire::protocol::kUdp, wire::protocol::kIcmp}) {
    wire::Ipv4Header header{.protocol = protocol, .source = kFar4, .destination = kNear4};
    header.more_fragments = true;
    CHECK(where(ipv4_frame(header, payload)) == kAll);
    header.fragment_offset_bytes = 8;
    CHECK(where(ipv4_frame(header, payload)) == kAll);
    header.more_fragments = false;
    CHECK(where(ipv4_frame(header, payload)) == kAll);
    header.fragment_offset_bytes = 0xFFF8;
    CHECK(where(ipv4_frame(header, payload)) == kAll);
    header.fragment_offset_bytes = 0;
    header.dont_fragment = true;
    CHECK_FALSE(where(ipv4_frame(header, payload)).to_all);
  }
}

TEST_CASE("errors of ICMP are for all shards, its other messages and UDP for shard 0", "[port][steering]") {
  for (unsigned type = 0; type < 256; ++type) {
    CAPTURE(type);
    const bool is_error = type == 3 || type == 5 || type == 11 || type == 12;
    CHECK(where(message(kFar4, kNear4, static_cast<std::uint8_t>(type))) == (is_error ? kAll : kFirst));
    CHECK(where(message(kFar4, kNear4, static_cast<std::uint8_t>(type), kTag)) == (is_error ? kAll : kFirst));
  }
  for (unsigned protocol = 0; protocol < 256; ++protocol)
    if (protocol != wire::protocol::kTcp && protocol != wire::protocol::kIcmp)
      CHECK(where(ipv4_frame({.protocol = static_cast<std::uint8_t>(protocol), .source = kFar4, .destination = kNear4},
                             Octets(32, std::byte{3}))) == kFirst);
}

TEST_CASE("errors of ICMPv6 and what tells of neighbours and routers are for all shards", "[port][steering]") {
  for (unsigned type = 0; type < 256; ++type) {
    CAPTURE(type);
    const bool to_all = (type >= 1 && type <= 127) || (type >= 134 && type <= 137);
    CHECK(where(message(kFar6, kNear6, static_cast<std::uint8_t>(type))) == (to_all ? kAll : kFirst));
  }
}

TEST_CASE("extension headers of IPv6 make a packet one for all shards", "[port][steering]") {
  const std::uint16_t port = port_of_shard_4(kFar6, kNear6);
  Octets frame = segment(kFar6, port, kNear6, 4420);
  REQUIRE(where(frame) == Steered{4, false});
  for (unsigned next = 0; next < 256; ++next) {
    if (next == wire::protocol::kTcp || next == wire::protocol::kIcmpV6) continue;
    CAPTURE(next);
    frame[14 + 6] = static_cast<std::byte>(next);
    const bool is_extension = next == 0 || next == 43 || next == 44 || next == 51 || next == 60 || next == 135;
    CHECK(where(frame) == (is_extension ? kAll : kFirst));
  }
}

TEST_CASE("what is cut off before it says whose it is, is shard 0's", "[port][steering]") {
  struct Case {
    Octets frame;
    std::size_t needed;
    Steered whole;
  };
  const std::uint16_t port4 = port_of_shard_4(kFar4, kNear4), port6 = port_of_shard_4(kFar6, kNear6);
  const Steered fourth{4, false};
  Octets fragment = ipv4_frame({.more_fragments = true, .source = kFar4, .destination = kNear4}, Octets(8));
  Octets extended = segment(kFar6, port6, kNear6, 4420);
  extended[14 + 6] = std::byte{wire::ipv6_next::kFragment};
  const Case cases[] = {
      {segment(kFar4, port4, kNear4, 4420), 14 + 20 + 4, fourth},
      {segment(kFar4, port4, kNear4, 4420, kTag), 18 + 20 + 4, fourth},
      {segment(kFar6, port6, kNear6, 4420), 14 + 40 + 4, fourth},
      {segment(kFar6, port6, kNear6, 4420, kTag), 18 + 40 + 4, fourth},
      {message(kFar4, kNear4, 3), 14 + 20 + 1, kAll},
      {message(kFar6, kNear6, 1), 14 + 40 + 1, kAll},
      {fragment, 14 + 20, kAll},
      {extended, 14 + 40, kAll},
      {arp(wire::ArpPacket::kReply), 14 + 8, kAll},
  };
  for (const auto& [frame, needed, whole] : cases)
    for (std::size_t length = 0; length <= frame.size(); ++length) {
      CAPTURE(needed, length);
      // Of a size of its own, so that a sanitizer sees who reads behind it.
      const Octets cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
      REQUIRE(where(cut) == (length < needed ? kFirst : whole));
      REQUIRE(steer(Bytes(frame).first(length), kShards) == (length < needed ? kFirst : whole));
    }
}

TEST_CASE("a packet whose version or header's length makes no sense is shard 0's", "[port][steering]") {
  Octets v4 = segment(kFar4, port_of_shard_4(kFar4, kNear4), kNear4, 4420);
  Octets v6 = segment(kFar6, port_of_shard_4(kFar6, kNear6), kNear6, 4420);
  for (unsigned first = 0; first < 256; ++first) {
    CAPTURE(first);
    v4[14] = v6[14] = static_cast<std::byte>(first);
    if (first >> 4 != 4 || (first & 0xF) < 5) CHECK(where(v4) == kFirst);
    CHECK(where(v6) == (first >> 4 == 6 ? Steered{4, false} : kFirst));
  }
}

}  // namespace rnic::port
