#include "wire/crc32c.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/crc32c_kinds.hpp"

namespace rnic::wire {
namespace {

// The constant-evaluated path against a value from outside (RFC 3720 B.4: 32 octets of zeros).
constexpr std::array<std::byte, 32> kZeros{};
static_assert(crc32c(kZeros) == 0x8A9136AA);

#if defined(__x86_64__)
bool has_avx() { return __builtin_cpu_supports("avx") != 0; }
#endif

std::uint32_t by_isal(std::uint32_t running, Bytes bytes) {
  // ISA-L counts in an int and does not write through its pointer.
  auto* octets = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  running = crc32_iscsi(octets, static_cast<int>(bytes.size()), running);
#if defined(__x86_64__)
  // What crc32_iscsi does with a long piece leaves the upper halves of the vector registers dirty, and
  // every SSE instruction after that pays for it: 170 ns for the next few on a Sapphire Rapids, five
  // times the CRC of a segment itself.
  static const bool kHasAvx = has_avx();
  if (kHasAvx) asm volatile("vzeroupper" ::: "memory");
#endif
  return running;
}

const detail::CrcKind kKind = detail::best_crc_kind(detail::crc_kinds());

}  // namespace

namespace detail {

std::span<const CrcKind> crc_kinds() {
  static const auto kKinds = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool words = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    const bool wide = words && __builtin_cpu_supports("vpclmulqdq");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    return std::array{CrcKind{"vpclmulqdq, 512 bits", wide && avx512, crc32c_512, crc32c_512_copying},
                      CrcKind{"vpclmulqdq, 256 bits", wide && __builtin_cpu_supports("avx2"), crc32c_256},
                      CrcKind{"pclmulqdq, 128 bits", words, crc32c_128}, CrcKind{"ISA-L", true, by_isal}};
#else
    return std::array{CrcKind{"ISA-L", true, by_isal}};
#endif
  }();
  return kKinds;
}

// A wrong CRC would cost every connection, and not every kind can be tested on one machine.
const CrcKind& best_crc_kind(std::span<const CrcKind> kinds) {
  std::array<std::byte, 1500> octets;
  for (std::size_t i = 0; i < octets.size(); ++i) octets[i] = static_cast<std::byte>(i * i + 7 * i);
  const std::uint32_t right = by_isal(0xFFFFFFFF, octets);
  const auto agrees = [&](const CrcKind& kind) {
    if (!kind.runs_here || kind.update(0xFFFFFFFF, octets) != right) return false;
    std::array<std::byte, 1500> copied{};
    return kind.copy == nullptr || (kind.copy(0xFFFFFFFF, octets, copied.data()) == right && copied == octets);
  };
  return *std::ranges::find_if(kinds, agrees);
}

const CrcKind& crc_kind_in_use() { return kKind; }

std::uint32_t crc32c_update(std::uint32_t running, Bytes bytes) {
  while (bytes.size() > kCrcPieceMax) {
    running = kKind.update(running, bytes.first(kCrcPieceMax));
    bytes = bytes.subspan(kCrcPieceMax);
  }
  return kKind.update(running, bytes);
}

std::uint32_t crc32c_copy(std::uint32_t running, Bytes from, std::byte* into) {
  if (kKind.copy != nullptr && from.size() <= kCrcPieceMax) return kKind.copy(running, from, into);
  std::memcpy(into, from.data(), from.size());
  return crc32c_update(running, {into, from.size()});
}

}  // namespace detail
}  // namespace rnic::wire
