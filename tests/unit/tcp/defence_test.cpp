// Segments that somebody else may have made: RST, SYN, ACK and old ones (RFC 5961, RFC 7323 s5).
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::Ended;
using tcp::State;
namespace flag = wire::tcp_flags;

TEST_CASE("W-TCP-18: a RST at exactly the next octet ends the connection", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c.hears(data(1, "abc"));
  c.hears(rst(4));
  CHECK(c->state() == State::closed);
  CHECK(c->ended() == Ended::reset);
  CHECK(c.reads() == "abc");  // what had arrived stays readable
  c.is_silent();
}

TEST_CASE("W-TCP-01: a RST elsewhere in the window is challenged, outside it is ignored", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(rst(2));
  c.says(ack(1));
  c.hears(rst(65535));
  c.says(ack(1));
  c.hears(rst(65536));  // the first octet beyond the window (peer does not scale)
  c.is_silent();
  c.hears(rst(0));
  c.is_silent();
  CHECK(c->established());
  CHECK(c->counters().challenge_acks == 2);
}

TEST_CASE("W-TCP-01: a SYN on a live connection is challenged, wherever it is", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(syn().seq(1));
  c.says(ack(1));
  c.hears(syn().seq(0));
  c.says(ack(1));
  c.hears(syn().seq(1000));
  c.says(ack(1));
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: no more than ten challenges in five seconds", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  for (int i = 0; i < 10; ++i) {
    c.at(1).hears(rst(2));
    c.says(ack(1));
  }
  c.at(2).hears(rst(2));
  c.is_silent();
  c.at(5000).hears(rst(2));
  c.is_silent();
  c.at(5001).hears(rst(2));
  c.says(ack(1));
}

TEST_CASE("W-TCP-01: an ACK of what was never sent is challenged and its data dropped", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.appends("abc");
  c.says(data(1, "abc"));
  Line future = data(1, "evil").ack(5);
  c.hears(future);
  c.says(ack(1));
  CHECK(c->received() == 0);
  CHECK(c->acknowledged() == 0);
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 4});
  CHECK(c->acknowledged() == 3);
}

TEST_CASE("W-TCP-01: an ACK older than the largest window is challenged", "[tcp][W-TCP-01]") {
  auto c = Conversation::established({}, 1000);
  c.appends(pattern(1000));
  c.says(data(1, pattern(1000)));
  c.hears(ack(1001));
  c.hears(data(1, "a").ack(1));  // una - 1000: just believable
  CHECK(c->received() == 1);
  c.hears(data(2, "b").ack(0));
  CHECK(c->received() == 1);
  CHECK(c->counters().challenge_acks == 1);
}

TEST_CASE("W-TCP-01: a segment without ACK is dropped", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(Line{.flags = flag::kPsh, .sequence = 1, .text = "abc"});
  CHECK(c->received() == 0);
}

TEST_CASE("W-TCP-01: octets wholly outside the window are refused and answered", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(data(65536, "x"));
  c.says(ack(1));
  CHECK(c->counters().out_of_window == 1);
  c.hears(data(65535, "yz"));  // one octet inside
  c.says(ack(1).sack(65535, 65536));
}

TEST_CASE("W-TCP-01: a bare ACK counts up to the edge of our window, not beyond it", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.appends("abc");
  c.says(data(1, "abc"));
  c.hears(Line{.flags = flag::kAck, .sequence = 65537, .ack_ = 4});
  CHECK(c->acknowledged() == 0);
  CHECK(c->counters().out_of_window == 1);
  c.says(ack(1).seq(4));
  c.hears(Line{.flags = flag::kAck, .sequence = 65536, .ack_ = 4});
  CHECK(c->acknowledged() == 3);
  c.is_silent();
}

namespace {
Conversation with_timestamps() {
  tcp::Options options;
  options.timestamps = true;
  Conversation c(options);
  c.answers(syn().timestamps(1000, 0));
  c.says(syn_ack().timestamps(0, 1000));
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1}.timestamps(1001, 0));
  c.is_silent();
  return c;
}
}  // namespace

TEST_CASE("W-TCP-26: PAWS drops a segment with an old timestamp and acknowledges", "[tcp][W-TCP-26]") {
  auto c = with_timestamps();
  c.hears(data(1, "new").timestamps(2000, 0));
  c->end_of_burst();
  c.says(ack(4).timestamps(0, 2000));
  c.hears(data(4, "old").timestamps(1999, 0));
  CHECK(c->received() == 3);
  c.says(ack(4).timestamps(0, 2000));
  c.hears(data(4, "now").timestamps(2000, 0));
  CHECK(c->received() == 6);
}

TEST_CASE("W-TCP-26: an out-of-order segment that PAWS refuses is not kept", "[tcp][W-TCP-26]") {
  auto c = with_timestamps();
  c.hears(data(4, "old").timestamps(900, 0));
  c.says(ack(1));
  c.hears(data(1, "abc").timestamps(1002, 0));
  CHECK(c.reads() == "abc");
}

TEST_CASE("W-TCP-12: a segment whose acknowledgement is refused tells no timestamp", "[tcp][W-TCP-12]") {
  auto c = with_timestamps();
  c.hears(data(1, "abc").timestamps(1100, 0));
  c->end_of_burst();
  c.says(ack(4).timestamps(0, 1100));
  // Its place is guessed: it reaches over the left edge. What it acknowledges is far from anything that was sent.
  const std::uint32_t forged = GENERATE(100'001u, 0u - (1u << 30));
  c.hears(data(2, "forged").ack(forged).timestamps(0x70000000, 0));
  c->end_of_burst();
  c.says(ack(4).sack(2, 4).timestamps(0, 1100));
  c.hears(data(4, "def").ack(1).timestamps(1101, 0));
  CHECK(c->received() == 6);
  CHECK(c.reads() == "abcdef");
}

TEST_CASE("W-TCP-12: a segment that lost its timestamp is dropped in silence, a RST is not", "[tcp][W-TCP-12]") {
  auto c = with_timestamps();
  c.hears(data(1, "abc"));
  c.is_silent();
  CHECK(c->received() == 0);
  c.hears(rst(1));
  CHECK(c->ended() == Ended::reset);
}

TEST_CASE("W-TCP-12: the echo is of the segment that the ACK answers, not of one behind a gap", "[tcp][W-TCP-12]") {
  auto c = with_timestamps();
  c.hears(data(4, "def").timestamps(1500, 0));
  c.says(ack(1).sack(4, 7).timestamps(0, 1001));
  c.hears(data(1, "abc").timestamps(1400, 0));
  c.says(ack(7).timestamps(0, 1400));
}

TEST_CASE("W-TCP-01: keepalive probes a silent peer and gives up", "[tcp][W-TCP-01]") {
  tcp::Options options;
  options.keepalive = seconds(10);
  auto c = Conversation::established(options);
  c.is_silent_until(10'000).says(ack(1).seq(0));
  c.at(10'001).hears(ack(1));
  c.is_silent_until(20'001).says(ack(1).seq(0));
  for (int i = 1; i < 9; ++i) {
    c.is_silent_until(20'001 + 10'000.0 * i).says(ack(1).seq(0));
  }
  c.is_silent_until(110'001).is_silent();
  CHECK(c->ended() == Ended::timed_out);
}

TEST_CASE("W-TCP-01: the peer's keepalive probe is answered", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(Line{.flags = flag::kAck, .sequence = 0, .ack_ = 1});
  c.says(ack(1));
  c.hears(Line{.flags = flag::kAck, .sequence = 0, .ack_ = 1, .text = "?"});
  CHECK(c->received() == 0);
}

TEST_CASE("W-TCP-01: SYNs from behind the window, and ACKs of ACKs, are answered so often and no more",
          "[tcp][W-TCP-01]") {
  const bool syns = GENERATE(true, false);
  auto c = Conversation::established();
  unsigned answers = 0;
  for (int ms = 0; ms < 1'000; ms += 10) {
    c.at(10 + ms).hears(syns ? Line{.flags = flag::kSyn, .sequence = 100'000}
                             : Line{.flags = flag::kAck, .sequence = 100'000, .ack_ = 1});
    while (c.next()) ++answers;
  }
  CHECK(answers == 16);
  // The peer's own question whether we are there is no stranger's to use up.
  c.hears(Line{.flags = flag::kAck, .sequence = 0, .ack_ = 1});
  c.says(ack(1));
  c.at(1'100).hears(data(100'000, "x"));
  c.says(ack(1));
}

TEST_CASE("W-ACK-08: only what the peer alone can have said shows that it is there", "[tcp][W-ACK-08]") {
  auto c = Conversation::established();
  c.appends("abc");
  c.says(data(1, "abc"));
  const std::uint64_t before = c->heard();
  c.hears(Line{.flags = flag::kAck, .sequence = 100'000, .ack_ = 1});
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 100'000});
  c.hears(Line{.flags = flag::kSyn, .sequence = 100'000});
  c.hears(Line{.flags = flag::kRst, .sequence = 7});
  CHECK(c->heard() == before);
  const Line good{.flags = flag::kAck, .sequence = 1, .ack_ = 4};
  c.hears(good);
  CHECK(c->heard() == before + 1);
  c->send_keepalive();
  while (c.next()) {
  }
  c.hears(good);  // its answer
  CHECK(c->heard() == before + 2);
}
