// The state machine: verbs.md s2, row by row, and what is flushed on the way.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "qp/state.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

namespace {

using Events = std::vector<qp::Event>;

std::vector<qp::Status> statuses(const std::vector<qp::Completion>& completions) {
  std::vector<qp::Status> out;
  for (const auto& c : completions) out.push_back(c.status);
  return out;
}

void every_modify_is_refused(qp::QueuePair& qp, Instant now, std::vector<State> but = {}) {
  for (const State wanted : {State::idle, State::rts, State::closing, State::terminate, State::error}) {
    if (std::find(but.begin(), but.end(), wanted) != but.end()) continue;
    const State before = qp.state();
    const auto done = qp.modify_state(wanted, now);
    REQUIRE_FALSE(done);
    CHECK(done.error() == qp::ModifyError::invalid_state);
    CHECK(qp.state() == before);
  }
}

struct Alone {
  Side side{default_config(1), Moves::direct, 1, {}};
  Instant now{1};
};

}  // namespace

TEST_CASE("V-IDLE-01: work posted in Idle waits, and is done from the entry to RTS on",
          "[qp][V-IDLE-01][V-IDLE-07][V-RTS-02][V-IDLE-02]") {
  Options options;
  options.attach_b = true;
  Pair pair(options);
  // A fresh queue pair with work, on its own.
  Alone alone;
  alone.side.post(send());
  alone.side.post_receive({});
  CHECK_FALSE(alone.side.qp.transmit(alone.now, 1000));
  CHECK_FALSE(alone.side.qp.settle(alone.now));
  CHECK(alone.side.app.completions.empty());
  CHECK(alone.side.app.sends.size() == 1);
  CHECK_FALSE(alone.side.qp.attached());
}

TEST_CASE("V-IDLE-03: Idle goes to RTS with a stream, to Error, and nowhere else", "[qp][V-IDLE-03][V-CONN-01]") {
  Alone alone;
  every_modify_is_refused(alone.side.qp, alone.now, {State::idle, State::error});
}

TEST_CASE("V-IDLE-04: Idle to Idle is accepted", "[qp][V-IDLE-04]") {
  Alone alone;
  CHECK(alone.side.qp.modify_state(State::idle, alone.now));
  CHECK(alone.side.qp.state() == State::idle);
}

TEST_CASE("V-IDLE-05: Idle to Error flushes all that is queued", "[qp][V-IDLE-05][V-ERRST-03]") {
  Alone alone;
  auto unsignaled = send();
  unsignaled.signaled = false;
  alone.side.post(unsignaled);
  alone.side.post(send());
  alone.side.post_receive({});
  REQUIRE(alone.side.qp.modify_state(State::error, alone.now));
  CHECK(alone.side.app.of_sends().size() == 2);
  CHECK(alone.side.app.of_receives().size() == 1);
  for (const auto& c : alone.side.app.completions) CHECK(c.status == qp::Status::flushed);
  CHECK(alone.side.app.events.empty());
}

TEST_CASE("whose peer never came fails the first of its work, and flushes the rest", "[qp][oob]") {
  Alone alone;
  alone.side.qp.set_idle_name(qp::IdleName::rts);
  auto unsignaled = send();
  unsignaled.signaled = false;
  const auto first = alone.side.post(unsignaled);
  alone.side.post(send());
  alone.side.post_receive({});
  alone.side.qp.give_up(alone.now);
  CHECK(alone.side.qp.state() == State::error);
  const auto sends = alone.side.app.of_sends();
  REQUIRE(sends.size() == 2);
  CHECK(sends[0].slot == first);
  CHECK(sends[0].status == qp::Status::retry_exceeded);
  CHECK(sends[1].status == qp::Status::flushed);
  const auto receives = alone.side.app.of_receives();
  REQUIRE(receives.size() == 1);
  CHECK(receives[0].status == qp::Status::flushed);
  CHECK(alone.side.app.events.empty());
  CHECK(alone.side.qp.modify_state(State::idle, alone.now));
}

TEST_CASE("one that outlives its peer is in Idle with its receives when that merely goes", "[qp][oob]") {
  for (const bool outlives : {true, false}) {
    Options options;
    options.start = default_start();
    options.start.outlives_peer = outlives;
    Pair pair(options);
    pair.run();
    pair.b->post_receive({});
    REQUIRE(pair.a->qp.modify_state(State::terminate, pair.wire.now));  // 0x0000
    pair.run();
    CHECK(pair.b->app.events == Events{qp::Event::peer_gone});
    CHECK(pair.b->qp.state() == (outlives ? State::idle : State::error));
    CHECK(pair.b->app.completions.size() == (outlives ? 0u : 1u));
    CHECK_FALSE(pair.b->qp.attached());
  }
}

TEST_CASE("V-ERRST-02: Error goes to Idle and nowhere else", "[qp][V-ERRST-02][V-ERRST-08][V-ERRST-11]") {
  Alone alone;
  REQUIRE(alone.side.qp.modify_state(State::error, alone.now));
  every_modify_is_refused(alone.side.qp, alone.now, {State::idle});
  SECTION("what was posted late is complete by then") {
    auto unsignaled = send();
    unsignaled.signaled = false;
    alone.side.post(unsignaled);
    REQUIRE(alone.side.qp.modify_state(State::idle, alone.now));
    CHECK(statuses(alone.side.app.completions) == std::vector{qp::Status::flushed});
  }
  SECTION("V-ERRST-06: or flushed as it comes") {
    alone.side.post(send());
    alone.side.post_receive({});
    alone.side.qp.settle(alone.now);
    CHECK(alone.side.app.completions.size() == 2);
    CHECK(alone.side.qp.idle());
  }
}

TEST_CASE("V-RTS-03: RTS does not go to Idle; RTS to RTS is for attributes", "[qp][V-RTS-03][V-RTS-04]") {
  Pair pair;
  CHECK_FALSE(pair.a->qp.modify_state(State::idle, pair.wire.now));
  CHECK(pair.a->qp.modify_state(State::rts, pair.wire.now));
  CHECK(pair.a->qp.state() == State::rts);
}

TEST_CASE("V-TDN-01: a clean close ends in Idle on both sides, receives flushed, one event each",
          "[qp][V-TDN-01][V-CLS-03][V-CLS-07][V-RTS-05][V-RTS-07][V-AE-01][V-CLS-01][V-CLS-04][V-IDLE-02]") {
  Pair pair;
  pair.a->post_receive({});
  pair.b->post_receive({});
  pair.run();
  Side& closer = GENERATE(0, 1) == 0 ? *pair.a : *pair.b;
  REQUIRE(closer.qp.modify_state(State::closing, pair.wire.now));
  CHECK(closer.qp.state() == State::closing);
  CHECK(closer.app.events.empty());
  every_modify_is_refused(closer.qp, pair.wire.now);  // V-CLS-01
  pair.run();
  pair.pass(seconds(1));
  for (Side* side : {pair.a.get(), pair.b.get()}) {
    CHECK(side->qp.state() == State::idle);
    CHECK(side->app.events == Events{qp::Event::close_complete});
    CHECK(statuses(side->app.completions) == std::vector{qp::Status::flushed});
    CHECK_FALSE(side->qp.attached());
    CHECK(side->app.completions[0].of_send_queue == false);
  }
}

TEST_CASE("Idle is INIT until a Modify names it, and RESET whenever the queue pair comes back to it",
          "[qp][V-QP-08][V-CLS-07][V-ERRST-08]") {
  Alone alone;
  CHECK(alone.side.qp.idle_name() == qp::IdleName::init);
  for (const auto name : {qp::IdleName::rtr, qp::IdleName::reset, qp::IdleName::init}) {
    alone.side.qp.set_idle_name(name);
    CHECK(alone.side.qp.idle_name() == name);
  }
  CHECK(alone.side.qp.state() == State::idle);
  REQUIRE(alone.side.qp.modify_state(State::error, alone.now));
  REQUIRE(alone.side.qp.modify_state(State::idle, alone.now));
  CHECK(alone.side.qp.idle_name() == qp::IdleName::reset);

  Pair pair;
  for (int round = 0; round < 2; ++round) {
    pair.run();
    REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
    pair.run();
    for (Side* side : {pair.a.get(), pair.b.get()}) {
      REQUIRE(side->qp.state() == State::idle);
      CHECK(side->qp.idle_name() == qp::IdleName::reset);
    }
    pair.a->qp.set_idle_name(qp::IdleName::init);
    pair.b->qp.set_idle_name(qp::IdleName::rtr);
    pair.connect_again();
  }
}

TEST_CASE("V-CONN-02: a queue pair that was used starts from the same values", "[qp][V-CONN-02][V-ERRST-09]") {
  Pair pair;
  Region& to = pair.b->region(64);
  for (int round = 0; round < 3; ++round) {
    pair.a->app.completions.clear();
    pair.b->app.completions.clear();
    pair.b->post_receive({Side::sge(to, 0, 64)});
    auto request = send();
    const auto data = filled(20);
    request.has_data = true;
    request.data = data;
    pair.a->post(request);
    pair.run();
    REQUIRE(pair.b->app.completions.size() == 1);
    CHECK(pair.b->app.completions[0].status == qp::Status::success);
    if (round == 1) {
      REQUIRE(pair.a->qp.modify_state(State::error, pair.wire.now));
      pair.run();
      CHECK(pair.b->qp.state() == State::error);
      REQUIRE(pair.a->qp.modify_state(State::idle, pair.wire.now));
      REQUIRE(pair.b->qp.modify_state(State::idle, pair.wire.now));
    } else {
      REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
      pair.run();
    }
    REQUIRE(pair.a->qp.state() == State::idle);
    REQUIRE(pair.b->qp.state() == State::idle);
    pair.connect_again();
  }
}

TEST_CASE("V-IDLE-06: work posted after a close that came by itself waits", "[qp][V-IDLE-06]") {
  Pair pair;
  pair.run();
  REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
  pair.run();
  REQUIRE(pair.b->qp.state() == State::idle);
  pair.b->post(send());
  pair.run();
  CHECK(pair.b->app.completions.empty());
  REQUIRE(pair.b->qp.modify_state(State::error, pair.wire.now));
  CHECK(statuses(pair.b->app.completions) == std::vector{qp::Status::flushed});
}

TEST_CASE("V-QP-16: one destroyed in RTS leaves with a Terminate; what its peer posts late is flushed",
          "[qp][V-QP-16][V-TDN-04][V-ERRST-06]") {
  Pair pair;
  Region& to = pair.b->region(64);
  pair.b->post_receive({Side::sge(to, 0, 64)});
  pair.b->post_receive({Side::sge(to, 0, 64)});
  pair.run();
  pair.a->post(send());
  pair.run();
  CHECK(statuses(pair.b->app.completions) == std::vector{qp::Status::success});
  SECTION("told, the peer ends in Error") {
    REQUIRE(pair.a->qp.detach(pair.wire.now, BufferRef::take(pair.a->pool)) == qp::QueuePair::Leftover::graceful);
    pair.a->tcp.close();
    for (int i = 0; i < 20; ++i) {
      pair.turn(*pair.b);
      pair.wire.carry();
    }
    CHECK(pair.b->qp.state() == State::error);
    CHECK(pair.b->app.events == Events{qp::Event::peer_gone});
    CHECK(pair.b->tcp.ended() != tcp::Ended::reset);
    pair.b->post(send());
    pair.turn(*pair.b);
    CHECK(statuses(pair.b->app.completions) ==
          std::vector{qp::Status::success, qp::Status::flushed, qp::Status::flushed});
  }
  SECTION("one that has closed already leaves with its FIN alone") {
    REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
    REQUIRE(pair.a->qp.detach(pair.wire.now, BufferRef::take(pair.a->pool)) == qp::QueuePair::Leftover::graceful);
    pair.a->tcp.close();
    for (int i = 0; i < 20; ++i) {
      pair.turn(*pair.b);
      pair.wire.carry();
    }
    CHECK(pair.b->qp.state() == State::idle);
    CHECK(pair.b->app.events == Events{qp::Event::close_complete});
  }
}

TEST_CASE("V-AE-02: a peer that merely goes is no error; one that leaves something undone is",
          "[qp][V-AE-02][V-QP-16][V-RTS-10]") {
  const Octets goodbye = untagged(7, true, 2, 1, 0, Octets(4));
  Raw raw;
  Region& memory = raw.us->region(2000);
  raw.run();
  qp::Event told = qp::Event::terminate_received;
  SECTION("with nothing posted") { told = qp::Event::peer_gone; }
  SECTION("with receives posted, and work done") {
    raw.us->post_receive({Side::sge(memory, 0, 1000)});
    raw.us->post_receive({Side::sge(memory, 1000, 1000)});
    raw.us->post(send());
    raw.run();
    raw.say(untagged(3, true, 0, 1, 0, filled(600)));
    REQUIRE(raw.us->app.completions.size() == 2);
    told = qp::Event::peer_gone;
  }
  SECTION("while a Read of ours is outstanding") {
    raw.us->post(read({Side::sge(memory, 0, 100)}, {7}, 0));
    raw.run();
  }
  SECTION("while work is posted that nobody has looked at") {
    raw.say_octets(raw.fpdu(goodbye));
    raw.wire.carry();
    raw.us->app.sends.push_back(send());
    raw.us->qp.receive(raw.wire.now);
  }
  SECTION("while a Read of its own waits for our answer") {
    raw.say_octets(raw.fpdu(read_request(1, {Stag{9}, 0, 1000, memory.stag, memory.at(0)})));
    raw.say_octets(raw.fpdu(goodbye));
  }
  SECTION("in the middle of a Send") {
    raw.us->post_receive({Side::sge(memory, 0, 2000)});
    raw.say(untagged(3, false, 0, 1, 0, filled(600)));
  }
  SECTION("in the middle of a Write") {
    raw.say(tagged(0, true, memory.stag, memory.at(0), filled(600)));
    raw.say(tagged(0, false, memory.stag, memory.at(0), filled(600)));
  }
  SECTION("after a Write that came whole") {
    raw.say(tagged(0, false, memory.stag, memory.at(0), filled(600)));
    raw.say(tagged(0, true, memory.stag, memory.at(600), filled(600)));
    told = qp::Event::peer_gone;
  }
  SECTION("with a Send that waits for a receive") { raw.say(untagged(3, true, 0, 1, 0, filled(600))); }
  if (raw.us->app.events.empty()) raw.say(goodbye);
  CHECK(raw.us->app.events == Events{told});
  CHECK(raw.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::remote);
  CHECK(raw.us->qp.counters().errors == (told == qp::Event::peer_gone ? 0 : 1));
  CHECK(raw.terminates().empty());
  raw.tcp.close();
  raw.run();
  CHECK(raw.us->qp.state() == State::error);
}

TEST_CASE("V-AE-02: only 0x0000 without a header is what a peer says that merely goes", "[qp][V-AE-02]") {
  for (const auto& body : {Octets{std::byte{0x00}, std::byte{0x01}, std::byte{0}, std::byte{0}},
                           Octets{std::byte{0x02}, std::byte{0x00}, std::byte{0}, std::byte{0}},
                           Octets{std::byte{0x10}, std::byte{0x00}, std::byte{0}, std::byte{0}}, Octets(4) + Octets(2),
                           Octets(3), Octets{}}) {
    Raw raw;
    raw.run();
    Octets said = body;
    if (said.size() == 6) said[2] = std::byte{0x80};  // with a length
    raw.say(untagged(7, true, 2, 1, 0, said));
    CHECK(raw.us->app.events == Events{qp::Event::terminate_received});
  }
}

TEST_CASE("a change of state says who began it, and what was flushed by its end", "[qp][journal]") {
  using qp::Cause;
  Pair pair;
  pair.b->post_receive({});
  pair.b->post_receive({});
  pair.run();
  const auto last = [](const Side& side) { return side.app.changes.back(); };
  REQUIRE(pair.a->app.changes.size() == 1);
  CHECK(last(*pair.a).from == State::idle);
  CHECK(last(*pair.a).to == State::rts);
  CHECK(last(*pair.a).cause == Cause::connected);
  SECTION("a close") {
    REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
    CHECK(last(*pair.a).cause == Cause::consumer);
    CHECK(last(*pair.a).to == State::closing);
    pair.run();
    REQUIRE(pair.b->app.changes.size() == 3);
    CHECK(pair.b->app.changes[1].cause == Cause::peer_closed);
    CHECK(last(*pair.b).to == State::idle);
    CHECK(last(*pair.b).cause == Cause::finished);
    CHECK(last(*pair.b).flushed_receives == 2);
    CHECK(last(*pair.a).flushed_receives == 0);
  }
  SECTION("a Terminate") {
    REQUIRE(pair.a->qp.modify_state(State::terminate, pair.wire.now));
    CHECK(last(*pair.a).cause == Cause::consumer);
    CHECK(last(*pair.a).to == State::terminate);
    pair.run();
    REQUIRE(pair.b->app.changes.size() == 3);
    CHECK(pair.b->app.changes[1].cause == Cause::peer_terminated);
    CHECK(pair.b->app.changes[1].to == State::terminate);
    CHECK(last(*pair.b).to == State::error);
    CHECK(last(*pair.b).flushed_receives == 2);
  }
  SECTION("an error") {
    Region& memory = pair.a->region(8);
    pair.a->post(send({Side::sge(memory, 0, 9)}));
    pair.a->post(send());
    pair.run();
    CHECK(pair.a->app.changes[1].cause == Cause::fault);
    CHECK(last(*pair.a).flushed_sends == 1);
  }
  SECTION("a close with work that is not done") {
    pair.a->post(send());
    REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
    REQUIRE(pair.a->app.changes.size() == 3);
    CHECK(pair.a->app.changes[1].from == State::rts);
    CHECK(pair.a->app.changes[1].to == State::closing);
    CHECK(pair.a->app.changes[1].cause == Cause::consumer);
    CHECK(last(*pair.a).from == State::closing);
    CHECK(last(*pair.a).to == State::error);
    CHECK(last(*pair.a).cause == Cause::busy_close);
    CHECK(last(*pair.a).flushed_sends == 1);
  }
  SECTION("a reset") {
    REQUIRE(pair.a->qp.modify_state(State::error, pair.wire.now));
    CHECK(last(*pair.a).cause == Cause::consumer);
    CHECK(last(*pair.a).from == State::rts);
    CHECK(last(*pair.a).to == State::error);
    pair.run();
    CHECK(last(*pair.b).cause == Cause::peer_reset);
    CHECK(last(*pair.b).flushed_receives == 2);
  }
}

TEST_CASE("W-RDMAP-29: the last words are one Terminate 0x0000, behind what was completed and before the FIN",
          "[qp][V-QP-16][W-RDMAP-29][W-MPA-79]") {
  SECTION("with a message half sent, and markers") {
    qp::Start start = default_start();
    start.markers_out = GENERATE(false, true);
    Raw raw(start);
    Region& from = raw.us->region(60'000, 3);
    raw.us->post(send({Side::sge(from, 0, 60'000)}));
    raw.us->qp.transmit(raw.wire.now, 4000);
    raw.us->mover.flush();
    raw.us->qp.settle(raw.wire.now);
    raw.us->qp.transmit(raw.wire.now, 4000);  // and not settled: these segments never leave
    REQUIRE(raw.us->qp.detach(raw.wire.now, BufferRef::take(raw.us->pool)) == qp::QueuePair::Leftover::graceful);
    raw.us->tcp.close();
    for (int i = 0; i < 50; ++i) {
      raw.wire.carry();
      raw.listen();
    }
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0);
    CHECK_FALSE(raw.terminates()[0].has_length);
    CHECK(raw.heard.size() >= 2);
    CHECK(wire::rdmap_opcode(std::to_integer<std::uint8_t>(raw.heard.back()[1])) == wire::RdmapOpcode::terminate);
    CHECK(raw.tcp.peer_closed());
  }
  SECTION("on its way to a Terminate already, which waits for memory") {
    Raw raw(default_start(), {}, Moves::at_flush);
    raw.us->mover.stalled = true;
    Region& from = raw.us->region(5'000, 3);
    raw.us->post(send({Side::sge(from, 0, 5'000)}));
    raw.us->qp.transmit(raw.wire.now, 10'000);
    REQUIRE(raw.us->qp.modify_state(State::terminate, raw.wire.now));
    REQUIRE(raw.us->qp.detach(raw.wire.now, BufferRef::take(raw.us->pool)) == qp::QueuePair::Leftover::graceful);
    raw.us->tcp.close();
    for (int i = 0; i < 50; ++i) {
      raw.us->mover.stalled = i < 4;
      raw.wire.carry();
      raw.listen();
    }
    REQUIRE(raw.heard.size() == 1);
    REQUIRE(raw.terminates().size() == 1);
    CHECK(wire::parse_ddp(raw.heard[0])->msn == 1);
    CHECK(raw.tcp.peer_closed());
  }
  SECTION("a responder that has heard nothing says nothing") {
    Raw raw(responder_start());
    REQUIRE(raw.us->qp.detach(raw.wire.now, BufferRef::take(raw.us->pool)) == qp::QueuePair::Leftover::graceful);
    raw.us->tcp.close();
    for (int i = 0; i < 10; ++i) {
      raw.wire.carry();
      raw.listen();
    }
    CHECK(raw.heard.empty());
    CHECK(raw.tcp.peer_closed());
  }
}

TEST_CASE("V-RTS-06: Closing with work on the SQ is a Bad Close",
          "[qp][V-RTS-06][V-ST-06][V-CLS-05][V-EH-04][V-AE-21]") {
  Pair pair;
  pair.run();
  pair.a->post(send());
  REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
  CHECK(pair.a->qp.state() == State::error);
  CHECK(pair.a->app.events == Events{qp::Event::bad_close});
  CHECK(statuses(pair.a->app.completions) == std::vector{qp::Status::flushed});
  pair.run();
  CHECK(pair.b->app.events == Events{qp::Event::connection_reset});
  CHECK(pair.b->qp.state() == State::error);
}

TEST_CASE("V-CLS-05: work posted in Closing is flushed and the stream is reset", "[qp][V-CLS-05][V-CLS-06]") {
  Pair pair;
  pair.run();
  REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
  REQUIRE(pair.a->qp.state() == State::closing);
  pair.a->post(send());
  pair.a->qp.settle(pair.wire.now);
  CHECK(pair.a->qp.state() == State::error);
  CHECK(pair.a->app.events == Events{qp::Event::bad_close});
  CHECK(statuses(pair.a->app.completions) == std::vector{qp::Status::flushed});
  CHECK(pair.a->tcp.ended() == tcp::Ended::aborted);
  pair.run();
  CHECK(pair.b->tcp.ended() == tcp::Ended::reset);
}

TEST_CASE("V-CLS-05: so is work posted in Closing when the close is through and not yet seen", "[qp][V-CLS-05]") {
  Raw raw;
  raw.run();
  raw.tcp.close();
  while (raw.us->qp.receive(raw.wire.now), raw.us->qp.settle(raw.wire.now), raw.us->qp.state() != State::closing)
    raw.wire.carry();
  // Our FIN, and what the peer says to it.
  raw.wire.collect(raw.wire.a, raw.wire.b, true);
  raw.wire.deliver(raw.wire.b);
  raw.wire.collect(raw.wire.b, raw.wire.a, false);
  raw.wire.deliver(raw.wire.a);
  REQUIRE(raw.us->tcp.ended() == tcp::Ended::gracefully);
  raw.us->post(send());
  raw.us->qp.receive(raw.wire.now);
  CHECK(raw.us->qp.state() == State::error);
  CHECK(raw.us->app.events == Events{qp::Event::bad_close});
  CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});
}

TEST_CASE("V-CLS-03: a receive posted in Closing is flushed",
          "[qp][V-CLS-03][V-CLS-02][V-CLS-08][V-CLS-09][V-TDN-08][V-SEC-24]") {
  Raw raw;
  raw.us->post_receive({});
  raw.run();
  REQUIRE(raw.us->qp.modify_state(State::closing, raw.wire.now));
  raw.run();
  CHECK(raw.us->qp.state() == State::closing);  // the peer does not close
  raw.us->post_receive({});
  raw.run();
  CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed, qp::Status::flushed});
  SECTION("V-CLS-08: the time in Closing is bounded") {
    CHECK(raw.us->qp.next_deadline() <= raw.wire.now + seconds(5));
    raw.pass(seconds(6));
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.us->app.events == Events{qp::Event::connection_lost});
  }
  SECTION("V-TDN-08: data that arrives in Closing is a Bad Close") {
    raw.say(untagged(3, true, 0, 1, 0));
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.us->app.events == Events{qp::Event::bad_close});
    CHECK(raw.tcp.ended() == tcp::Ended::reset);
    // V-CLS-02
    CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed, qp::Status::flushed});
  }
  SECTION("V-CLS-02: nor is a Read answered, or a Write placed") {
    Region& memory = raw.us->region(64);
    const bool write = GENERATE(false, true);
    raw.say(write ? tagged(0, true, memory.stag, memory.base, filled(8))
                  : read_request(1, {{1}, 0, 8, memory.stag, memory.base}));
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.heard.empty());
    CHECK(memory.memory == Octets(64));
  }
  SECTION("V-CLS-09: so is a Terminate") {
    raw.say(untagged(7, true, 2, 1, 0, Octets(4)));
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.terminates().empty());
  }
  SECTION("V-CLS-06: a RST is a lost connection") {
    raw.tcp.abort(raw.wire.now);
    raw.run();
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.us->app.events == Events{qp::Event::connection_lost});
  }
  SECTION("V-CLS-07: the peer's FIN ends it in Idle") {
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->qp.state() == State::idle);
    CHECK(raw.us->app.events == Events{qp::Event::close_complete});
  }
}

TEST_CASE("V-RTS-08: Modify to Terminate sends 0x0000 without a header",
          "[qp][V-RTS-08][V-EH-42][V-TDN-02][V-TDN-06][V-TERM-01][V-TERM-03][V-TERM-04][V-TERM-05][V-TERM-07]"
          "[V-TERM-08][V-TERM-10][V-ERRST-07][V-TERM-06]") {
  Raw raw;
  raw.us->post_receive({});
  raw.run();
  REQUIRE(raw.us->qp.modify_state(State::terminate, raw.wire.now));
  CHECK(raw.us->qp.state() == State::terminate);
  CHECK(raw.us->qp.terminate_record().length == 4);
  every_modify_is_refused(raw.us->qp, raw.wire.now);  // V-TERM-04
  raw.run();
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0].code.word() == 0);
  CHECK_FALSE(raw.terminates()[0].has_length);
  CHECK(raw.us->app.events.empty());  // V-TERM-08
  SECTION("V-TERM-10: the peer's FIN ends it in Error") {
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->qp.state() == State::error);
    CHECK_FALSE(raw.us->qp.attached());
    CHECK(raw.us->app.events.empty());
    CHECK(raw.us->qp.terminate_record().length == 4);  // V-ERRST-07
    CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});
  }
  SECTION("V-TERM-08: a RST then is a Bad Close") {
    raw.tcp.abort(raw.wire.now);
    raw.run();
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.us->app.events == Events{qp::Event::bad_close});
  }
  SECTION("V-TERM-03: the time in Terminate is bounded") {
    raw.pass(seconds(6));
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.us->app.events == Events{qp::Event::bad_close});
    CHECK(raw.tcp.ended() == tcp::Ended::reset);
  }
  SECTION("V-TERM-07: what comes in is ignored") {
    raw.say(untagged(7, true, 2, 1, 0, Octets(4)));
    raw.say(untagged(3, true, 0, 1, 0));
    CHECK(raw.us->app.events.empty());
    CHECK(raw.us->qp.state() == State::terminate);
  }
  SECTION("V-TERM-05: work posted now is flushed") {
    raw.us->post(send());
    raw.us->post_receive({});
    raw.run();
    CHECK(raw.us->qp.state() == State::terminate);  // V-TERM-06
    CHECK(statuses(raw.us->app.completions) ==
          std::vector{qp::Status::flushed, qp::Status::flushed, qp::Status::flushed});
  }
}

TEST_CASE("V-RTS-11: Modify to Error resets the stream and sends no Terminate",
          "[qp][V-RTS-11][V-EH-43][V-TDN-03][V-ERRST-01]") {
  Raw raw;
  raw.us->post(read({}, {1}, 0));
  raw.us->post_receive({});
  raw.run();
  REQUIRE(raw.us->qp.modify_state(State::error, raw.wire.now));
  CHECK(raw.us->qp.state() == State::error);
  CHECK_FALSE(raw.us->qp.attached());
  CHECK(raw.us->app.completions.size() == 2);
  raw.run();
  CHECK(raw.terminates().empty());
  CHECK(raw.tcp.ended() == tcp::Ended::reset);
  CHECK(raw.us->app.events.empty());
}

TEST_CASE("V-EH-02: a RST is told as such, a loss as such", "[qp][V-EH-01][V-EH-02][V-RTS-12][V-AE-04][V-TDN-05]") {
  Raw raw;
  raw.us->post_receive({});
  raw.run();
  SECTION("V-EH-02") {
    raw.tcp.abort(raw.wire.now);
    raw.run();
    CHECK(raw.us->app.events == Events{qp::Event::connection_reset});
  }
  SECTION("V-EH-01") {
    raw.wire.cut_a = raw.wire.cut_b = true;
    raw.us->post(send());
    raw.pass(seconds(1000), seconds(1));
    CHECK(raw.us->app.events == Events{qp::Event::connection_lost});
  }
  CHECK(raw.us->qp.state() == State::error);
  CHECK(raw.us->app.of_receives().at(0).status == qp::Status::flushed);
}

TEST_CASE("V-RTS-07: a FIN with the SQ empty closes, with work outstanding it is a Bad LLP Close",
          "[qp][V-RTS-07][V-EH-03][V-TDN-07][V-AE-22]") {
  Raw raw;
  SECTION("quiet") {
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->qp.state() == State::idle);
    CHECK(raw.us->app.events == Events{qp::Event::close_complete});
    CHECK(raw.heard.empty());
  }
  SECTION("a Read is outstanding") {
    raw.us->post(read({}, {1}, 0));
    raw.run();
    raw.tcp.close();
    raw.run();
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0x0207);
    CHECK_FALSE(raw.terminates()[0].has_length);
    CHECK(raw.us->app.events == Events{qp::Event::bad_llp_close});
    CHECK(raw.us->qp.state() == State::error);  // both FINs are through
    CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});
  }
  SECTION("W-MPA-77: inside an FPDU it is a loss") {
    Octets fpdu = raw.fpdu(untagged(3, true, 0, 1, 0, filled(100)));
    fpdu.resize(50);
    raw.say_octets(fpdu);
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->qp.state() == State::error);
    CHECK(raw.us->app.events == Events{qp::Event::connection_lost});
  }
}

TEST_CASE("V-WR-14: an unsignaled failure is told, and all behind it", "[qp][V-WR-14][V-WR-15][V-ERRST-04][V-ERR-07]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Options options;
  options.moves = moves;
  Pair pair(options);
  Region& to = pair.b->region(64);
  Region& from = pair.a->region(64, 1);
  for (int i = 0; i < 49; ++i) pair.b->post_receive({Side::sge(to, 0, 64)});
  auto good = send({Side::sge(from, 0, 8)});
  good.signaled = false;
  auto bad = send({Side::sge(from, 60, 8)});
  bad.signaled = false;
  for (int i = 0; i < 49; ++i) pair.a->post(good);
  SECTION("after the first are with the peer") { pair.run(); }
  SECTION("in one go") {}
  const auto slot = pair.a->post(bad);
  for (int i = 0; i < 50; ++i) pair.a->post(good);
  pair.run();
  const auto& got = pair.a->app.completions;
  REQUIRE(got.size() == 51);
  CHECK(got[0].slot == slot);
  CHECK(got[0].status == qp::Status::base_bounds);
  for (std::uint32_t i = 1; i < 51; ++i) {
    CHECK(got[i].status == qp::Status::flushed);
    CHECK(got[i].slot == slot + i);
  }
  CHECK(pair.b->app.of_receives().size() == 49);
  CHECK(pair.a->app.events.empty());
  // 0x0000: what the peer itself has done wrong.
  CHECK(pair.b->app.events == Events{qp::Event::peer_gone});
}

TEST_CASE("V-EH-38: a bad work request is not sent; a Terminate goes in its place",
          "[qp][V-EH-38][V-STOP-03][W-RDMAP-64][V-SGL-04][V-SGL-05][V-RTS-09][V-SGL-06][V-CS-03][V-CS-13][V-CS-25]"
          "[V-MWR-02][V-TDN-05][V-ERR-02][V-STAG-12]") {
  Raw raw;
  Region& r = raw.us->region(64, 1);
  Region& unreadable = raw.us->region(64, 1, tpt::Rights::remote_write | tpt::Rights::local_write);
  Region& foreign = raw.us->region(64, 1, kAllRights, kOtherPd);
  const auto window = raw.us->table.allocate_window(kPd, 1);
  REQUIRE(window);
  qp::Status status{};
  qp::WorkRequest bad = send();
  SECTION("malformed") {
    bad.malformed = true;
    status = qp::Status::invalid_wqe;
  }
  SECTION("an unknown STag") {
    bad = send({{r.base, 8, {0x7FFFFF00}}});
    status = qp::Status::invalid_stag;
  }
  SECTION("a window") {
    bad = send({{r.base, 8, *window}});
    status = qp::Status::invalid_stag;
  }
  SECTION("another PD") {
    bad = send({Side::sge(foreign, 0, 8)});
    status = qp::Status::invalid_pd;
  }
  SECTION("bounds") {
    bad = write({Side::sge(r, 57, 8)}, {1}, 0);
    status = qp::Status::base_bounds;
  }
  SECTION("a wrap") {
    bad = send({{~0ull, 8, r.stag}});
    status = qp::Status::wrap;
  }
  SECTION("V-SGL-06: more than 2^32 - 1 octets") {
    bad = send({{r.base, 0xFFFFFFFF, r.stag}, {r.base, 1, r.stag}});
    status = qp::Status::invalid_length;
  }
  SECTION("V-SGL-07: a Read with two sinks") {
    bad = read({Side::sge(r, 0, 8), Side::sge(r, 8, 8)}, {1}, 0);
    status = qp::Status::invalid_wqe;
  }
  SECTION("a fast registration") {
    bad = work(qp::Opcode::fast_register);
    status = qp::Status::not_privileged;
  }
  SECTION("an invalidation of what cannot be") {
    bad = work(qp::Opcode::local_invalidate);
    bad.remote_stag = foreign.stag;
    status = qp::Status::invalid_pd;
  }
  SECTION("an extension that is off") {
    bad = work(qp::Opcode::fetch_add);
    status = qp::Status::invalid_wqe;
  }
  SECTION("V-STAG-12: a Write to STag 0") {
    bad = write({Side::sge(r, 0, 8)}, {0}, 0);
    status = qp::Status::invalid_stag;
  }
  SECTION("no right to read") {
    bad = send({Side::sge(unreadable, 0, 8)});
    status = qp::Status::access;
  }
  raw.us->post(bad);
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == status);
  REQUIRE(raw.heard.size() == 1);
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0] == wire::TerminateMessage{});  // 0/0/00, and M, D and R are 0
  CHECK(raw.us->app.events.empty());
  for (const auto state : {State::terminate, State::error}) {  // V-ERR-02
    CHECK(raw.us->qp.state() == state);
    CHECK(raw.us->qp.terminate_record().length == 4);
    CHECK(raw.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::local);
    raw.tcp.close();
    raw.run();
  }
}

TEST_CASE("W-RDMAP-64: a message that fails under way ends with a Terminate that names no segment",
          "[qp][W-RDMAP-64][V-STOP-03]") {
  Raw raw;
  Region& r = raw.us->region(100'000, 1);
  raw.us->post(send());
  raw.run();
  raw.us->post(write({Side::sge(r, 0, 100'000)}, {1}, 0));
  qp::Status status{};
  SECTION("its memory cannot be read") {
    raw.us->mover.unreachable.insert(r.stag.value);
    status = qp::Status::access;
  }
  SECTION("its STag is taken away") {
    raw.us->qp.transmit(raw.wire.now, 3000);
    REQUIRE(raw.us->table.deregister(r.stag));
    status = qp::Status::invalid_stag;
  }
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[1].status == status);
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0] == wire::TerminateMessage{});
  CHECK(raw.heard.back().size() == 18 + 4);
  CHECK(raw.us->app.events.empty());
}

TEST_CASE("V-STOP-05: a Modify stops a message between two segments, and what is begun goes out whole",
          "[qp][V-STOP-05][V-STOP-01][V-TERM-01]") {
  Raw raw;
  Region& r = raw.us->region(100'000, 1);
  raw.us->post(write({Side::sge(r, 0, 100'000)}, {1}, 0));
  raw.us->qp.transmit(raw.wire.now, 4000);
  raw.us->mover.flush();
  raw.us->qp.settle(raw.wire.now);
  REQUIRE(raw.us->qp.modify_state(State::terminate, raw.wire.now));
  raw.run();
  REQUIRE(raw.heard.size() >= 2);
  CHECK(raw.heard.size() <= 6);  // of some seventy
  REQUIRE(raw.terminates().size() == 1);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i + 1 < raw.heard.size(); ++i) {
    const auto header = wire::parse_tagged(raw.heard[i]);
    REQUIRE(header);
    CHECK(header->tagged_offset == next);
    CHECK_FALSE(header->last);
    next += raw.heard[i].size() - wire::TaggedHeader::kSize;
  }
  CHECK(raw.tcp.peer_closed());
  CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});
}

TEST_CASE("V-TERM-09: a RST after an error that a completion told is a Bad Close", "[qp][V-TERM-09]") {
  Raw raw;
  auto bad = send();
  bad.malformed = true;
  raw.us->post(bad);
  raw.run();
  CHECK(raw.us->app.events.empty());
  raw.tcp.abort(raw.wire.now);
  raw.run();
  CHECK(raw.us->app.events == Events{qp::Event::bad_close});
}

TEST_CASE("V-TERM-09: and after one that an event told it is not told again", "[qp][V-TERM-09][V-ERR-01]") {
  Raw raw;
  raw.say(untagged(3, true, 7, 1, 0));
  CHECK(raw.us->app.events == Events{qp::Event::queue_number});
  raw.tcp.abort(raw.wire.now);
  raw.run();
  CHECK(raw.us->app.events == Events{qp::Event::queue_number});
  CHECK(raw.us->qp.state() == State::error);
}

TEST_CASE("V-RD-09: with ORD 0 a Read fails", "[qp][V-RD-09][V-CS-12]") {
  qp::Start start = default_start();
  start.ord = 0;
  Raw raw(start);
  raw.us->post(read({}, {1}, 0));
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == qp::Status::zero_read_resources);
}

TEST_CASE("V-EH-39: a full completion queue ends the queue pair",
          "[qp][V-EH-39][V-AE-33][V-AE-34][W-RDMAP-23][W-RDMAP-64]") {
  Raw raw;
  Region& r = raw.us->region(64, 1);
  raw.us->app.room = 1;
  SECTION("V-AE-33: of the SQ") {
    raw.us->post(send());
    raw.us->post(send());
    raw.run();
    CHECK(raw.us->app.events == Events{qp::Event::cq_sq_error});
  }
  SECTION("V-AE-34: of the RQ") {
    for (int i = 0; i < 3; ++i) raw.us->post_receive({Side::sge(r, 0, 8)});
    raw.say(untagged(3, true, 0, 1, 0, filled(8)));
    raw.say(untagged(3, true, 0, 2, 0, filled(8)));
    CHECK(raw.us->app.events == Events{qp::Event::cq_rq_error});
  }
  REQUIRE(raw.terminates().size() == 1);
  // No segment of the peer's has to do with it.
  CHECK(raw.terminates()[0] == wire::TerminateMessage{.code = wire::terminate_code::kOperationCatastrophicStream});
  CHECK(raw.us->qp.state() == State::terminate);
}

TEST_CASE("V-SRQ-19: a shared queue's receives are not flushed with one queue pair", "[qp][V-SRQ-19][V-LIM-08]") {
  Raw raw(default_start(), [](qp::Config& c) { c.shared_receive = true; });
  Region& r = raw.us->region(64, 1);
  raw.us->post_receive({Side::sge(r, 0, 64)}, true);
  raw.us->post_receive({Side::sge(r, 0, 64)}, true);
  raw.say(untagged(3, false, 0, 1, 0, filled(8)));
  REQUIRE(raw.us->qp.modify_state(State::error, raw.wire.now));
  CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});  // the one it had taken
  CHECK(raw.us->app.receives.size() == 1);
  CHECK(raw.us->app.events == Events{qp::Event::last_wqe_reached});
}

TEST_CASE("V-MOD-02: ORD can be lowered in RTS", "[qp][V-MOD-01][V-MOD-02]") {
  Pair pair;
  CHECK(pair.a->qp.set_depths(16, 4));
  CHECK(pair.a->qp.config().ord == 4);
  CHECK_FALSE(pair.a->qp.set_depths(16, 5));
  CHECK_FALSE(pair.a->qp.set_depths(15, 4));
  CHECK(pair.a->qp.config().ord == 4);
  CHECK_FALSE(pair.a->qp.set_access(tpt::Rights::local_write));
}

TEST_CASE("V-MOD-01: a peer's rights change in Idle alone", "[qp][V-MOD-01][V-QP-12]") {
  Pair pair;
  const auto may_be = [&](tpt::Rights rights) { return pair.a->qp.set_access(rights).has_value(); };
  CHECK(may_be(kAllAccess));  // what it is
  CHECK_FALSE(may_be(tpt::Rights::remote_read));
  CHECK(pair.a->qp.config().access == kAllAccess);
  REQUIRE(pair.a->qp.modify_state(State::error, pair.wire.now));
  CHECK_FALSE(may_be(kAllAccess));
  REQUIRE(pair.a->qp.modify_state(State::idle, pair.wire.now));
  CHECK(may_be(tpt::Rights::remote_read));
  CHECK(pair.a->qp.config().access == tpt::Rights::remote_read);
}

TEST_CASE("V-ORD-08: what was completed is delivered after the queue pair is gone", "[qp][V-ORD-08][V-POLL-06]") {
  Pair pair;
  pair.run();
  Region& from = pair.a->region(100'000, 3);
  Region& to = pair.b->region(100'000);
  const auto sent = from.memory;
  pair.wire.cut_a = true;
  auto request = write({Side::sge(from, 0, 10'000)}, to.stag, to.base);
  pair.a->post(request);
  pair.run();
  REQUIRE(pair.a->app.completions.size() == 1);
  // The buffer is the application's again, and the octets on their way are not it.
  std::fill(from.memory.begin(), from.memory.end(), std::byte{0xEE});
  REQUIRE(pair.a->table.deregister(from.stag));
  CHECK(pair.a->qp.detach(pair.wire.now) == qp::QueuePair::Leftover::graceful);
  pair.a->tcp.close();
  pair.wire.cut_a = false;
  for (int i = 0; i < 100; ++i) {
    pair.wire.now = pair.wire.now + milliseconds(100);
    while (pair.wire.carry()) pair.turn(*pair.b);
  }
  CHECK(std::memcmp(to.memory.data(), sent.data(), 10'000) == 0);
}
