// A station on a link, by the packets it hears and says. What it hears was said by Linux and radvd.
#include "ip/station.hpp"

#include <algorithm>
#include <vector>

#include "kit/allocations.hpp"
#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv6.hpp"

using namespace rnic;
using test::hex;
using wire::IpAddress;
using wire::Mac;

namespace {

constexpr Mac kMac{{0x02, 0, 0, 0, 0, 0xb0}}, kLinux{{0x02, 0, 0, 0, 0, 0xa0}};
constexpr auto kOurs = IpAddress::v4(10, 77, 1, 2), kTheirs = IpAddress::v4(10, 77, 1, 1);
const auto kOurs6 = *wire::parse_ip("2001:db8:1::2"), kTheirs6 = *wire::parse_ip("2001:db8:1::1");
const auto kOurLink = *wire::parse_ip("fe80::ff:fe00:b0"), kRouter = *wire::parse_ip("fe80::ff:fe00:a0");
constexpr Instant at(std::int64_t ms) { return Instant{0} + milliseconds(1'000'000 + ms); }

// Whole frames, as they were on a veth between two Linux.
const auto kArpRequest = hex("ffffffffffff0200000000a0080600010800060400010200000000a00a4d01010000000000000a4d0102");
const auto kArpProbe = hex("ffffffffffff0200000000a0080600010800060400010200000000a000000000ffffffffffff0a4d0132");
const auto kArpAnnounce = hex("ffffffffffff0200000000a0080600010800060400020200000000a00a4d01010200000000a00a4d0101");
const auto kSolicitation = hex(
    "3333ff0000020200000000a086dd6000000000203aff20010db8000100000000000000000001ff0200000000000000000001ff0000028700"
    "1b860000000020010db800010000000000000000000201010200000000a0");
const auto kDuplicateProbe =
    hex("3333ff0000a00200000000a086dd6000000000203aff00000000000000000000000000000000ff0200000000000000000001ff0000a0"
        "87001a0500000000fe80000000000000000000fffe0000a00e01265296ca96bc");
const auto kAdvertisement = hex(
    "0200000000a00200000000b086dd6000000000203aff20010db800010000000000000000000220010db80001000000000000000000018800"
    "09c0e000000020010db800010000000000000000000202010200000000b0");
// Its link address was 02:…:b0: in these tests that is ours, and the router's a0.
const auto kRouterAdvertisement =
    hex("860008933d00070800004e2000000384030440c000001c2000000e100000000020010db800050000000000000000000003044080000002"
        "580000012c0000000020010db800060000000000000000000018033000000001f420010db80009000000000000000000001903000000"
        "00000420010db800000000000000000000005305010000000005c801010200000000a0");
const auto kListenerQuery = hex("820094782710000000000000000000000000000000000000 02030000");

struct Said {
  ip::Station::Outgoing how;
  std::vector<std::byte> octets;
};

struct Conversation {
  explicit Conversation(ip::StationOptions wanted = {}) : options(fill(std::move(wanted))), station(options) {}

  static ip::StationOptions fill(ip::StationOptions wanted) {
    wanted.mac = kMac;
    if (wanted.addresses.empty()) wanted.addresses = {{kOurs, 24}, {kOurs6, 64}};
    return wanted;
  }
  // Up, and what is said of that is over.
  Conversation& settled() {
    station.set_link(true, at(-20'000));
    for (std::int64_t ms = -20'000; ms < 0; ms += 100) (void)says(ms);
    return *this;
  }
  bool hears_arp(const std::vector<std::byte>& frame, std::int64_t ms = 0) {
    return station.on_arp(Bytes(frame).subspan(14), wire::load_mac(frame, 0).is_multicast(), at(ms));
  }
  bool hears(const std::vector<std::byte>& frame, std::int64_t ms = 0) {
    const auto ip = wire::parse_ipv6(Bytes(frame).subspan(14));
    REQUIRE(ip);
    return station.on_icmp6({ip->source, ip->destination, ip->hop_limit, wire::load_mac(frame, Mac::kSize)},
                            Bytes(frame).subspan(54), at(ms));
  }
  bool hears_message(const std::vector<std::byte>& message, const IpAddress& from, std::uint8_t hop_limit = 255,
                     std::int64_t ms = 0, const IpAddress& to = wire::kAllNodes) {
    return station.on_icmp6({from, to, hop_limit, kLinux}, message, at(ms));
  }
  std::vector<Said> says(std::int64_t ms = 0) {
    std::vector<Said> all;
    std::vector<std::byte> room(ip::Station::kMessageMax);
    while (const auto how = station.next_message(at(ms), room))
      all.push_back({*how, {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(how->size)}});
    return all;
  }
  std::optional<Mac> mac_of(const IpAddress& address, std::int64_t ms = 0) {
    const auto hop = station.neighbours().resolve(address, at(ms));
    if (!hop) return std::nullopt;
    return hop->mac;
  }

  ip::StationOptions options;
  ip::Station station;
};

struct Discovery {
  wire::Ipv6Header ip;
  wire::NeighbourMessage said;
};
// A neighbour message with everything about it right.
Discovery discovery(const Said& said) {
  CHECK(said.how.type == wire::ether_type::kIpv6);
  const auto ip = wire::parse_ipv6(said.octets);
  REQUIRE(ip);
  CHECK(ip->hop_limit == 255);
  const Bytes message = Bytes(said.octets).subspan(40);
  CHECK(wire::transport_checksum(ip->source, ip->destination, wire::protocol::kIcmpV6, message) == 0);
  const auto neighbour = wire::parse_neighbour(message);
  REQUIRE(neighbour);
  return {*ip, *neighbour};
}

wire::ArpPacket arp(const Said& said) {
  CHECK(said.how.type == wire::ether_type::kArp);
  const auto packet = wire::parse_arp(said.octets);
  REQUIRE(packet);
  return *packet;
}

std::vector<std::byte> neighbour_message(const wire::NeighbourMessage& message) {
  std::vector<std::byte> octets(wire::NeighbourMessage::kSizeMax);
  octets.resize(wire::emit(message, octets));
  return octets;
}

}  // namespace

// ---- ARP --------------------------------------------------------------------------------------------

TEST_CASE("Linux's ARP request is answered as Linux answers, and who asked is known", "[ip]") {
  Conversation t;
  t.settled();
  CHECK(t.hears_arp(kArpRequest));
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  CHECK(said[0].how.destination == kLinux);
  CHECK(said[0].octets == hex("00010800060400020200000000b00a4d01020200000000a00a4d0101"));
  CHECK(t.mac_of(kTheirs) == kLinux);
}

TEST_CASE("an ARP request for another is not answered and makes nobody known", "[ip]") {
  Conversation t;
  t.settled();
  auto other = kArpRequest;
  other.back() = std::byte{9};
  CHECK(t.hears_arp(other));
  CHECK(t.says().empty());
  CHECK(t.station.neighbours().entries() == 0);
}

TEST_CASE("an ARP packet that speaks of 127.0.0.1 is nobody's on a link", "[ip]") {
  const std::size_t address = GENERATE(28u, 38u);  // the sender's, the target's
  Conversation t;
  t.settled();
  auto frame = kArpRequest;
  std::ranges::copy(hex("7f000001"), frame.begin() + static_cast<std::ptrdiff_t>(address));
  CHECK_FALSE(t.hears_arp(frame));
  CHECK(t.says().empty());
}

TEST_CASE("an announcement changes what is known, and makes nobody known", "[ip]") {
  Conversation t;
  t.settled();
  CHECK(t.hears_arp(kArpAnnounce));
  CHECK(t.station.neighbours().entries() == 0);
  t.station.neighbours().heard_from(kTheirs, kMac, ip::Neighbours::Meant::for_us);
  CHECK(t.hears_arp(kArpAnnounce));
  CHECK(t.mac_of(kTheirs) == kLinux);
}

TEST_CASE("what is no ARP packet is said to be none; our own come back is nothing", "[ip]") {
  Conversation t;
  t.settled();
  CHECK_FALSE(t.station.on_arp(Bytes(kArpRequest).subspan(14, 27), true, at(0)));
  auto own = kArpRequest;
  for (std::size_t i = 0; i < 6; ++i) own[22 + i] = std::byte{kMac.octets[i]};
  CHECK(t.hears_arp(own));
  CHECK(t.says().empty());
}

TEST_CASE("an address of IPv4 is asked for by broadcast, from ours of its network", "[ip]") {
  Conversation t;
  t.settled();
  CHECK_FALSE(t.mac_of(kTheirs));
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  CHECK(said[0].how.destination == wire::kBroadcastMac);
  CHECK(arp(said[0]) == wire::ArpPacket{wire::ArpPacket::kRequest, kMac, kOurs, Mac{}, kTheirs});
}

TEST_CASE("an address is probed without a sender's address and announced with it", "[ip]") {
  Conversation t({.addresses = {{kOurs, 24}}, .probe = true});
  t.station.set_link(true, at(0));
  std::vector<Said> all;
  for (std::int64_t ms = 0; ms < 10'000; ms += 50)
    for (Said& said : t.says(ms)) all.push_back(std::move(said));
  REQUIRE(all.size() == 5);
  // arping -D says the same, but for what it puts into the target's link address, which nobody reads.
  CHECK(arp(all[0]) == wire::ArpPacket{wire::ArpPacket::kRequest, kMac, IpAddress::v4(0), Mac{}, kOurs});
  CHECK(arp(all[4]) == wire::ArpPacket{wire::ArpPacket::kRequest, kMac, kOurs, Mac{}, kOurs});
  CHECK(all[0].how.destination == wire::kBroadcastMac);
  CHECK(t.station.routes().is_own(kOurs));
}

TEST_CASE("while an address is asked for it is not answered for, and not ours", "[ip]") {
  Conversation t({.probe = true});
  t.station.set_link(true, at(0));
  CHECK_FALSE(t.station.routes().is_own(kOurs));
  CHECK_FALSE(t.station.routes().is_own(kOurs6));
  (void)t.hears_arp(kArpRequest);
  (void)t.hears(kSolicitation);
  for (const Said& said : t.says())
    if (said.how.type == wire::ether_type::kArp) CHECK(arp(said).operation == wire::ArpPacket::kRequest);
  CHECK(t.station.own().find(kOurs)->state == ip::AddressState::tentative);
}

TEST_CASE("an ARP probe for the address that we ask for ends our asking", "[ip]") {
  Conversation t({.addresses = {{IpAddress::v4(10, 77, 1, 50), 24}}, .probe = true});
  t.station.set_link(true, at(0));
  (void)t.hears_arp(kArpProbe, 10);
  const ip::OwnAddress& own = t.station.own().all()[0];
  CHECK(own.state == ip::AddressState::duplicate);
  CHECK(own.conflict_with == kLinux);
}

TEST_CASE("an ARP probe for an address that we use is answered", "[ip]") {
  Conversation t({.addresses = {{IpAddress::v4(10, 77, 1, 50), 24}}});
  t.settled();
  (void)t.hears_arp(kArpProbe);
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  CHECK(arp(said[0]).operation == wire::ArpPacket::kReply);
  CHECK(arp(said[0]).sender_ip == IpAddress::v4(10, 77, 1, 50));
  CHECK(t.station.own().all()[0].conflicts == 0);
}

TEST_CASE("somebody who speaks by our address is a conflict, is told of it, and is nobody's neighbour", "[ip]") {
  Conversation t({.addresses = {{kTheirs, 24}}});
  t.settled();
  const auto version = t.station.version();
  (void)t.hears_arp(kArpAnnounce);
  CHECK(t.station.own().all()[0].conflicts == 1);
  CHECK(t.station.version() != version);
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  CHECK(arp(said[0]) == wire::ArpPacket{wire::ArpPacket::kRequest, kMac, kTheirs, Mac{}, kTheirs});
  CHECK(t.station.neighbours().entries() == 0);
}

TEST_CASE("so many answers wait and no more", "[ip]") {
  Conversation t;
  t.settled();
  const auto before = test::allocations();
  for (int i = 0; i < 100; ++i) (void)t.station.on_arp(Bytes(kArpRequest).subspan(14), true, at(0));
  CHECK(test::allocations() == before);
  CHECK(t.says().size() == 64);
}

// ---- neighbour discovery ----------------------------------------------------------------------------

TEST_CASE("Linux's solicitation is answered as Linux answers, but that we are no router", "[ip]") {
  Conversation t;
  t.settled();
  CHECK(t.hears(kSolicitation));
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  CHECK(said[0].how.destination == kLinux);
  auto expected = test::copy_of(Bytes(kAdvertisement).subspan(14));
  expected[44] = std::byte{0x60};
  wire::icmp6_set_checksum(MutableBytes(expected).subspan(40), kOurs6, kTheirs6);
  CHECK(said[0].octets == expected);
  CHECK(t.mac_of(kTheirs6) == kLinux);
}

TEST_CASE("an address of IPv6 is asked for in its solicited-node group, as Linux does", "[ip]") {
  Conversation t({.addresses = {{kTheirs6, 64}}});
  t.settled();
  CHECK_FALSE(t.mac_of(kOurs6));
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  auto expected = test::copy_of(Bytes(kSolicitation).subspan(14));
  expected.back() = std::byte{kMac.octets[5]};
  wire::icmp6_set_checksum(MutableBytes(expected).subspan(40), kTheirs6, wire::solicited_node(kOurs6));
  CHECK(said[0].octets == expected);
  CHECK(said[0].how.destination == wire::load_mac(kSolicitation, 0));
}

TEST_CASE("a neighbour in doubt is asked by unicast", "[ip]") {
  Conversation t;
  t.settled();
  CHECK(t.hears(kSolicitation));
  (void)t.says();
  CHECK(t.mac_of(kTheirs6) == kLinux);
  const auto said = t.says(5'000);
  REQUIRE(said.size() == 1);
  CHECK(said[0].how.destination == kLinux);
  CHECK(discovery(said[0]).ip.destination == kTheirs6);
  CHECK(discovery(said[0]).said.target == kTheirs6);
}

TEST_CASE("an answered question makes the neighbour known", "[ip]") {
  Conversation t({.addresses = {{kTheirs6, 64}}});
  t.settled();
  (void)t.mac_of(kOurs6);
  auto answer = kAdvertisement;
  answer[14 + 40 + 31] = std::byte{0x77};
  CHECK(t.hears(answer));
  CHECK(t.mac_of(kOurs6) == Mac{{0x02, 0, 0, 0, 0, 0x77}});
}

TEST_CASE("discovery that a router may have passed on is nothing", "[ip]") {
  for (const int hops : {0, 1, 64, 254}) {
    const auto hop_limit = static_cast<std::uint8_t>(hops);
    Conversation t({.accept_advertisements = true});
    t.settled();
    (void)t.mac_of(kTheirs6);
    (void)t.says();
    auto solicitation = test::copy_of(Bytes(kSolicitation).subspan(54));
    CHECK(t.hears_message(solicitation, kTheirs6, hop_limit, 0, wire::solicited_node(kOurs6)));
    CHECK(t.hears_message(
        neighbour_message({.advertisement = true, .solicited = true, .target = kTheirs6, .link_address = kLinux}),
        kTheirs6, hop_limit, 0, kOurs6));
    CHECK(t.hears_message(kRouterAdvertisement, kRouter, hop_limit));
    CHECK(t.says().empty());
    CHECK_FALSE(t.mac_of(kTheirs6));
    CHECK(t.station.routes().routes().empty());
  }
}

TEST_CASE("a solicitation for another, for a group, or from ourselves is not answered", "[ip]") {
  Conversation t;
  t.settled();
  const auto ask = [&](const wire::NeighbourMessage& message, const IpAddress& from, const IpAddress& to) {
    CHECK(t.hears_message(neighbour_message(message), from, 255, 0, to));
    CHECK(t.says().empty());
  };
  ask({.target = *wire::parse_ip("2001:db8:1::9"), .link_address = kLinux}, kTheirs6, kOurs6);
  ask({.target = *wire::parse_ip("ff02::1"), .link_address = kLinux}, kTheirs6, kOurs6);
  ask({.target = kOurs6, .link_address = kLinux}, kOurs6, kOurs6);
  CHECK(t.station.neighbours().entries() == 0);
}

TEST_CASE("a solicitation by unicast without a link address is answered to whence it came", "[ip]") {
  Conversation t;
  t.settled();
  CHECK(t.hears_message(neighbour_message({.target = kOurs6}), kTheirs6, 255, 0, kOurs6));
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  CHECK(said[0].how.destination == kLinux);
  CHECK(discovery(said[0]).said.solicited);
}

TEST_CASE("Linux, asking whether our address is taken, is told so, and all others with it", "[ip]") {
  Conversation t({.addresses = {{kRouter, 64}}});
  t.settled();
  CHECK(t.hears(kDuplicateProbe));
  const auto said = t.says();
  REQUIRE(said.size() == 1);
  const auto found = discovery(said[0]);
  CHECK(found.ip.destination == wire::kAllNodes);
  CHECK(said[0].how.destination == Mac{{0x33, 0x33, 0, 0, 0, 1}});
  CHECK_FALSE(found.said.solicited);
  CHECK(found.said.override_entry);
  CHECK(found.said.link_address == kMac);
  CHECK(t.station.own().all()[0].conflicts == 0);
}

TEST_CASE("Linux, asking for the address that we ask for, ends our asking", "[ip]") {
  Conversation t({.addresses = {{kRouter, 64}}, .probe = true});
  t.station.set_link(true, at(0));
  CHECK(t.hears(kDuplicateProbe, 10));
  CHECK(t.station.own().all()[0].state == ip::AddressState::duplicate);
}

TEST_CASE("our own question, come back, is no conflict (RFC 7527)", "[ip]") {
  Conversation t({.addresses = {{kOurs6, 64}}, .probe = true});
  t.station.set_link(true, at(0));
  std::optional<Said> question;
  for (std::int64_t ms = 0; ms <= 1000; ms += 10)
    for (Said& said : t.says(ms))
      if (wire::parse_ipv6(said.octets)->next_header == wire::protocol::kIcmpV6) question = said;
  REQUIRE(question);
  const auto found = discovery(*question);
  CHECK(found.ip.source.is_unspecified());
  CHECK(found.ip.destination == wire::solicited_node(kOurs6));
  REQUIRE(found.said.nonce);
  CHECK(t.hears_message(test::copy_of(Bytes(question->octets).subspan(40)), IpAddress{}, 255, 1001,
                        wire::solicited_node(kOurs6)));
  CHECK(t.station.own().all()[0].state == ip::AddressState::tentative);
  // The same with another's nonce is.
  CHECK(t.hears_message(neighbour_message({.target = kOurs6, .nonce = *found.said.nonce ^ 1}), IpAddress{}, 255, 1002,
                        wire::solicited_node(kOurs6)));
  CHECK(t.station.own().all()[0].state == ip::AddressState::duplicate);
}

TEST_CASE("who asks for an address, and says his link address or asks elsewhere, is not believed", "[ip]") {
  for (const bool with_link_address : {true, false}) {
    Conversation t({.addresses = {{kOurs6, 64}}, .probe = true});
    t.station.set_link(true, at(0));
    wire::NeighbourMessage message{.target = kOurs6};
    if (with_link_address) message.link_address = kLinux;
    CHECK(t.hears_message(neighbour_message(message), IpAddress{}, 255, 10,
                          with_link_address ? wire::solicited_node(kOurs6) : wire::kAllNodes));
    CHECK(t.station.own().all()[0].state == ip::AddressState::tentative);
  }
}

TEST_CASE("who advertises our address is a conflict: before we use it, and after", "[ip]") {
  for (const bool probe : {true, false}) {
    Conversation t({.addresses = {{kOurs6, 64}}, .probe = probe});
    t.station.set_link(true, at(0));
    const auto claim = neighbour_message({.advertisement = true, .target = kOurs6, .link_address = kLinux});
    CHECK(t.hears_message(claim, kOurs6 == kTheirs6 ? kOurs6 : kTheirs6, 255, 10));
    const ip::OwnAddress& own = t.station.own().all()[0];
    CHECK(own.conflicts == 1);
    CHECK(own.conflict_with == kLinux);
    CHECK(own.state == (probe ? ip::AddressState::duplicate : ip::AddressState::preferred));
  }
}

TEST_CASE("an advertisement to all that claims to be an answer is not valid (RFC 4861 s7.1.2)", "[ip]") {
  Conversation t;
  t.settled();
  (void)t.mac_of(kTheirs6);
  const auto answer = neighbour_message(
      {.advertisement = true, .solicited = true, .override_entry = true, .target = kTheirs6, .link_address = kLinux});
  CHECK(t.hears_message(answer, kTheirs6));
  CHECK_FALSE(t.mac_of(kTheirs6));
  CHECK(t.hears_message(answer, kTheirs6, 255, 0, kOurs6));
  CHECK(t.mac_of(kTheirs6));
}

TEST_CASE("redirects change nothing", "[ip]") {
  Conversation t;
  t.settled();
  std::vector<std::byte> redirect(40);
  redirect[0] = std::byte{wire::icmp6_type::kRedirect};
  kTheirs6.store_v6(redirect, 8);
  wire::parse_ip("2001:db8:77::1")->store_v6(redirect, 24);
  const auto version = t.station.version();
  CHECK(t.hears_message(redirect, kRouter, 255, 0, kOurs6));
  CHECK(t.station.version() == version);
  CHECK_FALSE(t.station.routes().next_hop(*wire::parse_ip("2001:db8:77::1")));
}

TEST_CASE("what is not about the link is not the station's", "[ip]") {
  Conversation t;
  CHECK_FALSE(t.hears_message(hex("8000000000000000"), kTheirs6, 64, 0, kOurs6));
  CHECK_FALSE(t.hears_message(hex("0100000000000000"), kTheirs6, 64, 0, kOurs6));
}

// ---- routers ----------------------------------------------------------------------------------------

TEST_CASE("routers are asked three times, four seconds apart, from the link-local address", "[ip]") {
  Conversation t({.link_local = true, .accept_advertisements = true});
  t.station.set_link(true, at(0));
  std::vector<std::int64_t> asked;
  for (std::int64_t ms = 0; ms < 30'000; ms += 10)
    for (const Said& said : t.says(ms)) {
      const auto ip = wire::parse_ipv6(said.octets);
      if (!ip || said.octets[40] != std::byte{wire::icmp6_type::kRouterSolicitation}) continue;
      asked.push_back(ms);
      CHECK(ip->source == kOurLink);
      CHECK(ip->destination == wire::kAllRouters);
      CHECK(ip->hop_limit == 255);
      CHECK(wire::transport_checksum(ip->source, ip->destination, wire::protocol::kIcmpV6,
                                     Bytes(said.octets).subspan(40)) == 0);
      CHECK(said.how.destination == Mac{{0x33, 0x33, 0, 0, 0, 2}});
    }
  REQUIRE(asked.size() == 3);
  CHECK(asked[0] < 1000);
  CHECK(asked[1] - asked[0] == 4000);
  CHECK(asked[2] - asked[1] == 4000);
}

TEST_CASE("radvd's advertisement: a default router, an address, a network on the link, an MTU and times", "[ip]") {
  Conversation t({.link_local = true, .accept_advertisements = true});
  t.settled();
  const auto version = t.station.version();
  CHECK(t.hears_message(kRouterAdvertisement, kRouter));
  CHECK(t.station.version() != version);
  const ip::Routes& routes = t.station.routes();
  CHECK(routes.next_hop(*wire::parse_ip("2001:db8:ffff::1")) == kRouter);
  CHECK(t.mac_of(kRouter) == kLinux);
  const IpAddress made = *wire::parse_ip("2001:db8:5::ff:fe00:b0");
  CHECK(routes.is_own(made));
  CHECK(routes.next_hop(*wire::parse_ip("2001:db8:5::77")) == *wire::parse_ip("2001:db8:5::77"));
  // On the link, but no addresses are made of it.
  CHECK(routes.next_hop(*wire::parse_ip("2001:db8:6::77")) == *wire::parse_ip("2001:db8:6::77"));
  CHECK(t.station.own().all()[4].state == ip::AddressState::none);
  CHECK(t.station.mtu_bytes_v6() == 1480);
  CHECK(t.station.hop_limit_v6() == 61);
  // RetransTimer: 900 ms.
  (void)t.mac_of(kTheirs6);
  CHECK(t.says(0).size() >= 1);
  CHECK(t.says(899).empty());
  CHECK(t.says(900).size() == 1);
}

TEST_CASE("what a router said ends with its time", "[ip]") {
  Conversation t({.link_local = true, .accept_advertisements = true});
  t.settled();
  CHECK(t.hears_message(kRouterAdvertisement, kRouter));
  const ip::Routes& routes = t.station.routes();
  const auto on_link = *wire::parse_ip("2001:db8:6::77"), far = *wire::parse_ip("2001:db8:ffff::1");
  (void)t.says(599'999);
  CHECK(routes.next_hop(on_link) == on_link);
  (void)t.says(600'000);
  CHECK(routes.next_hop(on_link) == kRouter);
  (void)t.says(1'799'999);
  CHECK(routes.next_hop(far) == kRouter);
  (void)t.says(1'800'000);
  CHECK_FALSE(routes.next_hop(far));
  (void)t.says(7'200'000);
  CHECK_FALSE(routes.is_own(*wire::parse_ip("2001:db8:5::ff:fe00:b0")));
}

TEST_CASE("a router that says so, or advertises itself as none, is none any more", "[ip]") {
  for (const bool by_itself : {true, false}) {
    Conversation t({.link_local = true, .accept_advertisements = true});
    t.settled();
    CHECK(t.hears_message(kRouterAdvertisement, kRouter));
    const auto far = *wire::parse_ip("2001:db8:ffff::1");
    REQUIRE(t.station.routes().next_hop(far));
    if (by_itself) {
      auto last = kRouterAdvertisement;
      last[6] = last[7] = std::byte{0};
      CHECK(t.hears_message(last, kRouter));
    } else {
      CHECK(t.hears_message(neighbour_message({.advertisement = true, .router = true, .target = kRouter}), kRouter));
      REQUIRE(t.station.routes().next_hop(far));
      CHECK(t.hears_message(neighbour_message({.advertisement = true, .router = false, .target = kRouter}), kRouter));
    }
    CHECK_FALSE(t.station.routes().next_hop(far));
  }
}

TEST_CASE("an advertisement is believed only from a link-local address, and only where that is wanted", "[ip]") {
  Conversation unwanted({.link_local = true});
  unwanted.settled();
  CHECK(unwanted.hears_message(kRouterAdvertisement, kRouter));
  CHECK(unwanted.station.routes().routes().empty());
  Conversation t({.link_local = true, .accept_advertisements = true});
  t.settled();
  CHECK(t.hears_message(kRouterAdvertisement, kTheirs6));
  CHECK(t.station.routes().routes().empty());
}

TEST_CASE("with a gateway of one's own routers give prefixes, but no default route", "[ip]") {
  Conversation t(
      {.routes = {{.prefix = {}, .bits = 0, .gateway = kTheirs6}}, .link_local = true, .accept_advertisements = true});
  t.settled();
  CHECK(t.hears_message(kRouterAdvertisement, kRouter));
  CHECK(t.station.routes().next_hop(*wire::parse_ip("2001:db8:ffff::1")) == kTheirs6);
  CHECK(t.station.routes().is_own(*wire::parse_ip("2001:db8:5::ff:fe00:b0")));
}

TEST_CASE("an MTU that the link cannot have, or IPv6 may not, is not believed", "[ip]") {
  for (const std::uint32_t mtu : {1279u, 1501u, 0xFFFFFFFFu}) {
    Conversation t({.link_local = true, .accept_advertisements = true});
    t.settled();
    auto said = kRouterAdvertisement;
    store_be(MutableBytes(said), said.size() - 8 - 8 + 4, mtu);
    CHECK(t.hears_message(said, kRouter));
    CHECK(t.station.mtu_bytes_v6() == 1500);
  }
}

TEST_CASE("of many routers and prefixes a few are believed", "[ip]") {
  Conversation t({.link_local = true, .accept_advertisements = true});
  t.settled();
  auto said = kRouterAdvertisement;
  const auto before = test::allocations();
  for (std::uint8_t i = 0; i < 100; ++i) {
    auto router = kRouter.octets();
    router[15] = i;
    said[16 + 16 + 6] = std::byte{i};  // the first prefix
    (void)t.station.on_icmp6({IpAddress::from_octets(router), wire::kAllNodes, 255, kLinux}, said, at(i));
  }
  CHECK(test::allocations() == before);
  CHECK(t.station.routes().routes().size() <= 4 + 8);
  CHECK(t.station.own().all()[7].state == ip::AddressState::preferred);
}

TEST_CASE("a default router that does not answer gives way to another, and serves where there is none", "[ip]") {
  Conversation t({.link_local = true, .accept_advertisements = true});
  t.settled();
  const IpAddress second = *wire::parse_ip("fe80::2");
  auto silent = kRouterAdvertisement;
  silent.resize(16);
  CHECK(t.hears_message(silent, kRouter));
  CHECK(t.hears_message(silent, second));
  const auto far = *wire::parse_ip("2001:db8:ffff::1");
  CHECK(t.station.routes().next_hop(far) == kRouter);
  const auto fails = [&](const IpAddress& router, std::int64_t ms) {
    (void)t.mac_of(router, ms);
    for (int i = 0; i <= 4; ++i) (void)t.says(ms + i * 1000);
    CHECK(t.station.next_failed() == router);
  };
  fails(kRouter, 0);
  CHECK(t.station.routes().next_hop(far) == second);
  fails(second, 10'000);
  CHECK(t.station.routes().next_hop(far) == kRouter);
}

// ---- groups -----------------------------------------------------------------------------------------

TEST_CASE("the groups of our addresses are listened to, and others are not", "[ip]") {
  Conversation t({.link_local = true});
  t.settled();
  CHECK(t.station.listens_to(wire::kAllNodes));
  CHECK(t.station.listens_to(wire::solicited_node(kOurs6)));
  CHECK(t.station.listens_to(wire::solicited_node(kOurLink)));
  CHECK_FALSE(t.station.listens_to(wire::solicited_node(kTheirs6)));
  CHECK_FALSE(t.station.listens_to(wire::kAllRouters));
}

TEST_CASE("a group is reported twice when it is joined, and once to each who asks", "[ip]") {
  Conversation t({.addresses = {{kOurLink, 64}}});
  t.station.set_link(true, at(0));
  const auto reports = [&](std::int64_t from, std::int64_t to) {
    int count = 0;
    for (std::int64_t ms = from; ms < to; ms += 10)
      for (const Said& said : t.says(ms)) {
        const auto ip = wire::parse_ipv6(said.octets);
        if (!ip || ip->next_header != wire::ipv6_next::kHopByHop) continue;
        ++count;
        CHECK(ip->hop_limit == 1);
        CHECK(ip->destination == *wire::parse_ip("ff02::16"));
        CHECK(ip->source == kOurLink);
        CHECK(wire::transport_checksum(ip->source, ip->destination, wire::protocol::kIcmpV6,
                                       Bytes(said.octets).subspan(48)) == 0);
        CHECK(IpAddress::load_v6(said.octets, 40 + 8 + 12) == wire::solicited_node(kOurLink));
      }
    return count;
  };
  CHECK(reports(0, 5'000) == 2);
  CHECK(t.hears_message(kListenerQuery, kRouter, 1, 5'000));
  CHECK(reports(5'000, 15'001) == 1);
  // Not from elsewhere.
  CHECK(t.hears_message(kListenerQuery, kRouter, 64, 20'000));
  CHECK(t.hears_message(kListenerQuery, kTheirs6, 1, 20'000));
  CHECK(reports(20'000, 40'000) == 0);
}

TEST_CASE("a link that comes back is told of the groups again, and of the addresses, by advertisements to all",
          "[ip]") {
  Conversation t({.addresses = {{kOurs6, 64}}});
  t.settled();
  t.station.set_link(false, at(0));
  for (std::int64_t ms = 0; ms < 5'000; ms += 10) (void)t.says(ms);
  t.station.set_link(true, at(5'000));
  int reports = 0, advertised = 0;
  for (std::int64_t ms = 5'000; ms < 15'000; ms += 10)
    for (const Said& said : t.says(ms)) {
      if (wire::parse_ipv6(said.octets)->next_header == wire::ipv6_next::kHopByHop) {
        ++reports;
        continue;
      }
      const auto [ip, message] = discovery(said);
      if (!message.advertisement) continue;
      ++advertised;
      CHECK(ip.destination == wire::kAllNodes);
      CHECK(message.target == kOurs6);
      CHECK(message.link_address == kMac);
      CHECK(message.override_entry);
      CHECK_FALSE(message.solicited);
    }
  CHECK(reports == 2);
  CHECK(advertised >= 1);
}

// ---- one station of several workers ------------------------------------------------------------------

namespace {

// One that speaks, and one that follows it, of the same options.
struct Two {
  explicit Two(ip::StationOptions options = {}) : first(options), follower(follows(options)) {
    first.settled();
    follower.settled();
  }
  static ip::StationOptions follows(ip::StationOptions options) {
    options.follows = true;
    return options;
  }
  void adopt() { follower.station.adopt(first.station.network()); }
  Conversation first, follower;
};

}  // namespace

TEST_CASE("a station that follows has the addresses and routes that it adopts, and no others", "[ip][shards]") {
  Two t({.link_local = true, .accept_advertisements = true});
  const IpAddress made = *wire::parse_ip("2001:db8:5::ff:fe00:b0"), far = *wire::parse_ip("2001:db8:ffff::1");
  ip::Station& station = t.follower.station;
  CHECK_FALSE(station.routes().is_own(kOurs));
  CHECK(station.own().find(kOurs) == nullptr);
  CHECK(t.follower.hears_message(kRouterAdvertisement, kRouter));
  CHECK_FALSE(station.routes().next_hop(far));
  CHECK(t.first.hears_message(kRouterAdvertisement, kRouter));
  auto version = station.version();
  t.adopt();
  CHECK(station.version() != version);
  for (const IpAddress& own : {kOurs, kOurs6, kOurLink, made}) {
    CHECK(station.routes().is_own(own));
    CHECK(station.own().find(own) != nullptr);
  }
  CHECK(station.routes().next_hop(far) == kRouter);
  CHECK(station.mtu_bytes_v6() == 1480);
  CHECK(station.hop_limit_v6() == 61);
  // RetransTimer: 900 ms.
  (void)t.follower.mac_of(kTheirs6);
  CHECK(t.follower.says(0).size() == 1);
  CHECK(t.follower.says(899).empty());
  CHECK(t.follower.says(900).size() == 1);
  // What the first has no more, as its router's time is over, the other has until it hears of it.
  (void)t.first.says(1'800'000);
  CHECK(station.routes().next_hop(far) == kRouter);
  version = station.version();
  t.adopt();
  CHECK(station.version() != version);
  CHECK_FALSE(station.routes().next_hop(far));
}

TEST_CASE("a station that follows asks, announces and reports nothing of itself, whatever it has adopted",
          "[ip][shards]") {
  const bool probe = GENERATE(false, true);
  const ip::StationOptions options{.link_local = true, .accept_advertisements = true, .probe = probe};
  Conversation first(options), follower(Two::follows(options));
  first.station.set_link(true, at(0));
  follower.station.set_link(true, at(0));
  std::size_t said = 0;
  for (std::int64_t ms = 0; ms < 30'000; ms += 50) {
    said += first.says(ms).size();
    if (ms % 500 == 0) follower.station.adopt(first.station.network());
    CHECK(follower.says(ms).empty());
  }
  CHECK(said > 5);
  CHECK(follower.station.routes().is_own(kOurs));
  follower.station.set_link(false, at(30'000));
  follower.station.set_link(true, at(31'000));
  for (std::int64_t ms = 31'000; ms < 40'000; ms += 50) CHECK(follower.says(ms).empty());
}

TEST_CASE("a station that follows answers nobody who asks for its addresses", "[ip][shards]") {
  Two t({.link_local = true});
  t.adopt();
  CHECK(t.follower.hears_arp(kArpRequest));
  CHECK(t.follower.hears(kSolicitation));
  CHECK(t.follower.hears_message(kListenerQuery, kRouter, 1));
  CHECK(t.follower.says(0).empty());
  CHECK(t.follower.says(20'000).empty());
  CHECK(t.first.hears_arp(kArpRequest));
  CHECK(t.first.hears(kSolicitation));
  CHECK(t.first.says(0).size() == 2);
}

// He may connect next, and who answers his SYN is any of them.
TEST_CASE("a station that follows hears from a question where its asker is, and that he has moved", "[ip][shards]") {
  constexpr Mac kMoved{2, 0, 0, 0, 0, 0x77};
  Two t;
  CHECK_FALSE(t.follower.station.listens_to(wire::solicited_node(kOurs6)));
  t.adopt();
  CHECK(t.follower.station.listens_to(wire::solicited_node(kOurs6)));
  CHECK_FALSE(t.follower.station.listens_to(wire::solicited_node(kTheirs6)));
  const auto ask = [&](const Mac& from, const IpAddress& about) {
    std::vector<std::byte> question(wire::ArpPacket::kSize);
    wire::emit(wire::ArpPacket{wire::ArpPacket::kRequest, from, kTheirs, Mac{}, about}, question);
    CHECK(t.follower.station.on_arp(question, true, at(0)));
  };
  const auto solicit = [&](const Mac& from) {
    const auto question = neighbour_message({.target = kOurs6, .link_address = from});
    CHECK(t.follower.hears_message(question, kTheirs6));
  };
  ask(kLinux, IpAddress::v4(10, 77, 0, 99));
  CHECK(t.follower.station.neighbours().entries() == 0);  // nothing to do with us
  for (const Mac& from : {kLinux, kMoved}) {
    ask(from, kOurs);
    solicit(from);
    CHECK(t.follower.mac_of(kTheirs) == from);
    CHECK(t.follower.mac_of(kTheirs6) == from);
  }
  ask(kLinux, IpAddress::v4(10, 77, 0, 99));
  CHECK(t.follower.mac_of(kTheirs) == kLinux);
  CHECK(t.follower.says(0).empty());
  // Who asks for himself has no address yet.
  CHECK(t.follower.hears_message(neighbour_message({.target = kOurs6}), IpAddress{}));
  CHECK(t.follower.says(0).empty());
}

TEST_CASE("who claims an address is the affair of the station that speaks, not of one that follows", "[ip][shards]") {
  {
    Two t({.addresses = {{kTheirs, 24}, {kOurs6, 64}}});
    t.adopt();
    CHECK(t.follower.hears_arp(kArpAnnounce));
    const auto claim = neighbour_message({.advertisement = true, .target = kOurs6, .link_address = kLinux});
    CHECK(t.follower.hears_message(claim, kTheirs6));
    CHECK(t.follower.says().empty());
    for (const ip::OwnAddress& own : t.follower.station.own().all()) CHECK(own.conflicts == 0);
    CHECK(t.follower.station.neighbours().entries() == 0);
  }
  // Of what the other still asks for.
  const IpAddress asked = IpAddress::v4(10, 77, 1, 50);
  const ip::StationOptions options{.addresses = {{asked, 24}}, .probe = true};
  Conversation first(options), follower(Two::follows(options));
  first.station.set_link(true, at(0));
  follower.station.set_link(true, at(0));
  follower.station.adopt(first.station.network());
  CHECK(follower.hears_arp(kArpProbe, 10));
  CHECK(follower.station.own().find(asked)->state == ip::AddressState::tentative);
  CHECK_FALSE(follower.station.routes().is_own(asked));
  CHECK(follower.says(10'000).empty());
}

TEST_CASE("a station that follows resolves neighbours by itself, from the addresses that it has adopted",
          "[ip][shards]") {
  Two t;
  t.adopt();
  CHECK_FALSE(t.follower.mac_of(kTheirs));
  CHECK_FALSE(t.follower.mac_of(kTheirs6));
  const auto said = t.follower.says();
  REQUIRE(said.size() == 2);
  for (const Said& each : said) {
    if (each.how.type == wire::ether_type::kArp)
      CHECK(arp(each) == wire::ArpPacket{wire::ArpPacket::kRequest, kMac, kOurs, Mac{}, kTheirs});
    else
      CHECK(discovery(each).ip.source == kOurs6);
  }
  std::vector<std::byte> reply(wire::ArpPacket::kSize);
  wire::emit(wire::ArpPacket{wire::ArpPacket::kReply, kLinux, kTheirs, kMac, kOurs}, reply);
  CHECK(t.follower.station.on_arp(reply, false, at(0)));
  CHECK(t.follower.mac_of(kTheirs) == kLinux);
  const auto answer = neighbour_message(
      {.advertisement = true, .solicited = true, .override_entry = true, .target = kTheirs6, .link_address = kLinux});
  CHECK(t.follower.hears_message(answer, kTheirs6, 255, 0, kOurs6));
  CHECK(t.follower.mac_of(kTheirs6) == kLinux);
}
