// Detects that a worker that polls always (`poll = "always"`) shares its core with another busy thread.
//
// Two pollers on one core run in turns of a time slice each, so what takes microseconds takes milliseconds. The worker
// notices a gap in time between two polls that find nothing. Then it sleeps between pieces of work like any other (for
// that it may be scheduled before others again), and tries to poll again later.
//
// Pure: instants in, answers out.
#pragma once

#include "base/time.hpp"

namespace rnic::core {

class SharedCoreDetector {
 public:
  // Two polls so far apart: another thread ran in between. Interrupts take less, a time slice takes more.
  static constexpr Duration kGap = milliseconds(1);
  // So many within kWithin: no accident.
  static constexpr unsigned kGapsMax = 3;
  static constexpr Duration kWithin = milliseconds(100);
  // So long it sleeps then, doubling.
  static constexpr Duration kSharedFirst = seconds(1);
  static constexpr Duration kSharedMax = seconds(60);

  // A turn that began at `now` found nothing to do. True: look again at once.
  bool polls(Instant now) {
    if (now < shared_until_) {
      last_look_ = kNever;
      return false;
    }
    if (last_look_ != kNever && now - last_look_ >= kGap) on_gap(now);
    last_look_ = now;
    return now >= shared_until_;
  }

  // A turn had something to do, or the worker slept: what time is missing says nothing.
  void on_work() { last_look_ = kNever; }

  bool shares(Instant now) const { return now < shared_until_; }

 private:
  void on_gap(Instant now) {
    if (gaps_ == 0 || now - first_gap_ > kWithin) {
      gaps_ = 0;
      first_gap_ = now;
    }
    if (++gaps_ < kGapsMax) return;
    gaps_ = 0;
    // Polled well for long since the last time: that was somebody else.
    if (shared_until_ == Instant{0} || now - shared_until_ > span_) span_ = kSharedFirst;
    shared_until_ = now + span_;
    span_ = span_ * 2 < kSharedMax ? span_ * 2 : kSharedMax;
  }

  Instant last_look_ = kNever, first_gap_ = kNever, shared_until_{0};
  unsigned gaps_ = 0;
  Duration span_ = kSharedFirst;
};

}  // namespace rnic::core
