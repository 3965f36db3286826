#include "control/message.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace rnic::control {

namespace {

// As many as the kernel lets travel with one message: where one did not fit, the kernel would close it, and we wait.
constexpr std::size_t kFdsOfMessage = 253;

ssize_t receive(int socket, msghdr& message, int flags) {
  ssize_t got;
  do got = recvmsg(socket, &message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  return got;
}

// The descriptors of the message that is next, which keeps its own until it is taken. False: there was no room.
bool copy_descriptors(int socket, Request& request, Closer& closer, pid_t sender) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsOfMessage)];
  char octet;
  iovec part{&octet, sizeof octet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (receive(socket, message, MSG_PEEK) < 0) return false;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      request.descriptors.emplace_back(fd, closer, sender);
    }
  }
  return (message.msg_flags & MSG_CTRUNC) == 0;
}

}  // namespace

Received receive_request(int socket, Request& request, Closer& closer, pid_t sender) {
  request.descriptors.clear();
  request.size = 0;
  iovec parts[2] = {{&request.header, sizeof request.header}, {request.octets, sizeof request.octets}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t got = receive(socket, message, MSG_PEEK);
  if (got < 0) return errno == EAGAIN ? Received::nothing : Received::ended;
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    if (closer.waiting(sender) >= Closer::kShare) return Received::later;
    // Without room for all of them, what is left is closed with the connection.
    if (!copy_descriptors(socket, request, closer, sender)) return Received::ended;
  }
  if (got == 0) return Received::ended;
  char octet;
  [[maybe_unused]] const ssize_t taken = recv(socket, &octet, sizeof octet, MSG_DONTWAIT);
  const auto length = static_cast<std::size_t>(got);
  if ((message.msg_flags & MSG_TRUNC) != 0 || length < sizeof request.header || length > RNIC_MSG_MAX)
    return Received::malformed;
  if (request.header.length != length) return Received::malformed;
  request.size = length - sizeof request.header;
  return request.descriptors.size() > RNIC_FDS_MAX ? Received::too_many : Received::message;
}

bool end_with_unread(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  shutdown(socket, SHUT_RDWR);
  // An empty message has its sender's credentials, for which there is no room; an end has none.
  char octet;
  iovec part{&octet, sizeof octet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return receive(socket, message, MSG_PEEK) != 0 || (message.msg_flags & MSG_CTRUNC) != 0;
}

bool send_reply(int socket, const rnic_msg& request, const Reply& reply) {
  rnic_msg header{};
  header.type = request.type;
  header.id = request.id;
  header.status = reply.status;
  header.length = static_cast<std::uint32_t>(sizeof header + reply.body.size());
  RNIC_ASSERT(header.length <= RNIC_MSG_MAX && reply.descriptors.size() <= RNIC_FDS_MAX);
  iovec parts[2] = {{&header, sizeof header}, {const_cast<std::byte*>(reply.body.data()), reply.body.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = reply.body.empty() ? 1 : 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)] = {};
  if (!reply.descriptors.empty()) {
    const std::size_t size = sizeof(int) * reply.descriptors.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(rights), reply.descriptors.data(), size);
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(header.length);
}

}  // namespace rnic::control
