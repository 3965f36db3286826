// RFC 9438 s4, in its own units.
#include "tcp/congestion/cubic.hpp"

#include <algorithm>
#include <cmath>

namespace rnic::tcp {

namespace {
constexpr double kC = 0.4;     // s5.1
constexpr double kBeta = 0.7;  // s4.6
// s4.3: what Reno gains in a round trip when it gives up as little as we do.
constexpr double kAlpha = 3 * (1 - kBeta) / (1 + kBeta);
}  // namespace

std::uint32_t Cubic::reduce(const CongestionWindow& window) {
  const double segments = static_cast<double>(window.bytes) / window.mss_bytes;
  epoch_started_ = false;
  after_timeout_ = false;
  acknowledged_ = 0;
  // s4.7: who has less than before leaves room for who comes new.
  window_max_ = segments < window_max_ ? segments * (1 + kBeta) / 2 : segments;
  window_prior_ = segments;
  return static_cast<std::uint32_t>(window.bytes * kBeta);
}

std::uint32_t Cubic::on_path_known(const CongestionWindow& window, std::uint32_t holds_bytes) {
  window_max_ = window_prior_ = static_cast<double>(holds_bytes) / window.mss_bytes;
  return static_cast<std::uint32_t>(holds_bytes * kBeta);
}

void Cubic::begin_epoch(const CongestionWindow& window, Instant now) {
  const double segments = static_cast<double>(window.bytes) / window.mss_bytes;
  epoch_started_ = true;
  epoch_ = now;
  unused_since_ = kNever;
  friendly_ = segments;
  if (segments < window_max_ && !after_timeout_) {
    k_seconds_ = std::cbrt((window_max_ - segments) / kC);
    return;
  }
  // Never lost (s4.10), a timeout (s4.8), or already above where it was.
  if (window_prior_ == 0) window_prior_ = segments;
  k_seconds_ = 0;
  window_max_ = segments;
  after_timeout_ = false;
}

void Cubic::evaluate(CongestionWindow& window, Duration rtt, Instant now) {
  if (!epoch_started_) begin_epoch(window, now);
  if (unused_since_ != kNever) {
    epoch_ = epoch_ + (now - unused_since_);
    unused_since_ = kNever;
  }
  const double segments = static_cast<double>(window.bytes) / window.mss_bytes;
  const double share = static_cast<double>(acknowledged_) / window.bytes;  // of a window
  const double elapsed_seconds = static_cast<double>((now - epoch_ + rtt).ns) * 1e-9;

  // s4.2 equation 1, at t + RTT.
  const double from_k = elapsed_seconds - k_seconds_;
  double target = kC * from_k * from_k * from_k + window_max_;
  target = std::clamp(target, segments, 1.5 * segments);
  double wanted = segments + (target - segments) * share;  // s4.4, s4.5

  // s4.3 equation 4, counted in windows for round trips; as Reno, once it is where it was.
  friendly_ += (friendly_ < window_prior_ ? kAlpha : 1) * share;
  wanted = std::max(wanted, friendly_);

  const double more = (wanted - segments) * window.mss_bytes;
  if (more > 0) window.grow(static_cast<std::uint32_t>(more + 0.5));
}

}  // namespace rnic::tcp
