// Congestion control of one connection: the window and one of the two algorithms. No virtual call:
// there are two, and an `if` is cheaper.
#pragma once

#include <cstdint>

#include "base/time.hpp"
#include "tcp/congestion/cubic.hpp"
#include "tcp/congestion/newreno.hpp"
#include "tcp/congestion/window.hpp"

namespace rnic::tcp {

class CongestionControl {
 public:
  explicit CongestionControl(bool cubic) : is_cubic_(cubic) {}

  // After a lost SYN with one segment only (RFC 5681 s3.1).
  void start(std::uint32_t mss_bytes, bool syn_lost) {
    window_.mss_bytes = mss_bytes;
    window_.bytes = syn_lost ? mss_bytes : CongestionWindow::initial(mss_bytes);
  }
  // The path's or the peer's segments became smaller or larger. The window in octets stays, but
  // not below one segment.
  void set_mss(std::uint32_t mss_bytes) {
    window_.mss_bytes = mss_bytes;
    window_.bytes = std::max(window_.bytes, mss_bytes);
  }
  std::uint32_t window_bytes() const { return window_.bytes; }
  std::uint32_t threshold_bytes() const { return window_.threshold_bytes; }

  // `in_flight_bytes`: before this ACK. A window that was not used says nothing about the path,
  // and does not grow (RFC 7661's reason; Linux's rule).
  void on_acknowledged(std::uint32_t octets, std::uint32_t in_flight_bytes, Duration rtt, Instant now) {
    if (window_.slow_start()) {
      if (in_flight_bytes < window_.bytes / 2) return;
      window_.grow(octets);
      return;
    }
    if (in_flight_bytes + 3 * window_.mss_bytes < window_.bytes) return;
    if (is_cubic_)
      cubic_.on_acknowledged(window_, octets, rtt, now);
    else
      newreno_.on_acknowledged(window_, octets);
  }
  // A loss that ACKs told of: once for each window of data.
  void on_loss(std::uint32_t in_flight_bytes) {
    reduce_threshold(in_flight_bytes);
    window_.bytes = window_.threshold_bytes;
  }
  // The first timeout of a segment (RFC 5681 s3.1 equation 4), and those that follow it.
  void on_timeout(std::uint32_t in_flight_bytes) {
    reduce_threshold(in_flight_bytes);
    window_.bytes = window_.mss_bytes;
  }
  void on_repeated_timeout() { window_.bytes = window_.mss_bytes; }
  // Nothing was sent for longer than a retransmission timeout (RFC 5681 s4.1).
  void on_idle() {
    window_.bytes = std::min(window_.bytes, CongestionWindow::initial(window_.mss_bytes));
    cubic_.on_idle();
  }

 private:
  void reduce_threshold(std::uint32_t in_flight_bytes) {
    if (is_cubic_)
      cubic_.on_loss(window_);
    else
      newreno_.on_loss(window_, in_flight_bytes);
  }

  bool is_cubic_;
  CongestionWindow window_;
  NewReno newreno_;
  Cubic cubic_;
};

}  // namespace rnic::tcp
