// Where the stand-in finds the daemon, and what it makes /sys and /dev look like.
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <cstddef>

#include "rnic_control.h"

namespace rnic::preload {

struct Settings {
  bool active = false;  // without a run directory the stand-in does nothing at all
  char run_dir[PATH_MAX] = {};
  char tree[PATH_MAX] = {};         // what SYSFS_PATH names: run_dir/sysfs or run_dir/sysfs-DEVICE
  char device[RNIC_NAME_MAX] = {};  // the only device to be seen; empty: all
  bool fast_memory = false;         // the provider may swap pages
};

const Settings& settings();

// Reads the environment, and sets SYSFS_PATH and RDMAV_DRIVERS for libibverbs where the user has
// not. The library's constructor calls it; a test calls it again after changing the environment.
void configure();

// A path of /dev/infiniband that the stand-in serves.
enum class Node { none, uverbs, rdma_cm };
struct NodeInfo {
  Node node = Node::none;
  dev_t number = 0;
  char device[RNIC_NAME_MAX] = {};  // of uverbs: the RDMA device's name
};

// Quick for every other path: a comparison of a few octets.
NodeInfo find_node(const char* path);

// The place in our tree of a path below /sys/class/infiniband* or /sys/class/misc/rdma_cm, or the
// path itself. `room` has PATH_MAX octets.
const char* translate_path(const char* path, char* room);

// Whether a path is that of an empty place's attribute in the table of GIDs, below /sys or in our tree: the kernel's
// cannot be read (EINVAL), by which libibverbs and UCX know such a place. Quick for every other path.
bool is_of_empty_gid(const char* path);

// Says once, on stderr, that no daemon answers.
void complain_of_no_daemon();
// The same, of what is wrong with the one that is there.
void complain(const char* why);

}  // namespace rnic::preload
