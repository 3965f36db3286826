// The part of a port's buffers that transmitted data may hold: all but a quarter, which is left to
// receiving and to acknowledgements. A device whose every buffer waited for acknowledgements could
// not receive them; one whose every buffer held what came out of order could not receive what is
// missing. So the device refuses such segments, too, when it is exhausted.
//
// Owned by one worker.
#pragma once

#include "base/buffer.hpp"

namespace rnic::core {

class DataPool final : public BufferPool {
 public:
  explicit DataPool(BufferPool& whole) : whole_(whole), reserve_(whole.available() / 4) { refresh(); }

  // Nothing may be taken before others have given back.
  bool exhausted() const { return allowance_ == 0; }
  // Half of what is left to receiving is gone, too.
  bool nearly_empty() const { return nearly_empty_; }

  // Once a turn: asking a pool what it has can cost more than taking from it.
  void refresh() {
    const std::uint32_t available = whole_.available();
    allowance_ = available > reserve_ ? available - reserve_ : 0;
    nearly_empty_ = available < reserve_ / 2;
  }

  unsigned take(Buffer** out, unsigned n) override {
    if (n > allowance_) n = allowance_;
    if (n == 0) return 0;
    const unsigned taken = whole_.take(out, n);
    allowance_ -= taken;
    return taken;
  }
  // A buffer knows the pool that it came from, so this is called for none; but it is a pool.
  void give(Buffer* const* buffers, unsigned n) override { whole_.give(buffers, n); }
  bool shared(const Buffer& buffer) const override { return whole_.shared(buffer); }
  std::uint32_t room_bytes() const override { return whole_.room_bytes(); }
  std::uint32_t available() const override { return allowance_; }

 private:
  BufferPool& whole_;
  std::uint32_t reserve_;
  std::uint32_t allowance_ = 0;
  bool nearly_empty_ = false;
};

}  // namespace rnic::core
