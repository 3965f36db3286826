// Message sequence numbers and offsets of an untagged queue (RFC 5041 s4.3, s5.3): one counter for
// each direction, from 1, without gaps, wrapping from 2^32 - 1 to 0 (W-DDP-05).
#pragma once

#include <cstdint>

namespace rnic::ddp {

enum class MsnCheck : std::uint8_t { expected, gap, range };

// What is expected next on an inbound queue, in stream order.
class InboundQueue {
 public:
  // A number ahead by less than `window` means that messages are missing; any other wrong one is
  // out of range.
  constexpr MsnCheck check(std::uint32_t msn, std::uint32_t window) const {
    if (msn == msn_) return MsnCheck::expected;
    return msn - msn_ < window ? MsnCheck::gap : MsnCheck::range;
  }
  // Octets of the message under way that have come.
  constexpr std::uint32_t offset() const { return offset_; }
  constexpr std::uint32_t msn() const { return msn_; }
  constexpr bool mid_message() const { return mid_message_; }

  // A segment was accepted.
  constexpr void accept(std::uint32_t payload, bool last) {
    offset_ = last ? 0 : offset_ + payload;
    mid_message_ = !last;
    if (last) ++msn_;
  }

 private:
  std::uint32_t msn_ = 1;
  std::uint32_t offset_ = 0;
  bool mid_message_ = false;
};

static_assert(InboundQueue{}.check(1, 10) == MsnCheck::expected);
static_assert(InboundQueue{}.check(10, 10) == MsnCheck::gap);
static_assert(InboundQueue{}.check(11, 10) == MsnCheck::range);
static_assert(InboundQueue{}.check(0, 10) == MsnCheck::range);

}  // namespace rnic::ddp
