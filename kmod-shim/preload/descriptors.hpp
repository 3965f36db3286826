// Which descriptors are ours.
//
// One octet for each descriptor number says what it was when we last saw it; this is all that a
// call on any other descriptor costs. It is a hint only: a program may close or replace a
// descriptor by ways that we do not see (close_range, a system call of its own). So before a
// write is taken for a command, hold() asks the kernel whether the number still names what we
// put there.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace rnic::preload {

enum class Kind : std::uint8_t {
  other,
  uverbs,      // a connection to the daemon, in place of /dev/infiniband/uverbsN
  cm_channel,  // a stream socket, in place of /dev/infiniband/rdma_cm
  completion,  // the reading end of a completion channel
  netlink,     // a netlink socket, in place of one of NETLINK_RDMA
  internal     // of the stand-in itself
};

inline constexpr int kDescriptorsMax = 65536;
extern std::atomic<Kind> g_kinds[kDescriptorsMax];

inline Kind kind_of(int fd) {
  if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kDescriptorsMax)) return Kind::other;
  return g_kinds[fd].load(std::memory_order_relaxed);
}

// What one or more descriptors name. Counted twice: by the descriptors that name it, and by the
// threads at work on it.
struct Object {
  Kind kind = Kind::other;
  int descriptors = 0;
  int references = 0;
  int any_fd = -1;           // one of the descriptors
  std::uint64_t cookie = 0;  // SO_COOKIE of the socket that it is
  dev_t number = 0;          // what fstat is to answer
  // When the last descriptor is closed, and when nobody is at work on it any more.
  void (*on_close)(Object&) = nullptr;
  void (*on_free)(Object&) = nullptr;
};

// SO_COOKIE, or 0.
std::uint64_t socket_cookie(int fd);

// `fd` names `object` from now on. False (EMFILE) when the number is too high for the table.
bool add_descriptor(int fd, Object& object);
void add_internal(int fd);

// The object of a descriptor, with a reference; nothing if the number names something else by
// now, which is then forgotten.
Object* hold(int fd);
void release(Object& object);
// No descriptor of this process names it any more.
bool is_closed(const Object& object);

// After dup and the like: `to` is another descriptor of what `from` names.
void copy_descriptor(int from, int to);

// `fd` is closed already. Calls on_close for the last one.
void forget_descriptor(int fd);
// close(), for a number that is not Kind::other. The number is closed before on_close tells the daemon, whose end of
// the socket closes then: a write by another thread gets EBADF, as from the kernel, and never SIGPIPE.
int close_descriptor(int fd);

// Moves a descriptor of ours out of the way of the application's, which may count on small
// numbers, and marks it.
int hide_descriptor(int fd);
// Whether such a number still names what was hidden there: a program may have closed it unseen.
bool is_hidden(int fd);
// A copy of what is hidden there, at another number and hidden; what is at the first is the
// caller's to close. -1: nothing is hidden there, or there is no room.
int move_hidden(int fd);
// Closes it where it is still the socket of that cookie; else the number is somebody else's.
void close_hidden(int fd, std::uint64_t cookie);

// Around fork.
void lock_descriptors();
void unlock_descriptors();
void renew_descriptors();

}  // namespace rnic::preload
