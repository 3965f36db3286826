// What AddressSanitizer is told of octets within an allocation. Nothing where there is none.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define RNIC_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RNIC_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef RNIC_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace rnic::sanitizer {

// Nobody may read or write them until they are shown.
inline void hide([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t octets) {
#ifdef RNIC_ADDRESS_SANITIZER
  __asan_poison_memory_region(at, octets);
#endif
}
inline void show([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t octets) {
#ifdef RNIC_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(at, octets);
#endif
}

}  // namespace rnic::sanitizer
