// Explicit congestion notification of one connection (RFC 3168): what the handshake agrees on, and for each direction
// a class: EcnEcho, what our ACKs say of marks that came; Ecn, whether our data may be marked, and when it says that
// the window was reduced.
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

// What came marked, told to the peer (RFC 3168 s6.1.3, RFC 8257 s3.2).
class EcnEcho {
 public:
  enum class Tells : std::uint8_t {
    nothing,
    first_mark,    // until the peer says that it has heard
    every_change,  // each ACK is of segments that were all marked, or all not
  };
  void start(Tells what) { tells_ = what; }

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

 private:
  void update_flags();

  static constexpr unsigned kBoundariesMax = 16;

  Tells tells_ = Tells::nothing;
  bool expected_ = false;  // what on_data() has nothing to do for; every_change: what came last
  std::uint8_t ack_flags_ = 0;
  std::uint8_t boundary_count_ = 0;
  std::array<Seq, kBoundariesMax> boundaries_{};
};

// The handshake, and what we send (RFC 3168 s6.1.1, s6.1.2).
class Ecn {
 public:
  static constexpr std::uint8_t kSetupSyn = wire::tcp_flags::kEce | wire::tcp_flags::kCwr;
  static constexpr std::uint8_t kSetupSynAck = wire::tcp_flags::kEce;
  static bool is_setup_syn(std::uint8_t flags) { return (flags & kSetupSyn) == kSetupSyn; }
  // One that reflects our SYN's flags is none (s6.1.1.2).
  static bool is_setup_syn_ack(std::uint8_t flags) { return (flags & kSetupSyn) == kSetupSynAck; }

  // Both sides have said that they can. Our data may be marked where we have never said that we cannot.
  enum class OurData : std::uint8_t { not_marked, may_be_marked };
  void start(OurData data) { marks_ = data == OurData::may_be_marked; }
  bool may_be_marked() const { return marks_; }
  // The window was reduced, for whatever reason: the next new data says so.
  void on_window_reduced() {
    if (marks_) tell_reduced_ = true;
  }
  bool tells_reduced() const { return tell_reduced_; }
  std::uint8_t take_data_flags() {
    const std::uint8_t flags = tell_reduced_ ? wire::tcp_flags::kCwr : std::uint8_t{0};
    tell_reduced_ = false;
    return flags;
  }

 private:
  bool marks_ = false;
  bool tell_reduced_ = false;
};

}  // namespace rnic::tcp
