// When all workers have passed between two of their turns since something was made invalid: none of them copies by what
// it had checked before. For workers whose queue pairs share regions; a worker alone knows it by its own flushes.
//
//   who invalidates   table written, begin(), and in later turns passed()
//   each worker       between two turns pass(); before it sleeps rest(), and wake() before it touches anything again
//
// Nobody waits: passed() is asked in turns. A worker in a copy that waits for a page is left by another thread, which
// passes with that space in its mask: what was submitted for the space is not done.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/ids.hpp"

namespace rnic::shm {

class Grace {
 public:
  explicit Grace(unsigned workers) : workers_(workers), seen_(new Seen[workers]) {}

  std::uint64_t begin() { return epoch_.fetch_add(1, std::memory_order_seq_cst) + 1; }
  // Whether every worker has passed since that begin(), and no copy of this space waits for a page with any.
  bool passed(std::uint64_t mark, SpaceId space) const {
    // Pairs with wake(): one that rests sees the table as it is now, or we that it does not rest.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (unsigned i = 0; i < workers_; ++i) {
      if (seen_[i].epoch.load(std::memory_order_acquire) < mark) return false;
      if ((seen_[i].stuck.load(std::memory_order_relaxed) & bit_of(space)) != 0) return false;
    }
    return true;
  }

  // ---- a worker ----
  // `stuck`: the bits of the spaces in which its copies wait.
  void pass(unsigned worker, std::uint64_t stuck) {
    seen_[worker].stuck.store(stuck, std::memory_order_relaxed);
    seen_[worker].epoch.store(epoch_.load(std::memory_order_acquire), std::memory_order_release);
  }
  void rest(unsigned worker) { seen_[worker].epoch.store(kRests, std::memory_order_release); }
  void wake(unsigned worker) {
    seen_[worker].epoch.store(epoch_.load(std::memory_order_acquire), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  // Of 64 one has the bit of another now and then, and is waited for with it.
  static constexpr std::uint64_t bit_of(SpaceId space) { return std::uint64_t{1} << (space.value % 64); }

 private:
  static constexpr std::uint64_t kRests = ~std::uint64_t{0};
  struct alignas(64) Seen {
    std::atomic<std::uint64_t> epoch{kRests};
    std::atomic<std::uint64_t> stuck{0};
  };
  unsigned workers_;
  std::atomic<std::uint64_t> epoch_{1};
  std::unique_ptr<Seen[]> seen_;
};

}  // namespace rnic::shm
