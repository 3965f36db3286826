// Out of RTS: by a close, a Terminate, a Modify, an end of the stream, or the queue pair's own.

#include "unit/qp/states.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

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

TEST_CASE("V-TERM-07: what is placed and not delivered invalidates nothing", "[qp][V-TERM-07][V-SR-07]") {
  Raw raw(default_start(), {}, Moves::at_flush);
  raw.us->maps = false;
  Region& into = raw.us->region(64);
  Region& kept = raw.us->region(64);
  raw.us->post_receive({Side::sge(into, 0, 64)});
  raw.us->mover.stalled = true;
  raw.say(untagged(6, true, 0, 1, 0, Octets(16), kept.stag));
  REQUIRE(raw.us->app.completions.empty());
  const bool terminates = GENERATE(true, false);
  CAPTURE(terminates);
  if (terminates) REQUIRE(raw.us->qp.modify_state(State::terminate, raw.wire.now));
  raw.us->mover.stalled = false;
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == (terminates ? qp::Status::flushed : qp::Status::success));
  CHECK(raw.us->table.query(kept.stag)->valid == terminates);
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
