// rnic's own datagrams, UDP and IGMP, octet by octet.
#include "wire/datagram.hpp"

#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "kit/hex.hpp"
#include "wire/igmp.hpp"
#include "wire/udp.hpp"

using namespace rnic;
using test::Octets;
using wire::Datagram;
using wire::IpAddress;

namespace {

// As docs/wire.md has it.
constexpr const char* kSend = "7255 01 80 00000112 00000234 11111111 00000000 00000005 b27e4d36 68656c6c6f";

Datagram a_send() {
  return {.solicited = true, .source = {0x112}, .destination = {0x234}, .q_key = 0x11111111, .length = 5};
}
Octets emitted(const Datagram& datagram, const char* payload) {
  Octets whole(Datagram::kSize);
  test::append(whole, as_bytes(payload, std::strlen(payload)));
  wire::emit(datagram, whole);
  return whole;
}

}  // namespace

TEST_CASE("a datagram is these octets", "[wire][datagram]") {
  CHECK(emitted(a_send(), "hello") == test::hex(kSend));
  const auto parsed = wire::parse_datagram(test::hex(kSend));
  REQUIRE(parsed);
  CHECK(*parsed == a_send());
}

TEST_CASE("an immediate is there where the flag says so", "[wire][datagram]") {
  Datagram with = a_send();
  with.has_immediate = true;
  with.immediate = 0x01020304;
  CHECK(*wire::parse_datagram(emitted(with, "hello")) == with);
  Datagram without = a_send();
  without.immediate = 0x01020304;
  CHECK(*wire::parse_datagram(emitted(without, "hello")) == a_send());
}

TEST_CASE("a datagram of no payload is one", "[wire][datagram]") {
  Datagram empty = a_send();
  empty.length = 0;
  CHECK(*wire::parse_datagram(emitted(empty, "")) == empty);
}

TEST_CASE("a datagram that is cut off, longer, of another kind, or damaged in any octet is none", "[wire][datagram]") {
  const Octets good = test::hex(kSend);
  for (std::size_t size = 0; size < good.size(); ++size) CHECK_FALSE(wire::parse_datagram(Bytes(good).first(size)));
  Octets longer = good;
  longer.push_back({});
  CHECK_FALSE(wire::parse_datagram(longer));
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const unsigned bit : {0u, 3u, 7u}) {
      Octets damaged = good;
      damaged[i] ^= std::byte{1} << bit;
      INFO("octet " << i);
      CHECK_FALSE(wire::parse_datagram(damaged));
    }
}

TEST_CASE("UDP's length is not more than IP's, and its checksum is looked at", "[wire][udp]") {
  const auto from = IpAddress::v4(10, 0, 0, 1), to = IpAddress::v4(10, 0, 0, 2);
  const Octets payload(9, std::byte{7});
  Octets datagram = test::frames::udp(5, 6, from, to, payload);
  const auto header = wire::parse_udp(datagram);
  REQUIRE(header);
  CHECK(header->source_port == 5);
  CHECK(header->destination_port == 6);
  CHECK(header->length == 17);
  CHECK(wire::udp_checksum_is_good(from, to, datagram));
  CHECK_FALSE(wire::udp_checksum_is_good(from, IpAddress::v4(10, 0, 0, 3), datagram));
  CHECK_FALSE(wire::parse_udp(Bytes(datagram).first(16)));
  datagram.push_back({});  // IP's padding
  CHECK(wire::parse_udp(datagram)->length == 17);
  store_be<std::uint16_t>(datagram, 4, 7);
  CHECK_FALSE(wire::parse_udp(datagram));
}

TEST_CASE("a UDP checksum of 0 is none: over IPv4 that is allowed, over IPv6 not", "[wire][udp]") {
  Octets datagram(12);
  store_be<std::uint16_t>(datagram, 4, 12);
  const auto v6 = *wire::parse_ip("fd00::1");
  CHECK(wire::udp_checksum_is_good(IpAddress::v4(1), IpAddress::v4(2), datagram));
  CHECK_FALSE(wire::udp_checksum_is_good(v6, v6, datagram));
}

TEST_CASE("a membership query's version and time are read", "[wire][igmp]") {
  const auto query = [](const char* text) {
    Octets message = test::hex(text);
    store_be<std::uint16_t>(message, 2, 0);
    store_be(message, 2, wire::checksum_of(Bytes(message)));
    return wire::parse_member_query(message);
  };
  CHECK(query("1164 0000 00000000") == wire::MemberQuery{IpAddress::v4(0), 10'000, 2});
  CHECK(query("1100 0000 00000000") == wire::MemberQuery{IpAddress::v4(0), 10'000, 1});
  CHECK(query("110a 0000 e9000001 00000000") == wire::MemberQuery{IpAddress::v4(233, 0, 0, 1), 1'000, 3});
  CHECK(query("1180 0000 e9000001 00000000") == wire::MemberQuery{IpAddress::v4(233, 0, 0, 1), 12'800, 3});
  CHECK_FALSE(query("1664 0000 e9000001"));
  CHECK_FALSE(wire::parse_member_query(test::hex("1164000100000000")));
}

TEST_CASE("a membership report is an IPv4 packet with Router Alert", "[wire][igmp]") {
  Octets out(128);
  const wire::MemberReport report{
      .record_type = 4, .group = IpAddress::v4(239, 1, 2, 3), .source = IpAddress::v4(10, 0, 0, 1)};
  out.resize(wire::emit(report, out));
  CHECK(out == test::hex("46000028 00000000 0102 3ab9 0a000001 e0000016 94040000"
                         "2200e8f9 00000001 04000000 ef010203"));
  Octets older(128);
  older.resize(wire::emit(wire::MemberReport{.group = report.group, .source = report.source, .version = 2}, older));
  CHECK(older.size() == wire::MemberReport::kSizeOf2);
  CHECK(IpAddress::load_v4(older, 16) == report.group);
  CHECK(load_be<std::uint8_t>(older, 24) == 0x16);
  CHECK(wire::checksum_of(Bytes(older).subspan(24)) == 0);
}

TEST_CASE("a group of IPv4 has its MAC of 23 bits, one of IPv6 of 32", "[wire][address]") {
  CHECK(wire::multicast_mac(IpAddress::v4(239, 129, 2, 3)) == wire::Mac{{0x01, 0x00, 0x5e, 0x01, 2, 3}});
  CHECK(wire::multicast_mac(*wire::parse_ip("ff0e::1:2")) == wire::Mac{{0x33, 0x33, 0, 1, 0, 2}});
}
