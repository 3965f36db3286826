// RFC 8312 s4, in its own units.
#include "tcp/congestion/cubic.hpp"

#include <algorithm>
#include <cmath>

namespace rnic::tcp {

namespace {
constexpr double kC = 0.4;     // s5
constexpr double kBeta = 0.7;  // s4.5
// s4.2: what Reno gains in a round trip when it gives up as little as we do.
constexpr double kFriendlyGain = 3 * (1 - kBeta) / (1 + kBeta);
}  // namespace

void Cubic::on_loss(CongestionWindow& window) {
  const double segments = static_cast<double>(window.bytes) / window.mss_bytes;
  epoch_started_ = false;
  acknowledged_ = 0;
  // s4.6: who has less than before leaves room for who comes new.
  window_max_ = segments < last_max_ ? segments * (1 + kBeta) / 2 : segments;
  last_max_ = segments;
  window.set_threshold(static_cast<std::uint32_t>(window.bytes * kBeta));
}

void Cubic::begin_epoch(const CongestionWindow& window, Instant now) {
  const double segments = static_cast<double>(window.bytes) / window.mss_bytes;
  epoch_started_ = true;
  epoch_ = now;
  friendly_ = segments;
  if (segments < window_max_) {
    k_seconds_ = std::cbrt((window_max_ - segments) / kC);
  } else {  // never lost, or already above where it was
    k_seconds_ = 0;
    window_max_ = segments;
  }
}

void Cubic::evaluate(CongestionWindow& window, Duration rtt, Instant now) {
  if (!epoch_started_) begin_epoch(window, now);
  const double segments = static_cast<double>(window.bytes) / window.mss_bytes;
  const double share = static_cast<double>(acknowledged_) / window.bytes;  // of a window
  const double elapsed_seconds = static_cast<double>((now - epoch_ + rtt).ns) * 1e-9;

  // s4.1 equation 1, at t + RTT.
  const double from_k = elapsed_seconds - k_seconds_;
  double target = kC * from_k * from_k * from_k + window_max_;
  target = std::clamp(target, segments, 1.5 * segments);  // s4.3, and RFC 9438 s4.4's bound
  double wanted = segments + (target - segments) * share;

  friendly_ += kFriendlyGain * share;  // s4.2 equation 4, counted in windows for round trips
  wanted = std::max(wanted, friendly_);

  const double more = (wanted - segments) * window.mss_bytes;
  if (more > 0) window.grow(static_cast<std::uint32_t>(more + 0.5));
}

}  // namespace rnic::tcp
