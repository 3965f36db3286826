// May this user swap pages (docs/architecture.md, rung 3)?
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rnic::tool {

// All of userfaultfd, or the device that gives it.
inline bool may_swap_pages() {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (fd >= 0) close(fd);
  return fd >= 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0;
}

}  // namespace rnic::tool
