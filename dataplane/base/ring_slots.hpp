// The slots of a ring that has as many as were needed at once: none at first, then twice as many whenever one more is
// needed, and none again when they are given back. Positions only grow, and wrap at 2^32.
//
// What lies in a slot moves when there come to be more: a reference to it lasts until then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/assert.hpp"

namespace rnic {

template <typename T>
class RingSlots {
 public:
  std::uint32_t size() const { return size_; }  // 0, or a power of two
  T& operator[](std::uint32_t position) { return slots_[position & (size_ - 1)]; }
  const T& operator[](std::uint32_t position) const { return slots_[position & (size_ - 1)]; }

  // Positions [first, end) are in use, and `end` is going to be; there are never to be more slots than `most`, a power
  // of two.
  void need(std::uint32_t first, std::uint32_t end, std::uint32_t most) {
    if (end - first == size_) [[unlikely]]
      grow(first, end, most);
  }
  // None is in use.
  void give_back() {
    slots_.reset();
    size_ = 0;
  }

 private:
  static constexpr std::uint32_t kFirst = 8;

  [[gnu::noinline]] void grow(std::uint32_t first, std::uint32_t end, std::uint32_t most) {
    const std::uint32_t size = size_ == 0 ? std::min(kFirst, most) : 2 * size_;
    RNIC_ASSERT(size > size_ && size <= most);
    auto slots = std::make_unique<T[]>(size);
    for (std::uint32_t i = first; i != end; ++i) slots[i & (size - 1)] = std::move((*this)[i]);
    slots_ = std::move(slots);
    size_ = size;
  }

  std::unique_ptr<T[]> slots_;
  std::uint32_t size_ = 0;
};

}  // namespace rnic
