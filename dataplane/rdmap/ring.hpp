// A bounded queue: what is under way on a stream, in order. Its memory follows what is in it (base/ring_slots.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/assert.hpp"
#include "base/ring_slots.hpp"

namespace rnic::rdmap {

template <typename T>
class Ring {
 public:
  // So many may be in it, or more. Empties it.
  void reserve(std::uint32_t count) {
    size_ = std::max(size_, std::bit_ceil(count));  // of 0: 1
    clear();
  }
  bool empty() const { return first_ == last_; }
  std::uint32_t count() const { return last_ - first_; }
  std::uint32_t size() const { return size_; }
  bool full() const { return count() == size_; }
  T& front() { return slots_[first_]; }
  const T& front() const { return slots_[first_]; }
  T& operator[](std::uint32_t index) { return slots_[index]; }  // modulo size(), too
  std::uint32_t first() const { return first_; }                // index of the front
  std::uint32_t next() const { return last_; }                  // index that push() will fill
  T& push(const T& value) {
    RNIC_ASSERT(!full());
    T& slot = fresh();
    ++last_;
    slot = value;
    return slot;
  }
  // The slot at next(), to be filled in place; and it is.
  T& fresh() {
    slots_.need(first_, last_, size_);
    return slots_[last_];
  }
  void push_filled() {
    RNIC_ASSERT(!full());
    ++last_;
  }
  void pop() {
    RNIC_ASSERT(!empty());
    ++first_;
  }
  void clear() { first_ = last_ = 0; }
  // Its memory, while it is empty: the next push() takes it anew.
  void give_back() {
    if (empty()) slots_.give_back();
  }

 private:
  RingSlots<T> slots_;
  std::uint32_t size_ = 0;  // of the most
  std::uint32_t first_ = 0, last_ = 0;
};

}  // namespace rnic::rdmap
