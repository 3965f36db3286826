// The global operator new, counted. All forms that do not align specially end in the plain one.
#include "kit/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::uint64_t> count{0}, held{0};

void* counted(std::size_t size) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  void* const p = std::malloc(size != 0 ? size : 1);
  if (p != nullptr) held.fetch_add(malloc_usable_size(p), std::memory_order_relaxed);
  return p;
}
void give_back(void* p) noexcept {
  if (p != nullptr) held.fetch_sub(malloc_usable_size(p), std::memory_order_relaxed);
  std::free(p);
}
}  // namespace

std::uint64_t rnic::test::allocations() { return count.load(std::memory_order_relaxed); }

std::uint64_t rnic::test::allocated_bytes() { return held.load(std::memory_order_relaxed); }

void* operator new(std::size_t size) {
  void* p = counted(size);
  if (p == nullptr) std::abort();  // no test survives without memory
  return p;
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, std::size_t) noexcept { give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { give_back(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { give_back(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { give_back(p); }
