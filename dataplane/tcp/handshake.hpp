// Opening by the peer: what the SYNs agree on, and a connection that is only half open
// (RFC 9293 s3.5, s3.10.7.2 and SYN-RECEIVED of s3.10.7.4; RFC 4987 s3.3).
//
// A SYN costs nothing to make, so what is kept of it is small: a Handshake, of which a device has a
// fixed number. A Connection, with its queues, is made of it when the third segment has come, which
// only somebody who saw our SYN-ACK can send.
//
// Pure values. A Connection in SYN-RECEIVED by itself is one that called, too (both at once).
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "tcp/seq.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

struct Options;

// Smaller than this, a peer's MSS is a mistake or an attack: nearly all would be headers.
inline constexpr std::uint32_t kMssMin = 48;

struct Handshake {
  Seq ours{}, theirs{};                // both initial sequence numbers
  std::uint16_t peer_mss = 0;          // what we may send; never below kMssMin
  std::uint16_t window = 0;            // of the peer's SYN: not scaled
  bool scaling = false;                // both offered; then
  std::uint8_t send_shift = 0;         //   of what the peer says, and
  std::uint8_t receive_shift = 0;      //   of what we say
  bool sack = false;                   // both offered
  bool ecn = false;                    // asked for and agreed to (RFC 3168 s6.1.1)
  bool timestamps = false;             // both offered; then
  std::uint32_t timestamp_recent = 0;  //   the peer's last, and
  std::uint32_t timestamp_offset = 0;  //   what is added to our clock
  bool held = false;                   // we say that our window is shut: there is no place yet
  std::uint8_t sent = 0;               // SYN-ACKs; 0 while the first is due, or where nobody counted
  Instant sent_at = kNever;            // the first of them; kNever: not known
};

// The least shift that lets 16 bits say the window (RFC 7323 s2.3).
std::uint8_t window_shift(std::uint32_t window_bytes);
// Our clock of timestamps: about a millisecond (RFC 7323 s5.4).
inline constexpr unsigned kTimestampShift = 20;
constexpr std::uint32_t timestamp_clock(Instant now) { return static_cast<std::uint32_t>(now.ns >> kTimestampShift); }

// How long a SYN or SYN-ACK that was sent again `repeats` times waits for its answer, and how often it is sent again
// before we give up; `repeats_max`: where syn_wait_first is rto_initial (RFC 6298 s2.1 and s5.5, RFC 9293 s3.8.3).
Duration handshake_wait(const Options& options, std::uint32_t repeats);
std::uint32_t handshake_repeats(const Options& options, std::uint32_t repeats_max);

// What `syn` and `options` agree on. Without the option the peer takes options.mss_default_bytes.
Handshake agree(const wire::TcpHeader& syn, const Options& options, Seq ours, std::uint32_t timestamp_offset);

// The peer's SYN came again. Without the flags of ECN it has given that up (RFC 3168 s6.1.1.1).
void on_syn_again(Handshake& handshake, const wire::TcpHeader& syn);
// DCTCP's may be marked on its way (RFC 8257 s3.6), any other's not (RFC 3168 s6.1.1).
bool syn_ack_may_be_marked(const Handshake& handshake, const Options& options);

// The SYN-ACK. An answer agrees to what was offered, and offers nothing.
wire::TcpHeader syn_ack(const Handshake& handshake, const Options& options, Instant now);

// What a segment does to a half-open connection.
enum class HalfOpenStep : std::uint8_t {
  ignore,
  answer,       // its SYN again: the SYN-ACK again
  acknowledge,  // cannot be right, but may be half right: acknowledge() says where we are
  reset,        // acknowledges what was never sent: a RST, and nothing else changes
  forget,       // a RST that we believe
  complete,     // a Connection takes over, and this segment is its first
};
HalfOpenStep on_half_open(const Handshake& handshake, const Options& options, const wire::TcpHeader& header,
                          std::size_t payload_bytes);
wire::TcpHeader acknowledge(const Handshake& handshake, const Options& options, Instant now);
// What stands for the peer's third segment when that is gone: it says no more than the SYN did. And the RST that ends
// what the peer takes for a connection. Ports are the caller's.
wire::TcpHeader third_segment(const Handshake& handshake);
wire::TcpHeader reset(const Handshake& handshake);

}  // namespace rnic::tcp
