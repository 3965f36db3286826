// Spans of octets, and the only code that knows a byte order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/assert.hpp"

namespace rnic {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

template <typename T>
constexpr T swap_bytes(T value) {
  static_assert(std::is_unsigned_v<T>);
  if constexpr (sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
}

template <typename T>
constexpr T to_big(T value) {
  return std::endian::native == std::endian::little ? swap_bytes(value) : value;
}
template <typename T>
constexpr T from_big(T value) {
  return to_big(value);
}

// The big-endian integer at `offset`. The caller has checked that it is there.
template <typename T>
constexpr T load_be(Bytes bytes, std::size_t offset) {
  RNIC_ASSERT(offset + sizeof(T) <= bytes.size());
  if (std::is_constant_evaluated()) {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value =
          static_cast<T>((static_cast<std::uint64_t>(value) << 8) | std::to_integer<std::uint64_t>(bytes[offset + i]));
    return value;
  }
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return from_big(value);
}

template <typename T>
constexpr void store_be(MutableBytes bytes, std::size_t offset, T value) {
  RNIC_ASSERT(offset + sizeof(T) <= bytes.size());
  if (std::is_constant_evaluated()) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes[offset + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * (sizeof(T) - 1 - i)));
    return;
  }
  const T big = to_big(value);
  std::memcpy(bytes.data() + offset, &big, sizeof big);
}

inline Bytes as_bytes(const void* data, std::size_t size) { return {static_cast<const std::byte*>(data), size}; }
inline MutableBytes as_mutable_bytes(void* data, std::size_t size) { return {static_cast<std::byte*>(data), size}; }

}  // namespace rnic
