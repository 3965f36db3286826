// Queue pairs that wait for their peers: who calls, which Request is whose, and for how long anybody waits.
#include "control/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kit/catch.hpp"

using namespace rnic;
using control::Rendezvous;
using Kind = Rendezvous::Act::Kind;
using Stage = Rendezvous::Stage;
using qp::State;
using wire::MarkRefusal;
using wire::Meeting;

namespace {

constexpr auto kHere = wire::IpAddress::v4(10, 0, 0, 5);
constexpr auto kLower = wire::IpAddress::v4(10, 0, 0, 1), kHigher = wire::IpAddress::v4(10, 0, 0, 9);
constexpr QpNumber kOwn{100}, kPeer{200};

constexpr Instant at_ms(std::int64_t ms) { return Instant{0} + seconds(1000) + milliseconds(ms); }

// What a queue pair here is told at RTR: its peer counts from 7.
Meeting meets(const wire::IpAddress& peer, QpNumber own = kOwn, QpNumber other = kPeer) {
  return {.own_gid = kHere, .peer_gid = peer, .own_number = own, .peer_number = other, .own_psn = {}, .due_psn = 7};
}
// And what that peer says of itself: it was told that ours counts from 3.
Meeting peers(const wire::IpAddress& peer, QpNumber own = kOwn, QpNumber other = kPeer) {
  return {.own_gid = peer, .peer_gid = kHere, .own_number = other, .peer_number = own, .own_psn = 7, .due_psn = 3};
}

struct World {
  Rendezvous rendezvous;
  std::uint64_t next_stream = 1;
  std::array<std::byte, wire::Mark::kSizeMax> octets{};

  std::vector<Rendezvous::Act> acts() {
    std::vector<Rendezvous::Act> all;
    while (const auto act = rendezvous.next_act()) all.push_back(*act);
    return all;
  }
  // The only one.
  Rendezvous::Act act() {
    const auto all = acts();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  bool silent() { return acts().empty(); }

  Rendezvous::Stream ask(Bytes private_data, const wire::IpAddress& from, std::int64_t ms = 0, bool exists = true,
                         std::uint32_t device = 0, const wire::IpAddress& to = kHere) {
    const Rendezvous::Stream stream{device, {next_stream++}};
    rendezvous.on_request({.stream = stream, .from = from, .to = to, .private_data = private_data}, exists, at_ms(ms));
    return stream;
  }
  Rendezvous::Stream ask(const Meeting& meeting, std::int64_t ms = 0, bool exists = true, std::uint32_t device = 0) {
    wire::Mark mark;
    mark.capabilities = wire::mark_capability::kOob;
    mark.needed = wire::mark_capability::kOob;
    mark.meeting = meeting;
    return ask(Bytes(octets).first(wire::emit(mark, octets)), meeting.own_gid, ms, exists, device);
  }
  // Refused, for that.
  bool refused(const Rendezvous::Stream& stream, MarkRefusal why) {
    const auto all = acts();
    return all.size() == 1 && all[0].kind == Kind::refuse && all[0].stream == stream && all[0].mark &&
           all[0].mark->kind == wire::Mark::Kind::refusal && all[0].mark->refusal == why;
  }
  bool answered(const Rendezvous::Stream& stream, QpNumber qp = kOwn) {
    const auto all = acts();
    return all.size() == 1 && all[0].kind == Kind::answer && all[0].stream == stream && all[0].qp == qp;
  }
};

}  // namespace

// ---- who calls -------------------------------------------------------------------------------------

TEST_CASE("the lower GID calls at RTR, saying what it was told", "[control][oob]") {
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

TEST_CASE("a call that fails is made again, with longer and longer pauses", "[control][oob]") {
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

TEST_CASE("a Request of the one who is meant is answered, in RTR", "[control][oob]") {
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

TEST_CASE("what is not as the queue pair named it is refused", "[control][oob]") {
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

TEST_CASE("W-ACK-08: how long what is posted waits for a peer that does not come is its application's affair",
          "[control][oob][roce][W-ACK-08]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0), Face::roce);
  const bool endless = GENERATE(true, false);
  w.rendezvous.count_from(kOwn, 3, at_ms(0), endless ? std::nullopt : std::optional(milliseconds(700)));
  w.acts();
  w.rendezvous.on_time(at_ms(500));
  w.acts();
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.rendezvous.on_time(at_ms(1199));
  if (!endless) {
    CHECK(w.silent());
    w.rendezvous.on_time(at_ms(1200));
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
    w.rendezvous.on_time(at_ms(199));
    CHECK(w.silent());
    w.rendezvous.on_time(at_ms(200));
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
  w.rendezvous.on_not_answered(answer.cookie);
  CHECK(w.rendezvous.stage(kOwn) == Stage::apart);
  CHECK(w.answered(w.ask(peers(kLower))));
}

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
    called.rendezvous.on_time(at_ms(arrives + 4'999));
    for (const auto& act : called.acts()) CHECK(act.kind == Kind::look);
    called.rendezvous.on_time(at_ms(arrives + 5'000));
    CHECK(called.act().kind == Kind::give_up);
  }
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

TEST_CASE("a peer that comes in time ends the waiting", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  w.rendezvous.on_time(at_ms(500));
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.acts();
  CHECK(w.answered(w.ask(peers(kLower), 30'499)));
  w.rendezvous.on_time(at_ms(40'000));
  CHECK(w.silent());
  CHECK(w.rendezvous.stage(kOwn) == Stage::together);
}

TEST_CASE("callers that come and go do not make the waiting longer", "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kLower), at_ms(0));
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  w.rendezvous.on_time(at_ms(500));
  w.rendezvous.posted(kOwn, true, at_ms(500));
  w.acts();
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
    CHECK(w.rendezvous.next_deadline() == at_ms(31'200));
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

TEST_CASE("one whose peer has gone calls nobody and answers nobody, and what it posts fails in time",
          "[control][oob]") {
  World w;
  w.rendezvous.ready(0, meets(kHigher), at_ms(0));
  const auto call = w.act();
  w.rendezvous.on_established(call.cookie);
  w.rendezvous.count_from(kOwn, 3, at_ms(0));
  CHECK(w.rendezvous.on_ended(call.cookie, State::idle, at_ms(0)));
  CHECK(w.rendezvous.stage(kOwn) == Stage::left);
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

// ---- two daemons -----------------------------------------------------------------------------------

namespace {

// Two of them and what is on its way between them. Applications reset their queue pairs and begin again whenever they
// like, with the same numbers; daemons die.
struct TwoDaemons {
  struct Connection {
    unsigned caller = 0;  // which of the two
    std::uint64_t caller_cookie = 0, answer_cookie = 0;
    Meeting meeting;  // as the caller said it
    bool dropped = false, answered = false;
    unsigned lives[2] = {0, 0};  // which of the daemons of either side it is of
  };
  struct Due {
    Instant at;
    std::function<void()> what;
  };

  static constexpr wire::IpAddress kAddress[] = {kLower, kHigher};
  static constexpr QpNumber kNumber[] = {{100}, {200}};
  Rendezvous daemon[2];
  std::vector<Connection> connections;
  std::vector<Due> due;
  Instant now = at_ms(0);
  std::mt19937_64 random;
  std::uint32_t psn[2] = {0, 0};
  bool named[2] = {false, false};
  unsigned lives[2] = {0, 0};

  explicit TwoDaemons(std::uint64_t seed) : random(seed) {}

  void later(std::function<void()> what) {
    due.push_back({now + milliseconds(static_cast<std::int64_t>(random() % 30)), std::move(what)});
  }
  void drain(unsigned who) {
    while (const auto act = daemon[who].next_act()) {
      const std::size_t index = act->kind == Kind::call ? connections.size() : act->stream.id.value;
      switch (act->kind) {
        case Kind::call:
          connections.push_back({.caller = who, .caller_cookie = act->cookie, .meeting = act->mark->meeting});
          std::copy(lives, lives + 2, connections.back().lives);
          daemon[who].on_called(act->cookie, {0, {index}});
          later([=, this] { arrive(index); });
          break;
        case Kind::answer:
          if (connections[index].dropped) {
            daemon[who].on_not_answered(act->cookie);
            break;
          }
          connections[index].answered = true;
          connections[index].answer_cookie = act->cookie;
          later([=, this, theirs = act->mark->meeting] { reply(index, theirs); });
          break;
        case Kind::refuse:
          later([=, this] { tell_end(index, connections[index].caller); });
          break;
        case Kind::drop:
          drop(index);
          break;
        case Kind::look:
          for (const QpNumber qp : act->qps) daemon[who].posted(qp, false, now);
          break;
        case Kind::join:
        case Kind::give_up:
          FAIL("nobody asked for that");
      }
    }
  }
  void arrive(std::size_t index) {
    Connection& it = connections[index];
    if (it.dropped) return;
    if (it.lives[1 - it.caller] != lives[1 - it.caller]) return tell_end(index, it.caller);
    std::array<std::byte, wire::Mark::kSizeMax> octets;
    wire::Mark mark;
    mark.capabilities = wire::mark_capability::kOob;
    mark.meeting = it.meeting;
    const Bytes data = Bytes(octets).first(wire::emit(mark, octets));
    daemon[1 - it.caller].on_request(
        {.stream = {0, {index}}, .from = kAddress[it.caller], .to = kAddress[1 - it.caller], .private_data = data},
        true, now);
  }
  void reply(std::size_t index, const Meeting& theirs) {
    Connection& it = connections[index];
    if (it.dropped || !std::equal(lives, lives + 2, it.lives)) return;
    CHECK(mpa::match(it.meeting, theirs) == mpa::Match::yes);
    daemon[it.caller].on_established(it.caller_cookie);
    daemon[1 - it.caller].on_established(it.answer_cookie);
  }
  // The caller's end goes; who has answered hears of it.
  void drop(std::size_t index) {
    Connection& it = connections[index];
    if (std::exchange(it.dropped, true) || !it.answered) return;
    later([=, this] { tell_end(index, 1 - connections[index].caller); });
  }
  void tell_end(std::size_t index, unsigned who) {
    const Connection& it = connections[index];
    if (it.lives[who] == lives[who])
      daemon[who].on_ended(who == it.caller ? it.caller_cookie : it.answer_cookie, State::error, now);
  }
  // The queue pair's connections end with it.
  void reset(unsigned who) {
    named[who] = false;
    daemon[who].forget(kNumber[who]);
    for (std::size_t i = 0; i < connections.size(); ++i)
      if (connections[i].caller == who || connections[i].answered) {
        const bool of_caller = connections[i].caller == who;
        if (std::exchange(connections[i].dropped, true)) continue;
        later([=, this] { tell_end(i, of_caller ? 1 - connections[i].caller : connections[i].caller); });
      }
  }
  void name_peer(unsigned who) {
    named[who] = true;
    daemon[who].ready(0,
                      {.own_gid = kAddress[who],
                       .peer_gid = kAddress[1 - who],
                       .own_number = kNumber[who],
                       .peer_number = kNumber[1 - who],
                       .own_psn = {},
                       .due_psn = psn[1 - who]},
                      now);
  }
  void run(Duration time) {
    const Instant end = now + time;
    for (;;) {
      for (unsigned who : {0u, 1u}) drain(who);
      Instant next = std::min(daemon[0].next_deadline(), daemon[1].next_deadline());
      for (const Due& each : due) next = std::min(next, each.at);
      if (next > end) break;
      now = std::max(now, next);
      for (std::size_t i = 0; i < due.size();)
        if (due[i].at <= now) {
          const auto what = std::move(due[i].what);
          due.erase(due.begin() + static_cast<std::ptrdiff_t>(i));
          what();
        } else {
          ++i;
        }
      for (unsigned who : {0u, 1u}) daemon[who].on_time(now);
    }
    now = end;
  }
};

}  // namespace

TEST_CASE("whatever happened before, two that mean each other come together", "[control][oob]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    TwoDaemons w(seed);
    for (std::uint64_t step = w.random() % 12; step-- > 0;) {
      const unsigned who = static_cast<unsigned>(w.random() % 2);
      switch (w.random() % 5) {
        case 0:
          w.reset(who);
          w.psn[who] = static_cast<std::uint32_t>(w.random() % 3);  // often as before
          break;
        case 1:
          w.reset(who);
          w.name_peer(who);
          break;
        case 2:
          if (w.named[who]) w.daemon[who].count_from(TwoDaemons::kNumber[who], w.psn[who], w.now);
          break;
        case 3:  // the daemon dies with all that it had, and another comes
          w.reset(who);
          w.drain(who);
          w.daemon[who] = Rendezvous();
          ++w.lives[who];
          break;
        default:
          w.run(milliseconds(static_cast<std::int64_t>(w.random() % 3000)));
      }
    }
    // Both begin anew, with what they have told each other, one after the other's reset.
    for (unsigned who : {0u, 1u}) w.reset(who);
    w.run(milliseconds(static_cast<std::int64_t>(w.random() % 100)));
    w.psn[0] = static_cast<std::uint32_t>(w.random() % 3) + 100;
    w.psn[1] = static_cast<std::uint32_t>(w.random() % 3) + 200;
    const unsigned first = static_cast<unsigned>(w.random() % 2);
    w.name_peer(first);
    if (w.random() % 2 != 0) w.daemon[first].count_from(TwoDaemons::kNumber[first], w.psn[first], w.now);
    w.run(milliseconds(static_cast<std::int64_t>(w.random() % 20'000)));
    w.name_peer(1 - first);
    const unsigned counts = static_cast<unsigned>(w.random() % 2);
    w.daemon[counts].count_from(TwoDaemons::kNumber[counts], w.psn[counts], w.now);
    w.run(seconds(15));
    INFO("seed " << seed);
    CHECK(w.daemon[0].stage(TwoDaemons::kNumber[0]) == Stage::together);
    CHECK(w.daemon[1].stage(TwoDaemons::kNumber[1]) == Stage::together);
    CHECK(w.daemon[0].waiting_requests() == 0);
    CHECK(w.daemon[1].waiting_requests() == 0);
  }
}
