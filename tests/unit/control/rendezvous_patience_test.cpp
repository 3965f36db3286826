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

namespace {

// Nobody is there.
void answer_probes(World& w, std::int64_t ms) {
  for (const auto& act : w.acts())
    if (act.kind == Kind::probe) w.rendezvous.on_probed(act.cookie, Found::not_there, at_ms(ms));
}

// Its patience is over then.
bool gives_up(World& w, std::int64_t ms, QpNumber qp = kOwn) {
  w.rendezvous.on_time(at_ms(ms));
  answer_probes(w, ms);
  const auto all = w.acts();
  return !all.empty() && all.back().kind == Kind::give_up && all.back().qp == qp && w.rendezvous.known() == 0;
}

}  // namespace

// ---- the end of waiting ----------------------------------------------------------------------------

TEST_CASE("W-MEET-02, W-MEET-03: who is called and posts asks whether his caller is there, and is called at once",
          "[control][oob][roce][W-MEET-02][W-MEET-03]") {
  // The caller has called a few times before this one is there, and pauses for the longest time.
  World caller, called;
  caller.rendezvous.ready(0, meets(kHigher), at_ms(-100'000), Face::roce);
  std::int64_t now = -100'000;
  for (int i = 0; i < 12; ++i) {
    const auto call = caller.act();
    REQUIRE(call.kind == Kind::call);
    caller.rendezvous.on_ended(call.cookie, State::idle, at_ms(now));
    if (i == 11) break;
    now = (caller.rendezvous.next_deadline() - at_ms(0)).ns / 1'000'000;
    caller.rendezvous.on_time(at_ms(now));
  }
  const std::int64_t posts = now + 1;
  REQUIRE(caller.rendezvous.next_deadline() > at_ms(posts + 3'000));
  called.rendezvous.ready(0, meets(kLower), at_ms(posts), Face::roce);
  called.rendezvous.count_from(kOwn, 3, at_ms(posts), milliseconds(540));
  called.rendezvous.posted(kOwn, true, at_ms(posts));
  const auto probe = called.act();
  CHECK(probe.kind == Kind::probe);
  CHECK(probe.mark->kind == wire::Mark::Kind::probe);
  CHECK(probe.mark->meeting.own_psn == 3u);
  SECTION("by a caller that is there") {
    Meeting theirs = peers(kHigher);
    CHECK(caller.refused(caller.probe(theirs, posts + 1), MarkRefusal::there));
    caller.rendezvous.on_time(at_ms(posts + 1));
    const auto call = caller.act();
    CHECK(call.kind == Kind::call);
    called.rendezvous.on_probed(probe.cookie, Found::there, at_ms(posts + 2));
    // It comes, though the application's patience were over.
    called.rendezvous.on_time(at_ms(posts + 5'000));
    for (const auto& act : called.acts()) CHECK(act.kind == Kind::look);
    called.ask(peers(kLower), posts + 5'000);
    CHECK(called.act().kind == Kind::answer);
    called.rendezvous.on_probed(probe.cookie, Found::not_there, at_ms(posts + 5'001));
    CHECK(called.silent());
  }
  SECTION("or fails when its patience is over, where none is there") {
    called.rendezvous.on_probed(probe.cookie, Found::not_there, at_ms(posts + 2));
    CHECK(called.silent());
    called.rendezvous.on_time(at_ms(posts + 539));
    for (const auto& act : called.acts()) CHECK(act.kind == Kind::look);
    // It may be there now.
    called.rendezvous.on_time(at_ms(posts + 540));
    const auto last = called.act();
    CHECK(last.kind == Kind::probe);
    CHECK(last.cookie != probe.cookie);
    called.rendezvous.on_probed(probe.cookie, Found::not_there, at_ms(posts + 541));  // nobody's
    CHECK(called.silent());
    called.rendezvous.on_probed(last.cookie, Found::not_there, at_ms(posts + 541));
    CHECK(called.act().kind == Kind::give_up);
    CHECK(called.rendezvous.known() == 0);
  }
  SECTION("or a while later, where nobody answers") {
    called.rendezvous.on_time(at_ms(posts + 540));
    // Its SYN may be in a long pause of its own.
    auto all = called.acts();
    REQUIRE(all.size() >= 2);
    CHECK(all[0].kind == Kind::unprobe);
    CHECK(all[0].cookie == probe.cookie);
    CHECK(all[1].kind == Kind::probe);
    const std::uint64_t last = all[1].cookie;
    for (std::int64_t ms = 600; ms < 4'540; ms += 10) called.rendezvous.on_time(at_ms(posts + ms));
    for (const auto& act : called.acts()) CHECK(act.kind == Kind::look);
    SECTION("as the network may") { called.rendezvous.on_time(at_ms(posts + 4'540)); }
    SECTION("or one who cannot say") {
      called.rendezvous.on_probed(last, Found::no_answer, at_ms(posts + 4'539));
      CHECK(called.silent());
      called.rendezvous.on_time(at_ms(posts + 4'540));
      CHECK(called.act().kind == Kind::give_up);
      return;
    }
    all = called.acts();
    REQUIRE(all.size() == 2);
    CHECK(all[0].kind == Kind::unprobe);
    CHECK(all[0].cookie == last);
    CHECK(all[1].kind == Kind::give_up);
  }
  SECTION("or later, where one that says it is there never comes") {
    called.rendezvous.on_probed(probe.cookie, Found::there, at_ms(posts + 2));
    std::int64_t ms = posts + 2;
    std::size_t probes = 0;
    for (; ms < posts + 60'000 && called.rendezvous.known() != 0; ms += 10) {
      called.rendezvous.on_time(at_ms(ms));
      for (const auto& act : called.acts()) {
        if (act.kind != Kind::probe) continue;
        ++probes;
        called.rendezvous.on_probed(act.cookie, Found::there, at_ms(ms));
      }
    }
    CHECK(probes == 0);
    CHECK(ms == posts + 10'012);  // the turn after ten seconds
  }
}

TEST_CASE("nobody waits for a probe's answer any more when there is a connection, or after a while", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0), GENERATE(std::optional<Duration>(), std::optional(seconds(30))));
  w.rendezvous.posted(kOwn, true, at_ms(0));
  const auto probe = w.act();
  REQUIRE(probe.kind == Kind::probe);
  const auto ended = [&] {
    const auto all = w.acts();
    return std::count_if(all.begin(), all.end(), [&](const Rendezvous::Act& act) {
      return act.kind == Kind::unprobe && act.cookie == probe.cookie && act.stream.device == 0;
    });
  };
  SECTION("a connection") {
    w.ask(peers(kLower));
    CHECK(ended() == 1);
    CHECK(w.rendezvous.stage(kOwn) == Stage::together);
  }
  SECTION("a while") {
    w.rendezvous.on_time(at_ms(3'999));
    CHECK(ended() == 0);
    w.rendezvous.on_time(at_ms(4'000));
    CHECK(ended() == 1);
    w.rendezvous.on_probed(probe.cookie, Found::there, at_ms(4'001));  // nobody's
    CHECK(w.silent());
  }
  SECTION("a Modify") {
    w.rendezvous.forget(kOwn);
    CHECK(ended() == 1);
  }
  w.rendezvous.forget(kOwn);
  CHECK(ended() == 0);
}

TEST_CASE("W-MEET-03: a call that waits for the answer to a SYN is renewed when the peer asks for it",
          "[control][oob][W-MEET-03]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  w.rendezvous.on_called(call.cookie, {0, {99}});
  w.probe(peers(kHigher), 30'000);
  const auto all = w.acts();
  REQUIRE(all.size() == 2);
  CHECK(all[0].mark->refusal == MarkRefusal::there);
  CHECK(all[1].kind == Kind::renew);
  CHECK(all[1].stream == Rendezvous::Stream{0, {99}});
}

TEST_CASE("W-MEET-03: a probe is of the one who is meant, and is never accepted nor kept",
          "[control][oob][W-MEET-03]") {
  World w;
  CHECK(w.refused(w.probe(peers(kHigher), 0, false), MarkRefusal::no_such_queue_pair));
  CHECK(w.refused(w.probe(peers(kHigher)), MarkRefusal::not_ready));
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  Meeting other = peers(kHigher);
  other.own_psn = 8;
  CHECK(w.refused(w.probe(other), MarkRefusal::not_the_peer));
  other.own_psn.reset();
  CHECK(w.refused(w.probe(other), MarkRefusal::not_ready));
  // While a call is under way: the next one is made at once, should this one come to nothing.
  CHECK(w.refused(w.probe(peers(kHigher)), MarkRefusal::there));
  w.rendezvous.on_time(at_ms(1));
  CHECK(w.silent());
  w.rendezvous.on_ended(call.cookie, State::idle, at_ms(2));
  CHECK(w.rendezvous.next_deadline() == at_ms(2));
  w.rendezvous.on_time(at_ms(2));
  const auto again = w.act();
  CHECK(again.kind == Kind::call);
  w.rendezvous.on_ended(again.cookie, State::idle, at_ms(3));
  CHECK(w.rendezvous.next_deadline() == at_ms(3) + Rendezvous::kPauseFirst);
  // It has a connection, and the one who asks has none.
  w.rendezvous.ready(0, meets(kHigher), at_ms(10));
  w.rendezvous.on_established(w.act().cookie);
  CHECK(w.refused(w.probe(peers(kHigher), 11), MarkRefusal::not_ready));
  // One that calls asks beside its call.
  w.rendezvous.ready(0, meets(kLower, {101}), at_ms(20));
  CHECK(w.refused(w.probe(peers(kLower, {101}), 20), MarkRefusal::there));
  CHECK(w.silent());
  w.ask(peers(kLower, {101}), 20);
  CHECK(w.act().kind == Kind::answer);
  CHECK(w.refused(w.probe(peers(kLower, {101}), 21), MarkRefusal::there));
  CHECK(w.rendezvous.waiting_requests() == 0);
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
}

TEST_CASE("W-MEET-02: who calls asks, when his patience is over, whether the peer has come in a pause",
          "[control][oob][W-MEET-02][roce]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  w.rendezvous.on_ended(w.act().cookie, State::idle, at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0), milliseconds(540));
  w.rendezvous.posted(kOwn, true, at_ms(10));
  std::optional<std::uint64_t> probe;
  for (std::int64_t now = 10; now <= 550; now += 10) {
    w.rendezvous.on_time(at_ms(now));
    for (const auto& act : w.acts()) {
      if (act.kind == Kind::call) w.rendezvous.on_ended(act.cookie, State::idle, at_ms(now));
      if (act.kind == Kind::probe) {
        CHECK(now == 550);
        probe = act.cookie;
      }
    }
  }
  REQUIRE(probe);
  SECTION("and calls at once") {
    w.rendezvous.on_probed(*probe, Found::there, at_ms(551));
    w.rendezvous.on_time(at_ms(551));
    CHECK(w.act().kind == Kind::call);
  }
  SECTION("or gives up") {
    w.rendezvous.on_probed(*probe, Found::not_there, at_ms(551));
    CHECK(w.act().kind == Kind::give_up);
    CHECK(w.rendezvous.known() == 0);
  }
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

TEST_CASE("W-MEET-02: what is posted waits for 30 s, then it fails", "[control][oob][W-MEET-02]") {
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
  w.rendezvous.on_probed(w.act().cookie, Found::not_there, at_ms(2000));
  std::int64_t now = 2000;
  while (now < 31'999) {
    now = std::min<std::int64_t>(31'999, (w.rendezvous.next_deadline() - at_ms(0)).ns / 1'000'000);
    w.rendezvous.on_time(at_ms(now));
    CHECK(w.silent());
    if (w.rendezvous.next_deadline() > at_ms(31'999)) break;
  }
  CHECK(w.rendezvous.next_deadline() == at_ms(32'000));
  CHECK(gives_up(w, 32'000));
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
    answer_probes(w, 500);
  }
  CHECK(std::count(looked.begin(), looked.end(), true) == kMany - 2);
  CHECK(w.rendezvous.next_deadline() > at_ms(500));
  // A Modify is not held up by them for long, and nothing is lost: all give up.
  std::size_t given_up = 0;
  constexpr std::size_t kTurns = 3 + 2 * kMany / Rendezvous::kDueAtOnce;  // once more before, to find that it is known
  for (std::size_t turn = 0; w.rendezvous.known() > 0; ++turn) {
    REQUIRE(turn < kTurns);
    w.rendezvous.on_time(at_ms(30'500));
    answer_probes(w, 30'500);
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
  w.acts();
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.rendezvous.on_probed(w.act().cookie, Found::not_there, at_ms(501));
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
    CHECK(w.rendezvous.on_not_answered(answer.cookie));
    w.rendezvous.on_time(at_ms(ms));
    CHECK(w.silent());
  }
  SECTION("it gives up when it would have") {
    CHECK(w.rendezvous.next_deadline() == at_ms(30'500));
    CHECK(gives_up(w, 30'500));
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
  w.rendezvous.on_probed(w.act().cookie, Found::not_there, at_ms(30'500));
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
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  w.rendezvous.posted(kOwn, true, at_ms(0));  // to be asked for
  w.rendezvous.forget(kOwn);
  CHECK(w.act().kind == Kind::unprobe);
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
