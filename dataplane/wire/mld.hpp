// Multicast listener discovery (RFC 2710, RFC 3810), a listener's part: what a query asks, and a
// report of one group. Switches that snoop deliver a group's frames only to those who report it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv6.hpp"

namespace rnic::wire {

inline constexpr IpAddress kListenerReports =  // ff02::16
    IpAddress::from_octets({0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16});

struct ListenerQuery {
  static constexpr std::size_t kSizeMin = 24;
  IpAddress group;  // unspecified: all
  std::uint32_t answer_within_ms = 0;
  constexpr bool operator==(const ListenerQuery&) const = default;
};

constexpr std::optional<ListenerQuery> parse_listener_query(Bytes message) {
  if (message.size() < ListenerQuery::kSizeMin) return std::nullopt;
  if (load_be<std::uint8_t>(message, 0) != icmp6_type::kListenerQuery) return std::nullopt;
  // Above 32767 it is a floating point number (RFC 3810 s5.1.3).
  const std::uint32_t code = load_be<std::uint16_t>(message, 4);
  const std::uint32_t delay = code < 0x8000 ? code : (0x1000u | (code & 0xFFF)) << ((code >> 12 & 7) + 3);
  return ListenerQuery{.group = IpAddress::load_v6(message, 8), .answer_within_ms = delay};
}

// An IPv6 packet's payload: the hop-by-hop header with Router Alert (RFC 3810 s5), then a report
// with one record. Its checksum is put in. Always kSize octets; the IPv6 header's next header is
// hop-by-hop, its hop limit 1.
struct ListenerReport {
  static constexpr std::size_t kSize = 8 + 8 + 20;
  static constexpr std::uint8_t kIsExclude = 2;  // an answer: all sources are wanted
  static constexpr std::uint8_t kToExclude = 4;  // a change: this group was joined

  std::uint8_t record_type = kIsExclude;
  IpAddress group;
};

inline void emit(const ListenerReport& report, const IpAddress& source, MutableBytes out) {
  store_be(out, 0, protocol::kIcmpV6);
  store_be<std::uint8_t>(out, 1, 0);
  store_be<std::uint32_t>(out, 2, 0x05020000);  // Router Alert, 2 octets: MLD (RFC 2711 s2.1)
  store_be<std::uint16_t>(out, 6, 0x0100);      // PadN of none
  const MutableBytes message = out.subspan(8, ListenerReport::kSize - 8);
  emit(IcmpHeader{.type = icmp6_type::kListenerReport, .code = 0, .rest = 1}, message);
  store_be(message, 8, report.record_type);
  store_be<std::uint8_t>(message, 9, 0);
  store_be<std::uint16_t>(message, 10, 0);
  report.group.store_v6(message, 12);
  icmp6_set_checksum(message, source, kListenerReports);
}

}  // namespace rnic::wire
