// Frames that are longer than a memif slot, in pieces, each in a frame of its own. DPDK's memif driver
// chains slots, but leaves marks of older chains behind in them, and its sizes are 16 bits; so it is
// given frames of one slot only, and two rnicd that have agreed on long frames (port/wake_channel)
// cut and join them here.
//
//   octet 0   destination and source of the frame
//        12   0x88b6 (IEEE 802, for local experiments)
//        14   number of the frame
//        18   octets of the whole frame
//        22   where this piece begins in it
//        26   the piece
//
// Pieces of a frame follow one another, from the first octet to the last; the ring loses none and keeps
// their order. A frame that is not finished when another begins is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "base/buffer.hpp"
#include "base/bytes.hpp"
#include "wire/ethernet.hpp"

namespace rnic::port {

struct PieceHeader {
  static constexpr std::size_t kSize = 26;
  static constexpr std::uint16_t kType = 0x88B6;

  std::uint32_t number = 0;
  std::uint32_t total = 0;
  std::uint32_t at = 0;
};

inline bool is_piece(Bytes frame) {
  return frame.size() > PieceHeader::kSize && load_be<std::uint16_t>(frame, 12) == PieceHeader::kType;
}
inline PieceHeader parse_piece(Bytes frame) {
  return {load_be<std::uint32_t>(frame, 14), load_be<std::uint32_t>(frame, 18), load_be<std::uint32_t>(frame, 22)};
}

// The next piece of a frame from octet `header.at` on, of as many octets as fit: writes it, and returns how
// many octets of the frame it holds. `out` has more room than a header.
inline std::uint32_t write_piece(Bytes frame, const PieceHeader& header, MutableBytes out) {
  RNIC_ASSERT(frame.size() >= wire::EthernetHeader::kSize && out.size() > PieceHeader::kSize &&
              header.at < frame.size());
  std::memcpy(out.data(), frame.data(), 12);
  store_be(out, 12, PieceHeader::kType);
  store_be(out, 14, header.number);
  store_be(out, 18, header.total);
  store_be(out, 22, header.at);
  const std::size_t size = std::min(frame.size() - header.at, out.size() - PieceHeader::kSize);
  std::memcpy(out.data() + PieceHeader::kSize, frame.data() + header.at, size);
  return static_cast<std::uint32_t>(size);
}

// Owned by the worker that receives. Nothing that a piece says is trusted.
class FrameReassembler {
 public:
  // The frame, when `piece` was its last; for a buffer it asks `pool`.
  BufferRef take(Bytes piece, BufferPool& pool) {
    const PieceHeader header = parse_piece(piece);
    const Bytes octets = piece.subspan(PieceHeader::kSize);
    if (header.at == 0) {
      clear();
      number_ = header.number;
      total_ = header.total;
      if (total_ <= pool.room_bytes()) frame_ = BufferRef::take(pool, total_);
      lost_ += frame_ ? 0 : 1;
    }
    if (!frame_) return {};  // there was no buffer for it, or its beginning is missing
    if (header.number != number_ || header.total != total_ || header.at != frame_->length ||
        octets.size() > total_ - frame_->length) {
      clear();
      return {};
    }
    std::memcpy(frame_->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
    return frame_->length == total_ ? std::exchange(frame_, BufferRef{}) : BufferRef{};
  }
  // The rest of what was begun does not come.
  void clear() {
    lost_ += frame_ ? 1 : 0;
    frame_.reset();
  }
  std::uint64_t lost() const { return lost_; }

 private:
  BufferRef frame_;
  std::uint32_t number_ = 0;
  std::uint32_t total_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace rnic::port
