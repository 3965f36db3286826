// Queue pairs that wait for their peers: two daemons, whose applications begin again whenever they like.
#include "control/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kit/catch.hpp"
#include "unit/control/rendezvous_world.hpp"

using namespace rnic;
using namespace rnic::test::rendezvous;

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
  struct Probe {
    unsigned from = 0;
    std::uint64_t cookie = 0;
    Meeting meeting;
  };
  static constexpr std::size_t kProbes = 1'000'000;  // their streams
  struct Due {
    Instant at;
    std::function<void()> what;
  };

  static constexpr wire::IpAddress kAddress[] = {kLower, kHigher};
  static constexpr QpNumber kNumber[] = {{100}, {200}};
  Rendezvous daemon[2];
  std::vector<Connection> connections;
  std::vector<Probe> probes;
  bool posts[2] = {false, false};
  unsigned given_up = 0;
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
            CHECK(daemon[who].on_not_answered(act->cookie));
            break;
          }
          connections[index].answered = true;
          connections[index].answer_cookie = act->cookie;
          later([=, this, theirs = act->mark->meeting] { reply(index, theirs); });
          break;
        case Kind::refuse:
          if (index >= kProbes)
            later([=, this, there = act->mark->refusal == MarkRefusal::there] {
              const Probe& it = probes[index - kProbes];
              daemon[it.from].on_probed(it.cookie, there ? Found::there : Found::not_there, now);
            });
          else
            later([=, this] { tell_end(index, connections[index].caller); });
          break;
        case Kind::drop:
          drop(index);
          break;
        case Kind::look:
          for (const QpNumber qp : act->qps) daemon[who].posted(qp, posts[who], now);
          break;
        case Kind::probe:
          probes.push_back({who, act->cookie, act->mark->meeting});
          later([=, this, index = probes.size() - 1] { arrive_probe(index); });
          break;
        case Kind::renew:
        case Kind::unprobe:
          break;
        case Kind::give_up:
          ++given_up;
          break;
        case Kind::join:
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
  void arrive_probe(std::size_t index) {
    const Probe& it = probes[index];
    if (random() % 4 == 0) return;  // lost
    std::array<std::byte, wire::Mark::kSizeMax> octets;
    wire::Mark mark;
    mark.kind = wire::Mark::Kind::probe;
    mark.capabilities = wire::mark_capability::kOob;
    mark.meeting = it.meeting;
    const Bytes data = Bytes(octets).first(wire::emit(mark, octets));
    daemon[1 - it.from].on_request({.stream = {0, {kProbes + index}},
                                    .from = kAddress[it.from],
                                    .to = kAddress[1 - it.from],
                                    .private_data = data},
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

TEST_CASE("W-MEET-02: who posts meets a peer that is there, whoever of the two calls and however long he pauses",
          "[control][oob][roce][W-MEET-02]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    TwoDaemons w(seed);
    const unsigned first = static_cast<unsigned>(w.random() % 2), posts = static_cast<unsigned>(w.random() % 2);
    w.name_peer(first);
    w.run(milliseconds(static_cast<std::int64_t>(w.random() % 20'000)));
    w.name_peer(1 - first);
    w.posts[posts] = true;
    w.daemon[posts].count_from(TwoDaemons::kNumber[posts], w.psn[posts], w.now, milliseconds(540));
    w.run(seconds(3));  // it is noticed, and answered
    INFO("seed " << seed);
    CHECK(w.given_up == 0);
    CHECK(w.daemon[0].stage(TwoDaemons::kNumber[0]) == Stage::together);
    CHECK(w.daemon[1].stage(TwoDaemons::kNumber[1]) == Stage::together);
  }
}

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
          if (w.named[who])
            w.daemon[who].count_from(TwoDaemons::kNumber[who], w.psn[who], w.now, milliseconds(w.random() % 5000));
          w.posts[who] = w.random() % 2 != 0;
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
    const unsigned posts = static_cast<unsigned>(w.random() % 2);
    w.posts[0] = w.posts[1] = false;
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
    w.given_up = 0;
    w.posts[posts] = true;
    w.daemon[counts].count_from(TwoDaemons::kNumber[counts], w.psn[counts], w.now);
    w.run(seconds(15));
    CHECK(w.given_up == 0);
    INFO("seed " << seed);
    CHECK(w.daemon[0].stage(TwoDaemons::kNumber[0]) == Stage::together);
    CHECK(w.daemon[1].stage(TwoDaemons::kNumber[1]) == Stage::together);
    CHECK(w.daemon[0].waiting_requests() == 0);
    CHECK(w.daemon[1].waiting_requests() == 0);
  }
}
