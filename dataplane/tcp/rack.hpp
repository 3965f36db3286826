// RACK: a segment is lost when one that was sent after it has arrived, and the time that
// reordering may take has passed (RFC 8985 s6). How long that is, is learned: none, as long as
// three segments behind a hole have always meant a loss; a quarter of a round trip once segments
// were seen to overtake each other; more with every round in which the peer tells of a
// retransmission that was not needed.
//
// What it says is applied to the segments by SendQueue::detect_losses().
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"
#include "tcp/delivered.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

// The least round trip of the last one to two minutes (RFC 8985 s6.2 step 1: a window, so that a
// longer path is learned).
class LeastRoundTrip {
 public:
  void sample(Duration measured, Instant now) {
    if (measured < current_) current_ = measured;
    if (now < turns_at_) [[likely]]
      return;
    previous_ = turns_at_.ns == 0 ? measured : current_;
    current_ = measured;
    turns_at_ = now + kHalf;
  }
  // 0: nothing measured yet.
  Duration value() const { return turns_at_.ns == 0 ? Duration{0} : std::min(previous_, current_); }

 private:
  static constexpr Duration kHalf = seconds(60);
  Duration previous_{kNever.ns};
  Duration current_{kNever.ns};
  Instant turns_at_{};
};

class Rack {
 public:
  // What is needed to judge a segment.
  struct Horizon {
    Instant sent_at{};    // of the last sent that has arrived,
    Seq end{};            // and its end
    Duration patience{};  // from a segment's sending until it is lost

    // RFC 8985 s6.2, RACK_sent_after().
    bool overtook(Instant other_sent_at, Seq other_end) const {
      if (other_sent_at != sent_at) return other_sent_at < sent_at;
      return other_end.before(end);
    }
  };

  // A round trip that is certain: the handshake's.
  void on_round_trip(Duration measured, Instant now) { least_.sample(measured, now); }
  Duration least_round_trip() const { return least_.value(); }
  Duration latest_round_trip() const { return rtt_; }

  // An ACK told of something new. `forward`: the highest octet that was known to have arrived
  // before it (RACK.fack).
  void on_delivered(const Delivered& delivered, Seq forward, Instant now) {
    if (delivered.any()) {  // steps 1 and 2
      rtt_ = now - delivered.newest_sent_at;
      least_.sample(rtt_, now);
      if (!started_ || horizon_.sent_at < delivered.newest_sent_at ||
          (horizon_.sent_at == delivered.newest_sent_at && delivered.newest_end.after(horizon_.end))) {
        started_ = true;
        horizon_.sent_at = delivered.newest_sent_at;
        horizon_.end = delivered.newest_end;
      }
    }
    // Step 3.
    if (delivered.originals && delivered.lowest_original_end.before(forward)) [[unlikely]]
      reordering_seen_ = true;
  }

  // Step 4: the peer told of a duplicate, by DSACK; counts once in a round trip. In octets of our
  // stream, ever: acknowledged, and sent.
  void on_duplicate(std::uint64_t acknowledged, std::uint64_t sent);
  // What was sent again had only been overtaken. RFC 8985 s6.2 sees that only where an original arrives before it is
  // sent again, which is luck: as long as it does not, three segments behind a hole are a loss at once, each time.
  void on_reordering() { reordering_seen_ = true; }
  void on_recovery_end();
  // A timeout was for nothing: what was concluded from its retransmission does not hold.
  void on_spurious_timeout() { started_ = false; }

  // Before the first segment has arrived there is no horizon to judge by.
  bool started() const { return started_; }
  Duration reordering_window(bool recovering, std::uint32_t segments_sacked, Duration smoothed) const;
  Horizon horizon(Duration reordering_window) const {
    return {horizon_.sent_at, horizon_.end, rtt_ + reordering_window};
  }

 private:
  LeastRoundTrip least_;
  Horizon horizon_;
  Duration rtt_{};
  bool started_ = false;
  bool reordering_seen_ = false;
  std::uint8_t persist_ = 0;      // recoveries until the window is small again
  std::uint32_t multiplier_ = 1;  // quarters of a round trip
  std::uint64_t duplicate_round_end_ = 0;
};

}  // namespace rnic::tcp
