// RDMA netlink: what `rdma` of iproute2 and libibverbs ask of a kernel with RDMA, answered by the daemon.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

namespace rnic::preload {

struct Object;

// socket(AF_NETLINK, type, NETLINK_RDMA): a netlink socket of the kernel's, of another family, over which this process
// answers itself. -1 and errno: EPROTONOSUPPORT where no daemon answers, by which libibverbs knows to look in sysfs.
int open_netlink(int type);

// What was sent by it to the kernel: the request is answered before this returns. The octets sent, or -1 and errno.
ssize_t send_netlink(Object& socket, int fd, const msghdr& message);

}  // namespace rnic::preload
