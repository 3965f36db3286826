// The tail loss probe (RFC 8985 s7): the last segments of a burst have none behind them whose
// arrival could show their loss. So when an ACK is overdue one segment goes, new or the last once
// more, and its SACK shows what is missing, long before the retransmission timeout.
//
// When it is due, and what it means that it was answered as it was.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

class TailProbe {
 public:
  // s7.2: how long after the last news. `smoothed` 0: nothing was measured. A single segment may
  // be waiting for the peer's delayed acknowledgement.
  static Duration wait(Duration smoothed, bool single, Duration peer_delay) {
    if (smoothed.ns == 0) return kUnmeasured;
    const Duration wait = std::max(smoothed * 2, kLeast);
    return single ? wait + peer_delay : wait;
  }

  bool out() const { return out_; }
  void on_round_trip() { measured_ = true; }
  // s7.3: one at a time, and not again before a round trip was measured.
  bool allowed() const { return !out_ && measured_; }
  // `end`: SND.NXT with it.
  void on_sent(bool again, Seq end) {
    out_ = true;
    again_ = again;
    measured_ = false;
    end_ = end;
  }
  // s7.1: a recovery begins.
  void forget() { out_ = false; }

  // s7.4.2: an ACK up to `ack` came while the probe was out. `duplicate`: it told of a duplicate,
  // up to `duplicate_end`. `plain`: it changes nothing and carries no SACK option. True: the
  // probe made good a loss that nobody has paid for.
  bool repaired_loss(Seq ack, bool duplicate, Seq duplicate_end, bool plain) {
    if (!out_ || ack.before(end_)) return false;
    if (!again_ || (duplicate && duplicate_end == end_)) {
      out_ = false;
      return false;
    }
    if (ack.after(end_)) {
      out_ = false;
      return true;
    }
    if (plain) out_ = false;
    return false;
  }
  // That duplicate is the probe's: no retransmission of ours was in vain.
  bool is_own(Seq duplicate_end) const { return out_ && again_ && duplicate_end == end_; }

 private:
  static constexpr Duration kUnmeasured = seconds(1);
  // A peer that shares its processor is often late.
  static constexpr Duration kLeast = milliseconds(5);

  bool out_ = false;
  bool again_ = false;     // it was a retransmission
  bool measured_ = false;  // since the last probe
  Seq end_{};
};

}  // namespace rnic::tcp
