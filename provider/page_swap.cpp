/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "page_swap.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rnic_control.h"

namespace rnic::provider {
namespace {

// Below this a swap costs more than it spares: two mappings of the process's 65,530, and 15 us.
constexpr std::size_t kSwapBytesMin = 32 * 1024;
constexpr char kName[] = "rnic-fast-memory";
constexpr char kPath[] = "/memfd:rnic-fast-memory (deleted)";
constexpr std::size_t kLiveMax = 4096;

// Pages that registered regions use: the descriptor is kept as long as one does, for the next region
// over the same pages, and closed then. The mapping in the application outlives it.
struct Live {
  std::uintptr_t start;
  std::uintptr_t end;
  int fd;
  unsigned users;
};

pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;
Live* live;
std::size_t live_count;
std::size_t live_room;
bool ever_swapped;  // from then on forks look for swapped pages
int child_done[2] = {-1, -1};

// ---- what is mapped there ---------------------------------------------------------------------------

enum class Kind { other, anonymous, ours };

struct Found {
  Kind kind = Kind::other;
  std::uint64_t offset = 0;  // ours: of the range's start in its file
  std::uint64_t inode = 0;
  bool not_for_children = false;  // MADV_DONTFORK
};

// Of one line of maps; false: it is none.
struct Line {
  unsigned long start, end, offset, inode;
  char rights[5];
  char path[256];

  bool parse(const char* text) {
    path[0] = '\0';
    return std::sscanf(text, "%lx-%lx %4s %lx %*x:%*x %lu %255[^\n]", &start, &end, rights, &offset, &inode, path) >= 5;
  }
  bool ours() const { return std::strcmp(path, kPath) == 0; }
  // Anonymous memory, the heap, or memory with a name of its own; no stack, no file, no kernel's page.
  bool plain() const {
    return inode == 0 && (path[0] == '\0' || std::strcmp(path, "[heap]") == 0 || std::strncmp(path, "[anon:", 6) == 0);
  }
};

// The mappings of the range, all of one kind; several neighbours will do where they are anonymous.
Found find_range(const WholePages& range) {
  Found found;
  FILE* maps = std::fopen("/proc/self/smaps", "re");
  if (maps == nullptr) return found;
  char text[1024];
  Line line{};
  std::uintptr_t at = range.start;
  bool inside = false;
  bool first = true;
  bool refused = false;
  while (std::fgets(text, sizeof text, maps) != nullptr) {
    Line next{};
    if (next.parse(text)) {
      if (inside) at = line.end;
      inside = false;
      line = next;
      if (at >= range.end || line.start >= range.end) break;
      inside = line.start <= at && at < line.end;
      if (!inside) continue;
      const Kind kind = line.ours() ? Kind::ours : line.plain() && line.rights[3] == 'p' ? Kind::anonymous : Kind::other;
      const bool writable = line.rights[0] == 'r' && line.rights[1] == 'w';
      const bool same_file = first || kind == Kind::anonymous;
      if (kind == Kind::other || !writable || !same_file || (!first && kind != found.kind)) {
        refused = true;
        break;
      }
      if (first && kind == Kind::ours) {
        found.offset = line.offset + (at - line.start);
        found.inode = line.inode;
      }
      found.kind = kind;
      first = false;
      continue;
    }
    if (inside && std::strncmp(text, "VmFlags:", 8) == 0) {
      if (std::strstr(text, " dc") != nullptr) found.not_for_children = true;
      // Locked, huge, or a device's pages are left alone.
      if (std::strstr(text, " lo") != nullptr || std::strstr(text, " ht") != nullptr ||
          std::strstr(text, " pf") != nullptr || std::strstr(text, " io") != nullptr) {
        refused = true;
        break;
      }
    }
  }
  if (inside && line.end > at) at = line.end;
  std::fclose(maps);
  if (refused || at < range.end) found.kind = Kind::other;
  return found;
}

// ---- the swap ---------------------------------------------------------------------------------------

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

// Holds up every store into the range until it is closed. -1: cannot be had.
int protect(const WholePages& range, bool shared) {
  const int fd = open_userfaultfd();
  if (fd < 0) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
#ifdef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
  if (shared) api.features |= UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
#else
  if (shared) {
    close(fd);
    return -1;
  }
#endif
  uffdio_register registration{};
  registration.range = {range.start, range.size()};
  registration.mode = UFFDIO_REGISTER_MODE_WP;
  uffdio_writeprotect protection{};
  protection.range = {range.start, range.size()};
  protection.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  if (ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &registration) != 0 ||
      ioctl(fd, UFFDIO_WRITEPROTECT, &protection) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

bool write_all(int fd, const char* from, std::size_t length) {
  while (length != 0) {
    const ssize_t written = write(fd, from, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    length -= static_cast<std::size_t>(written);
  }
  return true;
}

// Replaces the pages; the memory's descriptor, or -1 and everything is as it was.
int replace(const WholePages& range, const Found& found) {
  const int memory = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory < 0) return -1;
  void* mapped = MAP_FAILED;
  const int guard = protect(range, found.kind == Kind::ours);
  bool done = guard >= 0 && write_all(memory, reinterpret_cast<const char*>(range.start), range.size()) &&
              fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  if (done) {
    mapped = mmap(nullptr, range.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    done = mapped != MAP_FAILED &&
           (!found.not_for_children || madvise(mapped, range.size(), MADV_DONTFORK) == 0) &&
           mremap(mapped, range.size(), range.size(), MREMAP_MAYMOVE | MREMAP_FIXED,
                  reinterpret_cast<void*>(range.start)) != MAP_FAILED;
    if (!done && mapped != MAP_FAILED) munmap(mapped, range.size());
  }
  if (guard >= 0) close(guard);  // whoever waited to store does it now, into what is there now
  if (done) return memory;
  close(memory);
  return -1;
}

// ---- forks ------------------------------------------------------------------------------------------

// In the child: each swapped range as private memory, its octets as they are now (the parent waits).
// Nothing here but system calls and this stack: other threads may have held any lock of libc's.
void make_private(std::uintptr_t start, std::uintptr_t end) {
  const std::size_t size = end - start;
  void* copy = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return;
  std::memcpy(copy, reinterpret_cast<const void*>(start), size);
  if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(start)) == MAP_FAILED)
    munmap(copy, size);
}

bool parse_hex(const char*& at, std::uintptr_t& value) {
  const char* first = at;
  for (value = 0;; ++at) {
    unsigned digit = 0;
    if (*at >= '0' && *at <= '9')
      digit = static_cast<unsigned>(*at - '0');
    else if (*at >= 'a' && *at <= 'f')
      digit = static_cast<unsigned>(*at - 'a' + 10);
    else
      return at != first;
    value = value << 4 | digit;
  }
}

// One pass over maps; a range made private is another mapping at the next.
bool make_one_private() {
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[8192];
  std::size_t filled = 0;
  bool made = false;
  for (;;) {
    const ssize_t more = read(fd, text + filled, sizeof text - 1 - filled);
    if (more <= 0) break;
    filled += static_cast<std::size_t>(more);
    text[filled] = '\0';
    char* line = text;
    for (char* end; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      if (std::strstr(line, kPath) == nullptr) continue;
      const char* at = line;
      std::uintptr_t first = 0;
      std::uintptr_t last = 0;
      if (!parse_hex(at, first) || *at++ != '-' || !parse_hex(at, last)) continue;
      make_private(first, last);
      made = true;
      break;
    }
    if (made) break;
    filled = std::strlen(line);
    std::memmove(text, line, filled + 1);
    if (filled == sizeof text - 1) filled = 0;  // a line longer than any of ours
  }
  close(fd);
  return made;
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
    for (int i = 0; i < 65536 && make_one_private(); ++i) {
    }
    for (std::size_t i = 0; i < live_count; ++i) close(live[i].fd);
    live_count = 0;
    ever_swapped = false;
  }
  if (child_done[0] >= 0) {
    close(child_done[0]);
    close(child_done[1]);
    child_done[0] = child_done[1] = -1;
  }
  pthread_mutex_unlock(&swap_lock);
}

// ---- live ranges ------------------------------------------------------------------------------------

Live* find_live(const WholePages& range) {
  for (std::size_t i = 0; i < live_count; ++i)
    if (live[i].start <= range.start && range.end <= live[i].end) return &live[i];
  return nullptr;
}

bool overlaps_live(const WholePages& range) {
  for (std::size_t i = 0; i < live_count; ++i)
    if (live[i].start < range.end && range.start < live[i].end) return true;
  return false;
}

bool room_for_one() {
  if (live_count < live_room) return true;
  if (live_room == kLiveMax) return false;
  const std::size_t room = live_room == 0 ? 16 : live_room * 2;
  void* grown = std::realloc(live, room * sizeof(Live));
  if (grown == nullptr) return false;
  live = static_cast<Live*>(grown);
  live_room = room;
  return true;
}

bool is_file(int fd, std::uint64_t inode) {
  struct stat status {};
  return fstat(fd, &status) == 0 && status.st_ino == inode;
}

int swap_locked(const WholePages& range, std::uint64_t& offset) {
  const Found found = find_range(range);
  if (found.kind == Kind::other) return -1;
  if (Live* same = find_live(range); same != nullptr && found.kind == Kind::ours && is_file(same->fd, found.inode)) {
    const int copy = fcntl(same->fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return -1;
    offset = found.offset;
    ++same->users;
    return copy;
  }
  // Pages that others are registered for stay where they are.
  if (overlaps_live(range) || !room_for_one()) return -1;
  if (!ever_swapped) {
    static bool watching_forks;
    if (!watching_forks && pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) return -1;
    watching_forks = true;
  }
  const int memory = replace(range, found);
  if (memory < 0) return -1;
  ever_swapped = true;
  const int copy = fcntl(memory, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) {
    close(memory);
    return -1;
  }
  live[live_count++] = {range.start, range.end, memory, 1};
  offset = 0;
  return copy;
}

}  // namespace

bool fast_memory() {
  const char* value = std::getenv("RNIC_FAST_MEMORY");
  return value != nullptr && std::strcmp(value, "1") == 0 && sysconf(_SC_PAGESIZE) == RNIC_SWAP_PAGE_BYTES;
}

WholePages whole_pages(const void* address, std::size_t length) {
  constexpr std::uintptr_t kMask = RNIC_SWAP_PAGE_BYTES - 1;
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  WholePages range{(first + kMask) & ~kMask, (first + length) & ~kMask};
  if (range.start < first || range.end <= range.start) return {};
  return range;
}

int swap_pages(const void* address, std::size_t length, std::uint64_t& offset) {
  const WholePages range = whole_pages(address, length);
  if (range.size() < kSwapBytesMin) return -1;
  pthread_mutex_lock(&swap_lock);
  const int fd = swap_locked(range, offset);
  pthread_mutex_unlock(&swap_lock);
  return fd;
}

void release_pages(const void* address, std::size_t length) {
  const WholePages range = whole_pages(address, length);
  pthread_mutex_lock(&swap_lock);
  if (Live* used = find_live(range); used != nullptr && --used->users == 0) {
    close(used->fd);
    *used = live[--live_count];
  }
  pthread_mutex_unlock(&swap_lock);
}

}  // namespace rnic::provider
