#include "swapped.hpp"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "libc.hpp"
#include "lock.hpp"
#include "mappings.hpp"
#include "rnic_control.h"

namespace rnic::preload {
namespace {

using provider::Mapping;

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
// Not in the headers of older C libraries.
constexpr int kDontUnmap = 4;
constexpr int kDontNeedLocked = 24;

std::uintptr_t whole_pages(std::size_t size) {
  constexpr std::uintptr_t kMask = RNIC_SWAP_PAGE_BYTES - 1;
  return (size + kMask) & ~kMask;
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

// The name tells: which files are ours is in the provider's table, which is not ours to read.
bool is_swapped(const Mapping& mapping) {
  return mapping.shared && strcmp(mapping.path, "/memfd:" RNIC_SWAP_FILE_NAME " (deleted)") == 0;
}

int rights_of(const Mapping& mapping) {
  return (mapping.readable ? PROT_READ : 0) | (mapping.writable ? PROT_WRITE : 0) |
         (mapping.executable ? PROT_EXEC : 0);
}

struct Range {
  std::uintptr_t start;
  std::uintptr_t end;
  bool any_swapped = false;
  // Was it one private mapping before a swap? Then it has one kind of rights, and these:
  bool was_one = true;
  int rights = -1;
};

bool look_at(const Mapping& mapping, void* context) {
  Range& range = *static_cast<Range*>(context);
  const bool swapped = is_swapped(mapping);
  const bool is_private = mapping.inode == 0 && !mapping.shared;
  if (range.rights == -1) range.rights = rights_of(mapping);
  range.any_swapped = range.any_swapped || swapped;
  range.was_one = range.was_one && (swapped || is_private) && rights_of(mapping) == range.rights;
  return true;
}

void* fail(int error) {
  errno = error;
  return MAP_FAILED;
}

// ---- growing -----------------------------------------------------------------------------

// Mapping by mapping, to where nothing is yet that matters. Says how much it has moved.
std::uintptr_t move(std::uintptr_t from, std::uintptr_t size, std::uintptr_t to) {
  Mapping mapping;
  std::uintptr_t moved = 0;
  while (moved < size && provider::find_mapping(from + moved, mapping)) {
    std::uintptr_t part = mapping.end - (from + moved);
    if (part > size - moved) part = size - moved;
    if (libc().mremap(pointer(from + moved), part, part, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(to + moved)) ==
        MAP_FAILED)
      break;
    moved += part;
  }
  return moved;
}

bool extend(const Range& range, std::size_t more) {
  void* const behind = pointer(range.end);
  void* const got = mmap(behind, more, range.rights, kPrivate | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == behind) return true;
  if (got != MAP_FAILED) munmap(got, more);  // Linux before 4.17 took it for a hint
  return false;
}

// What is swapped stays part of its file, and so does what a region sees of it, as pinned pages move with their
// mapping; what is new is private.
void* grow(const Range& range, std::size_t new_size, int flags, void* wanted) {
  const std::uintptr_t old_size = range.end - range.start;
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  if (!fixed && new_size > old_size && extend(range, new_size - old_size)) return pointer(range.start);
  if ((flags & MREMAP_MAYMOVE) == 0) return fail(ENOMEM);
  void* const place = mmap(fixed ? wanted : nullptr, new_size, range.rights, kPrivate | (fixed ? MAP_FIXED : 0), -1, 0);
  if (place == MAP_FAILED) return fail(ENOMEM);
  const auto to = reinterpret_cast<std::uintptr_t>(place);
  const std::uintptr_t kept = old_size < new_size ? old_size : new_size;
  const std::uintptr_t moved = move(range.start, kept, to);
  if (moved == kept) {
    if (kept < old_size) munmap(pointer(range.start + kept), old_size - kept);
    return place;
  }
  move(to, moved, range.start);
  munmap(place, new_size);
  return fail(ENOMEM);  // too many mappings
}

// As the kernel says of private memory; 0: nothing against it.
int objection(const Range& range, bool nothing, std::size_t new_size, int flags, void* wanted) {
  const auto to = reinterpret_cast<std::uintptr_t>(wanted);
  if (nothing || range.start != whole_pages(range.start)) return EINVAL;
  if ((flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0 || flags == MREMAP_FIXED) return EINVAL;
  if ((flags & MREMAP_FIXED) != 0 && (to != whole_pages(to) || (to < range.end && range.start < to + new_size)))
    return EINVAL;
  return range.was_one ? 0 : EFAULT;
}

// ---- throwing away -----------------------------------------------------------------------

// A fault in a range that is being punched waits until that is done, half a second a GiB; so does the daemon's worker
// with a peer's Write, and all whom it serves. So much is 1 ms.
constexpr std::uintptr_t kEmptiedAtOnce = 2 << 20;

// Zeros, and the memory is the system's again. A region that lies there sees the zeros, too: another's pages it would
// have with hardware.
bool empty(const Mapping& mapping, void* context) {
  if (!is_swapped(mapping)) return true;
  const Range& range = *static_cast<Range*>(context);
  const std::uintptr_t start = mapping.start > range.start ? mapping.start : range.start;
  const std::uintptr_t end = mapping.end < range.end ? mapping.end : range.end;
  for (std::uintptr_t at = start, next; at < end; at = next) {
    next = (at + kEmptiedAtOnce) & ~(kEmptiedAtOnce - 1);  // huge pages stay whole
    if (next > end) next = end;
    if (libc().madvise(pointer(at), next - at, MADV_REMOVE) == 0) continue;
    // What may not be written cannot be emptied, but replaced.
    mmap(pointer(at), end - at, rights_of(mapping), kPrivate | MAP_FIXED, -1, 0);
    break;
  }
  return true;
}

}  // namespace

void* remap(void* address, std::size_t old_size, std::size_t new_size, int flags, void* wanted) {
  const std::uintptr_t old_pages = whole_pages(old_size);
  const std::uintptr_t new_pages = whole_pages(new_size);
  const bool grows = new_pages > old_pages;
  const bool leaves = (flags & kDontUnmap) != 0;
  const bool to_there =
      (flags & MREMAP_FIXED) != 0 && !leaves && new_pages != 0;  // of one mapping only, before Linux 6.17
  if (!grows && !leaves && !to_there) return libc().mremap(address, old_size, new_size, flags, wanted);
  const NoCancel no_cancel;
  const int saved = errno;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  // Nothing, of shared memory, asks for a second mapping of it.
  const bool nothing = old_pages == 0;
  Range range{start, start + (nothing ? RNIC_SWAP_PAGE_BYTES : old_pages)};
  if (!provider::visit_mappings(range.start, range.end, look_at, &range)) range.was_one = false;
  errno = saved;
  if (range.any_swapped && (grows || (to_there && range.was_one && !nothing))) {
    const int error = objection(range, nothing, new_pages, flags, wanted);
    if (error != 0) return fail(error);
    void* const grown = grow(range, new_pages, flags, wanted);
    if (grown != MAP_FAILED) errno = saved;
    return grown;
  }
  void* const moved = libc().mremap(address, old_size, new_size, flags, wanted);
  // Else both places would have the same octets.
  if (moved != MAP_FAILED && range.any_swapped) mmap(address, old_pages, range.rights, kPrivate | MAP_FIXED, -1, 0);
  return moved;
}

int advise(void* address, std::size_t length, int advice) {
  if (advice != MADV_DONTNEED && advice != MADV_FREE && advice != kDontNeedLocked)
    return libc().madvise(address, length, advice);
  const NoCancel no_cancel;
  int saved = errno;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  Range range{start, start + whole_pages(length)};
  const bool no_hole = provider::visit_mappings(range.start, range.end, look_at, &range);
  errno = saved;
  if (no_hole && !range.any_swapped) return libc().madvise(address, length, advice);
  // Which the kernel knows of private memory only, and may do at once.
  if (advice == MADV_FREE) advice = MADV_DONTNEED;
  const int result = libc().madvise(address, length, advice);
  if (result != 0 && errno != ENOMEM) return result;  // that is a hole, which nothing stops at
  saved = errno;
  if (no_hole)
    provider::visit_mappings(range.start, range.end, empty, &range);
  else
    provider::visit_all_mappings(
        [](const Mapping& mapping, void* context) {
          const Range& of = *static_cast<Range*>(context);
          if (mapping.end > of.start && mapping.start < of.end) empty(mapping, context);
        },
        &range);
  errno = saved;
  return result;
}

}  // namespace rnic::preload
