// SYN cookies (RFC 4987 s3.6): when no more half-open connections can be kept, what one needs is
// written into our initial sequence number, and comes back in the third segment.
//
//   31        27 26      24 23                                 0
//   | period    | MSS      | keyed hash of all of this and    |
//   | of time   | of eight | of the connection's name         |
//
// Window scale and "SACK permitted" do not fit. Where both sides use timestamps they are in the low
// bits of ours, which come back, too; else the connection does without them.
//
// Of a cookie nothing is remembered, so it is good for one to two periods, whoever sends it.
//
// Pure. Owned by one worker.
#pragma once

#include <cstdint>
#include <optional>

#include "base/siphash.hpp"
#include "base/time.hpp"
#include "tcp/handshake.hpp"

namespace rnic::tcp {

class Cookies {
 public:
  static constexpr Duration kPeriod = seconds(64);

  explicit Cookies(const SipKey& key) : key_(key) {}

  // `name` is a keyed hash of addresses and ports. The SYN-ACK is syn_ack(made, options, now), with
  // cookie_timestamp() in the place of its timestamp.
  Handshake make(std::uint64_t name, const wire::TcpHeader& syn, const Options& options, std::uint32_t timestamp_offset,
                 Instant now);
  // What a segment to a listener completes, or nothing if it does not answer a cookie of ours. Asks
  // for a hash only while there may be cookies about.
  std::optional<Handshake> open(std::uint64_t name, const wire::TcpHeader& header, const Options& options,
                                std::uint32_t timestamp_offset, Instant now) const;
  bool any_valid(Instant now) const { return now < valid_until_; }

 private:
  std::uint32_t hash(std::uint64_t name, Seq theirs, std::uint32_t period, std::uint32_t mss_index) const;

  SipKey key_;
  Instant valid_until_{};
};

// Our timestamp with the agreed options in its low bits; never later than the clock.
std::uint32_t cookie_timestamp(const Handshake& handshake, Instant now);

}  // namespace rnic::tcp
