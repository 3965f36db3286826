// Numbers that name things. Different things are different types; none converts to another.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace rnic {

// Steering tag: upper 24 bits an index that the RNIC chose, lower 8 a key that the consumer chose
// (V-STAG-01). Also lkey and rkey.
struct Stag {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const Stag&) const = default;
  constexpr std::uint32_t index() const { return value >> 8; }
  constexpr std::uint8_t key() const { return static_cast<std::uint8_t>(value); }
};

struct PdId {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const PdId&) const = default;
};

// 24 bits, never 0; unique on a device while the QP lives.
struct QpNumber {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const QpNumber&) const = default;
};

// An address space of an application that memory is reached in.
struct SpaceId {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const SpaceId&) const = default;
};

}  // namespace rnic

template <>
struct std::hash<rnic::QpNumber> {
  std::size_t operator()(rnic::QpNumber n) const noexcept { return n.value; }
};
