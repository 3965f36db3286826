#include "client.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "control/descriptor.hpp"
#include "control/run_directory.hpp"
#include "rnic_run.h"

namespace rnic::tool {

Client::~Client() {
  if (fd_ >= 0) close(fd_);
}

bool Client::connect(const std::string& name) {
  if (!control::good_name(name)) {
    why_ = "\"" + name + "\" is not a name: letters, digits, '-', '_' and '.' only";
    return false;
  }
  char wrong[RNIC_WHY_MAX];
  const control::Descriptor directory(rnic_run_open(rnic_libc_plain(), control::run_directory(name).c_str(), wrong, sizeof wrong));
  const std::string absent = "no daemon \"" + name + "\" is running (start one with: rnic up" +
                             (name == "default" ? std::string() : " --name " + name) + ")";
  if (!directory) {
    why_ = *wrong != '\0' ? wrong : absent;
    return false;
  }
  // The directory that was looked at, whatever has its name by now; and no path is too long.
  const std::string path = control::control_socket("/proc/self/fd/" + std::to_string(directory.get()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    why_ = errno == EACCES || errno == EPERM ? "the daemon \"" + name + "\" belongs to another user" : absent;
    return false;
  }
  if (!rnic_daemon_answers(rnic_libc_plain(), fd_, wrong, sizeof wrong)) {
    why_ = control::control_socket(control::run_directory(name)) + ": " + wrong;
    return false;
  }
  timeval limit{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);

  rnic_hello hello{};
  hello.abi_version = RNIC_ABI_VERSION;
  hello.kind = RNIC_CLIENT_ADMIN;
  hello.pid = static_cast<std::uint32_t>(getpid());
  const int status = ask(RNIC_HELLO, &hello, sizeof hello, &hello_, sizeof hello_);
  if (status != 0) {
    why_ = status == EPROTONOSUPPORT || status == EPROTO
               ? "the daemon \"" + name + "\" is of another version of rnic; restart it with this one"
               : "the daemon \"" + name + "\" does not answer (" + std::strerror(status < 0 ? -status : status) + ")";
    return false;
  }
  daemon_pid_ = hello_.daemon_pid;
  return true;
}

int Client::ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
                int* descriptor) {
  std::vector<int> descriptors;
  const int status = ask(type, body, size, reply, reply_size, descriptors);
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    if (descriptor != nullptr && i == 0)
      *descriptor = descriptors[i];
    else
      close(descriptors[i]);
  }
  return status;
}

int Client::ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
                std::vector<int>& descriptors) {
  alignas(8) char message[RNIC_MSG_MAX];
  rnic_msg header{type, next_id_++, 0, static_cast<std::uint32_t>(sizeof(rnic_msg) + size)};
  if (header.length > sizeof message) return -EMSGSIZE;
  std::memcpy(message, &header, sizeof header);
  if (size > 0) std::memcpy(message + sizeof header, body, size);
  if (send(fd_, message, header.length, MSG_NOSIGNAL) < 0) return -errno;

  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)];
  iovec vector{message, sizeof message};
  msghdr in{};
  in.msg_iov = &vector;
  in.msg_iovlen = 1;
  in.msg_control = control;
  in.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd_, &in, MSG_CMSG_CLOEXEC);
  if (got < 0) return -errno;
  if (got < static_cast<ssize_t>(sizeof header)) return -ECONNRESET;
  for (cmsghdr* part = CMSG_FIRSTHDR(&in); part != nullptr; part = CMSG_NXTHDR(&in, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      descriptors.push_back(fd);
    }
  }
  std::memcpy(&header, message, sizeof header);
  const std::size_t body_size = static_cast<std::size_t>(got) - sizeof header;
  if (reply != nullptr) std::memcpy(reply, message + sizeof header, body_size < reply_size ? body_size : reply_size);
  return header.status;
}

}  // namespace rnic::tool
