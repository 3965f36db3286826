// CRC32c (RFC 3720 s12.1, used by RFC 5044 s4.4): Castagnoli, init all ones, final inversion.
//
// On the wire its least significant octet comes first (iSCSI digest order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "wire/crc32c_powers.hpp"
#include "wire/crc32c_words.hpp"

namespace rnic::wire {

inline constexpr std::size_t kCrcSize = 4;

namespace detail {
// By the best way that this processor has (`wire/crc32c_kinds.hpp`). `running` is not inverted, before or after.
std::uint32_t crc32c_update(std::uint32_t running, Bytes bytes);
std::uint32_t crc32c_copy(std::uint32_t running, Bytes from, std::byte* into);
}  // namespace detail

// In any number of pieces.
class Crc32c {
 public:
  constexpr void add(Bytes bytes) {
    if (std::is_constant_evaluated()) {
      for (const std::byte octet : bytes) {
        running_ ^= std::to_integer<std::uint32_t>(octet);
        for (int bit = 0; bit < 8; ++bit) running_ = detail::times_x(running_);
      }
      return;
    }
#if defined(__SSE4_2__)
    if (bytes.size() < kFew) {
      running_ = detail::crc32c_by_words(running_, bytes.data(), bytes.size());
      return;
    }
#endif
    running_ = detail::crc32c_update(running_, bytes);
  }
  // Octets that are copied to `into`, of the same size, on the way; as they are there, whoever writes to `from`.
  void add_copied(Bytes from, MutableBytes into) {
    RNIC_ASSERT(from.size() == into.size());
    running_ = detail::crc32c_copy(running_, from, into.data());
  }
  constexpr std::uint32_t value() const { return ~running_; }

 private:
  static constexpr std::size_t kFew = 128;  // octets: fewer are not worth a call
  std::uint32_t running_ = 0xFFFFFFFF;
};

constexpr std::uint32_t crc32c(Bytes bytes) {
  Crc32c crc;
  crc.add(bytes);
  return crc.value();
}

// Least significant octet first.
constexpr void store_crc(MutableBytes out, std::size_t offset, std::uint32_t crc) {
  store_be(out, offset, swap_bytes(crc));
}
constexpr std::uint32_t load_crc(Bytes bytes, std::size_t offset) {
  return swap_bytes(load_be<std::uint32_t>(bytes, offset));
}

}  // namespace rnic::wire
