// What reading FPDUs has in common, in order (framer.hpp) and beyond a gap (run_reader.hpp): each
// function is given a Cursor at an FPDU's first octet and knows that all of the FPDU is there.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "mpa/cursor.hpp"
#include "mpa/markers.hpp"
#include "wire/crc32c.hpp"
#include "wire/mpa.hpp"

namespace rnic::mpa {

// Copies out.size() octets of the stream, which are there, and goes past them.
inline void read(Cursor& at, MutableBytes out) {
  while (!out.empty()) {
    const Bytes here = at.here();
    const std::size_t n = std::min(here.size(), out.size());
    RNIC_ASSERT(n != 0);
    std::memcpy(out.data(), here.data(), n);
    at.advance(n);
    out = out.subspan(n);
  }
}

// Of `covered` octets, markers and pad among them, and the CRC behind them (W-MPA-67).
inline bool crc_is_good(Cursor at, std::size_t covered) {
  wire::Crc32c crc;
  while (covered != 0) {
    const Bytes here = at.here();
    const std::size_t n = std::min(here.size(), covered);
    RNIC_ASSERT(n != 0);
    crc.add(here.first(n));
    at.advance(n);
    covered -= n;
  }
  std::byte field[wire::kCrcSize];
  read(at, field);
  return wire::load_crc(field, 0) == crc.value();
}

// Every marker is compared with what the length chain says, in ordered data too (W-MPA-66).
inline bool markers_agree(Cursor at, std::uint64_t position, const MarkedFpdu& fpdu) {
  std::uint32_t offset = to_next_marker(position);
  at.advance(offset);
  for (std::uint32_t i = 0; i < fpdu.marker_count; ++i) {
    std::byte marker[wire::kMarkerSize];
    read(at, marker);
    if (wire::parse_marker(marker) != (fpdu_pointer(offset, fpdu.header_at) & 0xFFFC)) return false;
    at.advance(wire::kMarkerSpacing - wire::kMarkerSize);
    offset += wire::kMarkerSpacing;
  }
  return true;
}

// Calls take(span) for each piece of the ULPDU, in order.
template <typename Take>
void for_each_piece(Cursor at, std::uint64_t position, const MarkedFpdu& fpdu, std::uint32_t ulpdu_size, Take take) {
  const std::uint32_t before = fpdu.header_at + static_cast<std::uint32_t>(wire::kFpduHeaderSize);
  at.advance(before);
  position += before;
  while (ulpdu_size != 0) {
    std::size_t n = ulpdu_size;
    if (fpdu.marker_count != 0) {
      if (to_next_marker(position) == 0) {
        at.advance(wire::kMarkerSize);
        position += wire::kMarkerSize;
      }
      n = std::min<std::size_t>(n, to_next_marker(position));
    }
    const Bytes here = at.here();
    n = std::min(n, here.size());
    RNIC_ASSERT(n != 0);
    take(here.first(n));
    at.advance(n);
    position += n;
    ulpdu_size -= static_cast<std::uint32_t>(n);
  }
}

}  // namespace rnic::mpa
