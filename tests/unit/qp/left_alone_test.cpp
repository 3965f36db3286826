// Of streams without rdma_cm: what becomes of a queue pair whose peer goes, and, where requests are acknowledged
// (docs/wire.md s8.1), of those that it owes.
#include <algorithm>
#include <array>
#include <utility>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "rdmap/acknowledgements.hpp"
#include "unit/qp/acknowledged.hpp"
#include "unit/qp/extended.hpp"
#include "unit/qp/states.hpp"
#include "wire/acknowledge.hpp"

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

TEST_CASE("and when that is modified to Error, unless something was under way", "[qp][oob]") {
  const bool under_way = GENERATE(false, true);
  Options options;
  options.start = default_start();
  options.start.outlives_peer = true;
  Pair pair(options);
  pair.run();
  pair.b->post_receive({});
  if (under_way) {
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

TEST_CASE("W-ACK-12: a peer that goes with requests of ours unacknowledged fails the first of them",
          "[qp][acknowledged][W-ACK-12]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  for (int i = 0; i < 3; ++i) peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  peer.acknowledge(1);
  SECTION("by a FIN") { peer.tcp.close(); }
  SECTION("by a RST") { peer.tcp.abort(peer.wire.now); }
  SECTION("by a Terminate") { peer.say(untagged(7, true, 2, 1, 0, Octets(4))); }
  peer.run();
  peer.pass(seconds(6), milliseconds(500));
  CHECK(of_sends(*peer.us) == Statuses{kDone, Status::retry_exceeded, kFlushed});
  CHECK(peer.us->qp.state() == State::error);
}

TEST_CASE("W-ACK-12: memory of the peer's that is gone, with its application, is no wrong request",
          "[qp][acknowledged][W-ACK-12]") {
  Pair pair(acknowledged(GENERATE(Moves::direct, Moves::at_flush, Moves::late)));
  Region& source = pair.a->region(64, 1);
  Region& gone = pair.b->region(64);
  pair.b->mover.unreachable.insert(gone.stag.value);
  pair.a->post(send());
  pair.b->post_receive({});
  SECTION("a Write") { pair.a->post(write({Side::sge(source, 0, 8)}, gone.stag, gone.base)); }
  SECTION("a Send") {
    pair.b->post_receive({Side::sge(gone, 0, 64)});
    pair.a->post(send({Side::sge(source, 0, 8)}));
  }
  pair.a->post(send());
  pair.run();
  pair.pass(milliseconds(100));
  CHECK(of_sends(*pair.a) == Statuses{kDone, Status::retry_exceeded, kFlushed});
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
