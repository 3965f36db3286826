// A point in the TCP sequence space (RFC 9293 s3.4). There is no operator<: order exists only
// between points less than 2^31 apart, and the names say so.
#pragma once

#include <cstdint>

namespace rnic::tcp {

struct Seq {
  std::uint32_t value = 0;

  constexpr bool operator==(const Seq&) const = default;
  friend constexpr Seq operator+(Seq s, std::uint32_t n) { return {s.value + n}; }
  friend constexpr Seq operator-(Seq s, std::uint32_t n) { return {s.value - n}; }
  constexpr std::uint32_t since(Seq earlier) const { return value - earlier.value; }
  constexpr bool before(Seq other) const { return static_cast<std::int32_t>(value - other.value) < 0; }
  constexpr bool after(Seq other) const { return other.before(*this); }
};
static_assert(Seq{0xFFFFFFFF}.before(Seq{0}), "order survives the wrap");

}  // namespace rnic::tcp
