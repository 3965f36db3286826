// MPA on the wire: startup frames (RFC 5044 s7.1.1, RFC 6581 s6, s9), FPDU sizes (RFC 5044 s4.1)
// and markers (RFC 5044 s4.2).
//
//  octet 0   key, 16 octets
//       16   |M|C|R|S| Res(4) |     S: revision 2 and up only
//       17   Rev
//       18   PD_Length
//       20   private data; with S it begins with   |A|B| IRD(14) |C|D| ORD(14) |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/crc32c.hpp"

namespace rnic::wire {

namespace detail {
constexpr std::array<std::byte, 16> startup_key(const char (&text)[17]) {
  std::array<std::byte, 16> key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(text[i]);
  return key;
}
}  // namespace detail

inline constexpr std::array<std::byte, 16> kRequestKey = detail::startup_key("MPA ID Req Frame");
inline constexpr std::array<std::byte, 16> kReplyKey = detail::startup_key("MPA ID Rep Frame");

namespace mpa_flags {
inline constexpr std::uint8_t kMarkers = 0x80;
inline constexpr std::uint8_t kCrc = 0x40;
inline constexpr std::uint8_t kReject = 0x20;
inline constexpr std::uint8_t kEnhanced = 0x10;
}  // namespace mpa_flags

// All of a startup frame but the private data.
struct StartupHeader {
  static constexpr std::size_t kSize = 20;
  static constexpr std::size_t kRevisionOffset = 17;
  static constexpr std::size_t kPrivateDataMax = 512;

  bool reply = false;     // else a Request
  bool markers = false;   // M: the sender wants markers in what is sent to it
  bool crc = false;       // C
  bool rejected = false;  // R
  bool enhanced = false;  // S; in revision 1 that bit is reserved, sent 0 and not looked at
  std::uint8_t revision = 1;
  std::uint16_t private_data_length = 0;  // with the enhanced block

  constexpr bool operator==(const StartupHeader&) const = default;
};

// Nothing when it is cut off or has neither key. Reserved bits are not checked (W-MPA-11); revision
// and length are the caller's to judge.
constexpr std::optional<StartupHeader> parse_startup(Bytes frame) {
  if (frame.size() < StartupHeader::kSize) return std::nullopt;
  const auto starts_with = [frame](const std::array<std::byte, 16>& key) {
    for (std::size_t i = 0; i < key.size(); ++i)
      if (frame[i] != key[i]) return false;
    return true;
  };
  const bool reply = starts_with(kReplyKey);
  if (!reply && !starts_with(kRequestKey)) return std::nullopt;
  const auto flags = load_be<std::uint8_t>(frame, 16);
  const auto revision = load_be<std::uint8_t>(frame, StartupHeader::kRevisionOffset);
  return StartupHeader{.reply = reply,
                       .markers = (flags & mpa_flags::kMarkers) != 0,
                       .crc = (flags & mpa_flags::kCrc) != 0,
                       .rejected = (flags & mpa_flags::kReject) != 0,
                       .enhanced = revision >= 2 && (flags & mpa_flags::kEnhanced) != 0,
                       .revision = revision,
                       .private_data_length = load_be<std::uint16_t>(frame, 18)};
}

constexpr void emit(const StartupHeader& header, MutableBytes out) {
  RNIC_ASSERT(out.size() >= StartupHeader::kSize);
  const auto& key = header.reply ? kReplyKey : kRequestKey;
  for (std::size_t i = 0; i < key.size(); ++i) out[i] = key[i];
  std::uint8_t flags = 0;
  if (header.markers) flags |= mpa_flags::kMarkers;
  if (header.crc) flags |= mpa_flags::kCrc;
  if (header.rejected) flags |= mpa_flags::kReject;
  if (header.enhanced && header.revision >= 2) flags |= mpa_flags::kEnhanced;
  store_be(out, 16, flags);
  store_be(out, 17, header.revision);
  store_be(out, 18, header.private_data_length);
}

// The first 4 octets of the private data of an enhanced frame. Depths are the sender's own.
struct EnhancedBlock {
  static constexpr std::size_t kSize = 4;
  static constexpr std::uint16_t kDepthMask = 0x3FFF;
  static constexpr std::uint16_t kDepthMax = 0x3FFE;
  static constexpr std::uint16_t kNotNegotiated = 0x3FFF;  // RFC 6581 s9.1

  bool peer_to_peer = false;  // A
  bool rtr_send = false;      // B
  bool rtr_write = false;     // C
  bool rtr_read = false;      // D
  std::uint16_t ird = 0;      // 14 bits
  std::uint16_t ord = 0;      // 14 bits

  constexpr bool operator==(const EnhancedBlock&) const = default;
};

constexpr std::optional<EnhancedBlock> parse_enhanced(Bytes private_data) {
  if (private_data.size() < EnhancedBlock::kSize) return std::nullopt;
  const auto in = load_be<std::uint16_t>(private_data, 0);
  const auto out = load_be<std::uint16_t>(private_data, 2);
  return EnhancedBlock{.peer_to_peer = (in & 0x8000) != 0,
                       .rtr_send = (in & 0x4000) != 0,
                       .rtr_write = (out & 0x8000) != 0,
                       .rtr_read = (out & 0x4000) != 0,
                       .ird = static_cast<std::uint16_t>(in & EnhancedBlock::kDepthMask),
                       .ord = static_cast<std::uint16_t>(out & EnhancedBlock::kDepthMask)};
}

constexpr void emit(const EnhancedBlock& block, MutableBytes out) {
  const auto word = [](bool high, bool low, std::uint16_t depth) {
    return static_cast<std::uint16_t>((high ? 0x8000 : 0) | (low ? 0x4000 : 0) | (depth & EnhancedBlock::kDepthMask));
  };
  store_be(out, 0, word(block.peer_to_peer, block.rtr_send, block.ird));
  store_be(out, 2, word(block.rtr_write, block.rtr_read, block.ord));
}

// ---- FPDU: | ULPDU_Length 2 | ULPDU | PAD 0..3 | CRC 4 |, markers not counted ----

inline constexpr std::size_t kFpduHeaderSize = 2;
inline constexpr std::uint32_t kUlpduSizeMax = 64768;  // RFC 5044 s3

constexpr std::uint32_t fpdu_pad(std::uint32_t ulpdu_size) { return (0u - (2u + ulpdu_size)) & 3u; }
// Octets from ULPDU_Length up to the CRC, without markers: the L of wire.md s1.4.
constexpr std::uint32_t fpdu_covered(std::uint32_t ulpdu_size) { return 2 + ulpdu_size + fpdu_pad(ulpdu_size); }
constexpr std::uint32_t fpdu_size(std::uint32_t ulpdu_size) {
  return fpdu_covered(ulpdu_size) + static_cast<std::uint32_t>(kCrcSize);
}
static_assert(fpdu_size(14) == 20 && fpdu_size(18) == 24, "the smallest legal FPDUs");
static_assert(fpdu_size(kUlpduSizeMax) == 64776);

// ---- markers: | RESERVED 2 | FPDUPTR 2 | ----

inline constexpr std::uint32_t kMarkerSize = 4;
inline constexpr std::uint32_t kMarkerSpacing = 512;

// FPDUPTR; its low two bits are read as 0, RESERVED is not looked at (W-MPA-62, -65).
constexpr std::uint16_t parse_marker(Bytes marker) {
  return static_cast<std::uint16_t>(load_be<std::uint16_t>(marker, 2) & 0xFFFC);
}
constexpr void emit_marker(std::uint16_t fpdu_pointer, MutableBytes out) {
  store_be<std::uint16_t>(out, 0, 0);
  store_be(out, 2, fpdu_pointer);
}

}  // namespace rnic::wire
