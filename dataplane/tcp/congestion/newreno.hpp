// The window of NewReno (RFC 5681 s3.1, counting octets as RFC 3465 does). Which segments are lost
// is not its business.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tcp/congestion/window.hpp"

namespace rnic::tcp {

class NewReno {
 public:
  // Congestion avoidance: one segment more for each whole window acknowledged.
  void on_acknowledged(CongestionWindow& window, std::uint32_t octets) {
    acknowledged_ += octets;
    if (acknowledged_ < window.bytes) return;
    acknowledged_ -= window.bytes;
    window.grow(window.mss_bytes);
  }
  // RFC 5681 equation 4. What limited transmit sent beyond the window does not count. Where the
  // window is to be.
  std::uint32_t reduce(const CongestionWindow& window, std::uint32_t in_flight_bytes) {
    acknowledged_ = 0;
    return std::min(in_flight_bytes, window.bytes) / 2;
  }

 private:
  std::uint32_t acknowledged_ = 0;
};

}  // namespace rnic::tcp
