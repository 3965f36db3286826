// The socket that the application has is one of NETLINK_USERSOCK: what it does with bind, getsockname, select or
// recvmsg is the kernel's doing. Answers come by another such socket of ours, hidden. The first is connected to it, so
// that no other process can send to it, but to groups that the application joins.
#include "netlink.hpp"

#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "client.hpp"
#include "descriptors.hpp"
#include "libc.hpp"
#include "lock.hpp"
#include "rnic_control.h"

namespace rnic::preload {
namespace {

// Messages of the daemon's that are not sent yet, from `next` on.
struct Answer {
  unsigned char* octets = nullptr;  // mapped; null: all are sent
  std::size_t size = 0;
  std::size_t next = 0;
};

struct Netlink : Object {
  int sender = -1;
  std::uint64_t sender_cookie = 0;
  std::uint32_t port_id = 0;  // of the application's socket, once something was asked
  bool asking = false;        // a thread waits for the daemon
  Answer answer;
  Netlink* next = nullptr;
};

Mutex g_mutex;  // all that follows, and the fields of all of them; not held while the daemon is asked
Netlink* g_netlinks = nullptr;

void let_go_locked(Answer& answer) {
  if (answer.octets != nullptr) munmap(answer.octets, answer.size);
  answer = {};
}

void close_netlink(Object& object) {
  auto& socket = static_cast<Netlink&>(object);
  const Locked locked(g_mutex);
  Netlink** place = &g_netlinks;
  while (*place != &socket) place = &(*place)->next;
  *place = socket.next;
  close_hidden(socket.sender, socket.sender_cookie);
  socket.sender = -1;
  let_go_locked(socket.answer);
}

void free_netlink(Object& object) { free(&static_cast<Netlink&>(object)); }

int fail(int error) {
  errno = error;
  return -1;
}

bool name_of(int fd, sockaddr_nl& name) {
  socklen_t size = sizeof name;
  name = {};
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return false;
  if (size != sizeof name) errno = EIO;  // another socket is at its descriptor
  return size == sizeof name;
}

bool bind_to_any(int fd) {
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  return bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

// At no address that is a process's number: the application may want to have its own.
bool bind_out_of_the_way(int fd) {
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    name.nl_pid = 0x8000'0000u | (static_cast<std::uint32_t>(getpid()) << 12 & 0x7fff'f000u) | i;
    if (bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return true;
    if (errno != EADDRINUSE) return false;
  }
  return false;
}

bool is_connected_to(int fd, const sockaddr_nl& name) {
  sockaddr_nl peer{};
  socklen_t size = sizeof peer;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.nl_pid == name.nl_pid;
}

// Before the first answer, and again where the application has connected it elsewhere. What somebody else may have sent
// till then is thrown away. 0 or an errno.
int take_answers_of_ours_only(Netlink& socket, int fd) {
  sockaddr_nl ours, name;
  if (!name_of(socket.sender, ours)) return errno;
  if (socket.port_id != 0 && is_connected_to(fd, ours)) return 0;
  if (!name_of(fd, name)) return errno;
  if (name.nl_pid == 0 && (!bind_to_any(fd) || !name_of(fd, name))) return errno;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&ours), sizeof ours) != 0) return errno;
  char octet;
  while (libc().recv(fd, &octet, sizeof octet, MSG_DONTWAIT) >= 0 || errno == ENOBUFS) {
  }
  socket.port_id = name.nl_pid;
  return 0;
}

// One datagram each, as readers have a buffer for no more. 0, also where the socket takes no more now; or an errno, by
// which the rest is lost.
int send_some_locked(Netlink& socket) {
  Answer& answer = socket.answer;
  sockaddr_nl to{};
  to.nl_family = AF_NETLINK;
  to.nl_pid = socket.port_id;
  int error = socket_cookie(socket.sender) == socket.sender_cookie ? 0 : EIO;
  while (error == 0 && answer.size - answer.next >= sizeof(nlmsghdr)) {
    nlmsghdr head;
    memcpy(&head, answer.octets + answer.next, sizeof head);
    if (head.nlmsg_len < sizeof head || head.nlmsg_len > answer.size - answer.next) {
      error = EPROTO;
      break;
    }
    const ssize_t sent = libc().sendto(socket.sender, answer.octets + answer.next, head.nlmsg_len,
                                       MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return 0;
    if (sent < 0) error = errno;
    answer.next += NLMSG_ALIGN(head.nlmsg_len);
    if (answer.next > answer.size) answer.next = answer.size;
  }
  let_go_locked(answer);
  return error;
}

// What the daemon answers, mapped. 0 or an errno.
int ask(const rnic_netlink& request, Answer& answer) {
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
  if (memory < 0) return EMFILE;  // RLIMIT_NOFILE
  void* const mapped = reply.handle == 0 ? nullptr : mmap(nullptr, reply.handle, PROT_READ, MAP_PRIVATE, memory, 0);
  const int why = mapped == MAP_FAILED ? errno : 0;
  libc().close(memory);
  if (why != 0) return why;
  answer = {static_cast<unsigned char*>(mapped), reply.handle, 0};
  return 0;
}

bool copy(const msghdr& message, rnic_netlink& request) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const iovec& piece = message.msg_iov[i];
    if (piece.iov_len > sizeof request.octets - size) return false;
    if (piece.iov_len != 0) memcpy(request.octets + size, piece.iov_base, piece.iov_len);
    size += piece.iov_len;
  }
  request.length = static_cast<std::uint32_t>(size);
  return true;
}

}  // namespace

int open_netlink(int type) {
  const NoCancel no_cancel;
  // An older daemon does not know such requests.
  Answer none;
  if (ask(rnic_netlink{}, none) != 0) return fail(EPROTONOSUPPORT);
  void* const memory = malloc(sizeof(Netlink));
  if (memory == nullptr) return fail(ENOMEM);
  auto* const socket = new (memory) Netlink;
  const int fd = libc().socket(AF_NETLINK, type, NETLINK_USERSOCK);
  const int sender = fd < 0 ? -1 : libc().socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK);
  if (sender < 0 || !bind_out_of_the_way(sender)) {
    const int error = errno;
    if (sender >= 0) libc().close(sender);
    if (fd >= 0) libc().close(fd);
    free(socket);
    return fail(error == EMFILE || error == ENFILE || error == ENOMEM ? error : EPROTONOSUPPORT);
  }
  socket->kind = Kind::netlink;
  socket->on_close = close_netlink;
  socket->on_free = free_netlink;
  socket->cookie = socket_cookie(fd);
  socket->sender = hide_descriptor(sender);
  socket->sender_cookie = socket_cookie(socket->sender);
  {
    const Locked locked(g_mutex);
    socket->next = g_netlinks;
    g_netlinks = socket;
  }
  if (add_descriptor(fd, *socket)) return fd;
  close_netlink(*socket);
  libc().close(fd);
  free(socket);
  return fail(EMFILE);
}

ssize_t send_netlink(Object& object, int fd, const msghdr& message) {
  const NoCancel no_cancel;
  auto& socket = static_cast<Netlink&>(object);
  rnic_netlink request{};
  if (!copy(message, request)) return fail(EMSGSIZE);
  {
    const Locked locked(g_mutex);
    if (socket.asking || socket.answer.octets != nullptr) return fail(EBUSY);
    const int error = take_answers_of_ours_only(socket, fd);
    if (error != 0) return fail(error);
    request.port_id = socket.port_id;
    socket.asking = true;
  }
  Answer answer;
  int error = ask(request, answer);
  const Locked locked(g_mutex);
  socket.asking = false;
  socket.answer = answer;
  if (error == 0 && answer.octets != nullptr) error = send_some_locked(socket);
  return error == 0 ? static_cast<ssize_t>(request.length) : fail(error);
}

void after_receive(Object& object) {
  const NoCancel no_cancel;
  auto& socket = static_cast<Netlink&>(object);
  const Locked locked(g_mutex);
  if (socket.answer.octets != nullptr) send_some_locked(socket);
}

void move_sender(int from, int to) {
  const Locked locked(g_mutex);
  const std::uint64_t cookie = socket_cookie(to);
  for (Netlink* socket = g_netlinks; socket != nullptr; socket = socket->next) {
    if (socket->sender == from && socket->sender_cookie == cookie) socket->sender = to;
  }
}

void lock_netlinks() { g_mutex.lock(); }
void unlock_netlinks() { g_mutex.unlock(); }
// A thread that asked is the parent's.
void renew_netlinks() {
  g_mutex.renew();
  for (Netlink* socket = g_netlinks; socket != nullptr; socket = socket->next) socket->asking = false;
}

}  // namespace rnic::preload
