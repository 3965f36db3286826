// mremap and madvise on memory that page swap (provider/page_swap.hpp) made shared. To the application it is the
// private memory that it was; the kernel would grow it into what lies behind it in its file, another region's octets
// perhaps, and would bring back what the application has thrown away.
#pragma once

#include <cstddef>

namespace rnic::preload {

// `wanted`: where it is to be, if `flags` say so.
void* remap(void* address, std::size_t old_size, std::size_t new_size, int flags, void* wanted);

int advise(void* address, std::size_t length, int advice);

}  // namespace rnic::preload
