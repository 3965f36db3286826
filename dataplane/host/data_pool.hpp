// The part of a port's buffers that data may hold, and how much of it one stream may (host/dynamic_threshold.hpp): what
// it has transmitted and waits to be acknowledged, and what it has received and waits for octets in front, or for a
// consumer. The rest is left to receiving and to acknowledgements: a device whose every buffer waited for
// acknowledgements could not receive them.
//
// Owned by one worker.
#pragma once

#include <limits>

#include "base/buffer.hpp"
#include "host/dynamic_threshold.hpp"

namespace rnic::host {

class DataPool final : public BufferPool {
 public:
  explicit DataPool(BufferPool& whole)
      : whole_(whole),
        two_classes_(whole.small_room_bytes() != whole.room_bytes()),
        small_(whole.available(), kSmallMinimum),
        large_(two_classes_ ? whole.large_available() : 0, kLargeMinimum) {
    refresh();
  }

  // Of a turn. Then buffers are for whoever asks, up to the reserve, but between for_stream() and for_anybody().
  void refresh() {
    small_.refresh(whole_.available());
    if (two_classes_) large_.refresh(whole_.large_available());
    some_ = two_classes_ ? std::min(small_.spare(), large_.spare()) : small_.spare();
  }
  // What is taken next is for a stream that holds so many already.
  void for_stream(const BufferCount& held) {
    left_small_ = small_.allowance(two_classes_ ? held.small : held.all());
    left_large_ = two_classes_ ? large_.allowance(held.large) : 0;
    limited_ = true;
  }
  void for_anybody() { limited_ = false; }

  // Whether a stream that holds so many may take one.
  bool has_some_for(const BufferCount& held) const {
    if (!two_classes_) return small_.allowance(held.all()) != 0;
    return small_.allowance(held.small) != 0 || large_.allowance(held.large) != 0;
  }
  // Whether a stream that keeps so many may keep `buffer` as well.
  bool may_keep(const BufferCount& kept, const Buffer& buffer) const {
    if (kept.all() < some_) [[likely]]
      return true;
    if (!two_classes_) return small_.allowance(kept.all()) != 0;
    return is_large(buffer) ? large_.allowance(kept.large) != 0 : small_.allowance(kept.small) != 0;
  }
  // What is left of the class of `buffer` is the reserve.
  bool at_reserve(const Buffer& buffer) const {
    return (two_classes_ && is_large(buffer) ? large_ : small_).spare() == 0;
  }
  // So many large ones are held that they are worth a copy.
  bool large_are_worth_copies() const { return two_classes_ && large_.third_held(); }
  bool pressed() const { return small_.pressed() || (two_classes_ && large_.pressed()); }
  bool tight() const { return small_.tight() || (two_classes_ && large_.tight()); }
  // How many are wanted back then; and of what a stream holds, what would help.
  std::uint32_t shortage() const { return small_.shortage() + (two_classes_ ? large_.shortage() : 0); }
  std::uint32_t wanted_of(const BufferCount& held) const {
    if (!two_classes_) return held.all();
    return (small_.tight() ? held.small : 0) + (large_.tight() ? held.large : 0);
  }

  unsigned take(Buffer** out, unsigned n) override {
    n = std::min<unsigned>(n, available());
    if (n == 0) return 0;
    const unsigned taken = whole_.take(out, n);
    count_small(taken);
    return taken;
  }
  Buffer* take_large() override {
    if (large_available() == 0) return nullptr;
    Buffer* const taken = whole_.take_large();
    if (taken == nullptr) return nullptr;
    if (!two_classes_) {
      count_small(1);
    } else {
      large_.on_taken(1);
      if (limited_) --left_large_;
    }
    return taken;
  }
  // A buffer knows the pool that it came from, so this is called for none; but it is a pool.
  void give(Buffer* const* buffers, unsigned n) override { whole_.give(buffers, n); }
  bool shared(const Buffer& buffer) const override { return whole_.shared(buffer); }
  std::uint32_t room_bytes() const override { return whole_.room_bytes(); }
  std::uint32_t small_room_bytes() const override { return whole_.small_room_bytes(); }
  std::uint32_t available() const override { return limited_ ? left_small_ : small_.spare(); }
  std::uint32_t large_available() const override {
    if (!two_classes_) return available();
    return limited_ ? left_large_ : large_.spare();
  }

 private:
  static constexpr std::uint32_t kSmallMinimum = 8, kLargeMinimum = 1;

  void count_small(std::uint32_t taken) {
    small_.on_taken(taken);
    if (limited_) left_small_ -= taken;
  }

  BufferPool& whole_;
  bool two_classes_;
  bool limited_ = false;
  DynamicThreshold small_, large_;
  std::uint32_t some_ = 0;  // who holds fewer than so many may take one of either class
  std::uint32_t left_small_ = 0, left_large_ = 0;
};

}  // namespace rnic::host
