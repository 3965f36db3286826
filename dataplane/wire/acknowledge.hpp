// Acknowledged streams, which only rnics have among themselves (docs/wire.md s8.1): Acknowledge and Negative
// Acknowledge, each after the untagged DDP header.
//
//  Acknowledge            | performed 4 | W(1) Res(2) timer(5) | reserved 3 |
//  Negative Acknowledge   | request 4 | layer, type and code as in a Terminate 2 | reserved 2 |
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"

namespace rnic::wire {

struct AcknowledgeHeader {
  static constexpr std::size_t kSize = 8;
  static constexpr std::uint8_t kTimerMask = 0x1F;

  std::uint32_t performed = 0;  // requests of the direction, in order, modulo 2^32
  bool waits = false;           // the next one, for a receive
  std::uint8_t timer = 0;       // with `waits`: InfiniBand's code of how long that may take

  constexpr bool operator==(const AcknowledgeHeader&) const = default;
};

// Nothing when it is too short. Reserved bits are not looked at.
constexpr std::optional<AcknowledgeHeader> parse_acknowledge(Bytes payload) {
  if (payload.size() < AcknowledgeHeader::kSize) return std::nullopt;
  const auto how = load_be<std::uint8_t>(payload, 4);
  return AcknowledgeHeader{.performed = load_be<std::uint32_t>(payload, 0),
                           .waits = (how & 0x80) != 0,
                           .timer = static_cast<std::uint8_t>(how & AcknowledgeHeader::kTimerMask)};
}

constexpr void emit(const AcknowledgeHeader& header, MutableBytes out) {
  store_be(out, 0, header.performed);
  const unsigned how = (header.waits ? 0x80u : 0u) | (header.timer & AcknowledgeHeader::kTimerMask);
  store_be(out, 4, how << 24);
}

struct NegativeAcknowledgeHeader {
  static constexpr std::size_t kSize = 8;

  std::uint32_t request = 0;  // its number, from 1, modulo 2^32
  std::uint16_t code = 0;     // layer, type and code, as in a Terminate

  constexpr bool operator==(const NegativeAcknowledgeHeader&) const = default;
};

constexpr std::optional<NegativeAcknowledgeHeader> parse_negative_acknowledge(Bytes payload) {
  if (payload.size() < NegativeAcknowledgeHeader::kSize) return std::nullopt;
  return NegativeAcknowledgeHeader{.request = load_be<std::uint32_t>(payload, 0),
                                   .code = load_be<std::uint16_t>(payload, 4)};
}

constexpr void emit(const NegativeAcknowledgeHeader& header, MutableBytes out) {
  store_be(out, 0, header.request);
  store_be(out, 4, header.code);
  store_be(out, 6, std::uint16_t{0});
}

namespace detail {
inline constexpr AcknowledgeHeader kAcknowledgeExample{.performed = 0x01020304, .waits = true, .timer = 14};
inline constexpr NegativeAcknowledgeHeader kNegativeExample{.request = 5, .code = 0x1101};
constexpr bool acknowledge_is_parsed_back() {
  std::byte octets[AcknowledgeHeader::kSize] = {};
  emit(kAcknowledgeExample, octets);
  return parse_acknowledge(octets) == kAcknowledgeExample;
}
constexpr bool negative_acknowledge_is_parsed_back() {
  std::byte octets[NegativeAcknowledgeHeader::kSize] = {};
  emit(kNegativeExample, octets);
  return parse_negative_acknowledge(octets) == kNegativeExample;
}
}  // namespace detail
static_assert(detail::acknowledge_is_parsed_back());
static_assert(detail::negative_acknowledge_is_parsed_back());

}  // namespace rnic::wire
