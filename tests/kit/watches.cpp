#include "kit/watches.hpp"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {
std::atomic<int> left{std::numeric_limits<int>::max()};
}

extern "C" int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD) {
    int before = left;
    do {
      if (before == 0) {
        errno = ENOSPC;
        return -1;
      }
    } while (before != std::numeric_limits<int>::max() && !left.compare_exchange_weak(before, before - 1));
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}

namespace rnic::test {

WatchesLeft::WatchesLeft(int count) { left = count; }
WatchesLeft::~WatchesLeft() { left = std::numeric_limits<int>::max(); }
int WatchesLeft::now() { return left; }

}  // namespace rnic::test
