/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "page_swap.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "mappings.hpp"
#include "pages_aside.hpp"
#include "rnic_control.h"
#include "swap_files.hpp"
#include "swap_forks.hpp"
#include "write_guard.hpp"

namespace rnic::provider {
namespace {

// Other threads map and unmap memory beside a range while it is looked at, and a look that meets such a change is made
// again. After so many the range is not swapped, and its region is copied (rung 4): a loss of speed alone. A look takes
// some 10 us.
constexpr int kLooksMax = 64;

// ---- what may be swapped ---------------------------------------------------------------------------

struct Look {
  WholePages range;
  std::size_t count = 0;
  Mapping first{};
  bool ours_only = true;  // one part of one file, which follows:
  SwapFile* file = nullptr;
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
  SwapFile* file = file_of(mapping);
  if (file == nullptr && !mapping.is_plain()) return false;
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
  if (const SwapFile* file = file_of(mapping)) {
    // Pages that regions use stay where these, and the daemon, know them.
    const std::uintptr_t end = mapping.end < look.range.end ? mapping.end : look.range.end;
    if (in_use(*file, mapping.offset + (start - mapping.start), end - start)) return false;
    look.not_for_children = look.not_for_children || file->kept_back;
    return true;
  }
  switch (forks_of(start, mapping)) {
    case Forks::inherited:
      return true;
    case Forks::kept_back:
      look.not_for_children = true;
      return true;
    case Forks::unknown:
      look.changes = true;
      return false;
    case Forks::far:
      return false;
  }
  return false;
}

// The kernel says of a range whether any of it is locked where it is asked to drop what others have
// cached of it; of memory it does no more than that.
bool is_locked(const WholePages& range) {
  return msync(reinterpret_cast<void*>(range.start), range.size(), MS_ASYNC | MS_INVALIDATE) != 0;
}

// ---- the swap --------------------------------------------------------------------------------------

bool write_all(const SwapFile& file, std::uint64_t offset, const void* octets, std::size_t size) {
  const char* from = static_cast<const char*>(octets);
  for (std::size_t left = size; left != 0;) {
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

// The file's part where the range is; false: everything is as it was. Made elsewhere and then moved: no child ever has
// what is not for it, and for it is none but by swap_forks.cpp.
bool map_over(const SwapFile& file, std::uint64_t offset, const WholePages& range) {
  void* const mapped =
      mmap(nullptr, range.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return false;
  if (madvise(mapped, range.size(), MADV_DONTFORK) == 0 &&
      remap_to(reinterpret_cast<std::uintptr_t>(mapped), range.size(), range.size(), range.start) == 0)
    return true;
  munmap(mapped, range.size());
  return false;
}

// The kernel grows one mapping only. libc's realloc asks it by a call that the stand-in does not see, and copies when
// it is refused; so a range that may be all of what realloc has is two, of which one is marked in a way that means
// nothing.
void make_two(const SwapFile& file, const WholePages& range) {
  if (file.size != range.size()) return;  // small, in a file with others
  madvise(reinterpret_cast<void*>(range.end - RNIC_SWAP_PAGE_BYTES), RNIC_SWAP_PAGE_BYTES, MADV_RANDOM);
}

// A handler that touches the range would wait for this very thread.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

// A part of the range at a time is set aside. Once others have come back to a part nothing takes it away from them
// again: whoever pins it now could not be told. Returns how much is part of the file.
std::size_t replace_aside(const WholePages& range, const SwapFile& file, std::uint64_t offset) {
  // What a child of fork has too is moved for neither of them: each page is to be this process's own.
  constexpr int kPopulateWrite = 23;  // not in the headers of older C libraries
  madvise(reinterpret_cast<void*>(range.start), range.size(), kPopulateWrite);
  std::size_t done = 0;
  while (done < range.size()) {
    const std::size_t left = range.size() - done;
    const std::uintptr_t start = range.start + done;
    const WholePages part{start, start + (left < kAsideBytes ? left : kAsideBytes)};
    const NoSignals no_signals;
    const void* const octets = set_aside(part);
    if (octets == nullptr) break;
    if (!write_all(file, offset + done, octets, part.size()) || !map_over(file, offset + done, part)) {
      put_back(part);
      break;
    }
    drop_aside(part);
    done += part.size();
  }
  return done;
}

// Where pages cannot be moved, or were swapped before: others may read while they are copied. What is pinned is not
// told from other memory.
bool replace_guarded(const WholePages& range, const SwapFile& file, std::uint64_t offset) {
  const NoSignals no_signals;
  const bool done = protect(range) &&
                    write_all(file, offset, reinterpret_cast<const void*>(range.start), range.size()) &&
                    map_over(file, offset, range);
  // Threads that waited to store do it now, into what is there now.
  if (done)
    wake(range);
  else
    let_go(range);
  return done;
}

// How much is part of the file now; all of it, or the region stays on rung 4.
std::size_t replace(const Look& look, const SwapFile& file, std::uint64_t offset) {
  const WholePages& range = look.range;
  std::size_t done = 0;
  if (!look.any_ours && may_set_aside())
    done = replace_aside(range, file, offset);
  else if (have_guard(look.any_ours) && replace_guarded(range, file, offset))
    done = range.size();
  if (done == range.size()) {
    make_two(file, range);
    map_in(range);
  }
  return done;
}

// `memory`: for the use, taken before, as nothing may allocate while pages are protected: another thread that waits for
// such a page may hold malloc's lock.
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
  SwapFile* file = file_with_room(range.size(), look.not_for_children);
  if (file == nullptr) return nullptr;
  const std::uint64_t offset = file->filled;
  const std::size_t done = note_swap() ? replace(look, *file, offset) : 0;
  if (done == 0) {
    if (file->filled == 0) unmake_file(*file);
    return nullptr;
  }
  add_range(*file, done);
  PagesUse* const use = new_use(*file, offset, done, memory);
  if (done == range.size()) return use;
  end_use(*use);
  return nullptr;
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
  end_use(*use);
  pthread_mutex_unlock(&swap_lock);
  std::free(use);
}

}  // namespace rnic::provider
