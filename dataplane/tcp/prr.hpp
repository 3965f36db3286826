// Proportional Rate Reduction (RFC 6937 s3, with the slow-start reduction bound): in recovery, for
// each octet that arrives ssthresh/FlightSize of an octet may leave, so that the window shrinks
// over a round trip instead of waiting for half of one; when more was lost than the reduction
// asks for, it grows back as in slow start.
//
// What could have left and did not, because the peer's window was shut by what it holds behind a hole,
// may leave later; but not all of it in one burst, which a short queue would drop.
//
// It says how much may leave; the caller turns that into a window.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rnic::tcp {

class Prr {
 public:
  // Recovery begins: with what is outstanding, and where the window is to end.
  void begin(std::uint32_t flight_bytes, std::uint32_t threshold_bytes) {
    flight_bytes_ = std::max(flight_bytes, 1u);
    threshold_bytes_ = threshold_bytes;
    delivered_ = sent_ = 0;
  }
  // It is to end there instead.
  void aim_at(std::uint32_t threshold_bytes) { threshold_bytes_ = threshold_bytes; }
  void on_sent(std::uint32_t octets) { sent_ += octets; }

  // An ACK in recovery told of `delivered` new octets at the peer, or a timer found losses (0).
  // `pipe`: what is in the network now (RFC 6675 s4). How many octets may leave.
  std::uint32_t may_leave(std::uint32_t delivered, std::uint32_t pipe_bytes, std::uint32_t mss_bytes) {
    delivered_ += delivered;
    if (pipe_bytes > threshold_bytes_) {
      const std::uint64_t in_proportion = (delivered_ * threshold_bytes_ + flight_bytes_ - 1) / flight_bytes_;
      return static_cast<std::uint32_t>(in_proportion > sent_ ? in_proportion - sent_ : 0);
    }
    const std::uint64_t banked = delivered_ > sent_ ? delivered_ - sent_ : 0;
    const std::uint64_t at_once = std::min<std::uint64_t>(banked, kBurstSegments * std::uint64_t{mss_bytes});
    const std::uint64_t limit = std::max<std::uint64_t>(at_once, delivered) + mss_bytes;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(threshold_bytes_ - pipe_bytes, limit));
  }

 private:
  static constexpr std::uint32_t kBurstSegments = 10;  // as of a connection that begins (RFC 6928)

  std::uint64_t delivered_ = 0;     // prr_delivered
  std::uint64_t sent_ = 0;          // prr_out
  std::uint32_t flight_bytes_ = 1;  // RecoverFS
  std::uint32_t threshold_bytes_ = 0;
};

}  // namespace rnic::tcp
