// What libibverbs itself asks of /dev/infiniband/uverbsN. All else is between the provider and
// the daemon, on the same descriptor.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "descriptors.hpp"
#include "sysfs.hpp"

namespace rnic::preload {

// A descriptor, or -1 and errno. `flags` are open's.
int open_uverbs(const NodeInfo& node, int flags);

// A write on such a descriptor: what write() is to return.
ssize_t write_uverbs(const void* data, std::size_t size);

}  // namespace rnic::preload
