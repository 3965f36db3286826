// Addresses and the headers below TCP, against octets that Linux made and tshark finds good.
#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/arp.hpp"
#include "wire/ethernet.hpp"
#include "wire/ib_mtu.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/mld.hpp"
#include "wire/neighbour_discovery.hpp"
#include "wire/vlan.hpp"

using namespace rnic;
using namespace rnic::wire;
using test::hex;

namespace {

const Mac kA{{0x0e, 0x10, 0xa7, 0xf2, 0x17, 0xb6}};
const Mac kB{{0xa6, 0x07, 0xb6, 0x4e, 0xe8, 0x58}};
const IpAddress kA4 = IpAddress::v4(10, 77, 0, 1), kB4 = IpAddress::v4(10, 77, 0, 2);
const IpAddress kA6 = *parse_ip("fd00:77::1"), kB6 = *parse_ip("fd00:77::2");

const auto kArpReply = hex("0e10a7f217b6a607b64ee85808060001080006040002a607b64ee8580a4d00020e10a7f217b60a4d0001");
const auto kEchoRequest =
    hex("a607b64ee8580e10a7f217b6080045000020156b4000400110d60a4d00010a4d0002080017f8123400016563686f");
const auto kUnreachable =
    hex("0e10a7f217b6a607b64ee858080045c0003ea66c00004001bef60a4d00020a4d0001030311b900000000450000"
        "224e3d40004011d7f10a4d00010a4d0002dc320009000eb6bd6f6374657473");
const auto kSolicitation =
    hex("3333ff0000020e10a7f217b686dd6000000000203afffd000077000000000000000000000001ff0200000000"
        "000000000001ff0000028700b0f100000000fd00007700000000000000000000000201010e10a7f217b6");
const auto kAdvertisement =
    hex("0e10a7f217b6a607b64ee85886dd6000000000203afffd000077000000000000000000000002fd0000770000"
        "000000000000000000018800d88760000000fd0000770000000000000000000000020201a607b64ee858");
// A listener report behind a hop-by-hop header.
const auto kHopByHop =
    hex("3333000000164210b81c69c186dd600000000038000100000000000000000000000000000000ff02000000000000"
        "00000000000000163a000502000001008f0003910000000204000000ff0200000000000000000001ff0000020400"
        "0000ff0200000000000000000001ff1c69c1");

const Mac kRouterMac{{0x02, 0, 0, 0, 0, 0xb0}}, kHostMac{{0x02, 0, 0, 0, 0, 0xa0}};
const auto kRouterSolicitation =
    hex("3333000000020200000000a086dd6000000000103afffe80000000000000000000fffe0000a0ff020000000000000000"
        "000000000002850079ee0000000001010200000000a0");
// radvd's: two prefixes, a route and a name server, which are none of our business, MTU and link address.
const auto kRouterAdvertisement =
    hex("3333000000010200000000b086dd600c2c1500903afffe80000000000000000000fffe0000b0ff020000000000000000"
        "000000000001860008933d00070800004e2000000384030440c000001c2000000e100000000020010db8000500000000"
        "00000000000003044080000002580000012c0000000020010db800060000000000000000000018033000000001f42001"
        "0db8000900000000000000000000190300000000000420010db800000000000000000000005305010000000005c80101"
        "0200000000b0");
// Linux asks whether its address is taken.
const auto kDuplicateProbe =
    hex("3333ff0000a00200000000a086dd6000000000203aff00000000000000000000000000000000ff020000000000000000"
        "0001ff0000a087001a0500000000fe80000000000000000000fffe0000a00e01265296ca96bc");
const auto kListenerReport =
    hex("3333000000160200000000a086dd6000000000240001000000000000000000000000000000"
        "00ff0200000000000000000000000000163a000502000001008f006eea0000000104000000ff02000000000000000000"
        "01ff0000a0");
const auto kListenerQuery =
    hex("333300000001a28d0dcc153f86dd6000000000240001fe80000000000000a08d0dfffecc153fff020000000000000000"
        "0000000000013a00050200000000820094782710000000000000000000000000000000000000020300"
        "00");

}  // namespace

TEST_CASE("W-TCP-01: addresses as text and back", "[wire][W-TCP-01]") {
  CHECK(to_string(kA) == "0e:10:a7:f2:17:b6");
  CHECK(parse_mac("0E:10:a7:f2:17:b6") == kA);
  CHECK_FALSE(parse_mac("0e:10:a7:f2:17"));
  CHECK_FALSE(parse_mac("0e:10:a7:f2:17:bg"));
  CHECK_FALSE(parse_mac("0e-10-a7-f2-17-b6"));
  CHECK(to_string(kA4) == "10.77.0.1");
  CHECK(to_string(kA6) == "fd00:77::1");
  CHECK(parse_ip("10.77.0.1") == kA4);
  CHECK(parse_ip("::ffff:10.77.0.1") == kA4);
  CHECK_FALSE(parse_ip("10.77.0"));
  CHECK_FALSE(parse_ip("10.77.0.256"));
  CHECK_FALSE(parse_ip(""));
}

TEST_CASE("W-TCP-01: what kind of address it is", "[wire][W-TCP-01]") {
  CHECK(kA4.is_v4());
  CHECK(kA6.is_v6());
  CHECK(IpAddress{}.is_v6());
  CHECK(IpAddress{}.is_unspecified());
  CHECK(IpAddress::v4(0).is_unspecified());
  CHECK_FALSE(kA4.is_unspecified());
  CHECK(IpAddress::v4(127, 0, 1, 2).is_loopback());
  CHECK(parse_ip("::1")->is_loopback());
  CHECK(IpAddress::v4(224, 0, 0, 1).is_multicast());
  CHECK(IpAddress::v4(239, 255, 255, 255).is_multicast());
  CHECK_FALSE(IpAddress::v4(240, 0, 0, 0).is_multicast());
  CHECK(parse_ip("ff02::1")->is_multicast());
  CHECK(parse_ip("fe80::1")->is_link_local());
  CHECK(IpAddress::v4(169, 254, 1, 1).is_link_local());
  CHECK(IpAddress::v4(255, 255, 255, 255).is_limited_broadcast());
  CHECK(kBroadcastMac.is_broadcast());
  CHECK(Mac{{0x33, 0x33, 0, 0, 0, 1}}.is_multicast());
  CHECK_FALSE(kA.is_multicast());
}

TEST_CASE("W-TCP-01: two addresses share a network up to its last bit", "[wire][W-TCP-01]") {
  CHECK(same_network(IpAddress::v4(10, 0, 0, 127), IpAddress::v4(10, 0, 0, 0), 25));
  CHECK_FALSE(same_network(IpAddress::v4(10, 0, 0, 128), IpAddress::v4(10, 0, 0, 0), 25));
  CHECK(same_network(IpAddress::v4(1, 2, 3, 4), IpAddress::v4(200, 0, 0, 0), 0));
  CHECK(same_network(kA4, kA4, 32));
  CHECK_FALSE(same_network(kA4, kB4, 32));
  CHECK(same_network(kA6, kB6, 64));
  CHECK_FALSE(same_network(kA6, kB6, 127));
  CHECK_FALSE(same_network(kA4, kA6, 0));
}

TEST_CASE("W-TCP-22: the sum of RFC 1071's example", "[wire][W-TCP-22]") {
  CHECK(checksum_of(Bytes(hex("0001 f203 f4f5 f6f7"))) == static_cast<std::uint16_t>(~0xDDF2));
  CHECK(checksum_of(Bytes{}) == 0xFFFF);
}

TEST_CASE("W-TCP-22: sums of any length, place and division agree with the sum octet by octet", "[wire][W-TCP-22]") {
  std::vector<std::byte> bytes(700);
  std::uint32_t x = 1;
  for (auto& b : bytes) b = static_cast<std::byte>((x = x * 1664525 + 1013904223) >> 24);
  // Runs of 0xff carry the most.
  for (std::size_t i = 300; i < 500; ++i) bytes[i] = std::byte{0xff};
  for (std::size_t from : {0u, 1u, 3u, 290u})
    for (std::size_t size = 0; from + size <= bytes.size(); size += size < 300 ? 1 : 37) {
      const Bytes part = Bytes(bytes).subspan(from, size);
      std::uint32_t sum = 0;
      for (std::size_t i = 0; i < size; ++i) sum += std::to_integer<std::uint32_t>(part[i]) << (i % 2 == 0 ? 8 : 0);
      while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
      const auto expected = static_cast<std::uint16_t>(~sum);
      if (checksum_of(part) != expected) FAIL("at " << from << " of " << size);
      const std::size_t half = size / 4 * 2;
      if (checksum_of(sum_of(part.first(half)) + sum_of(part.subspan(half))) != expected)
        FAIL("in two parts at " << from << " of " << size);
    }
  SUCCEED();
}

TEST_CASE("W-TCP-01: ARP as Linux says it", "[wire][W-TCP-01]") {
  const auto ethernet = parse_ethernet(kArpReply);
  REQUIRE(ethernet);
  CHECK(*ethernet == EthernetHeader{kA, kB, ether_type::kArp});
  const auto arp = parse_arp(Bytes(kArpReply).subspan(14));
  REQUIRE(arp);
  CHECK(*arp == ArpPacket{ArpPacket::kReply, kB, kB4, kA, kA4});
  std::vector<std::byte> out(42);
  emit(*ethernet, out);
  emit(*arp, MutableBytes(out).subspan(14));
  CHECK(out == kArpReply);
  CHECK_FALSE(parse_arp(Bytes(kArpReply).subspan(14, 27)));
  CHECK_FALSE(parse_ethernet(Bytes(kArpReply).first(13)));
  auto token_ring = kArpReply;
  token_ring[15] = std::byte{6};
  CHECK_FALSE(parse_arp(Bytes(token_ring).subspan(14)));
}

TEST_CASE("W-TCP-01: a VLAN tag", "[wire][W-TCP-01]") {
  // Priority 5, VLAN 100, IPv4 (IEEE 802.1Q: PCP 3 bits, DEI 1, VID 12).
  const auto bytes = hex("a064 0800");
  const VlanTag tag{.priority = 5, .drop_eligible = false, .id = 100, .type = ether_type::kIpv4};
  CHECK(parse_vlan(bytes) == tag);
  std::vector<std::byte> out(4);
  emit(tag, out);
  CHECK(out == bytes);
  CHECK_FALSE(parse_vlan(Bytes(bytes).first(3)));
}

TEST_CASE("W-TCP-01: an ICMP echo over IPv4, as Linux says it", "[wire][W-TCP-01]") {
  const Bytes packet = Bytes(kEchoRequest).subspan(14);
  const auto ip = parse_ipv4(packet);
  REQUIRE(ip);
  CHECK(ip->header == Ipv4Header{.total_length = 32,
                                 .identification = 0x156b,
                                 .dont_fragment = true,
                                 .protocol = protocol::kIcmp,
                                 .source = kA4,
                                 .destination = kB4});
  CHECK(ip->header_size == 20);
  CHECK(ipv4_checksum_is_good(packet, *ip));
  const Bytes message = packet.subspan(20);
  CHECK(icmp_checksum_is_good(message));
  const auto icmp = parse_icmp(message);
  REQUIRE(icmp);
  CHECK(icmp->type == icmp_type::kEchoRequest);
  CHECK(icmp->identifier() == 0x1234);
  CHECK(icmp->sequence() == 1);
  std::vector<std::byte> out(packet.begin(), packet.end());
  emit(ip->header, out);
  emit(*icmp, MutableBytes(out).subspan(20));
  icmp_set_checksum(MutableBytes(out).subspan(20));
  CHECK(out == std::vector<std::byte>(packet.begin(), packet.end()));
}

TEST_CASE("W-TCP-07: an ICMP error quotes the packet it is about", "[wire][W-TCP-07]") {
  const Bytes packet = Bytes(kUnreachable).subspan(14);
  const auto ip = parse_ipv4(packet);
  REQUIRE(ip);
  CHECK(ip->header.traffic_class == 0xC0);
  const auto icmp = parse_icmp(packet.subspan(20));
  REQUIRE(icmp);
  CHECK(icmp->type == icmp_type::kUnreachable);
  CHECK(icmp->code == icmp_code::kPortUnreachable);
  const auto quoted = parse_ipv4(packet.subspan(28));
  REQUIRE(quoted);
  CHECK(quoted->header.destination == kB4);
  // RFC 1191 s4: the MTU is in the low half of the second word.
  const auto needed = parse_icmp(hex("0304 0000 0000 05dc"));
  REQUIRE(needed);
  CHECK(needed->next_hop_mtu_v4() == 1500);
}

TEST_CASE("W-TCP-01: an IPv4 header whose lengths disagree is refused", "[wire][W-TCP-01]") {
  auto packet = hex("45000020156b4000400110d60a4d00010a4d0002 080017f8123400016563686f");
  CHECK(parse_ipv4(packet));
  CHECK_FALSE(parse_ipv4(Bytes(packet).first(31)));
  CHECK_FALSE(parse_ipv4(Bytes(packet).first(19)));
  packet.resize(46);  // Ethernet's padding
  REQUIRE(parse_ipv4(packet));
  CHECK(parse_ipv4(packet)->payload_size() == 12);
  packet[0] = std::byte{0x46};
  REQUIRE(parse_ipv4(packet));  // one word of options
  CHECK(parse_ipv4(packet)->header_size == 24);
  packet[0] = std::byte{0x49};  // options beyond the packet's end
  CHECK_FALSE(parse_ipv4(packet));
  packet[0] = std::byte{0x44};
  CHECK_FALSE(parse_ipv4(packet));
  packet[0] = std::byte{0x65};
  CHECK_FALSE(parse_ipv4(packet));
}

TEST_CASE("W-TCP-20: the fields of an IPv4 fragment", "[wire][W-TCP-20]") {
  std::vector<std::byte> out(20);
  const Ipv4Header last{.total_length = 20, .identification = 7, .fragment_offset_bytes = 65528};
  emit(last, out);
  CHECK(load_be<std::uint16_t>(out, 6) == 0x1FFF);
  CHECK(parse_ipv4(out)->header == last);
  CHECK(last.is_fragment());
  const Ipv4Header first{.total_length = 20, .more_fragments = true};
  emit(first, out);
  CHECK(load_be<std::uint16_t>(out, 6) == 0x2000);
  CHECK(first.is_fragment());
  CHECK_FALSE(Ipv4Header{.dont_fragment = true}.is_fragment());
}

TEST_CASE("W-TCP-01: neighbour discovery as Linux says it", "[wire][W-TCP-01]") {
  for (const auto* golden : {&kSolicitation, &kAdvertisement}) {
    const Bytes packet = Bytes(*golden).subspan(14);
    const auto ip = parse_ipv6(packet);
    REQUIRE(ip);
    CHECK(ip->next_header == protocol::kIcmpV6);
    CHECK(ip->hop_limit == 255);
    CHECK(ip->payload_length == 32);
    const Bytes message = packet.subspan(40);
    CHECK(transport_checksum(ip->source, ip->destination, protocol::kIcmpV6, message) == 0);
    const auto neighbour = parse_neighbour(message);
    REQUIRE(neighbour);
    const bool reply = golden == &kAdvertisement;
    CHECK(neighbour->advertisement == reply);
    CHECK(neighbour->solicited == reply);
    CHECK(neighbour->override_entry == reply);
    CHECK_FALSE(neighbour->router);
    CHECK(neighbour->target == kB6);
    CHECK(neighbour->link_address == (reply ? kB : kA));
    std::vector<std::byte> out(72);
    emit(*ip, out);
    CHECK(emit(*neighbour, MutableBytes(out).subspan(40)) == 32);
    CHECK_FALSE(neighbour->nonce);
    icmp6_set_checksum(MutableBytes(out).subspan(40), ip->source, ip->destination);
    CHECK(out == std::vector<std::byte>(packet.begin(), packet.end()));
  }
}

TEST_CASE("W-TCP-01: a neighbour option of no length is refused", "[wire][W-TCP-01]") {
  auto message = std::vector<std::byte>(kSolicitation.begin() + 54, kSolicitation.end());
  CHECK(parse_neighbour(message));
  message[25] = std::byte{0};
  CHECK_FALSE(parse_neighbour(message));
  message[25] = std::byte{2};
  CHECK_FALSE(parse_neighbour(message));
  message.resize(24);
  REQUIRE(parse_neighbour(message));
  CHECK_FALSE(parse_neighbour(message)->link_address);
  message.resize(23);
  CHECK_FALSE(parse_neighbour(message));
}

TEST_CASE("W-TCP-20: the fields of an IPv6 fragment header", "[wire][W-TCP-20]") {
  // RFC 8200 s4.5: next header TCP, offset 8 octets, more to come, identification 9.
  const auto parsed = parse_ipv6_fragment(hex("06 00 0009 00000009"));
  REQUIRE(parsed);
  CHECK(parsed->next_header == protocol::kTcp);
  CHECK(parsed->fragment == Ipv6Fragment{.identification = 9, .offset_bytes = 8, .more = true});
  CHECK_FALSE(parse_ipv6_fragment(hex("06 00 0009 000000")));
  CHECK(parse_ipv6_fragment(hex("06 00 fff8 00000009"))->fragment ==
        Ipv6Fragment{.identification = 9, .offset_bytes = 65528, .more = false});
}

TEST_CASE("W-TCP-20: the size of an extension header", "[wire][W-TCP-20]") {
  CHECK(extension_size(Bytes(kHopByHop).subspan(54)) == 8u);
  CHECK_FALSE(extension_size(Bytes(kHopByHop).subspan(54, 7)));
  std::vector<std::byte> longest(2048);
  longest[1] = std::byte{255};
  CHECK(extension_size(longest) == 2048u);
  CHECK_FALSE(extension_size(Bytes(longest).first(2047)));
}

TEST_CASE("W-TCP-01: where a neighbour's questions go", "[wire][W-TCP-01]") {
  const Bytes frame(kSolicitation);
  CHECK(solicited_node(kB6) == parse_ipv6(frame.subspan(14))->destination);
  CHECK(multicast_mac(solicited_node(kB6)) == load_mac(frame, 0));
  CHECK(kAllNodes == *parse_ip("ff02::1"));
  CHECK(kAllRouters == *parse_ip("ff02::2"));
}

TEST_CASE("W-TCP-01: a nonce in a solicitation, as Linux says it", "[wire][W-TCP-01]") {
  const Bytes packet = Bytes(kDuplicateProbe).subspan(14);
  const auto ip = parse_ipv6(packet);
  REQUIRE(ip);
  CHECK(ip->source.is_unspecified());
  const auto said = parse_neighbour(packet.subspan(40));
  REQUIRE(said);
  CHECK(said->nonce == 0x265296ca96bcu);
  CHECK_FALSE(said->link_address);
  std::vector<std::byte> out(72);
  emit(*ip, out);
  CHECK(emit(*said, MutableBytes(out).subspan(40)) == 32);
  icmp6_set_checksum(MutableBytes(out).subspan(40), ip->source, ip->destination);
  CHECK(out == std::vector<std::byte>(packet.begin(), packet.end()));
}

TEST_CASE("W-TCP-01: a router solicitation, octet for octet Linux's", "[wire][W-TCP-01]") {
  std::vector<std::byte> out(16);
  CHECK(emit_router_solicitation(kHostMac, out) == 16);
  icmp6_set_checksum(out, *parse_ip("fe80::ff:fe00:a0"), kAllRouters);
  CHECK(out == std::vector<std::byte>(kRouterSolicitation.begin() + 54, kRouterSolicitation.end()));
  CHECK(emit_router_solicitation(std::nullopt, out) == 8);
}

TEST_CASE("W-TCP-01: a router advertisement, as radvd says it", "[wire][W-TCP-01]") {
  const Bytes message = Bytes(kRouterAdvertisement).subspan(54);
  const auto said = parse_router_advertisement(message);
  REQUIRE(said);
  CHECK(said->hop_limit == 61);
  CHECK(said->lifetime_s == 1800);
  CHECK(said->reachable_ms == 20000);
  CHECK(said->retransmit_ms == 900);
  CHECK(said->mtu == 1480u);
  CHECK(said->link_address == kRouterMac);
  REQUIRE(said->prefix_count == 2);
  CHECK(said->prefixes[0] == PrefixInformation{.prefix = *parse_ip("2001:db8:5::"),
                                               .bits = 64,
                                               .on_link = true,
                                               .autonomous = true,
                                               .valid_s = 7200,
                                               .preferred_s = 3600});
  CHECK(said->prefixes[1] == PrefixInformation{.prefix = *parse_ip("2001:db8:6::"),
                                               .bits = 64,
                                               .on_link = true,
                                               .autonomous = false,
                                               .valid_s = 600,
                                               .preferred_s = 300});
}

TEST_CASE("W-TCP-01: a router advertisement that is cut off, or has an option of no length, is refused",
          "[wire][W-TCP-01]") {
  const Bytes message = Bytes(kRouterAdvertisement).subspan(54);
  CHECK(parse_router_advertisement(message.first(16)));
  CHECK_FALSE(parse_router_advertisement(message.first(15)));
  CHECK_FALSE(parse_router_advertisement(message.first(message.size() - 1)));
  std::vector<std::byte> bad(message.begin(), message.end());
  bad[17] = std::byte{0};
  CHECK_FALSE(parse_router_advertisement(bad));
  bad[17] = std::byte{4};
  bad[1] = std::byte{1};  // a code
  CHECK_FALSE(parse_router_advertisement(bad));
  // More prefixes than are kept.
  std::vector<std::byte> many(message.begin(), message.begin() + 16);
  for (int i = 0; i < 9; ++i) many.insert(many.end(), message.begin() + 16, message.begin() + 48);
  CHECK(parse_router_advertisement(many)->prefix_count == 8);
}

TEST_CASE("W-TCP-01: a listener's report, octet for octet Linux's", "[wire][W-TCP-01]") {
  std::vector<std::byte> out(ListenerReport::kSize);
  emit(ListenerReport{ListenerReport::kToExclude, *parse_ip("ff02::1:ff00:a0")}, IpAddress{}, out);
  CHECK(out == std::vector<std::byte>(kListenerReport.begin() + 54, kListenerReport.end()));
}

TEST_CASE("W-TCP-01: a listener query, as Linux's bridge asks it", "[wire][W-TCP-01]") {
  const Bytes message = Bytes(kListenerQuery).subspan(62);
  CHECK(parse_listener_query(message) == ListenerQuery{.group = {}, .answer_within_ms = 10000});
  CHECK_FALSE(parse_listener_query(message.first(23)));
  // RFC 3810 s5.1.3: exponent 1, mantissa 2: (0x1002) << 4.
  std::vector<std::byte> late(message.begin(), message.end());
  late[4] = std::byte{0x90};
  late[5] = std::byte{0x02};
  CHECK(parse_listener_query(late)->answer_within_ms == 0x1002u << 4);
}

TEST_CASE("W-TCP-01: an IPv6 packet that is cut off is refused", "[wire][W-TCP-01]") {
  const Bytes packet = Bytes(kSolicitation).subspan(14);
  CHECK(parse_ipv6(packet));
  CHECK_FALSE(parse_ipv6(packet.first(71)));
  CHECK_FALSE(parse_ipv6(packet.first(39)));
  CHECK_FALSE(parse_ipv6(Bytes(kEchoRequest).subspan(14)));
}

TEST_CASE("InfiniBand's MTUs are 256 octets to 4096, by their codes", "[wire][roce]") {
  for (std::uint8_t code = 1; code <= 5; ++code) {
    const std::uint32_t octets = 128u << code;
    CHECK(wire::ib_mtu_octets(code) == octets);
    CHECK(wire::ib_mtu_code_within(octets) == code);
    CHECK(wire::ib_mtu_code_within(octets - 1) == code - 1);
  }
  CHECK(wire::ib_mtu_code_within(65'535) == 5);
  CHECK(wire::ib_mtu_code_within(0) == 0);
}
