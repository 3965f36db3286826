// From a message to DDP segments (RFC 5041 s5.2): in order, without holes, no larger than the
// MULPDU; L on the last and on no other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.hpp"
#include "wire/ddp.hpp"

namespace rnic::ddp {

// A message on its way out: all that its segments' headers say, and how far it has been cut.
struct OutboundMessage {
  bool tagged = false;
  std::uint8_t rdmap_control = 0;
  Stag stag = {};        // tagged: where to; untagged: to be invalidated, or 0
  std::uint64_t to = 0;  // tagged: of the message's first octet
  std::uint32_t queue = 0;
  std::uint32_t msn = 0;
  std::uint32_t length = 0;
  std::uint32_t done = 0;

  constexpr std::uint32_t header_bytes() const {
    return static_cast<std::uint32_t>(tagged ? wire::TaggedHeader::kSize : wire::UntaggedHeader::kSize);
  }
  constexpr std::uint32_t left() const { return length - done; }
};

struct Segment {
  std::uint32_t payload = 0;
  bool last = false;
};

// The next segment, of at most `mulpdu` octets. A message of no octets has one (W-DDP-09).
constexpr Segment next_segment(const OutboundMessage& message, std::uint32_t mulpdu) {
  const std::uint32_t payload = std::min(message.left(), mulpdu - message.header_bytes());
  return {payload, payload == message.left()};
}

// Its header, header_bytes() octets (W-DDP-04, -06, -07).
inline void write_header(const OutboundMessage& message, const Segment& segment, MutableBytes out) {
  if (message.tagged) {
    wire::emit(wire::TaggedHeader{.last = segment.last,
                                  .rdmap_control = message.rdmap_control,
                                  .stag = message.stag,
                                  .tagged_offset = message.to + message.done},
               out);
    return;
  }
  wire::emit(wire::UntaggedHeader{.last = segment.last,
                                  .rdmap_control = message.rdmap_control,
                                  .invalidate = message.stag,
                                  .queue = message.queue,
                                  .msn = message.msn,
                                  .message_offset = message.done},
             out);
}

static_assert(next_segment({.tagged = true, .length = 0}, 1454).last);
static_assert(next_segment({.tagged = true, .length = 1440}, 1454).last);
static_assert(!next_segment({.tagged = true, .length = 1441}, 1454).last);
static_assert(next_segment({.tagged = false, .length = 1441}, 1454).payload == 1436);

}  // namespace rnic::ddp
