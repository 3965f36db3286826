// Losses and what repairs them: the timeout (RFC 6298), duplicate ACKs (RFC 5681, RFC 6582) and SACK
// (RFC 2018, RFC 2883). How losses are found by time is in rack_test.cpp, the tail probe in
// tail_probe_test.cpp.
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

tcp::Options no_probe() {
  tcp::Options options;
  options.tail_loss_probe = false;
  return options;
}

// Ten segments of 100 octets are out, none acknowledged.
Conversation ten_out(const tcp::Options& options = no_probe()) {
  auto c = Conversation::established(options);
  c.appends(10, 100);
  for (std::uint32_t i = 0; i < 10; ++i) {
    Line line = data(1 + 100 * i, pattern(100, 100 * i));
    if (i < 9) line.no_psh();
    c.says(line);
  }
  c.is_silent();
  return c;
}

Line segment(std::uint32_t i) {  // of those ten, counted from 0
  Line line = data(1 + 100 * i, pattern(100, 100 * i));
  if (i < 9) line.no_psh();
  return line;
}

}  // namespace

TEST_CASE("W-TCP-03: a timeout sends the same octets in the same segment", "[tcp][W-TCP-03]") {
  auto c = Conversation::established(no_probe());
  c.appends("abc").appends(pattern(1460));
  c.at(0).says(data(1, "abc").no_psh());
  c.at(0).says(data(4, pattern(1460)));
  c.is_silent_until(200).says(data(1, "abc").no_psh());
  c.is_silent();  // the window is one segment now, and the second does not fit beside the first
  c.at(201).hears(ack(4));
  c.says(data(4, pattern(1460)));
  c.at(202).hears(ack(1464));
  CHECK(c->acknowledged() == 1463);
  CHECK(c->next_deadline() == kNever);
}

TEST_CASE("W-TCP-01: the timeout doubles, and at the end of patience the connection ends", "[tcp][W-TCP-01]") {
  auto options = no_probe();
  options.retransmissions_max = 3;
  auto c = Conversation::established(options);
  c.appends("abc");
  c.at(0).says(data(1, "abc"));
  c.is_silent_until(200).says(data(1, "abc"));
  c.is_silent_until(600).says(data(1, "abc"));
  c.is_silent_until(1400).says(data(1, "abc"));
  c.is_silent_until(3000).is_silent();
  CHECK(c->ended() == tcp::Ended::timed_out);
  CHECK(c.pool().available() == 4096);
}

TEST_CASE("W-TCP-01: a second timeout of the same segment does not lower the threshold again", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_probe());  // CUBIC
  c.appends(10, 1460);
  for (int i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(200).says(data(1, pattern(1460)).no_psh());
  c.at(600).says(data(1, pattern(1460)).no_psh());
  CHECK(c->congestion_window_bytes() == 1460);
  // Slow start as far as 0.7 of the ten.
  c.at(601).hears(ack(1461));
  for (int i = 0; i < 2; ++i) REQUIRE(c.next());
  c.is_silent();
  c.at(602).hears(ack(4381));
  CHECK(c->congestion_window_bytes() == 5840);
}

TEST_CASE("W-TCP-01: an answer in time ends the counting of timeouts", "[tcp][W-TCP-01]") {
  auto options = no_probe();
  options.retransmissions_max = 1;
  auto c = Conversation::established(options);
  c.appends("abc").appends("def");
  c.at(0).says(data(1, "abc").no_psh());
  c.at(0).says(data(4, "def"));
  c.at(200).says(data(1, "abc").no_psh());
  c.at(210).hears(ack(4));
  c.says(data(4, "def"));
  c.wakes();
  c.says(data(4, "def"));
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: no round trip is measured on a segment that was sent twice", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_probe());
  const auto before = c->smoothed_rtt();
  c.appends("abc");
  c.at(0).says(data(1, "abc"));
  c.at(200).says(data(1, "abc"));
  c.at(5000).hears(ack(4));
  CHECK(c->smoothed_rtt() == before);
  // And the backed-off timeout stays until there is a sample (Karn).
  c.appends("def");
  c.says(data(4, "def"));
  c.is_silent_until(5400).says(data(4, "def"));
}

TEST_CASE("W-TCP-01: three duplicate ACKs retransmit the first segment, two do not", "[tcp][W-TCP-01]") {
  auto c = Conversation::established_without_sack();
  c.appends(10, 100);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(segment(i));
  c.at(1).hears(ack(1));
  c.hears(ack(1));
  c.is_silent();
  c.hears(ack(1));
  c.says(segment(0));
  c.is_silent();
  CHECK(c->counters().fast_retransmits == 1);
  CHECK(c->counters().timeouts == 0);
}

TEST_CASE("W-TCP-01: duplicate ACKs are those that change nothing", "[tcp][W-TCP-01]") {
  auto c = Conversation::established_without_sack();
  c.appends(10, 100);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(segment(i));
  c.at(1).hears(ack(1).window(60000));
  c.hears(ack(1).window(60001));
  c.hears(ack(1).window(60002));
  c.hears(data(1, "a").ack(1));
  CHECK(c->counters().fast_retransmits == 0);
}

TEST_CASE("W-TCP-01: NewReno: a partial ACK retransmits the next hole at once", "[tcp][W-TCP-01]") {
  auto c = Conversation::established_without_sack();
  c.appends(10, 100);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(segment(i));
  for (int i = 0; i < 3; ++i) c.at(1).hears(ack(1));
  c.says(segment(0));
  c.at(2).hears(ack(401));
  c.says(segment(4));
  c.is_silent();
  c.at(3).hears(ack(1001));
  CHECK(c->acknowledged() == 1000);
  CHECK(c->counters().fast_retransmits == 1);
}

TEST_CASE("W-TCP-01: limited transmit: a duplicate ACK lets one new segment go", "[tcp][W-TCP-01]") {
  tcp::Options options = no_probe();
  options.sack = false;
  Conversation c(options);
  c.answers(syn());
  c.says(syn_ack().sack_permitted(false));
  c.hears(Line{.flags = wire::tcp_flags::kAck, .sequence = 1, .ack_ = 1});
  c.appends(12, 1460);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(data(1 + 1460 * i, pattern(1460, 1460 * i)).no_psh());
  c.is_silent();
  c.at(1).hears(ack(1));
  c.says(data(14601, pattern(1460, 14600)).no_psh());
  c.is_silent();
  c.hears(ack(1));
  c.says(data(16061, pattern(1460, 16060)));
  c.is_silent();
}

TEST_CASE("W-TCP-12: SACK of three segments behind a hole retransmits the hole, of two does not", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(1).sack(101, 201));
  c.is_silent();
  c.at(1).hears(ack(1).sack(101, 301));
  c.is_silent();
  c.at(1).hears(ack(1).sack(101, 401));
  c.says(segment(0));
  c.is_silent();
  c.at(2).hears(ack(1001));
  CHECK(c->counters().retransmitted == 1);
  CHECK(c->counters().fast_retransmits == 1);
}

TEST_CASE("W-TCP-12: only what is missing is retransmitted, lowest first", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(1).sack(501, 801).sack(201, 301));
  c.says(segment(0));
  c.says(segment(1));
  c.says(segment(3));
  c.says(segment(4));
  c.is_silent();  // segments 8 and 9 have none behind them
  c.at(2).hears(ack(1001));
  CHECK(c->counters().retransmitted == 4);
}

TEST_CASE("W-TCP-12: the window is reduced once for all losses of one window", "[tcp][W-TCP-12]") {
  tcp::Options options = no_probe();
  options.congestion = tcp::Algorithm::newreno;
  auto c = Conversation::established(options);
  c.appends(10, 1460);
  for (std::uint32_t i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(1).hears(ack(1).sack(1461, 1 + 1460 * 4));
  REQUIRE(c.next());
  c.at(2).hears(ack(1 + 1460 * 4).sack(1 + 1460 * 5, 1 + 1460 * 9));
  REQUIRE(c.next());
  c.at(3).hears(ack(14601));
  CHECK(c->counters().fast_retransmits == 1);
  CHECK(c->congestion_window_bytes() == 7300);
}

TEST_CASE("W-TCP-12: a retransmission that is lost, too, is sent again when later ones arrive", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(1).sack(101, 401));
  c.at(1).says(segment(0));
  c.appends(1, 100);
  c.at(10).says(data(1001, pattern(100, 1000)));
  c.at(11).hears(ack(1).sack(101, 1001));
  c.is_silent();
  c.at(12).hears(ack(1).sack(101, 1101));
  c.says(segment(0));
  CHECK(c->counters().timeouts == 0);
}

TEST_CASE("W-TCP-12: blocks that cannot be are ignored", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(1).sack(1001, 1201));       // never sent
  c.at(1).hears(ack(1).sack(401, 101));         // turned round
  c.at(1).hears(ack(1).sack(0xFFFFFF00, 901));  // from before
  c.is_silent();
  CHECK(c->counters().fast_retransmits == 0);
}

TEST_CASE("W-TCP-12: a duplicate's block (DSACK) is no loss", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(501));
  for (int i = 0; i < 5; ++i) c.at(2).hears(ack(501).sack(1, 101));
  c.is_silent();
  CHECK(c->counters().fast_retransmits == 0);
}

TEST_CASE("W-TCP-12: after a timeout what was SACKed is not sent again", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(1).sack(101, 201).sack(901, 1001));
  c.wakes();
  c.says(segment(0));
  c.at(300).hears(ack(201).sack(901, 1001));
  c.says(segment(2));
  c.says(segment(3));
}

TEST_CASE("W-TCP-12: a peer that drops what it had SACKed gets it again", "[tcp][W-TCP-12]") {
  auto c = ten_out();
  c.at(1).hears(ack(1).sack(101, 1001));
  c.says(segment(0));
  c.at(2).hears(ack(101));  // it would be 1001, had it kept them
  c.wakes();
  c.says(segment(1));
  c.at(300).hears(ack(201));
  c.says(segment(2));
}

TEST_CASE("W-TCP-19: a buffer that somebody else holds is not lent for headers", "[tcp][W-TCP-19]") {
  auto c = Conversation::established(no_probe());
  c.appends("abc");
  auto first = c.at(0).next();
  REQUIRE(first);
  CHECK(first->whole);
  // The caller puts its headers in front, and a driver still holds the buffer at the timeout.
  first->buffer->prepend(40);
  auto second = c.at(200).next();
  REQUIRE(second);
  CHECK_FALSE(second->whole);
  CHECK(std::memcmp(second->payload.data(), "abc", 3) == 0);
  CHECK(second->payload.size() == 3);
  second.reset();
  first.reset();
  // The driver is done: the buffer may be used again, and the old headers are off.
  c.wakes();
  auto third = c.next();
  REQUIRE(third);
  CHECK(third->whole);
  CHECK(third->buffer->length == 3);
  CHECK(third->buffer->head == kHeadroom);
}

TEST_CASE("W-TCP-03: after a partial acknowledgement the rest of the segment is sent", "[tcp][W-TCP-03]") {
  auto c = Conversation::established(no_probe());
  c.appends("abcdef");
  c.at(0).says(data(1, "abcdef"));
  c.at(1).hears(ack(4));
  CHECK(c->acknowledged() == 3);
  c.wakes();
  auto rest = c.next();
  REQUIRE(rest);
  CHECK(rest->header.sequence == Conversation::kOurStart + 4);
  CHECK(std::memcmp(rest->payload.data(), "def", 3) == 0);
  CHECK_FALSE(rest->whole);
}

TEST_CASE("W-TCP-01: acknowledged buffers go back to their pool", "[tcp][W-TCP-01]") {
  auto c = ten_out();
  CHECK(c.pool().available() == 4096 - 10);
  c.at(1).hears(ack(501));
  CHECK(c.pool().available() == 4096 - 5);
  c.at(1).hears(ack(1001));
  CHECK(c.pool().available() == 4096);
}

// ---- without SACK, small segments: a duplicate ACK stands for one of them, not for a full one -------

namespace {
Line small(std::uint32_t i) { return data(1 + 100 * i, pattern(100, 100 * i)).no_psh(); }

Conversation small_ones_out(std::uint32_t count) {
  auto options = no_probe();
  options.congestion = tcp::Algorithm::newreno;
  auto c = Conversation::established_without_sack(options);
  c.appends(200, 100);
  for (std::uint32_t i = 0; i < count; ++i) c.at(0).says(small(i));
  c.is_silent();
  return c;
}
}  // namespace

TEST_CASE("W-TCP-01: a duplicate ACK lets go as much as a segment in flight is, not a full one",
          "[tcp][rfc3042][rfc6937][W-TCP-01]") {
  auto c = small_ones_out(146);  // the window's 14600 octets
  c.at(1).hears(ack(1));
  c.says(small(146));
  c.is_silent();
  c.hears(ack(1));
  c.says(small(147));
  c.is_silent();
  c.hears(ack(1));
  c.says(small(0));  // the hole
  c.is_silent();
  // PRR: one for two.
  int said = 0;
  for (int i = 0; i < 20; ++i) {
    c.hears(ack(1));
    while (c.next()) ++said;
  }
  CHECK(said >= 8);
  CHECK(said <= 12);
}

TEST_CASE("W-TCP-01: after a timeout, too, a duplicate ACK lets one segment go", "[tcp][rfc5681][W-TCP-01]") {
  auto c = small_ones_out(146);
  c.at(200);
  for (std::uint32_t i = 0; i < 14; ++i) c.says(small(i));  // the window of one full segment
  c.is_silent();
  for (std::uint32_t i = 14; i < 24; ++i) {
    c.hears(ack(1)).says(small(i));
    c.is_silent();
  }
}

// ---- round trips of what was sent twice (RFC 6298 s3, RFC 7323 s4) -----------------------------------

namespace {
// The round trip is 40 ms; "abc" is out, and each of `more` behind it; at 200 ms "abc" has gone again.
struct Stamped {
  Conversation c;
  std::uint32_t first = 0, again = 0;  // timestamps of ours

  explicit Stamped(bool sack = true, std::initializer_list<const char*> more = {}) : c(with_timestamps()) {
    c.at(-40).answers(syn().sack_permitted(sack).timestamps(100, 0));
    const std::uint32_t offset = c.next()->header.timestamps->value;
    c.at(0).hears(Line{.flags = wire::tcp_flags::kAck, .sequence = 1, .ack_ = 1}.timestamps(140, offset));
    c.appends("abc");
    first = c.next()->header.timestamps->value;
    for (const char* text : more) {
      c.appends(text);
      REQUIRE(c.next());
    }
    c.at(200);
    again = c.next()->header.timestamps->value;
  }
  static tcp::Options with_timestamps() {
    auto options = no_probe();
    options.timestamps = true;
    return options;
  }
  // When what is sent now goes again.
  double timeout() {
    const Instant sent = c.now();
    c.appends("jkl");
    REQUIRE(c.next());
    return static_cast<double>((c->next_deadline() - sent).ns) / 1e6;
  }
};
}  // namespace

TEST_CASE("W-TCP-12: an echo of the retransmission measures it, and ends the back-off", "[tcp][rfc7323][W-TCP-12]") {
  Stamped s;
  s.c.at(240).hears(ack(4).timestamps(400, s.again));
  CHECK(s.c->smoothed_rtt() == milliseconds(40));
  CHECK(s.timeout() == 200);
}

TEST_CASE("W-TCP-12: an echo of the original says nothing of the way: perhaps it was an ACK that was lost",
          "[tcp][rfc4015][W-TCP-12]") {
  Stamped s;
  s.c.at(240).hears(ack(4).timestamps(400, s.first));
  CHECK(s.c->counters().spurious_recoveries == 1);
  CHECK(s.c->smoothed_rtt() == milliseconds(40));
  CHECK(s.timeout() == 400);  // until something is measured
  SECTION("the next way is as it was") {
    s.c.at(280).hears(ack(7).timestamps(440, s.again + 38));
    CHECK(s.c->smoothed_rtt() == milliseconds(40));
    CHECK(s.timeout() == 200);
  }
  SECTION("the next way is long: it counts in full, once") {
    s.c.at(440).hears(ack(7).timestamps(600, s.again + 38));
    CHECK(s.c->smoothed_rtt() == milliseconds(200));
    CHECK(s.timeout() == 600);
    s.c.at(480).hears(ack(10).timestamps(640, s.again + 230));
    CHECK(s.c->smoothed_rtt() == milliseconds(180));
  }
}

TEST_CASE("W-TCP-12: what was sent once is not measured by the ACK for what was sent twice",
          "[tcp][rfc6298][W-TCP-12]") {
  auto c = Conversation::established(no_probe(), 65535, 40);
  c.appends("abc").says(data(1, "abc"));
  c.appends("def").says(data(4, "def"));
  c.at(200).says(data(1, "abc").no_psh());
  c.at(240).hears(ack(7));  // "def" may have been there for 200 ms
  CHECK(c->smoothed_rtt() == milliseconds(40));
  c.appends("ghi").says(data(7, "ghi"));
  CHECK(c->next_deadline() - c.now() == milliseconds(400));
}

TEST_CASE("W-TCP-12: nor with timestamps, where the echo is the original's because the peer had it all",
          "[tcp][rfc7323][rfc2883][W-TCP-12]") {
  SECTION("a duplicate, it says: its ACK was lost") {
    Stamped s(true, {"def", "ghi"});
    s.c.at(240).hears(ack(10).sack(1, 4).timestamps(400, s.first));
    CHECK(s.c->counters().spurious_recoveries == 1);
    CHECK(s.c->smoothed_rtt() == milliseconds(40));
    CHECK(s.timeout() == 400);
  }
  SECTION("it cannot say so") {
    Stamped s(false, {"def", "ghi"});
    s.c.at(240).hears(ack(10).timestamps(400, s.first));
    CHECK(s.c->smoothed_rtt() == milliseconds(40));
    CHECK(s.timeout() == 400);
  }
  SECTION("it would have said so: the ACK was late, and the way is as long as that") {
    Stamped s(true, {"def", "ghi"});
    s.c.at(240).hears(ack(10).timestamps(400, s.first));
    CHECK(s.c->smoothed_rtt() == milliseconds(240));
  }
  SECTION("the echo is the retransmission's") {
    Stamped s(true, {"def", "ghi"});
    s.c.at(240).hears(ack(10).timestamps(400, s.again));
    CHECK(s.c->smoothed_rtt() == milliseconds(40));
    CHECK(s.timeout() == 200);
  }
}
