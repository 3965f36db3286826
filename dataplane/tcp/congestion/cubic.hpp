// The window of CUBIC (RFC 8312). The cubic is evaluated eight times a window, not for each ACK.
#pragma once

#include <cstdint>

#include "base/time.hpp"
#include "tcp/congestion/window.hpp"

namespace rnic::tcp {

class Cubic {
 public:
  // Congestion avoidance.
  void on_acknowledged(CongestionWindow& window, std::uint32_t octets, Duration rtt, Instant now) {
    acknowledged_ += octets;
    if (acknowledged_ < window.bytes >> 3) return;
    evaluate(window, rtt, now);
    acknowledged_ = 0;
  }
  void on_loss(CongestionWindow& window);
  void on_idle() { epoch_started_ = false; }

 private:
  void begin_epoch(const CongestionWindow& window, Instant now);
  void evaluate(CongestionWindow& window, Duration rtt, Instant now);

  // All in segments and seconds, as the RFC has it.
  double window_max_ = 0;  // W_max: where the last loss was
  double last_max_ = 0;    // W_last_max, for fast convergence
  double k_seconds_ = 0;   // K: when the cubic is back at W_max
  double friendly_ = 0;    // W_est: what Reno would have
  Instant epoch_{};
  bool epoch_started_ = false;
  std::uint32_t acknowledged_ = 0;
};

}  // namespace rnic::tcp
