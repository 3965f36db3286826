// rnic's own datagrams: what queue pairs of type UD send to each other, the payload of a UDP datagram (docs/wire.md
// s8.2). In no RFC and not RoCE's: between devices of the RoCE face alone.
//
//  octet 0   'r' 'U'
//        2   version
//        3   | S | Res(6) | I |: solicited; with an immediate
//        4   | Res(8) | sender's queue pair(24) |
//        8   | Res(8) | receiver's queue pair(24) |: 0xffffff to a multicast group
//       12   Q_Key
//       16   immediate; without I sent 0, not looked at
//       20   octets of payload
//       24   CRC32c over the octets before it and the payload, least significant octet first
//       28   the payload
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "wire/crc32c.hpp"

namespace rnic::wire {

struct Datagram {
  static constexpr std::size_t kSize = 28;
  static constexpr std::size_t kCrcOffset = 24;
  static constexpr std::uint16_t kMagic = 0x7255;
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::uint32_t kNumberMask = 0xFFFFFF;
  static constexpr QpNumber kToGroup{0xFFFFFF};
  enum Flags : std::uint8_t { kImmediate = 0x01, kSolicited = 0x80 };

  bool solicited = false;
  bool has_immediate = false;
  QpNumber source{}, destination{};
  std::uint32_t q_key = 0;
  std::uint32_t immediate = 0;
  std::uint32_t length = 0;  // of the payload

  constexpr bool operator==(const Datagram&) const = default;
};

namespace detail {
constexpr std::uint32_t datagram_crc(Bytes whole) {
  Crc32c crc;
  crc.add(whole.first(Datagram::kCrcOffset));
  crc.add(whole.subspan(Datagram::kSize));
  return crc.value();
}
}  // namespace detail

// `whole`: all that UDP carries. Nothing when it is cut off, of another kind or version, when its length is another, or
// its CRC does not fit.
constexpr std::optional<Datagram> parse_datagram(Bytes whole) {
  if (whole.size() < Datagram::kSize) return std::nullopt;
  if (load_be<std::uint16_t>(whole, 0) != Datagram::kMagic) return std::nullopt;
  if (load_be<std::uint8_t>(whole, 2) != Datagram::kVersion) return std::nullopt;
  const auto flags = load_be<std::uint8_t>(whole, 3);
  const Datagram datagram{.solicited = (flags & Datagram::kSolicited) != 0,
                          .has_immediate = (flags & Datagram::kImmediate) != 0,
                          .source = {load_be<std::uint32_t>(whole, 4) & Datagram::kNumberMask},
                          .destination = {load_be<std::uint32_t>(whole, 8) & Datagram::kNumberMask},
                          .q_key = load_be<std::uint32_t>(whole, 12),
                          .immediate = load_be<std::uint32_t>(whole, 16),
                          .length = load_be<std::uint32_t>(whole, 20)};
  if (datagram.length != whole.size() - Datagram::kSize) return std::nullopt;
  if (load_crc(whole, Datagram::kCrcOffset) != detail::datagram_crc(whole)) return std::nullopt;
  return datagram;
}

// In front of a payload that is there already: `whole` is both. Length and CRC are as they have to be.
constexpr void emit(const Datagram& datagram, MutableBytes whole) {
  store_be(whole, 0, Datagram::kMagic);
  store_be(whole, 2, Datagram::kVersion);
  store_be(whole, 3,
           static_cast<std::uint8_t>((datagram.solicited ? Datagram::kSolicited : 0) |
                                     (datagram.has_immediate ? Datagram::kImmediate : 0)));
  store_be(whole, 4, datagram.source.value & Datagram::kNumberMask);
  store_be(whole, 8, datagram.destination.value & Datagram::kNumberMask);
  store_be(whole, 12, datagram.q_key);
  store_be(whole, 16, datagram.has_immediate ? datagram.immediate : 0);
  store_be(whole, 20, static_cast<std::uint32_t>(whole.size() - Datagram::kSize));
  store_crc(whole, Datagram::kCrcOffset, detail::datagram_crc(whole));
}

}  // namespace rnic::wire
