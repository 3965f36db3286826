/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The files that swapped pages are part of: memfds of ours, which parts of them regions use, and how many descriptors
// and mappings of the process they may take. Internal to page swap.
//
// All of it is guarded by swap_lock, which the caller holds.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "mappings.hpp"
#include "page_swap.hpp"

namespace rnic::provider {

struct SwapFile;

// In the list of its file, and the application's region's.
struct PagesUse {
  SwapFile* file;
  std::uint64_t offset;
  std::uint64_t length;
  PagesUse* next;
  PagesUse* previous;
};

// Memory that we made. Known as long as anything may be mapped of it.
struct SwapFile {
  std::uint64_t inode;
  unsigned major;
  unsigned minor;
  int fd;  // -1: closed, when no region used it any more; the mappings outlive that
  std::uint64_t size;
  std::uint64_t filled;  // the octets behind are free
  PagesUse* uses;
  bool kept_back;  // from children of fork, as the application has asked (MADV_DONTFORK)
  bool is_mapped;  // while mappings are counted
};

extern pthread_mutex_t swap_lock;

// The file that is mapped there; null: none of ours.
SwapFile* file_of(const Mapping& mapping);

// An application that closes all descriptors, to make a daemon of itself, closes ours too; and what has
// their numbers then is not to be touched.
bool is_open(const SwapFile& file);

// `memory`: for the use.
PagesUse* new_use(SwapFile& file, std::uint64_t offset, std::uint64_t length, void* memory);
void end_use(PagesUse& use);
bool in_use(const SwapFile& file, std::uint64_t offset, std::uint64_t length);

// May another range be swapped?
bool room_for_range();
// A file with so much room behind what is filled, perhaps a new one; null: there is none.
SwapFile* file_with_room(std::size_t size, bool kept_back);
// A range was mapped behind what is filled; a large one as two mappings.
void add_range(SwapFile& file, std::size_t size);
// What file_with_room() has just made: nothing is mapped of it.
void unmake_file(SwapFile& file);

// Descriptors of page swap that are no file's count, too.
void count_descriptors(int more);

// In a forked child: closes all, and forgets what the parent had without freeing it, as uses of it may be released
// here.
void forget_files();

}  // namespace rnic::provider
