#include "control/event_socket.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace rnic::control {
namespace {
// Of a hangup we are told whatever we ask for; so only once.
constexpr std::uint32_t kQuiet = EPOLLET;
}  // namespace

std::unique_ptr<EventSocket> EventSocket::create(Loop& loop) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  std::unique_ptr<EventSocket> made(new EventSocket(loop));
  made->reader_ = Descriptor(ends[0]);
  made->writer_ = Descriptor(ends[1]);
  // What is sent to us would lie there, descriptors too, until our end is closed.
  shutdown(ends[1], SHUT_RD);
  socklen_t size = sizeof made->cookie_;
  if (getsockopt(ends[0], SOL_SOCKET, SO_COOKIE, &made->cookie_, &size) != 0) return nullptr;
  EventSocket* socket = made.get();
  made->watch_ = loop.add(ends[1], kQuiet, [socket](std::uint32_t) { socket->send_waiting(); });
  if (made->watch_ == Loop::kNone) return nullptr;
  return made;
}

EventSocket::~EventSocket() { loop_.remove(watch_); }

void EventSocket::send_completion(Subject& cq, std::uint64_t user_pointer) {
  if (cq.waiting == 0) submit({&cq, {user_pointer, 0}, sizeof(std::uint64_t)});
}

void EventSocket::send_async(Subject& subject, std::uint64_t element, std::uint32_t type) {
  // element, then event_type and reserved, as a little-endian host lays them out.
  submit({&subject, {element, type}, 2 * sizeof(std::uint64_t)});
}

void EventSocket::forget(Subject& subject) {
  subject.gone = true;
  if (subject.waiting != 0) forget_gone();
}

void EventSocket::forget_gone() {
  std::erase_if(waiting_, [](const Message& message) {
    if (message.subject->gone) message.subject->waiting = 0;
    return message.subject->gone;
  });
}

void EventSocket::submit(const Message& message) {
  if (broken_) return;
  if (waiting_.empty() && holds_ == 0) {
    switch (try_send(message)) {
      case Sent::yes:
        ++message.subject->sent;
        return;
      case Sent::broken:
        end();
        return;
      case Sent::full:
        break;
    }
  }
  if (waiting_.size() >= kWaitingMax) return;
  waiting_.push_back(message);
  ++message.subject->waiting;
  watch();
}

void EventSocket::hold() {
  ++holds_;
  unwatch();
}

void EventSocket::release() {
  if (--holds_ == 0 && !waiting_.empty()) watch();
}

void EventSocket::watch() {
  if (watching_ || holds_ != 0) return;
  watching_ = true;
  loop_.change(watch_, EPOLLOUT);
}

// Not without need: whoever has hung up is told again at each change.
void EventSocket::unwatch() {
  if (watching_) loop_.change(watch_, kQuiet);
  watching_ = false;
}

EventSocket::Sent EventSocket::try_send(const Message& message) {
  for (;;) {
    if (send(writer_.get(), message.words.data(), message.size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::yes;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS ? Sent::full : Sent::broken;
  }
}

void EventSocket::send_waiting() {
  while (!waiting_.empty() && holds_ == 0) {
    const Sent sent = try_send(waiting_.front());
    if (sent == Sent::full) return;
    if (sent == Sent::broken) {
      end();
      return;
    }
    ++waiting_.front().subject->sent;
    --waiting_.front().subject->waiting;
    waiting_.pop_front();
  }
  unwatch();
}

// Nobody has the reading end any more.
void EventSocket::end() {
  broken_ = true;
  for (const Message& message : waiting_) message.subject->waiting = 0;
  waiting_.clear();
  unwatch();
}

}  // namespace rnic::control
