// Frames handed over from one thread to another, and their buffers back. No buffer ever changes threads: pools and
// counts of references are one thread's. So a frame in the ring is what the taker may read, and a reference that its
// owner holds until the taker is through with it, which is when the taker has moved on in the ring. That the owner
// sees, and lets go: what lies behind the taker is the way back.
//
//   | let go | read, to be let go | pushed, to be read | filled, not pushed yet |
//            ^ owner's            ^ taker's            ^ owner's                ^ owner's
//
// One owner, one taker. Atomics: an index is stored with release by one side and loaded with acquire by the other.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/buffer.hpp"

namespace rnic::port {

// What a taker may know of a frame. Nothing of the Buffer itself: its owner may put headers on and take them off while
// others read, though the octets stay as they are while it is shared (BufferPool::shared()).
struct HandedFrame {
  Buffer* buffer = nullptr;  // the owner's
  const std::byte* octets = nullptr;
  std::uint32_t length = 0;
  std::uint16_t unit_bytes = 0;
  std::uint16_t headers_bytes = 0;
  bool checksum_good = false;

  Bytes bytes() const { return {octets, length}; }
  // That it is on a wire.
  std::uint32_t frames() const { return segments_in(length - headers_bytes, unit_bytes); }
};

class HandoverRing {
 public:
  static constexpr std::uint32_t kSlots = 512;

  HandoverRing() = default;
  // No thread uses it any more, and the pools are still there.
  ~HandoverRing() {
    taken_.store(filled_, std::memory_order_relaxed);
    take_back();
  }
  HandoverRing(const HandoverRing&) = delete;
  HandoverRing& operator=(const HandoverRing&) = delete;

  // ---- the owner's ----
  // Takes over one reference. False: as many are out as may be, and it is the caller's still.
  bool fill(Buffer* frame) {
    if (out() == kSlots && (take_back(), out() == kSlots)) return false;
    slots_[filled_++ % kSlots] = {.buffer = frame,
                                  .octets = frame->bytes().data(),
                                  .length = frame->length,
                                  .unit_bytes = frame->unit_bytes,
                                  .headers_bytes = frame->headers_bytes,
                                  .checksum_good = frame->checksum_good != 0};
    return true;
  }
  // What was filled can be read from now on.
  void push() { pushed_.store(filled_, std::memory_order_release); }
  // Lets go of what was read. Whether there was any.
  bool take_back() {
    if (let_go_ == filled_) return false;
    const std::uint32_t taken = taken_.load(std::memory_order_acquire);
    if (taken == let_go_) return false;
    while (let_go_ != taken) BufferRef{slots_[let_go_++ % kSlots].buffer}.reset();
    return true;
  }
  // Frames that the owner holds for the taker.
  std::uint32_t out() const { return filled_ - let_go_; }

  // ---- the taker's ----
  // How many can be read: the next ones, by number from 0 on, until move_on().
  std::uint32_t waiting() const { return pushed_.load(std::memory_order_acquire) - read_; }
  const HandedFrame& peek(std::uint32_t number) const { return slots_[(read_ + number) % kSlots]; }
  // Through with the next `count`.
  void move_on(std::uint32_t count) {
    read_ += count;
    taken_.store(read_, std::memory_order_release);
  }

 private:
  std::array<HandedFrame, kSlots> slots_{};
  // A line each for what one side alone uses, and for what it tells the other.
  alignas(64) std::uint32_t filled_ = 0;
  std::uint32_t let_go_ = 0;
  alignas(64) std::atomic<std::uint32_t> pushed_{0};
  alignas(64) std::uint32_t read_ = 0;
  alignas(64) std::atomic<std::uint32_t> taken_{0};
};

}  // namespace rnic::port
