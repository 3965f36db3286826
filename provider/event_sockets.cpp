/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Sockets of events: a context's async events, a completion channel's.
//
// libibverbs reads them itself, so the unread events of an object that goes have to come out of the
// socket, and all others to be put back. Taking out makes room, which the daemon would fill at once
// with what waits at its end. So it is told to hold that back meanwhile (RNIC_HOLD_EVENTS); and
// where there is no daemon any more, one lock keeps this process's own writers out. What was taken
// out then fits in again, before anything younger: nothing waits, nothing is lost, and the events
// of one object keep their order.
#include <pthread.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

#include "context.hpp"

namespace rnic::provider {

namespace {

// One for the process, since contexts may share a channel. Taken after `objects` and after a CQ's lock;
// under it, nothing is but that of the control socket. A forked child, which may find it taken for ever, never asks.
pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER;

struct Message {
  std::uint64_t words[2];
  std::size_t size;
};

struct Messages {
  Message* at;
  std::size_t count;
  std::size_t room;

  bool make_room() {
    if (count < room) return true;
    const std::size_t more = room == 0 ? 512 : room * 2;  // 512: what a socket holds, unless somebody made it larger
    auto* grown = static_cast<Message*>(std::realloc(at, more * sizeof(Message)));
    if (grown == nullptr) return false;
    at = grown;
    room = more;
    return true;
  }
};

bool try_send(int fd, const void* message, std::size_t size) {
  for (;;) {
    if (send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    // Whoever cannot be told for another reason than a full socket has gone, too.
    if (errno != EINTR) return errno != EAGAIN && errno != ENOBUFS;
  }
}

bool is_empty(int reader) {
  char octet = 0;
  return recv(reader, &octet, sizeof octet, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

// Takes the events of one object out, and returns how many there were.
std::uint32_t filter(int reader, int writer, std::uint64_t element) {
  Messages kept{};
  std::uint32_t dropped = 0;
  while (kept.make_room()) {  // without memory the rest stays as it is
    Message& message = kept.at[kept.count];
    const ssize_t size = recv(reader, message.words, sizeof message.words, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < static_cast<ssize_t>(sizeof(std::uint64_t))) break;
    message.size = static_cast<std::size_t>(size);
    if (message.words[0] == element) {
      ++dropped;
    } else {
      ++kept.count;
    }
  }
  for (std::size_t i = 0; i < kept.count; ++i) try_send(writer, kept.at[i].words, kept.at[i].size);
  std::free(kept.at);
  return dropped;
}

}  // namespace

bool send_event(const Context& context, int writer, const void* message, std::size_t size) {
  if (context.control.in_forked_child()) return try_send(writer, message, size);
  pthread_mutex_lock(&in_use);
  const bool sent = try_send(writer, message, size);
  pthread_mutex_unlock(&in_use);
  return sent;
}

std::uint32_t drop_events(Context& context, const EventSocket& socket, const void* object) {
  if (context.control.in_forked_child()) return 0;
  std::uint32_t dropped = 0;
  pthread_mutex_lock(&in_use);
  const int before = errno;  // who destroys an object that others failed to make tells why they did
  if (!is_empty(socket.reader)) {
    const rnic_hold_events request{socket.channel_cookie};
    const int error = context.control.call(RNIC_HOLD_EVENTS, &request, sizeof request, nullptr, 0);
    dropped = filter(socket.reader, socket.writer, reinterpret_cast<std::uintptr_t>(object));
    if (error == 0) context.control.call(RNIC_RELEASE_EVENTS, nullptr, 0, nullptr, 0);
  }
  errno = before;
  pthread_mutex_unlock(&in_use);
  return dropped;
}

}  // namespace rnic::provider
