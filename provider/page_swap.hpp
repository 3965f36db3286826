/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Page swap (rung 3 of docs/architecture.md): the whole pages inside a region become shared memory
// that the daemon maps too, so that it places and gathers at memory speed. Only on request
// (`rnic run --fast-memory`): whoever pinned the old pages before (io_uring's fixed buffers, O_DIRECT
// in flight, a GPU) keeps those, and no longer sees what is written here.
//
// The octets are copied into a sealed memfd, which is then mapped over them; meanwhile a store by
// another thread waits (write protection by userfaultfd, of the kind that also holds up the kernel's
// own stores), so none is lost. Pages that hold anything but the region stay as they are.
//
// A fork makes private memory of them again in the child, as of any other page of its parent.
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

// A descriptor of the memory that the whole pages inside [address, +length) are (now) a shared mapping
// of, and where in it they begin; -1: they stay as they are, because they are few, not plain private
// memory, or this process may not use userfaultfd. The descriptor is the caller's to close. The region
// counts as a user of them until release_pages() of the same range.
int swap_pages(const void* address, std::size_t length, std::uint64_t& offset);
void release_pages(const void* address, std::size_t length);

}  // namespace rnic::provider
