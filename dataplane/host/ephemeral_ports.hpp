// The local port of a call that names none (RFC 6056 s3.3.2): one by chance, and when it is taken, or was so lately, a
// few others.
//
// The range is Linux's, 28,232 ports: more than a device keeps in TIME-WAIT. So no search goes over all of them,
// however many calls one address and port has had.
//
// Pure.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <vector>

namespace rnic::host {

class EphemeralPorts {
 public:
  static constexpr std::uint16_t kFirst = 32768, kLast = 60999;
  static constexpr std::uint32_t kCount = kLast - kFirst + 1u;
  // Looked at in one search at most. Where nine of ten ports are taken, two searches of 10^12 find none.
  static constexpr std::uint32_t kTriesMax = 256;

  enum class Use : std::uint8_t {
    free,
    may_begin_anew,  // in TIME-WAIT: taken only where none of those looked at is free
    lately,          // free, but PortsUsedLately has it: only where there is none of those either
    taken,
  };

  // `chance`: 64 random bits; `use_of(port)` says how it is used towards the one who is called.
  template <typename UseOf>
  static std::optional<std::uint16_t> choose(std::uint64_t chance, UseOf&& use_of) {
    const auto start = static_cast<std::uint32_t>(chance % kCount);
    // No port twice: the stride has no factor in common with the count, 2^3 * 3529.
    std::uint32_t stride = (static_cast<std::uint32_t>(chance >> 32) % kCount) | 1u;
    if (stride % 3529 == 0) stride += 2;
    std::optional<std::uint16_t> anew, lately;
    for (std::uint32_t i = 0, at = start; i < kTriesMax; ++i, at = (at + stride) % kCount) {
      const auto port = static_cast<std::uint16_t>(kFirst + at);
      switch (use_of(port)) {
        case Use::free:
          return port;
        case Use::may_begin_anew:
          if (!anew) anew = port;
          break;
        case Use::lately:
          if (!lately) lately = port;
          break;
        case Use::taken:
          break;
      }
    }
    return anew ? anew : lately;
  }

  static constexpr bool has(std::uint16_t port) { return port >= kFirst && port <= kLast; }
};

// Ports of calls that have ended lately, but not gracefully: that leaves no TIME-WAIT, and segments of the connection
// may still be under way when the next begins: with the same ports, soon after it and without timestamps, some of them
// lie in the window of the next (RFC 9293 s3.4.1), which then has octets of another connection in its stream.
class PortsUsedLately {
 public:
  // A port is forgotten once `kept` others have been used.
  explicit PortsUsedLately(std::uint32_t kept) : last_(kept, kNone) {}
  bool has(std::uint16_t port) const { return EphemeralPorts::has(port) && used_[port - EphemeralPorts::kFirst]; }
  // Not for one outside of their range: nobody chooses that.
  void add(std::uint16_t port) {
    if (!EphemeralPorts::has(port) || has(port)) return;
    std::uint16_t& oldest = last_[next_];
    if (oldest != kNone) used_.reset(oldest - EphemeralPorts::kFirst);
    used_.set(port - EphemeralPorts::kFirst);
    oldest = port;
    next_ = (next_ + 1) % last_.size();
  }

 private:
  static constexpr std::uint16_t kNone = 0;
  std::bitset<EphemeralPorts::kCount> used_;
  std::vector<std::uint16_t> last_;  // a ring
  std::size_t next_ = 0;
};

}  // namespace rnic::host
