// What control keeps of a device's network, and the words for what changes in it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "control/configuration.hpp"
#include "control/machine.hpp"
#include "ip/own_addresses.hpp"
#include "port/netdev.hpp"

namespace rnic::control {

using OwnList = std::array<ip::OwnAddress, ip::OwnAddresses::kMax>;

// Asks the device, on its worker.
void refresh_network(ServedDevice& device);
// Lines for the log: addresses that came, may be used now, are others', or went; and who claims them.
std::vector<std::string> address_changes(const OwnList& before, const OwnList& after);
// The line for the log when a link came or went; `netdev`: the kernel's interface, if there is one.
std::string link_change(bool up, const std::string& netdev);
// "10.0.0.1/24", and what is to be said of it.
std::string describe(const ip::OwnAddress& address);
// A device on an interface of the kernel's hears what the kernel hears, and the kernel answers for each address
// of its own, whichever interface it is on: it resets connections that it knows nothing of. Empty, or which
// address of the device's the kernel has, and what to do.
std::string taken_by_kernel(const DeviceConfiguration& device, const std::vector<port::KernelAddress>& kernel);

// One that the kernel has on these interfaces, or empty. Link-local ones do not count: every interface has one.
std::string kernel_address_on(const std::vector<std::string>& interfaces,
                              const std::vector<port::KernelAddress>& kernel);

}  // namespace rnic::control
