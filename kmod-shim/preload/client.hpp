// Requests to the daemon (abi/rnic_control.h) over its SEQPACKET socket.
//
// A process has one connection for connection management, made when it is first needed, made
// again by a child of fork, and made again after the daemon has been restarted. Each making is an
// epoch: what the daemon was told in one epoch means nothing in another.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "rnic_talk.h"

namespace rnic::preload {

// Errors are errno values; these two are our own.
inline constexpr int kDisconnected = -1;  // the connection is gone, or of another epoch
inline constexpr int kNoDaemon = -2;      // nobody answers at the socket

struct Call {
  std::uint32_t type = 0;
  const void* request = nullptr;
  std::size_t request_size = 0;
  void* reply = nullptr;
  std::size_t reply_room = 0;  // of a longer one the rest is dropped
  std::size_t reply_size = 0;
  rnic_fds* received = nullptr;  // descriptors; those of a reply that is not for them are closed
  std::uint64_t epoch = 0;       // 0: any, connecting if need be, and told which it was
};

// One request on a given socket, waiting for its reply. Not for a socket in use by another thread.
int exchange(int socket, Call& call);

// A connection of its own, after HELLO. The descriptor, or kNoDaemon, or a negated errno less
// than these.
struct Connected {
  int fd = -1;
  int error = 0;
};
Connected connect_to_daemon(std::uint32_t kind, const char* device);

// Whether somebody listens at the daemon's socket.
bool daemon_listens();

// One request on the process's own connection.
int process_call(Call& call);

// Watches the connection of `epoch`, and tells on_connection_lost() when the daemon ends it.
void watch_connection(std::uint64_t epoch);

// Before the application puts a descriptor of its own at a number where one of ours is: ours is moved.
void spare_hidden(int fd);

// The process as fork left it: a child of vfork, or of a clone that we did not see, shares our
// memory or has a stale copy of it, and is not this process.
bool in_this_process();
std::uint64_t forks_so_far();
void watch_forks();

}  // namespace rnic::preload
