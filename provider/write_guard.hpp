/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The process's userfaultfd, which holds up stores into pages while they are copied (write protection; for others'
// faults, pages_aside.hpp). Internal to page swap; guarded by its lock.
#pragma once

#include "page_swap.hpp"

namespace rnic::provider {

// False: this process may not use userfaultfd. `for_files`: pages that are shared memory already are to be protected.
bool have_guard(bool for_files);
// Of a guard that there is: does the kernel move pages (Linux 6.8)?
bool guard_moves();
int guard_descriptor();

// Holds up every store into the range until let_go(), or until something else is mapped there and they
// are woken.
bool protect(const WholePages& range);
void let_go(const WholePages& range);
void wake(const WholePages& range);

// In a forked child, which has the parent's.
void close_guard_in_child();

}  // namespace rnic::provider
