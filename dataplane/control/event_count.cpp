#include "control/event_count.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace rnic::control {
namespace {
// Of a hangup we are told whatever we ask for; so only once.
constexpr std::uint32_t kQuiet = EPOLLET;
}  // namespace

std::unique_ptr<EventCount> EventCount::create(Loop& loop) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  std::unique_ptr<EventCount> made(new EventCount(loop));
  made->reader_ = Descriptor(ends[0]);
  made->writer_ = Descriptor(ends[1]);
  // What is sent to us would lie there, descriptors too, until our end is closed.
  shutdown(ends[1], SHUT_RD);
  EventCount* count = made.get();
  made->watch_ = loop.add(ends[1], kQuiet, [count](std::uint32_t) { count->send_waiting(); });
  if (made->watch_ == Loop::kNone) return nullptr;
  return made;
}

EventCount::~EventCount() { loop_.remove(watch_); }

void EventCount::add(std::uint32_t count) {
  if (broken_) return;
  waiting_ += count;
  if (!full_) send_waiting();
}

std::uint32_t EventCount::withdraw(std::uint32_t count) {
  const auto unsent = static_cast<std::uint32_t>(std::min<std::uint64_t>(waiting_, count));
  waiting_ -= unsent;
  return count - unsent;
}

void EventCount::send_waiting() {
  static constexpr std::array<char, 256> kOctets{};
  while (waiting_ > 0) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(waiting_, kOctets.size()));
    const ssize_t sent = send(writer_.get(), kOctets.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      waiting_ -= static_cast<std::uint64_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) {
      if (!full_) loop_.change(watch_, EPOLLOUT);
      full_ = true;
      return;
    }
    broken_ = true;
    waiting_ = 0;
  }
  // Not without need: whoever has hung up is told again at each change.
  if (full_) loop_.change(watch_, kQuiet);
  full_ = false;
}

}  // namespace rnic::control
