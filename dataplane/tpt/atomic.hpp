// What the two atomic operations make of a word: RFC 7306 s5.1.
#pragma once

#include <cstdint>

namespace rnic::tpt {

// A set bit of `mask` ends a field: the carry out of it is dropped. Without any, a sum mod 2^64.
constexpr std::uint64_t fetch_add_result(std::uint64_t original, std::uint64_t add, std::uint64_t mask) {
  // Fields add without their top bits, where no carry can leave; these come in by themselves.
  return ((original & ~mask) + (add & ~mask)) ^ ((original ^ add) & mask);
}

constexpr bool compares_equal(std::uint64_t original, std::uint64_t compare, std::uint64_t mask) {
  return ((original ^ compare) & mask) == 0;
}
constexpr std::uint64_t swap_result(std::uint64_t original, std::uint64_t swap, std::uint64_t mask) {
  return (original & ~mask) | (swap & mask);
}

static_assert(fetch_add_result(~std::uint64_t{0}, 2, 0) == 1);
static_assert(fetch_add_result(0xFFFF'FFFF, 1, 0x8000'0000) == 0);  // the lower half by itself
static_assert(fetch_add_result(0x1'FFFF'FFFF, 0x1'0000'0001, 0x8000'0000) == 0x2'0000'0000);
static_assert(fetch_add_result(0b1011, 0b0110, ~std::uint64_t{0}) == 0b1101);  // each bit by itself
static_assert(fetch_add_result(0x7F, 0x01, 0x80) == 0x80 && fetch_add_result(0xFF, 0x01, 0x80) == 0);
static_assert(swap_result(0x1111, 0x2222, 0x0FF0) == 0x1221);

}  // namespace rnic::tpt
