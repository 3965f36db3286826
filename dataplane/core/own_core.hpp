// How the thread that is a worker runs, and where: under SCHED_FIFO where that is allowed, but never so that nobody
// else gets its core; and away from the core of whoever rings (core/cpu_choice.hpp).
//
// Of the thread that is the worker, but for set_up_thread().
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/time.hpp"
#include "core/cpu_choice.hpp"
#include "core/nap.hpp"

namespace rnic::core {

class OwnCore {
 public:
  // `cpu`: -1: any. `realtime`: SCHED_FIFO where allowed. `crowded`: no core is without a worker of this process.
  OwnCore(int cpu, bool realtime, bool crowded = false);
  ~OwnCore();
  OwnCore(const OwnCore&) = delete;
  OwnCore& operator=(const OwnCore&) = delete;

  // Each thread that may become the worker.
  void set_up_thread() const;
  // This one is it from now on.
  void take(bool polls_always, Instant now);
  // One that polls always has a core of its own, and under SCHED_FIFO would keep everybody from it.
  void set_polls_always(bool polls);

  // Who woke us runs there (any number: it is an application's word).
  void on_rung_from(std::uint32_t cpu, Instant now);
  // Behind a turn with work. True: to another core.
  bool leave_ringer(Instant now);

  // Nothing is left to do. True: whoever rings had our core for a moment (core/nap.hpp), and is to be looked at again.
  bool nap(Instant now);
  // A turn has found so many posts that nobody rang for.
  void on_posts(std::uint32_t posts, Instant now) { nap_.on_posts(posts, now); }

  // A turn has done nothing, and there is no sleep.
  void give_way() const;
  // Behind a turn with work, one that gave way, or one with nothing to do that stays awake. True: it has rested, and
  // begin_stretch() is due.
  bool rest(Instant now);
  void begin_stretch(Instant now);
  void on_slept(Duration slept) { rested_ = rested_ + slept; }

 private:
  bool move_from(Instant now);
  int find_idle(std::span<const bool> open, Instant now);  // or -1

  int cpu_;
  bool wants_realtime_;
  bool realtime_ = false;
  bool movable_ = false;             // the core is ours to choose
  bool ringer_on_our_core_ = false;  // that is where the ringer who woke us ran
  CpuChoice choice_;
  Nap nap_;
  int stat_fd_;
  std::array<char, 65536> stat_text_{};
  std::array<Duration, CpuChoice::kCpusMax> idle_times_{};
  Instant stretch_began_{0};  // since when it is awake, but for
  Duration rested_{};
};

}  // namespace rnic::core
