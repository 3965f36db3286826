// Group management of IPv4 (RFC 2236, RFC 3376), a member's part: what a query asks, and a report of one group.
// Switches that snoop deliver a group's frames only to those who report it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/checksum.hpp"
#include "wire/ipv4.hpp"

namespace rnic::wire {

inline constexpr IpAddress kAllSystems = IpAddress::v4(224, 0, 0, 1);
inline constexpr IpAddress kMemberReports = IpAddress::v4(224, 0, 0, 22);

struct MemberQuery {
  static constexpr std::size_t kSizeOf2 = 8, kSizeMinOf3 = 12;
  static constexpr std::uint8_t kType = 0x11;
  IpAddress group = IpAddress::v4(0);  // unspecified: all
  std::uint32_t answer_within_ms = 0;
  unsigned version = 3;
  constexpr bool operator==(const MemberQuery&) const = default;
};

// Nothing when it is something else, or its checksum is bad.
inline std::optional<MemberQuery> parse_member_query(Bytes message) {
  if (message.size() < MemberQuery::kSizeOf2 || load_be<std::uint8_t>(message, 0) != MemberQuery::kType)
    return std::nullopt;
  if (checksum_of(message) != 0) return std::nullopt;
  MemberQuery query{.group = IpAddress::load_v4(message, 4)};
  const std::uint32_t code = load_be<std::uint8_t>(message, 1);
  query.version = message.size() >= MemberQuery::kSizeMinOf3 ? 3 : code != 0 ? 2 : 1;
  // Tenths of a second; above 127 it is a floating point number in version 3 (RFC 3376 s4.1.1), and 0 in version 1
  // means ten seconds.
  const std::uint32_t tenths = query.version == 1                  ? 100
                               : query.version == 3 && code >= 128 ? (16 | (code & 15)) << ((code >> 4 & 7) + 3)
                                                                   : code;
  query.answer_within_ms = tenths * 100;
  return query;
}

// A whole IPv4 packet, with Router Alert (RFC 2113), and hop limit 1: a report with one record, or, for a querier of an
// earlier version, one of version 2.
struct MemberReport {
  static constexpr std::size_t kHeaderSize = 24;
  static constexpr std::size_t kSizeOf3 = kHeaderSize + 16, kSizeOf2 = kHeaderSize + 8;

  std::uint8_t record_type = 2;  // as in ListenerReport
  IpAddress group;
  IpAddress source;
  unsigned version = 3;

  IpAddress destination() const { return version == 3 ? kMemberReports : group; }
};

// Its size.
inline std::size_t emit(const MemberReport& report, MutableBytes out) {
  const std::size_t size = report.version == 3 ? MemberReport::kSizeOf3 : MemberReport::kSizeOf2;
  emit(Ipv4Header{.total_length = static_cast<std::uint16_t>(size),
                  .ttl = 1,
                  .protocol = protocol::kIgmp,
                  .source = report.source,
                  .destination = report.destination()},
       out);
  store_be<std::uint8_t>(out, 0, 0x46);          // six words
  store_be<std::uint32_t>(out, 20, 0x94040000);  // Router Alert
  store_be<std::uint16_t>(out, 10, 0);
  store_be(out, 10, checksum_of(Bytes(out.first(MemberReport::kHeaderSize))));
  const MutableBytes message = out.subspan(MemberReport::kHeaderSize, size - MemberReport::kHeaderSize);
  if (report.version == 3) {
    store_be<std::uint32_t>(message, 0, 0x22000000);
    store_be<std::uint32_t>(message, 4, 1);  // one record
    store_be(message, 8, std::uint32_t{report.record_type} << 24);
    report.group.store_v4(message, 12);
  } else {
    store_be<std::uint32_t>(message, 0, 0x16000000);
    report.group.store_v4(message, 4);
  }
  store_be(message, 2, checksum_of(Bytes(message)));
  return size;
}

}  // namespace rnic::wire
