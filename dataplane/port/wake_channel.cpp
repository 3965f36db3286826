#include "port/wake_channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/assert.hpp"

namespace rnic::port {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kWordStride = 64;  // a line each: the server's word, then the client's

// The one message each side sends, with its descriptors: the server's page and bell, the client's
// bell. An rnicd of another version has no channel with us.
struct Hello {
  char magic[8] = {'r', 'n', 'i', 'c', 'w', 'a', 'k', 'e'};
  std::uint32_t version = 2;
  std::uint32_t page_bytes = kPageBytes;
  std::uint32_t mtu_bytes = 0;   // what the sender of this receives
  std::uint32_t slot_bytes = 0;
};
static_assert(sizeof(Hello) == 24);

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  RNIC_ASSERT(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

void close_and_forget(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

bool clear_stale_socket(const std::string& path, std::string& error) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return true;
  if (!S_ISSOCK(status.st_mode)) {
    error = path + " exists and is no socket";
    return false;
  }
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(path);
  const bool answered = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int reason = errno;
  if (answered) {
    // Both kinds of server greet first. DPDK's panics when it cannot, so we stay for its greeting.
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

WakeChannel::WakeChannel(std::string path, Role role, const Sizes& ours)
    : path_(std::move(path)), role_(role), sizes_(ours), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WakeChannel::~WakeChannel() {
  drop();
  if (page_ != nullptr) munmap(page_, kPageBytes);
  if (listener_ >= 0) unlink(path_.c_str());
  close_and_forget(listener_);
  close_and_forget(memfd_);
  close_and_forget(bell_);
}

bool WakeChannel::open(std::string& error) {
  if (role_ == Role::client) return true;
  memfd_ = memfd_create("rnic-wake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd_ < 0 || ftruncate(memfd_, kPageBytes) != 0 ||
      fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || !map(memfd_)) {
    error = std::string("no page for wake-ups: ") + std::strerror(errno);
    return false;
  }
  if (!clear_stale_socket(path_, error)) return false;
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(path_);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 4) != 0) {
    error = "the socket " + path_ + " cannot be made: " + std::strerror(errno);
    close_and_forget(listener_);
    return false;
  }
  return true;
}

bool WakeChannel::map(int memfd) {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (page == MAP_FAILED) return false;
  page_ = page;
  auto* at = static_cast<std::byte*>(page);
  static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);
  auto* server = std::launder(reinterpret_cast<Word*>(at));
  auto* client = std::launder(reinterpret_cast<Word*>(at + kWordStride));
  mine_ = role_ == Role::server ? server : client;
  theirs_ = role_ == Role::server ? client : server;
  return true;
}

void WakeChannel::ring_own() {
  const std::uint64_t one = 1;
  (void)!write(bell_, &one, sizeof one);
}
void WakeChannel::ring_peer() {
  const std::uint64_t one = 1;
  (void)!write(peer_bell_, &one, sizeof one);
}
void WakeChannel::quiet() {
  std::uint64_t count = 0;
  (void)!read(bell_, &count, sizeof count);
}

void WakeChannel::descriptors(std::vector<int>& out) const {
  if (listener_ >= 0) out.push_back(listener_);
  if (peer_ >= 0) out.push_back(peer_);
}

void WakeChannel::drop() {
  close_and_forget(peer_);
  close_and_forget(peer_bell_);
  if (role_ == Role::server) {
    // The page stays, for the next one.
    if (theirs_ != nullptr) theirs_->store(0, std::memory_order_relaxed);
    return;
  }
  if (page_ != nullptr) munmap(page_, kPageBytes);
  page_ = nullptr;
  mine_ = theirs_ = nullptr;
}

void WakeChannel::join() {
  if (role_ != Role::client || peer_ >= 0) return;
  peer_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(path_);
  if (peer_ < 0 || connect(peer_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || !greet()) drop();
}

bool WakeChannel::greet() {
  Hello hello;
  hello.mtu_bytes = sizes_.mtu_bytes;
  hello.slot_bytes = sizes_.slot_bytes;
  iovec io{.iov_base = &hello, .iov_len = sizeof hello};
  const int fds[2] = {role_ == Role::server ? memfd_ : bell_, bell_};
  const std::size_t count = role_ == Role::server ? 2 : 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  return sendmsg(peer_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

void WakeChannel::hear() {
  Hello hello;
  iovec io{.iov_base = &hello, .iov_len = sizeof hello};
  int fds[2] = {-1, -1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(peer_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  std::size_t count = 0;
  if (size >= 0) {
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
      if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
      count = std::min<std::size_t>((h->cmsg_len - CMSG_LEN(0)) / sizeof(int), 2);
      std::memcpy(fds, CMSG_DATA(h), count * sizeof(int));
    }
  }
  Hello expected;
  expected.mtu_bytes = hello.mtu_bytes;
  expected.slot_bytes = hello.slot_bytes;
  const std::size_t wanted = role_ == Role::server ? 1 : 2;
  bool good = size == static_cast<ssize_t>(sizeof hello) && std::memcmp(&hello, &expected, sizeof hello) == 0 &&
              count == wanted && peer_bell_ < 0;
  if (good && role_ == Role::client) {
    // A page that cannot shrink cannot end us with a SIGBUS.
    const int seals = fcntl(fds[0], F_GET_SEALS);
    struct stat status {};
    good = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fds[0], &status) == 0 &&
           status.st_size >= static_cast<off_t>(kPageBytes) && map(fds[0]);
    close_and_forget(fds[0]);
  }
  if (!good) {
    // The end of the connection, or a peer that speaks something else.
    for (int& fd : fds) close_and_forget(fd);
    drop();
    return;
  }
  peer_bell_ = fds[wanted - 1];
  peer_sizes_ = {hello.mtu_bytes, hello.slot_bytes};
  // It may have gone to sleep before it could be seen to: let both look once more.
  ring_peer();
}

void WakeChannel::serve() {
  if (listener_ >= 0) {
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
      // A newer one takes the place of the older: that one's process is gone or about to be.
      drop();
      peer_ = fd;
      if (!greet()) drop();
    }
  }
  if (peer_ >= 0) hear();
}

}  // namespace rnic::port
