// Ethernet II framing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"

namespace rnic::wire {

namespace ether_type {
inline constexpr std::uint16_t kIpv4 = 0x0800;
inline constexpr std::uint16_t kArp = 0x0806;
inline constexpr std::uint16_t kVlan = 0x8100;
inline constexpr std::uint16_t kIpv6 = 0x86DD;
}  // namespace ether_type

struct EthernetHeader {
  static constexpr std::size_t kSize = 14;

  Mac destination;
  Mac source;
  std::uint16_t type = 0;  // what follows; kVlan when a tag comes first

  constexpr bool operator==(const EthernetHeader&) const = default;
};

constexpr std::optional<EthernetHeader> parse_ethernet(Bytes frame) {
  if (frame.size() < EthernetHeader::kSize) return std::nullopt;
  return EthernetHeader{
      .destination = load_mac(frame, 0), .source = load_mac(frame, 6), .type = load_be<std::uint16_t>(frame, 12)};
}

constexpr void emit(const EthernetHeader& header, MutableBytes out) {
  store_mac(out, 0, header.destination);
  store_mac(out, 6, header.source);
  store_be(out, 12, header.type);
}

}  // namespace rnic::wire
