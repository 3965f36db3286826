// How many of a port's buffers one stream may hold.
//
// A dynamic threshold (Choudhury and Hahne, 1998): a stream may hold as many as are free. One that is alone gets half
// of all; of n that want all they can get each has one in n + 1, and as much stays free for the next. So nobody who
// stops giving back, a peer that vanished or a stranger who says nothing that can be used, takes them from others: what
// he holds shrinks what he may hold.
//
// A quarter of all is reserved for receiving and for acknowledgements. Its first half serves streams that hold next to
// nothing as well, so that each of them goes on, however many others hold their shares.
//
// Pure. One of each class of buffers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rnic::host {

class DynamicThreshold {
 public:
  // Next to nothing: what a stream has for its own while the reserve is not half gone.
  explicit DynamicThreshold(std::uint32_t all = 0, std::uint32_t minimum = 8) : reserve_(all / 4), minimum_(minimum) {
    refresh(all);
  }

  // Once a turn: asking a pool what it has can cost more than taking from it.
  void refresh(std::uint32_t available) {
    available_ = available;
    spare_ = available > reserve_ ? available - reserve_ : 0;
    least_ = available > reserve_ / 2 ? available - reserve_ / 2 - spare_ : 0;
  }
  void on_taken(std::uint32_t count) {
    const std::uint32_t of_spare = std::min(count, spare_);
    spare_ -= of_spare;
    least_ -= std::min(count - of_spare, least_);
  }

  // What nobody has, but for the reserve.
  std::uint32_t spare() const { return spare_; }
  // Less than half of the reserve is left.
  bool pressed() const { return spare_ == 0 && least_ == 0 && reserve_ > 1; }
  // Who comes now gets only a few times next to nothing. So it stays where hundreds hold their shares and give nothing
  // back: their shares shrink with what is spare, and need not touch the reserve.
  bool tight() const { return spare_ < kTightTimes * minimum_ && reserve_ > 1; }
  // A third of what may be held is.
  bool third_held() const { return spare_ < 2 * reserve_; }
  // How many would have to come back: so that three quarters of the reserve are there, or so that there is something to
  // spare.
  std::uint32_t shortage() const {
    if (pressed()) return reserve_ - reserve_ / 4 - std::min(available_, reserve_ / 2);
    return tight() ? reserve_ / 2 + kTightTimes * minimum_ - spare_ : 0;
  }
  // How many more a stream may take that holds so many.
  std::uint32_t allowance(std::uint32_t held) const {
    const std::uint32_t shared = spare_ > held ? (spare_ - held + 1) / 2 : 0;
    if (held + shared >= minimum_) [[likely]]
      return shared;
    // Of the reserve the less, the more of it is gone: the last ones are for those that have nothing at all.
    const std::uint32_t half = reserve_ - reserve_ / 2;
    const std::uint32_t most = half == 0 ? 0 : (minimum_ * least_ + half - 1) / half;
    return most > held ? std::max(shared, std::min(most - held, spare_ + least_)) : shared;
  }

 private:
  static constexpr std::uint32_t kTightTimes = 8;

  std::uint32_t reserve_;
  std::uint32_t minimum_;
  std::uint32_t available_ = 0;  // at refresh()
  std::uint32_t spare_ = 0;
  std::uint32_t least_ = 0;  // of the reserve, for those with next to nothing
};

}  // namespace rnic::host
