// Packets out: what a frame of a stream says, how many there may be, and what becomes of those that cannot go.
#include "host/packets_out.hpp"

#include "kit/catch.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
namespace flags = wire::tcp_flags;

TEST_CASE("a segment goes to its neighbour with headers and checksums of its own", "[host]") {
  HostParts host;
  host.call();
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].link.destination == kPeerMac);
  CHECK(sent[0].link.source == kOurMac);
  CHECK(sent[0].ip.header.source == kOurs);
  CHECK(sent[0].ip.header.destination == kPeer);
  CHECK(sent[0].ip.header.dont_fragment);
  CHECK(sent[0].ip.header.ttl == 64);
  CHECK(wire::ipv4_checksum_is_good(sent[0].packet, sent[0].ip));
  CHECK(wire::transport_checksum(kOurs, kPeer, wire::protocol::kTcp, sent[0].payload()) == 0);
  CHECK(sent[0].tcp().source_port == 1000);
  CHECK(sent[0].tcp().destination_port == 7000);
  CHECK(sent[0].tcp().has(flags::kSyn));
}

TEST_CASE("segments have no checksums while the port says that they need none", "[host]") {
  HostParts host;
  for (const bool fills : {false, true, false}) {
    CAPTURE(fills);
    host.port.fills = fills;
    CHECK_FALSE(host.link.follow_port());
    host.call(static_cast<std::uint16_t>(fills ? 1001 : host.port.sent.empty() ? 1000 : 1002));
    const auto sent = host.take_sent();
    REQUIRE(sent.size() == 1);
    CHECK(wire::ipv4_checksum_is_good(sent[0].packet, sent[0].ip) != fills);
    CHECK((wire::transport_checksum(kOurs, kPeer, wire::protocol::kTcp, sent[0].payload()) == 0) != fills);
  }
}

TEST_CASE("packets have the hop limit that is configured", "[host]") {
  HostParts host(1024, 7);
  host.call();
  host.out.send_bare_segment({kOurs, kPeer, 1, 2}, {.flags = flags::kAck}, kNow);
  for (const auto& sent : host.take_sent()) CHECK(sent.ip.header.ttl == 7);
}

TEST_CASE("a stream sends so many segments in a turn, and no more than the turn has left", "[host]") {
  constexpr unsigned kSegments = 100;
  HostParts host;
  host::Stream& stream = host.connected();
  // Every acknowledgement opens the congestion window further.
  std::uint32_t acknowledged = 0;
  const auto append = [&](unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      BufferRef buffer = BufferRef::take(host.port.pool(), 100);
      buffer->append(100);
      REQUIRE(stream.tcp.append(std::move(buffer)));
    }
  };
  const auto send = [&](unsigned budget) {
    host.out.send_segments(stream, kNow, budget);
    return host.take_sent().size();
  };
  for (int i = 0; i < 10; ++i) {
    append(10);
    acknowledged += static_cast<std::uint32_t>(send(1024)) * 100;
    host.hears_tcp({.source_port = 7000,
                    .destination_port = 1000,
                    .sequence = 901,
                    .acknowledgement = 5001 + acknowledged,
                    .flags = flags::kAck,
                    .window = 65535});
  }
  append(kSegments);
  CHECK(send(10) == 10);
  CHECK(stream.more_segments);
  CHECK(send(1024) == host::PacketsOut::kSegmentsPerStreamMax);
  CHECK(stream.more_segments);
  CHECK(send(1024) == kSegments - 10 - host::PacketsOut::kSegmentsPerStreamMax);
  CHECK_FALSE(stream.more_segments);
}

TEST_CASE("a run that has to be copied stays with TCP where a full port has no room for all of it", "[host][runs]") {
  HostParts host;
  host::Stream& stream = host.connected();
  BufferRef run = BufferRef::take(host.port.pool(), 1500);
  run->append(1500);
  REQUIRE(stream.tcp.append(run.share(), 100));  // who holds it besides may look at it
  host.port.full = true;
  for (unsigned i = 0; i < host::Link::kTransmitMax - 10; ++i) host.out.send_bare_segment(stream.flow, {}, kNow);
  const auto send = [&] {
    unsigned budget = 1024;
    host.out.send_segments(stream, kNow, budget);
    return 1024 - budget;
  };
  CHECK(send() == 0);
  CHECK(stream.more_segments);
  CHECK(host.counters.frames_dropped == 0);
  CHECK(host.link.has_room());
  // What the port takes by then makes room.
  host.port.full = false;
  CHECK(send() == 15);
  CHECK_FALSE(stream.more_segments);
  CHECK(host.take_sent().size() == host::Link::kTransmitMax - 10 + 15);
  CHECK(host.counters.frames_dropped == 0);
}

TEST_CASE("what is for a neighbour that is being asked for waits for the answer", "[host]") {
  constexpr auto kStranger = wire::IpAddress::v4(10, 0, 0, 3);
  constexpr wire::Mac kStrangerMac{{2, 0, 0, 0, 0, 3}};
  HostParts host;
  host.call(1000, kStranger);
  CHECK(host.take_sent().empty());
  host.station.neighbours().answered(kStranger, {.mac = kStrangerMac}, kNow);
  BufferRef frame = host.station.next_released();
  REQUIRE(frame);
  CHECK(wire::parse_ethernet(frame->bytes())->destination == kStrangerMac);
}

TEST_CASE("what is for ourselves goes by the loop, and no port sees it", "[host]") {
  HostParts host;
  host.out.send_bare_segment({kOurs, kOurs, 1, 2}, {.flags = flags::kAck}, kNow);
  CHECK(host.take_sent().empty());
  CHECK(host.link.looped() == 1);
}

TEST_CASE("there are so many answers to strangers in a turn, and none to a RST", "[host]") {
  HostParts host;
  const host::Flow flow{kOurs, kPeer, 1, 2};
  tcp::SegmentIn segment{
      .header = {.sequence = 1, .acknowledgement = 77, .flags = flags::kAck}, .buffer = {}, .payload = {}};
  for (unsigned i = 0; i < host::PacketsOut::kAnswersPerTurnMax + 5; ++i) host.out.send_reset(flow, segment, kNow);
  CHECK_FALSE(host.out.may_answer());
  const auto sent = host.take_sent();
  CHECK(sent.size() == host::PacketsOut::kAnswersPerTurnMax);
  CHECK(sent.front().tcp().has(flags::kRst));
  CHECK(sent.front().tcp().sequence == 77);
  host.begin_turn();
  segment.header.flags = flags::kRst;
  host.out.send_reset(flow, segment, kNow);
  CHECK(host.take_sent().empty());
  CHECK(host.out.may_answer());
}

TEST_CASE("a neighbour in doubt is asked while a stream's segments are not answered, and not where they are",
          "[host]") {
  for (const bool answered : {false, true}) {
    HostParts host;
    host::Stream& stream = host.connected();
    const auto send = [&](Instant now) {
      BufferRef buffer = BufferRef::take(host.port.pool(), 100);
      buffer->append(100);
      REQUIRE(stream.tcp.append(std::move(buffer)));
      unsigned budget = 8;
      host.out.send_segments(stream, now, budget);
      CHECK_FALSE(host.take_sent(now).empty());
    };
    send(kNow);
    if (answered)
      host.hears_tcp({.source_port = 7000,
                      .destination_port = 1000,
                      .sequence = 901,
                      .acknowledgement = 5001 + 100,
                      .flags = flags::kAck,
                      .window = 65535});
    // Before the question is due it is seen whether it is needed.
    send(kNow + seconds(4));
    Octets room(ip::Station::kMessageMax);
    while (host.station.next_message(kNow + seconds(4), room)) continue;
    CHECK(host.station.next_message(kNow + seconds(6), room).has_value() == !answered);
  }
}
