// What was placed before its turn: payloads from beyond a gap in the stream, whose FPDUs were found by
// markers (RFC 5044 A.3, RFC 5041 s5.3; W-TCP-09). They are noted here, and looked up when their FPDU
// comes in order; only then is it checked as all are, told and answered for.
//
// Memory ends up as if all had been placed in order: an early placement that lies under one that comes
// before it in the stream is done once more in its turn.
//
// Only there with markers toward us. Owned by one queue pair. Bounded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "tpt/table.hpp"

namespace rnic::qp {

class Early {
 public:
  // ---- FPDUs that were read: none of them is read again ----

  // Octets of the FPDU stream that are whole FPDUs, and valid.
  struct Interval {
    std::uint64_t first = 0, end = 0;
  };
  // The interval that begins at `position`, or else the next one behind it.
  const Interval* interval_from(std::uint64_t position) const {
    const std::uint32_t i = index_from(position);
    return i == interval_count_ ? nullptr : &intervals_[i];
  }
  // False: part of it is in another interval, so the stream contradicts itself; or there is no room.
  bool remember(std::uint64_t first, std::uint64_t end) {
    const std::uint32_t i = index_from(first);
    Interval* const next = intervals_.data() + i;
    if ((i != 0 && next[-1].end > first) || (i != interval_count_ && next->first < end)) return false;
    const bool joins_before = i != 0 && next[-1].end == first;
    const bool joins_after = i != interval_count_ && next->first == end;
    if (joins_before && joins_after) {
      next[-1].end = next->end;
      erase(i, 1);
    } else if (joins_before) {
      next[-1].end = end;
    } else if (joins_after) {
      next->first = first;
    } else {
      if (interval_count_ == kIntervalsMax) return false;
      std::move_backward(next, intervals_.data() + interval_count_, intervals_.data() + interval_count_ + 1);
      *next = {first, end};
      ++interval_count_;
    }
    return true;
  }

  // ---- placements ----
  struct Placed {
    std::uint64_t position = 0;  // of the FPDU, in the FPDU stream
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

  // The stream is framed in order up to here. What was noted before this place and never looked up
  // does not stand in the length chain: that is for the framer to find.
  void forget_before(std::uint64_t position) {
    if (placed_count_ != 0)
      for (Placed& placed : placed_)
        if (placed.used && placed.position < position && placed.moves == 0) drop(placed);
    erase(0, index_from(position));
    if (limit < position) limit = kNoLimit;
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
    placed_count_ = interval_count_ = moves_ = 0;
    let_go();
    limit = kNoLimit;
  }

  std::uint64_t seen = 0;  // of TCP's count of segments out of order
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
  std::uint64_t limit = kNoLimit;  // from the FPDU here on nothing is placed early: it will be refused
  bool distrusted = false;         // what was there is no stream of FPDUs: nothing is placed early any more

 private:
  std::uint32_t index_from(std::uint64_t position) const {
    std::uint32_t i = 0;
    while (i < interval_count_ && intervals_[i].first < position) ++i;
    return i;
  }
  void erase(std::uint32_t at, std::uint32_t count) {
    if (count == 0) return;
    std::move(intervals_.data() + at + count, intervals_.data() + interval_count_, intervals_.data() + at);
    interval_count_ -= count;
  }
  static bool overlap(const tpt::Access& a, const tpt::Access& b) {
    return a.space == b.space && a.address < b.address + b.length && b.address < a.address + a.length;
  }
  void let_go() {
    while (buffer_count_ != 0) buffers_[--buffer_count_].reset();
  }

  static constexpr std::uint32_t kIntervalsMax = 64;
  static constexpr std::uint32_t kPlacedMax = 256;
  static constexpr std::uint32_t kBuffersMax = 512;
  std::array<Interval, kIntervalsMax + 1> intervals_;
  std::uint32_t interval_count_ = 0;
  std::array<Placed, kPlacedMax> placed_;
  std::uint32_t placed_count_ = 0;
  std::array<BufferRef, kBuffersMax> buffers_;
  std::uint32_t buffer_count_ = 0;
  std::uint32_t moves_ = 0;
};

}  // namespace rnic::qp
