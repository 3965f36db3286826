#include "system/bare/connection.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "rnic_run.h"
#include "rnic_talk.h"

namespace rnic::bare {

void fail(const std::string& what, int error) {
  std::fprintf(stderr, "%s%s%s\n", what.c_str(), error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "");
  std::exit(1);
}

std::string socket_of(const std::string& daemon) {
  char path[4096];
  if (!rnic_run_directory(rnic_libc_plain(), daemon.c_str(), path, sizeof path)) fail("no run directory for " + daemon);
  return std::string(path) + "/control.sock";
}

const ProcessToken& process_token() {
  static ProcessToken token;
  static pid_t drawn_by = -1;
  if (drawn_by != getpid()) {
    if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) fail("getrandom", errno);
    drawn_by = getpid();
  }
  return token;
}

std::string Answer::words() const {
  if (status == kEnded) return "the connection has ended";
  if (status == kSilent) return "no reply within the time";
  return status == 0 ? "a reply of " + std::to_string(body.size()) + " octets" : std::strerror(status);
}

Connection::Connection(const std::string& path) : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const Descriptor directory(open(path.substr(0, path.rfind('/')).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  sockaddr_un address;
  rnic_talk_address(&address, directory.get());
  if (!socket_ || connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    error_ = errno;
  if (error_ != 0) socket_.reset();
}

Connection::Connection(const std::string& path, rnic_client_kind kind, const std::string& device) : Connection(path) {
  if (!connected()) fail("connecting to " + path, error_);
  const Answer answer = hello(kind, device);
  if (!answer.good()) fail("HELLO: " + answer.words());
}

Answer Connection::hello(std::uint32_t kind, const std::string& device, std::uint32_t version) {
  rnic_hello body{};
  body.abi_version = version;
  body.kind = kind;
  body.pid = static_cast<std::uint32_t>(getpid());
  const ProcessToken& token = process_token();
  std::memcpy(body.process, token.data(), token.size());
  device.copy(body.device, sizeof body.device - 1);
  return ask(RNIC_HELLO, body);
}

Answer Connection::exchange(std::uint32_t type, std::span<const std::byte> body, std::span<const int> fds) {
  return say_octets(type, body, fds) ? hear() : Answer{};
}

bool Connection::say_octets(std::uint32_t type, std::span<const std::byte> body, std::span<const int> fds) {
  std::vector<std::byte> message(sizeof(rnic_msg) + body.size());
  const rnic_msg header{type, next_id_++, 0, static_cast<std::uint32_t>(message.size())};
  std::memcpy(message.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(message.data() + sizeof header, body.data(), body.size());
  return say_raw(message, fds);
}

bool Connection::say_raw(std::span<const std::byte> octets, std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(octets.data()), octets.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<char> rights(fds.empty() ? 0 : CMSG_SPACE(fds.size_bytes()));
  if (!fds.empty()) {
    message.msg_control = rights.data();
    message.msg_controllen = rights.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  while ((sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return sent >= 0;
}

Answer Connection::hear(int limit_ms) {
  Answer answer;
  pollfd one{socket_.get(), POLLIN, 0};
  if (limit_ms >= 0 && poll(&one, 1, limit_ms) == 0) {
    answer.status = Answer::kSilent;
    return answer;
  }
  answer.body.resize(RNIC_MSG_MAX);
  rnic_fds fds;
  std::size_t size = 0;
  const rnic_heard heard = rnic_hear(rnic_libc_plain(), socket_.get(), 0, &answer.header, answer.body.data(),
                                     answer.body.size(), &size, &fds);
  answer.body.resize(size);
  if (heard != RNIC_HEARD_MESSAGE) return answer;
  for (int fd; (fd = rnic_fds_take(&fds)) >= 0;) answer.fds.emplace_back(fd);
  answer.status = answer.header.status;
  return answer;
}

}  // namespace rnic::bare
