// InfiniBand's MTUs (enum ibv_mtu): 1 is 256 octets, each further code twice as many, up to 5, which is 4096.
#pragma once

#include <cstdint>

namespace rnic::wire {

inline constexpr std::uint8_t kIbMtuCodeMax = 5;

constexpr std::uint32_t ib_mtu_octets(std::uint8_t code) { return std::uint32_t{128} << code; }

// The largest that so many octets hold; 0: none.
constexpr std::uint8_t ib_mtu_code_within(std::uint32_t octets) {
  std::uint8_t code = kIbMtuCodeMax;
  while (code != 0 && ib_mtu_octets(code) > octets) --code;
  return code;
}

}  // namespace rnic::wire
