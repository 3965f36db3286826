// 32-bit numbers for what comes and goes: never 0, never one that is in use, and one that was given up
// comes again as late as possible. An application that makes and unmakes its objects fast has gone
// through all of them within hours.
#pragma once

#include <cstdint>
#include <unordered_set>

namespace rnic::control {

class Numbers {
 public:
  explicit Numbers(std::uint32_t first = 1, std::uint32_t last = ~0u) : next_(first), last_(last) {}

  // `in_use`: whether somebody has that number; not all can be.
  template <typename InUse>
  std::uint32_t next(InUse&& in_use) {
    while (next_ == 0 || in_use(next_)) step();
    const std::uint32_t number = next_;
    step();
    return number;
  }

 private:
  void step() { next_ = next_ == last_ ? 1 : next_ + 1; }

  std::uint32_t next_, last_;
};

// Those that remember by themselves which are in use.
class UsedNumbers {
 public:
  std::uint32_t take() {
    const std::uint32_t number = numbers_.next([this](std::uint32_t n) { return used_.contains(n); });
    used_.insert(number);
    return number;
  }
  void give(std::uint32_t number) { used_.erase(number); }
  void continue_at(std::uint32_t number) { numbers_ = Numbers(number); }
  std::size_t used() const { return used_.size(); }

 private:
  Numbers numbers_;
  std::unordered_set<std::uint32_t> used_;
};

}  // namespace rnic::control
