// The part of a port's buffers that transmitted data may hold: all but a quarter of each class, which is left to
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
  explicit DataPool(BufferPool& whole)
      : whole_(whole), two_classes_(whole.small_room_bytes() != whole.room_bytes()), small_(whole.available()) {
    large_ = two_classes_ ? Share(whole.large_available()) : small_;
    refresh();
  }

  // Nothing may be taken before others have given back; of the class that `buffer` is of.
  bool exhausted() const { return small_.allowance == 0 && large_available() == 0; }
  bool exhausted(const Buffer& buffer) const { return share_of(buffer).allowance == 0; }
  // Half of what is left to receiving is gone, too.
  bool nearly_empty(const Buffer& buffer) const { return share_of(buffer).nearly_empty; }

  // Once a turn: asking a pool what it has can cost more than taking from it.
  void refresh() {
    small_.refresh(whole_.available());
    if (two_classes_) large_.refresh(whole_.large_available());
  }

  unsigned take(Buffer** out, unsigned n) override {
    if (n > small_.allowance) n = small_.allowance;
    if (n == 0) return 0;
    const unsigned taken = whole_.take(out, n);
    small_.allowance -= taken;
    return taken;
  }
  Buffer* take_large() override {
    Share& share = two_classes_ ? large_ : small_;
    if (share.allowance == 0) return nullptr;
    Buffer* const taken = whole_.take_large();
    if (taken != nullptr) --share.allowance;
    return taken;
  }
  // A buffer knows the pool that it came from, so this is called for none; but it is a pool.
  void give(Buffer* const* buffers, unsigned n) override { whole_.give(buffers, n); }
  bool shared(const Buffer& buffer) const override { return whole_.shared(buffer); }
  std::uint32_t room_bytes() const override { return whole_.room_bytes(); }
  std::uint32_t small_room_bytes() const override { return whole_.small_room_bytes(); }
  std::uint32_t available() const override { return small_.allowance; }
  std::uint32_t large_available() const override { return two_classes_ ? large_.allowance : small_.allowance; }

 private:
  struct Share {
    explicit Share(std::uint32_t all = 0) : reserve(all / 4) {}
    void refresh(std::uint32_t available) {
      allowance = available > reserve ? available - reserve : 0;
      nearly_empty = available < reserve / 2;
    }
    std::uint32_t reserve;
    std::uint32_t allowance = 0;
    bool nearly_empty = false;
  };
  const Share& share_of(const Buffer& buffer) const {
    return two_classes_ && buffer.room_bytes >= kHeadroom + whole_.room_bytes() ? large_ : small_;
  }

  BufferPool& whole_;
  bool two_classes_;
  Share small_, large_;
};

}  // namespace rnic::core
