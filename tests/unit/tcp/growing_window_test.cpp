// Windows that grow with the path: the receiver's, and the queues of both sides.
#include <algorithm>

#include "kit/catch.hpp"
#include "tcp/connection.hpp"

using namespace rnic;
using namespace rnic::tcp;

namespace {

constexpr Instant kStart{seconds(10).ns};
constexpr Seq kTheirs{0xFFFF0000};  // wraps soon
constexpr std::uint32_t kSegment = 1000;

Options growing() {
  Options options;
  options.mss_bytes = kSegment;
  options.receive_window_bytes = 20 * kSegment;
  options.receive_segments_max = options.out_of_order_segments_max = options.send_segments_max = 32;
  options.window_max_bytes = 400 * kSegment;
  return options;
}

// A peer that sends, and whoever consumes all at once.
struct Bench {
  explicit Bench(const Options& with, bool scaling = true) : options(with) {
    Handshake handshake;
    handshake.theirs = kTheirs;
    handshake.sack = true;
    handshake.scaling = scaling;
    handshake.receive_shift = scaling ? window_shift(options.widest_window_bytes()) : std::uint8_t{0};
    receiver.start(handshake, kStart);
    receiver.set_round_trip(milliseconds(10));
  }
  void sends(std::uint32_t segments, Instant now, bool consumes = true) {
    for (std::uint32_t i = 0; i < segments; ++i, next += kSegment) hears(next, now);
    if (!consumes) return;
    receiver.consume(receiver.received() - receiver.consumed());
    window();
  }
  void hears(std::uint32_t position, Instant now, std::uint32_t octets = kSegment) {
    SegmentIn segment;
    segment.header.sequence = (kTheirs + 1 + position).value;
    segment.header.flags = wire::tcp_flags::kAck;
    segment.buffer = BufferRef::take(pool);
    REQUIRE(segment.buffer);
    segment.payload = segment.buffer->append(octets);
    Incoming in{.segment = segment, .sequence = Seq{segment.header.sequence}, .payload = segment.payload, .fin = false};
    if (receiver.expects(in) || receiver.trim(in, now) == Receiver::Place::acceptable) receiver.take_payload(in, now);
  }
  // To the maximum; gives when that is.
  Instant grow() {
    Instant now = kStart;
    sends(1, now);
    for (int round = 0; round < 8; ++round) {
      now = now + milliseconds(10);
      sends(receiver.window_bytes() / kSegment, now);
    }
    REQUIRE(receiver.window_bytes() == options.window_max_bytes);
    window();
    return now;
  }
  // What an ACK says.
  std::uint32_t window() {
    wire::TcpHeader header;
    receiver.fill(header);
    return std::uint32_t{header.window} << window_shift(options.widest_window_bytes());
  }

  Options options;
  HeapPool pool{2048, 2048};
  Counters counters;
  Receiver receiver{options, counters};
  std::uint32_t next = 0;
};

}  // namespace

TEST_CASE("the window grows while a quarter of it comes in a round trip, and up to its maximum",
          "[tcp][window][W-TCP-01]") {
  Bench bench(growing());
  Instant now = kStart;
  std::uint32_t before = bench.receiver.window_bytes();
  CHECK(before == 20 * kSegment);
  bench.sends(1, now);
  for (int round = 0; round < 8; ++round) {
    now = now + milliseconds(10);
    bench.sends(before / kSegment, now);  // as much as it may
    const std::uint32_t window = bench.receiver.window_bytes();
    CHECK(window >= before);
    CHECK(window <= 8 * before);
    // It is told, but for what the scale rounds away.
    CHECK(bench.window() + (1u << window_shift(400 * kSegment)) > window);
    before = window;
  }
  CHECK(before == 400 * kSegment);
}

TEST_CASE("the window stays where it does not hold the peer up", "[tcp][window][W-TCP-01]") {
  Bench bench(growing());
  Instant now = kStart;
  bench.sends(1, now);
  SECTION("a peer that sends less than a quarter of it in a round trip") {
    for (int round = 0; round < 50; ++round) {
      now = now + milliseconds(10);
      bench.sends(4, now);
    }
  }
  SECTION("one that sends it with pauses") {
    for (int round = 0; round < 50; ++round) {
      now = now + milliseconds(100);
      bench.sends(20, now);
    }
  }
  SECTION("a path of which nothing is known") {
    bench.receiver.set_round_trip({});
    for (int round = 0; round < 50; ++round) {
      now = now + milliseconds(10);
      bench.sends(20, now);
    }
  }
  CHECK(bench.receiver.window_bytes() == 20 * kSegment);
}

TEST_CASE("the window stays where it may not grow, or the peer could not be told", "[tcp][window][W-TCP-01]") {
  Options options = growing();
  bool scaling = true;
  SECTION("no maximum") { options.window_max_bytes = 0; }
  SECTION("no scale") { scaling = false; }
  Bench bench(options, scaling);
  Instant now = kStart;
  for (int round = 0; round < 10; ++round) {
    now = now + milliseconds(10);
    bench.sends(20, now);
  }
  CHECK(bench.receiver.window_bytes() == 20 * kSegment);
}

TEST_CASE("segments of a window that has grown all find a place, in order and beyond a gap",
          "[tcp][window][W-TCP-26]") {
  Bench bench(growing());
  const Instant now = bench.grow();
  const std::uint32_t gap = bench.next;
  bench.next += kSegment;
  bench.sends(395, now);
  CHECK(bench.receiver.beyond_count() == 395);
  bench.hears(gap, now);
  CHECK(bench.receiver.readable_count() == 396);
  CHECK(bench.counters.dropped_no_room == 0);
}

TEST_CASE("a window that has grown has no more room for short pieces beyond gaps than it had",
          "[tcp][window][W-TCP-26]") {
  Bench bench(growing());
  const Instant now = bench.grow();
  for (std::uint32_t i = 0; i < 200; ++i) bench.hears(bench.next + 100 * (1 + i), now, 1);
  CHECK(bench.receiver.beyond_count() == 32);
  CHECK(bench.counters.dropped_no_room == 168);
  // Long ones have it yet.
  bench.hears(bench.next + 100'000, now);
  CHECK(bench.receiver.beyond_count() == 33);
}

// The scale of a wide window has steps of several segments: an edge that is less than a step away is none.
TEST_CASE("a peer that may see no room because of the scale is told of what comes", "[tcp][window][W-TCP-01]") {
  Options options = growing();
  options.window_max_bytes = 0xFFFFu << 12;
  Bench bench(options);
  bench.window();
  bench.sends(18, kStart, false);
  CHECK(bench.window() == 0);  // 2,000 octets are left
  CHECK(bench.receiver.consume(3 * kSegment));
}
