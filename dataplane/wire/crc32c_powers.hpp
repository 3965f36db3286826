// Arithmetic modulo the Castagnoli polynomial, bits reflected: the highest power of x is the lowest bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rnic::wire::detail {

inline constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? kReflectedPolynomial : 0);
}

// x^n.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t value = 0x80000000;
  for (std::size_t i = 0; i < n; ++i) value = times_x(value);
  return value;
}

}  // namespace rnic::wire::detail
