/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "swap_forks.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "mappings.hpp"
#include "swap_files.hpp"
#include "write_guard.hpp"

namespace rnic::provider {
namespace {

bool ever_swapped;
// By which a child says that it has made its copies. Open from the first swap on, as an application that
// forks may have no descriptor left then.
int child_done[2] = {-1, -1};
ino_t child_done_inode;

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

bool has_channel() {
  struct stat ends[2]{};
  for (int i = 0; i < 2; ++i)
    if (child_done[i] < 0 || fstat(child_done[i], &ends[i]) != 0 || !S_ISFIFO(ends[i].st_mode) ||
        ends[i].st_ino != child_done_inode)
      return false;  // none yet, or the application has closed it
  return true;
}

void forget_channel() {
  if (child_done[0] >= 0) count_descriptors(-2);
  child_done[0] = child_done[1] = -1;
}

bool open_channel() {
  if (has_channel()) return true;
  forget_channel();
  struct stat status {};
  if (pipe2(child_done, O_CLOEXEC) != 0 || fstat(child_done[0], &status) != 0) {
    child_done[0] = child_done[1] = -1;
    return false;
  }
  child_done_inode = status.st_ino;
  count_descriptors(2);
  return true;
}

void before_fork() {
  pthread_mutex_lock(&swap_lock);
  if (ever_swapped) open_channel();
}

// Waits until the child has copied and says so by an octet, or is gone: it would find what we store from
// here on. The end of the pipe alone would not do: a child made by a bare clone() has its writing end, too,
// runs no handler, and may live for ever.
void after_fork_in_parent() {
  if (has_channel()) {
    close(child_done[1]);
    char octet;
    while (read(child_done[0], &octet, 1) < 0 && errno == EINTR) {
    }
    close(child_done[0]);
    forget_channel();
    open_channel();  // for the next
  }
  pthread_mutex_unlock(&swap_lock);
}

// What the parent had is forgotten, and not freed: its uses may be released here, too.
void after_fork_in_child() {
  if (ever_swapped) {
    // First, so that there is a descriptor to look at the mappings by.
    const bool awaited = has_channel();
    if (awaited) close(child_done[0]);
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
    if (awaited) {
      while (write(child_done[1], "", 1) < 0 && errno == EINTR) {
      }
      close(child_done[1]);
    }
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

bool note_swap() {
  if (!open_channel()) return false;
  ever_swapped = true;
  return true;
}

}  // namespace rnic::provider
