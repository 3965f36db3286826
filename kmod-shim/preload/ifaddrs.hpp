// getifaddrs with one more entry for each address of each device.
#pragma once

#include <ifaddrs.h>

namespace rnic::preload {

// What getifaddrs gave, and ours after it.
void append_device_addresses(ifaddrs*& list);

// Takes ours off again, and frees them; what is left (perhaps nothing) is for freeifaddrs.
ifaddrs* remove_device_addresses(ifaddrs* list);

}  // namespace rnic::preload
