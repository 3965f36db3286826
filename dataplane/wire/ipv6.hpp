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

constexpr void emit(const Ipv6Header& header, MutableBytes out) {
  store_be(out, 0, 6u << 28 | static_cast<std::uint32_t>(header.traffic_class) << 20 | (header.flow_label & 0xFFFFF));
  store_be(out, 4, header.payload_length);
  store_be(out, 6, header.next_header);
  store_be(out, 7, header.hop_limit);
  header.source.store_v6(out, 8);
  header.destination.store_v6(out, 24);
}

// RFC 8200 s4.5.
struct Ipv6Fragment {
  static constexpr std::size_t kSize = 8;
  std::uint32_t identification = 0;
  std::uint16_t offset_bytes = 0;
  bool more = false;
  constexpr bool operator==(const Ipv6Fragment&) const = default;
};

// Where the upper layer begins behind the extension headers we know.
struct Ipv6Upper {
  std::uint8_t protocol = 0;
  std::size_t offset = 0;                  // from the first octet behind the 40
  std::optional<Ipv6Fragment> fragment{};  // the walk ends at a fragment header
};

// `payload` is payload_length octets. Nothing when an extension header is cut off or there are
// more than eight, which no honest sender has.
constexpr std::optional<Ipv6Upper> skip_extensions(std::uint8_t next_header, Bytes payload) {
  constexpr std::uint8_t kHopByHop = 0, kRouting = 43, kFragment = 44, kDestination = 60;
  Ipv6Upper upper{.protocol = next_header, .offset = 0, .fragment = {}};
  for (int i = 0; i < 8; ++i) {
    const Bytes rest = payload.subspan(upper.offset);
    switch (upper.protocol) {
      case kHopByHop:
      case kRouting:
      case kDestination: {
        if (rest.size() < 8) return std::nullopt;
        const std::size_t size = (std::size_t{load_be<std::uint8_t>(rest, 1)} + 1) * 8;
        if (rest.size() < size) return std::nullopt;
        upper.protocol = load_be<std::uint8_t>(rest, 0);
        upper.offset += size;
        break;
      }
      case kFragment: {
        if (rest.size() < Ipv6Fragment::kSize) return std::nullopt;
        const auto word = load_be<std::uint16_t>(rest, 2);
        upper.protocol = load_be<std::uint8_t>(rest, 0);
        upper.offset += Ipv6Fragment::kSize;
        upper.fragment = Ipv6Fragment{.identification = load_be<std::uint32_t>(rest, 4),
                                      .offset_bytes = static_cast<std::uint16_t>(word & 0xFFF8),
                                      .more = (word & 1) != 0};
        return upper;
      }
      default:
        return upper;
    }
  }
  return std::nullopt;
}

}  // namespace rnic::wire
