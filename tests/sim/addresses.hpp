// Addresses of the two sides of a simulated wire.
#pragma once

#include <array>

#include "wire/address.hpp"

namespace rnic::sim {

inline constexpr auto kAddressA = wire::IpAddress::v4(10, 0, 0, 1);
inline constexpr auto kAddressB = wire::IpAddress::v4(10, 0, 0, 2);

// The same in 2001:db8::/64, and as link-local addresses.
inline wire::IpAddress address_v6(std::uint8_t last) {
  std::array<std::uint8_t, 16> octets{0x20, 0x01, 0x0d, 0xb8};
  octets[15] = last;
  return wire::IpAddress::from_octets(octets);
}
inline wire::IpAddress address_link_local(std::uint8_t last) {
  std::array<std::uint8_t, 16> octets{0xfe, 0x80};
  octets[15] = last;
  return wire::IpAddress::from_octets(octets);
}

}  // namespace rnic::sim
