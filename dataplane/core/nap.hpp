// When a worker sleeps for a moment without being woken, so that an application on its core can post on.
//
// A worker under SCHED_FIFO that is woken by a post runs at once, and whoever posts on the same core waits meanwhile:
// it posts one piece of work for each sleep and wake, where it has a hundred to post. So where the last ring came from
// our core the worker does not ask to be woken, but looks again after a nap: posts cost no system call meanwhile, and
// come many at a time. Where they do not, as an application that waits for an answer posts one thing at a time, there
// is none for a while: what comes first in a nap waits for its end.
//
// Where there are cores without a worker the worker leaves who rings (core/cpu_choice.hpp), or he leaves it, and one
// nap that brought few posts is the last for a while. Where there are none, whoever posts shares a core with a worker,
// and with workers of other processes besides: one to which the posts go runs before the application does, for as long
// as a short nap takes. So naps that bring few posts become longer there, and those that bring many pay for others that
// bring none, as where the application has to wait for the wire.
//
// Pure: instants and counts in, an answer out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/time.hpp"

namespace rnic::core {

class Nap {
 public:
  static constexpr Duration kShortest = microseconds(20);
  static constexpr std::uint32_t kPostsMin = 4;    // that each is to bring
  static constexpr std::uint32_t kPostsMany = 16;  // after so many the next is a short one again, else a shorter one
  // A ring that is older says nothing of now.
  static constexpr Duration kNear = milliseconds(1);

  struct Manner {
    Duration longest;
    int debt_max, credit_max;  // posts, less than what naps were to bring, and more
    Duration pause;
  };
  static constexpr Manner kAtEase{.longest = kShortest, .debt_max = 0, .credit_max = 0, .pause = milliseconds(5)};
  static constexpr Manner kCrowded{
      .longest = microseconds(160), .debt_max = 12, .credit_max = 64, .pause = milliseconds(15)};

  // `crowded`: there is no core without a worker.
  explicit Nap(bool crowded = false) : manner_(crowded ? kCrowded : kAtEase) {}

  void on_rung(bool from_our_core, Instant now) {
    near_ = from_our_core;
    rung_at_ = now;
  }
  bool pays(Instant now) const { return near_ && now - rung_at_ < kNear && now >= not_before_; }
  // The next one's.
  Duration length() const { return length_; }
  void begin() { napped_ = true; }
  // A turn has found so many posts.
  void on_posts(std::uint32_t posts, Instant now) {
    if (!std::exchange(napped_, false)) return;
    constexpr std::uint32_t kCounted = 1000;  // as good as any more
    credit_ += static_cast<int>(std::min(posts, kCounted)) - static_cast<int>(kPostsMin);
    credit_ = std::min(credit_, manner_.credit_max);
    if (posts < kPostsMin)
      length_ = std::min(length_ * 2, manner_.longest);
    else
      length_ = posts >= kPostsMany ? kShortest : std::max(length_ / 2, kShortest);
    if (credit_ >= -manner_.debt_max) return;
    credit_ = 0;
    length_ = kShortest;
    not_before_ = now + manner_.pause;
  }

 private:
  Manner manner_;
  Duration length_ = kShortest;
  int credit_ = 0;
  bool near_ = false;
  bool napped_ = false;
  Instant rung_at_{0};
  Instant not_before_{0};
};

}  // namespace rnic::core
