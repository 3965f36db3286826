/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What becomes of swapped pages at a fork: private memory again in the child, as any other page of its parent. Internal
// to page swap; guarded by its lock.
#pragma once

namespace rnic::provider {

// False: forks cannot be watched, and nothing may be swapped.
bool watch_forks();

// From now on forks look for swapped pages. False: a child could not say when it has copied them, so nothing may be
// swapped.
bool note_swap();

}  // namespace rnic::provider
