// What a connection is told when it is made, and what it counts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"
#include "tcp/congestion/control.hpp"
#include "tcp/ecn.hpp"

namespace rnic::tcp {

struct Options {
  std::uint32_t mss_bytes = 1460;                 // what we announce, and what our port lets through
  std::uint32_t mss_default_bytes = 536;          // of a peer that names none (RFC 9293 s3.7.1); IPv6: 1220
  std::uint32_t headers_bytes = 40;               // IP's and TCP's without options; IPv6: 60
  std::uint32_t path_floor_bytes = 512;           // an MSS that every path has room for; IPv6: 1220
  std::uint32_t run_bytes_max = 0;                // payload and TCP options of a run of segments; 0: none leave so
  std::uint32_t receive_window_bytes = 1u << 20;  // at first
  // Up to where it grows with what comes in a round trip, and with it, and with the congestion window, the three below.
  std::uint32_t window_max_bytes = 0;                         // less than the first: it does not
  static constexpr std::uint32_t kWindowMax = 0xFFFFu << 12;  // what a wire gets: finer steps than beyond it
  std::uint32_t send_segments_max = 1024;                     // of the retransmit queue; a power of two
  std::uint32_t out_of_order_segments_max = 1024;
  std::uint32_t receive_segments_max = 1024;  // in order and not consumed; a power of two
  static constexpr std::uint32_t kSegmentsGrown = 1u << 18;

  std::uint32_t widest_window_bytes() const { return std::max(receive_window_bytes, window_max_bytes); }
  bool grows() const { return window_max_bytes > receive_window_bytes; }
  bool window_scale = true;
  bool timestamps = false;  // 12 octets off every segment; default of the device
  bool sack = true;
  bool nagle = false;           // W-TCP-13
  bool tail_loss_probe = true;  // RFC 8985 s7; needs SACK
  using Congestion = Algorithm;
  Algorithm congestion = Algorithm::cubic;
  EcnUse ecn = EcnUse::passive;
  Duration rto_min = milliseconds(200);
  Duration rto_initial = seconds(1);
  // How long the first SYN or SYN-ACK waits for its answer, where nothing but memory lies between the two: it doubles
  // up to rto_initial, and from there on all is as elsewhere. 0: rto_initial.
  Duration syn_wait_first{0};
  Duration rto_max = seconds(60);
  Duration delayed_ack = milliseconds(40);
  std::uint32_t retransmissions_max = 12;         // RFC 9293 s3.8.3, R2: five minutes and more
  std::uint32_t syn_retransmissions_max = 7;      // three minutes
  std::uint32_t syn_ack_retransmissions_max = 5;  // of a half-open connection
  Duration keepalive = Duration{0};               // 0: off
  Duration time_wait = seconds(60);
};

struct Counters {
  std::uint64_t segments_in = 0, segments_out = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::uint64_t retransmitted = 0, timeouts = 0, fast_retransmits = 0;
  std::uint64_t duplicates = 0, out_of_order = 0, out_of_window = 0, challenge_acks = 0;
  std::uint64_t dropped_no_room = 0;  // in the window, but our queues were full
  std::uint64_t tail_probes = 0, window_probes = 0, path_probes = 0;
  std::uint64_t spurious_recoveries = 0;  // undone: what was taken for lost was late
  std::uint64_t ecn_reductions = 0;       // of the window, because the peer told of marks
  std::uint64_t duplicates_told = 0;      // by the peer: what we sent again, it had (DSACK)
};

}  // namespace rnic::tcp
