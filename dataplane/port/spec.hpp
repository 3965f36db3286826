// What a user writes to name a port: a SPEC, as `rnic up --port` and the configuration file take it.
//
//   loopback                            peers on this host only
//   pair:NAME                           joined to the other device of this daemon that says NAME
//   memif:SOCKET,role=server|client[,peer=USER]   shared memory to another process
//   af_packet:IFACE  af_xdp:IFACE       a network interface of the kernel's
//   tap:IFACE                           a new interface of the kernel's, with us at its other end
//   pci:ADDRESS                         a NIC that DPDK drives
//   vdev:STRING                         whatever DPDK's --vdev takes
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace rnic::port {

struct PortSpec {
  enum class Kind : std::uint8_t { loopback, pair, memif, af_packet, af_xdp, tap, pci, vdev };
  enum class Role : std::uint8_t { none, server, client };  // memif's only

  Kind kind = Kind::loopback;
  std::string target;  // NAME, SOCKET, IFACE, ADDRESS (with its domain) or STRING
  Role role = Role::none;
  std::string peer;  // memif's: whose daemon is at the other side, where it is neither ours nor root's

  bool operator==(const PortSpec&) const = default;
};

// Longer paths do not fit sockaddr_un once ".wake" is behind them.
inline constexpr std::size_t kSocketPathMax = 102;

// The failure is a sentence for the user: what is wrong, and what is accepted.
Result<PortSpec, std::string> parse_spec(std::string_view text);

const char* name(PortSpec::Kind kind);        // as in a SPEC
std::string to_string(const PortSpec& spec);  // parse_spec() gives the same value back
// Nothing but memory lies between its ends, and nobody but rnic is at the other.
bool is_memory(PortSpec::Kind kind);

}  // namespace rnic::port
