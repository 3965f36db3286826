// The ways to take a CRC32c, one for each kind of processor; `wire/crc32c.cpp` chooses at start. Only
// that file, and tests and benchmarks that compare them, need this one.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.hpp"

namespace rnic::wire::detail {

// `running` is not inverted, before or after (RFC 3720 s12.1 begins with all ones). At most
// `kCrcPieceMax` octets.
using CrcUpdate = std::uint32_t (*)(std::uint32_t running, Bytes bytes);
// The same of octets that it copies to `into`, as they are there.
using CrcCopy = std::uint32_t (*)(std::uint32_t running, Bytes from, std::byte* into);
inline constexpr std::size_t kCrcPieceMax = std::size_t{1} << 30;

struct CrcKind {
  const char* name;
  bool runs_here;  // this processor has the instructions
  CrcUpdate update;
  CrcCopy copy = nullptr;  // null: no quicker than a copy and then update()
};

// All that this build has, the fastest first; the last is ISA-L's and runs everywhere.
std::span<const CrcKind> crc_kinds();

// The first of `kinds` that runs here and agrees with ISA-L; the last is to be ISA-L's.
const CrcKind& best_crc_kind(std::span<const CrcKind> kinds);

// What `crc32c` uses.
const CrcKind& crc_kind_in_use();

#if defined(__x86_64__)
// Folding by carry-less multiplication (VPCLMULQDQ, PCLMULQDQ) in registers of that many bits; in the
// smaller ones beside three streams of the CRC instruction, where a copy on the way costs as much as one before.
std::uint32_t crc32c_512(std::uint32_t running, Bytes bytes);
std::uint32_t crc32c_512_copying(std::uint32_t running, Bytes from, std::byte* into);
std::uint32_t crc32c_256(std::uint32_t running, Bytes bytes);
std::uint32_t crc32c_128(std::uint32_t running, Bytes bytes);
#endif

}  // namespace rnic::wire::detail
