// DDP segment headers (RFC 5041 s4).
//
//  tagged (14)                          untagged (18)
//   0     |T=1|L|Rsvd(4)|DV(2)|          0     |T=0|L|Rsvd(4)|DV(2)|
//   1     RDMAP control                  1     RDMAP control
//   2     STag                           2     RsvdULP: the STag to invalidate, or 0
//   6     TO (64)                        6     QN
//                                       10     MSN
//                                       14     MO
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace rnic::wire {

namespace ddp_control {
inline constexpr std::uint8_t kTagged = 0x80;
inline constexpr std::uint8_t kLast = 0x40;
inline constexpr std::uint8_t kVersionMask = 0x03;
inline constexpr std::uint8_t kVersion = 0x01;
}  // namespace ddp_control

struct TaggedHeader {
  static constexpr std::size_t kSize = 14;

  bool last = false;
  std::uint8_t rdmap_control = 0;
  Stag stag{};
  std::uint64_t tagged_offset = 0;

  constexpr bool operator==(const TaggedHeader&) const = default;
};

struct UntaggedHeader {
  static constexpr std::size_t kSize = 18;

  bool last = false;
  std::uint8_t rdmap_control = 0;
  Stag invalidate{};  // 0 when the message invalidates nothing (W-RDMAP-05)
  std::uint32_t queue = 0;
  std::uint32_t msn = 0;
  std::uint32_t message_offset = 0;

  constexpr bool operator==(const UntaggedHeader&) const = default;
};

inline constexpr std::size_t kDdpHeaderSizeMax = UntaggedHeader::kSize;

// Either header, as received: the version is told, not judged, because what is wrong with a header
// decides which error its sender hears of.
struct DdpHeader {
  bool tagged = false;
  bool last = false;
  std::uint8_t version = ddp_control::kVersion;
  std::uint8_t rdmap_control = 0;
  Stag stag{};                      // tagged: where to; untagged: to be invalidated
  std::uint64_t tagged_offset = 0;  // tagged only
  std::uint32_t queue = 0;          // this and what follows: untagged only
  std::uint32_t msn = 0;
  std::uint32_t message_offset = 0;

  constexpr std::size_t size() const { return tagged ? TaggedHeader::kSize : UntaggedHeader::kSize; }
  constexpr bool operator==(const DdpHeader&) const = default;
};

// Nothing when it is shorter than a header of its kind.
constexpr std::optional<DdpHeader> parse_ddp(Bytes segment) {
  if (segment.size() < TaggedHeader::kSize) return std::nullopt;
  const auto control = load_be<std::uint8_t>(segment, 0);
  DdpHeader header{.tagged = (control & ddp_control::kTagged) != 0,
                   .last = (control & ddp_control::kLast) != 0,
                   .version = static_cast<std::uint8_t>(control & ddp_control::kVersionMask),
                   .rdmap_control = load_be<std::uint8_t>(segment, 1),
                   .stag = {load_be<std::uint32_t>(segment, 2)}};
  if (header.tagged) {
    header.tagged_offset = load_be<std::uint64_t>(segment, 6);
    return header;
  }
  if (segment.size() < UntaggedHeader::kSize) return std::nullopt;
  header.queue = load_be<std::uint32_t>(segment, 6);
  header.msn = load_be<std::uint32_t>(segment, 10);
  header.message_offset = load_be<std::uint32_t>(segment, 14);
  return header;
}

// Nothing when it is too short, untagged, or of another DDP version.
constexpr std::optional<TaggedHeader> parse_tagged(Bytes segment) {
  const auto header = parse_ddp(segment);
  if (!header || !header->tagged || header->version != ddp_control::kVersion) return std::nullopt;
  return TaggedHeader{.last = header->last,
                      .rdmap_control = header->rdmap_control,
                      .stag = header->stag,
                      .tagged_offset = header->tagged_offset};
}

// Nothing when it is too short, tagged, or of another DDP version.
constexpr std::optional<UntaggedHeader> parse_untagged(Bytes segment) {
  const auto header = parse_ddp(segment);
  if (!header || header->tagged || header->version != ddp_control::kVersion) return std::nullopt;
  return UntaggedHeader{.last = header->last,
                        .rdmap_control = header->rdmap_control,
                        .invalidate = header->stag,
                        .queue = header->queue,
                        .msn = header->msn,
                        .message_offset = header->message_offset};
}

constexpr void emit(const TaggedHeader& header, MutableBytes out) {
  const int control = ddp_control::kTagged | (header.last ? ddp_control::kLast : 0) | ddp_control::kVersion;
  store_be(out, 0, static_cast<std::uint8_t>(control));
  store_be(out, 1, header.rdmap_control);
  store_be(out, 2, header.stag.value);
  store_be(out, 6, header.tagged_offset);
}

constexpr void emit(const UntaggedHeader& header, MutableBytes out) {
  const int control = (header.last ? ddp_control::kLast : 0) | ddp_control::kVersion;
  store_be(out, 0, static_cast<std::uint8_t>(control));
  store_be(out, 1, header.rdmap_control);
  store_be(out, 2, header.invalidate.value);
  store_be(out, 6, header.queue);
  store_be(out, 10, header.msn);
  store_be(out, 14, header.message_offset);
}

namespace detail {
inline constexpr TaggedHeader kTaggedExample{
    .last = true, .rdmap_control = 0x40, .stag = {0x00012305}, .tagged_offset = 0x7000};
inline constexpr UntaggedHeader kUntaggedExample{
    .last = false, .rdmap_control = 0x44, .invalidate = {0xFEEDC0DE}, .queue = 1, .msn = 2, .message_offset = 3};
constexpr bool tagged_is_parsed_back() {
  std::byte octets[TaggedHeader::kSize] = {};
  emit(kTaggedExample, octets);
  return octets[0] == std::byte{0xC1} && parse_tagged(octets) == kTaggedExample && !parse_untagged(octets);
}
constexpr bool untagged_is_parsed_back() {
  std::byte octets[UntaggedHeader::kSize] = {};
  emit(kUntaggedExample, octets);
  return octets[0] == std::byte{0x01} && parse_untagged(octets) == kUntaggedExample && !parse_tagged(octets);
}
}  // namespace detail
static_assert(detail::tagged_is_parsed_back());
static_assert(detail::untagged_is_parsed_back());

}  // namespace rnic::wire
