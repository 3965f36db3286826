// /dev/infiniband/rdma_cm: its commands (<rdma/rdma_user_cm.h>), translated.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "channel.hpp"

namespace rnic::preload {

// A write on an event channel's descriptor: what write() is to return.
ssize_t write_ucma(Channel& channel, int fd, const void* data, std::size_t size);

}  // namespace rnic::preload
