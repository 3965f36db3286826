// Chance from a seed: everything in a simulated world that could be otherwise is decided here.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/chance.hpp"

namespace rnic::sim {

class Random {
 public:
  // The seed is mixed before it is used: splitmix64 only adds to its state, and neighbouring seeds would
  // be one sequence, begun at different places.
  explicit Random(std::uint64_t seed) : chance_(Chance(seed ^ 0xD1B54A32D192ED03u).next()) {}

  std::uint64_t next() { return chance_.next(); }
  // 0 .. n-1.
  std::uint64_t below(std::uint64_t n) { return chance_.below(n); }
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
  Chance chance_;
};

}  // namespace rnic::sim
