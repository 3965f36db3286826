#include "control/network.hpp"

#include <algorithm>

namespace rnic::control {

using ip::AddressState;

void refresh_network(ServedDevice& device) {
  device.link_up = device.port_is_up();
  ip::Network network;
  device.on_each([&](Shard& shard, Instant) {
    if (&shard == &device.first())
      network = shard.device->network();
    else
      shard.device->adopt(network);
  });
  device.own = network.own;
  device.routes = network.routes;
}

std::string describe(const ip::OwnAddress& own) {
  std::string text = wire::to_string(own.address) + "/" + std::to_string(own.prefix_bits);
  if (own.state != AddressState::preferred) text += std::string(" ") + ip::name(own.state);
  return text;
}

std::vector<std::string> address_changes(const OwnList& before, const OwnList& after) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const ip::OwnAddress& was = before[i];
    const ip::OwnAddress& is = after[i];
    const bool same = was.state != AddressState::none && is.state != AddressState::none && was.address == is.address;
    if (!same && was.state != AddressState::none) lines.push_back(wire::to_string(was.address) + " is gone");
    if (is.state == AddressState::none) continue;
    const std::string text = wire::to_string(is.address);
    // Conflicts of addresses that were made up anew are told by the new one.
    if (is.conflicts != was.conflicts && is.conflicts != 0) {
      const std::string who = wire::to_string(is.conflict_with);
      if (is.state == AddressState::duplicate || !same)
        lines.push_back((same ? text : wire::to_string(was.address)) + " is taken by " + who + ": it is not used");
      else
        lines.push_back(text + " is ours, but " + who + " claims it too");
    }
    if (same && was.state == is.state) continue;
    switch (is.state) {
      case AddressState::none:
      case AddressState::duplicate:
        break;
      case AddressState::tentative:
        lines.push_back(text + " is being asked for");
        break;
      case AddressState::preferred:
        lines.push_back(text + (same && was.state == AddressState::tentative ? " is nobody else's: it may be used"
                                                                             : " may be used"));
        break;
      case AddressState::deprecated:
        lines.push_back(text + " is deprecated");
        break;
    }
  }
  return lines;
}

std::string link_change(bool up, const std::string& netdev) {
  if (up) return "the link is up";
  if (netdev.empty() || port::find_netdev(netdev)) return "the link is down";
  return "the interface " + netdev + " is gone, and the link with it; once there is one again, restart the daemon";
}

std::string kernel_address_on(const std::vector<std::string>& interfaces,
                              const std::vector<port::KernelAddress>& kernel) {
  for (const port::KernelAddress& each : kernel) {
    const bool there = std::find(interfaces.begin(), interfaces.end(), each.interface) != interfaces.end();
    if (there && !(each.address.is_v6() && each.address.is_link_local())) return wire::to_string(each.address);
  }
  return {};
}

std::string taken_by_kernel(const DeviceConfiguration& device, const std::vector<port::KernelAddress>& kernel) {
  using Kind = port::PortSpec::Kind;
  const std::string& target = device.port->target;
  const bool shares =
      device.port->kind == Kind::af_packet || device.port->kind == Kind::af_xdp ||
      (device.port->kind == Kind::vdev && (target.starts_with("net_af_packet") || target.starts_with("net_af_xdp")));
  if (!shares) return {};
  for (const core::DeviceAddress& wanted : device.addresses)
    for (const port::KernelAddress& each : kernel) {
      if (each.address != wanted.address) continue;
      // Of a link-local address each link has its own.
      if (wanted.address.is_v6() && wanted.address.is_link_local() && each.interface != target) continue;
      const std::string text = wire::to_string(wanted.address);
      return device.name + " (" + port::to_string(*device.port) + "): " + text + " is the kernel's own address of " +
             each.interface + ", and the kernel would reset every connection to it. Give the device another address " +
             "of that network, one that nobody has; or take it from the kernel first: ip address del " + text + "/" +
             std::to_string(each.prefix_bits) + " dev " + each.interface;
    }
  return {};
}

}  // namespace rnic::control
