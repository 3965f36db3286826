/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Huge pages under regions that are reached by remote copy (rung 4 of docs/architecture.md), where they are plain
// private memory and large enough: the kernel looks up and holds each page that it copies to or from, which with pages
// of 4 KiB is half of the work. The octets stay, and so does all that private memory does; a piece that cannot be had
// stays as it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rnic::provider {

// Of whole pieces of that size inside [address, +length), which is populated, the kernel makes one page each
// (MADV_COLLAPSE, Linux 6.1). Not where the administrator (transparent_hugepage/enabled: never) or the application
// (MADV_NOHUGEPAGE, PR_SET_THP_DISABLE) does not want them. It takes 100 ms at most, and a second of all calls of this
// process: what is left then stays as it is.
void make_huge(const void* address, std::size_t length);

// ---- for tests --------------------------------------------------------------------------------------

// Octets of a piece; 0: there are none to be had.
std::size_t huge_page_bytes();
// Of the process's time; and as if so much was left.
std::int64_t time_for_huge_pages_ns();
void set_time_for_huge_pages(std::int64_t ns);

}  // namespace rnic::provider
