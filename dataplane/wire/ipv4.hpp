// The IPv4 header (RFC 791). Options are stepped over on receive and never sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/checksum.hpp"

namespace rnic::wire {

struct Ipv4Header {
  static constexpr std::size_t kSize = 20;  // without options
  static constexpr std::uint8_t kDefaultTtl = 64;

  std::uint8_t traffic_class = 0;  // DSCP and ECN
  std::uint16_t total_length = 0;  // header, options and payload
  std::uint16_t identification = 0;
  bool dont_fragment = false;
  bool more_fragments = false;
  std::uint16_t fragment_offset_bytes = 0;  // a multiple of 8
  std::uint8_t ttl = kDefaultTtl;
  std::uint8_t protocol = 0;
  IpAddress source = IpAddress::v4(0);
  IpAddress destination = IpAddress::v4(0);

  constexpr bool operator==(const Ipv4Header&) const = default;
  constexpr bool is_fragment() const { return more_fragments || fragment_offset_bytes != 0; }
};

struct ParsedIpv4 {
  Ipv4Header header;
  std::size_t header_size = 0;  // with options: where the payload begins
  // Octets of payload; what the frame holds beyond is padding.
  constexpr std::size_t payload_size() const { return header.total_length - header_size; }
};

// `packet` begins at the header and may be longer than the packet (Ethernet pads). Nothing when it
// is cut off or its lengths disagree. The checksum is not looked at: ipv4_checksum_is_good().
constexpr std::optional<ParsedIpv4> parse_ipv4(Bytes packet) {
  if (packet.size() < Ipv4Header::kSize) return std::nullopt;
  const auto first = load_be<std::uint8_t>(packet, 0);
  if ((first >> 4) != 4) return std::nullopt;
  const std::size_t header_size = static_cast<std::size_t>(first & 0xF) * 4;
  const auto total_length = load_be<std::uint16_t>(packet, 2);
  if (header_size < Ipv4Header::kSize || header_size > total_length) return std::nullopt;
  if (total_length > packet.size()) return std::nullopt;
  const auto fragment = load_be<std::uint16_t>(packet, 6);
  return ParsedIpv4{.header = {.traffic_class = load_be<std::uint8_t>(packet, 1),
                               .total_length = total_length,
                               .identification = load_be<std::uint16_t>(packet, 4),
                               .dont_fragment = (fragment & 0x4000) != 0,
                               .more_fragments = (fragment & 0x2000) != 0,
                               .fragment_offset_bytes = static_cast<std::uint16_t>((fragment & 0x1FFF) << 3),
                               .ttl = load_be<std::uint8_t>(packet, 8),
                               .protocol = load_be<std::uint8_t>(packet, 9),
                               .source = IpAddress::load_v4(packet, 12),
                               .destination = IpAddress::load_v4(packet, 16)},
                    .header_size = header_size};
}

// Of a packet that parse_ipv4 accepted.
inline bool ipv4_checksum_is_good(Bytes packet, const ParsedIpv4& parsed) {
  return checksum_of(packet.first(parsed.header_size)) == 0;
}

// 20 octets, checksum put in.
inline void emit(const Ipv4Header& header, MutableBytes out) {
  store_be<std::uint8_t>(out, 0, 0x45);
  store_be(out, 1, header.traffic_class);
  store_be(out, 2, header.total_length);
  store_be(out, 4, header.identification);
  store_be(out, 6,
           static_cast<std::uint16_t>((header.dont_fragment ? 0x4000 : 0) | (header.more_fragments ? 0x2000 : 0) |
                                      (header.fragment_offset_bytes >> 3)));
  store_be(out, 8, header.ttl);
  store_be(out, 9, header.protocol);
  store_be<std::uint16_t>(out, 10, 0);
  header.source.store_v4(out, 12);
  header.destination.store_v4(out, 16);
  store_be(out, 10, checksum_of(Bytes(out.first(Ipv4Header::kSize))));
}

}  // namespace rnic::wire
