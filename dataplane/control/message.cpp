#include "control/message.hpp"

#include <cerrno>

#include "rnic_talk.h"

namespace rnic::control {

namespace {

// As many as the kernel lets travel with one message: where one did not fit, the kernel would close it, and we wait.
constexpr std::size_t kFdsOfMessage = 253;

ssize_t receive(int socket, msghdr& message, int flags) {
  return rnic_recvmsg(rnic_libc_plain(), socket, &message, flags | MSG_DONTWAIT);
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
  int fds[kFdsOfMessage];
  const unsigned count = rnic_rights(&message, fds, kFdsOfMessage);
  for (unsigned i = 0; i < count; ++i) request.descriptors.emplace_back(fds[i], closer, sender);
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
  if (!rnic_is_whole(&request.header, length, message.msg_flags)) return Received::malformed;
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
  const rnic_msg header{request.type, request.id, reply.status,
                        static_cast<std::uint32_t>(sizeof header + reply.body.size())};
  RNIC_ASSERT(header.length <= RNIC_MSG_MAX && reply.descriptors.size() <= RNIC_FDS_MAX);
  return rnic_say(rnic_libc_plain(), socket, MSG_DONTWAIT, &header, reply.body.data(), reply.descriptors.data(),
                  static_cast<unsigned>(reply.descriptors.size())) == 0;
}

}  // namespace rnic::control
