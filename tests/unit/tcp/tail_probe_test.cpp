// The tail loss probe (RFC 8985 s7).
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

tcp::Options newreno() {
  tcp::Options options;
  options.congestion = tcp::Algorithm::newreno;
  return options;
}

// The round trip is 40 ms. Three segments leave at 0.
Conversation three_out(const tcp::Options& options = newreno()) {
  auto c = Conversation::established(options, 65535, 40);
  c.at(0).appends("abc").appends("def").appends("ghi");
  c.says(data(1, "abc").no_psh()).says(data(4, "def").no_psh()).says(data(7, "ghi"));
  c.is_silent();
  return c;
}

}  // namespace

TEST_CASE("W-TCP-01: the tail of a burst is probed after two round trips", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.is_silent_until(80).says(data(7, "ghi"));
  c.is_silent();
  CHECK(c->counters().tail_probes == 1);
  // Only the first had arrived: the probe's SACK shows the second's loss.
  c.at(120).hears(ack(4).sack(7, 10));
  c.says(data(4, "def").no_psh());
  c.at(170).hears(ack(10));
  CHECK(c->counters().timeouts == 0);
  CHECK(c->next_deadline() == kNever);
}

TEST_CASE("W-TCP-01: a near peer is given some milliseconds all the same", "[tcp][rfc8985][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 65535, 0.1);
  c.at(0).appends("abc").appends("def");
  c.says(data(1, "abc").no_psh()).says(data(4, "def"));
  c.is_silent_until(5).says(data(4, "def"));
}

TEST_CASE("W-TCP-01: an ACK of a part puts the probe off", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(50).hears(ack(4));
  // The round trips measured are 40 and 50: 41.25 smoothed.
  c.is_silent_until(50 + 2 * 41.25).says(data(7, "ghi"));
}

TEST_CASE("W-TCP-01: a single segment may be waiting for the peer's delayed ACK", "[tcp][rfc8985][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 65535, 40);
  c.at(0).appends("abc");
  c.says(data(1, "abc"));
  c.is_silent_until(120).says(data(1, "abc"));
}

TEST_CASE("W-TCP-01: a probe is something new, if there is something", "[tcp][rfc8985][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 65535, 40);
  c.appends(12, 1460);
  for (std::uint32_t i = 0; i < 10; ++i) c.at(0).says(data(1 + 1460 * i, pattern(1460, 1460 * i)).no_psh());
  // The congestion window is full; the probe does not ask it.
  c.is_silent_until(80).says(data(14601, pattern(1460, 14600)).no_psh());
  c.is_silent();
  SECTION("and its delivery is an ACK like any other") {
    c.at(120).hears(ack(16061));
    CHECK(c->congestion_window_bytes() == 14600 + 16060);
  }
  SECTION("and its delivery shows what is missing") {
    c.at(120).hears(ack(13141).sack(14601, 16061));
    c.says(data(13141, pattern(1460, 13140)).no_psh());
  }
}

TEST_CASE("W-TCP-01: a probe with something new does ask the peer's window", "[tcp][rfc8985][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 14600, 40);
  c.appends(12, 1460);
  for (std::uint32_t i = 0; i < 10; ++i) c.at(0).says(data(1 + 1460 * i, pattern(1460, 1460 * i)).no_psh());
  c.is_silent_until(80).says(data(13141, pattern(1460, 13140)).no_psh());
}

TEST_CASE("W-TCP-01: a probe is not put off beyond the timeout, and stands in for it", "[tcp][rfc8985][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 65535, 150);
  double now = 0;
  std::uint32_t next = 1;
  for (int i = 0; i < 40; ++i) {  // steady: the timeout is 200, the probe would be due after 300
    c.at(now).appends("abc");
    c.says(data(next, "abc"));
    next += 3;
    c.at(now += 150).hears(ack(next));
  }
  c.at(now).appends("abc").appends("def");
  c.says(data(next, "abc").no_psh()).says(data(next + 3, "def"));
  c.is_silent_until(now + 200).says(data(next + 3, "def"));
  CHECK(c->counters().timeouts == 0);
  c.is_silent_until(now + 400).says(data(next, "abc").no_psh());
  CHECK(c->counters().timeouts == 1);
}

TEST_CASE("W-TCP-01: a probe without an answer is followed by the timeout, not by a probe",
          "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(80).says(data(7, "ghi"));
  c.is_silent_until(280).says(data(1, "abc").no_psh());  // 200 after the probe
  CHECK(c->counters().timeouts == 1);
  CHECK(c->counters().tail_probes == 1);
}

TEST_CASE("W-TCP-01: no second probe before a round trip was measured", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(80).says(data(7, "ghi"));
  c.at(120).hears(ack(10).sack(7, 10));  // the probe, of which there is no sample
  CHECK(c->counters().duplicates_told == 1);
  // It was the original that was acknowledged: nothing to measure.
  c.appends("jkl").appends("mno");
  c.says(data(10, "jkl").no_psh()).says(data(13, "mno"));
  SECTION("so the timeout comes, counted from when the probe was due") {
    c.is_silent_until(200).is_silent();
    c.is_silent_until(400).says(data(10, "jkl").no_psh());
    CHECK(c->counters().tail_probes == 1);
  }
  SECTION("after one there is") {
    c.at(160).hears(ack(13));
    c.wakes();
    c.says(data(13, "mno"));
    CHECK(c->counters().tail_probes == 2);
  }
}

TEST_CASE("W-TCP-01: no probe while segments behind a hole are known to have come", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(40).hears(ack(1).sack(4, 7));
  c.is_silent_until(50).says(data(1, "abc").no_psh());  // RACK's timer is the one that runs
  c.at(90).hears(ack(7));
  CHECK(c->counters().tail_probes == 0);
}

TEST_CASE("W-TCP-01: without SACK there is no probe", "[tcp][rfc8985][W-TCP-01]") {
  auto c = Conversation::established_without_sack();
  c.at(0).appends("abc").appends("def");
  c.says(data(1, "abc").no_psh()).says(data(4, "def"));
  c.is_silent_until(200).says(data(1, "abc").no_psh());
}

// ---- what the answer means for the window (s7.4.2) -------------------------------------------

TEST_CASE("W-TCP-01: a loss that the probe made good is paid for", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(80).says(data(7, "ghi"));
  c.at(120).hears(ack(10));
  CHECK(c->congestion_window_bytes() == 14600);  // not known yet
  c.appends("jkl");
  c.says(data(10, "jkl"));
  c.at(160).hears(ack(13));
  CHECK(c->congestion_window_bytes() == 2 * 1460);  // half of what was in flight, at least two segments
}

TEST_CASE("W-TCP-01: a probe that was not needed costs nothing", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(80).says(data(7, "ghi"));
  SECTION("the ACK was late: the DSACK says so") {
    c.at(85).hears(ack(10));
    c.at(120).hears(ack(10).sack(7, 10));
  }
  SECTION("the ACK was lost: the same ACK says both") { c.at(120).hears(ack(10).sack(7, 10)); }
  SECTION("the peer knows no DSACK: its duplicate ACK says so") {
    c.at(85).hears(ack(10));
    c.at(120).hears(ack(10));
  }
  c.appends("jkl");
  c.says(data(10, "jkl"));
  c.at(160).hears(ack(13));
  CHECK(c->congestion_window_bytes() == 14600);
}

TEST_CASE("W-TCP-01: another's DSACK does not excuse the probe", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(80).says(data(7, "ghi"));
  c.at(120).hears(ack(10).sack(1, 4));
  c.appends("jkl");
  c.says(data(10, "jkl"));
  c.at(160).hears(ack(13));
  CHECK(c->congestion_window_bytes() == 2 * 1460);
}

TEST_CASE("W-TCP-01: a probe's own DSACK is no reason for patience", "[tcp][rfc8985][W-TCP-01]") {
  auto c = three_out();
  c.at(80).says(data(7, "ghi"));
  c.at(120).hears(ack(10).sack(7, 10));
  c.appends("jkl").appends("mno");
  c.says(data(10, "jkl").no_psh()).says(data(13, "mno"));
  c.at(160).hears(ack(10).sack(13, 16));
  c.is_silent_until(170).says(data(10, "jkl").no_psh());
}
