// What the kinds of port on the kernel's interfaces (af_packet, af_xdp) have in common before they are opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "port/netdev.hpp"
#include "port/options.hpp"
#include "port/spec.hpp"

namespace rnic::port {

// What the kernel says against a port on it, or this process's capabilities do; empty: nothing.
std::string objection_of_kernel(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev);

// What was asked for, else the interface's own, or the usual where there is none.
std::uint32_t mtu_of(const PortOptions& options, const std::optional<Netdev>& netdev);

}  // namespace rnic::port
