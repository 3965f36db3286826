// Who may speak first on a stream, and when (RFC 5044 s7.1.2; W-MPA-21, -42, -87, -90): the responder is silent
// until it has heard an FPDU; the initiator says the RTR that was agreed on before anything of its consumer's.
// And the initiator's nudges.
//
// Owned by one queue pair, anew for each stream.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "qp/start.hpp"

namespace rnic::qp {

// The first FPDU is due within this time where the startup says that one must come (W-MPA-90).
inline constexpr Duration kFirstFpduTime = seconds(10);
// An initiator that has spoken and heard nothing says a Write of no octets at these times after the start, but not to a
// peer that it reaches without the wire. A peer may miss the news of octets that come right behind its Reply, and look
// at them only when more come: siw does, which changes its socket's callbacks after it has sent the Reply.
inline constexpr std::array kNudges{milliseconds(50), milliseconds(250), milliseconds(1250)};

class Gate {
 public:
  using Rtr = Start::Rtr;

  Gate(const Start& start, Instant now)
      : initiator_(start.initiator),
        rtr_(start.rtr),
        open_(start.initiator && start.rtr == Rtr::none),
        rtr_due_(start.initiator && start.rtr != Rtr::none),
        started_(now),
        // Not where the peer chose an RTR of its own taste: it is none that needs it.
        nudge_at_(start.initiator && (rtr_ == Rtr::none || rtr_ == Rtr::write) ? now + kNudges.front() : kNever),
        first_due_(!start.initiator && start.peer_to_peer ? now + kFirstFpduTime : kNever) {}

  // The consumer's FPDUs may leave.
  bool open() const { return open_; }
  // A Terminate may leave. A responder that has not heard a valid FPDU may send none (W-MPA-79).
  bool may_terminate() const { return open_ || initiator_; }

  // ---- the initiator's RTR ----
  bool rtr_due() const { return rtr_due_; }
  // It leaves in the segment of that number.
  Rtr take_rtr(std::uint64_t segment) {
    rtr_due_ = false;
    rtr_segment_ = segment;
    return rtr_;
  }
  // Segments below this number are with TCP. True: the RTR is among them, and the gate open (W-MPA-87).
  bool sent_up_to(std::uint64_t segment) {
    if (!rtr_segment_ || segment <= *rtr_segment_) return false;
    rtr_segment_.reset();
    open_ = true;
    return true;
  }
  void segments_dropped() { rtr_segment_.reset(); }

  // ---- what is heard ----
  // An FPDU, whatever it carries: any valid one lets the responder send (W-MPA-21, -87). True: it opened the gate.
  bool heard() {
    if (open_ || initiator_) return false;
    open_ = true;
    first_due_ = kNever;
    return true;
  }
  // An FPDU was taken, or the peer is on this worker: no nudge is needed.
  void taken() {
    nudge_at_ = kNever;
    nudge_due_ = false;
  }

  // ---- time ----
  Instant next_deadline() const { return first_due_ < nudge_at_ ? first_due_ : nudge_at_; }
  bool first_is_late(Instant now) const { return first_due_ <= now; }
  // `spoken`: something was said, and nothing is being said now.
  void on_time(Instant now, bool spoken) {
    if (nudge_at_ > now) return;
    nudge_due_ = open_ && spoken;
    nudge_at_ = ++nudges_ < kNudges.size() ? started_ + kNudges[nudges_] : kNever;
  }
  bool nudge_due() const { return nudge_due_; }
  void nudged() { nudge_due_ = false; }

  // RTS is left: nothing is begun any more.
  void close() {
    rtr_due_ = nudge_due_ = false;
    nudge_at_ = first_due_ = kNever;
  }

 private:
  bool initiator_;
  Rtr rtr_;
  bool open_;
  bool rtr_due_;
  bool nudge_due_ = false;
  std::optional<std::uint64_t> rtr_segment_;
  Instant started_;
  Instant nudge_at_;
  std::uint32_t nudges_ = 0;  // made, of kNudges
  Instant first_due_;
};

}  // namespace rnic::qp
