// Acknowledged streams (docs/wire.md s8.1): who is how patient with a peer that does nothing, or has no receive.
#include <array>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "rdmap/acknowledgements.hpp"
#include "unit/qp/acknowledged.hpp"
#include "unit/qp/extended.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;
using qp::Status;

TEST_CASE("W-ACK-08: without an acknowledgement the first fails when the retries are over",
          "[qp][acknowledged][W-ACK-08]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.us->post(send());
  peer.run();
  peer.acknowledge(1);
  peer.pass(milliseconds(500));
  CHECK(peer.us->qp.state() == State::rts);
  peer.pass(milliseconds(100));
  CHECK(of_sends(*peer.us) == Statuses{kDone, Status::retry_exceeded, kFlushed});
  CHECK(peer.us->qp.state() == State::error);
  CHECK(peer.us->app.events.empty());
}

TEST_CASE("W-ACK-08: a Read that is not answered, too, and a message that goes on does not",
          "[qp][acknowledged][W-ACK-08]") {
  Peer peer;
  Region& sink = peer.us->region(64);
  peer.us->post(read({Side::sge(sink, 0, 24)}, {9}, 0));
  peer.run();
  peer.acknowledge(1);
  for (std::uint32_t i = 0; i < 2; ++i) {
    peer.pass(milliseconds(400));
    peer.say(tagged(2, false, sink.stag, sink.base + i * 8, filled(8)));
  }
  CHECK(peer.us->qp.state() == State::rts);
  peer.pass(milliseconds(600));
  CHECK(of_sends(*peer.us) == Statuses{Status::retry_exceeded});
}

TEST_CASE("W-ACK-08: of a timeout of 0 there is no end, and who asks for nothing waits for nothing",
          "[qp][acknowledged][W-ACK-08]") {
  const bool asks = GENERATE(true, false);
  Peer peer([&](qp::Config& c) {
    if (asks) c.patience.timeout = 0;
  });
  Region& source = peer.us->region(64, 1);
  if (asks) peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.pass(seconds(20), milliseconds(500));
  CHECK(peer.us->qp.state() == State::rts);
}

TEST_CASE("W-ACK-08: one direction that is shut is noticed while the other is busy", "[qp][acknowledged][W-ACK-08]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  Region& target = peer.us->region(64);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  for (int i = 0; i < 14; ++i) {
    peer.say(tagged(0, true, target.stag, target.base, filled(8)));
    peer.wire.now = peer.wire.now + milliseconds(50);
    peer.run();
    if (peer.us->qp.state() == State::error) break;
  }
  CHECK(of_sends(*peer.us) == Statuses{Status::retry_exceeded});
}

TEST_CASE("W-ACK-08: an acknowledgement may wait for the end of the peer's message under way",
          "[qp][acknowledged][W-ACK-08]") {
  const bool answers = GENERATE(true, false);
  Peer peer;
  Region& source = peer.us->region(64, 1);
  Region& target = peer.us->region(64);
  peer.say(tagged(0, false, target.stag, target.base, filled(8)));
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  for (int i = 0; i < 30; ++i) {
    peer.pass(milliseconds(100));
    peer.say(tagged(0, false, target.stag, target.base, filled(8)));
  }
  REQUIRE(peer.us->qp.state() == State::rts);
  peer.pass(milliseconds(400));
  peer.say(tagged(0, true, target.stag, target.base, filled(8)));
  peer.pass(milliseconds(450));
  CHECK(peer.us->qp.state() == State::rts);
  if (answers) peer.acknowledge(1);
  peer.pass(milliseconds(700));
  CHECK(of_sends(*peer.us) == Statuses{answers ? kDone : Status::retry_exceeded});
}

TEST_CASE("W-ACK-08: for the end of one message, and of no other", "[qp][acknowledged][W-ACK-08]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  Region& target = peer.us->region(64);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  int segments = 0;
  SECTION("long ones, each of which could have been followed by one") {
    for (; segments < 60 && peer.us->qp.state() == State::rts; ++segments) {
      peer.say(tagged(0, segments % 8 == 7, target.stag, target.base, filled(8)));
      peer.pass(milliseconds(100));
    }
    CHECK(segments > 8);
    CHECK(segments < 20);
  }
  SECTION("one that does not go on") {
    peer.say(tagged(0, false, target.stag, target.base, filled(8)));
    peer.pass(milliseconds(1200));
  }
  CHECK(of_sends(*peer.us) == Statuses{Status::retry_exceeded});
}

TEST_CASE("W-ACK-08, W-ACK-10: while we let the peer's stream stand still no time runs",
          "[qp][acknowledged][W-ACK-08][W-ACK-10]") {
  const bool says_waits = GENERATE(true, false);
  const bool answers = GENERATE(true, false);
  Peer peer([](qp::Config& c) { c.held_bytes_max = 256; });
  peer.us->post(send());
  peer.run();
  if (says_waits) peer.acknowledge(0, true, 1);  // 10 us, seven times
  // The third finds no room, and what is behind it is not looked at.
  for (std::uint32_t i = 1; i <= 3; ++i) peer.say(untagged(3, true, 0, i, 0, filled(100)));
  peer.pass(seconds(20), milliseconds(500));
  REQUIRE(peer.us->qp.state() == State::rts);
  if (answers) peer.acknowledge(1);
  Region& sink = peer.us->region(100);
  for (int i = 0; i < 3; ++i) peer.us->post_receive({Side::sge(sink, 0, 100)});
  peer.run();
  CHECK(peer.us->qp.state() == State::rts);
  peer.pass(milliseconds(1200));
  const Status late = says_waits ? Status::rnr_retry_exceeded : Status::retry_exceeded;
  CHECK(of_sends(*peer.us) == Statuses{answers ? kDone : late});
}

TEST_CASE("W-ACK-10: that a receive is there now may be said behind the peer's message under way",
          "[qp][acknowledged][W-ACK-10]") {
  const bool answers = GENERATE(true, false);
  Peer peer;
  Region& target = peer.us->region(64);
  peer.us->post(send());
  peer.run();
  peer.acknowledge(0, true, 12);  // 0.64 ms, seven times
  for (int i = 0; i < 30; ++i) {
    peer.say(tagged(0, i == 29, target.stag, target.base, filled(8)));
    if (i != 29) peer.pass(milliseconds(100), milliseconds(2));
  }
  REQUIRE(peer.us->qp.state() == State::rts);
  if (answers) peer.acknowledge(1);
  peer.pass(milliseconds(600));
  CHECK(of_sends(*peer.us) == Statuses{answers ? kDone : Status::rnr_retry_exceeded});
}

TEST_CASE("W-ACK-10: a Send that waits too long for a receive fails, and its peer's timer counts",
          "[qp][acknowledged][W-ACK-10]") {
  Pair pair(acknowledged(
      Moves::direct, [](qp::Config& c) { c.patience.rnr_retry = 3; },
      [](qp::Config& c) { c.patience.min_rnr_timer = 28; }));  // 163.84 ms
  Region& source = pair.a->region(64, 3);
  Region& there = pair.b->region(64);
  pair.a->post(write({Side::sge(source, 0, 8)}, there.stag, there.base));
  pair.a->post(send());
  pair.a->post(send());
  pair.run();
  pair.pass(milliseconds(650));
  CHECK(of_sends(*pair.a) == Statuses{kDone});
  pair.pass(milliseconds(50));
  CHECK(of_sends(*pair.a) == Statuses{kDone, Status::rnr_retry_exceeded, kFlushed});
  CHECK(pair.a->qp.state() == State::error);
}

TEST_CASE("W-ACK-10: each Send has the whole time, and 7 retries are without end", "[qp][acknowledged][W-ACK-10]") {
  const bool endless = GENERATE(true, false);
  Pair pair(acknowledged(
      Moves::direct, [&](qp::Config& c) { c.patience.rnr_retry = endless ? 7 : 1; },
      [](qp::Config& c) {
        c.patience.min_rnr_timer = 28;
        c.rnr_timeout = milliseconds(100);  // not looked at
      }));
  for (int i = 0; i < 3; ++i) pair.a->post(send());
  pair.run();
  for (int i = 0; i < 3; ++i) {
    pair.pass(endless ? seconds(40) : milliseconds(250));
    pair.b->post_receive({});
    pair.run();
  }
  CHECK(of_sends(*pair.a) == Statuses{kDone, kDone, kDone});
}

TEST_CASE("W-ACK-10: nothing new is begun while a receive is missing", "[qp][acknowledged][W-ACK-10]") {
  Peer peer;
  peer.us->post(send());
  peer.run();
  peer.acknowledge(0, true, 30);
  peer.us->post(send());
  peer.run();
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).size() == 1);
  peer.acknowledge(1);
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).size() == 2);
}

TEST_CASE("W-ACK-10: the timer's codes are InfiniBand's times", "[qp][acknowledged][W-ACK-10]") {
  // Microseconds.
  constexpr std::array<int, 32> kTimes{655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
                                       480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
                                       20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  for (std::uint8_t code = 0; code < 32; ++code) CHECK(rdmap::rnr_time(code) == microseconds(kTimes[code]));
}

TEST_CASE("W-ACK-08: whom we wait for without a time of ours is to be there: his TCP is asked",
          "[qp][acknowledged][W-ACK-08][W-ACK-10]") {
  const bool waits = GENERATE(true, false);  // for a receive; else his own stream waits for one of ours
  Peer peer([](qp::Config& c) {
    c.patience.rnr_retry = 7;
    c.held_bytes_max = 256;
  });
  peer.us->post(send());
  peer.us->post(send());
  peer.run();
  if (waits)
    peer.acknowledge(0, true, 12);
  else
    for (std::uint32_t i = 1; i <= 3; ++i) peer.say(untagged(3, true, 0, i, 0, filled(100)));
  const auto before = peer.us->tcp.counters().segments_out;
  peer.pass(seconds(20), milliseconds(50));
  REQUIRE(peer.us->qp.state() == State::rts);
  CHECK(of_sends(*peer.us).empty());
  const auto asked = peer.us->tcp.counters().segments_out - before;
  CHECK(asked > 30);  // each 537 ms
  CHECK(asked < 50);
  SECTION("is he") {}
  SECTION("some of that may be lost") {
    int lost = 0;
    constexpr int kOneOf = 7;
    static_assert(kOneOf < rdmap::Acknowledgements::kProbes);
    peer.wire.loses = [&](bool is_a, const tcp::SegmentOut&) { return is_a && lost++ % kOneOf != 0; };
    peer.pass(seconds(20), milliseconds(50));
    CHECK(peer.us->qp.state() == State::rts);
  }
  SECTION("or we did not run for a while") {
    peer.pass(seconds(60), seconds(30));
    CHECK(peer.us->qp.state() == State::rts);
  }
  SECTION("or he is not") {
    (GENERATE(true, false) ? peer.wire.cut_a : peer.wire.cut_b) = true;
    peer.pass(milliseconds(400), milliseconds(50));
    CHECK(peer.us->qp.state() == State::rts);
    peer.pass(milliseconds(1000), milliseconds(50));
    CHECK(of_sends(*peer.us) == Statuses{Status::retry_exceeded, kFlushed});
    CHECK(peer.us->qp.state() == State::error);
  }
}

TEST_CASE("W-ACK-08: who waits for ever, or for nothing, asks nobody", "[qp][acknowledged][W-ACK-08]") {
  const bool awaits = GENERATE(true, false);
  Peer peer([&](qp::Config& c) {
    if (awaits) c.patience.timeout = 0;
    c.patience.rnr_retry = 7;
    c.held_bytes_max = 256;
  });
  if (awaits) peer.us->post(send());
  peer.run();
  if (awaits)
    peer.acknowledge(0, true, 12);
  else  // the peer's stream stands, and we want nothing of it
    for (std::uint32_t i = 1; i <= 3; ++i) peer.say(untagged(3, true, 0, i, 0, filled(100)));
  peer.run();
  const auto before = peer.us->tcp.counters().segments_out;
  peer.wire.cut_b = true;
  peer.pass(seconds(20), milliseconds(50));
  CHECK(peer.us->tcp.counters().segments_out == before);
  CHECK(peer.us->qp.state() == State::rts);
}
