// CRC32c in registers of 128 bits beside the CRC instruction: every x86-64 since 2010.
#if defined(__x86_64__)
#include <smmintrin.h>
#include <wmmintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/crc32c_kinds.hpp"
#include "wire/crc32c_powers.hpp"
#include "wire/crc32c_words.hpp"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("pclmul,sse4.2"))), apply_to = function)
#else
#pragma GCC target("pclmul,sse4.2")
#endif

namespace rnic::wire::detail {
namespace {

#include "wire/crc32c_fold.inc"
#include "wire/crc32c_streams.inc"

struct Lanes {
  static constexpr std::size_t kOctets = 16, kSums = 8;
  __m128i value;

  static Lanes load(const std::byte* at) { return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))}; }
  static Lanes of(std::uint32_t number) { return {_mm_cvtsi32_si128(static_cast<int>(number))}; }
  static Lanes folder(const Fold& fold) { return {_mm_load_si128(reinterpret_cast<const __m128i*>(&fold))}; }
};

Lanes operator^(Lanes a, Lanes b) { return {_mm_xor_si128(a.value, b.value)}; }

Lanes folded_onto(Lanes lanes, Lanes folder, Lanes onto) {
  return Lanes{_mm_clmulepi64_si128(lanes.value, folder.value, 0x00)} ^
         Lanes { _mm_clmulepi64_si128(lanes.value, folder.value, 0x11) } ^ onto;
}

__m128i last_128(Lanes lanes) { return lanes.value; }

}  // namespace

std::uint32_t crc32c_128(std::uint32_t running, Bytes bytes) {
  return crc32c_by_both<Lanes>(running, bytes.data(), bytes.size());
}

}  // namespace rnic::wire::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
