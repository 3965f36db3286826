/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Registrations as ibverbs' and the direct verbs' operations have them alike (memory.cpp), and second mappings of pages
// that lie apart (page_views.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "context.hpp"

namespace rnic::provider {

// What is to be registered, and how.
struct Range {
  std::uint32_t pd;
  void* address;
  std::size_t length;
  std::uint64_t iova;
  std::uint32_t access;  // RNIC_ACCESS_*
  std::uint32_t pages;   // it is of a page list of so many; 0: it is a range
  // Of a region that there is; else none, and one is chosen.
  bool has_key;
  std::uint8_t key;
};

// Null: errno says why. Context, domain, address and length are filled in, as libibverbs would.
Mr* register_range(ibv_pd* pd, const Range& range);
// As the daemon's REREG_MR. `impossible`: an errno that says why it cannot be, though it is not to stay as it was.
int reregister_range(Mr& mr, const Range& range, int impossible);
// After it, of one that has gone over to another domain.
void change_domain(Mr& mr, ibv_pd* pd);
// A region that the daemon has made, as `made` has it, of this range; null: out of memory.
Mr* adopt_region(ibv_pd* pd, const rnic_reg_mr_reply& made, const Range& range);
// It is of memory that is not known here any more: nothing is copied from it at post.
void forget_contents(Mr& mr);
// The range that it is known by; what is not known, of length 0.
Range range_of(const Mr& mr);
// One that is not the last.
std::uint8_t new_key(Context& context);

// ---- page_views.cpp ------------------------------------------------------------------------------

// Pages of shared memory that lie apart, mapped once more, one behind the other; and a region's use of them.
struct SecondMapping {
  std::uint32_t uses;
  void* at;
  std::size_t size;
};
struct PageView {
  PageView* next;
  SecondMapping* of;
  // The work request that is to make a region of it; of no queue pair: it is one already.
  std::uint32_t qp_number;
  std::uint32_t index;
};

// `count` addresses, each a multiple of `page_size`: where they lie one behind the other. `made`: null, they do anyway.
// 0, or EOPNOTSUPP: private pages that lie apart; EFAULT: no such pages; ENOMEM.
int lay_out(const std::uint64_t* pages, std::uint32_t count, std::uint64_t page_size, void*& first, PageView*& made);
void drop_views(PageView*& views);
void add_view(PageView*& views, PageView* view);
// The second region has use of those of the first. False: out of memory.
bool share_views(const Mr& from, Mr& to);
// Of many that work requests were to make regions of, those go that are behind: the request is done, and the region is
// another's.
void drop_old_views(Mr& mr);

}  // namespace rnic::provider
