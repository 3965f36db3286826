// Congestion control of one connection: the window, one of the three algorithms, and the way
// through a recovery. No virtual call: an `if` is cheaper.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"
#include "tcp/congestion/cubic.hpp"
#include "tcp/congestion/dctcp.hpp"
#include "tcp/congestion/newreno.hpp"
#include "tcp/congestion/window.hpp"
#include "tcp/pacer.hpp"
#include "tcp/prr.hpp"

namespace rnic::tcp {

enum class Algorithm : std::uint8_t { newreno, cubic, dctcp };
constexpr const char* name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::newreno:
      return "newreno";
    case Algorithm::cubic:
      return "cubic";
    case Algorithm::dctcp:
      return "dctcp";
  }
  return "?";
}

class CongestionControl {
 public:
  explicit CongestionControl(Algorithm algorithm) : algorithm_(algorithm) {}

  // After more than one lost SYN with one segment only (RFC 6928 s2).
  void start(std::uint32_t mss_bytes, bool careful) {
    window_.mss_bytes = mss_bytes;
    window_.bytes = careful ? mss_bytes : CongestionWindow::initial(mss_bytes);
  }
  // The path's or the peer's segments became smaller or larger. The window in octets stays, but
  // not below one segment.
  void set_mss(std::uint32_t mss_bytes) {
    window_.mss_bytes = mss_bytes;
    window_.bytes = std::max(window_.bytes, mss_bytes);
  }
  Algorithm algorithm() const { return algorithm_; }
  std::uint32_t window_bytes() const { return window_.bytes; }
  std::uint32_t threshold_bytes() const { return window_.threshold_bytes; }
  // What may leave in a round trip, where it is spread over it: a little more than the window, so that what comes late
  // is made up for. A quarter more in slow start, which then still grows by 1.94 in each; twice the window would be a
  // burst of half a round trip's, and overfill queues that the window does not. But no more than the threshold: the
  // path carries that, and who goes back to it need not find out.
  std::uint32_t pace_bytes() const {
    if (!window_.slow_start()) return window_.bytes + window_.bytes / 16;
    return std::min(window_.bytes + window_.bytes / 4, window_.threshold_bytes);
  }
  const Dctcp& dctcp() const { return dctcp_; }

  // `in_flight_bytes`: before this ACK. A window that was not used says nothing about the path,
  // and does not grow (RFC 7661's reason; Linux's rule).
  void on_acknowledged(std::uint32_t octets, std::uint32_t in_flight_bytes, Duration rtt, Instant now) {
    if (window_.slow_start()) {
      if (in_flight_bytes < window_.bytes / 2) return;
      window_.grow_to_threshold(octets);
      return;
    }
    const bool used = in_flight_bytes + 3 * window_.mss_bytes >= window_.bytes;
    if (algorithm_ == Algorithm::cubic) {
      if (used)
        cubic_.on_acknowledged(window_, octets, rtt, now);
      else
        cubic_.on_unused(now);
    } else if (used) {
      newreno_.on_acknowledged(window_, octets);
    }
  }
  // DCTCP's share of the marks; every ACK with octets, if ECN was agreed on.
  void on_echo_known(std::uint32_t octets, bool echo, std::uint64_t acknowledged, std::uint64_t sent) {
    if (algorithm_ == Algorithm::dctcp) dctcp_.on_acknowledged(octets, echo, acknowledged, sent);
  }

  // ---- congestion: once for each window of data -------------------------------------------
  // A loss that nothing is to be sent again for.
  void on_repaired_loss(std::uint32_t in_flight_bytes) {
    reduce(Congestion::loss, in_flight_bytes);
    window_.bytes = window_.threshold_bytes;
  }
  // The peer has seen a mark (RFC 3168 s6.1.2, RFC 8257 s3.3). The window may be as small as one
  // segment.
  void on_mark(std::uint32_t in_flight_bytes) {
    const std::uint32_t wanted = reduce(Congestion::mark, in_flight_bytes);
    window_.bytes = std::max(std::min(wanted, window_.bytes), window_.mss_bytes);
  }

  // A slow start ends with a loss on a long path, in front of which there is a queue: by then its window may be twice
  // what the path holds, and a part of it, whichever, says little. What arrives at the peer in the next round trip says
  // where to go on, as the path is full then: TCP Westwood's rule, here for the slow start of CUBIC alone, and only
  // where much was lost: single losses are not the queue's. Before begin_recovery().
  void measure_path(Duration least_round_trip, Duration latest_round_trip, Instant now) {
    measured_bytes_ = sent_again_bytes_ = 0;
    measured_from_ = kNever;
    if (algorithm_ != Algorithm::cubic || !window_.slow_start() || least_round_trip < Pacer::kShortPath) return;
    if (latest_round_trip < least_round_trip + least_round_trip / kQueueShare) return;
    measured_from_ = now;
    least_round_trip_ = least_round_trip;
    full_round_trip_ = latest_round_trip;
  }

  // A recovery begins (fast retransmit): from here on PRR makes the window. Without `reduce` this
  // window of data has had its reduction.
  void begin_recovery(std::uint32_t in_flight_bytes, bool reduces) {
    if (reduces) {
      reduce(Congestion::loss, in_flight_bytes);
    } else {
      remember();
      window_.threshold_bytes = std::min(window_.threshold_bytes, std::max(allowed().bytes, 2 * window_.mss_bytes));
    }
    prr_.begin(in_flight_bytes, window_.threshold_bytes);
  }
  // `delivered_bytes` are news at the peer, `pipe_bytes` are in the network.
  void recover(std::uint32_t delivered_bytes, std::uint32_t pipe_bytes, Instant now) {
    if (measured_from_ != kNever) [[unlikely]]
      measure(delivered_bytes, now);
    window_.bytes = pipe_bytes + prr_.may_leave(delivered_bytes, pipe_bytes, window_.mss_bytes);
  }
  void on_sent_in_recovery(std::uint32_t octets) { prr_.on_sent(octets); }
  void on_sent_again(std::uint32_t octets) { sent_again_bytes_ += octets; }
  // No burst where the peer's window, not ours, has kept segments back (RFC 6582 s3.2 step 3): from what is in
  // the network it is slow start to the threshold, a round trip or two.
  void end_recovery(std::uint32_t pipe_bytes) {
    window_.bytes = std::min(window_.threshold_bytes, pipe_bytes + CongestionWindow::initial(window_.mss_bytes));
    resumes_at_bytes_ = window_.threshold_bytes;
  }
  // By a timeout, which reduces from where the recovery would have ended.
  void break_off_recovery() { window_.bytes = window_.threshold_bytes; }

  // The first timeout of a segment (RFC 5681 s3.1 equation 4), and those that follow it.
  void on_timeout(std::uint32_t in_flight_bytes) {
    reduce(Congestion::loss, in_flight_bytes);
    if (algorithm_ == Algorithm::cubic) cubic_.on_timeout();
    window_.bytes = window_.mss_bytes;
  }
  void on_repeated_timeout() { window_.bytes = window_.mss_bytes; }

  // Nothing was sent for longer than a retransmission timeout (RFC 5681 s4.1).
  void on_idle() {
    window_.bytes = std::min(window_.bytes, CongestionWindow::initial(window_.mss_bytes));
    resumes_at_bytes_ = 0;
    cubic_.on_idle();
  }

  // ---- what was no congestion ----------------------------------------------------------------
  // The last reduction was for nothing: as before it (RFC 9438 s4.9.2).
  void undo() {
    window_.bytes = std::max(window_.bytes, before_.bytes);
    restore();
  }
  // The same after a timeout; the window is refilled by ACKs, not in one burst (RFC 4015 s3.2).
  void undo_timeout(std::uint32_t pipe_bytes, std::uint32_t acknowledged_bytes) {
    const std::uint32_t more = std::min(acknowledged_bytes, CongestionWindow::initial(window_.mss_bytes));
    window_.bytes = std::max(window_.bytes, std::min(pipe_bytes + more, before_.bytes));
    restore();
    window_.threshold_bytes = std::max(window_.threshold_bytes, before_.bytes);
  }

 private:
  // Sets the threshold; says where the window is to be.
  std::uint32_t reduce(Congestion why, std::uint32_t in_flight_bytes) {
    remember();
    const CongestionWindow window = allowed();
    std::uint32_t wanted;
    if (algorithm_ == Algorithm::cubic)
      wanted = cubic_.reduce(window);
    else if (algorithm_ == Algorithm::dctcp && why == Congestion::mark)
      wanted = dctcp_.reduce(window);
    else
      wanted = newreno_.reduce(window, in_flight_bytes);
    window_.set_threshold(wanted);
    resumes_at_bytes_ = 0;
    return wanted;
  }
  // What the last recovery left, though the window may not be there again yet: that is no second reduction.
  CongestionWindow allowed() const {
    CongestionWindow window = window_;
    window.bytes = std::max(window.bytes, resumes_at_bytes_);
    return window;
  }
  void measure(std::uint32_t delivered_bytes, Instant now) {
    measured_bytes_ += delivered_bytes;
    const Duration lasted = now - measured_from_;
    if (lasted < least_round_trip_) return;
    measured_from_ = kNever;
    if (sent_again_bytes_ < std::max(measured_bytes_ / kMuchLost, std::uint64_t{kManyLost} * window_.mss_bytes)) return;
    const auto in = [&](Duration round_trip) {
      const double octets =
          static_cast<double>(measured_bytes_) * static_cast<double>(round_trip.ns) / static_cast<double>(lasted.ns);
      return static_cast<std::uint32_t>(std::min(octets, static_cast<double>(before_.bytes)));
    };
    // A deep queue is used as ever.
    const std::uint32_t usual = cubic_.on_path_known(window_, in(full_round_trip_));
    window_.set_threshold(std::max(in(least_round_trip_), usual));
    prr_.aim_at(window_.threshold_bytes);
  }
  void remember() {
    before_ = window_;
    cubic_before_ = cubic_;
  }
  void restore() {
    window_.threshold_bytes = before_.threshold_bytes;
    cubic_ = cubic_before_;
  }

  static constexpr std::int64_t kQueueShare = 32;  // of a round trip: a queue that is one
  // What single losses do not come to: this share of what has arrived, and so many segments.
  static constexpr std::uint32_t kMuchLost = 32, kManyLost = 8;

  Algorithm algorithm_;
  CongestionWindow window_;
  NewReno newreno_;
  Cubic cubic_;
  Dctcp dctcp_;
  Prr prr_;
  // While it is measured what the path holds; else kNever.
  Instant measured_from_ = kNever;
  std::uint64_t measured_bytes_ = 0, sent_again_bytes_ = 0;
  Duration least_round_trip_{}, full_round_trip_{};
  std::uint32_t resumes_at_bytes_ = 0;  // where the window is on its way back to after a recovery
  CongestionWindow before_;             // the last reduction
  Cubic cubic_before_;
};

}  // namespace rnic::tcp
