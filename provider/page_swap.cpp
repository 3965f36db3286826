/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "page_swap.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "mappings.hpp"
#include "rnic_control.h"

namespace rnic::provider {

struct File;

// In the list of its file, and the application's region's.
struct PagesUse {
  File* file;
  std::uint64_t offset;
  std::uint64_t length;
  PagesUse* next;
  PagesUse* previous;
};

// Memory that we made. Known as long as anything may be mapped of it.
struct File {
  std::uint64_t inode;
  unsigned major;
  unsigned minor;
  int fd;  // -1: closed, when no region used it any more; the mappings outlive that
  std::uint64_t size;
  std::uint64_t filled;  // the octets behind are free
  PagesUse* uses;
  bool is_mapped;  // while mappings are counted
};

namespace {

// Ranges up to this share files: a descriptor for many, and for the daemon a mapping for many.
constexpr std::size_t kSmallBytes = 64 * 1024;
constexpr std::size_t kSharedFileBytes = 1024 * 1024;  // the daemon maps files up to 2 MiB once
// Files whose regions are gone stay open, for those that register again: so many, of so much together. What
// the application has freed is gone when they are closed.
constexpr std::size_t kIdleMax = 8;
constexpr std::uint64_t kIdleBytes = 8 * 1024 * 1024;
constexpr char kName[] = "rnic-fast-memory";
// Other threads map and unmap memory beside a range while it is looked at.
constexpr int kLooksMax = 8;
// A range in the midst of a mapping makes three of it.
constexpr std::size_t kMappingsOfRange = 2;

pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;
File** files;
std::size_t file_count;
std::size_t file_room;
File* idle[kIdleMax];  // the longest first
std::size_t idle_count;
std::uint64_t idle_bytes;
File* filling;  // takes the next small range; null: none
std::size_t descriptors;
std::size_t ranges;
std::size_t refusals;  // until the ranges are counted again
std::size_t assumed_mappings_max;
bool ever_swapped;  // from then on forks look for swapped pages
int child_done[2] = {-1, -1};
int guard = -1;  // userfaultfd; opened with the first swap
bool guards_files;

// ---- files ------------------------------------------------------------------------------------------

File* file_of(const Mapping& mapping) {
  if (mapping.inode == 0 || !mapping.shared) return nullptr;
  for (std::size_t i = 0; i < file_count; ++i)
    if (mapping.is_file(files[i]->inode, files[i]->major, files[i]->minor)) return files[i];
  return nullptr;
}

// An application that closes all descriptors, to make a daemon of itself, closes ours too; and what has
// their numbers then is not to be touched.
bool is_open(const File& file) {
  struct stat status {};
  return file.fd >= 0 && fstat(file.fd, &status) == 0 && status.st_ino == file.inode &&
         major(status.st_dev) == file.major && minor(status.st_dev) == file.minor;
}

void close_file(File& file) {
  if (file.fd < 0) return;
  if (is_open(file)) close(file.fd);
  file.fd = -1;
  --descriptors;
  if (filling == &file) filling = nullptr;
}

void remove_idle(std::size_t at) {
  idle_bytes -= idle[at]->size;
  --idle_count;
  for (; at < idle_count; ++at) idle[at] = idle[at + 1];
}

void close_longest_idle() {
  close_file(*idle[0]);
  remove_idle(0);
}

// No region uses it any more.
void set_idle(File& file) {
  if (file.size > kIdleBytes / 2 || file.fd < 0) {
    close_file(file);
    return;
  }
  while (idle_count == kIdleMax || idle_bytes + file.size > kIdleBytes) close_longest_idle();
  idle[idle_count++] = &file;
  idle_bytes += file.size;
}

PagesUse* new_use(File& file, std::uint64_t offset, std::uint64_t length, void* memory) {
  for (std::size_t i = 0; i < idle_count; ++i)
    if (idle[i] == &file) remove_idle(i--);
  auto* use = static_cast<PagesUse*>(memory);
  *use = {&file, offset, length, file.uses, nullptr};
  if (use->next != nullptr) use->next->previous = use;
  file.uses = use;
  return use;
}

bool in_use(const File& file, std::uint64_t offset, std::uint64_t length) {
  for (const PagesUse* use = file.uses; use != nullptr; use = use->next)
    if (use->offset < offset + length && offset < use->offset + use->length) return true;
  return false;
}

// ---- how much may be ours ---------------------------------------------------------------------------

std::size_t read_mappings_max() {
  std::size_t count = 65530;
  const int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return count;
  char text[32] = {};
  if (read(fd, text, sizeof text - 1) > 0) count = std::strtoul(text, nullptr, 10);
  close(fd);
  return count;
}

std::size_t ranges_max() {
  static std::size_t known;
  if (known == 0) known = read_mappings_max();
  return (assumed_mappings_max != 0 ? assumed_mappings_max : known) / 4 / kMappingsOfRange;
}

bool room_for_descriptor() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t quarter = limit.rlim_cur / 4;
  while (descriptors >= quarter && idle_count != 0) close_longest_idle();
  return descriptors < quarter;
}

// What the application has unmapped, or swapped pages became part of, is found by reading maps.
void count_ranges() {
  ranges = 0;
  for (std::size_t i = 0; i < file_count; ++i) files[i]->is_mapped = false;
  visit_all_mappings(
      [](const Mapping& mapping, void*) {
        File* file = file_of(mapping);
        if (file == nullptr) return;
        file->is_mapped = true;
        ++ranges;
      },
      nullptr);
  for (std::size_t i = 0; i < file_count;) {
    File* file = files[i];
    if (file->is_mapped || file->fd >= 0 || file->uses != nullptr) {
      ++i;
      continue;
    }
    std::free(file);
    files[i] = files[--file_count];
  }
}

bool room_for_range() {
  if (ranges < ranges_max()) return true;
  if (refusals != 0) {
    --refusals;
    return false;
  }
  count_ranges();
  refusals = ranges_max() / 16;
  return ranges < ranges_max();
}

File* make_file(std::size_t size) {
  if (!room_for_descriptor()) return nullptr;
  if (file_count == file_room) {
    const std::size_t room = file_room == 0 ? 16 : file_room * 2;
    void* grown = std::realloc(files, room * sizeof(File*));
    if (grown == nullptr) return nullptr;
    files = static_cast<File**>(grown);
    file_room = room;
  }
  auto* file = static_cast<File*>(std::calloc(1, sizeof(File)));
  if (file == nullptr) return nullptr;
  file->fd = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  struct stat status {};
  if (file->fd < 0 || ftruncate(file->fd, static_cast<off_t>(size)) != 0 ||
      fcntl(file->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || fstat(file->fd, &status) != 0) {
    if (file->fd >= 0) close(file->fd);
    std::free(file);
    return nullptr;
  }
  file->inode = status.st_ino;
  file->major = major(status.st_dev);
  file->minor = minor(status.st_dev);
  file->size = size;
  files[file_count++] = file;
  ++descriptors;
  return file;
}

// Nothing is mapped of it, and it is the last that was made.
void unmake_file(File& file) {
  close_file(file);
  --file_count;
  std::free(&file);
}

// One with so much room behind what is filled.
File* file_with_room(std::size_t size) {
  // What goes beyond this limit gets a signal that ends the program (RLIMIT_FSIZE is of memory's files, too).
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < size || limit.rlim_cur < kSharedFileBytes)
    return nullptr;
  if (size > kSmallBytes) return make_file(size);
  if (filling != nullptr && is_open(*filling) && filling->size - filling->filled >= size) return filling;
  File* fresh = make_file(kSharedFileBytes);
  if (fresh != nullptr) filling = fresh;
  return fresh;
}

// ---- what is mapped there ---------------------------------------------------------------------------

// Anonymous memory, the heap, or memory with a name of its own; no stack, no file, no kernel's page.
// What has no file is no device's memory and has no huge pages of its own.
bool is_plain(const Mapping& mapping) {
  return mapping.inode == 0 && !mapping.shared &&
         (mapping.path[0] == '\0' || std::strcmp(mapping.path, "[heap]") == 0 ||
          std::strncmp(mapping.path, "[anon:", 6) == 0);
}

struct Look {
  WholePages range;
  std::size_t count = 0;
  Mapping first{};
  bool ours_only = true;  // one part of one file, which follows:
  File* file = nullptr;
  std::uint64_t offset = 0;
  bool any_ours = false;
  bool not_for_children = false;
  bool changes = false;  // others map beside it, so that its mappings are no longer what they were
};

std::uintptr_t first_of(const Mapping& mapping, const WholePages& range) {
  return mapping.start > range.start ? mapping.start : range.start;
}

bool look_at(const Mapping& mapping, void* context) {
  Look& look = *static_cast<Look*>(context);
  // Another's mapping with our rights is what takes its place.
  if (!mapping.readable || !mapping.writable || mapping.executable || mapping.huge) return false;
  File* file = file_of(mapping);
  if (file == nullptr && !is_plain(mapping)) return false;
  const std::uintptr_t start = first_of(mapping, look.range);
  const std::uint64_t offset = mapping.offset + (start - mapping.start);
  if (look.count++ == 0) {
    look.first = mapping;
    look.file = file;
    look.offset = offset;
  }
  look.ours_only =
      look.ours_only && file != nullptr && file == look.file && offset == look.offset + (start - look.range.start);
  look.any_ours = look.any_ours || file != nullptr;
  return true;
}

// May the pages of this mapping be replaced, and with what?
bool prepare(const Mapping& mapping, void* context) {
  Look& look = *static_cast<Look*>(context);
  const std::uintptr_t start = first_of(mapping, look.range);
  if (const File* file = file_of(mapping)) {
    // Pages that regions use stay where these, and the daemon, know them.
    const std::uintptr_t end = mapping.end < look.range.end ? mapping.end : look.range.end;
    if (in_use(*file, mapping.offset + (start - mapping.start), end - start)) return false;
  }
  switch (forks_of(start, mapping)) {
    case Forks::inherited:
      return true;
    case Forks::kept_back:
      look.not_for_children = true;
      return true;
    case Forks::unknown:
      look.changes = true;
  }
  return false;
}

// The kernel says of a range whether any of it is locked where it is asked to drop what others have
// cached of it; of memory it does no more than that.
bool is_locked(const WholePages& range) {
  return msync(reinterpret_cast<void*>(range.start), range.size(), MS_ASYNC | MS_INVALIDATE) != 0;
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

// It stays open: to close it is to look through all mappings of the process.
bool have_guard(bool for_files) {
  if (guard < 0) {
#ifdef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    guard = open_guard(UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
    guards_files = guard >= 0;
#endif
    if (guard < 0) guard = open_guard(0);
    if (guard < 0) return false;
    ++descriptors;
  }
  return guards_files || !for_files;
}

void drop_guard() {
  if (errno != ENOTTY && errno != EBADF) close(guard);
  guard = -1;
  --descriptors;
}

// Holds up every store into the range until let_go(), or until something else is mapped there and they
// are woken.
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

bool write_all(const File& file, std::uint64_t offset, const WholePages& range) {
  const char* from = reinterpret_cast<const char*>(range.start);
  for (std::size_t left = range.size(); left != 0;) {
    const ssize_t written = pwrite(file.fd, from, left, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    offset += static_cast<std::uint64_t>(written);
    left -= static_cast<std::size_t>(written);
  }
  return true;
}

// Spares the application the faults. One fault maps what there is of the file in 64 KiB around it, which is
// cheaper than MAP_POPULATE's page by page; where it does less, the rest comes when it is touched.
void map_in(const WholePages& range) {
  constexpr std::uintptr_t kAround = 64 * 1024;
  constexpr int kPopulateRead = 22;  // not in the headers of older C libraries
  for (std::uintptr_t at = range.start; at < range.end; at = (at / kAround + 1) * kAround)
    madvise(reinterpret_cast<void*>(at), RNIC_SWAP_PAGE_BYTES, kPopulateRead);
}

// The file's part where the range is; false: everything is as it was.
bool map_over(const File& file, std::uint64_t offset, const WholePages& range, bool not_for_children) {
  constexpr int kRights = PROT_READ | PROT_WRITE;
  void* there = reinterpret_cast<void*>(range.start);
  const auto from = static_cast<off_t>(offset);
  if (!not_for_children) return mmap(there, range.size(), kRights, MAP_SHARED | MAP_FIXED, file.fd, from) != MAP_FAILED;
  // Made elsewhere and then moved, which takes longer: no child ever has what is not for it.
  void* mapped = mmap(nullptr, range.size(), kRights, MAP_SHARED, file.fd, from);
  if (mapped == MAP_FAILED) return false;
  if (madvise(mapped, range.size(), MADV_DONTFORK) == 0 &&
      mremap(mapped, range.size(), range.size(), MREMAP_MAYMOVE | MREMAP_FIXED, there) != MAP_FAILED)
    return true;
  munmap(mapped, range.size());
  return false;
}

bool replace(const Look& look, File& file, std::uint64_t offset) {
  const WholePages& range = look.range;
  if (!have_guard(look.any_ours)) return false;
  // A handler that stores into the range would wait for this very thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool done =
      protect(range) && write_all(file, offset, range) && map_over(file, offset, range, look.not_for_children);
  // Whoever waited to store does it now, into what is there now.
  if (done)
    wake(range);
  else
    let_go(range);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (done) map_in(range);
  return done;
}

// ---- forks ------------------------------------------------------------------------------------------

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

// What the parent had is forgotten, and not freed: its uses may be released here, too.
void after_fork_in_child() {
  if (ever_swapped) {
    // The kernel goes on by address where the last line ended, so that one pass finds all of them, though
    // it changes what is mapped; another sees to that.
    bool made = true;
    for (int i = 0; i < 4 && made; ++i) {
      made = false;
      visit_all_mappings(make_private, &made);
    }
    for (std::size_t i = 0; i < file_count; ++i) close_file(*files[i]);
    if (guard >= 0) close(guard);
    guard = -1;
    file_count = idle_count = descriptors = ranges = refusals = 0;
    idle_bytes = 0;
    filling = nullptr;
    ever_swapped = false;
  }
  if (child_done[0] >= 0) {
    close(child_done[0]);
    close(child_done[1]);
    child_done[0] = child_done[1] = -1;
  }
  pthread_mutex_unlock(&swap_lock);
}

bool watch_forks() {
  static bool watching;
  if (!watching) watching = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  return watching;
}

// ---------------------------------------------------------------------------------------------------

// `memory`: for the use. Nothing in between allocates: who waits for a protected page may hold malloc's lock.
PagesUse* swap_locked(const WholePages& range, void* memory) {
  if (!watch_forks()) return nullptr;
  Look look;
  for (int looks = 1;; ++looks) {
    look = {};
    look.range = range;
    if (!visit_mappings(range.start, range.end, look_at, &look)) return nullptr;
    if (look.ours_only && is_open(*look.file)) return new_use(*look.file, look.offset, range.size(), memory);
    if (looks == 1 && (is_locked(range) || !room_for_range())) return nullptr;
    if (look.count == 1 ? prepare(look.first, &look) : visit_mappings(range.start, range.end, prepare, &look)) break;
    if (!look.changes || looks == kLooksMax) return nullptr;
  }
  File* file = file_with_room(range.size());
  if (file == nullptr) return nullptr;
  const std::uint64_t offset = file->filled;
  ever_swapped = true;
  if (!replace(look, *file, offset)) {
    if (file->filled == 0) unmake_file(*file);
    return nullptr;
  }
  file->filled += range.size();
  ++ranges;
  return new_use(*file, offset, range.size(), memory);
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

SwappedPages swap_pages(const void* address, std::size_t length) {
  const WholePages range = whole_pages(address, length);
  if (range.size() == 0) return {};
  void* memory = std::malloc(sizeof(PagesUse));
  if (memory == nullptr) return {};
  pthread_mutex_lock(&swap_lock);
  PagesUse* use = swap_locked(range, memory);
  const SwappedPages swapped = use == nullptr ? SwappedPages{} : SwappedPages{use->file->fd, use->offset, use};
  pthread_mutex_unlock(&swap_lock);
  if (use == nullptr) std::free(memory);
  return swapped;
}

void release_pages(PagesUse* use) {
  if (use == nullptr) return;
  pthread_mutex_lock(&swap_lock);
  if (use->next != nullptr) use->next->previous = use->previous;
  (use->previous != nullptr ? use->previous->next : use->file->uses) = use->next;
  if (use->file->uses == nullptr) set_idle(*use->file);
  pthread_mutex_unlock(&swap_lock);
  std::free(use);
}

SwapCounts swap_counts() {
  pthread_mutex_lock(&swap_lock);
  const SwapCounts counts{descriptors, ranges};
  pthread_mutex_unlock(&swap_lock);
  return counts;
}

void assume_mappings_max(std::size_t count) {
  pthread_mutex_lock(&swap_lock);
  assumed_mappings_max = count;
  refusals = 0;
  pthread_mutex_unlock(&swap_lock);
}

}  // namespace rnic::provider
