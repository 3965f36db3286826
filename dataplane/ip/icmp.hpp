// ICMP for IPv4 (RFC 792, RFC 1122 s3.2.2, RFC 1191) and for IPv6 (RFC 4443, RFC 8201): the answer to
// an echo, what an error message says of a TCP connection of ours, and the errors that we send.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::ip {

// `message` is a whole ICMP message with a good checksum. Writes the echo reply's message into
// `out` (of the same size) and returns true, or does nothing if it is no echo request. Who asked is
// `from`, we are `to`; of their version is the message.
bool answer_echo(Bytes message, const wire::IpAddress& from, const wire::IpAddress& to, MutableBytes out);

// An error that quotes a TCP segment that we sent.
struct IcmpError {
  enum class Kind : std::uint8_t {
    unreachable,       // network, host, protocol, port, or prohibited
    packet_too_large,  // `next_hop_mtu`; 0 from an old router
    other,             // time exceeded, source quench: nothing follows from it
  } kind = Kind::other;
  wire::IpAddress local, remote;  // as in the quoted header: source, destination
  std::uint16_t local_port = 0, remote_port = 0;
  std::uint32_t sequence = 0;
  std::uint32_t next_hop_mtu = 0;
  std::uint32_t quoted_length = 0;  // of the whole quoted packet, as its header says
};
std::optional<IcmpError> parse_icmp_error(Bytes message);
std::optional<IcmpError> parse_icmp6_error(Bytes message);

// The path MTU that follows from "fragmentation needed" or "packet too big" when `mtu_now` is what
// we believed, or nothing if the message makes no sense: not lower than what we have, or lower than
// any link is (W-TCP-07; for IPv6 RFC 8201 s4). An old router names none: then the next plateau
// below the quoted packet's size (RFC 1191 s7.1).
inline constexpr std::uint32_t kPathMtuMin = 552;
inline constexpr std::uint32_t kPathMtuMinV6 = 1280;
std::optional<std::uint32_t> lowered_path_mtu(const IcmpError& error, std::uint32_t mtu_now);

// ---- errors that we send --------------------------------------------------------------------------

enum class Complaint : std::uint8_t {
  port_unreachable,
  protocol_unreachable,  // IPv6: an unknown next header, at `pointer`
  reassembly_timeout,
  parameter_problem,  // IPv6 only: `code` and `pointer`
};
struct IcmpComplaint {
  Complaint kind = Complaint::port_unreachable;
  std::uint8_t code = 0;
  std::uint32_t pointer = 0;
};

// May a packet (from its IP header on, as it came; where it was reassembled the headers of its first
// fragment, and the octets behind them in `more`) be answered by an error at all? Not if it is itself
// an ICMP error, in IPv4 a fragment but the first, or from or to an address that is nobody's alone
// (RFC 1122 s3.2.2, RFC 4443 s2.4 (e)). `even_if_multicast`: RFC 4443 s2.4 (e.3).
bool may_complain_of(Bytes packet, Bytes more = {}, bool even_if_multicast = false);

// Writes the message: header and as much of the packet as may be quoted, which lies in two pieces
// where it was reassembled. The checksum is put in. Returns how many octets, at most kComplaintMax.
// We are `from`; `to` sent the packet.
inline constexpr std::size_t kComplaintMax = 1280 - 40;
std::size_t write_complaint(const IcmpComplaint& complaint, const wire::IpAddress& from, const wire::IpAddress& to,
                            Bytes packet, Bytes more, MutableBytes out);

// A bucket of so many, filled at so many a second (RFC 4443 s2.4 (f), RFC 1812 s4.3.2.8).
class TokenBucket {
 public:
  constexpr TokenBucket(std::uint32_t most, std::uint32_t per_second)
      : most_(most), interval_(seconds(1) / per_second), tokens_(most) {}
  bool take(Instant now) {
    const std::int64_t fresh = filled_ == kNever ? 0 : (now - filled_).ns / interval_.ns;
    if (filled_ == kNever || tokens_ + fresh >= most_) {
      if (filled_ != kNever) tokens_ = most_;
      filled_ = now;
    } else {
      tokens_ += fresh;
      filled_ = filled_ + interval_ * fresh;
    }
    if (tokens_ == 0) return false;
    --tokens_;
    return true;
  }

 private:
  std::int64_t most_;
  Duration interval_;
  std::int64_t tokens_;
  Instant filled_ = kNever;
};

}  // namespace rnic::ip
