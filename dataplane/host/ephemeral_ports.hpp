// The local port of a call that names none (RFC 6056 s3.3.2): one by chance, and when it is taken a few others.
//
// The range is Linux's, 28,232 ports: more than a device keeps in TIME-WAIT. So no search goes over all of them,
// however many calls one address and port has had.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>

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
    taken,
  };

  // `chance`: 64 random bits; `use_of(port)` says how it is used towards the one who is called.
  template <typename UseOf>
  static std::optional<std::uint16_t> choose(std::uint64_t chance, UseOf&& use_of) {
    const auto start = static_cast<std::uint32_t>(chance % kCount);
    // No port twice: the stride has no factor in common with the count, 2^3 * 3529.
    std::uint32_t stride = (static_cast<std::uint32_t>(chance >> 32) % kCount) | 1u;
    if (stride % 3529 == 0) stride += 2;
    std::optional<std::uint16_t> anew;
    for (std::uint32_t i = 0, at = start; i < kTriesMax; ++i, at = (at + stride) % kCount) {
      const auto port = static_cast<std::uint16_t>(kFirst + at);
      switch (use_of(port)) {
        case Use::free:
          return port;
        case Use::may_begin_anew:
          if (!anew) anew = port;
          break;
        case Use::taken:
          break;
      }
    }
    return anew;
  }
};

}  // namespace rnic::host
