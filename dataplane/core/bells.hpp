// The doorbells of one application that were rung, so many in a turn: it can ring all of them all the
// time, and others wait meanwhile. Those that were left out are the first of the next turn.
//
// Owned by one worker. The area is shared (abi/rnic_shm.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rnic_shm.h"

namespace rnic::core {

class Bells {
 public:
  // Of a turn, over all bells and words of all applications that ring.
  static constexpr int kTurnMax = 256;

  static bool any_rung(const rnic_doorbells& area) {
    return std::atomic_ref(const_cast<std::uint32_t&>(area.any)).load(std::memory_order_relaxed) != 0;
  }

  // Calls ring(index) for bells that were rung, of the first `count` that there are; stops soon after `left`,
  // which ring() may lower further, has come to 0. Whether there were any.
  template <typename Ring>
  bool answer(rnic_doorbells& area, std::size_t count, int& left, Ring&& ring) {
    // From the top, each by one operation: a ring that comes later sets all levels again.
    std::atomic_ref(area.any).exchange(0, std::memory_order_seq_cst);
    const std::size_t words = (count + 63) / 64;
    const std::size_t begin = first_;
    first_ = 0;
    bool some = answer_words(area, words, begin, words, left, ring);
    if (begin != 0 && first_ == 0) some |= answer_words(area, words, 0, begin, left, ring);
    return some;
  }

 private:
  // Words from `begin` to before `end`. Those behind the last that there is are nobody's: not worth a look.
  template <typename Ring>
  bool answer_words(rnic_doorbells& area, std::size_t words, std::size_t begin, std::size_t end, int& left,
                    Ring& ring) {
    bool some = false;
    for (std::size_t s = begin / 64; s * 64 < end; ++s) {
      std::atomic_ref summary_now(area.summary[s]);
      if (summary_now.load(std::memory_order_relaxed) == 0) continue;
      std::uint64_t ours = s == begin / 64 ? ~std::uint64_t{0} << (begin % 64) : ~std::uint64_t{0};
      if (end < s * 64 + 64 && end < words) ours &= (std::uint64_t{1} << (end % 64)) - 1;
      std::uint64_t summary = summary_now.fetch_and(~ours, std::memory_order_seq_cst) & ours;
      for (; summary != 0; summary &= summary - 1) {
        const std::size_t w = s * 64 + static_cast<std::size_t>(std::countr_zero(summary));
        if (w >= words) break;
        if (left <= 0) {
          // The rest is as if it was rung just now.
          summary_now.fetch_or(summary, std::memory_order_seq_cst);
          std::atomic_ref(area.any).store(1, std::memory_order_seq_cst);
          first_ = w;
          return true;
        }
        std::uint64_t word = std::atomic_ref(area.words[w]).exchange(0, std::memory_order_seq_cst);
        some |= word != 0;
        left -= 1 + std::popcount(word);
        for (; word != 0; word &= word - 1) ring(w * 64 + static_cast<std::size_t>(std::countr_zero(word)));
      }
    }
    return some;
  }

  std::size_t first_ = 0;  // the word to begin with
};

}  // namespace rnic::core
