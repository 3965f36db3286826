// What `rnic up` and the log tell: each device, and what keeps one from being of use. Pure, but for views_of().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/machine.hpp"
#include "control/network.hpp"
#include "port/spec.hpp"

namespace rnic::control {

// A device as it is when the daemon begins to serve.
struct DeviceView {
  std::string name;
  port::PortSpec port;
  std::optional<std::uint16_t> vlan;
  std::uint32_t mtu_bytes = 0;
  bool mtu_agreed = true;  // a memif's ends use the smaller of their MTUs
  bool link_up = false;
  bool interface_up = true;  // administratively; of ports on the kernel's interfaces
  bool has_mate = false;     // of pairs
  // Of a memif's client: its socket is there, and may be connected to.
  enum class Socket : std::uint8_t { none, refused, there } socket = Socket::none;
  std::string kernel_address;  // one of the kernel's, on an interface whose frames it hears no more; or empty
  OwnList own{};
};

struct Report {
  std::vector<std::string> devices;   // a line each
  std::vector<std::string> warnings;  // what is not as it was asked for, and what to do
};
// IP octets of a frame that both ends take; while no peer is there, that ours does.
std::uint32_t mtu_of(const port::Port& port);
// `cores`: each worker's.
Report report_of(const std::vector<DeviceView>& devices, const std::vector<int>& cores = {});

std::vector<DeviceView> views_of(const Machine& machine);

// The report as it goes through the ready descriptor (control/ready.hpp).
std::string text_of(const Report& report);

}  // namespace rnic::control
