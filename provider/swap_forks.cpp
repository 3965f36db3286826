/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "swap_forks.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "mappings.hpp"
#include "swap_files.hpp"
#include "write_guard.hpp"

namespace rnic::provider {
namespace {

bool ever_swapped;
int child_done[2] = {-1, -1};

// In the child: each swapped range as private memory, its octets as they are now (the parent waits).
// Nothing here but system calls and this stack: other threads may have held any lock of libc's.
void make_private(const Mapping& mapping, void* made) {
  if (file_of(mapping) == nullptr) return;
  const std::size_t size = mapping.end - mapping.start;
  void* copy = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return;
  std::memcpy(copy, reinterpret_cast<const void*>(mapping.start), size);
  if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(mapping.start)) == MAP_FAILED)
    munmap(copy, size);
  *static_cast<bool*>(made) = true;
}

void before_fork() {
  pthread_mutex_lock(&swap_lock);
  if (ever_swapped && pipe2(child_done, O_CLOEXEC) != 0) child_done[0] = child_done[1] = -1;
}

void after_fork_in_parent() {
  if (child_done[0] >= 0) {
    close(child_done[1]);
    char octet;
    while (read(child_done[0], &octet, 1) < 0 && errno == EINTR) {
    }
    close(child_done[0]);
    child_done[0] = child_done[1] = -1;
  }
  pthread_mutex_unlock(&swap_lock);
}

void after_fork_in_child() {
  if (ever_swapped) {
    // The kernel goes on by address where the last line ended, so that one pass finds all of them, though
    // it changes what is mapped; another sees to that.
    bool made = true;
    for (int i = 0; i < 4 && made; ++i) {
      made = false;
      visit_all_mappings(make_private, &made);
    }
    close_guard_in_child();
    forget_files();
    ever_swapped = false;
  }
  if (child_done[0] >= 0) {
    close(child_done[0]);
    close(child_done[1]);
    child_done[0] = child_done[1] = -1;
  }
  pthread_mutex_unlock(&swap_lock);
}

}  // namespace

bool watch_forks() {
  static bool watching;
  if (!watching) watching = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  return watching;
}

void note_swap() { ever_swapped = true; }

}  // namespace rnic::provider
