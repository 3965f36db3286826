// So many in so long, and no more (RFC 5961 s7: challenge ACKs are limited).
#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace rnic::tcp {

class RateLimit {
 public:
  constexpr RateLimit(std::uint32_t count, Duration period) : count_(count), period_(period) {}

  bool allows(Instant now) {
    if (used_ == 0 || now - began_ >= period_) {
      began_ = now;
      used_ = 0;
    }
    if (used_ == count_) return false;
    ++used_;
    return true;
  }

 private:
  std::uint32_t count_;
  Duration period_;
  std::uint32_t used_ = 0;
  Instant began_{};
};

}  // namespace rnic::tcp
