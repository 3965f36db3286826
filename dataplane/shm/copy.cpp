#include "shm/copy.hpp"

#include <unistd.h>

#include <cerrno>

namespace rnic::shm {

void Copier::copy(CopyCall& call) {
  const bool gathers = call.way == Way::gather;
  if (call.by_thread) {
    call.moved = gathers ? process_vm_readv(call.reach.helper_tid, call.local.data(), call.locals, call.remote.data(),
                                            call.remotes, 0)
                         : process_vm_writev(call.reach.helper_tid, call.local.data(), call.locals, call.remote.data(),
                                             call.remotes, 0);
  } else if (call.reach.mem_fd >= 0) {
    const iovec& here = call.local[0];
    const auto there = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(call.remote[0].iov_base));
    call.moved = gathers ? pread(call.reach.mem_fd, here.iov_base, here.iov_len, there)
                         : pwrite(call.reach.mem_fd, here.iov_base, here.iov_len, there);
  } else {
    call.moved = -1;
    errno = ESRCH;
  }
  call.error = call.moved < 0 ? errno : 0;
}

Copier& Copier::kernel() {
  static Copier copier;
  return copier;
}

}  // namespace rnic::shm
