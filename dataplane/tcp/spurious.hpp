// Whether the last reduction of the window was for nothing: what was taken for lost was only late.
// Three ways to know it:
//
//  - by timestamps (Eifel, RFC 3522): what acknowledges the first retransmission echoes an earlier
//    time, so it was the original that arrived;
//  - by DSACK (RFC 3708): the peer had everything that was sent again;
//  - after a timeout, by sending something new instead of the rest again (F-RTO, RFC 5682 s3.1):
//    when then something arrives that was sent once, and nothing of the new, it was all on its way.
//
// What follows from it is the caller's: RFC 4015, RFC 9438 s4.9.
#pragma once

#include <array>
#include <cstdint>

#include "base/time.hpp"
#include "tcp/delivered.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

class SpuriousCheck {
 public:
  // A recovery begins, with a reduction that can be undone.
  enum class After : std::uint8_t { losses, timeout };
  void begin(After what);
  // There is nothing to undo any more.
  void forget() {
    watching_ = false;
    frto_ = Frto::off;
  }
  bool watching() const { return watching_; }
  bool after_timeout() const { return after_ == After::timeout; }

  // Octets [first, end) are sent again.
  void on_retransmitted(Seq first, Seq end, Instant now);
  // The peer had [first, end) twice. Whether that makes it all that was sent again.
  bool on_duplicate(Seq first, Seq end);
  // An ACK up to `ack` came, whose timestamp echoes one of `echoed_until` or before (kNever: it has
  // none). Once for each recovery: only the first that covers the first retransmission tells.
  bool on_acknowledgement(Seq ack, Instant echoed_until);

  // F-RTO. A timeout's first ACK that advances, not beyond what was out then: from now on new
  // segments are to go, if there are some and may, and the answer to these decides.
  enum class Frto : std::uint8_t { off, first, second };
  Frto frto() const { return frto_; }
  void frto_begin(Seq out) {
    frto_ = Frto::first;
    out_ = out;
  }
  void frto_second() { frto_ = Frto::second; }
  void frto_off() { frto_ = Frto::off; }
  // In the second step: something has arrived. Whether the timeout was for nothing.
  bool frto_decides(const Delivered& delivered);

 private:
  struct Range {
    Seq first{}, end{};
  };
  static constexpr unsigned kRangesMax = 8;  // with more, DSACK does not decide

  bool watching_ = false;
  After after_ = After::losses;
  bool by_echo_ = false;    // the first ACK is still to come
  bool by_ranges_ = false;  // all that was sent again is in `ranges_`
  Frto frto_ = Frto::off;
  unsigned range_count_ = 0;
  Seq first_end_{};     // of the first retransmission
  Instant first_at_{};  // when it left
  Seq out_{};           // SND.NXT at the timeout
  std::array<Range, kRangesMax> ranges_{};
};

}  // namespace rnic::tcp
