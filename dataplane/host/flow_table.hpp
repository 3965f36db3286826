// From a segment's four names to what is behind them: an open-addressing table of small entries,
// sized once, that allocates nothing afterwards. The names themselves are kept by those who are
// found: the caller compares.
//
// Owned by one worker.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/assert.hpp"

namespace rnic::host {

class FlowTable {
 public:
  // Never more than half full, so that chains stay short.
  explicit FlowTable(std::uint32_t flows_max)
      : mask_(std::bit_ceil(2 * (flows_max < 8 ? 8 : flows_max)) - 1), entries_(new Entry[mask_ + 1]()) {}

  // The value under `hash` for which `is_it(value)` holds.
  template <typename IsIt>
  std::optional<std::uint32_t> find(std::uint64_t hash, IsIt&& is_it) const {
    const std::uint32_t tag = tag_of(hash);
    for (std::uint32_t at = home(tag); entries_[at].tag != 0; at = (at + 1) & mask_)
      if (entries_[at].tag == tag && is_it(entries_[at].value)) return entries_[at].value;
    return std::nullopt;
  }

  void insert(std::uint64_t hash, std::uint32_t value) {
    RNIC_ASSERT(used_ <= mask_ / 2 + 1);
    const std::uint32_t tag = tag_of(hash);
    std::uint32_t at = home(tag);
    while (entries_[at].tag != 0) at = (at + 1) & mask_;
    entries_[at] = {tag, value};
    ++used_;
  }

  void erase(std::uint64_t hash, std::uint32_t value) {
    const std::uint32_t tag = tag_of(hash);
    std::uint32_t at = home(tag);
    while (entries_[at].tag != tag || entries_[at].value != value) {
      RNIC_ASSERT(entries_[at].tag != 0);
      at = (at + 1) & mask_;
    }
    // Moves back whoever would no longer be found behind the gap: no tombstones.
    for (std::uint32_t next = (at + 1) & mask_; entries_[next].tag != 0; next = (next + 1) & mask_) {
      const std::uint32_t wanted = home(entries_[next].tag);
      if (((next - wanted) & mask_) >= ((next - at) & mask_)) {
        entries_[at] = entries_[next];
        at = next;
      }
    }
    entries_[at] = {};
    --used_;
  }

  std::uint32_t used() const { return used_; }

 private:
  struct Entry {
    std::uint32_t tag = 0;  // of the hash; 0: free
    std::uint32_t value = 0;
  };
  static std::uint32_t tag_of(std::uint64_t hash) {
    const auto tag = static_cast<std::uint32_t>(hash ^ hash >> 32);
    return tag == 0 ? 1 : tag;
  }
  std::uint32_t home(std::uint32_t tag) const { return tag & mask_; }

  std::uint32_t mask_;
  std::unique_ptr<Entry[]> entries_;
  std::uint32_t used_ = 0;
};

}  // namespace rnic::host
