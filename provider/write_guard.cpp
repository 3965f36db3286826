/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "write_guard.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "swap_files.hpp"

namespace rnic::provider {
namespace {

int guard = -1;  // userfaultfd; opened with the first swap
bool guards_files;
bool moves;
constexpr std::uint64_t kFeatureMove = std::uint64_t{1} << 16;  // not in the headers of older C libraries

// All of userfaultfd, not the user-mode-only kind: that one lets a read(2) into a protected page fail.
int open_userfaultfd() {
  int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
#ifdef USERFAULTFD_IOC_NEW
  if (fd < 0) {
    const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
      fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
      close(device);
    }
  }
#endif
  return fd;
}

int open_guard(std::uint64_t features) {
  const int fd = open_userfaultfd();
  if (fd < 0) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | features;
  if (ioctl(fd, UFFDIO_API, &api) == 0) return fd;
  close(fd);
  return -1;
}

void drop_guard() {
  if (errno != ENOTTY && errno != EBADF) close(guard);
  guard = -1;
  count_descriptors(-1);
}

}  // namespace

// It stays open: to close it is to look through all mappings of the process.
bool have_guard(bool for_files) {
  if (guard < 0) {
#ifdef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    guard = open_guard(UFFD_FEATURE_WP_HUGETLBFS_SHMEM | kFeatureMove);
    moves = guard >= 0;
    if (guard < 0) guard = open_guard(UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
    guards_files = guard >= 0;
#endif
    if (guard < 0) guard = open_guard(0);
    if (guard < 0) return false;
    count_descriptors(1);
  }
  return guards_files || !for_files;
}

bool guard_moves() { return moves; }
int guard_descriptor() { return guard; }

bool protect(const WholePages& range) {
  uffdio_register registration{};
  registration.range = {range.start, range.size()};
  registration.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(guard, UFFDIO_REGISTER, &registration) != 0) return false;
  uffdio_writeprotect protection{};
  protection.range = {range.start, range.size()};
  protection.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  return ioctl(guard, UFFDIO_WRITEPROTECT, &protection) == 0;
}

void let_go(const WholePages& range) {
  uffdio_range all{range.start, range.size()};
  if (ioctl(guard, UFFDIO_UNREGISTER, &all) != 0) drop_guard();
}

void wake(const WholePages& range) {
  uffdio_range all{range.start, range.size()};
  if (ioctl(guard, UFFDIO_WAKE, &all) != 0) drop_guard();
}

void close_guard_in_child() {
  if (guard >= 0) close(guard);
  guard = -1;
}

}  // namespace rnic::provider
