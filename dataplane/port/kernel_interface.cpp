#include "port/kernel_interface.hpp"

#include <algorithm>

#include "port/capability.hpp"

namespace rnic::port {

std::string objection_of_kernel(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev) {
  const std::string what = "port \"" + to_string(spec) + "\"";
  if (!netdev) return what + ": there is no network interface \"" + spec.target + "\" here";
  if (!netdev->ethernet) return what + ": the interface is no Ethernet interface";
  if (options.mtu_bytes > netdev->mtu_bytes)
    return what + ": MTU " + std::to_string(options.mtu_bytes) + " is more than the interface's " +
           std::to_string(netdev->mtu_bytes) + "; raise that first: ip link set " + spec.target + " mtu " +
           std::to_string(options.mtu_bytes);
  const std::string list = lacks(spec.kind);
  return list.empty() ? list : what + " needs " + list + ", which this process does not have";
}

std::uint32_t mtu_of(const PortOptions& options, const std::optional<Netdev>& netdev) {
  if (options.mtu_bytes != 0) return options.mtu_bytes;
  return netdev ? std::min(netdev->mtu_bytes, kMtuWireMax) : kMtuWireDefault;
}

}  // namespace rnic::port
