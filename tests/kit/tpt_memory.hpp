// An application's memory and its regions in a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tpt/table.hpp"

namespace rnic::test {

// A region over memory of this process, whose first octet the application calls `base`; 0: by its own address.
// `mapped`: so that the daemon reaches it directly.
inline Stag register_memory(tpt::Table& table, MutableBytes memory, tpt::Rights rights, PdId pd, std::uint8_t key,
                            std::uint64_t base = 0, bool mapped = true) {
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto stag =
      table.register_region({.pd = pd,
                             .rights = rights,
                             .base = base != 0 ? base : address,
                             .size = memory.size(),
                             .key = key,
                             .memory = {.space = {}, .address = address, .direct = mapped ? memory.data() : nullptr}});
  RNIC_ASSERT(stag.has_value());
  return *stag;
}

inline std::byte octet_at(std::size_t i, std::uint32_t seed) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 17 + seed * 29) & 0xFF);
}

// Memory with a region over all of it.
struct Region {
  // By the pattern of a seed; 0: zeros.
  Region(tpt::Table& table, std::size_t size, std::uint32_t fill, tpt::Rights rights, PdId pd, bool mapped = true)
      : memory(size) {
    for (std::size_t i = 0; fill != 0 && i < size; ++i) memory[i] = octet_at(i, fill);
    stag = register_memory(table, memory, rights, pd, 0x5a, 0, mapped);
    base = reinterpret_cast<std::uintptr_t>(memory.data());
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::uint64_t at(std::uint64_t offset) const { return base + offset; }

  std::vector<std::byte> memory;
  Stag stag;
  std::uint64_t base = 0;
};

}  // namespace rnic::test
