// ICMP for IPv4 (RFC 792, RFC 1191) and IPv6 (RFC 4443). Neighbour discovery's messages are in
// neighbour_discovery.hpp, multicast listeners' in mld.hpp.
//
// Both versions begin with type, code and checksum, then 4 octets whose meaning the type decides.
// The ICMPv6 checksum covers a pseudo-header: transport_checksum(); ICMPv4's does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/checksum.hpp"

namespace rnic::wire {

namespace icmp_type {
inline constexpr std::uint8_t kEchoReply = 0;
inline constexpr std::uint8_t kUnreachable = 3;
inline constexpr std::uint8_t kSourceQuench = 4;
inline constexpr std::uint8_t kRedirect = 5;
inline constexpr std::uint8_t kEchoRequest = 8;
inline constexpr std::uint8_t kTimeExceeded = 11;
inline constexpr std::uint8_t kParameterProblem = 12;
}  // namespace icmp_type
namespace icmp_code {
inline constexpr std::uint8_t kProtocolUnreachable = 2;
inline constexpr std::uint8_t kPortUnreachable = 3;
inline constexpr std::uint8_t kFragmentationNeeded = 4;
inline constexpr std::uint8_t kReassemblyTimeout = 1;  // of kTimeExceeded
}  // namespace icmp_code

namespace icmp6_type {
inline constexpr std::uint8_t kUnreachable = 1;
inline constexpr std::uint8_t kPacketTooBig = 2;
inline constexpr std::uint8_t kTimeExceeded = 3;
inline constexpr std::uint8_t kParameterProblem = 4;
inline constexpr std::uint8_t kInformational = 128;  // this and above; below are errors (RFC 4443 s2.1)
inline constexpr std::uint8_t kEchoRequest = 128;
inline constexpr std::uint8_t kEchoReply = 129;
inline constexpr std::uint8_t kListenerQuery = 130;
inline constexpr std::uint8_t kRouterSolicitation = 133;
inline constexpr std::uint8_t kRouterAdvertisement = 134;
inline constexpr std::uint8_t kNeighbourSolicitation = 135;
inline constexpr std::uint8_t kNeighbourAdvertisement = 136;
inline constexpr std::uint8_t kRedirect = 137;
inline constexpr std::uint8_t kListenerReport = 143;  // MLDv2's
}  // namespace icmp6_type
namespace icmp6_code {
inline constexpr std::uint8_t kPortUnreachable = 4;    // of kUnreachable
inline constexpr std::uint8_t kReassemblyTimeout = 1;  // of kTimeExceeded
inline constexpr std::uint8_t kErroneousField = 0;     // of kParameterProblem, as the next three
inline constexpr std::uint8_t kUnknownNextHeader = 1;
inline constexpr std::uint8_t kUnknownOption = 2;
inline constexpr std::uint8_t kIncompleteFirstFragment = 3;  // RFC 7112 s5
}  // namespace icmp6_code

struct IcmpHeader {
  static constexpr std::size_t kSize = 8;

  std::uint8_t type = 0;
  std::uint8_t code = 0;
  std::uint32_t rest = 0;  // of an error the quoted packet follows

  constexpr bool operator==(const IcmpHeader&) const = default;
  // Of an echo.
  constexpr std::uint16_t identifier() const { return static_cast<std::uint16_t>(rest >> 16); }
  constexpr std::uint16_t sequence() const { return static_cast<std::uint16_t>(rest); }
  // Of "fragmentation needed" (RFC 1191 s4; 0 from an old router), of "packet too big".
  constexpr std::uint32_t next_hop_mtu_v4() const { return rest & 0xFFFF; }
  constexpr std::uint32_t mtu_v6() const { return rest; }
};

constexpr std::optional<IcmpHeader> parse_icmp(Bytes message) {
  if (message.size() < IcmpHeader::kSize) return std::nullopt;
  return IcmpHeader{.type = load_be<std::uint8_t>(message, 0),
                    .code = load_be<std::uint8_t>(message, 1),
                    .rest = load_be<std::uint32_t>(message, 4)};
}

// Checksum left 0: icmp_set_checksum() when the whole message stands.
constexpr void emit(const IcmpHeader& header, MutableBytes out) {
  store_be(out, 0, header.type);
  store_be(out, 1, header.code);
  store_be<std::uint16_t>(out, 2, 0);
  store_be(out, 4, header.rest);
}

inline bool icmp_checksum_is_good(Bytes message) { return checksum_of(message) == 0; }
inline void icmp_set_checksum(MutableBytes message) {
  store_be<std::uint16_t>(message, 2, 0);
  store_be(message, 2, checksum_of(Bytes(message)));
}
inline void icmp6_set_checksum(MutableBytes message, const IpAddress& source, const IpAddress& destination) {
  store_be<std::uint16_t>(message, 2, 0);
  store_be(message, 2, transport_checksum(source, destination, protocol::kIcmpV6, message));
}

}  // namespace rnic::wire
