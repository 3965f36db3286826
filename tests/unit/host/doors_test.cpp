// Doors: what a connection costs before it is one, and what answers for a port that nobody listens at.
#include "host/doors.hpp"

#include "kit/catch.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
namespace flags = wire::tcp_flags;

namespace {

constexpr std::uint16_t kPort = 7471;

wire::TcpHeader syn(std::uint16_t from = 2000) {
  return {.source_port = from,
          .destination_port = kPort,
          .sequence = 100,
          .flags = flags::kSyn,
          .window = 65535,
          .mss = 1460};
}
wire::TcpHeader third(const wire::TcpHeader& syn_ack) {
  return {.source_port = syn_ack.destination_port,
          .destination_port = kPort,
          .sequence = 101,
          .acknowledgement = syn_ack.sequence + 1,
          .flags = flags::kAck,
          .window = 65535};
}
bool is_syn_ack(const wire::TcpHeader& header) { return header.has(flags::kSyn) && header.has(flags::kAck); }

}  // namespace

TEST_CASE("a SYN makes an entry and no stream; the segment that completes it makes the stream", "[host]") {
  HostParts host;
  REQUIRE(host.doors.listen(kOurs, kPort, 0, 42, false));
  CHECK_FALSE(host.doors.listen(kOurs, kPort, 0, 43, false));
  host.hears_tcp(syn());
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  const wire::TcpHeader answer = sent[0].tcp();
  CHECK(is_syn_ack(answer));
  CHECK(answer.acknowledgement == 101);
  CHECK(answer.window > 0);
  CHECK(host.streams.half_opens().used() == 1);
  CHECK(host.streams.count() == 0);

  wire::TcpHeader wrong = third(answer);
  ++wrong.acknowledgement;
  host.hears_tcp(wrong);
  CHECK(host.streams.count() == 0);
  CHECK(host.take_sent().at(0).tcp().has(flags::kRst));
  host.hears_tcp(third(answer));
  CHECK(host.streams.half_opens().used() == 0);
  REQUIRE(host.streams.count() == 1);
  const host::Stream* stream = host.streams.find_stream({kOurs, kPeer, kPort, 2000});
  REQUIRE(stream != nullptr);
  CHECK(stream->cookie == 42);
  CHECK(stream->tcp.established());
}

TEST_CASE("a SYN is answered six times, and then forgotten", "[host]") {
  HostParts host;
  REQUIRE(host.doors.listen(kOurs, kPort, 0, 0, false));
  host.hears_tcp(syn());
  std::size_t answers = host.take_sent().size();
  for (int i = 0; i < 20 && host.doors.next_deadline() != kNever; ++i) {
    const Instant due = host.doors.next_deadline();
    host.doors.run_timers(due);
    answers += host.take_sent(due).size();
  }
  CHECK(answers == 1 + 5);
  CHECK(host.streams.half_opens().used() == 0);
}

TEST_CASE("where all entries are taken a SYN leaves nothing behind, and its third segment makes the stream", "[host]") {
  HostParts host(16);  // 4 half open
  REQUIRE(host.doors.listen(kOurs, kPort, 0, 0, false));
  for (std::uint16_t i = 0; i < 4; ++i) host.hears_tcp(syn(static_cast<std::uint16_t>(3000 + i)));
  (void)host.take_sent();
  host.hears_tcp(syn(4000));
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  CHECK(is_syn_ack(sent[0].tcp()));
  CHECK(host.counters.cookies_sent == 1);
  CHECK(host.streams.half_opens().used() == 4);

  wire::TcpHeader forged = third(sent[0].tcp());
  forged.acknowledgement += 0x10001;
  host.hears_tcp(forged);
  CHECK(host.streams.count() == 0);
  host.hears_tcp(third(sent[0].tcp()));
  CHECK(host.counters.cookies_good == 1);
  CHECK(host.streams.find_stream({kOurs, kPeer, kPort, 4000}) != nullptr);
}

TEST_CASE("a SYN that may not fit the backlog is answered with window 0, and waits with its handshake done", "[host]") {
  HostParts host;
  REQUIRE(host.doors.listen(kOurs, kPort, 1, 0, false));
  host.hears_tcp(syn(2000));
  const auto first = host.take_sent().at(0).tcp();
  host.hears_tcp(syn(2001));
  const auto second = host.take_sent().at(0).tcp();
  CHECK(first.window > 0);
  CHECK(second.window == 0);
  host.hears_tcp(third(first));
  host::Stream& caller = *host.streams.find_stream({kOurs, kPeer, kPort, 2000});
  host.doors.asked(caller, kNow);
  host.hears_tcp(third(second));
  CHECK(host.streams.count() == 1);
  CHECK_FALSE(host.doors.has_room_for_queued());

  host.doors.leave(caller);
  REQUIRE(host.doors.has_room_for_queued());
  host.doors.admit_queued(kNow);
  CHECK(host.streams.find_stream({kOurs, kPeer, kPort, 2001}) != nullptr);
  CHECK_FALSE(host.doors.has_room_for_queued());
}

TEST_CASE("a port is served until the last that called there is freed", "[host]") {
  HostParts host;
  const auto make = [&](std::uint16_t port, bool initiator) -> host::Stream& {
    host::Stream& stream = *host.streams.make({kOurs, kPeer, kPort, port});
    stream.initiator = initiator;
    host.streams.begin_serving(stream);
    return stream;
  };
  host::Stream& ours = make(2000, true);
  CHECK_FALSE(host.streams.is_served(kPort));
  host::Stream &one = make(2001, false), &other = make(2002, false);
  host.streams.begin_serving(one);  // is so already
  host.streams.free(ours);
  host.streams.free(one);
  CHECK(host.streams.is_served(kPort));
  CHECK_FALSE(host.streams.is_served(kPort + 1));
  host.streams.stop_serving(other);
  CHECK_FALSE(host.streams.is_served(kPort));
  host.streams.free(other);
  CHECK_FALSE(host.streams.is_served(kPort));
}

TEST_CASE("a SYN to nobody is refused; of a listener just closed it is only lost", "[host]") {
  HostParts host;
  const auto is_refused = [&](Instant now) {
    host.begin_turn(now);
    host.hears(HostParts::segment(syn()), host::PacketsIn::Source::port, false, now);
    const auto sent = host.take_sent(now);
    return sent.size() == 1 && sent[0].tcp().has(flags::kRst);
  };
  CHECK(is_refused(kNow));
  REQUIRE(host.doors.listen(kOurs, kPort, 0, 0, false));
  host.doors.unlisten(kOurs, kPort, kNow);
  CHECK_FALSE(host.doors.is_listening_at(kPort));
  CHECK_FALSE(is_refused(kNow + milliseconds(249)));
  CHECK(is_refused(kNow + milliseconds(250)));
}
