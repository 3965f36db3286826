// CRC32c by the processor's CRC instruction, eight octets at a time: the quickest for a few.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE4_2__)
#include <nmmintrin.h>

#include <cstring>

namespace rnic::wire::detail {

// `running` is not inverted, before or after.
inline std::uint32_t crc32c_by_words(std::uint32_t running, const std::byte* at, std::size_t size) {
  std::uint64_t wide = running;
  for (; size >= 8; size -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto crc = static_cast<std::uint32_t>(wide);
  if ((size & 4) != 0) {
    std::uint32_t word;
    std::memcpy(&word, at, 4);
    crc = _mm_crc32_u32(crc, word);
    at += 4;
  }
  if ((size & 2) != 0) {
    std::uint16_t word;
    std::memcpy(&word, at, 2);
    crc = _mm_crc32_u16(crc, word);
    at += 2;
  }
  if ((size & 1) != 0) crc = _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

}  // namespace rnic::wire::detail
#endif
