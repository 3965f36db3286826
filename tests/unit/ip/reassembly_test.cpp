// Packets put together from fragments, Linux's among them.
#include "ip/reassembly.hpp"

#include <algorithm>
#include <vector>

#include "kit/allocations.hpp"
#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

using namespace rnic;
using ip::Fragment;
using ip::Reassembly;
using Outcome = Reassembly::Outcome;
using wire::IpAddress;

namespace {

constexpr Instant at(std::int64_t ms) { return Instant{0} + milliseconds(1'000'000 + ms); }

const IpAddress kFrom = *wire::parse_ip("2001:db8:1::1"), kTo = *wire::parse_ip("2001:db8:1::2");

// The octets that ping fills its packets with, from the one with this number on.
std::vector<std::byte> ping_pattern(std::size_t from, std::size_t count) {
  std::vector<std::byte> octets(count);
  for (std::size_t i = 0; i < count; ++i) octets[i] = static_cast<std::byte>(from + i);
  return octets;
}

// Octets of a fragment by their places in the packet.
std::vector<std::byte> content(std::uint32_t first, std::uint32_t count, unsigned tag = 0) {
  std::vector<std::byte> octets(count);
  for (std::uint32_t i = 0; i < count; ++i)
    octets[i] = static_cast<std::byte>((first + i) * 7 + tag + (first + i) / 256);
  return octets;
}

struct Assembler {
  explicit Assembler(const ip::ReassemblyOptions& options = {}) : machine(options) {}

  Reassembly::Taken take(std::uint32_t first, std::uint32_t count, bool more, std::uint32_t id = 7,
                         std::int64_t ms = 0) {
    const auto octets = content(first, count, tag);
    return machine.take({.source = from,
                         .destination = to,
                         .identification = id,
                         .protocol = protocol,
                         .ecn = ecn,
                         .offset_bytes = first,
                         .more = more,
                         .header = header,
                         .payload = octets},
                        at(ms));
  }
  Outcome gives(std::uint32_t first, std::uint32_t count, bool more, std::uint32_t id = 7, std::int64_t ms = 0) {
    return take(first, count, more, id, ms).outcome;
  }

  Reassembly machine;
  IpAddress from = kFrom, to = kTo;
  std::uint8_t protocol = wire::protocol::kTcp;
  std::uint8_t ecn = 0;
  unsigned tag = 0;
  std::vector<std::byte> header = std::vector<std::byte>(48);
};

}  // namespace

TEST_CASE("W-TCP-20: a ping of 2500 octets over IPv6, in the two fragments that Linux makes of it", "[ip][W-TCP-20]") {
  auto first = test::hex(
      "600e1c9605a02c3d20010db800010000000000000000000120010db80001000000000000000000023a000001e4d60c60"
      "8000986743490001b8f3016b00000000b1ca010000000000");
  auto second =
      test::hex("600e1c96043c2c3d20010db800010000000000000000000120010db80001000000000000000000023a000598e4d60c60");
  test::append(first, ping_pattern(16, 1432 - 24));
  test::append(second, ping_pattern(1432 - 8, 2508 - 1432));
  Reassembly machine({.bytes_max = 4096});
  const auto take = [&](const std::vector<std::byte>& packet) {
    const auto ip = wire::parse_ipv6(packet);
    const auto fragment = wire::parse_ipv6_fragment(Bytes(packet).subspan(40));
    return machine.take({.source = ip->source,
                         .destination = ip->destination,
                         .identification = fragment->fragment.identification,
                         .protocol = fragment->next_header,
                         .ecn = 0,
                         .offset_bytes = fragment->fragment.offset_bytes,
                         .more = fragment->fragment.more,
                         .header = Bytes(packet).first(48),
                         .payload = Bytes(packet).subspan(48)},
                        at(0));
  };
  CHECK(take(second).outcome == Outcome::waiting);
  const auto whole = take(first);
  REQUIRE(whole.outcome == Outcome::complete);
  CHECK(whole.packet.protocol == wire::protocol::kIcmpV6);
  CHECK(whole.packet.buffer->length == 2508);
  CHECK(wire::transport_checksum(kFrom, kTo, wire::protocol::kIcmpV6, whole.packet.buffer->bytes()) == 0);
  CHECK(test::copy_of(whole.packet.header) == test::copy_of(Bytes(first).first(48)));
}

TEST_CASE("W-TCP-20: a ping of 2500 octets over IPv4, in the two fragments that Linux makes of it", "[ip][W-TCP-20]") {
  auto first = test::hex("450005dc599420004001e4f00a4d01010a4d01020800d8f243480001b8f3016b000000004ebe010000000000");
  auto second = test::hex("45000418599400b9400105fc0a4d01010a4d0102");
  test::append(first, ping_pattern(16, 1480 - 24));
  test::append(second, ping_pattern(1480 - 8, 2508 - 1480));
  Reassembly machine({.bytes_max = 4096});
  Reassembly::Taken whole;
  for (const auto* packet : {&first, &second}) {
    const auto ip = wire::parse_ipv4(*packet);
    REQUIRE(ip);
    CHECK(wire::ipv4_checksum_is_good(*packet, *ip));
    whole = machine.take({.source = ip->header.source,
                          .destination = ip->header.destination,
                          .identification = ip->header.identification,
                          .protocol = ip->header.protocol,
                          .ecn = 0,
                          .offset_bytes = ip->header.fragment_offset_bytes,
                          .more = ip->header.more_fragments,
                          .header = Bytes(*packet).first(20),
                          .payload = Bytes(*packet).subspan(20)},
                         at(0));
  }
  REQUIRE(whole.outcome == Outcome::complete);
  CHECK(whole.packet.buffer->length == 2508);
  CHECK(wire::icmp_checksum_is_good(whole.packet.buffer->bytes()));
}

TEST_CASE("W-TCP-20: fragments make the packet in whatever order they come", "[ip][W-TCP-20]") {
  struct Piece {
    std::uint32_t first, count;
    bool more;
  };
  std::vector<Piece> pieces{{0, 512, true}, {512, 8, true}, {520, 480, true}, {1000, 333, false}};
  std::vector<int> order{0, 1, 2, 3};
  std::uint32_t id = 0;
  do {
    Assembler t;
    ++id;
    Reassembly::Taken last;
    for (int i = 0; i < 4; ++i) {
      const Piece& piece = pieces[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
      last = t.take(piece.first, piece.count, piece.more, id);
      CHECK(last.outcome == (i == 3 ? Outcome::complete : Outcome::waiting));
    }
    REQUIRE(last.packet.buffer);
    CHECK(test::copy_of(last.packet.buffer->bytes()) == content(0, 1333));
    CHECK(t.machine.open() == 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("W-TCP-20: a packet as large as the bound is put together, one octet more is not", "[ip][W-TCP-20]") {
  Assembler t({.bytes_max = 1500});
  CHECK(t.gives(0, 1496, true) == Outcome::waiting);
  CHECK(t.gives(1496, 4, false) == Outcome::complete);
  CHECK(t.gives(0, 1496, true, 8) == Outcome::waiting);
  CHECK(t.gives(1496, 5, false, 8) == Outcome::dropped);
}

TEST_CASE("W-TCP-20: fragments that overlap end their packet, and what is still to come of it", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  CHECK(t.gives(56, 64, true) == Outcome::dropped);
  CHECK(t.gives(64, 64, true) == Outcome::dropped);
  CHECK(t.gives(128, 64, false) == Outcome::dropped);
  // Another packet is none the worse.
  CHECK(t.gives(0, 64, true, 8) == Outcome::waiting);
  CHECK(t.gives(64, 8, false, 8) == Outcome::complete);
}

TEST_CASE("W-TCP-20: an exact duplicate is no overlap, one with other octets is", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  CHECK(t.gives(64, 9, false) == Outcome::complete);
  CHECK(t.gives(0, 64, true, 8) == Outcome::waiting);
  t.tag = 1;
  CHECK(t.gives(0, 64, true, 8) == Outcome::dropped);
}

TEST_CASE("W-TCP-20: a packet has one end", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(64, 8, false) == Outcome::waiting);
  CHECK(t.gives(128, 8, false) == Outcome::dropped);  // another end
  CHECK(t.gives(64, 8, false, 8) == Outcome::waiting);
  CHECK(t.gives(72, 8, true, 8) == Outcome::dropped);  // behind the end
  CHECK(t.gives(72, 8, true, 9) == Outcome::waiting);
  CHECK(t.gives(64, 8, false, 9) == Outcome::dropped);  // before what was there
}

TEST_CASE("W-TCP-20: only the last fragment may end between units of eight octets", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(0, 63, true) == Outcome::bad_length);
  CHECK(t.machine.open() == 0);
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  CHECK(t.gives(64, 1, false) == Outcome::complete);
}

TEST_CASE("W-TCP-20: no packet ends beyond 65535 octets", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(65528, 7, true) == Outcome::bad_length);
  CHECK(t.gives(65528, 8, false) == Outcome::too_long);
  CHECK(t.gives(65528, 7, false) == Outcome::dropped);  // legal, but more than we keep
  t.from = IpAddress::v4(10, 0, 0, 1);
  t.to = IpAddress::v4(10, 0, 0, 2);
  t.header.resize(20);
  CHECK(t.gives(65512, 4, false) == Outcome::too_long);
  CHECK(t.gives(65512, 3, false) == Outcome::dropped);
}

TEST_CASE("W-TCP-20: a fragment of nothing is nothing", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(0, 0, true) == Outcome::dropped);
  CHECK(t.gives(8, 0, false) == Outcome::dropped);
  CHECK(t.machine.open() == 0);
}

TEST_CASE("W-TCP-20: a fragment that is all of its packet does not meet others of its name", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  const auto whole = t.take(0, 100, false);
  REQUIRE(whole.outcome == Outcome::complete);
  CHECK(whole.packet.buffer->length == 100);
  CHECK(t.gives(64, 8, false) == Outcome::complete);
}

TEST_CASE("W-TCP-20: packets are told apart by addresses and name, in IPv4 by protocol too", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  CHECK(t.gives(64, 8, false, 8) == Outcome::waiting);
  t.from = *wire::parse_ip("2001:db8:1::3");
  CHECK(t.gives(64, 8, false) == Outcome::waiting);
  t.from = kFrom;
  t.to = *wire::parse_ip("2001:db8:1::4");
  CHECK(t.gives(64, 8, false) == Outcome::waiting);
  t.to = kTo;
  t.protocol = wire::protocol::kIcmpV6;  // says the second, and only the first counts
  const auto whole = t.take(64, 8, false);
  REQUIRE(whole.outcome == Outcome::complete);
  CHECK(whole.packet.protocol == wire::protocol::kTcp);

  t.from = IpAddress::v4(10, 0, 0, 1);
  t.to = IpAddress::v4(10, 0, 0, 2);
  t.header.resize(20);
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  t.protocol = wire::protocol::kTcp;
  CHECK(t.gives(64, 8, false) == Outcome::waiting);
}

TEST_CASE("W-TCP-20: after 60 seconds a packet is given up, and its first fragment can be shown", "[ip][W-TCP-20]") {
  Assembler t;
  CHECK(t.machine.next_deadline() == kNever);
  t.header[3] = std::byte{42};
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  CHECK(t.gives(72, 8, false, 8, 10) == Outcome::waiting);
  CHECK(t.machine.next_deadline() == at(60'000));
  CHECK_FALSE(t.machine.next_expired(at(59'999)));
  const auto expired = t.machine.next_expired(at(60'000));
  REQUIRE(expired);
  CHECK(expired->source == kFrom);
  CHECK(test::copy_of(expired->header) == t.header);
  CHECK(test::copy_of(expired->payload) == content(0, 64));
  CHECK_FALSE(t.machine.next_expired(at(60'000)));
  const auto other = t.machine.next_expired(at(60'010));
  REQUIRE(other);
  CHECK(other->payload.empty());
  CHECK_FALSE(t.machine.next_expired(at(60'010)));
  CHECK(t.machine.next_deadline() == kNever);
  // What comes now begins anew.
  CHECK(t.gives(64, 8, false, 7, 60'020) == Outcome::waiting);
}

TEST_CASE(
    "W-TCP-20: of a packet that is given up nothing can be shown without all of its headers, or where it was spoilt",
    "[ip][W-TCP-20]") {
  Assembler t;
  t.header = content(0, 128);  // as long as is kept
  CHECK(t.gives(0, 64, true, 1) == Outcome::waiting);
  t.header.resize(129);
  CHECK(t.gives(0, 64, true, 2) == Outcome::waiting);
  t.header.resize(48);
  CHECK(t.gives(0, 64, true, 3) == Outcome::waiting);
  CHECK(t.gives(56, 64, true, 3) == Outcome::dropped);
  std::size_t shown = 0, given_up = 0;
  while (const auto expired = t.machine.next_expired(at(60'000))) {
    ++given_up;
    CHECK(expired->header.empty() == expired->payload.empty());
    if (expired->header.empty()) continue;
    ++shown;
    CHECK(test::copy_of(expired->header) == content(0, 128));
    CHECK(test::copy_of(expired->payload) == content(0, 64));
  }
  CHECK(given_up == 3);
  CHECK(shown == 1);
}

TEST_CASE("W-TCP-20: a source has its part of the table, and loses its own oldest", "[ip][W-TCP-20]") {
  Assembler t({.packets_max = 4, .packets_per_source_max = 2});
  t.from = *wire::parse_ip("2001:db8:1::9");
  CHECK(t.gives(0, 64, true, 1) == Outcome::waiting);
  t.from = kFrom;
  for (std::uint32_t id = 1; id <= 3; ++id) CHECK(t.gives(0, 64, true, id, id) == Outcome::waiting);
  CHECK(t.machine.open() == 3);
  CHECK(t.gives(64, 8, false, 3) == Outcome::complete);
  CHECK(t.gives(64, 8, false, 2) == Outcome::complete);
  CHECK(t.gives(64, 8, false, 1) == Outcome::waiting);  // the first was lost
  t.from = *wire::parse_ip("2001:db8:1::9");
  CHECK(t.gives(64, 8, false, 1) == Outcome::complete);
}

TEST_CASE("W-TCP-20: a full table gives up what is spoilt before what is old", "[ip][W-TCP-20]") {
  Assembler t({.packets_max = 2, .packets_per_source_max = 2});
  CHECK(t.gives(0, 64, true, 1, 0) == Outcome::waiting);
  t.from = *wire::parse_ip("2001:db8:1::8");
  CHECK(t.gives(0, 64, true, 2, 1) == Outcome::waiting);
  CHECK(t.gives(8, 64, true, 2, 1) == Outcome::dropped);
  t.from = *wire::parse_ip("2001:db8:1::9");
  CHECK(t.gives(0, 64, true, 3, 2) == Outcome::waiting);
  t.from = kFrom;
  CHECK(t.gives(64, 8, false, 1, 3) == Outcome::complete);
}

TEST_CASE("W-TCP-20: whoever keeps whole packets does not keep others from being put together for ever",
          "[ip][W-TCP-20]") {
  Assembler t({.packets_max = 2});
  std::vector<Reassembly::Taken> kept;
  for (std::uint32_t id = 0; id < 4; ++id) {
    CHECK(t.gives(0, 64, true, id) == Outcome::waiting);
    kept.push_back(t.take(64, 8, false, id));
    CHECK(kept.back().outcome == Outcome::complete);
  }
  CHECK(t.gives(0, 64, true, 9) == Outcome::dropped);  // no buffer is left
  CHECK(t.machine.open() == 0);
  kept.clear();
  CHECK(t.gives(0, 64, true, 9) == Outcome::waiting);
}

TEST_CASE("W-TCP-20: congestion that a fragment met is congestion of the packet", "[ip][W-TCP-20]") {
  Assembler t;
  t.ecn = 2;
  CHECK(t.gives(0, 64, true) == Outcome::waiting);
  t.ecn = 3;
  CHECK(t.take(64, 8, false).packet.ecn == 3);
  // RFC 3168 s5.3: a packet that is half not capable of it is dropped.
  t.ecn = 0;
  CHECK(t.gives(0, 64, true, 8) == Outcome::waiting);
  t.ecn = 3;
  CHECK(t.gives(64, 8, false, 8) == Outcome::dropped);
  t.ecn = 1;
  CHECK(t.gives(0, 64, true, 9) == Outcome::waiting);
  CHECK(t.take(64, 8, false, 9).packet.ecn == 1);
}

TEST_CASE("W-TCP-20: fragments cost no memory but what was taken at the start", "[ip][W-TCP-20]") {
  Assembler t;
  const auto octets = content(0, 64);
  const auto before = test::allocations();
  for (std::uint32_t id = 0; id < 1000; ++id)
    (void)t.machine.take({.source = kFrom,
                          .destination = kTo,
                          .identification = id,
                          .protocol = 6,
                          .ecn = 0,
                          .offset_bytes = 0,
                          .more = true,
                          .header = Bytes(octets).first(48),
                          .payload = octets},
                         at(id));
  CHECK(test::allocations() == before);
  CHECK(t.machine.open() <= 8);
}
