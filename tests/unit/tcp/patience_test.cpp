// How long one goes on: with a peer that does not answer (RFC 9293 s3.8.3, RFC 6298 s5), with one that
// says nothing (s3.8.4), and with oneself that said nothing for a while (RFC 5681 s4.1).
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::Ended;
using tcp::State;
namespace flag = wire::tcp_flags;

namespace {

tcp::Options keepalive(double interval_s) {
  tcp::Options options = no_tail_probe();
  options.keepalive = milliseconds(static_cast<std::int64_t>(interval_s * 1000));
  return options;
}

}  // namespace

// ---- giving up -------------------------------------------------------------------------------------

TEST_CASE("W-TCP-01: a SYN is tried for three minutes (MUST-23)", "[tcp][rfc6298][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  for (const double at_s : {1, 3, 7, 15, 31, 63, 123}) c.is_silent_until(1000 * at_s).says(syn());
  c.is_silent_until(183'000).is_silent();
  CHECK(c->ended() == Ended::timed_out);
}

TEST_CASE(
    "W-TCP-01: where only memory is between, a SYN comes again after 10 ms, doubling up to a second, and then as ever",
    "[tcp][rfc6298][W-TCP-01]") {
  tcp::Options options;
  options.syn_wait_first = milliseconds(10);
  Conversation c(options);
  c.opens();
  c.at(0).says(syn());
  for (const double at_ms : {10, 30, 70, 150, 310, 630, 1270}) c.is_silent_until(at_ms).says(syn());
  for (const double at_s : {1, 3, 7, 15, 31, 63, 123}) c.is_silent_until(1270 + 1000 * at_s).says(syn());
  c.is_silent_until(184'270).is_silent();
  CHECK(c->ended() == Ended::timed_out);
}

TEST_CASE("W-TCP-01: a first wait for a SYN's answer that is no shorter than others changes nothing",
          "[tcp][rfc6298][W-TCP-01]") {
  tcp::Options options;
  options.syn_wait_first = options.rto_initial;
  Conversation c(options);
  c.opens();
  c.at(0).says(syn());
  for (const double at_s : {1, 3, 7, 15, 31, 63, 123}) c.is_silent_until(1000 * at_s).says(syn());
  c.is_silent_until(183'000).is_silent();
  CHECK(c->ended() == Ended::timed_out);
}

TEST_CASE("W-TCP-01: octets are tried for more than a hundred seconds, at last once a minute",
          "[tcp][rfc6298][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends("abc");
  c.at(0).says(data(1, "abc"));
  double at_ms = 0, wait_ms = 200;
  for (int i = 0; i < 12; ++i) {
    at_ms += wait_ms;
    c.is_silent_until(at_ms).says(data(1, "abc"));
    wait_ms = std::min(2 * wait_ms, 60'000.0);
  }
  CHECK(wait_ms == 60'000);
  CHECK(at_ms > 100'000);
  c.is_silent_until(at_ms + wait_ms).is_silent();
  CHECK(c->ended() == Ended::timed_out);
  CHECK(c->counters().retransmitted == 12);
}

TEST_CASE("W-TCP-01: timeouts are counted while nobody answers, of a SYN too (MUST-20, MUST-22)", "[tcp][W-TCP-01]") {
  SECTION("octets") {
    auto c = Conversation::established(no_tail_probe());
    c.appends("abc");
    c.at(0).says(data(1, "abc"));
    for (const std::uint32_t n : {0u, 1u, 2u, 3u}) {
      CHECK(c->unanswered_timeouts() == n);
      c.wakes();
      c.says(data(1, "abc"));
    }
    c.hears(ack(4));
    CHECK(c->unanswered_timeouts() == 0);
  }
  SECTION("a SYN") {
    Conversation c;
    c.opens();
    c.at(0).says(syn());
    for (const double at_s : {1, 3, 7}) c.is_silent_until(1000 * at_s).says(syn());
    CHECK(c->unanswered_timeouts() == 3);
    c.hears(syn_ack());
    CHECK(c->unanswered_timeouts() == 0);
  }
}

TEST_CASE("W-TCP-18: a FIN that nobody acknowledges is given up like octets", "[tcp][W-TCP-18]") {
  auto options = no_tail_probe();
  options.retransmissions_max = 2;
  auto c = Conversation::established(options);
  c->close();
  c.at(0).says(fin(1));
  c.is_silent_until(200).says(fin(1));
  c.is_silent_until(600).says(fin(1));
  c.is_silent_until(1400).is_silent();
  CHECK(c->ended() == Ended::timed_out);
  CHECK(c->state() == State::closed);
}

TEST_CASE("W-TCP-01: an acknowledgement of new octets begins the patience anew, a duplicate does not",
          "[tcp][rfc6298][W-TCP-01]") {
  auto options = no_tail_probe();
  options.retransmissions_max = 1;
  auto c = Conversation::established(options);
  c.appends("abc").appends("def");
  c.at(0).says(data(1, "abc").no_psh());
  c.says(data(4, "def"));
  c.is_silent_until(200).says(data(1, "abc").no_psh()).says(data(4, "def"));
  SECTION("new") {
    c.at(300).hears(ack(4));
    c.wakes();
    c.says(data(4, "def"));
    CHECK(c->ended() == Ended::no);
  }
  SECTION("a duplicate") {
    c.at(300).hears(ack(1));
    c.is_silent_until(600).is_silent();
    CHECK(c->ended() == Ended::timed_out);
  }
}

// ---- keepalive (MUST-24 to MUST-29) ------------------------------------------------------------------

TEST_CASE("W-TCP-01: keepalive is off unless it is asked for: a silent connection waits for ever", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  CHECK(c->next_deadline() == kNever);
  c.at(1e9).is_silent();
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: keepalive asks only who has said nothing for the whole interval", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(keepalive(10));
  SECTION("octets") {
    c.at(9'000).hears(data(1, "abc"));
    c->end_of_burst();
    c.says(ack(4));
    c.is_silent_until(19'000).says(ack(4).seq(0));
  }
  SECTION("an acknowledgement") {
    c.at(4'000).appends("abc");
    c.says(data(1, "abc"));
    c.at(4'001).hears(ack(4));
    c.is_silent_until(14'001).says(ack(1).seq(3));
  }
}

TEST_CASE("W-TCP-01: while octets are in flight it is the retransmission timer that asks", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(keepalive(10));
  c.at(9'900).appends("abc");
  c.says(data(1, "abc"));
  c.at(10'000).is_silent();
  c.is_silent_until(10'100).says(data(1, "abc"));
  c.is_silent_until(10'500).says(data(1, "abc"));
}

TEST_CASE("W-TCP-01: one answer to several keepalive probes is enough", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(keepalive(10));
  for (int i = 1; i <= 9; ++i) c.is_silent_until(10'000.0 * i).says(ack(1).seq(0));
  c.at(99'999).hears(ack(1));
  for (int i = 1; i <= 9; ++i) c.is_silent_until(99'999 + 10'000.0 * i).says(ack(1).seq(0));
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: after a long interval keepalive probes follow each other every 75 seconds", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(keepalive(7200));
  for (int i = 0; i < 9; ++i) c.is_silent_until(7'200'000 + 75'000.0 * i).says(ack(1).seq(0));
  c.is_silent_until(7'200'000 + 75'000.0 * 9).is_silent();
  CHECK(c->ended() == Ended::timed_out);
}

TEST_CASE("W-TCP-01: keepalive finds a peer that vanished between its FIN and ours, too", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(keepalive(10));
  SECTION("CLOSE-WAIT") {
    c.hears(fin(1));
    c.says(ack(2));
    c.is_silent_until(10'000).says(ack(2).seq(0));
    c.at(10'001).hears(rst(2));
  }
  SECTION("FIN-WAIT-2") {
    c->close();
    c.says(fin(1));
    c.hears(ack(2));
    c.is_silent_until(10'000).says(ack(1).seq(1));
    c.at(10'001).hears(rst(1));
  }
  CHECK(c->ended() == Ended::reset);
}

// ---- after a pause (RFC 5681 s4.1) -------------------------------------------------------------------

TEST_CASE("W-TCP-01: after a pause longer than the timeout the first window is what goes", "[tcp][rfc5681][W-TCP-01]") {
  auto options = no_tail_probe();
  options.congestion = tcp::Algorithm::newreno;
  auto c = Conversation::established(options);
  c.appends(10, 1460);
  for (int i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(1).hears(ack(14'601));
  c.appends(20, 1460);
  for (int i = 0; i < 20; ++i) REQUIRE(c.next());
  c.at(2).hears(ack(43'801));
  REQUIRE(c->congestion_window_bytes() == 4 * 14'600);
  SECTION("no longer than the timeout") {
    c.at(1 + 200).appends("x");
    REQUIRE(c.next());
    CHECK(c->congestion_window_bytes() == 4 * 14'600);
  }
  SECTION("longer") {
    c.at(1 + 201).appends("x");
    REQUIRE(c.next());
    CHECK(c->congestion_window_bytes() == 14'600);
  }
  SECTION("a pause in which the peer spoke is a pause all the same") {
    c.at(150).hears(data(1, "abc"));
    c->end_of_burst();
    c.says(ack(4).seq(43'801));
    c.at(1 + 201).appends("x");
    REQUIRE(c.next());
    CHECK(c->congestion_window_bytes() == 14'600);
  }
}
