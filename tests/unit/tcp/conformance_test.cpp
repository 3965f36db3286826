// RFC 9293's requirements that no other file is about: urgent data, odd options, half-close, states
// that hear what they did not expect, and the timestamps of RFC 7323.
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::Ended;
using tcp::State;
namespace flag = wire::tcp_flags;

namespace {

Conversation with_timestamps() {
  tcp::Options options = no_tail_probe();
  options.timestamps = true;
  Conversation c(options);
  c.answers(syn().timestamps(1000, 0));
  c.says(syn_ack().timestamps(0, 1000));
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1}.timestamps(1001, 0));
  c.is_silent();
  return c;
}

}  // namespace

// ---- urgent data (MUST-30, MUST-31, MUST-66) ----------------------------------------------------

TEST_CASE("W-TCP-01: urgent octets are octets like others, wherever the pointer points", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  const std::uint16_t pointer = GENERATE(std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{3}, std::uint16_t{65535});
  auto in = c.incoming(data(1, "abc"));
  in.header.flags |= flag::kUrg;
  in.header.urgent = pointer;
  c->on_segment(std::move(in), c.now());
  CHECK(c.reads() == "abc");
  c.hears(data(4, "def"));
  CHECK(c.reads() == "def");
}

TEST_CASE("W-TCP-01: a RST is believed, and an ACK with URG counts, while our window is shut", "[tcp][W-TCP-01]") {
  auto options = no_tail_probe();
  options.receive_window_bytes = 100;
  auto c = Conversation::established(options);
  c.appends("abc");
  c.says(data(1, "abc"));
  c.hears(data(1, pattern(100)).ack(1));
  c->end_of_burst();
  c.says(ack(101).window(0));
  auto in = c.incoming(data(101, "x").ack(4));
  in.header.flags |= flag::kUrg;
  in.header.urgent = 9;
  c->on_segment(std::move(in), c.now());
  CHECK(c->acknowledged() == 3);
  CHECK(c->received() == 100);
  c.hears(rst(101));
  CHECK(c->ended() == Ended::reset);
}

// ---- half-close, and states that hear what they did not expect -----------------------------------

TEST_CASE("W-TCP-18: the peer has closed its half; ours carries data until we close", "[tcp][W-TCP-18]") {
  auto c = Conversation::established(no_tail_probe());
  c.hears(fin(1));
  c.says(ack(2));
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<std::uint32_t>(1 + 1000 * i);
    c.appends(1, 1000);
    c.says(data(at, pattern(1000, 1000 * static_cast<std::size_t>(i))).ack(2));
    c.hears(Line{.flags = flag::kAck, .sequence = 2, .ack_ = at + 1000});
  }
  CHECK(c->state() == State::close_wait);
  CHECK(c->acknowledged() == 3000);
}

TEST_CASE("W-TCP-01: octets behind the peer's FIN are refused, in each state after it", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe());
  SECTION("CLOSE-WAIT") { c.hears(fin(1)); }
  SECTION("LAST-ACK") {
    c.hears(fin(1));
    c->close();
  }
  SECTION("CLOSING") {
    c->close();
    REQUIRE(c.next());
    c.hears(fin(1).ack(1));
  }
  SECTION("TIME-WAIT") {
    c->close();
    REQUIRE(c.next());
    c.hears(fin(1).ack(2));
  }
  const State state = c->state();
  while (c.next()) {
  }
  c.hears(data(2, "more"));
  CHECK(c->received() == 0);
  CHECK(c->readable_count() == 0);
  CHECK(c->state() == state);
}

TEST_CASE("W-TCP-18: a peer that has sent octets for behind its FIN has closed all the same", "[tcp][W-TCP-18]") {
  auto c = Conversation::established(no_tail_probe());
  SECTION("the FIN comes later") {
    c.hears(data(4, "def"));
    c.says(ack(1).sack(4, 7));
    c.hears(data(1, "abc").psh().ack(1));
    c.says(ack(7));
    c.hears(fin(7));
  }
  SECTION("the FIN comes first, and has its place before them") {
    c.hears(fin(4));
    c.says(ack(1));
    c.hears(data(4, "def"));
    c.says(ack(1).sack(4, 7));
    c.hears(data(1, "abc"));
  }
  CHECK(c->state() == State::close_wait);
  CHECK(c->peer_closed());
}

TEST_CASE("W-TCP-01: a blind RST, SYN or ACK moves no state on, from ESTABLISHED to LAST-ACK", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(no_tail_probe());
  SECTION("ESTABLISHED") {}
  SECTION("FIN-WAIT-1") { c->close(); }
  SECTION("FIN-WAIT-2") {
    c->close();
    REQUIRE(c.next());
    c.hears(ack(2));
  }
  SECTION("CLOSE-WAIT") { c.hears(fin(1)); }
  SECTION("CLOSING") {
    c->close();
    REQUIRE(c.next());
    c.hears(fin(1).ack(1));
  }
  SECTION("LAST-ACK") {
    c.hears(fin(1));
    c->close();
  }
  while (c.next()) {
  }
  const State state = c->state();
  const std::uint32_t next = static_cast<std::uint32_t>(c->peer_closed() ? 2 : 1);
  const auto challenges = c->counters().challenge_acks;
  c.hears(rst(next + 1));
  c.hears(syn().seq(next));
  c.hears(Line{.flags = flag::kAck, .sequence = next, .ack_ = 70'000});
  CHECK(c->counters().challenge_acks == challenges + 3);
  CHECK(c->state() == state);
  CHECK(c->ended() == Ended::no);
  c.hears(rst(next));
  CHECK(c->ended() == Ended::reset);
}

// ---- timestamps (RFC 7323) ----------------------------------------------------------------------

TEST_CASE("W-TCP-12: after 24 days without a word the peer's clock may have gone anywhere", "[tcp][W-TCP-12]") {
  constexpr double kDays = 24.0 * 3600 * 1000;
  auto c = with_timestamps();
  SECTION("not a moment earlier") {
    c.at(24 * kDays - 1).hears(data(1, "old").timestamps(900, 0));
    CHECK(c->received() == 0);
  }
  SECTION("then it counts anew from what comes") {
    c.at(24 * kDays).hears(data(1, "new").timestamps(900, 0));
    CHECK(c.reads() == "new");
    c->end_of_burst();
    c.says(ack(4).timestamps(0, 900));
    c.hears(data(4, "old").timestamps(899, 0));
    CHECK(c->received() == 3);
  }
}

TEST_CASE("W-TCP-12: timestamps are compared around their wrap", "[tcp][W-TCP-12]") {
  tcp::Options options = no_tail_probe();
  options.timestamps = true;
  Conversation c(options);
  c.answers(syn().timestamps(0xFFFFFFFF, 0));
  c.says(syn_ack().timestamps(0, 0xFFFFFFFF));
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1}.timestamps(0xFFFFFFFF, 0));
  c.hears(data(1, "a").timestamps(0, 0));
  CHECK(c->received() == 1);
  c->end_of_burst();
  c.says(ack(2).timestamps(0, 0));
  c.hears(data(2, "b").timestamps(0xFFFFFFFF, 0));
  CHECK(c->received() == 1);
}

TEST_CASE("W-TCP-12: what is echoed is of the first segment that the ACK answers (s4.3)", "[tcp][rfc7323][W-TCP-12]") {
  auto c = with_timestamps();
  c.hears(data(1, "abc").timestamps(1100, 0));
  c->end_of_burst();
  c.says(ack(4).timestamps(0, 1100));
  SECTION("of several in one ACK the first") {
    c.hears(data(4, "def").timestamps(1200, 0));
    c.hears(data(7, "ghi").timestamps(1300, 0));
    c->end_of_burst();
    c.says(ack(10).timestamps(0, 1200));
  }
  SECTION("of one that was cut otherwise, and begins before") {
    c.hears(data(1, "abcdef").timestamps(1200, 0));
    c.says(ack(7).sack(1, 4).timestamps(0, 1200));
  }
  SECTION("not of one that is wholly old") {
    c.hears(data(1, "abc").timestamps(1200, 0));
    c.says(ack(4).sack(1, 4).timestamps(0, 1100));
  }
  SECTION("nor of a keepalive probe, with an octet or without") {
    c.hears(Line{.flags = flag::kAck, .sequence = 3, .ack_ = 1}.timestamps(1200, 0));
    c.says(ack(4).timestamps(0, 1100));
    c.hears(Line{.flags = flag::kAck, .sequence = 3, .ack_ = 1, .text = "?"}.timestamps(1200, 0));
    c.says(ack(4).sack(3, 4).timestamps(0, 1100));
  }
  SECTION("nor of a SYN") {
    c.hears(syn().seq(4).timestamps(1200, 0));
    c.says(ack(4).timestamps(0, 1100));
    c.hears(syn().seq(4).timestamps(1000, 0));
    c.says(ack(4).timestamps(0, 1100));
  }
}

// ---- startup octets (RFC 6581 s4.3) --------------------------------------------------------------

TEST_CASE("W-TCP-15: what was appended apart is never joined, when it is first sent nor when it is sent again",
          "[tcp][W-TCP-15]") {
  auto c = Conversation::established(no_tail_probe());
  SECTION("both lost") {
    c.appends("startup").appends("fpdu");
    c.at(0).says(data(1, "startup").no_psh());
    c.at(0).says(data(8, "fpdu"));
    c.is_silent_until(200).says(data(1, "startup").no_psh());
    c.at(201).hears(ack(8));
    c.says(data(8, "fpdu"));
  }
  SECTION("the first lost before the second was there") {
    c.appends("startup");
    c.at(0).says(data(1, "startup"));
    c.at(100).appends("fpdu");
    c.says(data(8, "fpdu"));
    c.is_silent_until(200).says(data(1, "startup").no_psh());
  }
  SECTION("held back by a window, and cut") {
    c.hears(ack(1).window(3));
    c.appends("startup").appends("fpdu");
    c.is_silent_until(200).says(data(1, "sta").no_psh());
    c.at(201).hears(ack(4).window(100));
    c.says(data(4, "rtup").no_psh());
    c.says(data(8, "fpdu"));
  }
  SECTION("the EMSS smaller by then") {
    c.appends(1, 1000).appends(1, 1000);
    REQUIRE(c.next());
    REQUIRE(c.next());
    c->set_mss(600);
    c.says(data(1, pattern(600)).no_psh());
    c.says(data(601, pattern(400, 600)).no_psh());
    c.says(data(1001, pattern(600, 1000)).no_psh());
    c.says(data(1601, pattern(400, 1600)));
  }
}
