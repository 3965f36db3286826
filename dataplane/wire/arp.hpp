// ARP for IPv4 on Ethernet (RFC 826).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/ethernet.hpp"

namespace rnic::wire {

struct ArpPacket {
  static constexpr std::size_t kSize = 28;
  static constexpr std::uint16_t kRequest = 1;
  static constexpr std::uint16_t kReply = 2;

  std::uint16_t operation = kRequest;
  Mac sender_mac;
  IpAddress sender_ip = IpAddress::v4(0);
  Mac target_mac;
  IpAddress target_ip = IpAddress::v4(0);

  constexpr bool operator==(const ArpPacket&) const = default;
};

// Nothing when it is too short or not about IPv4 on Ethernet.
constexpr std::optional<ArpPacket> parse_arp(Bytes bytes) {
  if (bytes.size() < ArpPacket::kSize) return std::nullopt;
  if (load_be<std::uint16_t>(bytes, 0) != 1) return std::nullopt;  // Ethernet
  if (load_be<std::uint16_t>(bytes, 2) != ether_type::kIpv4) return std::nullopt;
  if (load_be<std::uint8_t>(bytes, 4) != Mac::kSize) return std::nullopt;
  if (load_be<std::uint8_t>(bytes, 5) != 4) return std::nullopt;
  return ArpPacket{.operation = load_be<std::uint16_t>(bytes, 6),
                   .sender_mac = load_mac(bytes, 8),
                   .sender_ip = IpAddress::load_v4(bytes, 14),
                   .target_mac = load_mac(bytes, 18),
                   .target_ip = IpAddress::load_v4(bytes, 24)};
}

constexpr void emit(const ArpPacket& packet, MutableBytes out) {
  store_be<std::uint16_t>(out, 0, 1);
  store_be(out, 2, ether_type::kIpv4);
  store_be<std::uint8_t>(out, 4, Mac::kSize);
  store_be<std::uint8_t>(out, 5, 4);
  store_be(out, 6, packet.operation);
  store_mac(out, 8, packet.sender_mac);
  packet.sender_ip.store_v4(out, 14);
  store_mac(out, 18, packet.target_mac);
  packet.target_ip.store_v4(out, 24);
}

}  // namespace rnic::wire
