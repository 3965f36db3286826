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
#include "pages_aside.hpp"
#include "swap_files.hpp"
#include "write_guard.hpp"

namespace rnic::provider {
namespace {

bool ever_swapped;
// By which a child says that it has made its copies. Open from the first swap on, as an application that
// forks may have no descriptor left then.
int child_done[2] = {-1, -1};
ino_t child_done_inode;
int spare = -1;  // another of the reading end: its number is for a look at the mappings

// Swapped ranges are kept from children (MADV_DONTFORK) but for the time of a fork that these functions know of: by a
// bare clone() or _Fork() a child has none of them, and shares none.
void let_inherit(const Mapping& mapping, void*) {
  const SwapFile* file = file_of(mapping);
  if (file == nullptr || file->kept_back) return;
  madvise(reinterpret_cast<void*>(mapping.start), mapping.end - mapping.start, MADV_DOFORK);
}

void keep_back(const Mapping& mapping, void*) {
  const SwapFile* file = file_of(mapping);
  if (file == nullptr || file->kept_back) return;
  madvise(reinterpret_cast<void*>(mapping.start), mapping.end - mapping.start, MADV_DONTFORK);
}

// A child that can have no copy has nothing there: never what its parent goes on storing.
void take_away(const Mapping& mapping) {
  const std::size_t size = mapping.end - mapping.start;
  void* const at = reinterpret_cast<void*>(mapping.start);
  if (mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED &&
      munmap(at, size) != 0)
    _exit(127);
}

int rights_of(const Mapping& mapping) {
  return (mapping.readable ? PROT_READ : 0) | (mapping.writable ? PROT_WRITE : 0) |
         (mapping.executable ? PROT_EXEC : 0);
}

// By the file where that is still open, which spares the faults. False: nothing can be read there.
bool copy_octets(const Mapping& mapping, const SwapFile& file, char* to) {
  const std::size_t size = mapping.end - mapping.start;
  std::size_t done = 0;
  while (file.fd >= 0 && done < size) {
    const ssize_t got = pread(file.fd, to + done, size - done, static_cast<off_t>(mapping.offset + done));
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  if (done == size) return true;
  void* const from = reinterpret_cast<void*>(mapping.start);
  if (!mapping.readable && mprotect(from, size, PROT_READ) != 0) return false;
  std::memcpy(to, from, size);
  return true;
}

// In the child: each swapped range as private memory, its octets as they are now (the parent waits).
// Nothing here but system calls and this stack: other threads may have held any lock of libc's.
void make_private(const Mapping& mapping, void* made) {
  const SwapFile* file = file_of(mapping);
  if (file == nullptr) return;
  *static_cast<bool*>(made) = true;
  const std::size_t size = mapping.end - mapping.start;
  void* copy = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy != MAP_FAILED) {
    if (copy_octets(mapping, *file, static_cast<char*>(copy)) && mprotect(copy, size, rights_of(mapping)) == 0 &&
        remap_to(reinterpret_cast<std::uintptr_t>(copy), size, size, mapping.start) == 0)
      return;
    munmap(copy, size);
  }
  take_away(mapping);
}

void forget_channel() {
  if (child_done[0] >= 0) count_descriptors(-3);
  child_done[0] = child_done[1] = spare = -1;
}

bool is_pipe(int fd) {
  struct stat status {};
  return fd >= 0 && fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_ino == child_done_inode;
}

// None yet, or the application has closed it.
bool has_channel() { return is_pipe(child_done[0]) && is_pipe(child_done[1]); }

bool open_channel() {
  if (has_channel()) return true;
  forget_channel();
  struct stat status {};
  if (pipe2(child_done, O_CLOEXEC) != 0 || fstat(child_done[0], &status) != 0) {
    child_done[0] = child_done[1] = -1;
    return false;
  }
  child_done_inode = status.st_ino;
  spare = fcntl(child_done[0], F_DUPFD_CLOEXEC, 3);
  count_descriptors(3);
  return true;
}

void before_fork() {
  pthread_mutex_lock(&swap_lock);
  if (!ever_swapped) return;
  open_channel();
  if (is_pipe(spare)) close(spare);
  visit_all_mappings(let_inherit, nullptr);
  spare = has_channel() ? fcntl(child_done[0], F_DUPFD_CLOEXEC, 3) : -1;
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
    if (is_pipe(spare)) close(spare);
    forget_channel();
  }
  if (ever_swapped) {
    visit_all_mappings(keep_back, nullptr);
    open_channel();  // for the next
  }
  pthread_mutex_unlock(&swap_lock);
}

// What the parent had is forgotten, and not freed: its uses may be released here, too.
void after_fork_in_child() {
  if (ever_swapped) {
    // First, so that there is a descriptor to look at the mappings by.
    const bool awaited = has_channel();
    if (is_pipe(spare)) close(spare);
    if (awaited) close(child_done[0]);
    // The kernel goes on by address where the last line ended, so that one pass finds all of them, though
    // it changes what is mapped; another sees to that.
    bool made = true;
    for (int i = 0; i < 4 && made; ++i) {
      made = false;
      visit_all_mappings(make_private, &made);
    }
    close_guard_in_child();
    forget_aside();
    forget_files();
    ever_swapped = false;
    if (awaited) {
      while (write(child_done[1], "", 1) < 0 && errno == EINTR) {
      }
      close(child_done[1]);
    }
    child_done[0] = child_done[1] = spare = -1;
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
