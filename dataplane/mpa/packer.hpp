// From ULPDUs to FPDUs in a segment (RFC 5044 s4): where length, markers, pad and CRC go, and where
// the payload is to be gathered.
//
// Two steps, because the payload comes in between: begin() writes all but payload and CRC and says
// where the payload goes; when it is there, seal() writes the CRC.
//
// Pure. Owned by one worker.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "mpa/framer.hpp"
#include "mpa/markers.hpp"
#include "wire/mpa.hpp"

namespace rnic::mpa {

inline constexpr std::uint32_t kMulpduMin = 128;

// The largest ULPDU for an EMSS (W-MPA-57, -58). Below an EMSS of 136 (with markers 140) the FPDU
// is larger than a segment, and alignment is given up.
constexpr std::uint32_t mulpdu(std::uint32_t emss_bytes, Markers markers) {
  const std::uint32_t marked =
      markers == Markers::inserted
          ? wire::kMarkerSize * ((emss_bytes + wire::kMarkerSpacing - 1) / wire::kMarkerSpacing)
          : 0;
  const std::uint32_t overhead = 6 + marked + emss_bytes % 4;
  const std::uint32_t fits = emss_bytes > overhead ? emss_bytes - overhead : 0;
  return std::clamp(fits, kMulpduMin, wire::kUlpduSizeMax);
}
static_assert(mulpdu(1460, Markers::none) == 1454 && mulpdu(1460, Markers::inserted) == 1442);

// The payload of one FPDU, cut by markers: one piece without them.
struct PieceList {
  static constexpr std::size_t kPiecesMax = wire::kUlpduSizeMax / (wire::kMarkerSpacing - wire::kMarkerSize) + 2;

  std::array<MutableBytes, kPiecesMax> pieces;
  std::uint32_t count = 0;
};

class Packer {
 public:
  // The next FPDU is the first after the direction's startup frame (W-MPA-25).
  Packer(Crc crc, Markers markers) : crc_(crc), markers_(markers) {}

  // Octets of the stream that an FPDU with such a ULPDU takes if it is the next.
  std::uint32_t octets_for(std::uint32_t ulpdu_size) const {
    return markers_ == Markers::none ? wire::fpdu_size(ulpdu_size) : marked_fpdu(position_, ulpdu_size).octets;
  }
  // The largest ULPDU whose FPDU, if it is the next, fits in `room_bytes`; 0 when none does.
  std::uint32_t ulpdu_that_fits(std::uint32_t room_bytes) const;

  // The next FPDU, in the first octets of `room`, which has octets_for(header.size() +
  // payload_size): writes ULPDU_Length, markers, `header` (DDP's, and what else of the ULPDU is
  // known), and pad; gives the pieces of `room` that the payload goes to, in order; returns the
  // FPDU's octets. The ULPDU is 1..64768 octets (W-MPA-54).
  std::uint32_t begin(MutableBytes room, Bytes header, std::uint32_t payload_size, PieceList& payload) {
    if (markers_ == Markers::inserted) return begin_marked(room, header, payload_size, payload);
    const auto ulpdu_size = static_cast<std::uint32_t>(header.size()) + payload_size;
    const std::uint32_t octets = wire::fpdu_size(ulpdu_size);
    RNIC_ASSERT(ulpdu_size != 0 && ulpdu_size <= wire::kUlpduSizeMax && octets <= room.size());
    store_be(room, 0, static_cast<std::uint16_t>(ulpdu_size));
    std::memcpy(room.data() + wire::kFpduHeaderSize, header.data(), header.size());
    // Pad and CRC, which are the last 4..7 octets: seal() overwrites the CRC, with CRC off it stays
    // 0 (W-MPA-53).
    const std::size_t end_of_ulpdu = wire::kFpduHeaderSize + ulpdu_size;
    std::memset(room.data() + end_of_ulpdu, 0, octets - end_of_ulpdu);
    payload.pieces[0] = room.subspan(wire::kFpduHeaderSize + header.size(), payload_size);
    payload.count = payload_size != 0 ? 1 : 0;
    position_ += octets;
    return octets;
  }

  // Its payload is there: the CRC. `fpdu` is what begin() filled, all of it.
  void seal(MutableBytes fpdu) const {
    if (crc_ == Crc::off) return;
    const std::size_t covered = fpdu.size() - wire::kCrcSize;
    wire::store_crc(fpdu, covered, wire::crc32c(fpdu.first(covered)));
  }

  // For who can take the CRC of a payload on its way. False: seal() is to do it, as there is none to take, the payload
  // is in several pieces, or is short.
  bool sums_payload(std::uint32_t payload_size) const {
    return crc_ == Crc::on && markers_ == Markers::none && payload_size >= kSummedMin;
  }
  // Of what is before the payload `into`, the only piece of `fpdu`: what the payload is added to.
  static wire::Crc32c sum_before(MutableBytes fpdu, MutableBytes into) {
    wire::Crc32c crc;
    crc.add(fpdu.first(static_cast<std::size_t>(into.data() - fpdu.data())));
    return crc;
  }
  // As seal(), with `crc` of all up to the end of the payload `into`.
  static void seal(MutableBytes fpdu, MutableBytes into, wire::Crc32c crc) {
    const auto end = static_cast<std::size_t>(into.data() - fpdu.data()) + into.size();
    const std::size_t covered = fpdu.size() - wire::kCrcSize;
    crc.add(fpdu.subspan(end, covered - end));
    wire::store_crc(fpdu, covered, crc.value());
  }

  // The FPDU begun last will not be sent: its place in the stream is free again.
  void take_back(std::uint32_t octets) {
    RNIC_ASSERT(octets <= position_);
    position_ -= octets;
  }

  // Octets of the FPDU stream before the next FPDU.
  std::uint64_t position() const { return position_; }

 private:
  static constexpr std::uint32_t kSummedMin = 512;

  std::uint32_t begin_marked(MutableBytes room, Bytes header, std::uint32_t payload_size, PieceList& payload);

  Crc crc_;
  Markers markers_;
  std::uint64_t position_ = 0;
};

}  // namespace rnic::mpa
