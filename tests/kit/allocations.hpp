// How many allocations there were: for tests that say there are none. Whoever includes this links
// allocations.cpp, which replaces the global operator new.
#pragma once

#include <cstdint>

namespace rnic::test {

std::uint64_t allocations();      // ever
std::uint64_t allocated_bytes();  // now, with what the allocator adds

}  // namespace rnic::test
