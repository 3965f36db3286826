// How large a segment may be on a connection's path: what routers say (RFC 1191, RFC 8201), what
// silence says (a black hole), and probes upwards (RFC 4821, RFC 8899).
//
// Sizes are octets of TCP behind its fixed header, options and payload, as in the MSS option: a
// packet less `headers_bytes`.
//
// What a router says may have been said by somebody else (RFC 5927 s7.2). It is believed at once
// where no segment of that size has ever come through; else only when the segment that it complains
// of has timed out.
//
// Pure; no timer: probes ride on data, so it is asked when there are some.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

class PathMtu {
 public:
  // `ceiling_bytes`: what the port and the peer let through. `floor_bytes`: what every path does.
  PathMtu(std::uint32_t headers_bytes, std::uint32_t floor_bytes, std::uint32_t ceiling_bytes)
      : headers_(headers_bytes), floor_(floor_bytes), ceiling_(ceiling_bytes), size_(ceiling_bytes) {}

  // The size to send now.
  std::uint32_t size_bytes() const { return size_; }
  // The port's MTU, or what the peer takes, has changed. What the path is known to let through stays
  // a limit; where the ceiling was the limit it goes with it.
  void set_ceiling(std::uint32_t ceiling_bytes);

  // ---- what is heard -------------------------------------------------------------------------
  // A router cannot pass on a packet with the segment at `quoted`, which is outstanding; it would
  // one of `size_bytes`. Whether size_bytes() has changed.
  bool on_packet_too_big(std::uint32_t size_bytes, Seq quoted, Instant now);
  // Segments up to `una` are at the peer, the largest of them this large.
  void on_acknowledged(std::uint32_t largest_bytes, Seq una) {
    if (largest_bytes > arrived_) arrived_ = largest_bytes;
    if (told_ != 0 && una.after(told_of_)) told_ = 0;
  }
  // The `nth` timeout in a row, of a segment of this size. Whether size_bytes() has changed.
  bool on_timeout(std::uint32_t nth, std::uint32_t segment_bytes, Instant now);

  // ---- probing -------------------------------------------------------------------------------
  // The size to try now; 0: none.
  std::uint32_t wanted_probe(Instant now);
  // One is on its way, or soon: no other is wanted for a while.
  void on_probe_begun(std::uint32_t size_bytes, Instant now);
  // A segment of this size was handed over for sending. Whether it is the probe that was begun, or at
  // least one; else it is just too long.
  bool on_probe_handed(std::uint32_t size_bytes) {
    if (handed_ || size_bytes > probe_ || size_bytes <= size_) return false;
    probe_ = size_bytes;
    return handed_ = true;
  }
  // It is at the peer. size_bytes() has grown.
  void on_probe_arrived(Instant now);
  // It was lost. Where nothing else was at the time, its size is to blame. `pause`: what passes between
  // two losses that congestion makes (RFC 4821 s7.6.2).
  enum class Lost : std::uint8_t { alone, among_others };
  void on_probe_lost(Lost how, Duration pause, Instant now);

 private:
  static constexpr std::uint32_t kBlackHoleTimeouts = 3;  // in a row (RFC 9293's R1, RFC 4821 s7.7)
  static constexpr std::uint32_t kProbesMax = 3;          // of one size (RFC 8899 s5.1.2)
  static constexpr std::uint32_t kGrainBytes = 32;        // a search ends when so little is at stake
  static constexpr Duration kProbePause = seconds(1);     // at least
  static constexpr Duration kRaiseAfter = seconds(600);   // RFC 1191 s6.3, RFC 8899 s5.1.1

  void shrink(std::uint32_t size_bytes);
  void rest(Instant now);
  std::uint32_t next_probe() const;
  void search_on(Instant from);

  std::uint32_t headers_;
  std::uint32_t floor_;
  std::uint32_t ceiling_;
  std::uint32_t size_;
  std::uint32_t arrived_ = 0;  // the largest that came through since the path last shrank

  std::uint32_t told_ = 0;  // what a router said and nothing has confirmed; 0: nothing
  Seq told_of_{};

  Instant probe_at_ = kNever;
  bool resting_ = false;         // until probe_at_; then all that was learnt of the path is too old
  std::uint32_t probe_ = 0;      // the one on its way
  bool handed_ = false;          //   and handed over
  std::uint32_t tries_ = 0;      // of the size that is next
  std::uint32_t too_large_ = 0;  // the smallest that did not come through; 0: none known
  std::uint32_t named_ = 0;      // by a router, of a probe: the next to try; 0: none
  bool doubted_ = false;         // the search follows a black hole: one try is enough for the top
};

}  // namespace rnic::tcp
