// ICMP for IPv4 (RFC 792, RFC 1191) and IPv6 (RFC 4443), and of neighbour discovery (RFC 4861)
// the solicitation and the advertisement.
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
inline constexpr std::uint8_t kEchoRequest = 8;
inline constexpr std::uint8_t kTimeExceeded = 11;
}  // namespace icmp_type
namespace icmp_code {
inline constexpr std::uint8_t kProtocolUnreachable = 2;
inline constexpr std::uint8_t kPortUnreachable = 3;
inline constexpr std::uint8_t kFragmentationNeeded = 4;
}  // namespace icmp_code

namespace icmp6_type {
inline constexpr std::uint8_t kUnreachable = 1;
inline constexpr std::uint8_t kPacketTooBig = 2;
inline constexpr std::uint8_t kTimeExceeded = 3;
inline constexpr std::uint8_t kEchoRequest = 128;
inline constexpr std::uint8_t kEchoReply = 129;
inline constexpr std::uint8_t kNeighbourSolicitation = 135;
inline constexpr std::uint8_t kNeighbourAdvertisement = 136;
}  // namespace icmp6_type

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

// RFC 4861 s4.3 and s4.4, with the one option that matters to us: a link-layer address.
struct NeighbourMessage {
  static constexpr std::size_t kSize = 32;  // as we send it, with the option

  bool advertisement = false;                                      // else a solicitation
  bool router = false, solicited = false, override_entry = false;  // of an advertisement
  IpAddress target;
  std::optional<Mac> link_address{};  // source's in a solicitation, target's in an advertisement

  constexpr bool operator==(const NeighbourMessage&) const = default;
};

constexpr std::optional<NeighbourMessage> parse_neighbour(Bytes message) {
  if (message.size() < 24) return std::nullopt;
  const auto type = load_be<std::uint8_t>(message, 0);
  if (type != icmp6_type::kNeighbourSolicitation && type != icmp6_type::kNeighbourAdvertisement) return std::nullopt;
  if (load_be<std::uint8_t>(message, 1) != 0) return std::nullopt;
  NeighbourMessage found;
  found.advertisement = type == icmp6_type::kNeighbourAdvertisement;
  const auto flags = load_be<std::uint8_t>(message, 4);
  if (found.advertisement) {
    found.router = (flags & 0x80) != 0;
    found.solicited = (flags & 0x40) != 0;
    found.override_entry = (flags & 0x20) != 0;
  }
  found.target = IpAddress::load_v6(message, 8);
  const std::uint8_t wanted = found.advertisement ? 2 : 1;
  for (std::size_t at = 24; at + 8 <= message.size();) {
    const std::size_t size = std::size_t{load_be<std::uint8_t>(message, at + 1)} * 8;
    if (size == 0 || at + size > message.size()) return std::nullopt;  // RFC 4861 s4.6
    if (load_be<std::uint8_t>(message, at) == wanted && size == 8) found.link_address = load_mac(message, at + 2);
    at += size;
  }
  return found;
}

// kSize octets, or 24 without a link address; checksum left 0. Returns how many.
constexpr std::size_t emit(const NeighbourMessage& message, MutableBytes out) {
  emit(IcmpHeader{.type =
                      message.advertisement ? icmp6_type::kNeighbourAdvertisement : icmp6_type::kNeighbourSolicitation,
                  .code = 0,
                  .rest = (message.router ? 0x80000000u : 0) | (message.solicited ? 0x40000000u : 0) |
                          (message.override_entry ? 0x20000000u : 0)},
       out);
  message.target.store_v6(out, 8);
  if (!message.link_address) return 24;
  store_be<std::uint8_t>(out, 24, message.advertisement ? 2 : 1);
  store_be<std::uint8_t>(out, 25, 1);
  store_mac(out, 26, *message.link_address);
  return NeighbourMessage::kSize;
}

}  // namespace rnic::wire
