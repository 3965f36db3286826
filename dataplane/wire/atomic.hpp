// RFC 7306: Atomic Request and Response, Immediate Data; each after the untagged DDP header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace rnic::wire {

// RFC 7306 s5.2.1. 1 is reserved there: it is the Swap of draft-ietf-storm-rdmap-ext. 3 to 15 are
// assigned to nothing.
enum class AtomicOpcode : std::uint8_t { fetch_add = 0, swap = 1, compare_swap = 2 };

struct AtomicRequestHeader {
  static constexpr std::size_t kSize = 52;

  AtomicOpcode opcode = AtomicOpcode::fetch_add;  // received: may be a value without a name
  std::uint32_t request_id = 0;
  Stag stag{};
  std::uint64_t tagged_offset = 0;
  std::uint64_t data = 0;  // to add, or to swap in
  std::uint64_t data_mask = 0;
  std::uint64_t compare = 0;                // Fetch and Add sends 0 (W-EXT-10)
  std::uint64_t compare_mask = UINT64_MAX;  // Fetch and Add sends all ones

  constexpr bool operator==(const AtomicRequestHeader&) const = default;
};

// Nothing when it is too short. The 28 reserved bits are not looked at.
constexpr std::optional<AtomicRequestHeader> parse_atomic_request(Bytes payload) {
  if (payload.size() < AtomicRequestHeader::kSize) return std::nullopt;
  return AtomicRequestHeader{.opcode = static_cast<AtomicOpcode>(load_be<std::uint32_t>(payload, 0) & 0xF),
                             .request_id = load_be<std::uint32_t>(payload, 4),
                             .stag = {load_be<std::uint32_t>(payload, 8)},
                             .tagged_offset = load_be<std::uint64_t>(payload, 12),
                             .data = load_be<std::uint64_t>(payload, 20),
                             .data_mask = load_be<std::uint64_t>(payload, 28),
                             .compare = load_be<std::uint64_t>(payload, 36),
                             .compare_mask = load_be<std::uint64_t>(payload, 44)};
}

constexpr void emit(const AtomicRequestHeader& header, MutableBytes out) {
  store_be<std::uint32_t>(out, 0, static_cast<std::uint32_t>(header.opcode) & 0xF);
  store_be(out, 4, header.request_id);
  store_be(out, 8, header.stag.value);
  store_be(out, 12, header.tagged_offset);
  store_be(out, 20, header.data);
  store_be(out, 28, header.data_mask);
  store_be(out, 36, header.compare);
  store_be(out, 44, header.compare_mask);
}

struct AtomicResponseHeader {
  static constexpr std::size_t kSize = 12;

  std::uint32_t request_id = 0;
  std::uint64_t original = 0;

  constexpr bool operator==(const AtomicResponseHeader&) const = default;
};

constexpr std::optional<AtomicResponseHeader> parse_atomic_response(Bytes payload) {
  if (payload.size() < AtomicResponseHeader::kSize) return std::nullopt;
  return AtomicResponseHeader{.request_id = load_be<std::uint32_t>(payload, 0),
                              .original = load_be<std::uint64_t>(payload, 4)};
}

constexpr void emit(const AtomicResponseHeader& header, MutableBytes out) {
  store_be(out, 0, header.request_id);
  store_be(out, 4, header.original);
}

struct ImmediateHeader {
  static constexpr std::size_t kSize = 8;

  std::uint64_t data = 0;

  // Verbs have 32 bits, in network order: the first 4 octets; the others are 0.
  static constexpr ImmediateHeader from_verbs(std::uint32_t immediate) {
    return {std::uint64_t{from_big(immediate)} << 32};
  }
  constexpr std::uint32_t to_verbs() const { return to_big(static_cast<std::uint32_t>(data >> 32)); }

  constexpr bool operator==(const ImmediateHeader&) const = default;
};

constexpr std::optional<ImmediateHeader> parse_immediate(Bytes payload) {
  if (payload.size() < ImmediateHeader::kSize) return std::nullopt;
  return ImmediateHeader{.data = load_be<std::uint64_t>(payload, 0)};
}

constexpr void emit(const ImmediateHeader& header, MutableBytes out) { store_be(out, 0, header.data); }

namespace detail {
inline constexpr AtomicRequestHeader kAtomicExample{.opcode = AtomicOpcode::compare_swap,
                                                    .request_id = 1,
                                                    .stag = {2},
                                                    .tagged_offset = 3,
                                                    .data = 4,
                                                    .data_mask = 5,
                                                    .compare = 6,
                                                    .compare_mask = 7};
constexpr bool atomic_is_parsed_back() {
  std::byte octets[AtomicRequestHeader::kSize] = {};
  emit(kAtomicExample, octets);
  return parse_atomic_request(octets) == kAtomicExample;
}
constexpr bool atomic_response_is_parsed_back() {
  std::byte octets[AtomicResponseHeader::kSize] = {};
  emit(AtomicResponseHeader{.request_id = 1, .original = 2}, octets);
  return parse_atomic_response(octets) == AtomicResponseHeader{.request_id = 1, .original = 2};
}
}  // namespace detail
static_assert(detail::atomic_is_parsed_back());
static_assert(detail::atomic_response_is_parsed_back());

}  // namespace rnic::wire
