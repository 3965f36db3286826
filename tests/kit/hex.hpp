// Octets written as hexadecimal digits; blanks are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace rnic::test {

inline std::vector<std::byte> hex(std::string_view digits) {
  std::vector<std::byte> octets;
  int high = -1;
  for (const char c : digits) {
    if (c == ' ' || c == '\n') continue;
    const int value = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    RNIC_ASSERT(value >= 0 && value < 16);
    if (high < 0) {
      high = value;
    } else {
      octets.push_back(static_cast<std::byte>(high * 16 + value));
      high = -1;
    }
  }
  RNIC_ASSERT(high < 0);
  return octets;
}

inline std::vector<std::byte> text(std::string_view characters) {
  std::vector<std::byte> octets;
  for (const char c : characters) octets.push_back(static_cast<std::byte>(c));
  return octets;
}

inline std::vector<std::byte> copy_of(Bytes octets) { return {octets.begin(), octets.end()}; }

inline void append(std::vector<std::byte>& to, Bytes octets) { to.insert(to.end(), octets.begin(), octets.end()); }

// n octets that differ from their neighbours.
inline std::vector<std::byte> pattern(std::size_t n, unsigned seed = 1) {
  std::vector<std::byte> octets(n);
  for (std::size_t i = 0; i < n; ++i) octets[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return octets;
}

}  // namespace rnic::test
