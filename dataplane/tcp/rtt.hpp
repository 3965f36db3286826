// Round-trip time and the retransmission timeout (RFC 6298). Shifts only: one sample per ACK.
#pragma once

#include <algorithm>

#include "base/time.hpp"

namespace rnic::tcp {

class RttEstimator {
 public:
  RttEstimator(Duration initial, Duration min, Duration max)
      : base_(std::clamp(initial, min, max)), min_(min), max_(max) {}

  // Never of a segment that was sent twice (Karn). Ends the back-off (RFC 6298 s5.7).
  void sample(Duration measured) {
    if (measured.ns < 1) measured.ns = 1;
    if (smoothed_.ns == 0) {  // RFC 6298 s2.2
      smoothed_ = measured;
      variation_ = Duration{measured.ns >> 1};
    } else if (was_too_short_) {  // RFC 4015 s3.3
      smoothed_ = std::max(smoothed_, measured);
      variation_ = std::max(variation_, measured / 2);
    } else {  // s2.3: beta is 1/4, alpha is 1/8
      const auto off = smoothed_.ns > measured.ns ? smoothed_.ns - measured.ns : measured.ns - smoothed_.ns;
      variation_.ns += (off - variation_.ns) >> 2;
      smoothed_.ns += (measured.ns - smoothed_.ns) >> 3;
      if (smoothed_.ns < 1) smoothed_.ns = 1;
    }
    const Duration wanted{smoothed_.ns + std::max<std::int64_t>(variation_.ns << 2, kGranularity.ns)};
    base_ = std::clamp(wanted, min_, max_);
    back_offs_ = 0;
    was_too_short_ = false;
  }

  // The timeout was for nothing. If it was too short for the way, the next sample says so. (How late what
  // tells of it is does not: perhaps an ACK was lost, and this is the answer to what was sent again.)
  void on_spurious_timeout() { was_too_short_ = true; }

  void back_off() {
    if (back_offs_ < kBackOffsMax) ++back_offs_;
  }

  // The SYN had to be sent again: with nothing measured, data starts more carefully
  // (RFC 6298 s5.7).
  void on_handshake_loss(Duration initial) {
    if (smoothed_.ns != 0) return;
    base_ = std::clamp(initial * 3, min_, max_);
    back_offs_ = 0;
  }

  Duration rto() const { return std::min(Duration{base_.ns << back_offs_}, max_); }
  Duration smoothed() const { return smoothed_; }  // 0: nothing measured yet

 private:
  static constexpr Duration kGranularity = milliseconds(1);
  static constexpr unsigned kBackOffsMax = 16;  // far beyond max_, and the shift cannot overflow

  Duration base_;
  Duration min_;
  Duration max_;
  Duration smoothed_{};
  Duration variation_{};
  unsigned back_offs_ = 0;
  bool was_too_short_ = false;  // once, perhaps
};

}  // namespace rnic::tcp
