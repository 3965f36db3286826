// What the kernel lets a process do with its network interfaces: which capabilities a kind of port needs, for the port
// that is opened, and for who is told beforehand.
#pragma once

#include <cstdint>
#include <string>

#include "port/spec.hpp"

namespace rnic::port {

enum class Capability : std::uint8_t {
  net_admin = 12,
  net_raw = 13,
  ipc_lock = 14,
  sys_admin = 21,
  sys_nice = 23,
  bpf = 39
};
bool has(Capability capability);  // effective, of this thread

// All that a kind of port needs: "CAP_NET_RAW and CAP_NET_ADMIN"; empty where it needs none.
std::string needs(PortSpec::Kind kind);
// Those of them that this thread has not got.
std::string lacks(PortSpec::Kind kind);

}  // namespace rnic::port
