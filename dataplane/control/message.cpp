#include "control/message.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace rnic::control {

Received receive_request(int socket, Request& request) {
  request.descriptors.clear();
  request.size = 0;
  iovec parts[2] = {{&request.header, sizeof request.header}, {request.octets, sizeof request.octets}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN ? Received::nothing : Received::ended;

  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      request.descriptors.emplace_back(fd);
    }
  }
  if (got == 0) return Received::ended;
  const auto length = static_cast<std::size_t>(got);
  if ((message.msg_flags & MSG_TRUNC) != 0 || length < sizeof request.header || length > RNIC_MSG_MAX)
    return Received::malformed;
  if (request.header.length != length) return Received::malformed;
  request.size = length - sizeof request.header;
  return (message.msg_flags & MSG_CTRUNC) != 0 ? Received::too_many : Received::message;
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
