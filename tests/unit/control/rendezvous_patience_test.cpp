// Queue pairs that wait for their peers: for how long anybody waits, and what ends it.
#include "control/rendezvous.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "kit/catch.hpp"
#include "unit/control/rendezvous_world.hpp"

using namespace rnic;
using namespace rnic::test::rendezvous;

// ---- the end of waiting ----------------------------------------------------------------------------

TEST_CASE("W-ACK-08: who is called waits until a caller that pauses has called again",
          "[control][oob][roce][W-ACK-08]") {
  // The caller has called a few times before this one is there, and pauses for the longest time.
  World caller, called;
  caller.rendezvous.ready(0, meets(kHigher), at_ms(-100'000), Face::roce);
  std::int64_t now = -100'000;
  for (int i = 0; i < 12; ++i) {
    const auto call = caller.act();
    REQUIRE(call.kind == Kind::call);
    caller.rendezvous.on_ended(call.cookie, State::idle, at_ms(now));
    now = (caller.rendezvous.next_deadline() - at_ms(0)).ns / 1'000'000;
    if (i != 11) caller.rendezvous.on_time(at_ms(now));
  }
  const std::int64_t pause = 4'000, arrives = now - pause + 1;
  called.rendezvous.ready(0, meets(kLower), at_ms(arrives), Face::roce);
  called.rendezvous.count_from(kOwn, 3, at_ms(arrives), milliseconds(540));
  called.rendezvous.posted(kOwn, true, at_ms(arrives));
  called.rendezvous.on_time(at_ms(now));
  for (const auto& act : called.acts()) CHECK(act.kind == Kind::look);
  caller.rendezvous.on_time(at_ms(now));
  CHECK(caller.act().kind == Kind::call);
  SECTION("and meets it") {
    called.ask(peers(kLower), now + 50);
    CHECK(called.act().kind == Kind::answer);
  }
  SECTION("but not for ever, when there is none") {
    called.rendezvous.on_time(at_ms(arrives + 10'999));
    for (const auto& act : called.acts()) CHECK(act.kind == Kind::look);
    called.rendezvous.on_time(at_ms(arrives + 11'000));
    CHECK(called.act().kind == Kind::give_up);
  }
}

TEST_CASE("who calls does so at once when something is posted, and not when a pause is over", "[control][oob][roce]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  w.rendezvous.count_from(kOwn, 3, at_ms(0), milliseconds(540));
  std::int64_t now = 0;
  const auto calls = [&] {
    const auto all = w.acts();
    return std::count_if(all.begin(), all.end(), [&](const Rendezvous::Act& act) {
      if (act.kind == Kind::call) w.rendezvous.on_ended(act.cookie, State::idle, at_ms(now));
      return act.kind == Kind::call;
    });
  };
  for (; now < 6'500; now += 10) {
    w.rendezvous.on_time(at_ms(now));
    calls();
  }
  REQUIRE(w.rendezvous.next_deadline() > at_ms(7'000));  // it looks, or calls, much later
  w.rendezvous.posted(kOwn, true, at_ms(6'500));
  w.rendezvous.on_time(at_ms(6'500));
  CHECK(calls() == 1);
  // As after ready(), and no more often.
  unsigned more = 0;
  for (; now < 7'500; now += 10) {
    w.rendezvous.posted(kOwn, true, at_ms(now));
    w.rendezvous.on_time(at_ms(now));
    more += static_cast<unsigned>(calls());
  }
  CHECK(more >= 4);
  CHECK(more <= 6);
  // The patience is not over while it pauses, and over then.
  for (; now < 17'490; now += 10) {
    w.rendezvous.on_time(at_ms(now));
    calls();
  }
  CHECK(w.rendezvous.known() == 1);
  w.rendezvous.on_time(at_ms(17'500));
  CHECK(w.rendezvous.known() == 0);
  CHECK(w.act().kind == Kind::give_up);
}

TEST_CASE("who is called, and has posted, is there when a caller of thousands calls again", "[control][oob][roce]") {
  constexpr std::uint32_t kMany = 30'000;
  World caller, called;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    caller.rendezvous.ready(0, meets(kHigher, {1000 + i}), at_ms(0), Face::roce, 7);
    caller.rendezvous.on_ended(caller.act().cookie, State::idle, at_ms(0));
  }
  called.rendezvous.ready(0, meets(kLower), at_ms(1), Face::roce);
  called.rendezvous.count_from(kOwn, 3, at_ms(1), milliseconds(540));
  called.rendezvous.posted(kOwn, true, at_ms(1));
  std::set<std::uint32_t> later;
  while (caller.rendezvous.next_deadline() <= at_ms(10'010)) {
    const std::int64_t now = (caller.rendezvous.next_deadline() - at_ms(0)).ns / 1'000'000;
    caller.rendezvous.on_time(at_ms(now));
    for (const auto& act : caller.acts()) {
      if (act.kind != Kind::call) continue;
      later.insert(act.qp.value);
      caller.rendezvous.on_ended(act.cookie, State::idle, at_ms(now));
    }
  }
  CHECK(later.size() == kMany);
  called.rendezvous.on_time(at_ms(10'900));
  CHECK(called.rendezvous.known() == 1);
}

TEST_CASE("of a process with thousands of calls that fail each waits for longer than it pauses",
          "[control][oob][roce]") {
  constexpr std::uint32_t kMany = 10'000;
  World w;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    w.rendezvous.ready(0, meets(kHigher, {1000 + i}), at_ms(0), Face::roce, 7);
    w.rendezvous.count_from({1000 + i}, 3, at_ms(0), milliseconds(540));
    for (const auto& act : w.acts())
      if (act.kind == Kind::call) w.rendezvous.on_ended(act.cookie, State::idle, at_ms(0));
  }
  w.rendezvous.posted({1000}, true, at_ms(100));
  const auto gives_up = [&](std::int64_t ms) {
    bool given_up = false;
    for (int i = 0; i < 2'000; ++i) {
      w.rendezvous.on_time(at_ms(ms));
      for (const auto& act : w.acts()) {
        if (act.kind == Kind::call) w.rendezvous.on_ended(act.cookie, State::idle, at_ms(ms));
        given_up |= act.kind == Kind::give_up;
      }
    }
    return given_up;
  };
  CHECK_FALSE(gives_up(11'000));
  CHECK(gives_up(11'200));
}

TEST_CASE("one whose application waits for ever calls at once when something is posted, too, once",
          "[control][oob][roce]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  w.rendezvous.count_from(kOwn, 3, at_ms(0), std::nullopt);
  std::int64_t now = 0;
  for (; now < 6'500; now += 10) {
    w.rendezvous.on_time(at_ms(now));
    for (const auto& act : w.acts())
      if (act.kind == Kind::call) w.rendezvous.on_ended(act.cookie, State::idle, at_ms(now));
  }
  REQUIRE(w.rendezvous.next_deadline() > at_ms(7'000));
  w.rendezvous.posted(kOwn, true, at_ms(6'500));
  w.rendezvous.on_time(at_ms(6'500));
  const auto call = w.act();
  CHECK(call.kind == Kind::call);
  w.rendezvous.on_ended(call.cookie, State::idle, at_ms(6'510));
  w.rendezvous.posted(kOwn, true, at_ms(6'515));
  CHECK(w.rendezvous.next_deadline() == at_ms(6'510) + Rendezvous::kPauseFirst);
  // Then it is known, and it waits.
  std::size_t looks = 0;
  for (now = 6'520; now < 120'000; now += 10) {
    w.rendezvous.on_time(at_ms(now));
    for (const auto& act : w.acts()) {
      looks += act.kind == Kind::look;
      if (act.kind == Kind::call) w.rendezvous.on_ended(act.cookie, State::idle, at_ms(now));
      CHECK(act.kind != Kind::give_up);
    }
  }
  CHECK(looks <= 1);
}

TEST_CASE("what is posted waits for 30 s, then it fails", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  CHECK(w.silent());
  const auto look = [&](std::int64_t ms, bool any) {
    CHECK(w.rendezvous.next_deadline() == at_ms(ms));
    w.rendezvous.on_time(at_ms(ms));
    CHECK(w.act().kind == Kind::look);
    w.rendezvous.posted(kOwn, any, at_ms(ms));
  };
  look(500, false);
  look(1000, false);  // twice as long after each
  look(2000, true);
  std::int64_t now = 2000;
  while (now < 31'999) {
    now = std::min<std::int64_t>(31'999, (w.rendezvous.next_deadline() - at_ms(0)).ns / 1'000'000);
    w.rendezvous.on_time(at_ms(now));
    CHECK(w.silent());
    if (w.rendezvous.next_deadline() > at_ms(31'999)) break;
  }
  CHECK(w.rendezvous.next_deadline() == at_ms(32'000));
  w.rendezvous.on_time(at_ms(32'000));
  const auto end = w.act();
  CHECK(end.kind == Kind::give_up);
  CHECK(end.qp == kOwn);
  CHECK(w.rendezvous.known() == 0);
}

TEST_CASE("of many that are due at once so many are seen to at a time, in one look of a device", "[control][oob]") {
  World w;
  constexpr std::uint32_t kMany = 1000;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    w.rendezvous.ready(i % 2, meets(kLower, {1000 + i}), at_ms(0));
    w.rendezvous.count_from({1000 + i}, 3, at_ms(0));
  }
  w.rendezvous.forget({1000});
  std::vector<bool> looked(kMany);
  for (std::size_t turn = 0; turn < (kMany + Rendezvous::kDueAtOnce - 1) / Rendezvous::kDueAtOnce; ++turn) {
    CHECK(w.rendezvous.next_deadline() <= at_ms(500));
    w.rendezvous.on_time(at_ms(500));
    if (turn == 0) w.rendezvous.forget({1001});  // nobody looks for it
    const auto acts = w.acts();
    CHECK(acts.size() == 2);
    std::size_t seen = 0;
    for (const auto& act : acts) {
      REQUIRE(act.kind == Kind::look);
      for (const QpNumber number : act.qps) {
        CHECK(number.value % 2 == act.stream.device);
        CHECK_FALSE(looked[number.value - 1000]);
        looked[number.value - 1000] = true;
        w.rendezvous.posted(number, true, at_ms(500));
      }
      seen += act.qps.size();
    }
    CHECK(seen <= Rendezvous::kDueAtOnce);
  }
  CHECK(std::count(looked.begin(), looked.end(), true) == kMany - 2);
  CHECK(w.rendezvous.next_deadline() > at_ms(500));
  // A Modify is not held up by them for long, and nothing is lost: all give up.
  std::size_t given_up = 0;
  constexpr std::size_t kTurns = 3 + 2 * kMany / Rendezvous::kDueAtOnce;  // once more before, to find that it is known
  for (std::size_t turn = 0; w.rendezvous.known() > 0; ++turn) {
    REQUIRE(turn < kTurns);
    w.rendezvous.on_time(at_ms(30'500));
    const auto acts = w.acts();
    CHECK(acts.size() <= Rendezvous::kDueAtOnce);
    for (const auto& act : acts) given_up += act.kind == Kind::give_up;
  }
  CHECK(given_up == kMany - 2);
}

TEST_CASE("a Modify does what it is for, and not what others are due for", "[control][oob]") {
  World w;
  for (std::uint32_t i = 0; i < 100; ++i) {
    w.rendezvous.ready(0, meets(kHigher, {1000 + i}), at_ms(0));
    const auto call = w.act();
    CHECK(call.qp == QpNumber{1000 + i});
    w.rendezvous.on_ended(call.cookie, State::idle, at_ms(0));
  }
  w.rendezvous.ready(0, meets(kHigher), at_ms(10'000));
  CHECK(w.act().qp == kOwn);
}

TEST_CASE("a process whose calls fail calls less often the more they are, and others as before", "[control][oob]") {
  constexpr std::uint32_t kMany = 10'000;
  constexpr std::uint64_t kGreedy = 7, kOther = 8;
  World w;
  const auto fails = [&](QpNumber qp, std::uint64_t holder) {
    w.rendezvous.ready(0, meets(kHigher, qp), at_ms(0), Face::iwarp, holder);
    w.rendezvous.on_ended(w.act().cookie, State::idle, at_ms(0));
  };
  for (std::uint32_t i = 0; i < kMany; ++i) fails({1000 + i}, kGreedy);
  fails(kOwn, kOther);
  // From 4,000 on a millisecond each; those before them after their first pause.
  std::size_t calls = 0;
  for (std::int64_t ms = 0; ms < 10'000; ms += 5) {
    w.rendezvous.on_time(at_ms(ms));
    for (const auto& act : w.acts()) {
      const bool others = act.qp == kOwn;
      if (others)
        CHECK(ms <= 4'000);
      else
        ++calls;
      w.rendezvous.on_ended(act.cookie, State::idle, at_ms(ms));
      if (others) w.rendezvous.forget(kOwn);
    }
  }
  CHECK(calls < kMany + 4'000);
  // They are counted as long as they fail.
  for (std::uint32_t i = 0; i < kMany; ++i) w.rendezvous.forget({1000 + i});
  w.acts();
  fails(kOwn, kGreedy);
  CHECK(w.rendezvous.next_deadline() == at_ms(0) + Rendezvous::kPauseFirst);
}

namespace {

// For a peer that is to call, with work that was posted before half a second was over.
void waits_with_work(World& w) {
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  w.rendezvous.on_time(at_ms(500));
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.acts();
}

}  // namespace

TEST_CASE("a peer that comes in time ends the waiting", "[control][oob]") {
  World w;
  waits_with_work(w);
  CHECK(w.answered(w.ask(peers(kLower), 30'499)));
  w.rendezvous.on_time(at_ms(40'000));
  CHECK(w.silent());
  CHECK(w.rendezvous.stage(kOwn) == Stage::together);
}

TEST_CASE("callers that come and go do not make the waiting longer", "[control][oob]") {
  World w;
  waits_with_work(w);
  for (const std::int64_t ms : {10'000, 20'000, 30'000}) {
    w.ask(peers(kLower), ms);
    const auto answer = w.act();
    REQUIRE(answer.kind == Kind::answer);
    w.rendezvous.on_not_answered(answer.cookie);
    w.rendezvous.on_time(at_ms(ms));
    CHECK(w.silent());
  }
  SECTION("it gives up when it would have") {
    CHECK(w.rendezvous.next_deadline() == at_ms(30'500));
    w.rendezvous.on_time(at_ms(30'500));
    CHECK(w.act().kind == Kind::give_up);
  }
  SECTION("one that has been answered by then may still speak") {
    w.ask(peers(kLower), 30'400);
    const auto answer = w.act();
    CHECK(w.rendezvous.next_deadline() == kNever);
    w.rendezvous.on_time(at_ms(30'600));
    CHECK(w.silent());
    w.rendezvous.on_established(answer.cookie);
    CHECK(w.rendezvous.on_ended(answer.cookie, State::idle, at_ms(30'700)));
    CHECK(w.rendezvous.next_deadline() == at_ms(30'700));
  }
  SECTION("and where he never does it is as late as it was") {
    w.ask(peers(kLower), 30'400);
    const auto answer = w.act();
    CHECK(w.rendezvous.on_ended(answer.cookie, State::idle, at_ms(40'400)));
    w.rendezvous.on_time(at_ms(40'400));
    CHECK(w.act().kind == Kind::give_up);
  }
}

TEST_CASE("one that gives up ends its call", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  w.rendezvous.on_called(call.cookie, {0, {99}});
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  w.rendezvous.on_time(at_ms(500));
  w.acts();
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.rendezvous.on_time(at_ms(1000));
  w.acts();
  w.rendezvous.on_time(at_ms(30'500));
  const auto all = w.acts();
  REQUIRE(all.size() == 2);
  CHECK(all[0].kind == Kind::drop);
  CHECK(all[0].stream == Rendezvous::Stream{0, {99}});
  CHECK(all[1].kind == Kind::give_up);
}

TEST_CASE("one that is forgotten is called by nobody and calls nobody", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  w.rendezvous.forget(kOwn);  // before the call was made
  CHECK(w.silent());
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  w.rendezvous.on_called(call.cookie, {0, {5}});
  w.rendezvous.forget(kOwn);
  CHECK(w.act().kind == Kind::drop);
  w.rendezvous.on_ended(call.cookie, State::idle, at_ms(1));  // late news
  w.rendezvous.on_established(call.cookie);
  w.rendezvous.posted(kOwn, true, at_ms(1));
  w.rendezvous.on_time(at_ms(100'000));
  CHECK(w.silent());
  CHECK(w.rendezvous.known() == 0);
  CHECK(w.rendezvous.next_deadline() == kNever);
  w.rendezvous.ready(0, meets(kLower, {101}), at_ms(0));
  w.rendezvous.forget({101});
  CHECK(w.refused(w.ask(peers(kLower, {101}), 1, false), MarkRefusal::no_such_queue_pair));
}

TEST_CASE("nothing that was begun for one that is forgotten is done", "[control][oob]") {
  World w;
  w.rendezvous.ready(1, meets(kHere, {11}, {11}), at_ms(0));
  w.rendezvous.count_from({11}, 7, at_ms(1));  // to be joined
  w.rendezvous.forget({11});
  CHECK(w.silent());
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  w.rendezvous.on_time(w.rendezvous.next_deadline());  // to be looked at
  w.rendezvous.forget(kOwn);
  CHECK(w.silent());
}

TEST_CASE("the end of a connection is the end of the waiting", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  w.rendezvous.on_established(call.cookie);
  w.rendezvous.on_ended(call.cookie, State::error, at_ms(5));
  CHECK(w.rendezvous.known() == 0);
  w.rendezvous.on_time(at_ms(100'000));
  CHECK(w.silent());
}

TEST_CASE("a queue pair that lives on when its connection ends waits for its peer", "[control][oob]") {
  for (const State state : {State::idle, State::rts, State::closing, State::terminate, State::error}) {
    World w;
    w.rendezvous.ready(0, meets(kHigher), at_ms(0));
    const auto call = w.act();
    w.rendezvous.on_established(call.cookie);
    CHECK(w.rendezvous.on_ended(call.cookie, state, at_ms(5)));
    const bool lives_on = state == State::idle || state == State::closing;
    CHECK(w.rendezvous.stage(kOwn) == (lives_on ? std::optional(Stage::left) : std::nullopt));
  }
}

TEST_CASE("W-ACK-12: what a peer that goes leaves unanswered fails when the application's patience is over",
          "[control][oob][roce][W-ACK-12]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  const auto call = w.act();
  w.rendezvous.on_established(call.cookie);
  w.rendezvous.count_from(kOwn, 3, at_ms(0), milliseconds(540));
  CHECK(w.rendezvous.on_ended(call.cookie, State::idle, at_ms(10)));
  w.rendezvous.on_time(at_ms(10));
  CHECK(w.act().kind == Kind::look);
  w.rendezvous.posted(kOwn, true, at_ms(10));
  w.rendezvous.on_time(at_ms(549));
  CHECK(w.silent());
  w.rendezvous.on_time(at_ms(550));
  CHECK(w.act().kind == Kind::give_up);
}

TEST_CASE("one whose peer has gone calls nobody and answers nobody, and what it posts fails in time",
          "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  w.rendezvous.on_established(call.cookie);
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  CHECK(w.rendezvous.on_ended(call.cookie, State::idle, at_ms(0)));
  CHECK(w.rendezvous.stage(kOwn) == Stage::left);
  w.rendezvous.on_time(at_ms(0));  // for what it has left unanswered
  CHECK(w.act().kind == Kind::look);
  w.rendezvous.posted(kOwn, false, at_ms(0));
  CHECK(w.rendezvous.next_deadline() == at_ms(500));
  w.rendezvous.on_time(at_ms(500));
  CHECK(w.act().kind == Kind::look);
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.ask(peers(kHigher), 600);  // waits for a Modify
  CHECK(w.silent());
  w.rendezvous.on_time(at_ms(30'499));
  for (const auto& act : w.acts()) CHECK(act.kind == Kind::refuse);
  w.rendezvous.on_time(at_ms(30'500));
  CHECK(w.act().kind == Kind::give_up);
  CHECK_FALSE(w.rendezvous.on_ended(call.cookie, State::idle, at_ms(30'501)));
  // In RTR nothing is posted, so nothing is looked for before RTS.
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto again = w.act();
  w.rendezvous.on_established(again.cookie);
  CHECK(w.rendezvous.on_ended(again.cookie, State::idle, at_ms(0)));
  CHECK(w.rendezvous.next_deadline() == kNever);
  w.rendezvous.count_from(kOwn, 3, at_ms(10));
  CHECK(w.rendezvous.next_deadline() == at_ms(510));
}

TEST_CASE("a thousand connections of one queue pair, and nothing is left of them", "[control][oob]") {
  World w;
  std::uint64_t last = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    Meeting own = meets(i % 2 == 0 ? kHigher : kLower);
    own.due_psn = static_cast<std::uint32_t>(i);
    w.rendezvous.ready(0, own, at_ms(i));
    if (last != 0) w.rendezvous.on_ended(last, State::error, at_ms(i));  // of the connection before, late
    if (i % 2 == 0) {
      const auto call = w.act();
      w.rendezvous.on_established(call.cookie);
      last = call.cookie;
    } else {
      Meeting theirs = peers(kLower);
      theirs.own_psn = static_cast<std::uint32_t>(i);
      w.ask(theirs, i);
      const auto answer = w.act();
      REQUIRE(answer.kind == Kind::answer);
      last = answer.cookie;
    }
    CHECK(w.rendezvous.stage(kOwn) == Stage::together);
    w.rendezvous.count_from(kOwn, 3, at_ms(i));
    w.rendezvous.forget(kOwn);
    CHECK(w.silent());
  }
  CHECK(w.rendezvous.known() == 0);
  CHECK(w.rendezvous.next_deadline() == kNever);
}
