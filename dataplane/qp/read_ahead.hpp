// Which FPDUs beyond a gap in the stream were read (RFC 5044 A.3): found by markers, valid, and none of them is read
// again. Only there with markers toward us.
//
// Owned by one queue pair. Bounded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rnic::qp {

class ReadAhead {
 public:
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
  // The stream is framed in order up to here.
  void forget_before(std::uint64_t position) {
    erase(0, index_from(position));
    if (limit < position) limit = kNoLimit;
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

  static constexpr std::uint32_t kIntervalsMax = 64;
  std::array<Interval, kIntervalsMax + 1> intervals_;
  std::uint32_t interval_count_ = 0;
};

}  // namespace rnic::qp
