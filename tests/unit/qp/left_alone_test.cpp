// Of streams without rdma_cm: what becomes of a queue pair whose peer goes, and, where requests are acknowledged
// (docs/wire.md s8.1), of those that it owes.
#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "unit/qp/acknowledged.hpp"
#include "unit/qp/extended.hpp"
#include "unit/qp/states.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;
using qp::Status;

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

TEST_CASE("one that outlives its peer is in Idle when that is modified to Error, unless something was under way",
          "[qp][oob]") {
  const bool under_way = GENERATE(false, true);
  Options options;
  options.start = default_start();
  options.start.outlives_peer = true;
  Pair pair(options);
  pair.run();
  pair.b->post_receive({});
  if (under_way) {
    pair.a->post(write({Side::sge(pair.a->region(64, 1), 0, 0)}, {0},
                       0));  // whoever is called speaks when he has been spoken to
    pair.run();
    Region& there = pair.a->region(100'000, 1);
    pair.b->post(read({Side::sge(pair.b->region(100'000), 0, 100'000)}, there.stag, there.base));
    pair.turn(*pair.b);
  }
  REQUIRE(pair.a->qp.modify_state(State::error, pair.wire.now));
  pair.run();
  CHECK(pair.b->app.events == Events{under_way ? qp::Event::connection_reset : qp::Event::peer_gone});
  CHECK(pair.b->qp.state() == (under_way ? State::error : State::idle));
  CHECK(pair.b->app.of_receives().size() == (under_way ? 1u : 0u));
  CHECK_FALSE(pair.b->qp.attached());
}

TEST_CASE(
    "W-ACK-12: a peer that goes with requests of ours unacknowledged, however, fails the first of them in the end",
    "[qp][acknowledged][W-ACK-12]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  for (int i = 0; i < 3; ++i) peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  peer.acknowledge(1);
  SECTION("by a FIN") { peer.tcp.close(); }
  SECTION("by a RST") { peer.tcp.abort(peer.wire.now); }
  SECTION("by a Terminate") { peer.say(untagged(7, true, 2, 1, 0, Octets(4))); }
  SECTION("in the middle of a message of its own") {
    peer.say(untagged(3, false, 0, 1, 0, filled(8)));
    peer.tcp.close();
  }
  peer.run();
  peer.pass(seconds(6), milliseconds(500));
  CHECK(peer.us->app.events == Events{qp::Event::peer_gone});
  CHECK(of_sends(*peer.us) == Statuses{kDone});
  REQUIRE(peer.us->qp.state() == State::idle);
  peer.us->qp.give_up(peer.wire.now);
  CHECK(of_sends(*peer.us) == Statuses{kDone, Status::retry_exceeded, kFlushed});
  CHECK(peer.us->qp.state() == State::error);
}

TEST_CASE("W-ACK-12: memory of the peer's that is gone, with its application, is no wrong request",
          "[qp][acknowledged][W-ACK-12]") {
  Pair pair(acknowledged(GENERATE(Moves::direct, Moves::at_flush, Moves::late)));
  Region& source = pair.a->region(64, 1);
  Region& gone = pair.b->region(64, 0, kAtomicRights);
  pair.b->mover.unreachable.insert(gone.stag.value);
  pair.a->post(send());
  pair.b->post_receive({});
  SECTION("a Write") { pair.a->post(write({Side::sge(source, 0, 8)}, gone.stag, gone.base)); }
  SECTION("a Send") {
    pair.b->post_receive({Side::sge(gone, 0, 64)});
    pair.a->post(send({Side::sge(source, 0, 8)}));
  }
  SECTION("a Read") { pair.a->post(read({Side::sge(source, 0, 8)}, gone.stag, gone.base)); }
  SECTION("an atomic operation") {
    pair.a->post(fetch_add(Side::sge(source, 0, 8), gone.stag, (gone.base + 7) / 8 * 8, 1));
  }
  pair.a->post(send());
  pair.run();
  pair.pass(milliseconds(100));
  CHECK(of_sends(*pair.a) == Statuses{kDone});
  REQUIRE(pair.a->qp.state() == State::idle);
  pair.a->qp.give_up(pair.wire.now);
  CHECK(of_sends(*pair.a) == Statuses{kDone, Status::retry_exceeded, kFlushed});
}

TEST_CASE("W-ACK-12: where nothing was under way when the connection was lost, what is posted next fails",
          "[qp][acknowledged][oob][W-ACK-12]") {
  Peer peer;
  peer.us->post_receive({});
  const bool under_way = GENERATE(true, false);
  if (under_way) peer.us->post(send());
  peer.run();
  peer.us->qp.lose_stream(peer.wire.now);
  peer.run();
  CHECK(peer.tcp.ended() == tcp::Ended::reset);
  if (!under_way) {
    REQUIRE(peer.us->qp.state() == State::idle);
    CHECK(peer.us->app.of_receives().empty());
    peer.us->post(send());
    peer.us->qp.give_up(peer.wire.now);
  }
  CHECK(of_sends(*peer.us) == Statuses{Status::retry_exceeded});
  CHECK(peer.us->app.of_receives().size() == 1);
  CHECK(peer.us->qp.state() == State::error);
}

TEST_CASE("V-LIM-08: one with a shared receive queue whose peer never came says that it takes no more of it",
          "[qp][oob][V-LIM-08]") {
  const auto name = GENERATE(qp::IdleName::reset, qp::IdleName::init, qp::IdleName::rtr, qp::IdleName::rts);
  const bool gives_up = GENERATE(true, false);
  qp::Config config = default_config(1);
  config.shared_receive = true;
  Side alone(config, Moves::direct, 1, {});
  alone.qp.set_idle_name(name);
  alone.post(send());
  if (gives_up)
    alone.qp.give_up(Instant{1});
  else
    REQUIRE(alone.qp.modify_state(State::error, Instant{1}));
  CHECK(of_sends(alone) == Statuses{gives_up ? Status::retry_exceeded : kFlushed});
  const bool took = name == qp::IdleName::rtr || name == qp::IdleName::rts;  // as InfiniBand's
  CHECK(alone.app.events == (took ? Events{qp::Event::last_wqe_reached} : Events{}));
}

TEST_CASE("V-LIM-08: one with a shared receive queue whose peer has gone says once that it takes no more of it",
          "[qp][acknowledged][oob][V-LIM-08]") {
  Peer peer([](qp::Config& c) { c.shared_receive = true; });
  const bool asks = GENERATE(true, false);
  if (asks) peer.us->post(send());
  peer.run();
  const auto ending = GENERATE(0, 1, 2);
  if (ending == 0) peer.tcp.abort(peer.wire.now);
  if (ending == 1) peer.say(untagged(7, true, 2, 1, 0, Octets(4)));
  if (ending == 2) peer.tcp.close();
  peer.run();
  peer.pass(seconds(6), milliseconds(500));
  REQUIRE(peer.us->qp.state() == State::idle);
  peer.us->app.events.clear();
  SECTION("when its requests' time is over") {
    if (!asks) peer.us->post(send());
    peer.us->qp.give_up(peer.wire.now);
  }
  SECTION("when it is modified to ERR") { REQUIRE(peer.us->qp.modify_state(State::error, peer.wire.now)); }
  CHECK(peer.us->app.events == Events{qp::Event::last_wqe_reached});
  REQUIRE(peer.us->qp.modify_state(State::idle, peer.wire.now));
  REQUIRE(peer.us->qp.modify_state(State::error, peer.wire.now));
  CHECK(peer.us->app.events.size() == 1);  // it had no peer
}

TEST_CASE("V-LIM-08: on a RoCE face also one that a disconnect has brought to Idle says so, and on an iWARP face none",
          "[qp][acknowledged][V-LIM-08]") {
  const bool roce = GENERATE(true, false);
  const auto shared = [&](qp::Config& c) {
    if (roce) as_roce(c);
    c.shared_receive = true;
  };
  Options options;
  options.start = roce ? acknowledged_start() : default_start();
  options.a = options.b = shared;
  Pair pair(options);
  pair.run();
  REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
  pair.run();
  pair.pass(seconds(6), milliseconds(500));
  REQUIRE(pair.b->qp.state() == State::idle);
  pair.b->app.events.clear();
  REQUIRE(pair.b->qp.modify_state(State::error, pair.wire.now));
  CHECK(pair.b->app.events == (roce ? Events{qp::Event::last_wqe_reached} : Events{}));
}

TEST_CASE("W-ACK-12: who goes says before what it has performed", "[qp][acknowledged][W-ACK-12]") {
  Pair pair(acknowledged());
  Region& source = pair.a->region(64, 1);
  Region& there = pair.b->region(64);
  pair.b->post_receive({});
  pair.a->post(write({Side::sge(source, 0, 8)}, there.stag, there.base));
  pair.a->post(send());
  // B takes it in, and its application, which sees the completion, is quicker than its next turn.
  pair.turn(*pair.a);
  pair.wire.carry();
  pair.b->qp.receive(pair.wire.now);
  pair.b->qp.settle(pair.wire.now);
  REQUIRE(pair.b->app.of_receives().size() == 1);
  const auto how = GENERATE(0, 1);
  if (how == 0) {
    (void)pair.b->qp.detach(pair.wire.now, BufferRef::take(pair.b->pool));
  } else {
    REQUIRE(pair.b->qp.modify_state(State::closing, pair.wire.now));
  }
  for (int i = 0; i < 20; ++i) {
    pair.wire.carry();
    pair.turn(*pair.a);
  }
  CHECK(of_sends(*pair.a) == Statuses{kDone, kDone});
  CHECK(pair.a->app.events != std::vector<qp::Event>{qp::Event::bad_llp_close});
}

// ---- its requests wait for the end of its patience -----------------------------------------------------

TEST_CASE("W-ACK-12: of a peer that merely goes what it owes fails when that has lasted too long, and not before",
          "[qp][acknowledged][oob][W-ACK-12]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Pair pair(acknowledged(moves));
  pair.run();
  Side& us = *pair.a;
  Region& memory = us.region(100'000, 1);
  Region& there = pair.b->region(100'000, 1);
  us.post_receive({});
  pair.b->post_receive({});
  us.post(send());  // is acknowledged
  pair.run();
  REQUIRE(of_sends(us) == Statuses{kDone});
  const qp::Sge whole = Side::sge(memory, 0, 100'000);
  const auto kind = GENERATE(qp::Opcode::send, qp::Opcode::write, qp::Opcode::read);
  qp::WorkRequest request = send({whole});
  if (kind == qp::Opcode::write) request = write({whole}, there.stag, there.base);
  if (kind == qp::Opcode::read) request = read({whole}, there.stag, there.base);
  const auto first = us.post(request);
  us.post(send());
  pair.turn(us);
  const bool destroyed = GENERATE(false, true);
  if (destroyed)
    (void)pair.b->qp.detach(pair.wire.now, BufferRef::take(pair.b->pool));
  else
    REQUIRE(pair.b->qp.modify_state(State::error, pair.wire.now));
  for (int i = 0; i < 20; ++i) {
    pair.wire.carry();
    pair.turn(us);
  }
  CHECK(us.app.events == Events{qp::Event::peer_gone});
  CHECK(us.qp.state() == State::idle);
  CHECK_FALSE(us.qp.attached());
  CHECK(us.qp.has_begun_work());
  CHECK(of_sends(us) == Statuses{kDone});
  CHECK(us.app.of_receives().empty());
  us.post(send());  // later: it waits with them

  SECTION("and then") {
    us.qp.give_up(pair.wire.now);
    CHECK(of_sends(us) == Statuses{kDone, Status::retry_exceeded, kFlushed, kFlushed});
    CHECK(us.app.of_sends()[1].slot == first);
  }
  SECTION("or is flushed with the queue pair") {
    REQUIRE(us.qp.modify_state(State::error, pair.wire.now));
    CHECK(of_sends(us) == Statuses{kDone, kFlushed, kFlushed, kFlushed});
  }
  CHECK(us.qp.state() == State::error);
  CHECK_FALSE(us.qp.has_begun_work());
  REQUIRE(us.app.of_receives().size() == 1);
  CHECK(us.app.of_receives()[0].status == kFlushed);
  CHECK(us.qp.modify_state(State::idle, pair.wire.now));
}

TEST_CASE("W-ACK-12: what such a peer has said, and brought, before it went is told",
          "[qp][acknowledged][oob][W-ACK-12]") {
  Pair pair(acknowledged(GENERATE(Moves::direct, Moves::at_flush, Moves::late)));
  pair.run();
  Side& us = *pair.a;
  Region& sink = us.region(1000);
  us.post_receive({Side::sge(sink, 0, 1000)});
  us.post(send());
  us.post(send());  // has no receive there
  pair.turn(us);
  pair.wire.carry();
  pair.b->post_receive({});
  pair.b->post(send({Side::sge(pair.b->region(1000, 1), 0, 1000)}));
  pair.turn(*pair.b);  // takes the first of ours, says so, and sends one
  REQUIRE(pair.b->app.of_receives().size() == 1);
  (void)pair.b->qp.detach(pair.wire.now, BufferRef::take(pair.b->pool));
  for (int i = 0; i < 20; ++i) {
    pair.wire.carry();
    pair.turn(us);
  }
  CHECK(us.qp.state() == State::idle);
  CHECK(of_sends(us) == Statuses{kDone});
  REQUIRE(us.app.of_receives().size() == 1);
  CHECK(us.app.of_receives()[0].status == kDone);
  us.qp.give_up(pair.wire.now);
  CHECK(of_sends(us) == Statuses{kDone, Status::retry_exceeded});
}

TEST_CASE("W-ACK-12: half a message of a peer that goes keeps its receive, and what waits for one is forgotten",
          "[qp][acknowledged][oob][W-ACK-12]") {
  Options options = acknowledged();
  options.budget_bytes = 16'384;
  Pair pair(options);
  Side& us = *pair.a;
  pair.b->post_receive({});
  us.post(send());
  pair.run();
  Region& source = pair.b->region(100'000, 1);
  const bool waits = GENERATE(false, true);
  if (!waits) us.post_receive({Side::sge(us.region(100'000), 0, 100'000)});
  pair.b->post(send({Side::sge(source, 0, 100'000)}));
  for (int i = 0; i < 3; ++i) {
    pair.turn(*pair.b);
    pair.wire.carry();
    pair.turn(us);
  }
  (void)pair.b->qp.detach(pair.wire.now, BufferRef::take(pair.b->pool));
  pair.pass(seconds(1));
  CHECK((us.qp.counters().bytes_in > 16'384) == !waits);
  REQUIRE(us.qp.state() == State::idle);
  CHECK(us.app.of_receives().empty());
  CHECK_FALSE(us.qp.has_begun_work());
  us.post_receive({});
  REQUIRE(us.qp.modify_state(State::error, pair.wire.now));
  CHECK(us.app.of_receives().size() == (waits ? 1u : 2u));
  for (const auto& each : us.app.of_receives()) CHECK(each.status == kFlushed);
}

TEST_CASE("W-ACK-12: the same of one that ends with an error of its own, but what it has refused fails at once",
          "[qp][acknowledged][oob][W-ACK-12]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  for (int i = 0; i < 3; ++i) peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  peer.acknowledge(1);
  const bool refuses = GENERATE(false, true);
  if (refuses) peer.refuse(2, 0x0101);
  Octets error(4);
  error[0] = std::byte{0x00};
  error[1] = std::byte{0x01};  // not 0x0000
  peer.say(untagged(7, true, 2, 1, 0, error));
  peer.run();
  if (refuses) {
    CHECK(of_sends(*peer.us) == Statuses{kDone, kRefused, kFlushed});
    return;
  }
  CHECK(peer.us->qp.state() == State::idle);
  CHECK(of_sends(*peer.us) == Statuses{kDone});
  CHECK(peer.us->app.events == Events{qp::Event::terminate_received});
  CHECK(peer.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::remote);
  CHECK(peer.us->qp.counters().errors == 1);
  peer.us->qp.give_up(peer.wire.now);
  CHECK(of_sends(*peer.us) == Statuses{kDone, Status::retry_exceeded, kFlushed});
}

TEST_CASE("W-ACK-12: a request that failed here, and waits for its turn, takes no patience from those before it",
          "[qp][acknowledged][W-ACK-12]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  qp::Sge wrong = Side::sge(source, 0, 8);
  wrong.lkey = {0x12345600};
  peer.us->post(send({wrong}));
  peer.us->post(send());
  peer.run();
  REQUIRE(of_sends(*peer.us).empty());
  SECTION("by a FIN") { peer.tcp.close(); }
  SECTION("by a RST") { peer.tcp.abort(peer.wire.now); }
  SECTION("by a Terminate") { peer.say(untagged(7, true, 2, 1, 0, Octets(4))); }
  peer.run();
  CHECK(of_sends(*peer.us).empty());
  REQUIRE(peer.us->qp.state() == State::idle);
  peer.us->qp.give_up(peer.wire.now);
  CHECK(of_sends(*peer.us) == Statuses{Status::retry_exceeded, kFlushed, kFlushed});
}

TEST_CASE("W-ACK-12: where its own device ends the stream the first of its requests fails at once",
          "[qp][acknowledged][W-ACK-12][V-TDN-05]") {
  const bool roce = GENERATE(true, false);
  Pair pair(roce ? acknowledged() : Options{});
  pair.run();
  Side& us = *pair.a;
  Region& memory = us.region(64);
  Region& there = pair.b->region(64);
  const qp::Sge whole = Side::sge(memory, 0, 64);
  us.post(read({whole}, there.stag, there.base));
  us.post(read({whole}, there.stag, there.base));
  us.post_receive({});
  pair.turn(us);
  us.qp.lose_stream(pair.wire.now);
  CHECK(us.qp.state() == State::error);
  CHECK_FALSE(us.qp.attached());
  CHECK(us.app.events == Events{qp::Event::connection_lost});
  CHECK(of_sends(us) == (roce ? Statuses{Status::retry_exceeded, kFlushed} : Statuses{kFlushed, kFlushed}));
  CHECK(us.app.of_receives().size() == 1);
  us.qp.lose_stream(pair.wire.now);  // it has none
  CHECK(us.app.events.size() == 1);
}
