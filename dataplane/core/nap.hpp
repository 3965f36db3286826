// When a worker sleeps for a moment without being woken, so that an application on its core can post on.
//
// A worker under SCHED_FIFO that is woken by a post runs at once, and whoever posts on the same core waits meanwhile:
// it posts one piece of work for each sleep and wake, where it has a hundred to post. So where the last ring came from
// our core the worker does not ask to be woken, but looks again after kLength: posts cost no system call meanwhile, and
// come many at a time. Where they do not, as an application that waits for an answer posts one thing at a time, it is
// not done for kPause: what comes first in a nap waits for its end.
//
// Pure: instants and counts in, an answer out.
#pragma once

#include <cstdint>
#include <utility>

#include "base/time.hpp"

namespace rnic::core {

class Nap {
 public:
  static constexpr Duration kLength = microseconds(20);
  static constexpr std::uint32_t kPostsMin = 4;  // that it is to bring
  static constexpr Duration kPause = milliseconds(5);
  // A ring that is older says nothing of now.
  static constexpr Duration kNear = milliseconds(1);

  void on_rung(bool from_our_core, Instant now) {
    near_ = from_our_core;
    rung_at_ = now;
  }
  bool pays(Instant now) const { return near_ && now - rung_at_ < kNear && now >= not_before_; }
  void begin() { napped_ = true; }
  // A turn has found so many posts.
  void on_posts(std::uint32_t posts, Instant now) {
    if (std::exchange(napped_, false) && posts < kPostsMin) not_before_ = now + kPause;
  }

 private:
  bool near_ = false;
  bool napped_ = false;
  Instant rung_at_{0};
  Instant not_before_{0};
};

}  // namespace rnic::core
