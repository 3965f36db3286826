// Two nodes and the wire between them, on one thread, from one seed.
//
// Time passes only here: while somebody has something to do, a turn costs a little of it; when
// nobody has, the clock jumps to the next thing that happens.
#pragma once

#include <algorithm>
#include <functional>

#include "sim/port.hpp"

namespace rnic::sim {

// A node has turn(), next_deadline() and idle(), and is made of options, the clock, a link out and one in, and
// something of its own.
template <typename Node>
class BasicWorld {
 public:
  // The applications' part of each step; says whether it did something.
  std::function<bool()> application;
  // When the applications want to be asked again, though nothing happened.
  std::function<Instant()> application_deadline;

  // One step of both sides; time moves on to the next thing that happens, or to `not_beyond`. False:
  // nothing is left that would ever happen.
  bool step(Instant not_beyond = kNever) {
    ++steps;
    a.turn();
    b.turn();
    if (application) application();
    Instant next = std::min(a.next_deadline(), b.next_deadline());
    if (application_deadline) next = std::min(next, application_deadline());
    if (!a.idle() || !b.idle()) next = std::min(next, clock.now + turn_cost_);
    if (next == kNever && not_beyond == kNever) return false;
    clock.now = std::min(std::max(next, clock.now + nanoseconds(100)), not_beyond);
    return true;
  }
  // Until `done`; false when `limit` of simulated time has passed, or nothing happens any more.
  bool run_until(const std::function<bool()>& done, Duration limit = seconds(300)) {
    const Instant end = clock.now + limit;
    while (!done()) {
      if (clock.now > end) return false;
      if (!step()) return done();
    }
    return true;
  }
  // Exactly so long, whatever happens or does not.
  void run_for(Duration time) {
    const Instant end = clock.now + time;
    while (clock.now < end) step(end);
  }

  Clock clock;
  Link a_to_b, b_to_a;
  Node a, b;
  std::uint64_t steps = 0;

 protected:
  template <typename Options, typename Own>
  BasicWorld(const LinkOptions& link, std::uint64_t seed, Duration turn_cost, const Options& of_a, Own own_a,
             const Options& of_b, Own own_b)
      : a_to_b(link, seed * 4 + 1),
        b_to_a(link, seed * 4 + 2),
        a(of_a, clock, a_to_b, b_to_a, own_a),
        b(of_b, clock, b_to_a, a_to_b, own_b),
        turn_cost_(turn_cost) {}

 private:
  Duration turn_cost_;
};

}  // namespace rnic::sim
