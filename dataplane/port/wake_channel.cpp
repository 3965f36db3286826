#include "port/wake_channel.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/assert.hpp"
#include "port/unix_messages.hpp"

namespace rnic::port {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kWordStride = 64;  // a line each: the server's word, then the client's

// The one message each side sends, with its descriptors: the server's page and where to ring it, where to ring
// the client. An rnicd of another version has no channel with us.
struct Hello {
  char magic[8] = {'r', 'n', 'i', 'c', 'w', 'a', 'k', 'e'};
  std::uint32_t version = 4;  // from it on segments have no checksums (MemifPort::fills_checksums())
  std::uint32_t page_bytes = kPageBytes;
  std::uint32_t mtu_bytes = 0;  // what the sender of this receives
  std::uint32_t slot_bytes = 0;
};
static_assert(sizeof(Hello) == 24);

// A socket on which nobody can make us wait.
bool is_bell(int fd) {
  int domain = 0, type = 0;
  socklen_t size = sizeof(int);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

bool watch(int epoll, int fd) {
  epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

}  // namespace

WakeChannel::WakeChannel(std::string path, Role role, const Sizes& ours, const MemifPeer& peer)
    : path_(std::move(path)),
      role_(role),
      sizes_(ours),
      peer_rule_(peer),
      bell_(epoll_create1(EPOLL_CLOEXEC)),
      own_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WakeChannel::~WakeChannel() {
  drop();
  if (page_ != nullptr) munmap(page_, kPageBytes);
  if (listener_ >= 0) unlink(path_.c_str());
  close_and_forget(listener_);
  close_and_forget(memfd_);
  close_and_forget(own_);
  close_and_forget(bell_);
}

bool WakeChannel::open(std::string& error) {
  if (bell_ < 0 || own_ < 0 || !watch(bell_, own_)) {
    error = std::string("no descriptors for wake-ups: ") + std::strerror(errno);
    return false;
  }
  if (role_ == Role::client) return true;
  memfd_ = memfd_create("rnic-wake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd_ < 0 || ftruncate(memfd_, kPageBytes) != 0 ||
      fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || !map(memfd_)) {
    error = std::string("no page for wake-ups: ") + std::strerror(errno);
    return false;
  }
  if (!clear_stale_socket(path_, error)) return false;
  listener_ = listen_at(path_, error);
  return listener_ >= 0;
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

// The number first: who sees the word finds what it speaks of.
void WakeChannel::ring_own() {
  const std::uint64_t one = 1;
  (void)!write(own_, &one, sizeof one);
  own_rung_.store(true, std::memory_order_release);
}
void WakeChannel::ring_peer() { (void)!send(peer_bell_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

bool WakeChannel::quiet() {
  if (own_rung_.load(std::memory_order_relaxed) && own_rung_.exchange(false, std::memory_order_acquire)) {
    std::uint64_t count = 0;
    (void)!read(own_, &count, sizeof count);
  }
  if (ear_ < 0 || ear_broken_) return true;
  char octets[64];
  std::vector<int> strange;
  const ssize_t got = receive_message(ear_, as_mutable_bytes(octets, sizeof octets), strange);
  if (strange.empty() && (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))) return true;
  for (int& fd : strange) let_go(fd);
  epoll_ctl(bell_, EPOLL_CTL_DEL, ear_, nullptr);
  ear_broken_ = true;
  return false;
}

void WakeChannel::descriptors(std::vector<int>& out) const {
  if (listener_ >= 0) out.push_back(listener_);
  if (peer_ >= 0) out.push_back(peer_);
}

void WakeChannel::drop() {
  if (ear_ >= 0 && !ear_broken_) epoll_ctl(bell_, EPOLL_CTL_DEL, ear_, nullptr);
  ear_broken_ = false;
  for (int* const fd : {&peer_, &ear_, &peer_bell_}) let_go(*fd);
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
  const sockaddr_un address = unix_address(path_);
  if (peer_ < 0 || connect(peer_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      !peer_rule_.is_at(peer_) || !greet())
    drop();
}

bool WakeChannel::make_ear(int& mouth) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  ear_ = ends[0];
  mouth = ends[1];
  ear_broken_ = !watch(bell_, ear_);
  return !ear_broken_;
}

bool WakeChannel::greet() {
  Hello hello;
  hello.mtu_bytes = sizes_.mtu_bytes;
  hello.slot_bytes = sizes_.slot_bytes;
  int mouth = -1;
  if (!make_ear(mouth)) {
    close_and_forget(mouth);
    return false;
  }
  const int fds[2] = {role_ == Role::server ? memfd_ : mouth, mouth};
  const bool sent =
      send_message(peer_, as_bytes(&hello, sizeof hello), std::span(fds).first(role_ == Role::server ? 2 : 1));
  close_and_forget(mouth);
  return sent;
}

void WakeChannel::hear() {
  Hello hello;
  std::vector<int> fds;
  const ssize_t size = receive_message(peer_, as_mutable_bytes(&hello, sizeof hello), fds);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  Hello expected;
  expected.mtu_bytes = hello.mtu_bytes;
  expected.slot_bytes = hello.slot_bytes;
  const std::size_t wanted = role_ == Role::server ? 1 : 2;
  bool good = size == static_cast<ssize_t>(sizeof hello) && std::memcmp(&hello, &expected, sizeof hello) == 0 &&
              fds.size() == wanted && peer_bell_ < 0 && is_bell(fds.back());
  if (good && role_ == Role::client) {
    // A page that cannot shrink cannot end us with a SIGBUS.
    const int seals = fcntl(fds[0], F_GET_SEALS);
    struct stat status {};
    good = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fds[0], &status) == 0 &&
           status.st_size >= static_cast<off_t>(kPageBytes) && map(fds[0]);
    let_go(fds[0]);
  }
  if (!good) {
    // The end of the connection, or a peer that speaks something else.
    for (int& fd : fds) let_go(fd);
    drop();
    return;
  }
  peer_bell_ = fds.back();
  shutdown(peer_bell_, SHUT_RD);  // nothing is to be said there, and what is lies about
  peer_sizes_ = {hello.mtu_bytes, hello.slot_bytes};
  // It may have gone to sleep before it could be seen to: let both look once more.
  ring_peer();
}

void WakeChannel::serve() {
  if (ear_broken_) drop();
  if (listener_ >= 0) {
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
      if (!peer_rule_.is_at(fd)) {
        let_go(fd);
        continue;
      }
      // A newer one takes the place of the older: that one's process is gone or about to be.
      drop();
      peer_ = fd;
      if (!greet()) drop();
    }
  }
  if (peer_ >= 0) hear();
}

}  // namespace rnic::port
