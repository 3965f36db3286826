// The port space of rdma_cm: who is bound to which port of which devices.
//
// Holds to what Linux's rdma_cm does (there is one for each of its port spaces), seen by devices: two applications that
// see different devices only do not meet here.
//
// Pure. Owned by the connection manager.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "wire/address.hpp"

namespace rnic::control {

// A bit for each device of the daemon.
using DeviceSet = std::uint64_t;
inline constexpr std::uint32_t kDeviceSetMax = 64;

// enum rdma_port_space: RDMA_PS_TCP, and those of datagrams, RDMA_PS_UDP and RDMA_PS_IPOIB.
namespace port_spaces {
inline constexpr std::uint32_t kTcp = 0x0106, kUdp = 0x0111, kIpoib = 0x0002;
constexpr bool has_datagrams(std::uint32_t space) { return space == kUdp || space == kIpoib; }
constexpr const char* name(std::uint32_t space) {
  if (space == kTcp) return "tcp";
  return space == kUdp ? "udp" : "ipoib";
}
}  // namespace port_spaces

struct Binding {
  wire::IpAddress address;  // unspecified: all of the devices'
  std::uint16_t port = 0;
  DeviceSet devices = 0;
  bool reuse = false;    // RDMA_OPTION_ID_REUSEADDR
  bool v6_only = false;  // RDMA_OPTION_ID_AFONLY
};

class PortSpace {
 public:
  static constexpr std::uint16_t kEphemeralFirst = 32768;  // Linux's ip_local_port_range
  static constexpr std::uint16_t kEphemeralLast = 60999;
  static constexpr std::uint32_t kEphemeralCount = kEphemeralLast - kEphemeralFirst + 1u;
  // 0 stands for one of them.
  static constexpr bool is_ephemeral(std::uint16_t port) {
    return port == 0 || (port >= kEphemeralFirst && port <= kEphemeralLast);
  }

  explicit PortSpace(std::uint64_t seed) : rover_(static_cast<std::uint32_t>(seed % kEphemeralCount)) {}

  // False: somebody else has it, and does not share it. Port 0: one that nobody has; it is in
  // `binding` afterwards.
  bool bind(std::uint32_t owner, Binding& binding);
  // Before listening nobody else may be bound there, sharing or not.
  bool may_listen(std::uint32_t owner) const;
  void release(std::uint32_t owner);
  // Another port for an owner who did not choose it. False: there is none.
  bool rebind(std::uint32_t owner, Binding& binding);
  // Whoever is bound to it, on whichever device.
  std::vector<std::uint32_t> owners(std::uint16_t port) const;
  std::size_t count() const { return by_owner_.size(); }

 private:
  bool conflicts(const Binding& binding, std::uint32_t owner, bool sharing) const;

  using ByPort = std::multimap<std::uint16_t, std::pair<std::uint32_t, Binding>>;

  ByPort by_port_;
  std::unordered_map<std::uint32_t, ByPort::iterator> by_owner_;
  std::uint32_t rover_;
};

}  // namespace rnic::control
