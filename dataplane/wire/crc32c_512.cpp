// CRC32c in registers of 512 bits: Ice Lake, Zen 4 and later.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "wire/crc32c_kinds.hpp"
#include "wire/crc32c_powers.hpp"
#include "wire/crc32c_words.hpp"

// g++ 12 takes the undefined register with which some of its own intrinsics begin for a mistake (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq,pclmul,sse4.2"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq,pclmul,sse4.2")
#endif

namespace rnic::wire::detail {
namespace {

#include "wire/crc32c_fold.inc"

struct Lanes {
  static constexpr std::size_t kOctets = 64, kSums = 4;
  __m512i value;

  static Lanes load(const std::byte* at) { return {_mm512_loadu_si512(at)}; }
  static Lanes of(std::uint32_t number) {
    return {_mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(number)))};
  }
  static Lanes folder(const Fold& fold) {
    return {_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(&fold)))};
  }
};

Lanes operator^(Lanes a, Lanes b) { return {_mm512_xor_si512(a.value, b.value)}; }

Lanes folded_onto(Lanes lanes, Lanes folder, Lanes onto) {
  constexpr int kSumOfThree = 0x96;
  return {_mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes.value, folder.value, 0x00),
                                    _mm512_clmulepi64_epi128(lanes.value, folder.value, 0x11), onto.value,
                                    kSumOfThree)};
}

__m128i last_128(Lanes lanes) {
  // The last quarter is multiplied by nothing, and added as it is.
  alignas(64) static constexpr Fold kDistances[4] = {fold_by(384), fold_by(256), fold_by(128), {0, 0}};
  const __m512i sum = folded_onto(lanes, {_mm512_load_si512(kDistances)}, {_mm512_setzero_si512()}).value;
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
  return _mm_xor_si128(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)),
                       _mm512_extracti32x4_epi32(lanes.value, 3));
}

}  // namespace

std::uint32_t crc32c_512(std::uint32_t running, Bytes bytes) {
  const std::byte* at = bytes.data();
  std::size_t size = bytes.size();
  if (size < Lanes::kOctets) return crc32c_by_words(running, at, size);
  const auto take = [&](std::size_t octets) { at += octets, size -= octets; };
  Lanes sum;
  if (size >= Sums<Lanes>::kOctets) {
    Sums<Lanes> sums(running, at);
    const auto stride = Lanes::folder(Sums<Lanes>::kStride);
    for (take(sums.kOctets); size >= sums.kOctets; take(sums.kOctets)) sums.add(at, stride);
    sum = sums.joined();
  } else {
    sum = Lanes::load(at) ^ Lanes::of(running);
    take(Lanes::kOctets);
  }
  static constexpr Fold kNext = fold_by(8 * Lanes::kOctets);
  const auto next = Lanes::folder(kNext);
  for (; size >= Lanes::kOctets; take(Lanes::kOctets)) sum = folded_onto(sum, next, Lanes::load(at));
  return crc32c_by_words(reduced(sum), at, size);
}

}  // namespace rnic::wire::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
