// Explicit congestion notification: what is agreed on, marked, echoed and answered (RFC 3168), and
// the exact echo and the estimate of DCTCP (RFC 8257).
#include "tcp/ecn.hpp"
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::EcnUse;
using tcp::Seq;

namespace {

tcp::Options with(EcnUse use, tcp::Algorithm algorithm = tcp::Algorithm::newreno) {
  tcp::Options options;
  options.ecn = use;
  options.congestion = algorithm;
  return options;
}

// The peer asked for it and we agreed. The round trip is 40 ms.
Conversation agreed(tcp::Algorithm algorithm = tcp::Algorithm::newreno) {
  Conversation c(with(EcnUse::passive, algorithm));
  c.at(-40).answers(syn().ece().cwr());
  Line answer = syn_ack().ece();
  if (algorithm == tcp::Algorithm::dctcp) answer.ect();
  c.says(answer);
  c.at(0).hears(ack(1));
  c.is_silent();
  REQUIRE(c->ecn_agreed());
  return c;
}

Line full(std::uint32_t i) { return data(1 + 1460 * i, pattern(1460, 1460 * i)).no_psh().ect(); }

// Ten full segments are out, and two wait.
Conversation ten_out(tcp::Algorithm algorithm = tcp::Algorithm::newreno) {
  auto c = agreed(algorithm);
  c.appends(40, 1460);
  for (std::uint32_t i = 0; i < 10; ++i) c.says(full(i));
  c.is_silent();
  return c;
}

}  // namespace

// ---- the handshake (RFC 3168 s6.1.1) ---------------------------------------------------------

TEST_CASE("W-TCP-01: ECN: who wants it asks for it on the SYN, and the SYN may not be marked",
          "[tcp][rfc3168][W-TCP-01]") {
  Conversation c(with(EcnUse::on));
  c.opens();
  c.at(0).says(syn().ece().cwr());
  SECTION("an answer with ECE alone agrees") {
    c.at(1).hears(syn_ack().ece());
    c.says(ack(1));
    CHECK(c->ecn_agreed());
    c.appends("abc");
    c.says(data(1, "abc").ect());
  }
  SECTION("one without does not") {
    c.at(1).hears(syn_ack());
    c.says(ack(1));
    CHECK_FALSE(c->ecn_agreed());
    c.appends("abc");
    c.says(data(1, "abc"));
  }
  SECTION("nor one that reflects our flags") {
    c.at(1).hears(syn_ack().ece().cwr());
    c.says(ack(1));
    CHECK_FALSE(c->ecn_agreed());
  }
  SECTION("nor one with CWR alone") {
    c.at(1).hears(syn_ack().cwr());
    c.says(ack(1));
    CHECK_FALSE(c->ecn_agreed());
  }
}

TEST_CASE("W-TCP-01: ECN: who is passive or off does not ask", "[tcp][rfc3168][W-TCP-01]") {
  for (const EcnUse use : {EcnUse::off, EcnUse::passive}) {
    Conversation c(with(use));
    c.opens();
    c.at(0).says(syn());
    c.at(1).hears(syn_ack().ece());
    c.says(ack(1));
    CHECK_FALSE(c->ecn_agreed());
  }
}

TEST_CASE("W-TCP-01: ECN: who is asked agrees, unless it is off", "[tcp][rfc3168][W-TCP-01]") {
  for (const EcnUse use : {EcnUse::on, EcnUse::passive, EcnUse::off}) {
    Conversation c(with(use));
    c.at(0).answers(syn().ece().cwr());
    Line answer = syn_ack();
    if (use != EcnUse::off) answer.ece();
    c.says(answer);
    c.at(1).hears(ack(1));
    CHECK(c->ecn_agreed() == (use != EcnUse::off));
    c.appends("abc");
    Line first = data(1, "abc");
    if (use != EcnUse::off) first.ect();
    c.says(first);
  }
}

TEST_CASE("W-TCP-01: ECN: a SYN with one of the flags does not ask", "[tcp][rfc3168][W-TCP-01]") {
  for (const Line& asked : {syn().ece(), syn().cwr()}) {
    Conversation c(with(EcnUse::on));
    c.at(0).answers(asked);
    c.says(syn_ack());
    c.at(1).hears(ack(1));
    CHECK_FALSE(c->ecn_agreed());
  }
}

TEST_CASE("W-TCP-01: ECN: both at once", "[tcp][rfc3168][W-TCP-01]") {
  Conversation c(with(EcnUse::on));
  c.opens();
  c.at(0).says(syn().ece().cwr());
  SECTION("and both ask: both agree") {
    c.at(1).hears(syn().ece().cwr());
    c.says(syn_ack().ece());
    c.at(2).hears(syn_ack().ece());
    CHECK(c->ecn_agreed());
  }
  SECTION("and the other does not ask") {
    c.at(1).hears(syn());
    c.says(syn_ack());
    c.at(2).hears(syn_ack());
    CHECK_FALSE(c->ecn_agreed());
  }
}

TEST_CASE("W-TCP-01: ECN: a SYN that nobody answers goes again without", "[tcp][rfc3168][W-TCP-01]") {
  Conversation c(with(EcnUse::on));
  c.opens();
  c.at(0).says(syn().ece().cwr());
  c.at(1000).says(syn());
  // The answer may still be to the first. We have said that we cannot, so our data is not marked;
  // but what the peer's tells is echoed.
  c.at(1001).hears(syn_ack().ece());
  c.says(ack(1));
  CHECK_FALSE(c->ecn_agreed());
  c.appends("abc");
  c.says(data(1, "abc"));
  c.at(1002).hears(data(1, "def").ack(4).ce());
  c->end_of_burst();
  c.says(ack(4).ece());
}

TEST_CASE("W-TCP-01: ECN: a SYN that is refused goes again without, once", "[tcp][rfc3168][W-TCP-01]") {
  Conversation c(with(EcnUse::on));
  c.opens();
  c.at(0).says(syn().ece().cwr());
  c.at(1).hears(rst(0).ack(1));
  c.says(syn());
  SECTION("the middlebox does not mind this one") {
    c.at(2).hears(syn_ack());
    c.says(ack(1));
    CHECK(c->established());
  }
  SECTION("it was the peer that refused") {
    c.at(2).hears(rst(0).ack(1));
    CHECK(c->ended() == tcp::Ended::refused);
  }
}

TEST_CASE("W-TCP-01: ECN: the peer's SYN comes again without, so it is off", "[tcp][rfc3168][W-TCP-01]") {
  Conversation c(with(EcnUse::on));
  c.at(0).answers(syn().ece().cwr());
  c.says(syn_ack().ece());
  c.at(1000).hears(syn());
  c.says(syn_ack());
  c.at(1001).hears(ack(1));
  CHECK_FALSE(c->ecn_agreed());
}

// ---- which of ours may be marked (s6.1.2, s6.1.4, s6.1.5, s6.1.6) ------------------------------

TEST_CASE("W-TCP-01: ECN: new data may be marked; ACKs, retransmissions and FIN may not", "[tcp][rfc3168][W-TCP-01]") {
  auto c = agreed();
  c.appends("abc").appends("def").appends("ghi").appends("jkl");
  c.says(data(1, "abc").no_psh().ect());
  c.says(data(4, "def").no_psh().ect());
  c.says(data(7, "ghi").no_psh().ect());
  c.says(data(10, "jkl").ect());
  c.at(40).hears(ack(1).sack(4, 13));
  c.says(data(1, "abc").no_psh());
  c.at(80).hears(data(1, "xyz").ack(13));
  c->end_of_burst();
  c.says(ack(4));
  c->close();
  c.says(fin(13));
}

TEST_CASE("W-TCP-01: ECN: a probe of the tail is new data or a retransmission", "[tcp][rfc3168][W-TCP-01]") {
  SECTION("the last again") {
    auto c = agreed();
    c.appends("abc").appends("def");
    c.says(data(1, "abc").no_psh().ect()).says(data(4, "def").ect());
    c.wakes();
    c.says(data(4, "def"));
  }
  SECTION("something new") {
    auto c = ten_out();
    c.wakes();
    c.says(full(10));
  }
}

TEST_CASE("W-TCP-01: ECN: a probe of a shut window carries neither mark nor CWR", "[tcp][rfc3168][W-TCP-01]") {
  auto c = agreed();
  c.appends("abc");
  c.says(data(1, "abc").ect());
  c.at(40).hears(ack(4).window(0).ece());
  c.appends("def");
  c.is_silent();
  c.wakes();
  c.says(data(4, "d").no_psh());
  c.at(400).hears(ack(5).window(1000));
  c.says(data(5, "ef").ect().cwr());
}

// ---- what we echo (s6.1.3) -------------------------------------------------------------------

TEST_CASE("W-TCP-01: ECN: a mark is echoed until the peer says that it has heard", "[tcp][rfc3168][W-TCP-01]") {
  auto c = agreed();
  c.at(1).hears(data(1, "abc").ce());
  c->end_of_burst();
  c.says(ack(4).ece());
  c.at(2).hears(data(4, "def"));
  c->end_of_burst();
  c.says(ack(7).ece());
  c.appends("x");
  c.says(data(1, "x").ect().ece());  // on data as well
  c.at(3).hears(data(7, "ghi").cwr());
  c->end_of_burst();
  c.says(ack(10));
  SECTION("a mark on the segment that says so is a new one") {
    c.at(4).hears(data(10, "jkl").cwr().ce());
    c->end_of_burst();
    c.says(ack(13).ece());
  }
}

TEST_CASE("W-TCP-01: ECN: a mark on one of two segments is echoed by their ACK", "[tcp][rfc3168][W-TCP-01]") {
  auto c = agreed();
  c.at(1).hears(data(1, "abc").ce());
  c.hears(data(4, "def"));
  c->end_of_burst();
  c.says(ack(7).ece());
}

TEST_CASE("W-TCP-01: ECN: marks outside of the window or without octets tell nothing", "[tcp][rfc3168][W-TCP-01]") {
  auto c = agreed();
  c.at(1).hears(data(1, "abc"));
  c->end_of_burst();
  c.says(ack(4));
  SECTION("old") {
    c.hears(data(1, "abc").ce());
    c.says(ack(4).sack(1, 4));
  }
  SECTION("beyond") {
    c.hears(data(4 + 10'000'000, "abc").ce());
    c.says(ack(4));
  }
  SECTION("with an ACK that cannot be") {
    c.hears(data(4, "abc").ack(9).ce());
    c.says(ack(4));
    c.hears(data(4, "def").ack(1));
    c->end_of_burst();
    c.says(ack(7));
  }
  SECTION("an ACK") {
    c.hears(ack(1).ce());
    c.hears(data(4, "def"));
    c->end_of_burst();
    c.says(ack(7));
  }
}

TEST_CASE("W-TCP-01: ECN: not agreed on, marks and echoes mean nothing", "[tcp][rfc3168][W-TCP-01]") {
  auto c = Conversation::established(with(EcnUse::passive));
  c.appends(12, 1460);
  for (std::uint32_t i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(1).hears(data(1, "abc").ce());
  c->end_of_burst();
  CHECK(c.next()->header.flags == wire::tcp_flags::kAck);
  c.at(2).hears(ack(1461).ece());
  CHECK(c->congestion_window_bytes() == 14600 + 1460);
}

// ---- what we do when we hear (s6.1.2) ----------------------------------------------------------

TEST_CASE("W-TCP-01: ECN: an echo halves the window, once for each window of data", "[tcp][rfc3168][W-TCP-01]") {
  auto c = ten_out();
  c.at(40).hears(ack(1461).ece());
  CHECK(c->congestion_window_bytes() == 7300);
  c.is_silent();
  for (std::uint32_t i = 2; i < 6; ++i) c.at(40 + i).hears(ack(1 + 1460 * i).ece());
  CHECK(c->congestion_window_bytes() == 7300);
  // The first new data says that it is done; the next does not.
  c.at(50).hears(ack(1 + 1460 * 6));
  c.says(full(10).cwr());
  c.is_silent();
  c.at(51).hears(ack(1 + 1460 * 7));
  c.says(full(11));
  // What left after the reduction was marked: another window, another reduction.
  c.at(90).hears(ack(1 + 1460 * 10));
  c.at(91).hears(ack(1 + 1460 * 11).ece());
  CHECK(c->congestion_window_bytes() < 7300);
  CHECK(c->counters().ecn_reductions == 2);
}

TEST_CASE("W-TCP-01: ECN: CUBIC gives up what it does for a loss", "[tcp][rfc3168][rfc9438][W-TCP-01]") {
  auto c = ten_out(tcp::Algorithm::cubic);
  c.at(40).hears(ack(1461).ece());
  CHECK(c->congestion_window_bytes() == 10220);
}

TEST_CASE("W-TCP-01: ECN: a window does not grow by an ACK that echoes", "[tcp][rfc3168][W-TCP-01]") {
  auto c = ten_out();
  c.at(40).hears(ack(1461).ece());
  const auto window = c->congestion_window_bytes();
  for (std::uint32_t i = 2; i < 11; ++i) c.at(40 + i).hears(ack(1 + 1460 * i).ece());
  CHECK(c->congestion_window_bytes() == window);
}

TEST_CASE("W-TCP-01: ECN: a loss in the window that was reduced reduces no more, nor a mark where a loss did",
          "[tcp][rfc3168][W-TCP-01]") {
  auto c = ten_out();
  SECTION("a mark, then a loss") {
    c.at(40).hears(ack(1461).ece());
    c.at(41).hears(ack(1461).sack(2921, 7301));
    c.says(data(1461, pattern(1460, 1460)).no_psh());
    c.at(81).hears(ack(14601));
  }
  SECTION("a loss, then a mark") {
    c.at(40).hears(ack(1).sack(1461, 5841));
    c.says(data(1, pattern(1460)).no_psh());
    c.at(41).hears(ack(1).sack(1461, 7301).ece());
    c.at(81).hears(ack(14601).ece());
  }
  CHECK(c->congestion_window_bytes() == 7300);
  CHECK(c->counters().retransmitted == 1);
}

TEST_CASE("W-TCP-01: ECN: a loss is told of by CWR, too, on the first new data", "[tcp][rfc3168][W-TCP-01]") {
  auto c = ten_out();
  c.at(40).hears(ack(1).sack(1461, 5841));
  c.says(data(1, pattern(1460)).no_psh());
  c.at(80).hears(ack(14601));
  c.says(full(10).cwr());
  c.says(full(11));
}

TEST_CASE("W-TCP-01: ECN: and a timeout", "[tcp][rfc3168][W-TCP-01]") {
  auto c = ten_out();
  c.at(80).says(full(10));  // the probe
  c.at(280).says(data(1, pattern(1460)).no_psh());
  c.at(320).hears(ack(16061));
  c.says(full(11).cwr());
}

TEST_CASE("W-TCP-01: ECN: a window of one segment that is marked waits for the timer", "[tcp][rfc3168][W-TCP-01]") {
  auto c = agreed();
  c.appends(20, 1460);
  std::uint32_t sent = 0, acknowledged = 0;
  double now = 0;
  // Marks, window after window, until one segment is left.
  while (c->congestion_window_bytes() > 1460) {
    while (c.next()) ++sent;
    c.at(now += 40).hears(ack(1 + 1460 * (acknowledged = sent)).ece());
    REQUIRE(now < 1000);
  }
  CHECK(c.next());
  ++sent;
  c.is_silent();
  c.at(now += 40).hears(ack(1 + 1460 * sent).ece());
  c.is_silent_until(now + 200);
  CHECK(c.next());
  CHECK(c->counters().timeouts == 0);
  c.is_silent();
}

// ---- DCTCP (RFC 8257) ------------------------------------------------------------------------

TEST_CASE("W-TCP-01: DCTCP: ACKs echo each change at once, and say up to where it was otherwise",
          "[tcp][rfc8257][W-TCP-01]") {
  auto c = agreed(tcp::Algorithm::dctcp);
  c.at(1).hears(data(1, "abc"));
  c.is_silent();  // may be delayed
  c.hears(data(4, "def").ce());
  c.says(ack(4));
  c.says(ack(7).ece());
  c.is_silent();
  c.hears(data(7, "ghi").ce());
  c.is_silent();
  c.hears(data(10, "jkl"));
  c.says(ack(10).ece());
  c.says(ack(13));
  c.is_silent();
  SECTION("CWR ends nothing: the mark that is there is what is said") {
    c.hears(data(13, "mno").ce());
    c.says(ack(16).ece());
    c.hears(data(16, "pqr").ce().cwr());
    c->end_of_burst();
    c.says(ack(19).ece());
  }
}

TEST_CASE("W-TCP-01: DCTCP: a burst of changes is told of piece by piece", "[tcp][rfc8257][W-TCP-01]") {
  auto c = agreed(tcp::Algorithm::dctcp);
  c.at(1);
  for (std::uint32_t i = 0; i < 5; ++i) {
    Line line = data(1 + 3 * i, "abc");
    if (i % 2 == 1) line.ce();
    c.hears(line);
  }
  c->end_of_burst();
  for (std::uint32_t i = 0; i < 5; ++i) {
    Line line = ack(4 + 3 * i);
    if (i % 2 == 1) line.ece();
    c.says(line);
  }
  c.is_silent();
}

TEST_CASE("W-TCP-01: DCTCP: data that goes the other way carries the pieces", "[tcp][rfc8257][W-TCP-01]") {
  auto c = agreed(tcp::Algorithm::dctcp);
  c.at(1).hears(data(1, "abc").ce());
  c.hears(data(4, "def"));
  c.appends("x").appends("y");
  c.says(data(1, "x").no_psh().ack(4).ect().ece());
  c.says(data(2, "y").ack(7).ect());
  c.is_silent();
}

TEST_CASE("W-TCP-01: DCTCP: more changes than can be remembered are told of in part", "[tcp][rfc8257][W-TCP-01]") {
  tcp::EcnEcho ecn;
  ecn.start(tcp::EcnEcho::Tells::every_change);
  std::uint32_t at = 1;
  for (int i = 0; i < 40; ++i) {
    CHECK(ecn.on_data(i % 2 == 0, 0, Seq{at}, Seq{0}));
    at += 100;
  }
  // In the end all is told, and the last is what came last.
  CHECK(ecn.ack_flags() == 0);
  bool echo = false;
  unsigned pieces = 0;
  while (ecn.has_boundary()) {
    CHECK((ecn.ack_flags() != 0) == echo);
    ecn.on_acknowledged(ecn.first_boundary());
    echo = !echo;
    ++pieces;
  }
  CHECK(pieces >= 14);
  CHECK(ecn.ack_flags() == 0);
}

TEST_CASE("W-TCP-01: DCTCP: a change and back with no octets between is none", "[tcp][rfc8257][W-TCP-01]") {
  tcp::EcnEcho ecn;
  ecn.start(tcp::EcnEcho::Tells::every_change);
  CHECK(ecn.on_data(true, 0, Seq{10}, Seq{1}));
  CHECK(ecn.on_data(false, 0, Seq{10}, Seq{1}));  // that one was out of order
  CHECK_FALSE(ecn.has_boundary());
  CHECK(ecn.ack_flags() == 0);
}

TEST_CASE("W-TCP-01: DCTCP: the window gives up half of the share that was marked", "[tcp][rfc8257][W-TCP-01]") {
  auto c = ten_out(tcp::Algorithm::dctcp);
  // The estimate begins at 1; the first window of observation ends with the first ACK.
  c.at(40).hears(ack(1461).ece());
  CHECK(c->congestion_window_bytes() == 7300);
  for (std::uint32_t i = 2; i < 11; ++i) {
    c.at(40 + i).hears(ack(1 + 1460 * i));
    while (c.next()) {
    }
  }
  // A window without a mark: alpha is 15/16, and the next mark takes 15/32.
  const auto before = c->congestion_window_bytes();
  c.at(90).hears(ack(1 + 1460 * 11).ece());
  CHECK(c->congestion_window_bytes() == Approx(before * (1 - 15.0 / 32)).epsilon(0.01));
}

TEST_CASE("W-TCP-01: DCTCP: a window of one segment that is marked sends one in two round trips",
          "[tcp][rfc8257][W-TCP-01]") {
  auto c = agreed(tcp::Algorithm::dctcp);
  c.appends(40, 1460);
  std::uint32_t sent = 0;
  double now = 0;
  while (c->congestion_window_bytes() > 1460) {
    while (c.next()) ++sent;
    c.at(now += 40).hears(ack(1 + 1460 * sent).ece());
    REQUIRE(now < 1000);
  }
  CHECK(c.next());
  c.is_silent();
  c.at(now += 40).hears(ack(1 + 1460 * ++sent).ece());
  for (unsigned i = 0; i < 3; ++i) {
    c.is_silent_until(now += 40);  // the smoothed round trip, which is always the same here
    CHECK(c.next());
    ++sent;
    c.is_silent();
    c.at(now += 40).hears(ack(1 + 1460 * sent).ece());
  }
  CHECK(c->counters().timeouts == 0);
  // And one in each where there is no mark any more.
  c.is_silent_until(now += 40);
  CHECK(c.next());
  c.at(now += 40).hears(ack(1 + 1460 * ++sent));
  CHECK(c.next());
}

TEST_CASE("W-TCP-01: DCTCP: SYN, SYN-ACK and RST may be marked", "[tcp][rfc8257][W-TCP-01]") {
  Conversation c(with(EcnUse::on, tcp::Algorithm::dctcp));
  c.opens();
  c.at(0).says(syn().ece().cwr().ect());
  c.at(1).hears(syn_ack().ece().ce());  // their marks are not looked at
  c.says(ack(1));
  c->abort(c.now());
  c.says(rst(1).ack(1).ect());
}
