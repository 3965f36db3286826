// Whether a worker that found nothing to do waits awake for the next piece of work, or sleeps.
//
// A sleep costs two system calls, and whoever brings the next piece a third: not worth it where work
// comes every few microseconds. But with as many busy threads as cores whoever brings it may share
// the worker's core, and cannot while the worker waits. Both happen in turn where two applications
// answer each other, so it is learned for each source of work: a source whose work was awaited in
// vain a few times is not waited for, for a while.
//
// Pure: instants in, answers out.
#pragma once

#include "base/time.hpp"

namespace rnic::core {

// What is known of one source: an application's doorbells, or the wire.
struct SourceHabit {
  unsigned vain_waits = 0;
  Instant at_once_until{0};
};

class Patience {
 public:
  // A sleep shorter than this: work comes fast, and was worth waiting for.
  static constexpr Duration kShortSleep = microseconds(20);
  // So long it is waited for.
  static constexpr Duration kAwaitNext = microseconds(10);
  // Waits in vain in a row, after which the worker sleeps at once, for so long.
  static constexpr unsigned kVainWaitsMax = 4;
  static constexpr Duration kVainPause = milliseconds(5);

  // A turn did work; `source`: who brought it, or null: not known.
  void on_work(Instant now, SourceHabit* source) {
    if (waiting_ && source_ != nullptr) source_->vain_waits = 0;
    waiting_ = false;
    last_work_ = now;
    source_ = source;
  }

  // A turn found nothing. True: look again; false: sleep.
  bool waits(Instant now) {
    if (fast_ && source_ != nullptr && now >= source_->at_once_until && now - last_work_ < kAwaitNext) {
      waiting_ = true;
      return true;
    }
    if (waiting_ && source_ != nullptr && ++source_->vain_waits >= kVainWaitsMax) {
      source_->vain_waits = 0;
      source_->at_once_until = now + kVainPause;
    }
    waiting_ = false;
    return false;
  }

  void on_slept(Duration slept) { fast_ = slept < kShortSleep; }

  // A source goes away.
  void forget(const SourceHabit& source) {
    if (source_ == &source) source_ = nullptr;
  }

  Instant last_work() const { return last_work_; }

 private:
  SourceHabit* source_ = nullptr;
  Instant last_work_{0};
  bool fast_ = false;
  bool waiting_ = false;
};

}  // namespace rnic::core
