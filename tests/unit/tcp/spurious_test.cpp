// What was taken for lost and was only late: known by timestamps (RFC 3522), by DSACK (RFC 3708) or
// by what new data brings (F-RTO, RFC 5682), and undone (RFC 4015, RFC 9438 s4.9).
#include "tcp/spurious.hpp"
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::Seq;

namespace {

tcp::Options newreno(bool timestamps = false) {
  tcp::Options options;
  options.congestion = tcp::Algorithm::newreno;
  options.tail_loss_probe = false;
  options.timestamps = timestamps;
  return options;
}

constexpr std::uint32_t kFull = 1460;
Line full(std::uint32_t i) { return data(1 + kFull * i, pattern(kFull, kFull * i)).no_psh(); }
Line up_to(std::uint32_t i) { return ack(1 + kFull * i); }

// The round trip is 40 ms. Ten segments are out, the window's all, and more waits.
Conversation ten_out() {
  auto c = Conversation::established(newreno(), 65535, 40);
  c.appends(30, kFull);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(full(i));
  c.is_silent();
  return c;
}

}  // namespace

// ---- timestamps (Eifel) ----------------------------------------------------------------------

namespace {
struct WithTimestamps {
  Conversation c{newreno(true)};
  std::uint32_t first = 0, again = 0;  // timestamps of ours

  explicit WithTimestamps(std::size_t segments, std::size_t each = 1448) {
    c.at(-40).answers(syn().timestamps(100, 0));
    const std::uint32_t offset = c.next()->header.timestamps->value;
    c.at(0).hears(Line{.flags = wire::tcp_flags::kAck, .sequence = 1, .ack_ = 1}.timestamps(140, offset));
    c.appends(segments, each);
    while (auto out = c.next()) first = out->header.timestamps->value;
  }
  void retransmits(double at) {
    const auto out = c.at(at).next();
    REQUIRE(out);
    CHECK(out->header.sequence - Conversation::kOurStart == 1);
    again = out->header.timestamps->value;
  }
};
}  // namespace

TEST_CASE("W-TCP-01: Eifel: an echo from before the retransmission undoes a timeout",
          "[tcp][rfc3522][rfc4015][W-TCP-01]") {
  WithTimestamps t(10);
  t.retransmits(200);
  CHECK(t.c->congestion_window_bytes() == 1448);
  SECTION("the original's, late: all goes on as if nothing had been") {
    t.c.at(300).hears(ack(1 + 1448 * 2).timestamps(400, t.first));
    t.c.is_silent();  // nothing is sent again
    CHECK(t.c->counters().spurious_recoveries == 1);
    CHECK(t.c->congestion_window_bytes() >= 14480);
    // So long a way was not known: the timeout is 300 + 4 * 150, not 200.
    t.c.is_silent_until(1200);
  }
  SECTION("the retransmission's: the timeout was right") {
    t.c.at(300).hears(ack(1 + 1448 * 2).timestamps(400, t.again));
    CHECK(t.c.next());
    CHECK(t.c->counters().spurious_recoveries == 0);
  }
}

TEST_CASE("W-TCP-01: Eifel: only the first ACK for the retransmission tells", "[tcp][rfc3522][W-TCP-01]") {
  WithTimestamps t(10);
  t.retransmits(200);
  t.c.at(300).hears(ack(1 + 1448).timestamps(400, t.again));
  t.c.hears(ack(1 + 1448 * 2).timestamps(400, t.first));
  CHECK(t.c->counters().spurious_recoveries == 0);
}

TEST_CASE("W-TCP-01: Eifel: an echo from before the retransmission undoes a fast one",
          "[tcp][rfc3522][rfc9438][W-TCP-01]") {
  WithTimestamps t(10);
  t.c.at(40).hears(ack(1).sack(1 + 1448, 1 + 1448 * 4).timestamps(180, t.first));
  t.retransmits(42);
  t.c.at(44).hears(ack(1 + 1448 * 4).timestamps(184, t.first));
  CHECK(t.c->counters().spurious_recoveries == 1);
  CHECK(t.c->congestion_window_bytes() == 14600 / 1460 * 1448);
  // Segments overtake each other: three behind the next hole are no loss at once (RFC 8985 s6.2 step 4).
  t.c.at(80).hears(ack(1 + 1448 * 4).sack(1 + 1448 * 5, 1 + 1448 * 8).timestamps(220, t.first));
  t.c.is_silent();
}

// ---- DSACK -----------------------------------------------------------------------------------

TEST_CASE("W-TCP-01: a retransmission that the peer had is undone", "[tcp][rfc3708][rfc9438][W-TCP-01]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(1 + kFull, 1 + kFull * 4));
  c.says(full(0));
  SECTION("while the recovery goes on") {
    c.at(42).hears(up_to(4));  // the original was late
    c.at(82).hears(up_to(4).sack(1, 1 + kFull));
    CHECK(c->congestion_window_bytes() == 14600);
  }
  SECTION("after it") {
    c.at(80).hears(up_to(10));
    CHECK(c->congestion_window_bytes() == 7300);
    c.at(82).hears(up_to(10).sack(1, 1 + kFull));
    CHECK(c->congestion_window_bytes() == 14600);
  }
  CHECK(c->counters().spurious_recoveries == 1);
}

TEST_CASE("W-TCP-01: not while any retransmission may have been needed", "[tcp][rfc3708][W-TCP-01]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(1 + kFull * 2, 1 + kFull * 5));
  c.says(full(0));
  c.at(41).hears(ack(1).sack(1 + kFull * 2, 1 + kFull * 8));
  c.says(full(1));
  c.at(82).hears(up_to(10).sack(1, 1 + kFull));
  CHECK(c->congestion_window_bytes() == 7300);
  c.at(83).hears(up_to(10).sack(1, 1 + kFull));  // the network's, not ours
  CHECK(c->congestion_window_bytes() == 7300);
  c.at(84).hears(up_to(10).sack(1 + kFull, 1 + kFull * 2));
  CHECK(c->congestion_window_bytes() == 14600);
}

TEST_CASE("W-TCP-01: which retransmissions were told to be duplicates is kept exactly, or not at all",
          "[tcp][rfc3708][W-TCP-01]") {
  const Instant now{seconds(10).ns};
  tcp::SpuriousCheck check;
  CHECK_FALSE(check.on_duplicate(Seq{0}, Seq{10}));
  check.begin(tcp::SpuriousCheck::After::losses);
  SECTION("neighbours are one range, told of in pieces, from either end") {
    check.on_retransmitted(Seq{0}, Seq{10}, now);
    check.on_retransmitted(Seq{10}, Seq{30}, now);
    CHECK_FALSE(check.on_duplicate(Seq{20}, Seq{30}));
    CHECK_FALSE(check.on_duplicate(Seq{0}, Seq{10}));
    CHECK_FALSE(check.on_duplicate(Seq{0}, Seq{10}));
    CHECK(check.on_duplicate(Seq{10}, Seq{20}));
  }
  SECTION("of what was sent a third time nobody knows") {
    check.on_retransmitted(Seq{0}, Seq{10}, now);
    check.on_retransmitted(Seq{0}, Seq{10}, now);
    CHECK_FALSE(check.on_duplicate(Seq{0}, Seq{10}));
  }
  SECTION("eight ranges are kept, nine are not") {
    for (std::uint32_t i = 0; i < 8; ++i) check.on_retransmitted(Seq{i * 100}, Seq{i * 100 + 10}, now);
    SECTION("eight") {
      for (std::uint32_t i = 0; i < 8; ++i) CHECK(check.on_duplicate(Seq{i * 100}, Seq{i * 100 + 10}) == (i == 7));
    }
    SECTION("nine") {
      check.on_retransmitted(Seq{800}, Seq{810}, now);
      for (std::uint32_t i = 0; i < 9; ++i) CHECK_FALSE(check.on_duplicate(Seq{i * 100}, Seq{i * 100 + 10}));
    }
  }
  SECTION("a piece out of the middle, or more than was sent, tells nothing") {
    check.on_retransmitted(Seq{0}, Seq{30}, now);
    CHECK_FALSE(check.on_duplicate(Seq{0}, Seq{40}));
    CHECK_FALSE(check.on_duplicate(Seq{10}, Seq{20}));
    CHECK_FALSE(check.on_duplicate(Seq{0}, Seq{30}));
  }
}

TEST_CASE("W-TCP-01: a mark in the recovery was congestion, so nothing is undone",
          "[tcp][rfc4015][rfc3168][W-TCP-01]") {
  auto options = newreno();
  options.ecn = tcp::EcnUse::passive;
  Conversation c(options);
  c.at(-40).answers(syn().ece().cwr());
  c.says(syn_ack().ece());
  c.at(0).hears(ack(1));
  c.appends(30, kFull);
  for (int i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(40).hears(ack(1).sack(1 + kFull, 1 + kFull * 4));
  REQUIRE(c.next());
  c.at(42).hears(up_to(4).ece());
  c.at(82).hears(up_to(10).sack(1, 1 + kFull));
  CHECK(c->congestion_window_bytes() == 7300);
  CHECK(c->counters().spurious_recoveries == 0);
}

// ---- F-RTO -----------------------------------------------------------------------------------

TEST_CASE("W-TCP-01: F-RTO: after a timeout's first ACK two new segments go", "[tcp][rfc5682][W-TCP-01]") {
  auto c = ten_out();
  c.at(200).says(full(0));
  c.at(240).hears(up_to(1));
  c.says(full(10)).says(full(11));
  c.is_silent();
  SECTION("what was sent once arrives: the timeout was for nothing") {
    c.at(241).hears(up_to(2));
    CHECK(c->counters().spurious_recoveries == 1);
    // The window is what it was, and full; nothing goes again.
    CHECK(c->congestion_window_bytes() == 14600);
    c.is_silent();
    c.at(242).hears(up_to(10));
    c.says(full(12));
    CHECK(c->counters().retransmitted == 1);
  }
  SECTION("by SACK, too") {
    c.at(241).hears(up_to(1).sack(1 + kFull * 2, 1 + kFull * 3));
    CHECK(c->counters().spurious_recoveries == 1);
    CHECK(c->counters().retransmitted == 1);
  }
  SECTION("only what is new arrives: it was right") {
    c.at(280).hears(up_to(1).sack(1 + kFull * 10, 1 + kFull * 11));
    c.says(full(1));
    CHECK(c->counters().spurious_recoveries == 0);
  }
  SECTION("both arrive: who knows; it was right") {
    c.at(280).hears(up_to(2).sack(1 + kFull * 10, 1 + kFull * 11));
    c.says(full(2));
    CHECK(c->counters().spurious_recoveries == 0);
  }
  SECTION("nothing arrives: the timer runs out again") {
    c.wakes();
    c.says(full(1));
    CHECK(c->counters().timeouts == 2);
    CHECK(c->counters().spurious_recoveries == 0);
    // RFC 5682 s2.1 step 1: a recovery was under way and SND.UNA within it, so it goes on as without F-RTO.
    c.hears(up_to(2));
    c.says(full(2)).says(full(3));
    c.is_silent();
    c.hears(up_to(4));
    CHECK(c->counters().spurious_recoveries == 0);
  }
}

TEST_CASE("W-TCP-01: F-RTO: a timer that runs out again before any ACK tries once more", "[tcp][rfc5682][W-TCP-01]") {
  auto c = ten_out();
  c.at(200).says(full(0));
  c.wakes();
  c.says(full(0));
  CHECK(c->counters().timeouts == 2);
  c.hears(up_to(1));
  c.says(full(10)).says(full(11));
  c.is_silent();
}

TEST_CASE("W-TCP-01: F-RTO: not when the first ACK covers all that was out", "[tcp][rfc5682][W-TCP-01]") {
  auto c = ten_out();
  c.at(200).says(full(0));
  c.at(240).hears(up_to(10));
  CHECK(c.next());
  c.at(241).hears(up_to(11));
  CHECK(c->counters().spurious_recoveries == 0);
  CHECK(c->counters().retransmitted == 1);
}

TEST_CASE("W-TCP-01: F-RTO: without new data the rest goes again", "[tcp][rfc5682][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 65535, 40);
  c.appends(5, kFull);
  for (int i = 0; i < 5; ++i) REQUIRE(c.next());
  c.at(200).says(full(0));
  c.at(240).hears(up_to(1));
  c.says(full(1)).says(full(2));
  c.at(241).hears(up_to(4));
  CHECK(c->counters().spurious_recoveries == 0);
}

TEST_CASE("W-TCP-01: F-RTO: nor with something small that Nagle holds back", "[tcp][rfc5682][W-TCP-01]") {
  auto options = newreno();
  options.nagle = true;
  auto c = Conversation::established(options, 65535, 40);
  c.appends(5, kFull).appends("small");
  for (int i = 0; i < 5; ++i) REQUIRE(c.next());
  c.is_silent();
  c.at(200).says(full(0));
  c.at(240).hears(up_to(1));
  c.says(full(1)).says(full(2));
}

TEST_CASE("W-TCP-01: F-RTO: nor without room in the peer's window", "[tcp][rfc5682][W-TCP-01]") {
  auto c = Conversation::established(newreno(), 14600, 40);
  c.appends(20, kFull);
  for (int i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(200).says(full(0));
  c.at(240).hears(up_to(1).window(14600 - 1460));
  c.says(full(1)).says(full(2));
}

TEST_CASE("W-TCP-01: F-RTO: it works without SACK, too", "[tcp][rfc5682][W-TCP-01]") {
  auto c = Conversation::established_without_sack(newreno());
  c.appends(30, kFull);
  for (std::uint32_t i = 0; i < 10; ++i) c.at(0).says(full(i));
  c.at(200).says(full(0));
  SECTION("late") {
    c.at(240).hears(up_to(1));
    c.says(full(10)).says(full(11));
    c.at(241).hears(up_to(2));
    CHECK(c->counters().spurious_recoveries == 1);
  }
  SECTION("lost: a duplicate ACK is what the new segments bring") {
    c.at(240).hears(up_to(1));
    c.says(full(10)).says(full(11));
    c.at(280).hears(up_to(1));
    c.says(full(1));
    CHECK(c->counters().spurious_recoveries == 0);
  }
}
