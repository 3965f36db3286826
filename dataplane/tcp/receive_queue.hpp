// Octets in order that the layer above has not consumed, where they lie: a ring of spans, whose memory follows what is
// in it (base/ring_slots.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/ring_slots.hpp"
#include "tcp/keeper.hpp"

namespace rnic::tcp {

class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t slots, Keeper& keeper)
      : most_(std::bit_ceil(slots)), join_from_(std::max(most_ / 2, 1u)), keeper_(keeper) {}
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;
  ~ReceiveQueue() { clear(); }

  // False when there is no slot left and the octets do not fit behind the last ones either.
  // `copied`: the keeper has put them there.
  bool push(BufferRef&& buffer, Bytes octets, bool copied = false) {
    const std::uint32_t count = tail_ - head_;
    // A peer that sends octet by octet would use up the slots, and the packet buffers, long
    // before the window. Beyond half, small ones are put together.
    if (count >= join_from_ && octets.size() <= Keeper::kCopiedMax && join(*buffer, octets)) [[unlikely]]
      return true;
    if (packs_ && Keeper::wastes(*buffer, octets) && join(*buffer, octets)) [[unlikely]]
      return true;
    if (count == most_) return false;
    keeper_.keep(*buffer, copied);
    add(std::move(buffer), octets, copied);
    return true;
  }
  // There may be so many slots from now on, if these are more.
  void allow(std::uint32_t slots) { most_ = std::max(most_, std::bit_ceil(slots)); }
  // From now on small ones are put together from the first on: buffers are scarce.
  void join_all() { join_from_ = 0; }
  // Until all is consumed those that waste a large buffer are put together: nobody is in a hurry for them.
  void pack() { packs_ = true; }

  std::size_t count() const { return tail_ - head_; }
  BufferRef* buffer(std::size_t i) { return &entry(i).buffer; }
  Bytes span(std::size_t i) { return {entry(i).data, entry(i).length}; }

  // At most what is there.
  void consume(std::uint64_t octets) {
    while (octets > 0) {
      RNIC_ASSERT(head_ != tail_);
      Entry& e = entries_[head_];
      if (octets < e.length) {
        e.data += octets;
        e.length -= static_cast<std::uint32_t>(octets);
        return;
      }
      octets -= e.length;
      keeper_.release(e.buffer, e.copied);
      ++head_;
    }
    packs_ = packs_ && head_ != tail_;
  }
  void clear() {
    for (; head_ != tail_; ++head_) keeper_.release(entries_[head_].buffer, entries_[head_].copied);
  }
  void give_back_slots() {
    if (head_ == tail_) entries_.give_back();
  }

 private:
  struct Entry {
    BufferRef buffer;
    const std::byte* data = nullptr;
    std::uint32_t length = 0;
    bool copied = false;
  };
  Entry& entry(std::size_t i) {
    RNIC_ASSERT(i < count());
    return entries_[head_ + static_cast<std::uint32_t>(i)];
  }
  bool join(const Buffer& from, Bytes octets) {
    const std::uint32_t count = tail_ - head_;
    if (count > 0) {
      Entry& last = entry(count - 1);
      if (keeper_.extend(Keeper::Where::in_order, last.buffer, last.data + last.length, octets)) {
        last.length += static_cast<std::uint32_t>(octets.size());
        return true;
      }
    }
    if (count == most_) return false;
    Keeper::Copy copy = keeper_.copy(Keeper::Where::in_order, octets, *from.pool);
    if (!copy.buffer) return false;
    add(std::move(copy.buffer), {copy.data, octets.size()}, true);
    return true;
  }
  void add(BufferRef&& buffer, Bytes octets, bool copied) {
    entries_.need(head_, tail_, most_);
    Entry& e = entries_[tail_++];
    e.buffer = std::move(buffer);
    e.data = octets.data();
    e.length = static_cast<std::uint32_t>(octets.size());
    e.copied = copied;
  }

  RingSlots<Entry> entries_;
  std::uint32_t most_;
  std::uint32_t join_from_;  // so many slots are taken by whatever comes
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  bool packs_ = false;
  Keeper& keeper_;
};

}  // namespace rnic::tcp
