#include "port/unix_messages.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "base/assert.hpp"

namespace rnic::port {
namespace {

// As many descriptors as the kernel lets travel with one message: what has no room here it would close, and we wait.
constexpr std::size_t kDescriptorsMax = 253;

}  // namespace

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  RNIC_ASSERT(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

void close_and_forget(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

void let_go(int& descriptor) {
  const int gone = std::exchange(descriptor, -1);
  if (gone < 0) return;
  try {
    std::thread([gone] { close(gone); }).detach();
  } catch (const std::system_error&) {
    close(gone);
  }
}

ssize_t receive_message(int socket, MutableBytes octets, std::vector<int>& descriptors) {
  iovec io{.iov_base = octets.data(), .iov_len = octets.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)];
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 || message.msg_controllen == 0) return got;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t before = descriptors.size(), count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    descriptors.resize(before + count);
    std::memcpy(&descriptors[before], CMSG_DATA(h), count * sizeof(int));
  }
  return got;
}

bool send_message(int socket, Bytes octets, std::span<const int> descriptors) {
  RNIC_ASSERT(descriptors.size() <= kDescriptorsMax);
  iovec io{.iov_base = const_cast<std::byte*>(octets.data()), .iov_len = octets.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(octets.size());
}

bool clear_stale_socket(const std::string& path, std::string& error) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return true;
  if (!S_ISSOCK(status.st_mode)) {
    error = path + " exists and is no socket";
    return false;
  }
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = unix_address(path);
  const bool answered = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int reason = errno;
  if (answered) {
    // All kinds of server greet first. DPDK's panics when it cannot, so we stay for its greeting.
    pollfd greeting{.fd = probe, .events = POLLIN, .revents = 0};
    constexpr int kPatienceMs = 1000;
    poll(&greeting, 1, kPatienceMs);
  }
  close(probe);
  if (answered || reason != ECONNREFUSED) {
    error = "another process already serves " + path;
    return false;
  }
  if (unlink(path.c_str()) != 0) {
    error = "the socket " + path + ", left by a process that is gone, cannot be removed: " + std::strerror(errno);
    return false;
  }
  return true;
}

int listen_at(const std::string& path, std::string& error) {
  constexpr int kBacklog = 4;
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = unix_address(path);
  if (listener >= 0 && bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(listener, kBacklog) == 0)
    return listener;
  error = "the socket " + path + " cannot be made: " + std::strerror(errno);
  close_and_forget(listener);
  return -1;
}

}  // namespace rnic::port
