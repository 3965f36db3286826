// CRC32c in registers of 256 bits beside the CRC instruction: Zen 3, Alder Lake.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/crc32c_kinds.hpp"
#include "wire/crc32c_powers.hpp"
#include "wire/crc32c_words.hpp"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2"))), apply_to = function)
#else
#pragma GCC target("avx2,vpclmulqdq,pclmul,sse4.2")
#endif

namespace rnic::wire::detail {
namespace {

#include "wire/crc32c_fold.inc"
#include "wire/crc32c_streams.inc"

struct Lanes {
  static constexpr std::size_t kOctets = 32, kSums = 4;
  __m256i value;

  static Lanes load(const std::byte* at) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))}; }
  static Lanes of(std::uint32_t number) {
    return {_mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(number)))};
  }
  static Lanes folder(const Fold& fold) {
    return {_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(&fold)))};
  }
};

Lanes operator^(Lanes a, Lanes b) { return {_mm256_xor_si256(a.value, b.value)}; }

Lanes folded_onto(Lanes lanes, Lanes folder, Lanes onto) {
  return Lanes{_mm256_clmulepi64_epi128(lanes.value, folder.value, 0x00)} ^
         Lanes { _mm256_clmulepi64_epi128(lanes.value, folder.value, 0x11) } ^ onto;
}

__m128i last_128(Lanes lanes) {
  static constexpr Fold kHalf = fold_by(128);
  const __m128i folder = _mm_load_si128(reinterpret_cast<const __m128i*>(&kHalf));
  const __m128i first = _mm256_castsi256_si128(lanes.value);
  const __m128i sum =
      _mm_xor_si128(_mm_clmulepi64_si128(first, folder, 0x00), _mm_clmulepi64_si128(first, folder, 0x11));
  return _mm_xor_si128(sum, _mm256_extracti128_si256(lanes.value, 1));
}

}  // namespace

std::uint32_t crc32c_256(std::uint32_t running, Bytes bytes) {
  return crc32c_by_both<Lanes>(running, bytes.data(), bytes.size());
}

}  // namespace rnic::wire::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
