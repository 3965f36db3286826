// What was placed before its turn: payloads of segments that were found beyond a gap in the stream (RFC 5041 s5.3;
// W-TCP-09). They are noted here by the position that their carrier gives them, and looked up when they come in
// order; only then is the segment checked as all are, told and answered for.
//
// Memory ends up as if all had been placed in order: an early placement that lies under one that comes
// before it in the stream is done once more in its turn.
//
// Owned by one queue pair. Bounded.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "tpt/table.hpp"

namespace rnic::rdmap {

class Early {
 public:
  struct Placed {
    std::uint64_t position = 0;  // of the segment, as its carrier counts
    tpt::Access to;              // its octets that are placed: all but a message's last ones
    std::uint32_t moves = 0;     // on their way
    bool again = false;          // to be placed once more in its turn
    bool used = false;
  };
  bool full() const { return placed_count_ == kPlacedMax; }
  // There is room. Gives the number for on_moved().
  std::uint32_t add(std::uint64_t position, const tpt::Access& to) {
    std::uint32_t slot = 0;
    while (placed_[slot].used) ++slot;
    placed_[slot] = {.position = position, .to = to, .used = true};
    // Two that overlap: the one that comes later in the stream shall be seen in the end.
    if (placed_count_ != 0)
      for (Placed& other : placed_)
        if (other.used && &other != &placed_[slot] && overlap(other.to, to))
          (other.position > position ? other : placed_[slot]).again = true;
    ++placed_count_;
    return slot;
  }
  Placed& operator[](std::uint32_t slot) { return placed_[slot]; }
  Placed* find(std::uint64_t position) {
    if (placed_count_ == 0) return nullptr;
    for (Placed& placed : placed_)
      if (placed.used && placed.position == position) return &placed;
    return nullptr;
  }
  void drop(Placed& placed) {
    placed.used = false;
    --placed_count_;
  }
  // Something that comes before all of these is placed there, in its turn.
  void placed_in_order(const tpt::Access& to) {
    if (placed_count_ == 0) return;
    for (Placed& placed : placed_)
      if (placed.used && overlap(placed.to, to)) placed.again = true;
  }
  // The stream is read in order up to here. What was noted before this place and never looked up is no
  // part of it: that is for the carrier to find.
  void forget_before(std::uint64_t position) {
    if (placed_count_ == 0) return;
    for (Placed& placed : placed_)
      if (placed.used && placed.position < position && placed.moves == 0) drop(placed);
  }

  // ---- moves under way, and the buffers that they are made from: TCP may let go of these ----
  bool has_room_for(std::size_t buffers) const { return buffer_count_ + buffers <= kBuffersMax; }
  void keep(BufferRef buffer) { buffers_[buffer_count_++] = std::move(buffer); }
  void share_kept(std::vector<BufferRef>& out) const {
    for (std::uint32_t i = 0; i < buffer_count_; ++i) out.push_back(buffers_[i].share());
  }
  void moves_later(std::uint32_t slot, std::uint32_t count) {
    placed_[slot].moves = count;
    moves_ += count;
  }
  void on_moved(std::uint32_t slot, bool ok) {
    --placed_[slot].moves;
    if (!ok) placed_[slot].again = true;
    if (--moves_ == 0) let_go();
  }

  // All moves were cancelled, or none is under way; nothing is noted any more.
  void clear() {
    for (Placed& placed : placed_) placed.used = false;
    placed_count_ = moves_ = 0;
    let_go();
  }

 private:
  static bool overlap(const tpt::Access& a, const tpt::Access& b) {
    return a.space == b.space && a.address < b.address + b.length && b.address < a.address + a.length;
  }
  void let_go() {
    while (buffer_count_ != 0) buffers_[--buffer_count_].reset();
  }

  static constexpr std::uint32_t kPlacedMax = 256;
  static constexpr std::uint32_t kBuffersMax = 512;
  std::array<Placed, kPlacedMax> placed_;
  std::uint32_t placed_count_ = 0;
  std::array<BufferRef, kBuffersMax> buffers_;
  std::uint32_t buffer_count_ = 0;
  std::uint32_t moves_ = 0;
};

}  // namespace rnic::rdmap
