// Losses found by time (RFC 8985 s6): what was overtaken is lost when reordering has had its time.
#include "tcp/rack.hpp"
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

tcp::Options no_probe() {
  tcp::Options options;
  options.tail_loss_probe = false;
  return options;
}

Line segment(std::uint32_t i, bool last = false) {  // of 100 octets, counted from 0
  Line line = data(1 + 100 * i, pattern(100, 100 * i));
  if (!last) line.no_psh();
  return line;
}

// The round trip is 40 ms, so a quarter of it is 10. Ten segments leave at 0.
Conversation ten_out(const tcp::Options& options = no_probe()) {
  auto c = Conversation::established(options, 65535, 40);
  c.appends(10, 100);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(segment(i, i == 9));
  c.is_silent();
  return c;
}

// And one of them was overtaken, but came: from now on patience is asked for.
Conversation ten_out_reordered() {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 201));
  c.at(42).hears(ack(201));
  c.is_silent();
  return c;
}

}  // namespace

TEST_CASE("W-TCP-12: RACK: two behind a hole wait for a quarter of a round trip", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 301));
  c.is_silent_until(50).says(segment(0));
  c.is_silent();  // the others have none behind them
  CHECK(c->counters().fast_retransmits == 1);
}

TEST_CASE("W-TCP-12: RACK: the third behind a hole ends the waiting", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 301));
  c.is_silent();
  c.at(41).hears(ack(1).sack(101, 401));
  c.says(segment(0));
}

TEST_CASE("W-TCP-12: RACK: in a recovery nothing is waited for", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 401));
  c.says(segment(0));
  c.at(41).hears(ack(1).sack(501, 601).sack(101, 401));
  c.says(segment(4));
  c.is_silent();
}

TEST_CASE("W-TCP-12: RACK: a hole that fills in time was no loss", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 301));
  c.at(49).hears(ack(301));
  c.is_silent_until(60).is_silent();
  CHECK(c->counters().retransmitted == 0);
  CHECK(c->congestion_window_bytes() == 14600);
}

TEST_CASE("W-TCP-12: RACK: where segments overtake each other three behind a hole mean nothing",
          "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out_reordered();
  c.at(44).hears(ack(201).sack(301, 901));
  // Sent at 0; what arrived last took 44; and a quarter of the least round trip, which is 40.
  c.is_silent_until(54).says(segment(2));
  c.is_silent();
}

TEST_CASE("W-TCP-12: RACK: a retransmission that comes before its original is no reordering",
          "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 401));
  c.says(segment(0));
  c.at(80).hears(ack(401));  // the retransmission's, below what was SACKed
  c.at(81).hears(ack(401).sack(501, 801));
  c.says(segment(4));
}

TEST_CASE("W-TCP-12: RACK: blocks that come together are no reordering, in whatever order they stand",
          "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(701, 801).sack(301, 401).sack(101, 201));
  c.says(segment(0));
  c.says(segment(2));
  c.says(segment(4));
}

TEST_CASE("W-TCP-12: RACK: each round trip with a duplicate told of adds a quarter",
          "[tcp][rfc8985][rfc2883][W-TCP-12]") {
  auto c = ten_out_reordered();
  c.at(43).hears(ack(201).sack(1, 101));  // DSACK
  c.hears(ack(201).sack(1, 101));         // the same round: counts once
  c.at(44).hears(ack(201).sack(301, 901));
  c.is_silent_until(64).says(segment(2));
  // The next round begins with what is sent after this one.
  c.at(104).hears(ack(1001));
  c.appends(4, 100);
  for (std::uint32_t i = 10; i < 14; ++i) c.says(segment(i, i == 13));
  c.at(144).hears(ack(1001).sack(1, 101).sack(1101, 1401));
  c.is_silent_until(104 + 40 + 30).says(segment(10));
}

TEST_CASE("W-TCP-12: RACK: a duplicate inside a later block is told of, too", "[tcp][rfc8985][rfc2883][W-TCP-12]") {
  auto c = ten_out_reordered();
  c.at(44).hears(ack(201).sack(401, 501).sack(301, 901));
  CHECK(c->counters().duplicates_told == 1);
  c.is_silent_until(64).says(segment(2));
}

TEST_CASE("W-TCP-12: RACK: blocks of what was never sent tell of no duplicate", "[tcp][rfc8985][rfc2883][W-TCP-12]") {
  auto c = ten_out_reordered();
  c.at(43).hears(ack(201).sack(201, 101));  // turned round
  c.hears(ack(201).sack(0xFFFE0000, 101));  // longer than any window was
  c.hears(ack(201).sack(1101, 1201).sack(1001, 1401));
  CHECK(c->counters().duplicates_told == 0);
}

TEST_CASE("W-TCP-12: RACK: an answer sooner than any round trip was not the retransmission's",
          "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(38).appends(4, 100);
  for (std::uint32_t i = 10; i < 14; ++i) c.says(segment(i, i == 13));
  c.at(40).hears(ack(1).sack(101, 401));
  c.at(45).says(segment(0));
  // Believed, it would make all that left before 45 overtaken, and lost.
  c.at(46).hears(ack(401));
  c.is_silent();
  CHECK(c->counters().retransmitted == 1);
}

TEST_CASE("W-TCP-12: RACK: timestamps tell the original from the retransmission", "[tcp][rfc8985][W-TCP-12]") {
  tcp::Options options = no_probe();
  options.timestamps = true;
  Conversation c(options);
  c.at(-40).answers(syn().timestamps(100, 0));
  const auto first = c.next();
  REQUIRE(first);
  c.at(0).hears(
      Line{.flags = wire::tcp_flags::kAck, .sequence = 1, .ack_ = 1}.timestamps(140, first->header.timestamps->value));
  c.appends(10, 100);
  std::uint32_t sent_at_0 = 0;
  for (std::uint32_t i = 0; i < 10; ++i) sent_at_0 = c.next()->header.timestamps->value;
  c.at(38).appends(4, 100);
  for (std::uint32_t i = 10; i < 14; ++i) REQUIRE(c.next());
  c.at(40).hears(ack(1).sack(101, 401).timestamps(180, sent_at_0));
  const auto again = c.at(45).next();
  REQUIRE(again);
  c.is_silent();
  SECTION("the original's: nothing was overtaken by it") {
    c.at(90).hears(ack(401).timestamps(230, sent_at_0));
    c.is_silent();
  }
  SECTION("the retransmission's: all that left before it is lost") {
    c.at(90).hears(ack(401).timestamps(230, again->header.timestamps->value));
    CHECK(c.next());
  }
}

TEST_CASE("W-TCP-12: RACK: of what left at one moment the lower was first", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(301, 601));
  c.says(segment(0)).says(segment(1)).says(segment(2));
  c.is_silent();
}

TEST_CASE("W-TCP-12: RACK: a retransmission that is lost is sent again, however often", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(101, 401));
  c.says(segment(0));
  std::uint32_t next = 10;
  for (double at : {80.0, 120.0, 160.0}) {
    c.at(at - 39).appends(1, 100);
    c.says(segment(next, true));
    ++next;
    c.at(at + 1).hears(ack(1).sack(101, 1 + 100 * next));  // what left after it has arrived
    c.says(segment(0));
    c.is_silent();
  }
  CHECK(c->counters().timeouts == 0);
  CHECK(c->counters().fast_retransmits == 1);
}

TEST_CASE("W-TCP-12: RACK: a timeout takes only what is old for lost", "[tcp][rfc8985][W-TCP-12]") {
  auto c = Conversation::established(no_probe(), 65535, 40);
  c.appends(3, 100);
  c.at(0).says(segment(0)).says(segment(1)).says(segment(2, true));
  c.at(40).hears(ack(101));
  c.at(230).appends(2, 100);
  c.says(segment(3)).says(segment(4, true));
  CHECK(c.wakes() == Approx(240));
  c.says(segment(1));
  c.at(245).hears(ack(301));
  c.is_silent();  // 3 and 4 left a moment before the timeout
  c.at(290).hears(ack(501));
  CHECK(c->counters().retransmitted == 1);
}

TEST_CASE("W-TCP-12: RACK: what an overtaken ACK says is heard", "[tcp][rfc8985][W-TCP-12]") {
  auto c = ten_out();
  c.at(40).hears(ack(101));
  c.hears(ack(1).sack(201, 501));
  c.says(segment(1));
}

// ---- how long reordering may take, alone ----------------------------------------------------

namespace {
constexpr Instant kStart{seconds(10).ns};
constexpr Duration kLong = seconds(1);

tcp::Rack measured(Duration round_trip) {
  tcp::Rack rack;
  rack.on_round_trip(round_trip, kStart);
  return rack;
}

void reorder(tcp::Rack& rack) {
  tcp::Delivered delivered;
  delivered.on_original(tcp::Seq{100});
  rack.on_delivered(delivered, tcp::Seq{200}, kStart);
}
}  // namespace

TEST_CASE("W-TCP-12: RACK: the horizon is what left last of all that has arrived", "[tcp][rfc8985][W-TCP-12]") {
  auto rack = measured(milliseconds(40));
  CHECK_FALSE(rack.started());
  const auto arrives = [&rack](std::int64_t sent_ms, std::uint32_t end) {
    tcp::Delivered delivered;
    delivered.on_sent_at(kStart + milliseconds(sent_ms), tcp::Seq{end});
    rack.on_delivered(delivered, tcp::Seq{end}, kStart + milliseconds(100));
    const auto horizon = rack.horizon(Duration{0});
    return std::pair{(horizon.sent_at - kStart).ns / 1'000'000, horizon.end.value};
  };
  using Place = std::pair<std::int64_t, std::uint32_t>;
  CHECK(arrives(10, 200) == Place{10, 200});
  CHECK(rack.started());
  CHECK(arrives(5, 300) == Place{10, 200});   // left earlier
  CHECK(arrives(10, 100) == Place{10, 200});  // at the same moment, but before it
  CHECK(arrives(10, 250) == Place{10, 250});
  CHECK(arrives(11, 50) == Place{11, 50});
}

TEST_CASE("W-TCP-12: RACK: no patience in a recovery or with three SACKed, until reordering is seen",
          "[tcp][rfc8985][W-TCP-12]") {
  auto rack = measured(milliseconds(40));
  CHECK(rack.reordering_window(false, 2, kLong) == milliseconds(10));
  CHECK(rack.reordering_window(false, 3, kLong) == Duration{0});
  CHECK(rack.reordering_window(true, 0, kLong) == Duration{0});
  reorder(rack);
  CHECK(rack.reordering_window(false, 3, kLong) == milliseconds(10));
  CHECK(rack.reordering_window(true, 3, kLong) == milliseconds(10));
}

// An original that arrives before it is sent again is luck; that what was sent again had arrived says the same.
TEST_CASE("W-TCP-12: RACK: a duplicate told of, or a recovery undone, says that segments overtake each other",
          "[tcp][rfc8985][W-TCP-12]") {
  auto rack = measured(milliseconds(40));
  SECTION("a duplicate") {
    rack.on_duplicate(0, 1000);
    CHECK(rack.reordering_window(false, 3, kLong) == milliseconds(20));
  }
  SECTION("an undone recovery") {
    rack.on_reordering();
    CHECK(rack.reordering_window(false, 3, kLong) == milliseconds(10));
  }
}

TEST_CASE("W-TCP-12: RACK: patience is never longer than a smoothed round trip", "[tcp][rfc8985][W-TCP-12]") {
  auto rack = measured(milliseconds(40));
  for (std::uint64_t round = 0; round < 10; ++round) rack.on_duplicate(round * 1000, round * 1000 + 1000);
  CHECK(rack.reordering_window(false, 0, kLong) == milliseconds(110));
  CHECK(rack.reordering_window(false, 0, milliseconds(50)) == milliseconds(50));
}

TEST_CASE("W-TCP-12: RACK: after sixteen recoveries without a duplicate patience is short again",
          "[tcp][rfc8985][W-TCP-12]") {
  auto rack = measured(milliseconds(40));
  rack.on_duplicate(0, 1000);
  rack.on_duplicate(1000, 2000);
  for (int i = 0; i < 15; ++i) rack.on_recovery_end();
  CHECK(rack.reordering_window(false, 0, kLong) == milliseconds(30));
  SECTION("one more") {
    rack.on_recovery_end();
    CHECK(rack.reordering_window(false, 0, kLong) == milliseconds(10));
  }
  SECTION("a duplicate, and it takes sixteen again") {
    rack.on_duplicate(2000, 3000);
    for (int i = 0; i < 15; ++i) rack.on_recovery_end();
    CHECK(rack.reordering_window(false, 0, kLong) == milliseconds(40));
  }
}

TEST_CASE("W-TCP-12: RACK: the least round trip is that of the last minutes", "[tcp][rfc8985][W-TCP-12]") {
  tcp::LeastRoundTrip least;
  CHECK(least.value() == Duration{0});
  least.sample(milliseconds(5), kStart);
  least.sample(milliseconds(50), kStart + seconds(1));
  CHECK(least.value() == milliseconds(5));
  least.sample(milliseconds(50), kStart + seconds(61));
  CHECK(least.value() == milliseconds(5));
  least.sample(milliseconds(40), kStart + seconds(62));
  least.sample(milliseconds(50), kStart + seconds(122));
  CHECK(least.value() == milliseconds(40));
}
