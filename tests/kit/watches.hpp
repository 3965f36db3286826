// The kernel's limit on what a user's programs may watch with epoll, met when a test wants it: this
// program's own epoll_ctl() stands before libc's.
#pragma once

#include <limits>

namespace rnic::test {

// While it lives so many more watches can be added, and then ENOSPC, as where fs.epoll.max_user_watches
// is used up.
class WatchesLeft {
 public:
  explicit WatchesLeft(int count);
  ~WatchesLeft();
  static int now();
  WatchesLeft(const WatchesLeft&) = delete;
  WatchesLeft& operator=(const WatchesLeft&) = delete;
};

}  // namespace rnic::test
