// Numbers by chance, from one seed: splitmix64. What others must not guess is SipHash's (base/siphash.hpp).
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace rnic {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // 0 .. end - 1.
  std::uint64_t below(std::uint64_t end) { return next() % end; }
  // From `least` up to, not including, `most`; `least` where there is nothing between.
  Duration between(Duration least, Duration most) {
    if (most <= least) return least;
    return Duration{least.ns + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(most.ns - least.ns)))};
  }

 private:
  std::uint64_t state_;
};

}  // namespace rnic
