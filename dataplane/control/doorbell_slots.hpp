// The doorbells of a context (abi/rnic_shm.h: rnic_doorbells), by number. Those that were never used come first, then
// who was given back longest ago: a late ring of an old queue finds nobody, for as long as may be.
//
// Owned by the control thread. Whoever has a Slot gives it back before its DoorbellSlots go.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "rnic_shm.h"

namespace rnic::control {

class DoorbellSlots {
 public:
  // One of them, until it ends.
  class [[nodiscard]] Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept : of_(std::exchange(other.of_, nullptr)), number_(other.number_) {}
    Slot& operator=(Slot&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(number_, other.number_);
      return *this;
    }
    ~Slot() {
      if (of_ != nullptr) of_->free_.push_back(number_);
    }
    // False: there was none left.
    explicit operator bool() const { return of_ != nullptr; }
    std::uint32_t number() const { return number_; }

   private:
    friend class DoorbellSlots;
    Slot(DoorbellSlots& of, std::uint32_t number) : of_(&of), number_(number) {}

    DoorbellSlots* of_ = nullptr;
    std::uint32_t number_ = 0;
  };

  DoorbellSlots() = default;
  DoorbellSlots(const DoorbellSlots&) = delete;
  DoorbellSlots& operator=(const DoorbellSlots&) = delete;

  Slot take() {
    if (next_ < RNIC_DOORBELLS_MAX) return {*this, next_++};
    if (free_.empty()) return {};
    const std::uint32_t number = free_.front();
    free_.pop_front();
    return {*this, number};
  }

 private:
  std::uint32_t next_ = 0;
  std::deque<std::uint32_t> free_;
};

}  // namespace rnic::control
