// The two bits of IP that tell of congestion (RFC 3168 s5): the low bits of IPv4's second octet and of
// IPv6's traffic class.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rnic::wire::ecn {

inline constexpr std::uint8_t kNotCapable = 0;  // not-ECT
inline constexpr std::uint8_t kCapable = 2;     // ECT(0)
inline constexpr std::uint8_t kCongestion = 3;  // CE

// Where they lie in the header's second octet.
inline constexpr unsigned kShiftV4 = 0, kShiftV6 = 4;

// Of the second octet of an IP header.
constexpr std::uint8_t of(std::byte second, unsigned shift) {
  return std::to_integer<std::uint8_t>(second >> shift & std::byte{3});
}

}  // namespace rnic::wire::ecn
