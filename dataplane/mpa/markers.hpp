// Where markers lie (RFC 5044 s4.3; the arithmetic of wire.md s1.4).
//
// Positions are octets since the direction's first FPDU octet, where the first marker is. 64 bits:
// they do not wrap as the TCP sequence numbers below them do.
#pragma once

#include <cstdint>

#include "wire/mpa.hpp"

namespace rnic::mpa {

// How one FPDU lies in a stream with markers.
struct MarkedFpdu {
  std::uint32_t header_at = 0;  // of ULPDU_Length, from the FPDU's first octet: 4 behind a marker
  std::uint32_t marker_count = 0;
  std::uint32_t octets = 0;  // all of it, with markers, pad and CRC

  constexpr bool operator==(const MarkedFpdu&) const = default;
};

// Octets from `position` to the next marker; 0 when one is due there.
constexpr std::uint32_t to_next_marker(std::uint64_t position) {
  return static_cast<std::uint32_t>(-position & (wire::kMarkerSpacing - 1));
}

constexpr MarkedFpdu marked_fpdu(std::uint64_t position, std::uint32_t ulpdu_size) {
  constexpr std::uint32_t kBetween = wire::kMarkerSpacing - wire::kMarkerSize;
  const std::uint32_t covered = wire::fpdu_covered(ulpdu_size);
  const std::uint32_t before = to_next_marker(position);
  MarkedFpdu fpdu;
  if (before == 0) {
    fpdu.header_at = wire::kMarkerSize;
    fpdu.marker_count = 1 + covered / kBetween;
  } else {
    // A marker right behind the pad is still this FPDU's (W-MPA-64): hence <=, not <.
    fpdu.marker_count = before <= covered ? 1 + (covered - before) / kBetween : 0;
  }
  fpdu.octets = covered + wire::kMarkerSize * fpdu.marker_count + static_cast<std::uint32_t>(wire::kCrcSize);
  return fpdu;
}

// FPDUPTR of a marker `offset` octets from the FPDU's first.
constexpr std::uint16_t fpdu_pointer(std::uint32_t offset, std::uint32_t header_at) {
  return offset < header_at ? std::uint16_t{0} : static_cast<std::uint16_t>(offset - header_at);
}

// wire.md s1.4, worked examples 2 to 7.
static_assert(marked_fpdu(0, 42) == MarkedFpdu{4, 1, 52});
static_assert(marked_fpdu(492, 42) == MarkedFpdu{0, 1, 52});
static_assert(marked_fpdu(0, 1018) == MarkedFpdu{4, 3, 1036});
static_assert(marked_fpdu(1036, 714) == MarkedFpdu{0, 1, 724});
static_assert(marked_fpdu(0, 506) == MarkedFpdu{4, 2, 520});
static_assert(marked_fpdu(0, 502) == MarkedFpdu{4, 1, 512});
static_assert(marked_fpdu(0, 1442) == MarkedFpdu{4, 3, 1460});

}  // namespace rnic::mpa
