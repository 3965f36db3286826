/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The regions of a context, by the index of their STag: what posting looks into, without a lock.
//
// Indexes are spread over 24 bits, so a table by number would have a page for each region; this is a hash of them, with
// lists, that doubles. No region's memory goes before the context does. A look that meets a change of its list may miss
// a region; it is as if the region were not known, and that is always right (gather at post).
//
// Everything here lives in zeroed memory. Changed by one caller at a time.
#pragma once

#include <cstdint>

#include "ring.hpp"

namespace rnic::provider {

// A registered region as posting needs it: to copy without asking (gather at post). Its owner stores `stag` last, and
// clears it first.
struct Region {
  std::uint32_t stag;  // 0: none
  std::uint32_t access;
  bool mapped;         // by the daemon, as far as we know
  std::uint64_t base;  // the TO of the first octet
  std::uint64_t length;
  char* memory;
  Region* next;  // of its list
  std::uint32_t index;
};

class RegionTable {
 public:
  Region* find(std::uint32_t index) const {
    const Lists* lists = load(lists_, std::memory_order_acquire);
    if (lists == nullptr) return nullptr;
    Region* at = load(lists->heads[index & lists->mask], std::memory_order_acquire);
    while (at != nullptr && load(at->index, std::memory_order_relaxed) != index)
      at = load(at->next, std::memory_order_acquire);
    return at;
  }
  // The one of this index, made if need be; nothing when out of memory.
  Region* make(std::uint32_t index);
  // Out of the table, and nobody's; or in again, as it was.
  Region* take(std::uint32_t index);
  void put(Region* region);
  // Of one that was taken.
  void forget(Region* region);
  void clear();

 private:
  struct Lists {
    Lists* older;  // a look may be in them still
    std::uint32_t mask;
    Region* heads[];
  };
  bool grow();

  Lists* lists_;
  Region* free_;
  std::uint32_t count_;
};

}  // namespace rnic::provider
