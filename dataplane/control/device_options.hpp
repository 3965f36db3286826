// The options of the command line that are about a device, in one table: `rnic up` knows them by it and hands them on
// as they stand, rnicd reads them by it (take_option() in configuration.hpp).
#pragma once

#include <cstdint>

namespace rnic::control {

enum class DeviceOption : std::uint8_t { port, address, mtu, vlan, gateway, mac };

struct DeviceOptionRow {
  DeviceOption option;
  const char* name;
  const char* says;
};

inline constexpr DeviceOptionRow kDeviceOptions[] = {
    {DeviceOption::port, "--port", "A device on this port (see below); may be given again"},
    {DeviceOption::address, "--address",
     "An address (CIDR; /24 or /64 without a prefix) of the device before it; may be given again"},
    {DeviceOption::mtu, "--mtu", "The MTU of the device before it; before the first --port of all"},
    {DeviceOption::vlan, "--vlan", "The VLAN of the device before it; before the first --port of all"},
    {DeviceOption::gateway, "--gateway",
     "The gateway of the device before it, one of each version of IP; before the first --port of all"},
    {DeviceOption::mac, "--mac", "The MAC of the device before it"},
};

}  // namespace rnic::control
