// TIME-WAIT (RFC 9293 s3.3.2, s3.6.1), outside of streams and queue pairs (V-CLS-11): what is
// still needed of a connection whose two ends have closed, in one cache line or so.
//
// All wait equally long, so they leave in the order in which they came. A full table lets the
// oldest go early.
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.hpp"
#include "host/flow.hpp"
#include "tcp/reuse.hpp"

namespace rnic::host {

struct Waiting {
  Flow flow;
  std::uint64_t hash = 0;
  tcp::Finished finished;
  Instant until;
  Instant answer_from{};  // not before it: two ends that disagree must not answer each other for ever
  bool used = false;
  bool hidden = false;  // a half-open connection has its place; it comes back if nothing becomes of that
};

class TimeWait {
 public:
  explicit TimeWait(std::uint32_t entries_max) : size_(entries_max), entries_(new Waiting[entries_max]) {}

  // The slot that the next add() takes over: its entry, if it has one, must leave the flow table.
  const Waiting* about_to_lose() const {
    return count_ == size_ && entries_[first_].used && !entries_[first_].hidden ? &entries_[first_] : nullptr;
  }
  std::uint32_t add(const Waiting& waiting) {
    if (count_ == size_) drop_first();
    const std::uint32_t slot = (first_ + count_++) % size_;
    entries_[slot] = waiting;
    entries_[slot].used = true;
    return slot;
  }
  std::uint32_t slot_of(const Waiting& waiting) const { return static_cast<std::uint32_t>(&waiting - entries_.get()); }
  Waiting& at(std::uint32_t slot) { return entries_[slot]; }
  const Waiting& at(std::uint32_t slot) const { return entries_[slot]; }
  // The one that hid there, if its time is not over.
  Waiting* hidden(std::uint32_t slot, const Flow& flow, Instant now) {
    Waiting& it = entries_[slot];
    return it.used && it.hidden && it.flow == flow && it.until > now ? &it : nullptr;
  }
  // Its place is taken up when it would have left.
  void remove(std::uint32_t slot) { entries_[slot].used = false; }

  // One whose time is over; until nothing.
  std::optional<std::uint32_t> next_expired(Instant now) {
    while (count_ > 0) {
      const std::uint32_t slot = first_;
      if (!entries_[slot].used) {
        drop_first();
        continue;
      }
      if (entries_[slot].until > now) return std::nullopt;
      drop_first();
      entries_[slot].used = false;
      if (entries_[slot].hidden) continue;
      return slot;
    }
    return std::nullopt;
  }

 private:
  void drop_first() {
    first_ = (first_ + 1) % size_;
    --count_;
  }

  std::uint32_t size_;
  std::unique_ptr<Waiting[]> entries_;
  std::uint32_t first_ = 0, count_ = 0;
};

}  // namespace rnic::host
