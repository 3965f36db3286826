// Memory for one ring of abi/rnic_shm.h, aligned as an application's is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"

namespace rnic::test {

struct Area {
  explicit Area(std::size_t size) : octets(size + 64) {
    const auto address = reinterpret_cast<std::uintptr_t>(octets.data());
    start = octets.data() + (64 - address % 64) % 64;
    length = size;
  }
  MutableBytes bytes() { return {start, length}; }
  template <typename T>
  T& at(std::size_t offset) {
    return *reinterpret_cast<T*>(start + offset);
  }
  std::vector<std::byte> octets;
  std::byte* start;
  std::size_t length;
};

}  // namespace rnic::test
