// The peer's window and ours: cutting, probing, silly windows (RFC 9293 s3.8.6), and what an EMSS
// that shrinks does.
#include <algorithm>

#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("W-TCP-27: a segment that does not fit waits while octets are in flight", "[tcp][W-TCP-27]") {
  auto c = Conversation::established(no_tail_probe(), 1500);
  c.appends(2, 1000);
  c.at(0).says(data(1, pattern(1000)).no_psh());
  c.is_silent();  // 500 octets of window, 1000 to go
  CHECK(c->room_bytes() == 0);
  c.at(1).hears(ack(1001).window(1000));
  c.says(data(1001, pattern(1000, 1000)));
}

TEST_CASE("W-TCP-27: even a large part of a segment waits while octets are in flight", "[tcp][W-TCP-27]") {
  auto c = Conversation::established(no_tail_probe(), 1500);
  c.appends(1, 300).appends(1, 1400);
  c.says(data(1, pattern(300)).no_psh());
  c.is_silent();
  c.at(1).hears(ack(301).window(1400));
  c.says(data(301, pattern(1400, 300)));
}

TEST_CASE("W-TCP-27: with nothing in flight it is cut, and its rest goes alone", "[tcp][W-TCP-27]") {
  auto c = Conversation::established(no_tail_probe(), 800);
  c.appends(2, 1000);
  c.at(0).says(data(1, pattern(800)).no_psh());
  c.is_silent();
  c.at(1).hears(ack(801).window(2000));
  c.says(data(801, pattern(200, 800)).no_psh());
  c.says(data(1001, pattern(1000, 1000)));  // alignment is regained
}

TEST_CASE("W-TCP-03: a cut segment is retransmitted with the boundaries it was sent with", "[tcp][W-TCP-03]") {
  auto c = Conversation::established(no_tail_probe(), 800);
  c.appends(1, 1000);
  c.at(0).says(data(1, pattern(800)).no_psh());
  c.at(200).says(data(1, pattern(800)).no_psh());
  c.at(201).hears(ack(801).window(2000));
  c.says(data(801, pattern(200, 800)));
  c.wakes();
  c.says(data(801, pattern(200, 800)));
}

TEST_CASE("W-TCP-03: the pieces of a cut segment that are lost together go again each by itself", "[tcp][W-TCP-03]") {
  auto c = Conversation::established(no_tail_probe(), 800);
  c.appends(1, 1000);
  c.at(0).says(data(1, pattern(800)).no_psh());
  c.at(1).hears(ack(1).window(2000));  // room, but nothing has arrived yet
  c.says(data(801, pattern(200, 800)));
  c.is_silent_until(200).says(data(1, pattern(800)).no_psh());
  c.says(data(801, pattern(200, 800)));
  c.is_silent();
}

// RFC 9293 s3.8.6.2.2: a receiver need not tell of less room than half of its buffer.
TEST_CASE("a segment is no longer than half of the peer's largest window, whatever its MSS", "[tcp]") {
  tcp::Options options = no_tail_probe();
  options.mss_bytes = 65'495;
  Conversation c(options);
  c.answers(syn().mss(65'495).window(40'000));
  c.at(0).says(syn_ack().mss(65'495));
  c.at(1).hears(ack(1).window(40'000));
  CHECK(c->emss() == 20'000);
  c.at(2).hears(ack(1).window(60'001));
  CHECK(c->emss() == 30'000);
  c.at(3).hears(ack(1).window(5000));  // it fills; its buffer is no smaller
  CHECK(c->emss() == 30'000);
}

TEST_CASE("windows below two usual segments do not make segments shorter", "[tcp]") {
  auto c = Conversation::established(no_tail_probe(), 2000);
  CHECK(c->emss() == 1460);
}

TEST_CASE("W-TCP-01: a shut window is probed by one octet, at first after a timeout", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe(), 0);
  CHECK(c->room_bytes() == c->emss());  // so that there is something to probe with
  c.at(0).appends("abcdef");
  c.is_silent_until(200).says(data(1, "a").no_psh());
  c.is_silent_until(400);
  // The peer refuses it and says so: never a reason to give up.
  for (int i = 0; i < 30; ++i) {
    c.hears(ack(1));
    c.wakes();
    c.says(data(1, "a").no_psh());
  }
  CHECK(c->established());
  SECTION("the window opens: the refused octet and the rest go at once") {
    c.hears(ack(1).window(100));
    c.says(data(1, "a").no_psh());
    c.says(data(2, "bcdef"));
    CHECK(c->congestion_window_bytes() == 14600);
  }
  SECTION("the octet was taken after all") {
    c.hears(ack(2).window(100));
    c.says(data(2, "bcdef"));
  }
}

TEST_CASE("W-TCP-01: probes of a shut window come ever more rarely, at last once a minute (SHLD-30)",
          "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe(), 0);
  c.at(0).appends("abc");
  c.is_silent();
  double at = c.wakes(), pause = at;
  CHECK(pause == 200);
  c.says(data(1, "a").no_psh());
  for (int i = 0; i < 12; ++i) {
    c.hears(ack(1));
    const double next = c.wakes();
    c.says(data(1, "a").no_psh());
    CHECK(next - at >= (i == 0 ? pause : std::min(2 * pause, 60'000.0)));
    pause = next - at;
    at = next;
  }
  CHECK(pause == 60'000);
}

TEST_CASE("W-TCP-01: a window of half its range or more is one like others (MUST-1)", "[tcp][W-TCP-01]") {
  const std::uint16_t window = GENERATE(std::uint16_t{0x7FFF}, std::uint16_t{0x8000}, std::uint16_t{0xFFFF});
  auto c = Conversation::established(no_tail_probe(), window);
  c.appends(10, 1460);  // the first congestion window
  for (int i = 0; i < 10; ++i) REQUIRE(c.next());
  c.at(1).hears(ack(14'601).window(window));
  CHECK(c->room_bytes() == 29'200);
}

TEST_CASE("W-TCP-01: a peer that does not answer probes is given up", "[tcp][W-TCP-01]") {
  auto options = no_tail_probe();
  options.retransmissions_max = 2;
  auto c = Conversation::established(options, 0);
  c.at(0).appends("abcdef");
  c.is_silent();
  for (int i = 0; i < 3; ++i) {
    c.wakes();
    c.says(data(1, "a").no_psh());
  }
  c.wakes();
  c.is_silent();
  CHECK(c->ended() == tcp::Ended::timed_out);
}

TEST_CASE("W-TCP-01: a window too small to be worth it waits for more or for the timer", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe(), 4000);
  c.appends(1, 1000);
  c.says(data(1, pattern(1000)));
  c.at(1).hears(ack(1001).window(300));
  c.appends(1, 1000);
  c.is_silent_until(201).says(data(1001, pattern(300, 1000)).no_psh());
}

TEST_CASE("W-TCP-01: FIN goes even into a shut window", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe(), 0);
  c->close();
  c.says(fin(1));
}

TEST_CASE("W-TCP-01: an older segment does not change the window", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe(), 5000);
  c.hears(data(4, "def").window(3000));
  c.says(ack(1).sack(4, 7));
  c.hears(data(1, "abc").window(100));
  CHECK(c->room_bytes() == 3000);
}

// A window is not to be taken back, but one must live with a peer that does (RFC 9293 s3.8.6).
TEST_CASE("W-TCP-01: a peer takes its window back from under what is in flight", "[tcp][W-TCP-01]") {
  auto options = no_tail_probe();
  options.retransmissions_max = 3;
  auto c = Conversation::established(options, 4000);
  const auto segment = [](std::uint32_t i) { return data(1 + 1000 * i, pattern(1000, 1000 * i)).no_psh(); };
  c.appends(6, 1000);
  for (std::uint32_t i = 0; i < 4; ++i) c.at(0).says(segment(i));
  SECTION("to one segment: of what went only what lies in it goes again, and nothing new (SHLD-15, SHLD-16)") {
    c.at(1).hears(ack(1001).window(1000));
    c.is_silent_until(201).says(segment(1));
    c.is_silent();
    c.at(202).hears(ack(2001).window(1000));
    c.says(segment(2));
    c.is_silent();
    c.at(203).hears(ack(3001).window(4000));
    c.says(segment(3));
    c.says(segment(4));
  }
  SECTION("to nothing, for long: whoever answers is not given up (SHLD-17)") {
    c.at(1).hears(ack(1001).window(0));
    for (int i = 0; i < 20; ++i) {
      c.wakes();
      c.says(segment(1));
      c.is_silent();
      c.hears(ack(1001).window(0));
    }
    c.hears(ack(4001).window(4000));
    c.says(segment(4));
    c.says(data(5001, pattern(1000, 5000)));
  }
  SECTION("to nothing, and falls silent") {
    c.at(1).hears(ack(1001).window(0));
    for (int i = 0; i < 3; ++i) {
      c.wakes();
      c.says(segment(1));
    }
    c.wakes();
    c.is_silent();
    CHECK(c->ended() == tcp::Ended::timed_out);
  }
}

TEST_CASE("W-TCP-01: our window closes as octets stay, and opens by enough", "[tcp][W-TCP-01]") {
  tcp::Options options = no_tail_probe();
  options.receive_window_bytes = 4000;
  auto c = Conversation::established(options);
  c.hears(data(1, pattern(1400)));
  c.hears(data(1401, pattern(1400, 1400)));
  c.says(ack(2801).window(1200));
  c.hears(data(2801, pattern(1200, 2800)));
  c->end_of_burst();
  c.says(ack(4001).window(0));
  // A little room is not told.
  CHECK(c.reads(1000) == pattern(1000));
  c.is_silent();
  c.hears(data(4001, "?"));  // a probe
  c.says(ack(4001).window(0));
  CHECK(c->received() == 4000);
  // As much as a segment is, and at once.
  CHECK(c.reads(500) == pattern(500, 1000));
  c.says(ack(4001).window(1500));
}

TEST_CASE("W-TCP-01: an ACK on a probe into our shut window counts", "[tcp][W-TCP-01]") {
  tcp::Options options = no_tail_probe();
  options.receive_window_bytes = 100;
  auto c = Conversation::established(options);
  c.appends("abc");
  c.says(data(1, "abc"));
  c.hears(data(1, pattern(100)).ack(1));
  c->end_of_burst();
  c.says(ack(101).window(0));
  c.hears(data(101, "?").ack(4));
  CHECK(c->acknowledged() == 3);
  CHECK(c->received() == 100);
}

// A peer takes nothing beyond its edge, not even an ACK (RFC 9293 s3.10.7.4): the other direction would stop.
TEST_CASE("W-TCP-01: beside octets beyond a shut window, acknowledgements stand at its edge", "[tcp][W-TCP-01]") {
  SECTION("a probe") {
    auto c = Conversation::established(no_tail_probe(), 0);
    c.at(0).appends("abcdef");
    c.is_silent_until(200).says(data(1, "a").no_psh());
    c.at(201).hears(ack(1));
    for (std::uint32_t i = 0; i < 50; ++i) {  // its octets come all the same
      c.hears(data(1 + 100 * i, pattern(100)));
      c->end_of_burst();
      c.says(ack(101 + 100 * i).seq(1));
    }
    c.hears(ack(1).window(100));
    c.says(data(1, "a").no_psh());
    c.says(data(2, "bcdef"));
    c.hears(data(5001, "x"));
    c->end_of_burst();
    c.says(ack(5002).seq(7));
  }
  SECTION("what was in flight when the window was taken back") {
    auto c = Conversation::established(no_tail_probe(), 4000);
    c.appends(3, 1000);
    for (std::uint32_t i = 0; i < 2; ++i) c.at(0).says(data(1 + 1000 * i, pattern(1000, 1000 * i)).no_psh());
    c.says(data(2001, pattern(1000, 2000)));
    c.at(1).hears(data(1, "abc").ack(1001).window(500));
    c->end_of_burst();
    c.says(ack(4).seq(1501));
  }
  SECTION("a FIN") {
    auto c = Conversation::established(no_tail_probe(), 0);
    c->close();
    c.says(fin(1));
    c.at(1).hears(data(1, "abc").ack(1));
    c->end_of_burst();
    c.says(ack(4).seq(1));
  }
}

TEST_CASE("MUST-66: a reset stands at the edge of a window that is shut, where the peer believes it",
          "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe(), 0);
  c.at(0).appends("abcdef");
  c.is_silent_until(200).says(data(1, "a").no_psh());
  c.at(201).hears(ack(1));
  c->abort(c.now());
  Line line = rst(1);
  line.flags |= wire::tcp_flags::kAck;
  c.says(line.ack(1));
}

TEST_CASE("W-TCP-01: an ACK from beyond our shut window counts, and nothing else of it", "[tcp][W-TCP-01]") {
  tcp::Options options = no_tail_probe();
  options.receive_window_bytes = 100;
  auto c = Conversation::established(options);
  c.appends("abc");
  c.says(data(1, "abc"));
  c.hears(data(1, pattern(100)).ack(1));
  c->end_of_burst();
  c.says(ack(101).window(0));
  const auto beyond = GENERATE(102u, 201u);  // after a probe; with all of the window in flight when it closed
  c.hears(ack(4).seq(beyond).window(2000));
  CHECK(c->acknowledged() == 3);
  c.is_silent();  // an answer would be answered
  c.appends(2, 1400);
  c.says(data(4, pattern(1400, 3)).no_psh());
  c.is_silent();
  c.hears(ack(4).seq(101).window(3000));  // its next word of the window, from where it stands
  c.says(data(1404, pattern(1400, 1403)));
  c.hears(ack(2804).seq(202).window(0));  // nothing of ours allows so much
  CHECK(c->acknowledged() == 3);
}

// A peer in the same trouble stands at its own edge, behind what we have had of it.
TEST_CASE("W-TCP-01: an ACK from less than a window before what we have had counts", "[tcp][W-TCP-01]") {
  tcp::Options options = no_tail_probe();
  options.receive_window_bytes = 100;
  auto c = Conversation::established_without_sack(options);
  for (std::uint32_t i = 0; i < 5; ++i) {
    c.appends("abc");
    c.says(data(1 + 3 * i, "abc"));
  }
  c.hears(data(1, pattern(100)).ack(1));
  c.reads(100);
  c->end_of_burst();
  c.says(ack(101).window(100));
  std::uint64_t acknowledged = 0;
  SECTION("of octets that it has had") {
    const auto behind = GENERATE(1u, 51u, 100u);
    c.hears(ack(4).seq(behind).window(2000));
    acknowledged = 3;
  }
  SECTION("not from before that") { c.hears(ack(4).seq(0).window(2000)); }
  SECTION("not of what we have not sent") { c.hears(ack(17).seq(51).window(2000)); }
  SECTION("not where it says nothing new, as that would count as a duplicate") {
    for (int i = 0; i < 6; ++i) c.hears(ack(1).seq(51).window(5000));
  }
  CHECK(c->acknowledged() == acknowledged);
  c.says(ack(101).window(100));  // as to all that is old: a keepalive probe stands there, too
  c.is_silent();
  CHECK(c->counters().fast_retransmits == 0);
}

TEST_CASE("W-TCP-01: who answers a probe from its own edge is not given up", "[tcp][W-TCP-01]") {
  auto options = no_tail_probe();
  options.retransmissions_max = 3;
  options.receive_window_bytes = 1000;
  auto c = Conversation::established(options, 0);
  c.hears(data(1, pattern(100)).window(0));
  c.reads(100);
  c->end_of_burst();
  c.says(ack(101).window(900));
  c.at(0).appends("abc");
  c.is_silent();
  for (int i = 0; i < 20; ++i) {
    c.wakes();
    c.says(data(1, "a").no_psh().ack(101));
    c.hears(ack(1).seq(51).window(0));
    c.says(ack(101).window(900).seq(1));
  }
  CHECK(c->ended() == tcp::Ended::no);
}

TEST_CASE("W-TCP-01: a FIN behind octets that our edge cuts off is not taken there", "[tcp][W-TCP-01]") {
  tcp::Options options = no_tail_probe();
  options.receive_window_bytes = 100;
  auto c = Conversation::established(options);
  Line line = data(1, pattern(150));
  line.flags |= wire::tcp_flags::kFin;
  c.hears(line);
  c.says(ack(101).window(0));
  CHECK_FALSE(c->peer_closed());
  CHECK(c->state() == tcp::State::established);
  CHECK(c.reads() == pattern(100));
  c.says(ack(101).window(100));
  c.hears(data(101, pattern(50, 100)));
  c.hears(fin(151));
  CHECK(c->peer_closed());
  CHECK(c.reads() == pattern(50, 100));
}

// Else all of the sequence space would be in the window from then on.
TEST_CASE("W-TCP-01: a FIN at the edge of our window leaves RCV.NXT within it", "[tcp][W-TCP-01]") {
  tcp::Options options = no_tail_probe();
  options.receive_window_bytes = 100;
  auto c = Conversation::established(options);
  SECTION("behind octets that fill it") {
    Line line = data(1, pattern(100));
    line.flags |= wire::tcp_flags::kFin;
    c.hears(line);
  }
  SECTION("by itself, when it is shut") {
    c.hears(data(1, pattern(100)));
    c->end_of_burst();
    c.says(ack(101).window(0));
    c.hears(fin(101));
  }
  SECTION("before the octets in front of it") {
    c.hears(data(51, pattern(50, 50)));
    c.says(ack(1).sack(51, 101));
    Line line = data(51, pattern(50, 50));
    line.flags |= wire::tcp_flags::kFin;
    c.hears(line);
    REQUIRE(c.next());
    c.hears(data(1, pattern(50)));
  }
  c.says(ack(102).window(0));
  CHECK(c->state() == tcp::State::close_wait);
  for (const std::uint32_t far : {104u, 250u, 1'000'000'000u, 3'000'000'000u}) {
    c.hears(ack(1).seq(far).window(0));
    if (const auto out = c.next()) CHECK(out->payload.empty());
  }
  c.appends("abc");
  c.says(data(1, "abc"));  // its window is still open
  c.hears(rst(1'000'000'101));
  CHECK(c->established());
  CHECK(c.reads() == pattern(100));
  c.is_silent();  // no word of room: nothing more comes
}

TEST_CASE("W-TCP-23: the advertised window is at least one maximal FPDU", "[tcp][W-TCP-23]") {
  Conversation c;
  c.answers(syn().scale(0));
  c.says(syn_ack().scale(5));
  c.hears(Line{.flags = wire::tcp_flags::kAck, .sequence = 1, .ack_ = 1});
  c.hears(data(1, "a"));
  c->end_of_burst();
  auto out = c.next();
  REQUIRE(out);
  CHECK((std::uint32_t{out->header.window} << 5) >= 64776);
  CHECK((std::uint32_t{out->header.window} << 5) >= (1u << 20) - 32 - 1);
}

TEST_CASE("W-TCP-08: the EMSS shrinks with the path and is told", "[tcp][W-TCP-08]") {
  auto c = Conversation::established();
  CHECK(c->emss() == 1460);
  c->set_mss(536);
  CHECK(c->emss() == 536);
  c->set_mss(9000);
  CHECK(c->emss() == 1460);  // the peer's own limit stays
}

TEST_CASE("W-TCP-07: segments in flight that became too long go again, cut", "[tcp][W-TCP-07]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(2, 1400);
  c.says(data(1, pattern(1400)).no_psh());
  c.says(data(1401, pattern(1400, 1400)));
  c->set_mss(600);
  c.says(data(1, pattern(600)).no_psh());
  c.says(data(601, pattern(600, 600)).no_psh());
  c.says(data(1201, pattern(200, 1200)).no_psh());
  c.says(data(1401, pattern(600, 1400)).no_psh());
  c.says(data(2001, pattern(600, 2000)).no_psh());
  c.says(data(2601, pattern(200, 2600)));
  c.is_silent();
  c.at(1).hears(ack(2801));
  CHECK(c->acknowledged() == 2800);
  CHECK(c.pool().available() == 4096);
}

TEST_CASE("what may be sent is due at once, and no more when it is", "[tcp]") {
  auto c = Conversation::established();
  CHECK(c->next_deadline() > c.now());
  c.appends("abc");
  CHECK(c->next_deadline() <= c.now());
  c.says(data(1, "abc"));
  CHECK(c->next_deadline() > c.now());
}

// A deadline that has passed would have the worker ask again and again until an ACK comes.
TEST_CASE("W-TCP-04: with no slot to cut in, a segment that became too long waits for an ACK", "[tcp][W-TCP-04]") {
  tcp::Options options = no_tail_probe();
  options.send_segments_max = 64;
  auto c = Conversation::established(options);
  c.at(0).appends(48, 1000);
  c->set_mss(100);
  std::uint32_t sent = 0;
  while (c.next()) ++sent;
  CHECK(sent == 16);  // nine pieces of the first, its last, and six of the second: 15 are kept back for cutting
  CHECK(c->next_deadline() > c.now());
  c.is_silent();
  c.at(1);
  for (std::uint32_t acknowledged = 100; acknowledged <= 48'000; acknowledged += 100) {
    c.hears(ack(1 + acknowledged));
    while (c.next()) ++sent;
    REQUIRE(c->next_deadline() > c.now());
  }
  CHECK(sent == 480);
  CHECK(c->acknowledged() == 48'000);
  CHECK(c.pool().available() == 4096);
}

TEST_CASE("W-TCP-04: an accepted segment longer than the new EMSS is sent, cut", "[tcp][W-TCP-04]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(1, 1400);
  c->set_mss(1000);
  c.says(data(1, pattern(1000)).no_psh());
  c.says(data(1001, pattern(400, 1000)));
}

TEST_CASE("W-TCP-13: with Nagle a small segment waits for what is in flight, else it goes", "[tcp][W-TCP-13]") {
  tcp::Options options = no_tail_probe();
  SECTION("on") {
    options.nagle = true;
    auto c = Conversation::established(options);
    c.appends("abc").appends("def");
    c.says(data(1, "abc").no_psh());
    c.is_silent();
    c.hears(ack(4));
    c.says(data(4, "def"));
  }
  SECTION("off") {
    auto c = Conversation::established(options);
    c.appends("abc").appends("def");
    c.says(data(1, "abc").no_psh());
    c.says(data(4, "def"));
  }
}

TEST_CASE("W-TCP-14: PSH is on the last segment of a burst only", "[tcp][W-TCP-14]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends("abc").appends("def").appends("ghi");
  c.says(data(1, "abc").no_psh());
  c.says(data(4, "def").no_psh());
  c.says(data(7, "ghi"));
  c.appends("jkl");
  c.says(data(10, "jkl"));
}

TEST_CASE("W-TCP-14: the last octets are pushed though a FIN follows, and when they go again", "[tcp][W-TCP-14]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends("abc").appends("def");
  c->close();
  c.says(data(1, "abc").no_psh());
  c.says(data(4, "def"));
  c.says(fin(7));
  c.hears(ack(4));
  c.is_silent_until(200).says(data(4, "def"));
}

TEST_CASE("W-TCP-02: what is appended as one segment leaves as one segment", "[tcp][W-TCP-02]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends("a").appends(pattern(1460)).appends("bc");
  c.says(data(1, "a").no_psh());
  c.says(data(2, pattern(1460)).no_psh());
  c.says(data(1462, "bc"));
}

TEST_CASE("W-TCP-02: the queue is full at its slots, and free again when they are", "[tcp][W-TCP-02]") {
  tcp::Options options = no_tail_probe();
  options.send_segments_max = 8;
  auto c = Conversation::established(options);
  c.appends(6, 10);
  CHECK(c->room_bytes() == 0);
  BufferRef more = BufferRef::take(c.pool());
  more->append(1);
  CHECK_FALSE(c->append(std::move(more)));
  for (int i = 0; i < 6; ++i) REQUIRE(c.next());
  c->close();  // a FIN finds its place even so
  c.says(fin(61));
}
