// UDP of a host: what is its user's, what is nobody's, and what leaves.
#include "host/datagrams.hpp"

#include "kit/catch.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
using wire::IpAddress;

namespace {

constexpr std::uint16_t kPort = 26581;
const IpAddress kGroup = IpAddress::v4(239, 1, 2, 3);

struct Noted {
  IpAddress from, to;
  std::uint8_t hop_limit, traffic_class;
  Octets payload;
  std::uint32_t flow_label;
};
class NotingDatagrams final : public host::DatagramUser {
 public:
  void on_datagram(host::Datagram&& datagram, Instant) override {
    CHECK(datagram.frame);
    all.push_back({datagram.from, datagram.to, datagram.hop_limit, datagram.traffic_class, copy_of(datagram.payload),
                   datagram.flow_label});
  }
  std::vector<Noted> all;
};

struct Served : HostParts {
  Served() { datagrams.serve(kPort, noted); }
  Octets udp_frame(const IpAddress& from, const IpAddress& to, Bytes payload, std::uint16_t port = kPort) const {
    return frames::packet({.destination = to.is_multicast() ? wire::multicast_mac(to) : kOurMac, .source = kPeerMac},
                          wire::protocol::kUdp, from, to, frames::udp(kPort, port, from, to, payload));
  }
  void sends(const IpAddress& to, std::uint32_t octets, std::uint8_t hop_limit = 0) {
    BufferRef buffer = BufferRef::take(port.pool());
    const MutableBytes room = buffer->append(octets);
    for (std::size_t i = 0; i < octets; ++i) room[i] = static_cast<std::byte>(i);
    datagrams.send(std::move(buffer), {.from = kOurs, .to = to, .traffic_class = 0x7F, .hop_limit = hop_limit}, kNow);
  }
  NotingDatagrams noted;
};

}  // namespace

TEST_CASE("what comes to the port is the user's, what comes to another is answered as ever", "[host][datagram]") {
  Served host;
  const auto payload = pattern(100);
  host.hears(host.udp_frame(kPeer, kOurs, payload));
  REQUIRE(host.noted.all.size() == 1);
  CHECK(host.noted.all[0].from == kPeer);
  CHECK(host.noted.all[0].to == kOurs);
  CHECK(host.noted.all[0].hop_limit == 64);
  CHECK(host.noted.all[0].flow_label == 0);  // IPv4 has none
  CHECK(host.noted.all[0].payload == payload);
  CHECK(host.take_sent().empty());
  host.hears(host.udp_frame(kPeer, kOurs, payload, kPort + 1));
  CHECK(host.noted.all.size() == 1);
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  CHECK(load_be<std::uint16_t>(sent[0].payload(), 0) == 0x0303);  // port unreachable
}

TEST_CASE("without a user the port is unreachable as another", "[host][datagram]") {
  Served host;
  HostParts plain;
  plain.hears(host.udp_frame(kPeer, kOurs, pattern(10)));
  CHECK(plain.take_sent().size() == 1);
}

TEST_CASE("what is damaged, in fragments, or says that it is from us is dropped without a word", "[host][datagram]") {
  Served host;
  Octets frame = host.udp_frame(kPeer, kOurs, pattern(100));
  frame.back() ^= std::byte{1};
  host.hears(frame);
  CHECK(host.counters.bad_checksums == 1);
  // Of its own length.
  frame = host.udp_frame(kPeer, kOurs, pattern(100));
  store_be<std::uint16_t>(frame, 14 + 20 + 4, 7);
  host.hears(frame);
  CHECK(host.counters.bad_frames == 1);
  // Whole, in two fragments.
  const Octets datagram = frames::udp(kPort, kPort, kPeer, kOurs, pattern(56));
  for (const bool more : {true, false}) {
    const Bytes piece = more ? Bytes(datagram).first(32) : Bytes(datagram).subspan(32);
    host.hears(frames::ethernet({.destination = kOurMac, .source = kPeerMac, .type = wire::ether_type::kIpv4},
                                frames::ipv4({.identification = 9,
                                              .more_fragments = more,
                                              .fragment_offset_bytes = static_cast<std::uint16_t>(more ? 0 : 32),
                                              .protocol = wire::protocol::kUdp,
                                              .source = kPeer,
                                              .destination = kOurs},
                                             piece)));
  }
  CHECK(host.counters.reassembled == 1);
  CHECK(host.counters.bad_frames == 2);
  host.hears(host.udp_frame(kOurs, kOurs, pattern(10)));
  CHECK(host.counters.bad_frames == 3);
  CHECK(host.noted.all.empty());
  CHECK(host.take_sent().empty());
}

TEST_CASE("of IPv4's groups those count that were joined, and nobody who is in none is answered", "[host][datagram]") {
  Served host;
  host.hears(host.udp_frame(kPeer, kGroup, pattern(10)));
  CHECK(host.noted.all.empty());
  REQUIRE(host.station.join(kGroup, kNow));
  host.hears(host.udp_frame(kPeer, kGroup, pattern(10)));
  REQUIRE(host.noted.all.size() == 1);
  CHECK(host.noted.all[0].to == kGroup);
  // Another port, a ping, a SYN, and one from whom nothing can come.
  host.hears(host.udp_frame(kPeer, kGroup, pattern(10), 5));
  host.hears(host.udp_frame(IpAddress::v4(0), kGroup, pattern(10)));
  host.hears(frames::packet(
      {.destination = wire::multicast_mac(kGroup), .source = kPeerMac}, wire::protocol::kTcp, kPeer, kGroup,
      frames::tcp({.source_port = 5, .destination_port = 6, .flags = wire::tcp_flags::kSyn}, kPeer, kGroup)));
  host.hears(frames::packet({.destination = wire::multicast_mac(kGroup), .source = kPeerMac}, wire::protocol::kIcmp,
                            kPeer, kGroup, frames::icmp({.type = wire::icmp_type::kEchoRequest}, pattern(8))));
  CHECK(host.noted.all.size() == 1);
  CHECK(host.take_sent().empty());
}

TEST_CASE("what leaves has the lengths of what it is, and ECN's bits are ours", "[host][datagram]") {
  Served host;
  host.sends(kPeer, 100, 7);
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].link.destination == kPeerMac);
  CHECK(sent[0].ip.header.total_length == 128);
  CHECK(sent[0].ip.header.ttl == 7);
  CHECK(sent[0].ip.header.traffic_class == 0x7C);
  CHECK(sent[0].ip.header.dont_fragment);
  const auto udp = wire::parse_udp(sent[0].payload());
  REQUIRE(udp);
  CHECK(udp->length == 108);
  CHECK(udp->source_port == kPort);
  CHECK(udp->destination_port == kPort);
  CHECK(wire::udp_checksum_is_good(kOurs, kPeer, sent[0].payload()));
  CHECK(host.counters.datagrams_out == 1);
}

TEST_CASE("to ourselves a datagram goes round, and to where there is no way nowhere", "[host][datagram]") {
  Served host;
  host.sends(kOurs, 10);
  CHECK(host.take_sent().empty());
  CHECK(host.link.looped() == 1);
  host.sends(IpAddress::v4(192, 168, 7, 7), 10);
  host.sends(*wire::parse_ip("fd00::1"), 10);
  CHECK(host.counters.datagrams_without_way == 2);
  CHECK(host.take_sent().empty());
}

TEST_CASE("to a group a datagram goes to its MAC, and to ourselves where we are in it", "[host][datagram]") {
  Served host;
  host.sends(kGroup, 10);
  auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].link.destination == wire::multicast_mac(kGroup));
  CHECK(host.link.looped() == 0);
  REQUIRE(host.station.join(kGroup, kNow));
  host.sends(kGroup, 10);
  CHECK(host.take_sent().size() == 1);
  CHECK(host.link.looped() == 1);
}

TEST_CASE("the longest payload fits the MTU, and a buffer with all headers", "[host][datagram]") {
  Served host;
  CHECK(host.datagrams.payload_max() == 1500 - 48);
  host.link.set_mtu(40);
  CHECK(host.datagrams.payload_max() == 0);
  // The pool's room is 2048, whatever the MTU.
  struct Jumbo final : port::Port {
    port::PortFacts its;
    HeapPool its_pool{64, 2048};
    Jumbo() { its.mtu_bytes = 9000; }
    const port::PortFacts& facts() const override { return its; }
    bool link_up() const override { return true; }
    BufferPool& pool() override { return its_pool; }
    unsigned receive_burst(Buffer**, unsigned) override { return 0; }
    unsigned send_burst(Buffer* const*, unsigned) override { return 0; }
    int wake_descriptor() override { return -1; }
    bool arm() override { return true; }
    void disarm() override {}
  } jumbo;
  host::Link link(jumbo, std::nullopt, 512 * 1024, host.counters);
  const host::Datagrams there(link, host.station, std::nullopt, host.counters);
  CHECK(there.payload_max() == 2048 - 18 - 48);
}

TEST_CASE("a datagram of IPv6 has the hop limit and the flow label that its sender wants", "[host][datagram]") {
  Served host;
  const auto group = *wire::parse_ip("ff15::1"), from = *wire::parse_ip("fd00::1");
  BufferRef buffer = BufferRef::take(host.port.pool());
  buffer->append(8);
  host.datagrams.send(std::move(buffer), {.from = from, .to = group, .flow_label = 0x12345, .hop_limit = 7}, kNow);
  host.link.flush(kNow);
  REQUIRE(host.port.sent.size() == 1);
  const auto header = wire::parse_ipv6(Bytes(host.port.sent[0]).subspan(14));
  REQUIRE(header.has_value());
  CHECK(header->hop_limit == 7);
  CHECK(header->flow_label == 0x12345);
}
