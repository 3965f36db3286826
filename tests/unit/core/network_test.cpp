// A device on its network: IPv6, VLANs, fragments, ICMP, addresses that are not its own. Two whole
// RNICs in the simulator, or one and frames by hand; each test is one story.
#include <algorithm>
#include <functional>
#include <vector>

#include "unit/core/network.hpp"
#include "wire/ecn.hpp"
#include "wire/vlan.hpp"

using namespace rnic;
using namespace rnic::test::network;
using core::StreamEvent;
using test::hex;

// ---- IPv6 -------------------------------------------------------------------------------------------

TEST_CASE("W-TCP-22: a connection over IPv6: every segment has a good checksum and fits the MTU", "[core][W-TCP-22]") {
  for (const bool link_local : {false, true}) {
    WorldOptions options = over_ipv6();
    if (link_local) {
      options.a.address = sim::address_link_local(1);
      options.b.address = sim::address_link_local(2);
    }
    World world(options);
    std::size_t segments = 0, largest = 0;
    std::optional<std::uint16_t> mss;
    world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) {
      const auto ip = wire::parse_ipv6(frame.subspan(14));
      if (!ip || ip->next_header != wire::protocol::kTcp) return;
      const Bytes segment = frame.subspan(54, ip->payload_length);
      CHECK(wire::transport_checksum(ip->source, ip->destination, wire::protocol::kTcp, segment) == 0);
      CHECK(frame.size() == 54u + ip->payload_length);
      ++segments;
      largest = std::max(largest, frame.size());
      if (const auto tcp = wire::parse_tcp(segment); tcp->header.has(wire::tcp_flags::kSyn)) mss = tcp->header.mss;
    });
    auto pair = sim::connect(world, plain(), plain());
    REQUIRE(pair.established);
    CHECK(write_arrives(world, pair, 50'000));
    CHECK(segments > 30);
    CHECK(mss == 1500 - 60);
    CHECK(largest == 14 + 1500);
  }
}

TEST_CASE("W-TCP-22: a segment with a wrong checksum is not seen by TCP, over either version of IP",
          "[core][W-TCP-22]") {
  const bool v6 = GENERATE(false, true);
  OneDevice t(v6 ? over_ipv6() : over_ipv4());
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  const auto packet = [&](Bytes segment) {
    return v6 ? ipv6(wire::protocol::kTcp, segment) : ipv4(wire::protocol::kTcp, segment);
  };
  const auto good = v6 ? syn(kA6, kB6) : syn(sim::kAddressA, sim::kAddressB);
  for (std::size_t octet = 0; octet < good.size(); ++octet) {
    auto segment = good;
    segment[octet] ^= std::byte{1};
    t.says(packet(segment));
    CHECK(t.counters().bad_checksums + t.counters().bad_frames == octet + 1);
  }
  CHECK(t.counters().bad_checksums >= good.size() - 1);  // the header's length is looked at before
  CHECK(t.heard.frames.empty());
  t.says(packet(good));
  CHECK(wire::parse_tcp(t.answer().subspan(v6 ? 40 : 20))->header.has(wire::tcp_flags::kSyn));
}

TEST_CASE("a SYN behind extension headers is a SYN", "[core]") {
  OneDevice t;
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  auto payload = hex("0600010400000000");
  test::append(payload, syn(kA6, kB6));
  t.says(ipv6(wire::ipv6_next::kDestination, payload));
  CHECK(wire::parse_tcp(t.answer().subspan(40))->header.has(wire::tcp_flags::kSyn));
}

TEST_CASE("a SYN behind IPv4 options is a SYN", "[core]") {
  OneDevice t(over_ipv4());
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  sim::Frame frame = ipv4(wire::protocol::kTcp, syn(sim::kAddressA, sim::kAddressB));
  // Record Route for one hop, and the end of the list.
  const auto options = hex("07 07 04 00000000 00");
  frame.insert(frame.begin() + 14 + 20, options.begin(), options.end());
  const MutableBytes header = MutableBytes(frame).subspan(14, 28);
  header[0] = std::byte{0x47};
  store_be(header, 2, static_cast<std::uint16_t>(frame.size() - 14));
  frames::fix_checksums(frame);
  t.says(frame);
  CHECK(wire::parse_tcp(t.answer().subspan(20))->header.has(wire::tcp_flags::kSyn));
}

TEST_CASE("W-TCP-01: a SYN to many, or from an address that nobody can have, is dropped in silence (MUST-57, MUST-63)",
          "[core][W-TCP-01]") {
  const auto is_silent = [](OneDevice& t, const sim::Frame& frame) {
    t.says(frame);
    CHECK(t.heard.frames.empty());
    CHECK(t.world.b.device.half_open_count() == 0);
  };
  {
    OneDevice t(over_ipv4());
    REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
    const IpAddress many[] = {IpAddress::v4(255, 255, 255, 255), IpAddress::v4(10, 0, 0, 255),
                              IpAddress::v4(224, 0, 0, 1)};
    for (const IpAddress& to : many)
      is_silent(t, ipv4(wire::protocol::kTcp, syn(sim::kAddressA, to), sim::kAddressA, to));
    for (const IpAddress& from : many)
      is_silent(t, ipv4(wire::protocol::kTcp, syn(from, sim::kAddressB), from, sim::kAddressB));
    const IpAddress nobody = IpAddress::v4(0);
    is_silent(t, ipv4(wire::protocol::kTcp, syn(nobody, sim::kAddressB), nobody, sim::kAddressB));
  }
  OneDevice t;
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  const IpAddress all = *wire::parse_ip("ff02::1"), nobody{};
  is_silent(t, ipv6(wire::protocol::kTcp, syn(kA6, all), kA6, all));
  is_silent(t, ipv6(wire::protocol::kTcp, syn(all, kB6), all, kB6));
  is_silent(t, ipv6(wire::protocol::kTcp, syn(nobody, kB6), nobody, kB6));
}

TEST_CASE("a mapped address does not come by IPv6, and a group sends nothing", "[core]") {
  OneDevice t(over_ipv4());
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  const auto bad = [&] { return t.counters().bad_frames; };
  const auto before = bad();
  // What the device holds for IPv4's, bit for bit.
  t.says(ipv6(wire::protocol::kTcp, syn(sim::kAddressA, sim::kAddressB), sim::kAddressA, sim::kAddressB));
  t.says(ipv6(wire::protocol::kTcp, syn(kA6, sim::kAddressB), kA6, sim::kAddressB));
  t.says(ipv6(wire::protocol::kTcp, syn(*wire::parse_ip("ff02::1"), kB6), *wire::parse_ip("ff02::1")));
  CHECK(bad() == before + 3);
  CHECK(t.heard.frames.empty());
}

TEST_CASE("what is cut off, or of another version, is counted and dropped", "[core]") {
  OneDevice t;
  const auto whole = ipv6(wire::protocol::kIcmpV6, echo_request6(kA6, kB6));
  const auto before = t.counters().bad_frames;
  t.says({whole.begin(), whole.end() - 1});
  t.says({whole.begin(), whole.begin() + 14 + 39});
  auto other = whole;
  other[14] = std::byte{0x50};
  t.says(other);
  CHECK(t.counters().bad_frames == before + 3);
  CHECK(t.heard.frames.empty());
}

TEST_CASE("a ping over IPv6 is answered: to our address, and to all", "[core]") {
  for (const IpAddress& to : {kB6, wire::kAllNodes}) {
    OneDevice t;
    t.says(ipv6(wire::protocol::kIcmpV6, echo_request6(kA6, to), kA6, to));
    const auto ip = wire::parse_ipv6(t.answer());
    REQUIRE(ip);
    CHECK(ip->source == kB6);
    CHECK(ip->destination == kA6);
    const Bytes message = t.answer().subspan(40);
    CHECK(wire::parse_icmp(message)->type == wire::icmp6_type::kEchoReply);
    CHECK(wire::parse_icmp(message)->rest == 0x10002);
    CHECK(wire::transport_checksum(kB6, kA6, wire::protocol::kIcmpV6, message) == 0);
  }
}

TEST_CASE("a ping to another, to a group that we do not listen to, or with a bad checksum is not answered", "[core]") {
  OneDevice t;
  const IpAddress other = sim::address_v6(9), group = *wire::parse_ip("ff02::1:ff00:9");
  t.says(ipv6(wire::protocol::kIcmpV6, echo_request6(kA6, other), kA6, other));
  t.says(ipv6(wire::protocol::kIcmpV6, echo_request6(kA6, group), kA6, group));
  auto bad = echo_request6(kA6, kB6);
  bad[10] ^= std::byte{1};
  t.says(ipv6(wire::protocol::kIcmpV6, bad));
  CHECK(t.heard.frames.empty());
  CHECK(t.counters().bad_checksums == 1);
}

TEST_CASE("W-TCP-07: packet too big lowers what a connection over IPv6 sends, down to 1280", "[core][W-TCP-07]") {
  WorldOptions options = over_ipv6();
  options.link.delay = milliseconds(10);
  World world(options);
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  const auto mss = [&] { return world.a.device.streams()[0].mss_bytes; };
  CHECK(mss() == 1440);
  // A router passes on no more than `passes` and says, of the first that is longer, that it passes `says`.
  const auto router = [&](std::uint32_t passes, std::uint32_t says) {
    sim::LinkOptions narrow = options.link;
    narrow.frame_max_bytes = passes + 14;
    world.a_to_b.set_options(narrow);
    bool said = false;
    world.a_to_b.on_too_large([&](Bytes frame) {
      if (std::exchange(said, true)) return;
      world.b_to_a.send(too_big(says, frame.subspan(14)), world.clock.now);
    });
    CHECK(write_arrives(world, pair, 20'000));
    CHECK(said);
  };
  // Segments of 1440 octets come through until then, and all but the router's word is to be seen.
  router(1400, 1400);
  CHECK(mss() == 1340);
  router(1300, 1300);
  CHECK(mss() == 1240);
  router(1280, 1280);
  CHECK(mss() == 1220);
}

TEST_CASE("W-TCP-07: over IPv6 no router makes segments shorter than 1280 octets of packet leave room for",
          "[core][W-TCP-07]") {
  WorldOptions options = over_ipv6();
  options.link.delay = milliseconds(10);
  World world(options);
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  const auto mss = [&] { return world.a.device.streams()[0].mss_bytes; };
  // Of a segment that nobody has acknowledged yet.
  const auto router_says = [&](std::uint32_t mtu) {
    world.a_to_b.watch([&](Bytes frame, Instant now, sim::Link::Fate) {
      if (frame.size() < 1000 || mtu == 0) return;
      world.b_to_a.send(too_big(std::exchange(mtu, 0), frame.subspan(14)), now);
    });
    CHECK(write_arrives(world, pair, 20'000));
    CHECK(mtu == 0);
  };
  router_says(1279);
  CHECK(mss() == 1440);
}

// ---- what IP is told of a segment ---------------------------------------------------------------------

TEST_CASE("W-TCP-01: the Diffserv field is the consumer's, the hop limit the device's (MUST-48, SHLD-22, MUST-49)",
          "[core][W-TCP-01]") {
  const bool v6 = GENERATE(false, true);
  CAPTURE(v6);
  WorldOptions options = v6 ? over_ipv6() : over_ipv4();
  options.a.device.hop_limit = 7;
  options.a.device.tcp.ecn = options.b.device.tcp.ecn = tcp::EcnUse::on;
  World world(options);
  struct Said {
    std::uint8_t traffic_class, hops;
    bool syn, data;
  };
  std::vector<Said> a_says, b_says;
  const auto note = [v6](std::vector<Said>& into) {
    return [&into, v6](Bytes frame, Instant, sim::Link::Fate) {
      const Bytes packet = frame.subspan(14);
      Said said{};
      Bytes segment;
      if (v6) {
        const auto ip = wire::parse_ipv6(packet);
        if (!ip || ip->next_header != wire::protocol::kTcp) return;
        said = {ip->traffic_class, ip->hop_limit, false, false};
        segment = packet.subspan(40, ip->payload_length);
      } else {
        const auto ip = wire::parse_ipv4(packet);
        if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
        CHECK(wire::ipv4_checksum_is_good(packet, *ip));
        said = {ip->header.traffic_class, ip->header.ttl, false, false};
        segment = packet.subspan(20, ip->payload_size());
      }
      const auto tcp = wire::parse_tcp(segment);
      said.syn = tcp->header.has(wire::tcp_flags::kSyn);
      said.data = segment.size() > tcp->data_offset;
      into.push_back(said);
    };
  };
  world.a_to_b.watch(note(a_says));
  world.b_to_a.watch(note(b_says));
  REQUIRE(world.b.device.listen({}, kPort, 8, 1));
  core::ConnectOptions wishes;
  wishes.remote = v6 ? kB6 : sim::kAddressB;
  wishes.remote_port = kPort;
  wishes.ird = wishes.ord = 4;
  wishes.traffic_class = 0xB8 | 1;  // ECN's bits are not the consumer's
  REQUIRE(world.a.device.connect(wishes, *world.a.make_qp(plain()).qp, world.clock.now));
  REQUIRE(world.run_until([&] { return !world.b.events.empty(); }));
  world.run_for(milliseconds(100));  // B has acknowledged the Request meanwhile
  core::AcceptOptions accept;
  accept.ird = accept.ord = 4;
  accept.traffic_class = 0x28;
  REQUIRE(world.b.device.accept(world.b.events[0].stream, accept, *world.b.make_qp(plain()).qp, world.clock.now));
  REQUIRE(world.run_until([&] { return !world.a.events.empty(); }));
  CHECK(world.a.events[0].kind == StreamEvent::Kind::established);
  REQUIRE(a_says.size() >= 3);
  for (const Said& said : a_says) {
    CHECK(said.traffic_class == (said.data ? 0xB8 | wire::ecn::kCapable : 0xB8));
    CHECK(said.hops == 7);
  }
  bool answered = false;
  for (const Said& said : b_says) {
    answered |= said.data;
    CHECK(said.hops == 64);
    if (said.syn) CHECK(said.traffic_class == 0);
    if (answered) CHECK((said.traffic_class & 0xFC) == 0x28);
  }
  CHECK(answered);
}

// ---- a peer that falls silent ------------------------------------------------------------------------

namespace {

// What A asks on the link: ARP requests, neighbour solicitations.
struct Questions {
  explicit Questions(World& world) : link(world.a_to_b) {
    link.watch([this](Bytes frame, Instant, sim::Link::Fate) {
      const Bytes packet = frame.subspan(14);
      const bool arp = load_be<std::uint16_t>(frame, 12) == wire::ether_type::kArp &&
                       wire::parse_arp(packet)->operation == wire::ArpPacket::kRequest;
      const auto ip = wire::parse_ipv6(packet);
      const bool solicitation = ip && ip->next_header == wire::protocol::kIcmpV6 && packet[40] == std::byte{135};
      if (!arp && !solicitation) return;
      ++(wire::load_mac(frame, 0).is_multicast() ? of_all : of_one);
    });
  }
  ~Questions() { link.watch(nullptr); }
  sim::Link& link;
  std::size_t of_one = 0, of_all = 0;
};

}  // namespace

TEST_CASE("W-TCP-01: at the third timeout in a row the next hop is asked whether it is there (MUST-20)",
          "[core][W-TCP-01]") {
  const bool v6 = GENERATE(false, true);
  CAPTURE(v6);
  World world(v6 ? over_ipv6() : over_ipv4());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  REQUIRE(write_arrives(world, pair, 100));
  world.run_for(milliseconds(500));
  const auto timeouts = [&] { return world.a.device.streams().at(0).tcp.timeouts; };
  REQUIRE(timeouts() == 0);
  const Questions asked(world);
  sim::LinkOptions dead;
  dead.loss_per_1000 = 1000;
  world.b_to_a.set_options(dead);
  const Written write(world, pair, 100);
  REQUIRE(world.run_until([&] { return asked.of_one > 0; }, seconds(10)));
  CHECK(timeouts() == 3);
  SECTION("it answers: once is enough") {
    world.b_to_a.set_options({});
    world.run_for(seconds(4));
    CHECK(timeouts() < 6);
    CHECK(asked.of_one == 1);
    CHECK(asked.of_all == 0);
  }
  SECTION("it does not: who has the address is asked of all") {
    REQUIRE(world.run_until([&] { return asked.of_all > 0; }, seconds(10)));
    CHECK(asked.of_one == 3);
    world.b_to_a.set_options({});
    world.run_for(seconds(30));
    CHECK(write_arrives(world, pair, 100));
  }
  CHECK(write.arrived());
}

// ---- fragments --------------------------------------------------------------------------------------

TEST_CASE("W-TCP-20: a connection all of whose packets come in fragments, over either version of IP",
          "[core][W-TCP-20]") {
  for (const bool v6 : {false, true}) {
    WorldOptions options = v6 ? over_ipv6() : over_ipv4();
    options.link.fragment_per_1000 = 1000;
    World world(options);
    auto pair = sim::connect(world, plain(), plain());
    REQUIRE(pair.established);
    CHECK(write_arrives(world, pair, 100'000));
    CHECK(world.b.device.counters().reassembled > 60);
    CHECK(world.b.device.counters().fragments_in == 2 * world.b.device.counters().reassembled);
  }
}

TEST_CASE("W-TCP-20: as large a packet as the link carries can come in fragments", "[core][W-TCP-20]") {
  for (const bool v6 : {false, true}) {
    WorldOptions options = v6 ? over_ipv6() : over_ipv4();
    options.link.fragment_per_1000 = 1000;
    options.a.mtu_bytes = options.b.mtu_bytes = 9000;
    World world(options);
    auto pair = sim::connect(world, plain(), plain());
    REQUIRE(pair.established);
    CHECK(write_arrives(world, pair, 200'000));
    CHECK(world.b.device.counters().fragments_dropped == 0);
    CHECK(world.b.device.counters().reassembled < 60);
  }
}

TEST_CASE("W-TCP-20: a device may end while a stream holds a packet of fragments beyond a gap", "[core][W-TCP-20]") {
  WorldOptions options = over_ipv4();
  options.link.fragment_per_1000 = 1000;
  World world(options);
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  sim::LinkOptions lossy = world.a_to_b.options();
  lossy.loss_per_1000 = 200;
  world.a_to_b.set_options(lossy);
  const Written written(world, pair, 100'000);
  const auto holds = [&] {
    const auto streams = world.b.device.streams();
    return !streams.empty() && streams.front().tcp.out_of_order > 0;
  };
  CHECK(world.run_until(holds, seconds(10)));
  // And ends here.
}

TEST_CASE("W-TCP-20: a checksum is looked at when a packet is whole", "[core][W-TCP-20]") {
  OneDevice t;
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  for (const bool good : {false, true}) {
    auto segment = syn(kA6, kB6);
    if (!good) segment[4] ^= std::byte{1};
    auto first = hex("0600000100000007"), second = hex("0600001000000007");
    first[7] = second[7] = std::byte{good};
    test::append(first, Bytes(segment).first(16));
    test::append(second, Bytes(segment).subspan(16));
    t.says(ipv6(wire::ipv6_next::kFragment, first));
    t.says(ipv6(wire::ipv6_next::kFragment, second));
  }
  CHECK(t.counters().reassembled == 2);
  CHECK(t.counters().bad_checksums == 1);
  CHECK(wire::parse_tcp(t.answer().subspan(40))->header.has(wire::tcp_flags::kSyn));
}

TEST_CASE("W-TCP-20: a first fragment without all headers is refused (RFC 7112)", "[core][W-TCP-20]") {
  OneDevice t;
  t.says(ipv6(wire::ipv6_next::kFragment, hex("3c00000100000007 0601010c00000000")));
  const Bytes message = t.answer().subspan(40);
  CHECK(*wire::parse_icmp(message) == wire::IcmpHeader{.type = 4, .code = 3, .rest = 0});
  CHECK(t.counters().fragments_in == 0);
}

TEST_CASE("W-TCP-20: a fragment whose length or place cannot be is told of, by the octet that is wrong",
          "[core][W-TCP-20]") {
  OneDevice t;
  t.says(ipv6(wire::ipv6_next::kFragment, hex("1100000100000007 112233445566778899")));
  CHECK(*wire::parse_icmp(t.answer().subspan(40)) == wire::IcmpHeader{.type = 4, .code = 0, .rest = 4});
  t.heard.frames.clear();
  t.says(ipv6(wire::ipv6_next::kFragment, hex("1100fff900000008 1122334455667788")));
  CHECK(*wire::parse_icmp(t.answer().subspan(40)) == wire::IcmpHeader{.type = 4, .code = 0, .rest = 42});
  CHECK(t.counters().fragments_dropped == 2);
}

TEST_CASE("W-TCP-20: whoever sent a first fragment hears after a minute that the rest did not come",
          "[core][W-TCP-20]") {
  for (const bool v6 : {false, true}) {
    OneDevice t(v6 ? over_ipv6() : over_ipv4());
    auto frame = v6 ? ipv6(wire::ipv6_next::kFragment, hex("1100000100000007 112233445566778899aabbccddeeff00"))
                    : ipv4(wire::protocol::kUdp, hex("112233445566778899aabbccddeeff00"));
    if (!v6) {
      frame[14 + 6] = std::byte{0x20};
      frames::fix_checksums(frame);
    }
    t.says(frame);
    t.world.run_for(seconds(58));
    const auto complaint = [&] {
      return std::count_if(t.heard.frames.begin(), t.heard.frames.end(), [&](const sim::Frame& heard) {
        return heard[v6 ? 14 + 40 : 14 + 20] ==
                   std::byte{v6 ? wire::icmp6_type::kTimeExceeded : wire::icmp_type::kTimeExceeded} &&
               heard[v6 ? 14 + 41 : 14 + 21] == std::byte{1};
      });
    };
    CHECK(complaint() == 0);
    t.world.run_for(seconds(3));
    t.world.step();
    CHECK(complaint() == 1);
    CHECK(t.counters().fragments_dropped == 1);
  }
}

// ---- unreachable ------------------------------------------------------------------------------------

TEST_CASE("UDP finds no port, and other protocols no one who knows them", "[core]") {
  {
    OneDevice t(over_ipv4());
    t.says(ipv4(wire::protocol::kUdp, hex("c5ea0009000e0000 010203040506")));
    CHECK(*wire::parse_icmp(t.answer().subspan(20)) == wire::IcmpHeader{.type = 3, .code = 3, .rest = 0});
    CHECK(wire::icmp_checksum_is_good(t.answer().subspan(20)));
    t.heard.frames.clear();
    t.says(ipv4(132, hex("c5ea0009000e0000")));
    CHECK(*wire::parse_icmp(t.answer().subspan(20)) == wire::IcmpHeader{.type = 3, .code = 2, .rest = 0});
  }
  OneDevice t;
  t.says(ipv6(wire::protocol::kUdp, hex("c5ea0009000e0000 010203040506")));
  const Bytes message = t.answer().subspan(40);
  CHECK(*wire::parse_icmp(message) == wire::IcmpHeader{.type = 1, .code = 4, .rest = 0});
  CHECK(wire::transport_checksum(kB6, kA6, wire::protocol::kIcmpV6, message) == 0);
  t.heard.frames.clear();
  // A known header, then one that nobody knows: the octet that named it is pointed at.
  t.says(ipv6(wire::ipv6_next::kDestination, hex("8400010400000000 c5ea0009000e0000")));
  CHECK(*wire::parse_icmp(t.answer().subspan(40)) == wire::IcmpHeader{.type = 4, .code = 1, .rest = 40});
}

TEST_CASE("an option that is not known is told of even where it came to many, if it says so", "[core]") {
  OneDevice t;
  t.says(ipv6(wire::ipv6_next::kHopByHop, hex("1100be0400000000 c5ea0009000e0000"), kA6, wire::kAllNodes));
  CHECK(*wire::parse_icmp(t.answer().subspan(40)) == wire::IcmpHeader{.type = 4, .code = 2, .rest = 42});
  t.heard.frames.clear();
  t.says(ipv6(wire::ipv6_next::kHopByHop, hex("1100fe0400000000 c5ea0009000e0000"), kA6, wire::kAllNodes));
  CHECK(t.heard.frames.empty());
}

TEST_CASE("what came to all on the link, or to another, is not complained of", "[core]") {
  OneDevice t(over_ipv4());
  auto frame = ipv4(wire::protocol::kUdp, hex("c5ea0009000e0000"));
  wire::store_mac(frame, 0, wire::kBroadcastMac);
  t.says(frame);
  t.says(ipv4(wire::protocol::kUdp, hex("c5ea0009000e0000"), sim::kAddressA, IpAddress::v4(10, 0, 0, 255)));
  t.says(ipv4(wire::protocol::kUdp, hex("c5ea0009000e0000"), sim::kAddressA, IpAddress::v4(10, 0, 0, 9)));
  CHECK(t.heard.frames.empty());
  CHECK(t.counters().icmp_errors_out == 0);
}

TEST_CASE("complaints are limited: ten at once", "[core]") {
  OneDevice t;
  for (int i = 0; i < 30; ++i)
    t.world.a_to_b.send(ipv6(wire::protocol::kUdp, hex("c5ea0009000e0000")), t.world.clock.now);
  t.world.run_for(milliseconds(1));
  CHECK(t.heard.frames.size() == 10);
  CHECK(t.counters().icmp_errors_out == 10);
}

// ---- VLAN -------------------------------------------------------------------------------------------

TEST_CASE("a device with a VLAN tags all that it sends, and speaks to its like", "[core]") {
  for (const bool v6 : {false, true}) {
    WorldOptions options = v6 ? over_ipv6() : over_ipv4();
    options.a.device.vlan = options.b.device.vlan = 100;
    World world(options);
    Watched there(world.a_to_b), back(world.b_to_a);
    auto pair = sim::connect(world, plain(), plain());
    REQUIRE(pair.established);
    CHECK(write_arrives(world, pair, 20'000));
    std::size_t largest = 0;
    for (const Watched* way : {&there, &back})
      for (const sim::Frame& frame : way->frames) {
        CHECK(wire::parse_ethernet(frame)->type == wire::ether_type::kVlan);
        CHECK(wire::parse_vlan(Bytes(frame).subspan(14))->id == 100);
        largest = std::max(largest, frame.size());
      }
    CHECK(largest == 18 + 1500);  // the tag is not of the MTU
    CHECK(world.b.device.counters().other_vlan == 0);
  }
}

TEST_CASE("frames of another VLAN, or of none, are dropped and counted", "[core]") {
  const auto tagged = [](std::uint16_t id, std::uint8_t priority = 0) {
    const auto plain_frame = ipv6(wire::protocol::kIcmpV6, echo_request6(kA6, kB6));
    sim::Frame frame(plain_frame.begin(), plain_frame.begin() + 12);
    frame.resize(18);
    store_be(MutableBytes(frame), 12, wire::ether_type::kVlan);
    wire::emit(wire::VlanTag{.priority = priority, .id = id, .type = wire::ether_type::kIpv6},
               MutableBytes(frame).subspan(14));
    frame.insert(frame.end(), plain_frame.begin() + 14, plain_frame.end());
    return frame;
  };
  {
    OneDevice t;
    t.says(tagged(100));
    CHECK(t.counters().other_vlan == 1);
    CHECK(t.heard.frames.empty());
    // VLAN 0 is a priority and no VLAN.
    t.says(tagged(0, 5));
    CHECK(t.counters().other_vlan == 1);
    CHECK(t.heard.frames.size() == 1);
    // Cut off within the tag.
    const auto frame = tagged(0);
    const auto before = t.counters().bad_frames;
    t.says({frame.begin(), frame.begin() + 17});
    CHECK(t.counters().bad_frames == before + 1);
  }
  WorldOptions options = over_ipv6();
  options.b.device.vlan = 100;
  World world(options);
  world.a.port.set_link_up(false);
  world.run_for(seconds(1));
  const auto says = [&](const sim::Frame& frame) {
    const auto before = world.b.device.counters().other_vlan;
    world.a_to_b.send(frame, world.clock.now);
    world.run_for(milliseconds(1));
    return world.b.device.counters().other_vlan - before;
  };
  CHECK(says(ipv6(wire::protocol::kIcmpV6, echo_request6(kA6, kB6))) == 1);
  CHECK(says(tagged(0, 5)) == 1);
  CHECK(says(tagged(101)) == 1);
  CHECK(says(tagged(100, 7)) == 0);
  // Two tags are one too many.
  auto twice = tagged(100);
  store_be(MutableBytes(twice), 16, wire::ether_type::kVlan);
  const auto frames = world.b_to_a.frames();
  CHECK(says(twice) == 0);
  CHECK(world.b_to_a.frames() == frames);
}

// ---- addresses --------------------------------------------------------------------------------------

TEST_CASE("an address that is being asked for connects nobody; later it does", "[core]") {
  for (const bool v6 : {false, true}) {
    WorldOptions options = v6 ? over_ipv6() : over_ipv4();
    options.a.device.probe = options.b.device.probe = true;
    World world(options);
    world.step();
    CHECK_FALSE(world.a.device.addresses_settled());
    sim::Endpoint& a = world.a.make_qp(plain());
    core::ConnectOptions wishes;
    wishes.remote = v6 ? kB6 : sim::kAddressB;
    wishes.remote_port = kPort;
    const auto refused = world.a.device.connect(wishes, *a.qp, world.clock.now);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == core::StreamError::no_route);
    // One may listen before.
    CHECK(world.b.device.listen(v6 ? kB6 : sim::kAddressB, kPort + 1, 8, 1));
    REQUIRE(world.run_until([&] { return world.a.device.addresses_settled() && world.b.device.addresses_settled(); },
                            seconds(10)));
    CHECK(sim::connect(world, plain(), plain()).established);
  }
}

TEST_CASE("the second of two devices with one address does not use it, and both say so or nothing", "[core]") {
  for (const bool v6 : {false, true}) {
    WorldOptions options = v6 ? over_ipv6() : over_ipv4();
    options.b.address = v6 ? kA6 : sim::kAddressA;
    options.b.device.probe = true;
    World world(options);
    world.b.port.set_link_up(false);
    world.run_for(seconds(1));
    world.b.port.set_link_up(true);
    world.run_for(seconds(9));
    const ip::OwnAddress& own = world.b.device.addresses()[0];
    CHECK(own.state == ip::AddressState::duplicate);
    CHECK(own.conflict_with == kMacA);
    CHECK_FALSE(world.b.device.owns(own.address));
    CHECK(world.b.network_changes > 0);
    CHECK(world.a.device.addresses()[0].state == ip::AddressState::preferred);
  }
}

TEST_CASE("a router's prefix gives a device an address that can be called; its end ends the call", "[core]") {
  WorldOptions options = over_ipv6();
  options.b.device.accept_ra = true;
  World world(options);
  world.run_for(seconds(1));
  const auto prefix = hex("030440c000000e1000000e1000000000 20010db8000500000000000000000000");
  world.a_to_b.send(advertisement(prefix), world.clock.now);
  world.run_for(milliseconds(10));
  const IpAddress made = *wire::parse_ip("2001:db8:5::ff:fe00:2");
  CHECK(world.b.device.owns(made));
  CHECK(world.b.network_changes > 0);

  // From its own address it speaks to itself.
  sim::Rnic& b = world.b;
  REQUIRE(b.device.listen({}, kPort, 8, 77));
  b.on_event = [&](const StreamEvent& event) {
    if (event.kind != StreamEvent::Kind::connect_request) return;
    REQUIRE(b.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *b.make_qp(plain()).qp,
                            world.clock.now));
  };
  core::ConnectOptions wishes;
  wishes.local = wishes.remote = made;
  wishes.remote_port = kPort;
  wishes.ird = wishes.ord = 4;
  wishes.cookie = 6;
  sim::Endpoint& caller = b.make_qp(plain());
  REQUIRE(b.device.connect(wishes, *caller.qp, world.clock.now));
  REQUIRE(world.run_until([&] { return caller.qp->attached() && caller.qp->gate_open(); }, seconds(5)));
  world.clock.now = world.clock.now + seconds(3601);
  world.run_for(seconds(1));
  CHECK_FALSE(b.device.owns(made));
  CHECK_FALSE(caller.qp->attached());
}

TEST_CASE("an MTU that a router names is what connections over IPv6 keep to, old and new", "[core]") {
  WorldOptions options = over_ipv6();
  options.a.device.accept_ra = true;
  World world(options);
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  CHECK(world.a.device.streams()[0].mss_bytes == 1440);
  world.b_to_a.send(advertisement(hex("0501000000000514")), world.clock.now);  // MTU 1300
  world.run_for(milliseconds(10));
  CHECK(world.a.device.streams()[0].mss_bytes == 1300 - 60);
  Watched sent(world.a_to_b);
  auto second = sim::connect(world, plain(), plain(), kPort + 1);
  REQUIRE(second.established);
  CHECK(write_arrives(world, second, 10'000));
  for (const sim::Frame& frame : sent.frames) CHECK(frame.size() <= 14 + 1300);
}

TEST_CASE("a peer that moves to another link address is followed", "[core]") {
  World world(over_ipv6());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  // It says so: an unsolicited advertisement with the override flag.
  constexpr wire::Mac kMoved{{2, 0, 0, 0, 0, 0x77}};
  std::vector<std::byte> message(wire::NeighbourMessage::kSizeMax);
  message.resize(wire::emit(
      wire::NeighbourMessage{.advertisement = true, .override_entry = true, .target = kB6, .link_address = kMoved},
      message));
  wire::icmp6_set_checksum(message, kB6, wire::kAllNodes);
  world.b_to_a.send(ipv6(wire::protocol::kIcmpV6, message, kB6, wire::kAllNodes, 255), world.clock.now);
  world.run_for(milliseconds(1));
  Watched sent(world.a_to_b);
  world.a.device.disconnect(pair.a->stream, core::Disconnect::graceful, world.clock.now);
  world.run_for(milliseconds(1));
  REQUIRE_FALSE(sent.frames.empty());
  CHECK(wire::load_mac(sent.frames[0], 0) == kMoved);
}

TEST_CASE("while a stream makes progress its neighbour is not asked again", "[core]") {
  World world(over_ipv6());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  Watched sent(world.a_to_b);
  for (int second = 0; second < 120; ++second) {
    CHECK(write_arrives(world, pair, 100));
    world.run_for(seconds(1));
  }
  const auto questions = std::count_if(sent.frames.begin(), sent.frames.end(), [](const sim::Frame& frame) {
    const auto ip = wire::parse_ipv6(Bytes(frame).subspan(14));
    return ip && ip->next_header == wire::protocol::kIcmpV6 &&
           frame[54] == std::byte{wire::icmp6_type::kNeighbourSolicitation};
  });
  CHECK(questions == 0);
}
