/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Takes pages out of their place, so that nobody's stores and nobody's DMA are lost while other memory takes it:
// UFFDIO_MOVE (Linux 6.8), which refuses a page that somebody has pinned. Internal to page swap; guarded by its lock.
//
// A page set aside is seen by the caller alone. Whoever touches its place waits, the kernel on behalf of a read(2) or a
// device too, until put_back(), or until the caller has mapped something else there and calls wake(). So the caller
// blocks all signals meanwhile, and touches neither the place nor malloc.
#pragma once

#include "page_swap.hpp"

namespace rnic::provider {

// So much at a time, as the place is not to be had meanwhile (some 0.5 ms).
inline constexpr std::size_t kAsideBytes = std::size_t{1} << 20;

// False: the kernel or the process's rights do not allow it.
bool may_set_aside();

// The place's pages, at most kAsideBytes of private memory; null: one of them is pinned or cannot be had, and all is as
// it was.
const void* set_aside(const WholePages& place);
void put_back(const WholePages& place);
// Something else is at the place: the old pages go.
void drop_aside(const WholePages& place);

// In a forked child, which has none of it.
void forget_aside();

}  // namespace rnic::provider
