// The send queues of one application that are in use: its worker looks at them in each turn, as long as it is awake,
// and who posts does not ring. A doorbell costs both sides more than such a look.
//
// Owned by one worker. abi/rnic_shm.h (struct rnic_ring_control) has the pairing.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/queues.hpp"

namespace rnic::core {

class WatchList {
 public:
  static constexpr std::size_t kMax = 8;
  // A queue to which nothing is posted for so many turns is in use no more.
  static constexpr std::uint32_t kTurnsInVain = 256;

  std::size_t size() const { return count_; }

  // Its queue pair is told of what is posted by now. False: no place, or it is there already. It stays until it is
  // removed.
  bool add(shm::PostRing& queue, std::uint32_t bell) {
    if (count_ == kMax || !queue.watch()) return false;
    entries_[count_++] = {.queue = &queue, .bell = bell, .seen = queue.produced()};
    return true;
  }

  // With its queue.
  void remove(std::uint32_t bell) {
    for (std::size_t i = 0; i < count_; ++i)
      if (entries_[i].bell == bell) return forget(i);
  }

  // Once a turn: calls tell(bell, posts) for each to which something was posted. `posts` is the application's word.
  template <typename Tell>
  void look(Tell&& tell) {
    for (std::size_t i = 0; i < count_; ++i) {
      Entry& entry = entries_[i];
      std::uint32_t produced = entry.queue->produced();
      const bool ends = produced == entry.seen && ++entry.turns > kTurnsInVain;
      if (ends) {
        entry.queue->unwatch();
        std::atomic_thread_fence(std::memory_order_seq_cst);
        produced = entry.queue->produced();
      }
      if (produced != entry.seen) {
        const std::uint32_t posts = produced - entry.seen;
        entry.seen = produced;
        entry.turns = 0;
        tell(entry.bell, posts);
      }
      if (ends) forget(i--);
    }
  }

  // Before a sleep: who posts rings again. A seq_cst fence is to follow, and any_posted().
  void unwatch() const {
    for (std::size_t i = 0; i < count_; ++i) entries_[i].queue->unwatch();
  }
  bool any_posted() const {
    return std::any_of(entries_.begin(), entries_.begin() + count_,
                       [](const Entry& each) { return each.queue->produced() != each.seen; });
  }
  // After it, with tell(bell, posts) as look()'s.
  template <typename Tell>
  void clear(Tell&& tell) {
    for (; count_ != 0; --count_) {
      const Entry& last = entries_[count_ - 1];
      if (const std::uint32_t posts = last.queue->produced() - last.seen; posts != 0) tell(last.bell, posts);
    }
  }

 private:
  struct Entry {
    shm::PostRing* queue = nullptr;
    std::uint32_t bell = 0;
    std::uint32_t seen = 0;   // what was posted when its queue pair was told
    std::uint32_t turns = 0;  // since
  };

  void forget(std::size_t at) { entries_[at] = entries_[--count_]; }

  std::array<Entry, kMax> entries_{};
  std::size_t count_ = 0;
};

}  // namespace rnic::core
