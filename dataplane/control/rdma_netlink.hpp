// RDMA netlink (<rdma/rdma_netlink.h>), as far as it reads: what iproute2's `rdma` asks of a kernel with RDMA, and
// libibverbs when it looks for devices, answered for the daemon's. Keys of memory are never told.
#pragma once

#include <vector>

#include "base/bytes.hpp"
#include "control/connection_manager.hpp"
#include "control/context.hpp"
#include "control/machine.hpp"

namespace rnic::control {

// `request`: netlink messages; `port_id`: the asker's; `visible`: the devices that it may see. The messages that a
// kernel would send back, errors among them; none to what is no message.
std::vector<std::byte> answer_netlink(Machine& machine, const std::vector<Context*>& contexts,
                                      const ConnectionManager& cm, DeviceSet visible, Bytes request,
                                      std::uint32_t port_id);

}  // namespace rnic::control
