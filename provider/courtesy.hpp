/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// A poller that finds nothing lets others on its core work.
//
// Applications poll without pause, and small machines have fewer cores than pollers: two that share
// a core would each wait out the other's time slice, milliseconds, though all that either does is
// look into an empty ring. So now and then an empty poll gives its core up. How long that took says
// whether it was good: at once back means nobody else wants the core, and it is asked more seldom;
// very long means that the other is no poller of ours and keeps what it gets, and again it is asked
// more seldom; in between two pollers pass the core to each other in microseconds.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "ring.hpp"

namespace rnic::provider {

struct Courtesy {
  // Empty polls between two such gifts: some microseconds at least, a millisecond or so at most.
  static constexpr std::uint32_t kEmptyPollsMin = 128;
  static constexpr std::uint32_t kEmptyPollsMax = 65536;
  // A yield that comes back sooner met nobody.
  static constexpr std::int64_t kAloneNs = 900;
  // One that comes back later met somebody who does not give the core back.
  static constexpr std::int64_t kGreedyNs = 200'000;

  std::uint32_t empty_polls;
  std::uint32_t spacing;  // 0: never asked yet

  // After each poll, under the CQ's lock. True: call yield(), without the lock.
  bool after_poll(int found) {
    if (found > 0) {
      empty_polls = 0;
      return false;
    }
    if (++empty_polls < load(spacing, std::memory_order_relaxed)) return false;
    empty_polls = 0;
    return true;
  }

  // `spacing` is a hint: threads that poll one CQ together may both set it.
  void yield() {
    const std::int64_t before = now_ns();
    sched_yield();
    learn(now_ns() - before);
  }

  // A yield was away so long.
  void learn(std::int64_t away) {
    const bool shared = away > kAloneNs && away < kGreedyNs;
    const std::uint32_t last = load(spacing, std::memory_order_relaxed);
    const std::uint32_t next = shared || last < kEmptyPollsMin ? kEmptyPollsMin : last * 2;
    store(spacing, next < kEmptyPollsMax ? next : kEmptyPollsMax, std::memory_order_relaxed);
  }

 private:
  static std::int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
};

}  // namespace rnic::provider
