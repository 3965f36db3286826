// Chance from a seed: everything in a simulated world that could be otherwise is decided here.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace rnic::sim {

class Random {
 public:
  // The seed is mixed before it is used: splitmix64 only adds to its state, and neighbouring seeds would
  // be one sequence, begun at different places.
  explicit Random(std::uint64_t seed) : state_(seed ^ 0xD1B54A32D192ED03u) {
    const std::uint64_t mixed = next();
    state_ = mixed;
  }

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // 0 .. n-1.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  // first .. last.
  std::uint64_t between(std::uint64_t first, std::uint64_t last) { return first + below(last - first + 1); }
  bool chance(std::uint32_t per_1000) { return below(1000) < per_1000; }
  void fill(MutableBytes bytes) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      const std::uint64_t word = next();
      std::memcpy(bytes.data() + at, &word, 8);
    }
    for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(next());
  }

 private:
  std::uint64_t state_;
};

}  // namespace rnic::sim
