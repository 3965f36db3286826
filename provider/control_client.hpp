/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Speaks abi/rnic_control.h with the daemon over the context's socket: one request, one reply.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "rnic_talk.h"

namespace rnic::provider {

// Descriptors that came with a reply. Whoever takes one owns it; close_rest() drops the others.
struct Descriptors : rnic_fds {
  int take() { return rnic_fds_take(this); }
  void close_rest() { rnic_fds_close(rnic_libc_plain(), this); }
};

// Zeroed memory is a valid, closed one. Safe to share between threads; in a forked child every
// call fails with EPERM, since the socket is the parent's.
struct ControlClient {
  int fd;
  pid_t owner;
  std::uint32_t next_id;
  std::uint32_t broken;  // the daemon has gone: every call fails with EIO
  pthread_mutex_t mutex;

  void open(int socket);
  void close();
  bool in_forked_child() const;

  // The answer's status: 0, or an errno. EIO: there is no daemon any more. `reply` is written only
  // on success.
  int call(std::uint32_t type, const void* request, std::size_t request_size, void* reply, std::size_t reply_size,
           int fd_in = -1, Descriptors* fds_out = nullptr);

  template <typename Request, typename Reply>
  int call(rnic_msg_type type, const Request& request, Reply& reply, Descriptors* fds_out = nullptr) {
    return call(type, &request, sizeof request, &reply, sizeof reply, -1, fds_out);
  }

  // A call that names an object and is answered by status alone.
  int call(rnic_msg_type type, std::uint32_t handle) {
    const rnic_handle request{handle, 0};
    return call(type, &request, sizeof request, nullptr, 0);
  }
};

// Where a destruction could not be told to the daemon because there is none, or because it is the
// parent's to tell, it has succeeded as far as this process goes.
constexpr int destroyed(int error) { return error == EIO || error == EPERM ? 0 : error; }

}  // namespace rnic::provider
