// What control keeps of a device's network, and the words for what changes in it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "control/machine.hpp"
#include "ip/own_addresses.hpp"

namespace rnic::control {

using OwnList = std::array<ip::OwnAddress, ip::OwnAddresses::kMax>;

// Asks the device, on its worker.
void refresh_network(ServedDevice& device);
// Lines for the log: addresses that came, may be used now, are others', or went; and who claims them.
std::vector<std::string> address_changes(const OwnList& before, const OwnList& after);
// "10.0.0.1/24", and what is to be said of it.
std::string describe(const ip::OwnAddress& address);

}  // namespace rnic::control
