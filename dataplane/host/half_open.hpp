// Half-open connections of a device: SYNs that listeners answered, until the third segment comes
// (RFC 4987 s3.3). A fixed number of small entries; a SYN that comes when all are taken gets a cookie.
// One whose third segment has come while its listener's backlog is full stays, and awaits room in it.
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <memory>

#include "base/list.hpp"
#include "host/flow.hpp"
#include "host/timers.hpp"
#include "tcp/handshake.hpp"

namespace rnic::host {

struct BacklogTag;

struct HalfOpen : Timers::Node, ListLink<BacklogTag> {
  Flow flow;
  std::uint64_t hash = 0;
  tcp::Handshake handshake;
  std::uint32_t listener = 0;
  std::uint32_t time_wait_slot = kNone;  // of the TIME-WAIT that it replaces
  bool used = false;
  // While it awaits room in the backlog (then it is in its listener's list):
  Instant until = kNever;  // no longer than this
  Duration round_trip{};   // from SYN-ACK to third segment; 0: not known
  bool awaits_backlog() const { return ListLink<BacklogTag>::linked(); }
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
};

class HalfOpens {
 public:
  static constexpr std::uint32_t kNone = HalfOpen::kNone;

  explicit HalfOpens(std::uint32_t entries_max) : size_(entries_max), entries_(new HalfOpen[entries_max]) {
    free_.reset(new std::uint32_t[entries_max]);
    for (std::uint32_t i = 0; i < entries_max; ++i) free_[i] = entries_max - 1 - i;
    free_count_ = entries_max;
    timers_.reserve(entries_max);
  }

  bool full() const { return free_count_ == 0; }
  std::uint32_t used() const { return size_ - free_count_; }
  std::uint32_t size() const { return size_; }
  HalfOpen& at(std::uint32_t slot) { return entries_[slot]; }
  const HalfOpen& at(std::uint32_t slot) const { return entries_[slot]; }
  std::uint32_t slot_of(const HalfOpen& entry) const { return static_cast<std::uint32_t>(&entry - entries_.get()); }

  // Not while full().
  std::uint32_t add() {
    RNIC_ASSERT(free_count_ > 0);
    const std::uint32_t slot = free_[--free_count_];
    entries_[slot].time_wait_slot = kNone;
    entries_[slot].used = true;
    return slot;
  }
  void remove(std::uint32_t slot) {
    timers_.cancel(entries_[slot]);
    entries_[slot].ListLink<BacklogTag>::unlink();
    entries_[slot].used = false;
    free_[free_count_++] = slot;
  }

  void wake_at(std::uint32_t slot, Instant due) { timers_.schedule(entries_[slot], due); }
  // One whose SYN-ACK has not been answered in time; until nothing.
  HalfOpen* next_due(Instant now) { return static_cast<HalfOpen*>(timers_.next_due(now)); }
  Instant earliest() const { return timers_.earliest(); }

 private:
  std::uint32_t size_;
  std::unique_ptr<HalfOpen[]> entries_;
  std::unique_ptr<std::uint32_t[]> free_;
  std::uint32_t free_count_ = 0;
  Timers timers_;
};

}  // namespace rnic::host
