// The IEEE 802.1Q tag, which stands after the Ethernet header's type (ether_type::kVlan).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/ethernet.hpp"

namespace rnic::wire {

struct VlanTag {
  static constexpr std::size_t kSize = 4;

  std::uint8_t priority = 0;  // 3 bits
  bool drop_eligible = false;
  std::uint16_t id = 0;    // 12 bits
  std::uint16_t type = 0;  // what follows the tag

  constexpr bool operator==(const VlanTag&) const = default;
};

// In front of a packet, at most.
inline constexpr std::uint32_t kLinkHeaderMax = EthernetHeader::kSize + VlanTag::kSize;

// `bytes` begins after the type field that said kVlan.
constexpr std::optional<VlanTag> parse_vlan(Bytes bytes) {
  if (bytes.size() < VlanTag::kSize) return std::nullopt;
  const auto control = load_be<std::uint16_t>(bytes, 0);
  return VlanTag{.priority = static_cast<std::uint8_t>(control >> 13),
                 .drop_eligible = (control & 0x1000) != 0,
                 .id = static_cast<std::uint16_t>(control & 0x0FFF),
                 .type = load_be<std::uint16_t>(bytes, 2)};
}

constexpr void emit(const VlanTag& tag, MutableBytes out) {
  store_be(out, 0,
           static_cast<std::uint16_t>(tag.priority << 13 | (tag.drop_eligible ? 0x1000 : 0) | (tag.id & 0x0FFF)));
  store_be(out, 2, tag.type);
}

}  // namespace rnic::wire
