// ICMP for IPv4 (RFC 792, RFC 1122 s3.2.2, RFC 1191): the answer to an echo, and what an error
// message says of a TCP connection of ours. ICMPv6's counterparts take the same values.
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"

namespace rnic::ip {

// `message` is a whole ICMP message with a good checksum. Writes the echo reply's message into
// `out` (of the same size) and returns true, or does nothing if it is no echo request.
bool answer_echo(Bytes message, MutableBytes out);

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
  std::uint32_t quoted_length = 0;  // total length in the quoted header
};
std::optional<IcmpError> parse_icmp_error(Bytes message);

// The path MTU that follows from "fragmentation needed" when `mtu_now` is what we believed, or
// nothing if the message makes no sense: not lower than what we have, or lower than any link is
// (W-TCP-07). An old router names none: then the next plateau below the quoted packet's size
// (RFC 1191 s7.1).
inline constexpr std::uint32_t kPathMtuMin = 552;
std::optional<std::uint32_t> lowered_path_mtu(const IcmpError& error, std::uint32_t mtu_now);

}  // namespace rnic::ip
