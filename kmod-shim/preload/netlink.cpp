// The socket that the application has is one of NETLINK_USERSOCK: what it does with bind, getsockname, select or
// recvmsg is the kernel's doing. Answers come by another such socket of ours, which the first is connected to, so that
// nobody else on the machine can answer.
#include "netlink.hpp"

#include <errno.h>
#include <limits.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <new>

#include "client.hpp"
#include "descriptors.hpp"
#include "libc.hpp"
#include "lock.hpp"
#include "rnic_control.h"
#include "sysfs.hpp"

namespace rnic::preload {
namespace {

struct Netlink : Object {
  int sender = -1;  // by which we answer
  std::uint64_t sender_cookie = 0;
  std::uint32_t port_id = 0;  // of the application's socket; 0: nothing was asked yet
};

void close_netlink(Object& object) {
  auto& socket = static_cast<Netlink&>(object);
  close_hidden(socket.sender, socket.sender_cookie);
}

void free_netlink(Object& object) { free(&static_cast<Netlink&>(object)); }

int fail(int error) {
  errno = error;
  return -1;
}

bool name_of(int fd, sockaddr_nl& name) {
  socklen_t size = sizeof name;
  name = {};
  return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 && size == sizeof name;
}

bool bind_to_any(int fd) {
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  return bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

// Once, before the first answer. What somebody else may have sent till then is thrown away.
bool take_answers_of_ours_only(Netlink& socket, int fd) {
  sockaddr_nl name;
  if (!name_of(fd, name)) return false;
  if (name.nl_pid == 0 && (!bind_to_any(fd) || !name_of(fd, name))) return false;
  sockaddr_nl ours;
  if (!name_of(socket.sender, ours)) return false;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&ours), sizeof ours) != 0) return false;
  char octet;
  while (recv(fd, &octet, sizeof octet, MSG_DONTWAIT) >= 0 || errno == ENOBUFS) {
  }
  socket.port_id = name.nl_pid;
  return true;
}

// Messages on their way to a socket, from `next` on.
struct Answers {
  unsigned char* octets = nullptr;  // mapped
  std::size_t size = 0;
  std::size_t next = 0;
  int sender = -1;
  std::uint32_t to = 0;
};

void let_go(const Answers& answers) {
  if (answers.octets != nullptr) munmap(answers.octets, answers.size);
}

// One datagram each, as `rdma` wants no more in its buffer. False: the receiver has no room now.
bool send_some(Answers& answers, int flags) {
  sockaddr_nl to{};
  to.nl_family = AF_NETLINK;
  to.nl_pid = answers.to;
  while (answers.size - answers.next >= sizeof(nlmsghdr)) {
    nlmsghdr head;
    memcpy(&head, answers.octets + answers.next, sizeof head);
    if (head.nlmsg_len < sizeof head || head.nlmsg_len > answers.size - answers.next) return true;
    const ssize_t sent = libc().sendto(answers.sender, answers.octets + answers.next, head.nlmsg_len,
                                       flags | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno != EAGAIN && errno != ENOBUFS;
    answers.next += NLMSG_ALIGN(head.nlmsg_len);
    if (answers.next > answers.size) return true;
  }
  return true;
}

void* send_rest(void* argument) {
  auto* const answers = static_cast<Answers*>(argument);
  send_some(*answers, 0);
  libc().close(answers->sender);
  let_go(*answers);
  free(answers);
  return nullptr;
}

// More than the receiver takes at once: a thread sends it as it reads, until it closes its socket. 0 or an errno.
int send_the_rest_later(Answers& answers) {
  void* const memory = malloc(sizeof answers);
  if (memory == nullptr) return ENOMEM;
  // A copy of its own: the application may close its socket, and with it ours.
  const int sender = libc().fcntl(answers.sender, F_DUPFD_CLOEXEC, answers.sender);
  if (sender < 0) {
    free(memory);
    return errno;
  }
  add_internal(sender);
  answers.sender = sender;
  auto* const rest = new (memory) Answers(answers);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 128 * 1024);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, send_rest, rest);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) {
    answers.octets = nullptr;  // the thread's now
    return 0;
  }
  libc().close(sender);
  free(memory);
  return error;
}

// What the daemon answers, mapped. 0 or an errno.
int ask(const rnic_netlink& request, Answers& answers) {
  rnic_handle_reply reply{};
  rnic_fds received{};
  Call call{.type = RNIC_NETLINK,
            .request = &request,
            .request_size = sizeof request,
            .reply = &reply,
            .reply_room = sizeof reply,
            .received = &received};
  const int error = process_call(call);
  if (error != 0) return error < 0 ? ECONNREFUSED : error;
  const int memory = received.count > 0 ? rnic_fds_take(&received) : -1;
  rnic_fds_close(&libc().for_abi, &received);
  if (memory < 0) return EPROTO;
  void* const mapped = reply.handle == 0 ? MAP_FAILED : mmap(nullptr, reply.handle, PROT_READ, MAP_PRIVATE, memory, 0);
  libc().close(memory);
  if (reply.handle == 0) return EINVAL;
  if (mapped == MAP_FAILED) return errno;
  answers.octets = static_cast<unsigned char*>(mapped);
  answers.size = reply.handle;
  return 0;
}

}  // namespace

int open_netlink(int type) {
  const NoCancel no_cancel;
  if (!daemon_listens()) return fail(EPROTONOSUPPORT);
  void* const memory = malloc(sizeof(Netlink));
  if (memory == nullptr) return fail(ENOMEM);
  auto* const socket = new (memory) Netlink;
  const int fd = libc().socket(AF_NETLINK, type, NETLINK_USERSOCK);
  const int sender = libc().socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK);
  const bool made = fd >= 0 && sender >= 0 && bind_to_any(sender);
  socket->kind = Kind::netlink;
  socket->on_close = close_netlink;
  socket->on_free = free_netlink;
  socket->cookie = made ? socket_cookie(fd) : 0;
  if (made) {
    socket->sender = hide_descriptor(sender);
    socket->sender_cookie = socket_cookie(socket->sender);
    if (add_descriptor(fd, *socket)) return fd;
    close_netlink(*socket);
  } else if (sender >= 0) {
    libc().close(sender);
  }
  if (fd >= 0) libc().close(fd);
  free(socket);
  return fail(EPROTONOSUPPORT);
}

ssize_t send_netlink(Object& object, int fd, const msghdr& message) {
  const NoCancel no_cancel;
  auto& socket = static_cast<Netlink&>(object);
  rnic_netlink request{};
  std::size_t size = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const iovec& piece = message.msg_iov[i];
    if (piece.iov_len > sizeof request.octets - size) return fail(EMSGSIZE);
    memcpy(request.octets + size, piece.iov_base, piece.iov_len);
    size += piece.iov_len;
  }
  if (socket.port_id == 0 && !take_answers_of_ours_only(socket, fd)) return -1;
  request.length = static_cast<std::uint32_t>(size);
  request.port_id = socket.port_id;
  Answers answers{.sender = socket.sender, .to = socket.port_id};
  int error = ask(request, answers);
  if (error == 0 && !send_some(answers, MSG_DONTWAIT)) error = send_the_rest_later(answers);
  let_go(answers);
  return error == 0 ? static_cast<ssize_t>(size) : fail(error);
}

}  // namespace rnic::preload
