/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What is mapped where in this process, at a price that does not grow with how much is mapped: by
// PROCMAP_QUERY (Linux 6.11), one call for a mapping. Where the kernel has not got it, /proc/self/maps
// is read from its beginning up to the range; /proc/self/smaps only where nothing else tells, and
// not far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rnic::provider {

struct Mapping {
  std::uintptr_t start;
  std::uintptr_t end;
  std::uint64_t offset;
  std::uint64_t inode;  // 0: no file
  unsigned major;
  unsigned minor;
  bool readable;
  bool writable;
  bool executable;
  bool shared;
  bool huge;       // pages of another size than RNIC_SWAP_PAGE_BYTES; reading maps does not tell (they have an inode)
  char path[512];  // or a name in brackets; nothing: plain memory, or a path that is longer

  bool is_file(std::uint64_t of_inode, unsigned of_major, unsigned of_minor) const {
    return inode == of_inode && major == of_major && minor == of_minor;
  }
  // Private: anonymous memory, the heap, or memory with a name of its own; no stack, no file, no kernel's page. What
  // has no file is no device's memory and has no huge pages of its own.
  bool is_plain() const {
    return inode == 0 && !shared &&
           (path[0] == '\0' || std::strcmp(path, "[heap]") == 0 || std::strncmp(path, "[anon:", 6) == 0);
  }
};

// The mapping that holds this address. False: none, or no /proc.
bool find_mapping(std::uintptr_t address, Mapping& found);

// Tells of each mapping in [start, end) in turn, until `visit` says false or there is a hole.
// True: there was no hole, and nobody said false.
bool visit_mappings(std::uintptr_t start, std::uintptr_t end, bool (*visit)(const Mapping&, void*), void* context);

// Of each mapping of this process; by reading maps.
void visit_all_mappings(void (*visit)(const Mapping&, void*), void* context);

// Is the memory of this page kept from children of fork (MADV_DONTFORK)? The caller keeps others from
// forking meanwhile, and from asking. `mapping`: the one that holds the page. Unknown: others change what is mapped
// there; far: only smaps tells, and has too much to say before it comes to this page.
enum class Forks { inherited, kept_back, unknown, far };
Forks forks_of(std::uintptr_t page, const Mapping& mapping);

// mremap(2), to `to`, whatever is there; `size` 0: what is at `from` is mapped a second time. By the system call: the C
// library's function may be the stand-in's, which has other things in mind, or that of a library of the application's,
// as UCX's, which forgets the fifth parameter. 0 or an errno.
int remap_to(std::uintptr_t from, std::size_t size, std::size_t new_size, std::uintptr_t to);

// ---- for tests --------------------------------------------------------------------------------------

std::size_t smaps_octets_read();
// So many are read in a look at most, or nearly; 0: as built. No page counts as far until it is found to be.
void limit_smaps(std::size_t octets);
// Or does as on a kernel without PROCMAP_QUERY.
void use_mapping_query(bool use);

}  // namespace rnic::provider
