// Wide sums: 32-bit words added into 64-bit lanes, which cannot overflow below 2^34 octets.
#include "wire/checksum.hpp"

#include <cstring>

namespace rnic::wire {

namespace detail {
namespace {

typedef std::uint64_t Lanes __attribute__((vector_size(32)));

[[gnu::always_inline]] inline std::uint64_t sum_lanes(const std::byte* at, std::size_t size) {
  Lanes even{}, odd{}, even2{}, odd2{};
  for (; size >= 64; at += 64, size -= 64) {
    Lanes a, b;
    std::memcpy(&a, at, 32);
    std::memcpy(&b, at + 32, 32);
    even += a & 0xFFFFFFFFu;
    odd += a >> 32;
    even2 += b & 0xFFFFFFFFu;
    odd2 += b >> 32;
  }
  even += odd;
  even2 += odd2;
  even += even2;
  std::uint64_t sum = even[0] + even[1] + even[2] + even[3];
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
  return sum;
}

std::uint64_t sum_baseline(const std::byte* at, std::size_t size) { return sum_lanes(at, size); }

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::uint64_t sum_avx2(const std::byte* at, std::size_t size) { return sum_lanes(at, size); }
const bool kHasAvx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();
#endif

}  // namespace

std::uint64_t sum_long(const std::byte* data, std::size_t size) {
#if defined(__x86_64__)
  if (kHasAvx2) return sum_avx2(data, size);
#endif
  return sum_baseline(data, size);
}

}  // namespace detail

PartialSum pseudo_header(const IpAddress& source, const IpAddress& destination, std::uint8_t protocol,
                         std::uint32_t length) {
  // Address octets are summed where they lie. What a mapped address has in front adds 0xffff,
  // which is 0 to a one's complement sum, but only its four octets are IPv4's.
  const std::size_t skip = source.is_v4() ? 12 : 0;
  PartialSum sum = sum_of(as_bytes(source.octets().data() + skip, 16 - skip)) +
                   sum_of(as_bytes(destination.octets().data() + skip, 16 - skip));
  return sum + PartialSum{to_big(length)} + PartialSum{to_big(static_cast<std::uint32_t>(protocol))};
}

}  // namespace rnic::wire
