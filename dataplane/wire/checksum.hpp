// The Internet checksum (RFC 1071) and the pseudo-headers that TCP, UDP and ICMPv6 put in front
// (RFC 9293 s3.1, RFC 8200 s8.1).
//
// Sums are carried unfolded in 64 bits and in the machine's own byte order: the one's complement
// sum does not care, and the last step swaps once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "wire/address.hpp"

namespace rnic::wire {

namespace protocol {
inline constexpr std::uint8_t kIcmp = 1;
inline constexpr std::uint8_t kIgmp = 2;
inline constexpr std::uint8_t kTcp = 6;
inline constexpr std::uint8_t kUdp = 17;
inline constexpr std::uint8_t kIcmpV6 = 58;
}  // namespace protocol

// A part of a checksum. Parts are joined by +; every part but the last has an even size.
struct PartialSum {
  std::uint64_t value = 0;
  friend constexpr PartialSum operator+(PartialSum a, PartialSum b) {
    const std::uint64_t sum = a.value + b.value;
    return {sum + (sum < a.value ? 1 : 0)};  // the carry comes back in (RFC 1071 s1)
  }
};

namespace detail {
std::uint64_t sum_long(const std::byte* data, std::size_t size);
}

inline PartialSum sum_of(Bytes bytes) {
  const std::byte* at = bytes.data();
  std::size_t size = bytes.size();
  if (size >= 128) return {detail::sum_long(at, size)};
  std::uint64_t sum = 0;
  for (; size >= 4; at += 4, size -= 4) {
    std::uint32_t word;
    std::memcpy(&word, at, 4);
    sum += word;
  }
  if (size > 0) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, size);
    sum += word;
  }
  return {sum};
}

// What is stored, by store_be, in the checksum field: the complement of the folded sum. Over
// octets that hold their own right checksum it is 0.
constexpr std::uint16_t checksum_of(PartialSum part) {
  std::uint64_t sum = part.value;
  sum = (sum & 0xFFFFFFFF) + (sum >> 32);
  sum = (sum & 0xFFFFFFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return to_big(static_cast<std::uint16_t>(~sum));
}
inline std::uint16_t checksum_of(Bytes bytes) { return checksum_of(sum_of(bytes)); }

// Both addresses are of the version of the first.
PartialSum pseudo_header(const IpAddress& source, const IpAddress& destination, std::uint8_t protocol,
                         std::uint32_t length);

// Of a whole TCP segment (or ICMPv6 message) whose checksum field holds 0: what to store there.
// Of one that holds its checksum: 0 when it is right.
inline std::uint16_t transport_checksum(const IpAddress& source, const IpAddress& destination, std::uint8_t protocol,
                                        Bytes segment) {
  return checksum_of(pseudo_header(source, destination, protocol, static_cast<std::uint32_t>(segment.size())) +
                     sum_of(segment));
}

}  // namespace rnic::wire
