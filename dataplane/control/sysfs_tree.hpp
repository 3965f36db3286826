// The part of /sys that libibverbs, librdmacm and applications look at, as files of ours: the
// stand-in points SYSFS_PATH here. RUN/sysfs has all devices, RUN/sysfs-DEVICE only that one.
#pragma once

#include <string>

#include "control/machine.hpp"

namespace rnic::control {

// What /dev and /sys say of the character devices, as the kernel's.
inline constexpr unsigned kVerbsMajor = 231;  // IB_UVERBS_MAJOR
inline constexpr unsigned kVerbsMinor = 192;  // of uverbs0
inline constexpr unsigned kVerbsAbi = 1;      // of the driver
inline constexpr unsigned kCmMajor = 10, kCmMinor = 58;

// Removes what an earlier daemon of this name left, and writes the trees anew. Empty, or why not.
std::string write_sysfs_trees(const Machine& machine);
// The GIDs of one device anew, after its addresses have changed.
std::string rewrite_gids(const Machine& machine, const ServedDevice& device);
void remove_sysfs_trees(const std::string& run_directory);

}  // namespace rnic::control
