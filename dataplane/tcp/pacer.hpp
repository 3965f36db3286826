// When the next new segment may leave: a window spread over its round trip, so that it fills no queue on a long path
// that it need not. In portions: a worker is not woken for each segment.
//
// On a short path a turn of the worker's is as long as what there would be to spread over, and a small window is no
// burst: neither is paced.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"

namespace rnic::tcp {

class Pacer {
 public:
  static constexpr Duration kShortPath = microseconds(200);
  static constexpr std::uint32_t kSmallWindow = 64 * 1024;

  // What a portion is made of.
  struct Pace {
    std::uint32_t window_bytes = 0;
    std::uint32_t rate_bytes = 0;  // in a round trip
    std::uint32_t segment_bytes = 0;
    Duration round_trip{};
  };
  // pace(): asked where a portion begins.
  template <typename P>
  bool may_send(Instant now, P&& pace) {
    if (left_bytes_ > 0) [[likely]]
      return true;
    if (now < next_at_) return false;
    begin(now, pace());
    return true;
  }
  void on_sent(std::uint32_t octets) { left_bytes_ -= octets; }
  // What may leave at once, as one frame: no more than a portion.
  static std::uint32_t burst_bytes(const Pace& pace) {
    return paces(pace) ? static_cast<std::uint32_t>(std::min<std::int64_t>(portion_bytes(pace), UINT32_MAX))
                       : UINT32_MAX;
  }
  // No portion begins before that.
  void hold(Instant until) {
    left_bytes_ = std::min<std::int64_t>(left_bytes_, 0);
    next_at_ = std::max(next_at_, until);
  }
  // When may_send() says yes; a time that has passed: now.
  Instant due() const { return left_bytes_ > 0 ? Instant{} : next_at_; }

 private:
  static constexpr Duration kPortion = microseconds(100);
  // Of a portion that begins late, so much is made up for; more would be a burst.
  static constexpr Duration kLate = milliseconds(1);

  static bool paces(const Pace& pace) { return pace.round_trip >= kShortPath && pace.window_bytes > kSmallWindow; }
  static std::int64_t portion_bytes(const Pace& pace) {
    const Duration lasting = std::min(kPortion, pace.round_trip / 32);
    return std::max(
        static_cast<std::int64_t>(static_cast<double>(std::max(pace.rate_bytes, 1u)) * static_cast<double>(lasting.ns) /
                                  static_cast<double>(pace.round_trip.ns)),
        std::int64_t{2} * pace.segment_bytes);
  }

  void begin(Instant now, const Pace& pace) {
    if (!paces(pace)) {
      left_bytes_ = std::max(pace.window_bytes, 1u);
      next_at_ = now;
      return;
    }
    const std::int64_t rate = std::max(pace.rate_bytes, 1u);
    const std::int64_t portion = portion_bytes(pace);
    left_bytes_ = std::min<std::int64_t>(left_bytes_, 0) + portion;
    next_at_ = std::max(next_at_, now - std::min(kLate, pace.round_trip / 32)) +
               Duration{static_cast<std::int64_t>(static_cast<double>(portion) *
                                                  static_cast<double>(pace.round_trip.ns) / static_cast<double>(rate))};
  }

  std::int64_t left_bytes_ = 0;  // of this portion
  Instant next_at_{};
};

}  // namespace rnic::tcp
