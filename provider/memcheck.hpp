/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What is told to valgrind, where its header was there when this was built: a few instructions that do nothing
// without it.
#pragma once

#include <cstddef>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif

namespace rnic::provider {

// The data plane writes here without valgrind's seeing it: what is read from there is not uninitialised.
inline void tell_memcheck_written(const void* address, std::size_t length) {
#ifdef VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE
  VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE(address, length);
#else
  static_cast<void>(address);
  static_cast<void>(length);
#endif
}

}  // namespace rnic::provider
