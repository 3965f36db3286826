// The window of CUBIC (RFC 9438). The cubic is evaluated eight times a window, not for each ACK.
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
  // An ACK in congestion avoidance came while the window was not used: this time is none of the
  // cubic's (s4.2, s5.8).
  void on_unused(Instant now) {
    if (epoch_started_ && unused_since_ == kNever) unused_since_ = now;
  }
  // s4.6, s4.7. Where the window is to be. (By the window, not by what is in flight: it does not
  // grow while it is not used, as s4.6 asks of who does that.)
  std::uint32_t reduce(const CongestionWindow& window);
  // The last reduction was from more than the path and its queue hold, which is that. Where it is to go on then.
  std::uint32_t on_path_known(const CongestionWindow& window, std::uint32_t holds_bytes);
  // s4.8: what follows is no way back to where the loss was.
  void on_timeout() { after_timeout_ = true; }
  void on_idle() { epoch_started_ = false; }

 private:
  void begin_epoch(const CongestionWindow& window, Instant now);
  void evaluate(CongestionWindow& window, Duration rtt, Instant now);

  // All in segments and seconds, as the RFC has it.
  double window_max_ = 0;    // W_max: where the last loss was, or less (fast convergence)
  double window_prior_ = 0;  // cwnd_prior: the window when it was last reduced
  double k_seconds_ = 0;     // K: when the cubic is back at W_max
  double friendly_ = 0;      // W_est: what Reno would have
  Instant epoch_{};
  Instant unused_since_ = kNever;
  bool epoch_started_ = false;
  bool after_timeout_ = false;
  std::uint32_t acknowledged_ = 0;
};

}  // namespace rnic::tcp
