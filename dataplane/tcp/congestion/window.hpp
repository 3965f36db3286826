// The congestion window itself (RFC 5681 s3.1): what the algorithms have in common.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rnic::tcp {

struct CongestionWindow {
  // Far above any bandwidth-delay product here; keeps sums of 32 bits from overflowing.
  static constexpr std::uint32_t kBytesMax = 1u << 30;

  std::uint32_t mss_bytes = 536;
  std::uint32_t bytes = 0;
  std::uint32_t threshold_bytes = kBytesMax;  // ssthresh

  bool slow_start() const { return bytes < threshold_bytes; }
  // RFC 6928: ten segments, but not more than 14600 octets unless two segments are more.
  static std::uint32_t initial(std::uint32_t mss) { return std::min(10 * mss, std::max(2 * mss, 14600u)); }
  void grow(std::uint32_t octets) { bytes = std::min(bytes + octets, kBytesMax); }
  // Not beyond the threshold: an ACK may acknowledge more than a window where a gap was filled.
  void grow_to_threshold(std::uint32_t octets) {
    bytes = std::min(bytes + std::min(octets, kBytesMax), threshold_bytes);
  }
  void set_threshold(std::uint32_t octets) { threshold_bytes = std::max(octets, 2 * mss_bytes); }
};

// Why a window is made smaller.
enum class Congestion : std::uint8_t { loss, mark };

}  // namespace rnic::tcp
