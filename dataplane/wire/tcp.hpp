// The TCP header with the options we know: MSS, window scale and timestamps (RFC 9293 s3.2,
// RFC 7323), SACK (RFC 2018).
//
// The checksum is not part of this: it needs the addresses. emit() leaves 0, and whoever knows
// them stores transport_checksum() at TcpHeader::kChecksumOffset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"

namespace rnic::wire {

namespace tcp_flags {
inline constexpr std::uint8_t kFin = 0x01;
inline constexpr std::uint8_t kSyn = 0x02;
inline constexpr std::uint8_t kRst = 0x04;
inline constexpr std::uint8_t kPsh = 0x08;
inline constexpr std::uint8_t kAck = 0x10;
inline constexpr std::uint8_t kUrg = 0x20;
inline constexpr std::uint8_t kEce = 0x40;
inline constexpr std::uint8_t kCwr = 0x80;
}  // namespace tcp_flags

struct TcpTimestamps {
  std::uint32_t value = 0;
  std::uint32_t echo = 0;
  constexpr bool operator==(const TcpTimestamps&) const = default;
};

// Octets from `first` up to, not including, `end`.
struct SackBlock {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  constexpr bool operator==(const SackBlock&) const = default;
};

struct TcpHeader {
  static constexpr std::size_t kSize = 20;  // without options
  static constexpr std::size_t kSizeMax = 60;
  static constexpr std::size_t kChecksumOffset = 16;
  static constexpr std::size_t kSackBlocksMax = 4;

  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint32_t sequence = 0;
  std::uint32_t acknowledgement = 0;
  std::uint8_t flags = 0;
  std::uint16_t window = 0;  // as on the wire, not scaled
  std::uint16_t urgent = 0;

  bool sack_permitted = false;
  std::uint8_t sack_count = 0;
  std::optional<std::uint16_t> mss{};
  std::optional<std::uint8_t> window_scale{};
  std::optional<TcpTimestamps> timestamps{};
  std::array<SackBlock, kSackBlocksMax> sack{};

  constexpr bool operator==(const TcpHeader&) const = default;
  constexpr bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
};

// Octets of the header with its options, a multiple of 4. With timestamps at most 3 SACK blocks
// fit; more are left out.
constexpr std::size_t header_size(const TcpHeader& header);

struct ParsedTcp {
  TcpHeader header;
  std::size_t data_offset = 0;  // where the payload begins
};

// Nothing when the header is cut off or its data offset is impossible. An option of a length that
// cannot be ends the reading of options, not the segment (RFC 9293 s3.1: MUST-7).
std::optional<ParsedTcp> parse_tcp(Bytes segment);

// Writes header_size(header) octets, checksum 0; returns how many.
std::size_t emit(const TcpHeader& header, MutableBytes out);

// The common header, no options: exactly 20 octets.
inline void emit_plain(const TcpHeader& header, MutableBytes out) {
  store_be(out, 0, header.source_port);
  store_be(out, 2, header.destination_port);
  store_be(out, 4, header.sequence);
  store_be(out, 8, header.acknowledgement);
  store_be<std::uint8_t>(out, 12, 5 << 4);
  store_be(out, 13, header.flags);
  store_be(out, 14, header.window);
  store_be<std::uint16_t>(out, 16, 0);
  store_be(out, 18, header.urgent);
}

namespace detail {
constexpr std::size_t sack_blocks_that_fit(const TcpHeader& header) {
  const std::size_t most = header.timestamps ? 3 : 4;
  return header.sack_count < most ? header.sack_count : most;
}
}  // namespace detail

constexpr std::size_t header_size(const TcpHeader& header) {
  std::size_t size = TcpHeader::kSize;
  if (header.mss) size += 4;
  if (header.window_scale) size += 4;
  if (header.timestamps)
    size += 12;  // "SACK permitted" takes the place of the two NOPs
  else if (header.sack_permitted)
    size += 4;
  if (const auto blocks = detail::sack_blocks_that_fit(header); blocks > 0) size += 4 + 8 * blocks;
  return size;
}

}  // namespace rnic::wire
