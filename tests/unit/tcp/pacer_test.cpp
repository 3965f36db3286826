// When new segments may leave.
#include "tcp/pacer.hpp"
#include "kit/catch.hpp"

using namespace rnic;
using namespace rnic::tcp;

namespace {

constexpr Instant kStart{seconds(10).ns};
constexpr std::uint32_t kSegment = 1000;

struct Bench {
  // How many segments leave within that time, if whoever sends looks every `each`.
  std::uint32_t sends(Duration time, Duration each) {
    std::uint32_t sent = 0;
    for (const Instant end = now + time; now < end; now = now + each)
      for (; pacer.may_send(now, [this] { return pace; }); ++sent) {
        if (sent == 1'000'000) return sent;
        pacer.on_sent(kSegment);
      }
    return sent;
  }
  Pacer::Pace pace{
      .window_bytes = 1'000'000, .rate_bytes = 1'000'000, .segment_bytes = kSegment, .round_trip = milliseconds(10)};
  Pacer pacer;
  Instant now = kStart;
};

}  // namespace

TEST_CASE("pacing: a window is spread over its round trip, in portions", "[tcp][pacing][W-TCP-01]") {
  Bench bench;
  bench.sends(milliseconds(1), microseconds(100));  // before, there was a pause
  // 1,000 segments in 10 ms: ten in each 100 us.
  for (int portion = 0; portion < 100; ++portion) CHECK(bench.sends(microseconds(100), microseconds(100)) == 10);
}

TEST_CASE("pacing: who looks seldom makes up for it, but not for long pauses", "[tcp][pacing][W-TCP-01]") {
  Bench bench;
  bench.sends(milliseconds(1), microseconds(100));
  CHECK(bench.sends(milliseconds(9), microseconds(300)) == Approx(900).margin(40));
  // After a pause a thirty-second of a round trip, and what is due.
  bench.now = bench.now + milliseconds(500);
  CHECK(bench.sends(microseconds(1), microseconds(1)) <= 42);
}

TEST_CASE("pacing: it says when the next may leave", "[tcp][pacing][W-TCP-01]") {
  Bench bench;
  bench.sends(nanoseconds(1), nanoseconds(1));
  CHECK(bench.pacer.due() > kStart);
  CHECK(bench.pacer.due() <= kStart + microseconds(100));
  bench.now = bench.pacer.due() - nanoseconds(1);
  CHECK(!bench.pacer.may_send(bench.now, [&] { return bench.pace; }));
  bench.now = bench.pacer.due();
  CHECK(bench.pacer.may_send(bench.now, [&] { return bench.pace; }));
}

TEST_CASE("pacing: neither a short path nor a small window is spread", "[tcp][pacing][W-TCP-01]") {
  Bench bench;
  SECTION("a short path") { bench.pace.round_trip = microseconds(199); }
  SECTION("a path of which nothing is known") { bench.pace.round_trip = {}; }
  SECTION("a small window") { bench.pace.window_bytes = 64 * 1024; }
  CHECK(bench.sends(nanoseconds(1), nanoseconds(1)) == 1'000'000);
}

TEST_CASE("pacing: a portion is two segments and more, however long they last", "[tcp][pacing][W-TCP-01]") {
  Bench bench;
  bench.pace.rate_bytes = 100'000;  // a segment in 100 us
  bench.sends(milliseconds(1), microseconds(10));
  bench.now = bench.pacer.due();
  CHECK(bench.sends(nanoseconds(1), nanoseconds(1)) == 2);
  CHECK(bench.pacer.due() - bench.now == microseconds(200) - nanoseconds(1));
}
