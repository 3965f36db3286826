// Queue pairs that wait for their peers: who calls, and which Request is whose.
#include "control/rendezvous.hpp"

#include <algorithm>
#include <vector>

#include "kit/catch.hpp"
#include "unit/control/rendezvous_world.hpp"

using namespace rnic;
using namespace rnic::test::rendezvous;

// ---- who calls -------------------------------------------------------------------------------------

TEST_CASE("W-MEET-01: the lower GID calls at RTR, saying what it was told", "[control][oob][W-MEET-01]") {
  World w;
  w.rendezvous.ready(2, meets(kHigher), at_ms(0));
  const auto call = w.act();
  CHECK(call.kind == Kind::call);
  CHECK(call.qp == kOwn);
  CHECK(call.stream.device == 2);
  CHECK(Rendezvous::is_ours(call.cookie));
  CHECK(Rendezvous::qp_of(call.cookie) == kOwn);
  REQUIRE(call.mark);
  CHECK(call.mark->meeting == meets(kHigher));
  CHECK(call.mark->capabilities == wire::mark_capability::kOob);
  CHECK(call.mark->needed == wire::mark_capability::kOob);
  CHECK(w.rendezvous.stage(kOwn) == Stage::calling);
}

TEST_CASE("the higher GID waits to be called, for ever", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  CHECK(w.silent());
  CHECK(w.rendezvous.next_deadline() == kNever);
  CHECK(w.rendezvous.stage(kOwn) == Stage::apart);
}

TEST_CASE("of two queue pairs of one device the lower number calls", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHere, {11}, {12}), at_ms(0));
  w.rendezvous.ready(0, meets(kHere, {12}, {11}), at_ms(0));
  const auto call = w.act();
  CHECK(call.qp == QpNumber{11});
  // Its Request comes from the device's own address, while neither is in RTS.
  const auto stream = w.ask(call.mark->meeting, 1);
  CHECK(w.silent());
  w.rendezvous.count_from({12}, 7, at_ms(2));
  CHECK(w.answered(stream, {12}));
}

TEST_CASE("a queue pair that means itself is joined when it counts from what it expects", "[control][oob]") {
  World w;
  w.rendezvous.ready(1, meets(kHere, {11}, {11}), at_ms(0));
  CHECK(w.silent());
  w.rendezvous.count_from({11}, 7, at_ms(1));
  const auto join = w.act();
  CHECK(join.kind == Kind::join);
  CHECK(join.qp == QpNumber{11});
  CHECK(join.stream.device == 1);
  CHECK_FALSE(join.mark.has_value());
  w.rendezvous.on_established(join.cookie);
  CHECK(w.rendezvous.stage({11}) == Stage::together);
  // One that counts from elsewhere never is.
  w.rendezvous.ready(1, meets(kHere, {12}, {12}), at_ms(0));
  w.rendezvous.count_from({12}, 8, at_ms(1));
  CHECK(w.silent());
}

TEST_CASE("W-MEET-01: a call that fails is made again, with longer and longer pauses", "[control][oob][W-MEET-01]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  std::int64_t now = 0;
  std::uint64_t cookie = w.act().cookie;
  std::int64_t longest = 0;
  for (int i = 0; i < 16; ++i) {
    w.rendezvous.on_ended(cookie, State::idle, at_ms(now));
    CHECK(w.rendezvous.stage(kOwn) == Stage::apart);
    const Instant due = w.rendezvous.next_deadline();
    const std::int64_t pause = (due - at_ms(now)).ns / 1'000'000;
    CHECK(pause >= 20);
    CHECK(pause >= longest);
    CHECK(pause <= 4000);
    longest = pause;
    w.rendezvous.on_time(Instant{due.ns - 1});
    CHECK(w.silent());
    now += pause;
    w.rendezvous.on_time(at_ms(now));
    const auto again = w.act();
    CHECK(again.kind == Kind::call);
    CHECK(again.cookie != cookie);  // what comes late of the one before is nobody's
    w.rendezvous.on_ended(cookie, State::idle, at_ms(now));
    CHECK(w.rendezvous.stage(kOwn) == Stage::calling);
    cookie = again.cookie;
  }
  CHECK(longest == 4000);
  w.rendezvous.on_established(cookie);
  CHECK(w.rendezvous.stage(kOwn) == Stage::together);
  CHECK(w.rendezvous.next_deadline() == kNever);
}

TEST_CASE("a peer that comes after an hour finds who waits in RTR", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  std::uint64_t cookie = w.act().cookie;
  std::size_t calls = 0;
  std::int64_t now = 0;
  while (now < 3'600'000) {
    w.rendezvous.on_ended(cookie, State::idle, at_ms(now));
    now = (w.rendezvous.next_deadline() - at_ms(0)).ns / 1'000'000;
    w.rendezvous.on_time(at_ms(now));
    cookie = w.act().cookie;
    ++calls;
  }
  CHECK(calls < 1000);
  w.rendezvous.on_established(cookie);
  CHECK(w.rendezvous.stage(kOwn) == Stage::together);
}

// ---- which Request is whose ------------------------------------------------------------------------

TEST_CASE("W-MEET-01: a Request of the one who is meant is answered, in RTR", "[control][oob][W-MEET-01]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  const auto stream = w.ask(peers(kLower));
  const auto answer = w.act();
  CHECK(answer.kind == Kind::answer);
  CHECK(answer.stream == stream);
  CHECK(answer.qp == kOwn);
  REQUIRE(answer.mark);
  CHECK(answer.mark->meeting == meets(kLower));
  CHECK(w.rendezvous.stage(kOwn) == Stage::together);
}

TEST_CASE("W-MEET-01: what is not as the queue pair named it is refused", "[control][oob][W-MEET-01]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  Meeting wrong = peers(kLower);
  SECTION("the PSN") {
    wrong.own_psn = 8;
    CHECK(w.refused(w.ask(wrong), MarkRefusal::not_the_peer));
  }
  SECTION("our PSN") {
    wrong.due_psn = 4;
    CHECK(w.refused(w.ask(wrong), MarkRefusal::not_the_peer));
  }
  SECTION("its number") {
    wrong.own_number = {201};
    CHECK(w.refused(w.ask(wrong), MarkRefusal::not_the_peer));
  }
  SECTION("its GID, which is where it comes from") {
    wrong.own_gid = kHigher;
    CHECK(w.refused(w.ask(wrong), MarkRefusal::not_the_peer));
  }
  SECTION("where it comes from") {
    wire::Mark mark;
    mark.capabilities = wire::mark_capability::kOob;
    mark.meeting = wrong;
    const Bytes data = Bytes(w.octets).first(wire::emit(mark, w.octets));
    CHECK(w.refused(w.ask(data, kHigher), MarkRefusal::not_the_peer));
    CHECK(w.refused(w.ask(data, kLower, 0, true, 0, kHigher), MarkRefusal::not_the_peer));
    CHECK(w.answered(w.ask(data, kLower)));
  }
  SECTION("its device") { CHECK(w.refused(w.ask(wrong, 0, false, 1), MarkRefusal::no_such_queue_pair)); }
  SECTION("nothing") { CHECK(w.answered(w.ask(wrong))); }
}

TEST_CASE("the higher one does not call the lower", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  w.acts();
  CHECK(w.refused(w.ask(peers(kHigher)), MarkRefusal::not_the_peer));
}

TEST_CASE("a Request without a mark is refused without one, and one of a later rnic as too much", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  const auto stream = w.ask(Bytes{}, kLower);
  const auto refusal = w.act();
  CHECK(refusal.kind == Kind::refuse);
  CHECK(refusal.stream == stream);
  CHECK_FALSE(refusal.mark.has_value());

  wire::Mark mark;
  mark.capabilities = wire::mark_capability::kOob;
  mark.meeting = peers(kLower);
  const auto ask = [&] { return w.ask(Bytes(w.octets).first(wire::Mark::kSizeMax), kLower); };
  mark.needed = 2;
  wire::emit(mark, w.octets);
  CHECK(w.refused(ask(), MarkRefusal::not_able));
  mark.needed = 0;
  mark.capabilities = ~wire::mark_capability::kOob;
  wire::emit(mark, w.octets);
  CHECK(w.refused(ask(), MarkRefusal::not_able));
  mark.capabilities = ~wire::mark_capability::kRoce;
  wire::emit(mark, w.octets);
  w.octets[8] = std::byte{2};
  CHECK(w.refused(ask(), MarkRefusal::not_able));
  w.octets[8] = std::byte{1};
  CHECK(w.answered(ask()));
}

TEST_CASE("W-MEET-02: how long what is posted waits for a peer that does not come is its application's affair",
          "[control][oob][roce][W-MEET-02]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  const std::int64_t patience_ms = GENERATE(0, 700, 17'000);  // 0: for ever
  const bool endless = patience_ms == 0;
  w.rendezvous.count_from(kOwn, 3, at_ms(0), endless ? std::nullopt : std::optional(milliseconds(patience_ms)));
  w.acts();
  w.rendezvous.on_time(at_ms(500));
  w.acts();
  w.rendezvous.posted(kOwn, true, at_ms(500));
  const std::int64_t end_ms = 500 + patience_ms;
  w.rendezvous.on_time(at_ms(end_ms - 1));
  if (!endless) {
    CHECK(w.silent());
    w.rendezvous.on_time(at_ms(end_ms));
    w.rendezvous.on_probed(w.act().cookie, Found::not_there, at_ms(end_ms));
    CHECK(w.act().kind == Kind::give_up);
    return;
  }
  w.rendezvous.on_time(at_ms(1'000'000));
  for (const auto& act : w.acts()) CHECK(act.kind == Kind::look);
}

TEST_CASE("a RoCE face says that it is one, and needs one", "[control][oob][roce]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  const auto call = w.act();
  REQUIRE(call.mark);
  CHECK(call.mark->capabilities == (wire::mark_capability::kOob | wire::mark_capability::kRoce));
  CHECK(call.mark->needed == call.mark->capabilities);
}

TEST_CASE("a RoCE face and an iWARP face refuse each other, and say so", "[control][oob][roce]") {
  const auto here = GENERATE(Face::iwarp, Face::roce);
  const auto there = GENERATE(Face::iwarp, Face::roce);
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0), here);
  wire::Mark mark;
  mark.capabilities = mark.needed = mpa::mark_capabilities(there);
  mark.meeting = peers(kLower);
  const Bytes data = Bytes(w.octets).first(wire::emit(mark, w.octets));
  const Rendezvous::Stream stream{0, {7}};
  w.rendezvous.on_request({.stream = stream, .from = kLower, .to = kHere, .private_data = data, .face = here}, true,
                          at_ms(1));
  if (here == there) {
    const auto answer = w.act();
    CHECK(answer.kind == Kind::answer);
    REQUIRE(answer.mark);
    CHECK(mpa::face_of(*answer.mark) == here);
    return;
  }
  const auto refusal = w.act();
  REQUIRE(refusal.mark);
  CHECK(refusal.mark->refusal == MarkRefusal::other_face);
  CHECK(refusal.mark->capabilities == mpa::mark_capabilities(here));
  CHECK(w.rendezvous.stage(kOwn) == Stage::apart);
}

TEST_CASE("a queue pair that is not there is called in vain", "[control][oob]") {
  World w;
  CHECK(w.refused(w.ask(peers(kLower), 0, false), MarkRefusal::no_such_queue_pair));
  CHECK(w.rendezvous.waiting_requests() == 0);
}

// ---- Requests before RTR ---------------------------------------------------------------------------

TEST_CASE("a Request that comes before RTR waits for it", "[control][oob]") {
  World w;
  const auto stream = w.ask(peers(kLower));
  CHECK(w.silent());
  CHECK(w.rendezvous.waiting_requests() == 1);
  w.rendezvous.on_time(at_ms(4999));
  CHECK(w.silent());
  w.rendezvous.ready(0, meets(kLower), at_ms(4999));
  CHECK(w.answered(stream));
  CHECK(w.rendezvous.waiting_requests() == 0);
  w.rendezvous.on_time(at_ms(10'000));
  CHECK(w.silent());
}

TEST_CASE("a Request that waits in vain is refused in time", "[control][oob]") {
  World w;
  const auto stream = w.ask(peers(kLower));
  CHECK(w.rendezvous.next_deadline() == at_ms(5000));
  w.rendezvous.on_time(at_ms(5000));
  CHECK(w.refused(stream, MarkRefusal::not_ready));
  CHECK(w.rendezvous.waiting_requests() == 0);
  CHECK(w.rendezvous.next_deadline() == kNever);
}

TEST_CASE("a Request that waited for somebody else is refused at RTR", "[control][oob]") {
  World w;
  Meeting before = peers(kLower);
  before.own_psn = 6;  // of the connection before this one, with the same numbers
  const auto old = w.ask(before);
  w.rendezvous.ready(0, meets(kLower), at_ms(1));
  CHECK(w.refused(old, MarkRefusal::not_the_peer));
  CHECK(w.answered(w.ask(peers(kLower), 2)));
}

TEST_CASE("of two that wait the later is answered: its caller is there", "[control][oob]") {
  World w;
  const auto first = w.ask(peers(kLower));
  const auto second = w.ask(peers(kLower), 1);
  CHECK(w.silent());
  w.rendezvous.ready(0, meets(kLower), at_ms(2));
  const auto all = w.acts();
  REQUIRE(all.size() == 2);
  CHECK(all[0].kind == Kind::answer);
  CHECK(all[0].stream == second);
  CHECK(all[1].kind == Kind::refuse);
  CHECK(all[1].stream == first);
}

TEST_CASE("neither has named where it counts from: they wait for one of them", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  Meeting theirs = peers(kLower);
  theirs.own_psn.reset();
  const auto stream = w.ask(theirs);
  CHECK(w.silent());
  SECTION("ours is as it was told") {
    w.rendezvous.count_from(kOwn, 3, at_ms(1));
    CHECK(w.answered(stream));
  }
  SECTION("ours is another") {
    w.rendezvous.count_from(kOwn, 4, at_ms(1));
    CHECK(w.refused(stream, MarkRefusal::not_the_peer));
  }
  SECTION("theirs comes with the next call") {
    theirs.own_psn = 7;
    const auto again = w.ask(theirs, 1);
    CHECK(w.answered(again));
  }
  SECTION("and its caller is soon asked to say more") {
    const Instant soon = at_ms(0) + Rendezvous::kUnprovenKept;
    w.rendezvous.on_time(soon - nanoseconds(1));
    CHECK(w.silent());
    w.rendezvous.on_time(soon);
    CHECK(w.refused(stream, MarkRefusal::not_ready));
  }
  SECTION("one that came before RTR, too") {
    const auto early = w.ask(peers(kLower, {77}), 0);
    CHECK(w.silent());
    Meeting before = peers(kLower, {78});
    before.own_psn.reset();
    const auto unproven = w.ask(before, 0);
    w.rendezvous.on_time(at_ms(1000));
    CHECK(w.refused(stream, MarkRefusal::not_ready));
    w.rendezvous.ready(0, meets(kLower, {78}), at_ms(1000));
    CHECK(w.silent());
    w.rendezvous.on_time(at_ms(1200));
    CHECK(w.refused(unproven, MarkRefusal::not_ready));
    w.rendezvous.on_time(at_ms(5000));
    CHECK(w.refused(early, MarkRefusal::not_ready));
  }
}

TEST_CASE("strangers' Requests are bounded, of one and of all, and a queue pair in RTR is found all the same",
          "[control][oob]") {
  World w;
  const auto stranger = [](unsigned i) { return wire::IpAddress::v4(10, 1, std::uint8_t(i >> 8), std::uint8_t(i)); };
  SECTION("of one for one queue pair") {
    const auto first = w.ask(peers(kLower));
    w.ask(peers(kLower));
    CHECK(w.silent());
    w.ask(peers(kLower));
    CHECK(w.refused(first, MarkRefusal::busy));
    CHECK(w.rendezvous.waiting_requests() == Rendezvous::kRequestsForOne);
  }
  SECTION("of one") {
    for (std::uint32_t i = 0; i < Rendezvous::kRequestsOfCaller; ++i) w.ask(peers(kLower, {1000 + i}));
    CHECK(w.silent());
    CHECK(w.refused(w.ask(peers(kLower, {5000})), MarkRefusal::busy));
    w.ask(peers(kHigher, {5000}));
    CHECK(w.silent());
  }
  SECTION("of all") {
    for (unsigned i = 0; i < Rendezvous::kRequestsMax; ++i) w.ask(peers(stranger(i)));
    CHECK(w.silent());
    CHECK(w.refused(w.ask(peers(kLower)), MarkRefusal::busy));
    CHECK(w.rendezvous.waiting_requests() == Rendezvous::kRequestsMax);
  }
  w.rendezvous.ready(0, meets(kLower, {77}), at_ms(1));
  w.acts();
  CHECK(w.answered(w.ask(peers(kLower, {77}), 2), {77}));
  w.rendezvous.on_time(at_ms(6000));
  CHECK(w.rendezvous.waiting_requests() == 0);
}

TEST_CASE("a Request for the next connection waits while the last one lives", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  CHECK(w.answered(w.ask(peers(kLower))));
  Meeting next = peers(kLower);
  next.own_psn = 50;
  const auto stream = w.ask(next, 1);
  CHECK(w.silent());
  w.rendezvous.forget(kOwn);
  CHECK(w.silent());
  Meeting own = meets(kLower);
  own.due_psn = 50;
  w.rendezvous.ready(0, own, at_ms(2));
  CHECK(w.answered(stream));
}

TEST_CASE("a caller that is gone when it is answered leaves the queue pair waiting", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.ask(peers(kLower));
  const auto answer = w.act();
  CHECK_FALSE(w.rendezvous.on_not_answered(answer.cookie - (std::uint64_t{1} << 24)));  // an earlier one's
  CHECK(w.rendezvous.stage(answer.qp) == Stage::together);
  CHECK(w.rendezvous.on_not_answered(answer.cookie));
  CHECK(w.rendezvous.stage(kOwn) == Stage::apart);
  CHECK(w.answered(w.ask(peers(kLower))));
}
