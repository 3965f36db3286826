#include "mpa/packer.hpp"

#include <cstring>

namespace rnic::mpa {

std::uint32_t Packer::ulpdu_that_fits(std::uint32_t room_bytes) const {
  // An FPDU is a multiple of 4, and so is all of it but ULPDU_Length and ULPDU together with pad:
  // the largest that fits has no pad.
  constexpr std::uint32_t kLeast = 2;
  const std::uint32_t room = room_bytes & ~3u;
  const std::uint32_t overhead = static_cast<std::uint32_t>(wire::kFpduHeaderSize + wire::kCrcSize);
  const std::uint32_t markers_at_most =
      markers_ == Markers::none ? 0 : wire::kMarkerSize * (room / wire::kMarkerSpacing + 1);
  std::uint32_t size = kLeast;
  if (room > overhead + markers_at_most + kLeast) size = room - overhead - markers_at_most;
  size = std::min(size, wire::kUlpduSizeMax);
  if (octets_for(size) > room) return 0;
  while (size + 4 <= wire::kUlpduSizeMax && octets_for(size + 4) <= room) size += 4;
  // 64768 itself is not of the form 4n + 2, and has pad.
  if (octets_for(wire::kUlpduSizeMax) <= room) return wire::kUlpduSizeMax;
  return size;
}

std::uint32_t Packer::begin_marked(MutableBytes room, Bytes header, std::uint32_t payload_size, PieceList& payload) {
  const auto ulpdu_size = static_cast<std::uint32_t>(header.size()) + payload_size;
  const MarkedFpdu fpdu = marked_fpdu(position_, ulpdu_size);
  RNIC_ASSERT(ulpdu_size != 0 && ulpdu_size <= wire::kUlpduSizeMax && fpdu.octets <= room.size());

  const std::uint32_t first_marker = to_next_marker(position_);
  for (std::uint32_t i = 0; i < fpdu.marker_count; ++i) {
    const std::uint32_t offset = first_marker + i * wire::kMarkerSpacing;
    wire::emit_marker(fpdu_pointer(offset, fpdu.header_at), room.subspan(offset));
  }
  store_be(room, fpdu.header_at, static_cast<std::uint16_t>(ulpdu_size));

  // The next piece of room, at most `size`, up to the next marker.
  std::uint32_t at = fpdu.header_at + static_cast<std::uint32_t>(wire::kFpduHeaderSize);
  const auto piece = [&](std::size_t size) {
    if (to_next_marker(position_ + at) == 0) at += wire::kMarkerSize;
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(size, to_next_marker(position_ + at)));
    const MutableBytes here = room.subspan(at, n);
    at += n;
    return here;
  };
  while (!header.empty()) {
    const MutableBytes into = piece(header.size());
    std::memcpy(into.data(), header.data(), into.size());
    header = header.subspan(into.size());
  }
  payload.count = 0;
  while (payload_size != 0) {
    const MutableBytes into = piece(payload_size);
    payload.pieces[payload.count++] = into;
    payload_size -= static_cast<std::uint32_t>(into.size());
  }
  // No marker cuts the pad: both end at multiples of 4. One may stand between it and the CRC.
  std::memset(room.data() + at, 0, wire::fpdu_pad(ulpdu_size));
  std::memset(room.data() + fpdu.octets - wire::kCrcSize, 0, wire::kCrcSize);
  position_ += fpdu.octets;
  return fpdu.octets;
}

}  // namespace rnic::mpa
