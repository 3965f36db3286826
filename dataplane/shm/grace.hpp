// When all workers have passed between two of their turns since something was made invalid: none of them copies by what
// it had checked before. For workers whose queue pairs share regions; a worker alone knows it by its own flushes.
//
//   who invalidates   table written, begin(), and in later turns passed()
//   each worker       between two turns pass(); before it sleeps rest(), and wake() before it touches anything again
//
// Nobody waits: passed() is asked in turns. A worker in a copy that waits for a page is left by another thread, which
// passes with that space among those it tells: what was submitted for the space is not done.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

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
      if (waits_in(seen_[i], space)) return false;
    }
    return true;
  }

  // ---- a worker ----
  // `stuck`: the spaces in which its copies wait.
  void pass(unsigned worker, std::span<const SpaceId> stuck) {
    Seen& seen = seen_[worker];
    if (!stuck.empty() || seen.told.load(std::memory_order_relaxed) != 0) [[unlikely]]
      tell(seen, stuck);
    seen.epoch.store(epoch_.load(std::memory_order_acquire), std::memory_order_release);
  }
  void rest(unsigned worker) { seen_[worker].epoch.store(kRests, std::memory_order_release); }
  void wake(unsigned worker) {
    seen_[worker].epoch.store(epoch_.load(std::memory_order_acquire), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  // That one worker can tell of: more than its threads (core/crew.hpp). Of more, all spaces are waited for.
  static constexpr std::size_t kStuckMax = 96;

 private:
  static constexpr std::uint64_t kRests = ~std::uint64_t{0};
  static constexpr std::uint64_t kNone = 0;  // else a space's number and one
  struct alignas(64) Seen {
    std::atomic<std::uint64_t> epoch{kRests};
    std::atomic<std::size_t> told{0};  // how many spaces, in `stuck` if there is room for all
    std::array<std::atomic<std::uint64_t>, kStuckMax> stuck{};
  };

  static std::uint64_t name_of(SpaceId space) { return std::uint64_t{space.value} + 1; }
  static bool waits_in(const Seen& seen, SpaceId space) {
    const std::size_t told = seen.told.load(std::memory_order_relaxed);
    if (told == 0) [[likely]]
      return false;
    return told > kStuckMax ||
           std::any_of(seen.stuck.begin(), seen.stuck.end(), [&](const std::atomic<std::uint64_t>& each) {
             return each.load(std::memory_order_relaxed) == name_of(space);
           });
  }
  // A space keeps its place as long as it is told of: others look meanwhile.
  static void tell(Seen& seen, std::span<const SpaceId> stuck) {
    seen.told.store(stuck.size(), std::memory_order_relaxed);
    const auto told = stuck.first(std::min(stuck.size(), kStuckMax));
    for (std::atomic<std::uint64_t>& place : seen.stuck) {
      const std::uint64_t name = place.load(std::memory_order_relaxed);
      const auto is_it = [&](SpaceId space) { return name_of(space) == name; };
      if (name != kNone && std::none_of(told.begin(), told.end(), is_it)) place.store(kNone, std::memory_order_relaxed);
    }
    for (const SpaceId space : told) {
      const auto is_it = [&](const auto& place) { return place.load(std::memory_order_relaxed) == name_of(space); };
      const auto is_free = [](const auto& place) { return place.load(std::memory_order_relaxed) == kNone; };
      if (std::any_of(seen.stuck.begin(), seen.stuck.end(), is_it)) continue;
      std::find_if(seen.stuck.begin(), seen.stuck.end(), is_free)->store(name_of(space), std::memory_order_relaxed);
    }
  }

  unsigned workers_;
  std::atomic<std::uint64_t> epoch_{1};
  std::unique_ptr<Seen[]> seen_;
};

}  // namespace rnic::shm
