#include "port/memif_door.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "port/unix_messages.hpp"

namespace rnic::port {
namespace {

// The driver serves one; others are told so by it.
constexpr std::size_t kVisitorsMax = 64;

// A message of memif's: 16 bits of what it is, in the machine's own order, then what it says, up to this length.
constexpr std::size_t kMessageBytes = 128;
constexpr std::uint16_t kAddRegion = 4, kAddRing = 5;
constexpr std::uint16_t kRegionsMax = 256, kRingsMax = 512;  // 256 each way

std::uint16_t word(Bytes message, std::size_t at) {
  std::uint16_t value = 0;
  std::memcpy(&value, message.data() + at, sizeof value);
  return value;
}

}  // namespace

MemifDoor::MemifDoor(std::string path, const MemifPeer& peer)
    : path_(std::move(path)), inner_path_(path_ + ".dpdk"), peer_(peer) {}

// A connection that the driver has not greeted stays as long as the process.
MemifDoor::~MemifDoor() {
  for (Visitor& visitor : visitors_) {
    let_go(visitor.outside);
    if (visitor.greeted) close_and_forget(visitor.inside);
  }
  if (listener_ < 0) return;
  unlink(path_.c_str());
  unlink(inner_path_.c_str());  // the driver leaves it
  close_and_forget(listener_);
}

bool MemifDoor::open(std::string& error) {
  listener_ = listen_at(path_, error);
  return listener_ >= 0;
}

void MemifDoor::descriptors(std::vector<int>& out) const {
  if (listener_ >= 0 && visitors_.size() < kVisitorsMax) out.push_back(listener_);
  for (const Visitor& visitor : visitors_) {
    out.push_back(visitor.inside);
    // What comes before the greeting waits for it.
    if (visitor.greeted) out.push_back(visitor.outside);
  }
}

void MemifDoor::serve() {
  for (Visitor& visitor : visitors_) {
    hand_out(visitor);
    if (visitor.greeted && !visitor.leaves) hand_in(visitor);
    if (!visitor.leaves) continue;
    shutdown(visitor.outside, SHUT_RDWR);
    let_go(visitor.outside);
    close_and_forget(visitor.inside);
  }
  std::erase_if(visitors_, [](const Visitor& visitor) { return visitor.leaves; });
  admit();
}

void MemifDoor::admit() {
  while (listener_ >= 0 && visitors_.size() < kVisitorsMax) {
    int outside = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (outside < 0) return;
    int inside = peer_.is_at(outside) ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    const sockaddr_un address = unix_address(inner_path_);
    if (inside >= 0 && connect(inside, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      visitors_.push_back({.outside = outside, .inside = inside});
      continue;
    }
    close_and_forget(inside);
    let_go(outside);
  }
}

// What the driver says.
void MemifDoor::hand_out(Visitor& visitor) {
  for (;;) {
    std::array<std::byte, kMessageBytes> message;
    std::vector<int> descriptors;
    const ssize_t size = receive_message(visitor.inside, message, descriptors);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const bool sent =
        size > 0 && send_message(visitor.outside, Bytes(message).first(static_cast<std::size_t>(size)), descriptors);
    for (int& descriptor : descriptors) close_and_forget(descriptor);
    visitor.greeted = true;
    visitor.leaves = !sent;
    if (!sent) return;
  }
}

// What the visitor says, as far as that is memif's: a region's or a ring's descriptor comes with the message that adds
// it, regions one after the other.
void MemifDoor::hand_in(Visitor& visitor) {
  for (;;) {
    std::array<std::byte, kMessageBytes + 1> message;
    std::vector<int> descriptors;
    const ssize_t size = receive_message(visitor.outside, message, descriptors);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool good = size == static_cast<ssize_t>(kMessageBytes);
    const std::uint16_t type = good ? word(message, 0) : std::uint16_t{0};
    if (type == kAddRegion)
      good = descriptors.size() == 1 && visitor.regions < kRegionsMax && word(message, 2) == visitor.regions++;
    else if (type == kAddRing)
      good = descriptors.size() == 1 && visitor.rings++ < kRingsMax;
    else
      good = good && descriptors.empty();
    if (good) good = send_message(visitor.inside, Bytes(message).first(kMessageBytes), descriptors);
    for (int& descriptor : descriptors) let_go(descriptor);
    visitor.leaves = !good;
    if (!good) return;
  }
}

}  // namespace rnic::port
