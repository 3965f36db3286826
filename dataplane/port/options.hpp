// What a port is opened with, besides its SPEC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "wire/address.hpp"

namespace rnic::port {

inline constexpr std::uint32_t kMtuDefault = 1500;
inline constexpr std::uint32_t kMtuMin = 576;    // what every IPv4 host must take (RFC 791 s3.1)
inline constexpr std::uint32_t kMtuMax = 16'000;  // a frame fits one buffer, its length 16 bits

struct PortOptions {
  std::string name;             // the device's: rnic0. It is part of messages
  std::uint32_t mtu_bytes = 0;  // 0: the kernel interface's own where there is one, otherwise 1500
  std::optional<wire::Mac> mac;  // where the driver or the kernel does not say; otherwise by chance
  bool groups = false;             // frames to multicast groups must come too: IPv6 lives on them
  std::uint32_t buffers = 16'384;  // in the port's pool
};

// A locally administered unicast address by chance (IEEE 802 s8.2): daemons on several hosts must
// not meet with the same one.
wire::Mac random_mac();

}  // namespace rnic::port
