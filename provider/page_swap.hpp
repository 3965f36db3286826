/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Page swap (rung 3 of docs/architecture.md): the whole pages inside a region become shared memory
// that the daemon maps too, so that it places and gathers at memory speed. Only on request
// (`rnic run --fast-memory`): such memory is not in all what private memory is (docs/memory.md).
//
// A part of the range at a time is moved aside, and waits for whoever touches it (userfaultfd, of the kind that also
// holds up the kernel's own accesses), is copied into a sealed memfd, and that is mapped in its place. A page that
// somebody has pinned (io_uring's fixed buffers, O_DIRECT in flight, a GPU) cannot be moved, and the region stays on
// rung 4 (pages_aside.hpp). Before Linux 6.8, and for what was swapped before, a store waits while pages are copied
// (write_guard.hpp), and what is pinned is not told. Pages that hold anything but the region stay as they are.
//
// Small ranges share files. What is mapped at a range is always asked of the kernel, as the application
// may unmap, map and move what it likes; our own table only says which files are ours, whether their
// descriptors are still here, and which parts of them regions use.
//
// A fork makes private memory of them again in the child, as of any other page of its parent; a child that no handler
// of libc's runs in has nothing there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rnic::provider {

// Did `rnic run` ask for it?
bool fast_memory();

// The whole pages inside [address, +length); nothing: none.
struct WholePages {
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  std::size_t size() const { return end - start; }
};
WholePages whole_pages(const void* address, std::size_t length);

// A region's use of the pages that it lies in.
struct PagesUse;

struct SwappedPages {
  int fd = -1;               // of their file; the table's, and open as long as the use
  std::uint64_t offset = 0;  // in the file, of the first of them
  PagesUse* use = nullptr;   // for release_pages()
  explicit operator bool() const { return use != nullptr; }
};

// The whole pages inside [address, +length), which are (now) a shared mapping of a file of ours. Nothing:
// they stay as they are, because there is none, they are not plain private memory, are locked or pinned, are in use
// by a region that has not all of them, this process may not use userfaultfd, whether children of fork are
// to have them takes too long to learn (Forks::far), or there is no room: ours are at most a quarter of the
// descriptors and of the mappings that the process may have.
SwappedPages swap_pages(const void* address, std::size_t length);

// The region is gone; in a forked child, or with nothing, that does nothing.
void release_pages(PagesUse* use);

// ---- for tests --------------------------------------------------------------------------------------

struct SwapCounts {
  std::size_t descriptors;
  std::size_t ranges;  // swapped and not known to be gone
};
SwapCounts swap_counts();
// In place of what vm.max_map_count says; 0: that.
void assume_mappings_max(std::size_t count);

}  // namespace rnic::provider
