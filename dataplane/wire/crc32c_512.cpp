// CRC32c in registers of 512 bits: Ice Lake, Zen 4 and later.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

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
  void store(std::byte* at) const { _mm512_storeu_si512(at, value); }
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

// What a CRC is taken of: octets where they lie, and octets that are copied on the way.
struct Lying {
  const std::byte* at;
  std::size_t size;

  Lanes operator()(std::size_t offset) const { return Lanes::load(at + offset); }
  void take(std::size_t octets) { at += octets, size -= octets; }
  const std::byte* rest() const { return at; }
};
struct Copied {
  const std::byte* at;
  std::size_t size;
  std::byte* into;

  Lanes operator()(std::size_t offset) const {
    const Lanes lanes = Lanes::load(at + offset);
    lanes.store(into + offset);
    return lanes;
  }
  void take(std::size_t octets) { at += octets, into += octets, size -= octets; }
  // Its owner may write there the whole time: what the CRC is of is what was copied.
  const std::byte* rest() const {
    std::memcpy(into, at, size);
    return into;
  }
};

template <class Octets>
std::uint32_t crc_of(std::uint32_t running, Octets octets) {
  if (octets.size < Lanes::kOctets) return crc32c_by_words(running, octets.rest(), octets.size);
  Lanes sum;
  if (octets.size >= Sums<Lanes>::kOctets) {
    Sums<Lanes> sums(running, octets);
    const auto stride = Lanes::folder(Sums<Lanes>::kStride);
    for (octets.take(sums.kOctets); octets.size >= sums.kOctets; octets.take(sums.kOctets)) sums.add(octets, stride);
    sum = sums.joined();
  } else {
    sum = octets(0) ^ Lanes::of(running);
    octets.take(Lanes::kOctets);
  }
  static constexpr Fold kNext = fold_by(8 * Lanes::kOctets);
  const auto next = Lanes::folder(kNext);
  for (; octets.size >= Lanes::kOctets; octets.take(Lanes::kOctets)) sum = folded_onto(sum, next, octets(0));
  return crc32c_by_words(reduced(sum), octets.rest(), octets.size);
}

}  // namespace

std::uint32_t crc32c_512(std::uint32_t running, Bytes bytes) {
  return crc_of(running, Lying{bytes.data(), bytes.size()});
}

std::uint32_t crc32c_512_copying(std::uint32_t running, Bytes from, std::byte* into) {
  return crc_of(running, Copied{from.data(), from.size(), into});
}

}  // namespace rnic::wire::detail

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
