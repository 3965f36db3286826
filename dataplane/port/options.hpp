// What a port is opened with, besides its SPEC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/buffer.hpp"
#include "wire/address.hpp"

namespace rnic::port {

inline constexpr std::uint32_t kMtuMin = 576;  // what every IPv4 host must take (RFC 791 s3.1)
// Octets of IP in a frame, headers and all, of either version: the largest packet of IPv4 (RFC 791
// s3.1). An IPv6 packet could be 40 octets longer (RFC 8200 s3); here it is not.
inline constexpr std::uint32_t kMtuMax = 65'535;
inline constexpr std::uint32_t kMtuWireMax = 16'000;         // of a NIC or a kernel's interface
inline constexpr std::uint32_t kMtuWireDefault = 1500;       // where neither says its own
inline constexpr std::uint32_t kMtuMemoryDefault = kMtuMax;  // where frames never leave memory

struct PortOptions {
  std::string name;                // the device's: rnic0. It is part of messages
  std::uint32_t mtu_bytes = 0;     // 0: the kernel interface's own where there is one, otherwise the default
  std::optional<wire::Mac> mac;    // where the driver or the kernel does not say; otherwise by chance
  bool groups = false;             // frames to multicast groups must come too: IPv6 lives on them
  std::uint32_t buffers = 16'384;  // in the port's pool; large ones besides, where there are two classes
};

// Of ports whose frames never leave memory: runs of segments (PortFacts::run_bytes) where frames are short, `mtu_bytes`
// 0 being the default, and the buffers for frames and runs.
std::uint32_t run_bytes_in_memory(std::uint32_t mtu_bytes);
PoolSize pool_size_in_memory(std::uint32_t buffers, std::uint32_t mtu_bytes);

// A locally administered unicast address by chance (IEEE 802 s8.2): daemons on several hosts must
// not meet with the same one.
wire::Mac random_mac();

}  // namespace rnic::port
