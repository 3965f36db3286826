// Idle, RTS and Error: verbs.md s2, row by row, and what a Modify may.

#include "unit/qp/states.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

namespace {

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

TEST_CASE("V-MOD-08: the receive limit is set in Idle and RTS, and in no other state", "[qp][V-MOD-08]") {
  qp::Config config = default_config(1);
  config.shared_receive = true;
  Side side{config, Moves::direct, 1, {}};
  Instant now{1};
  CHECK(side.qp.set_receive_limit(3));
  CHECK(side.qp.receive_limit().limit == 3);
  REQUIRE(side.qp.modify_state(State::error, now));
  const auto refused = side.qp.set_receive_limit(4);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == qp::ModifyError::invalid_state);
  CHECK(side.qp.receive_limit().limit == 3);
}
