// Packets in: which frame is believed, whose it is, and what an ICMP error may do to a stream.
#include "host/packets_in.hpp"

#include "kit/catch.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
namespace flags = wire::tcp_flags;
using Source = host::PacketsIn::Source;

namespace {

// Of a stream of HostParts::connected().
wire::TcpHeader next_segment() {
  return {.source_port = 7000,
          .destination_port = 1000,
          .sequence = 901,
          .acknowledgement = 5001,
          .flags = flags::kAck,
          .window = 65535};
}

Octets quoting(std::uint8_t type, std::uint8_t code, std::uint32_t rest, std::uint32_t sequence) {
  const auto quoted = frames::quote({.total_length = 1500, .source = kOurs, .destination = kPeer},
                                    {.source_port = 1000, .destination_port = 7000, .sequence = sequence});
  return frames::packet({.destination = kOurMac, .source = kPeerMac}, wire::protocol::kIcmp, kPeer, kOurs,
                        frames::icmp({.type = type, .code = code, .rest = rest}, quoted));
}

}  // namespace

TEST_CASE("a segment finds the stream of its four names, and makes it active", "[host]") {
  HostParts host;
  host::Stream& stream = host.call();
  host.hears_tcp(HostParts::syn_ack(1001));
  CHECK_FALSE(stream.tcp.established());
  CHECK(host.streams.active().empty());
  host.hears_tcp(HostParts::syn_ack());
  CHECK(stream.tcp.established());
  CHECK(host.streams.active().front() == &stream);
  CHECK(stream.initial_receive == tcp::Seq{900});
}

TEST_CASE("what is next on a stream is behind what went before, and behind the FIN where that counts", "[host]") {
  HostParts host;
  const host::Stream& stream = host.connected();
  CHECK(stream.receive_next(false) == tcp::Seq{901});
  CHECK(stream.send_next(false) == tcp::Seq{5001});
  host.hears(HostParts::segment(next_segment(), kPeer, pattern(10)));
  CHECK(stream.receive_next(false) == tcp::Seq{911});
  CHECK(stream.receive_next(true) == tcp::Seq{912});
  CHECK(stream.send_next(true) == tcp::Seq{5002});
}

TEST_CASE("a segment of nobody's is answered by a RST; one that no sender can have sent is not", "[host]") {
  HostParts host;
  host.hears_tcp({.source_port = 5, .destination_port = 6, .sequence = 1, .acknowledgement = 2, .flags = flags::kAck});
  REQUIRE(host.take_sent().size() == 1);
  for (const auto& from :
       {wire::IpAddress::v4(10, 0, 0, 255), wire::IpAddress::v4(224, 0, 0, 1), wire::IpAddress::v4(0, 0, 0, 0)})
    host.hears_tcp({.source_port = 5, .destination_port = 6, .sequence = 1, .acknowledgement = 2, .flags = flags::kAck},
                   from);
  CHECK(host.take_sent().empty());
  CHECK(host.counters.no_listener == 1);
}

TEST_CASE("a wrong checksum ends a packet, unless the port has looked, or it is from ourselves", "[host]") {
  const auto body = pattern(10);
  for (const std::size_t broken :
       {std::size_t{14 + 8}, std::size_t{14 + 20 + 20}}) {  // in the IP header, in the payload
    HostParts host;
    host::Stream& stream = host.connected();
    auto frame = HostParts::segment(next_segment(), kPeer, body);
    frame[broken] ^= std::byte{1};
    host.hears(frame);
    CHECK(host.counters.bad_checksums == 1);
    CHECK(stream.tcp.received() == 0);
    host.hears(frame, Source::port, true);
    CHECK(stream.tcp.received() == 10);
    CHECK(host.counters.bad_checksums == 1);
  }
  HostParts host;
  auto frame = HostParts::segment({.source_port = 5, .destination_port = 6, .flags = flags::kAck}, kOurs);
  frame[14 + 20 + 16] ^= std::byte{1};
  host.hears(frame, Source::ourselves);
  CHECK(host.counters.bad_checksums == 0);
  CHECK(host.counters.no_listener == 1);
}

TEST_CASE("what the link adds behind a packet is none of it", "[host]") {
  HostParts host;
  host::Stream& stream = host.connected();
  auto frame = HostParts::segment(next_segment(), kPeer, pattern(1));
  frame.resize(60, std::byte{0xEE});
  host.hears(frame);
  CHECK(stream.tcp.received() == 1);
}

TEST_CASE("127.0.0.1 is believed from ourselves, and never from the wire", "[host]") {
  constexpr auto kLoopback = wire::IpAddress::v4(127, 0, 0, 1);
  HostParts host;
  const wire::TcpHeader header{.source_port = 5, .destination_port = 6, .acknowledgement = 2, .flags = flags::kAck};
  host.hears(HostParts::segment(header, kLoopback, {}, kLoopback));
  CHECK(host.counters.bad_frames == 1);
  CHECK(host.counters.no_listener == 0);
  host.hears(HostParts::segment(header, kLoopback, {}, kLoopback), Source::ourselves);
  CHECK(host.counters.bad_frames == 1);
  CHECK(host.counters.no_listener == 1);
}

TEST_CASE("a packet that is shorter than it says is counted, and ends", "[host]") {
  HostParts host;
  auto frame = HostParts::segment(next_segment());
  frame.pop_back();
  host.hears(frame);
  CHECK(host.counters.bad_frames == 1);
  frame = HostParts::segment(next_segment());
  frame[14] = std::byte{0x44};  // a header of 16 octets
  host.hears(frame);
  CHECK(host.counters.bad_frames == 2);
}

TEST_CASE("a packet that was too big makes the next ones smaller", "[host]") {
  HostParts host;
  host::Stream& stream = host.connected();
  BufferRef buffer = BufferRef::take(host.port.pool(), 1000);
  buffer->append(1000);
  REQUIRE(stream.tcp.append(std::move(buffer)));
  unsigned budget = 8;
  host.out.send_segments(stream, kNow, budget);
  CHECK(stream.tcp.emss() == 1460);
  host.hears(quoting(wire::icmp_type::kUnreachable, wire::icmp_code::kFragmentationNeeded, 1000, 5001));
  CHECK(stream.tcp.emss() == 1000 - 40);
}

TEST_CASE("unreachable ends a call that has no answer yet, and is a hint to all others", "[host]") {
  HostParts host;
  host::Stream& established = host.connected();
  host.hears(quoting(wire::icmp_type::kUnreachable, 1, 0, 5001));
  CHECK(host.user.unreachable.empty());
  CHECK(established.tcp.ended() == tcp::Ended::no);
  HostParts other;
  host::Stream& calling = other.call();
  // Who cannot see our segments does not know what is in flight.
  other.hears(quoting(wire::icmp_type::kUnreachable, 1, 0, 4999));
  other.hears(quoting(wire::icmp_type::kUnreachable, 1, 0, 5003));
  CHECK(other.user.unreachable.empty());
  other.hears(quoting(wire::icmp_type::kUnreachable, 1, 0, 5000));
  CHECK(other.user.unreachable == std::vector{calling.id()});
}

TEST_CASE("a fragment of IPv6 from nobody, to a group, or cut short is counted as bad, and kept nowhere", "[host]") {
  HostParts host;
  const auto six = [](const char* text) { return *wire::parse_ip(text); };
  Octets payload(wire::Ipv6Fragment::kSize + 8);
  payload[0] = std::byte{wire::protocol::kUdp};
  payload[3] = std::byte{1};  // the first of several
  const auto take = [&](const wire::IpAddress& from, const wire::IpAddress& to, std::size_t size) {
    const Octets whole =
        frames::ipv6({.next_header = 44, .source = from, .destination = to}, Bytes(payload).first(size));
    CHECK_FALSE(host.fragments.take_v6({.from = from, .to = to, .whole = whole},
                                       Bytes(whole).subspan(wire::Ipv6Header::kSize), 0, kNow));
  };
  take(six("::"), six("fe80::1"), payload.size());
  CHECK(host.counters.bad_frames == 1);
  take(six("fe80::2"), wire::kAllNodes, payload.size());
  CHECK(host.counters.bad_frames == 2);
  take(six("fe80::2"), six("fe80::1"), wire::Ipv6Fragment::kSize - 1);
  CHECK(host.counters.bad_frames == 3);
  CHECK(host.counters.fragments_in == 0);
  take(six("fe80::2"), six("fe80::1"), payload.size());
  CHECK(host.counters.bad_frames == 3);
  CHECK(host.counters.fragments_in == 1);
}
