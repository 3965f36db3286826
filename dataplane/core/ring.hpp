// A ring between two threads: one writes, one reads. No lock, no allocation after construction.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>

#include "base/assert.hpp"

namespace rnic::core {

template <typename T>
class Ring {
 public:
  explicit Ring(std::size_t size) : size_(size), slots_(new T[size]) { RNIC_ASSERT(std::has_single_bit(size)); }

  // Writer. False: full.
  bool push(const T& value) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    // Pairs with the release in pop(): the slot has been read.
    if (tail - head_.load(std::memory_order_acquire) == size_) return false;
    slots_[tail & (size_ - 1)] = value;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  // Reader. False: empty.
  bool pop(T& out) {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    // Pairs with the release in push(): the slot has been written.
    if (head == tail_.load(std::memory_order_acquire)) return false;
    out = slots_[head & (size_ - 1)];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

 private:
  std::size_t size_;
  std::unique_ptr<T[]> slots_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace rnic::core
