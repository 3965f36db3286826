/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "swap_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cassert>
#include <cstdlib>

#include "rnic_control.h"

namespace rnic::provider {

pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;

namespace {

// Ranges up to this share files: a descriptor for many, and for the daemon a mapping for many.
constexpr std::size_t kSmallBytes = 64 * 1024;
constexpr std::size_t kSharedFileBytes = 1024 * 1024;  // the daemon maps files up to 2 MiB once
// Files whose regions are gone stay open, for those that register again: so many, of so much together. What
// the application has freed is gone when they are closed.
constexpr std::size_t kIdleMax = 8;
constexpr std::uint64_t kIdleBytes = 8 * 1024 * 1024;
// A range in the midst of a mapping makes three of it.
constexpr std::size_t kMappingsOfRange = 2;

SwapFile** files;
std::size_t file_count;
std::size_t file_room;
SwapFile* idle[kIdleMax];  // the longest first
std::size_t idle_count;
std::uint64_t idle_bytes;
SwapFile* filling[2];  // take the next small range, [1] one that is kept from children; null: none
std::size_t descriptors;
std::size_t ranges;
std::size_t refusals;  // until the ranges are counted again
std::size_t assumed_mappings_max;

}  // namespace

// ---- files and their uses --------------------------------------------------------------------------

SwapFile* file_of(const Mapping& mapping) {
  if (mapping.inode == 0 || !mapping.shared) return nullptr;
  for (std::size_t i = 0; i < file_count; ++i)
    if (mapping.is_file(files[i]->inode, files[i]->major, files[i]->minor)) return files[i];
  return nullptr;
}

bool is_open(const SwapFile& file) {
  struct stat status {};
  return file.fd >= 0 && fstat(file.fd, &status) == 0 && status.st_ino == file.inode &&
         major(status.st_dev) == file.major && minor(status.st_dev) == file.minor;
}

namespace {

void close_file(SwapFile& file) {
  if (file.fd < 0) return;
  if (is_open(file)) close(file.fd);
  file.fd = -1;
  --descriptors;
  for (SwapFile*& each : filling)
    if (each == &file) each = nullptr;
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
void set_idle(SwapFile& file) {
  if (file.size > kIdleBytes / 2 || file.fd < 0) {
    close_file(file);
    return;
  }
  while (idle_count == kIdleMax || idle_bytes + file.size > kIdleBytes) close_longest_idle();
  idle[idle_count++] = &file;
  idle_bytes += file.size;
}

}  // namespace

PagesUse* new_use(SwapFile& file, std::uint64_t offset, std::uint64_t length, void* memory) {
  for (std::size_t i = 0; i < idle_count; ++i)
    if (idle[i] == &file) remove_idle(i--);
  auto* use = static_cast<PagesUse*>(memory);
  *use = {&file, offset, length, file.uses, nullptr};
  if (use->next != nullptr) use->next->previous = use;
  file.uses = use;
  return use;
}

void end_use(PagesUse& use) {
  if (use.next != nullptr) use.next->previous = use.previous;
  (use.previous != nullptr ? use.previous->next : use.file->uses) = use.next;
  if (use.file->uses == nullptr) set_idle(*use.file);
}

bool in_use(const SwapFile& file, std::uint64_t offset, std::uint64_t length) {
  for (const PagesUse* use = file.uses; use != nullptr; use = use->next)
    if (use->offset < offset + length && offset < use->offset + use->length) return true;
  return false;
}

// ---- how much may be ours --------------------------------------------------------------------------

namespace {

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
        SwapFile* file = file_of(mapping);
        if (file == nullptr) return;
        file->is_mapped = true;
        ++ranges;
      },
      nullptr);
  for (std::size_t i = 0; i < file_count;) {
    SwapFile* file = files[i];
    if (file->is_mapped || file->fd >= 0 || file->uses != nullptr) {
      ++i;
      continue;
    }
    std::free(file);
    files[i] = files[--file_count];
  }
}

}  // namespace

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

void count_descriptors(int more) { descriptors += static_cast<std::size_t>(more); }

// ---- making files ----------------------------------------------------------------------------------

namespace {

SwapFile* make_file(std::size_t size, bool kept_back) {
  if (!room_for_descriptor()) return nullptr;
  if (file_count == file_room) {
    const std::size_t room = file_room == 0 ? 16 : file_room * 2;
    void* grown = std::realloc(files, room * sizeof(SwapFile*));
    if (grown == nullptr) return nullptr;
    files = static_cast<SwapFile**>(grown);
    file_room = room;
  }
  auto* file = static_cast<SwapFile*>(std::calloc(1, sizeof(SwapFile)));
  if (file == nullptr) return nullptr;
  file->fd = memfd_create(RNIC_SWAP_FILE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
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
  file->kept_back = kept_back;
  files[file_count++] = file;
  ++descriptors;
  return file;
}

}  // namespace

void unmake_file(SwapFile& file) {
  assert(file_count != 0 && files[file_count - 1] == &file);
  close_file(file);
  --file_count;
  std::free(&file);
}

SwapFile* file_with_room(std::size_t size, bool kept_back) {
  // What goes beyond this limit gets a signal that ends the program (RLIMIT_FSIZE is of memory's files, too).
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < size || limit.rlim_cur < kSharedFileBytes)
    return nullptr;
  if (size > kSmallBytes) return make_file(size, kept_back);
  SwapFile*& small = filling[kept_back ? 1 : 0];
  if (small != nullptr && is_open(*small) && small->size - small->filled >= size) return small;
  SwapFile* fresh = make_file(kSharedFileBytes, kept_back);
  if (fresh != nullptr) small = fresh;
  return fresh;
}

void add_range(SwapFile& file, std::size_t size) {
  file.filled += size;
  ranges += size > kSmallBytes ? 2 : 1;  // see make_two()
}

void forget_files() {
  for (std::size_t i = 0; i < file_count; ++i) close_file(*files[i]);
  file_count = idle_count = descriptors = ranges = refusals = 0;
  idle_bytes = 0;
  filling[0] = filling[1] = nullptr;
}

// ---- for tests -------------------------------------------------------------------------------------

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
