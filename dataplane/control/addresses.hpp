// Addresses of abi/rnic_control.h and of wire/.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <optional>

#include "rnic_control.h"
#include "wire/address.hpp"

namespace rnic::control {

// Nothing for a family that is none of IP's.
inline std::optional<wire::IpAddress> ip_of(const rnic_address& address) {
  if (address.family == AF_INET)
    return wire::IpAddress::v4(address.octets[0], address.octets[1], address.octets[2], address.octets[3]);
  if (address.family != AF_INET6) return std::nullopt;
  std::array<std::uint8_t, 16> octets;
  std::memcpy(octets.data(), address.octets, octets.size());
  return wire::IpAddress::from_octets(octets);
}

inline std::uint16_t port_of(const rnic_address& address) { return from_big(address.port); }

inline rnic_address to_abi(const wire::IpAddress& address, std::uint16_t port) {
  rnic_address out{};
  out.port = to_big(port);
  if (address.is_v4()) {
    out.family = AF_INET;
    std::memcpy(out.octets, address.octets().data() + 12, 4);
  } else {
    out.family = AF_INET6;
    std::memcpy(out.octets, address.octets().data(), 16);
  }
  return out;
}

}  // namespace rnic::control
