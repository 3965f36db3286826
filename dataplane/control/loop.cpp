#include "control/loop.hpp"

#include <unistd.h>

#include "base/assert.hpp"

namespace rnic::control {

Loop::Loop() : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) { RNIC_ASSERT(epoll_fd_ >= 0); }

Loop::~Loop() { close(epoll_fd_); }

Loop::Watch Loop::add(int fd, std::uint32_t events, Handler handler) {
  const Watch watch = next_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) return kNone;
  auto entry = std::make_shared<Entry>();
  entry->fd = fd;
  entry->handler = std::move(handler);
  entries_.emplace(watch, std::move(entry));
  return watch;
}

void Loop::change(Watch watch, std::uint32_t events) {
  const auto found = entries_.find(watch);
  if (found == entries_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, found->second->fd, &event);
}

void Loop::remove(Watch watch) {
  const auto found = entries_.find(watch);
  if (found == entries_.end()) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, found->second->fd, nullptr);
  entries_.erase(found);
}

void Loop::run() {
  while (!stopping_) turn(-1);
}

bool Loop::turn(int timeout_ms) {
  epoll_event events[64];
  const int count = epoll_wait(epoll_fd_, events, 64, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto found = entries_.find(events[i].data.u64);
    if (found == entries_.end()) continue;
    const std::shared_ptr<Entry> kept = found->second;
    kept->handler(events[i].events);
  }
  return count > 0;
}

}  // namespace rnic::control
