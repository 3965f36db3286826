// A bounded queue whose room is taken once: what is under way on a stream, in order.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include "base/assert.hpp"

namespace rnic::rdmap {

template <typename T>
class Ring {
 public:
  void reserve(std::uint32_t count) {
    const std::uint32_t size = std::bit_ceil(count);  // of 0: 1
    if (size > size_) {
      slots_ = std::make_unique<T[]>(size);
      size_ = size;
    }
    first_ = last_ = 0;
  }
  bool empty() const { return first_ == last_; }
  std::uint32_t count() const { return last_ - first_; }
  std::uint32_t size() const { return size_; }
  bool full() const { return count() == size_; }
  T& front() { return slots_[first_ & (size_ - 1)]; }
  T& operator[](std::uint32_t index) { return slots_[index & (size_ - 1)]; }
  std::uint32_t first() const { return first_; }  // index of the front
  std::uint32_t next() const { return last_; }    // index that push() will fill
  T& push(const T& value) {
    RNIC_ASSERT(!full());
    T& slot = slots_[last_++ & (size_ - 1)];
    slot = value;
    return slot;
  }
  // The slot at next(), filled in place.
  void push_filled() {
    RNIC_ASSERT(!full());
    ++last_;
  }
  void pop() {
    RNIC_ASSERT(!empty());
    ++first_;
  }
  void clear() { first_ = last_ = 0; }

 private:
  std::unique_ptr<T[]> slots_;
  std::uint32_t size_ = 0;
  std::uint32_t first_ = 0, last_ = 0;
};

}  // namespace rnic::rdmap
