// Explicit congestion notification of one connection (RFC 3168), in both directions: what the
// handshake agrees on, what our ACKs echo, and when our data says that the window was reduced.
//
// The codepoints of IP are the caller's to read and write; here a received segment is marked (CE)
// or not, and one of ours may be marked (ECT) or not.
#pragma once

#include <array>
#include <cstdint>

#include "tcp/seq.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

// Whether a device asks for it, or only agrees when it is asked.
enum class EcnUse : std::uint8_t { off, passive, on };

class Ecn {
 public:
  // ---- the handshake (RFC 3168 s6.1.1) -------------------------------------------------------
  static constexpr std::uint8_t kSetupSyn = wire::tcp_flags::kEce | wire::tcp_flags::kCwr;
  static constexpr std::uint8_t kSetupSynAck = wire::tcp_flags::kEce;
  static bool is_setup_syn(std::uint8_t flags) { return (flags & kSetupSyn) == kSetupSyn; }
  // One that reflects our SYN's flags is none (s6.1.1.2).
  static bool is_setup_syn_ack(std::uint8_t flags) { return (flags & kSetupSyn) == kSetupSynAck; }

  // Both sides have said that they can. `may_mark`: and we have never said that we cannot, so our
  // data may be marked. `exact`: our ACKs echo every change (RFC 8257), not the first mark until
  // it is heard.
  void agree(bool may_mark, bool exact) {
    echoes_ = true;
    marks_ = may_mark;
    exact_ = exact;
  }
  bool may_be_marked() const { return marks_; }

  // ---- receiving (s6.1.3; RFC 8257 s3.2) -----------------------------------------------------
  // Whether a segment tells something: asked of each, before on_data() of few.
  bool is_news(bool marked, std::uint8_t flags) const {
    return marked != expected_ || (flags & wire::tcp_flags::kCwr) != 0;
  }
  // A segment with octets in the window. Those before `received` are acknowledged, or will be, as
  // they came: marked or not; `acknowledged`: up to where they are. True: an ACK is due at once.
  bool on_data(bool marked, std::uint8_t flags, Seq received, Seq acknowledged);
  // ECE, or nothing: of the next segment with an ACK.
  std::uint8_t ack_flags() const { return ack_flags_; }
  // An ACK must not go beyond first_boundary(): what is before it came otherwise marked than what
  // is behind.
  bool has_boundary() const { return boundary_count_ != 0; }
  Seq first_boundary() const { return boundaries_[0]; }
  void on_acknowledged(Seq up_to);

  // ---- sending (s6.1.2) ----------------------------------------------------------------------
  // The window was reduced, for whatever reason: the next new data says so.
  void on_window_reduced() {
    if (marks_) tell_reduced_ = true;
  }
  std::uint8_t take_data_flags() {
    const std::uint8_t flags = tell_reduced_ ? wire::tcp_flags::kCwr : std::uint8_t{0};
    tell_reduced_ = false;
    return flags;
  }

 private:
  void update_flags();

  static constexpr unsigned kBoundariesMax = 16;

  bool echoes_ = false;
  bool marks_ = false;
  bool exact_ = false;
  bool expected_ = false;  // what on_data() has nothing to do for; exact: what came last
  bool tell_reduced_ = false;
  std::uint8_t ack_flags_ = 0;
  std::uint8_t boundary_count_ = 0;
  std::array<Seq, kBoundariesMax> boundaries_{};
};

}  // namespace rnic::tcp
