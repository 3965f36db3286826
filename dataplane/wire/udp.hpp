// The UDP header (RFC 768, RFC 8200 s8.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/checksum.hpp"

namespace rnic::wire {

struct UdpHeader {
  static constexpr std::size_t kSize = 8;
  static constexpr std::size_t kChecksumOffset = 6;

  std::uint16_t source_port = 0, destination_port = 0;
  std::uint16_t length = 0;  // header and payload
  std::uint16_t checksum = 0;

  constexpr bool operator==(const UdpHeader&) const = default;
};

// `packet` is what IP says is the datagram. Nothing when it is cut off, or its length says otherwise; a payload of IP
// that is longer than the datagram is cut by whoever looks at `length`.
constexpr std::optional<UdpHeader> parse_udp(Bytes packet) {
  if (packet.size() < UdpHeader::kSize) return std::nullopt;
  const UdpHeader header{.source_port = load_be<std::uint16_t>(packet, 0),
                         .destination_port = load_be<std::uint16_t>(packet, 2),
                         .length = load_be<std::uint16_t>(packet, 4),
                         .checksum = load_be<std::uint16_t>(packet, 6)};
  if (header.length < UdpHeader::kSize || header.length > packet.size()) return std::nullopt;
  return header;
}

// Of a datagram that parse_udp() accepted, as long as its header says. 0 means that there is none, which IPv6 does not
// allow.
inline bool udp_checksum_is_good(const IpAddress& from, const IpAddress& to, Bytes datagram) {
  if (load_be<std::uint16_t>(datagram, UdpHeader::kChecksumOffset) == 0) return from.is_v4();
  return transport_checksum(from, to, protocol::kUdp, datagram) == 0;
}

// In front of a payload that is there already: `datagram` is both. The checksum is put in.
inline void emit_udp(std::uint16_t source_port, std::uint16_t destination_port, const IpAddress& from,
                     const IpAddress& to, MutableBytes datagram) {
  store_be(datagram, 0, source_port);
  store_be(datagram, 2, destination_port);
  store_be(datagram, 4, static_cast<std::uint16_t>(datagram.size()));
  store_be<std::uint16_t>(datagram, UdpHeader::kChecksumOffset, 0);
  const std::uint16_t sum = transport_checksum(from, to, protocol::kUdp, datagram);
  store_be(datagram, UdpHeader::kChecksumOffset, sum != 0 ? sum : std::uint16_t{0xFFFF});
}

}  // namespace rnic::wire
