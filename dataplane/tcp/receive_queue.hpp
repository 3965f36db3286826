// Octets in order that the layer above has not consumed, where they lie: a ring of spans.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/buffer.hpp"

namespace rnic::tcp {

class ReceiveQueue {
 public:
  explicit ReceiveQueue(std::uint32_t slots)
      : entries_(std::make_unique<Entry[]>(std::bit_ceil(slots))), mask_(std::bit_ceil(slots) - 1) {}

  // False when there is no slot left and the octets do not fit behind the last ones either.
  bool push(BufferRef&& buffer, Bytes octets) {
    const std::uint32_t count = tail_ - head_;
    // A peer that sends octet by octet would use up the slots, and the packet buffers, long
    // before the window. Beyond half, small ones are put together.
    if (count > mask_ / 2 && join(octets)) return true;
    if (count > mask_) return false;
    Entry& e = entries_[tail_++ & mask_];
    e.buffer = std::move(buffer);
    e.data = octets.data();
    e.length = static_cast<std::uint32_t>(octets.size());
    return true;
  }

  std::size_t count() const { return tail_ - head_; }
  BufferRef* buffer(std::size_t i) { return &entry(i).buffer; }
  Bytes span(std::size_t i) { return {entry(i).data, entry(i).length}; }

  // At most what is there.
  void consume(std::uint64_t octets) {
    while (octets > 0) {
      RNIC_ASSERT(head_ != tail_);
      Entry& e = entries_[head_ & mask_];
      if (octets < e.length) {
        e.data += octets;
        e.length -= static_cast<std::uint32_t>(octets);
        return;
      }
      octets -= e.length;
      e.buffer.reset();
      ++head_;
    }
  }
  void clear() {
    for (; head_ != tail_; ++head_) entries_[head_ & mask_].buffer.reset();
  }

 private:
  struct Entry {
    BufferRef buffer;
    const std::byte* data = nullptr;
    std::uint32_t length = 0;
  };
  Entry& entry(std::size_t i) {
    RNIC_ASSERT(i < count());
    return entries_[(head_ + static_cast<std::uint32_t>(i)) & mask_];
  }
  bool join(Bytes octets) {
    Entry& last = entries_[(tail_ - 1) & mask_];
    Buffer& buffer = *last.buffer;
    if (octets.size() > buffer.tailroom() || octets.size() > kJoinedMax) return false;
    if (last.data + last.length != buffer.room + buffer.head + buffer.length) return false;
    if (buffer.pool->shared(buffer)) return false;
    const MutableBytes room = buffer.append(static_cast<std::uint32_t>(octets.size()));
    std::memcpy(room.data(), octets.data(), octets.size());
    last.length += static_cast<std::uint32_t>(octets.size());
    return true;
  }
  static constexpr std::size_t kJoinedMax = 512;  // larger ones are worth a slot

  std::unique_ptr<Entry[]> entries_;
  std::uint32_t mask_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
};

}  // namespace rnic::tcp
