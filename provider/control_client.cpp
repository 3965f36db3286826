/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "control_client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace rnic::provider {

namespace {

// Waits on a socket that somebody has made non-blocking.
void wait_for(int fd, short events) {
  pollfd one{fd, events, 0};
  poll(&one, 1, -1);
}

bool try_again(int fd, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  wait_for(fd, events);
  return true;
}

}  // namespace

void Descriptors::close_rest() {
  while (taken < count) ::close(fds[taken++]);
}

void ControlClient::open(int socket) {
  fd = socket;
  owner = getpid();
  next_id = 1;
  broken = 0;
  pthread_mutex_init(&mutex, nullptr);
}

void ControlClient::close() { pthread_mutex_destroy(&mutex); }

bool ControlClient::in_forked_child() const { return getpid() != owner; }

int ControlClient::call(std::uint32_t type, const void* request, std::size_t request_size, void* reply,
                        std::size_t reply_size, int fd_in, Descriptors* fds_out) {
  if (in_forked_child()) return EPERM;
  Descriptors fds{};
  pthread_mutex_lock(&mutex);
  const int error = exchange(type, request, request_size, reply, reply_size, fd_in, fds);
  pthread_mutex_unlock(&mutex);
  if (error != 0 || fds_out == nullptr) {
    fds.close_rest();
  } else {
    *fds_out = fds;
  }
  return error;
}

int ControlClient::exchange(std::uint32_t type, const void* request, std::size_t request_size, void* reply,
                            std::size_t reply_size, int fd_in, Descriptors& fds) {
  const std::atomic_ref gone(broken);
  if (gone.load() != 0) return EIO;

  rnic_msg header{type, next_id++, 0, static_cast<std::uint32_t>(sizeof header + request_size)};
  iovec parts[2] = {{&header, sizeof header}, {const_cast<void*>(request), request_size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)] = {};
  if (fd_in >= 0) {
    message.msg_control = ancillary;
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd_in, sizeof fd_in);
  }
  while (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) {
    if (try_again(fd, POLLOUT)) continue;
    gone.store(1);
    return EIO;
  }

  rnic_msg answer{};
  alignas(8) char body[RNIC_MSG_MAX];
  parts[0] = {&answer, sizeof answer};
  parts[1] = {body, sizeof body};
  message.msg_control = ancillary;
  message.msg_controllen = sizeof ancillary;
  ssize_t length = 0;
  while ((length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (!try_again(fd, POLLIN)) break;
    message.msg_controllen = sizeof ancillary;
  }
  if (length > 0) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count && fds.count < RNIC_FDS_MAX; ++i) {
        std::memcpy(&fds.fds[fds.count++], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      }
    }
  }

  // An end, or an answer to another question: there is nobody to talk to any more, and by the
  // hang-up the watcher learns of it too.
  const auto received = static_cast<std::size_t>(length);
  if (length < static_cast<ssize_t>(sizeof answer) || answer.type != type || answer.id != header.id) {
    gone.store(1);
    shutdown(fd, SHUT_RDWR);
    return EIO;
  }
  if (answer.status != 0) return answer.status > 0 ? answer.status : -answer.status;
  if (received - sizeof answer < reply_size) return EPROTO;
  if (reply_size != 0) std::memcpy(reply, body, reply_size);
  return 0;
}

}  // namespace rnic::provider
