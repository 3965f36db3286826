// The IPv6 header and the walk over extension headers (RFC 8200).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"

namespace rnic::wire {

struct Ipv6Header {
  static constexpr std::size_t kSize = 40;
  static constexpr std::uint8_t kDefaultHopLimit = 64;

  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;      // 20 bits
  std::uint16_t payload_length = 0;  // extension headers and payload
  std::uint8_t next_header = 0;
  std::uint8_t hop_limit = kDefaultHopLimit;
  IpAddress source;
  IpAddress destination;

  constexpr bool operator==(const Ipv6Header&) const = default;
};

// `packet` begins at the header and may be longer than the packet. Nothing when it is cut off.
constexpr std::optional<Ipv6Header> parse_ipv6(Bytes packet) {
  if (packet.size() < Ipv6Header::kSize) return std::nullopt;
  const auto first = load_be<std::uint32_t>(packet, 0);
  if ((first >> 28) != 6) return std::nullopt;
  const auto payload_length = load_be<std::uint16_t>(packet, 4);
  if (payload_length > packet.size() - Ipv6Header::kSize) return std::nullopt;
  return Ipv6Header{.traffic_class = static_cast<std::uint8_t>(first >> 20),
                    .flow_label = first & 0xFFFFF,
                    .payload_length = payload_length,
                    .next_header = load_be<std::uint8_t>(packet, 6),
                    .hop_limit = load_be<std::uint8_t>(packet, 7),
                    .source = IpAddress::load_v6(packet, 8),
                    .destination = IpAddress::load_v6(packet, 24)};
}

// kSize octets.
constexpr void emit(const Ipv6Header& header, MutableBytes out) {
  store_be(out, 0, 6u << 28 | static_cast<std::uint32_t>(header.traffic_class) << 20 | (header.flow_label & 0xFFFFF));
  store_be(out, 4, header.payload_length);
  store_be(out, 6, header.next_header);
  store_be(out, 7, header.hop_limit);
  header.source.store_v6(out, 8);
  header.destination.store_v6(out, 24);
}

// The group that a neighbour's questions for `address` go to (RFC 4291 s2.7.1): ff02::1:ffXX:XXXX.
constexpr IpAddress solicited_node(const IpAddress& address) {
  std::array<std::uint8_t, 16> octets{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff};
  for (std::size_t i = 13; i < 16; ++i) octets[i] = address.octets()[i];
  return IpAddress::from_octets(octets);
}

inline constexpr IpAddress kAllNodes =
    IpAddress::from_octets({0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01});
inline constexpr IpAddress kAllRouters =
    IpAddress::from_octets({0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02});

// Where Ethernet delivers a multicast (RFC 2464 s7, RFC 1112 s6.4).
constexpr Mac multicast_mac(const IpAddress& group) {
  const auto& o = group.octets();
  if (group.is_v4()) return Mac{{0x01, 0x00, 0x5e, static_cast<std::uint8_t>(o[13] & 0x7f), o[14], o[15]}};
  return Mac{{0x33, 0x33, o[12], o[13], o[14], o[15]}};
}

// The kinds of extension header (RFC 8200 s4).
namespace ipv6_next {
inline constexpr std::uint8_t kHopByHop = 0;
inline constexpr std::uint8_t kRouting = 43;
inline constexpr std::uint8_t kFragment = 44;
inline constexpr std::uint8_t kNothing = 59;
inline constexpr std::uint8_t kDestination = 60;
}  // namespace ipv6_next

// RFC 8200 s4.5.
struct Ipv6Fragment {
  static constexpr std::size_t kSize = 8;
  std::uint32_t identification = 0;
  std::uint16_t offset_bytes = 0;
  bool more = false;
  constexpr bool operator==(const Ipv6Fragment&) const = default;
};

// The fragment header itself; nothing when it is cut off. `next_header` is what its first octet says.
struct ParsedIpv6Fragment {
  Ipv6Fragment fragment;
  std::uint8_t next_header = 0;
};
constexpr std::optional<ParsedIpv6Fragment> parse_ipv6_fragment(Bytes header) {
  if (header.size() < Ipv6Fragment::kSize) return std::nullopt;
  const auto word = load_be<std::uint16_t>(header, 2);
  return ParsedIpv6Fragment{.fragment = {.identification = load_be<std::uint32_t>(header, 4),
                                         .offset_bytes = static_cast<std::uint16_t>(word & 0xFFF8),
                                         .more = (word & 1) != 0},
                            .next_header = load_be<std::uint8_t>(header, 0)};
}

// Octets of a hop-by-hop, routing or destination options header; nothing when it is cut off.
constexpr std::optional<std::size_t> extension_size(Bytes header) {
  if (header.size() < 8) return std::nullopt;
  const std::size_t size = (std::size_t{load_be<std::uint8_t>(header, 1)} + 1) * 8;
  if (header.size() < size) return std::nullopt;
  return size;
}

}  // namespace rnic::wire
