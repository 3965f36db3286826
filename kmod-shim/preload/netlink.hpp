// RDMA netlink: what `rdma` of iproute2 and libibverbs ask of a kernel with RDMA, answered by the daemon.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

namespace rnic::preload {

struct Object;

// socket(AF_NETLINK, type, NETLINK_RDMA): a netlink socket of the kernel's, of another family, over which this process
// answers itself. -1 and errno: EPROTONOSUPPORT where no daemon answers such requests, by which libibverbs knows to
// look in sysfs.
int open_netlink(int type);

// What is sent by it to the kernel: the request is answered before this returns, or as much of the answer sent as the
// socket takes. The octets sent, or -1 and errno; EBUSY: of an earlier answer not all has been read.
ssize_t send_netlink(Object& socket, int fd, const msghdr& message);

// After each read of it: sends what the socket takes now of what is left, so that it is readable until the last.
void after_receive(Object& socket);

// The socket that we hid at a number is at another now.
void move_sender(int from, int to);

// Around fork.
void lock_netlinks();
void unlock_netlinks();
void renew_netlinks();

}  // namespace rnic::preload
