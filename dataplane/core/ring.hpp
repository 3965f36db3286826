// A ring between two threads: one writes, one reads. No lock, no allocation after construction.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <deque>
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

// A ring that loses nothing: what finds no room waits on the writer's side, in order. That is the
// exception, and takes memory; what is told there (the end of a stream, a completion event) comes
// once, and somebody waits for it.
template <typename T>
class PatientRing {
 public:
  explicit PatientRing(std::size_t size) : ring_(size) {}

  // Writer.
  void push(const T& value) {
    if (!waiting_.empty() || !ring_.push(value)) waiting_.push_back(value);
  }
  // Writer: hands over what waits, as far as there is room now. Whether it handed over anything.
  bool hand_over() {
    bool some = false;
    for (; !waiting_.empty() && ring_.push(waiting_.front()); some = true) waiting_.pop_front();
    return some;
  }
  std::size_t waiting() const { return waiting_.size(); }
  // Reader. False: empty.
  bool pop(T& out) { return ring_.pop(out); }

 private:
  Ring<T> ring_;
  std::deque<T> waiting_;
};

}  // namespace rnic::core
