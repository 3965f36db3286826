// Memory that is shared by its descriptor, and that nobody else can make smaller under our feet.
#pragma once

#include <cstdint>

#include "base/result.hpp"

namespace rnic::shm {

struct SealedMemory {
  int fd = -1;
  void* base = nullptr;
};

// A memfd of `bytes` octets of zero, mapped here, whose size nobody can change any more; both are the
// caller's to end. `extra_seals` are added after mapping. An error is an errno.
Result<SealedMemory, int> sealed_memory(const char* name, std::uint64_t bytes, unsigned extra_seals = 0);

}  // namespace rnic::shm
