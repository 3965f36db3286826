// What DCTCP adds to Reno (RFC 8257 s3.3): an estimate of the share of octets that met a queue,
// and a window that is reduced by half of that share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tcp/congestion/window.hpp"

namespace rnic::tcp {

class Dctcp {
 public:
  // Every ACK that acknowledges octets; `echo`: it has ECE. The window of observation ends when all
  // that was in flight at its beginning is acknowledged. In octets of our stream, ever.
  void on_acknowledged(std::uint32_t octets, bool echo, std::uint64_t acknowledged, std::uint64_t sent) {
    acknowledged_ += octets;
    if (echo) marked_ += octets;
    if (acknowledged <= window_end_) return;
    if (acknowledged_ > 0) {  // s4.2, steps 5 and 6
      const auto share = static_cast<std::uint32_t>(kOne * marked_ / acknowledged_);
      if (alpha_ >> kShift == 0) alpha_ = 0;
      alpha_ = std::min(alpha_ - (alpha_ >> kShift) + (share >> kShift), kOne32);
    }
    window_end_ = sent;
    acknowledged_ = marked_ = 0;
  }
  // Step 9. Where the window is to be.
  std::uint32_t reduce(const CongestionWindow& window) const {
    return window.bytes - static_cast<std::uint32_t>(std::uint64_t{window.bytes} * alpha_ / (2 * kOne));
  }
  double alpha() const { return static_cast<double>(alpha_) / static_cast<double>(kOne); }

 private:
  static constexpr std::uint64_t kOne = 1u << 16;
  static constexpr std::uint32_t kOne32 = 1u << 16;
  static constexpr unsigned kShift = 4;  // g is 1/16

  std::uint32_t alpha_ = kOne32;
  std::uint64_t window_end_ = 0;
  std::uint64_t acknowledged_ = 0, marked_ = 0;  // in this window of observation
};

}  // namespace rnic::tcp
