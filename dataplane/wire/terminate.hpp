// The Terminate message (RFC 5040 s4.8), after the DDP header, and the registered error codes
// (RFC 5040, 5041, 5044, 6581; RFC 6580 s3).
//
//  0     |Layer(4)|EType(4)|
//  1     Error Code
//  2     |M|D|R|Rsvd(5)|
//  3     Rsvd
//  4     DDP Segment Length         if M or D
//  6     terminated DDP header      if D: 14 or 18 octets, by its own T bit
//        terminated RDMAP header    if R: 28 octets of a Read Request
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"

namespace rnic::wire {

struct TerminateCode {
  std::uint8_t layer = 0;  // 4 bits
  std::uint8_t type = 0;   // 4 bits
  std::uint8_t code = 0;

  constexpr auto operator<=>(const TerminateCode&) const = default;
  // 0xLTCC, as in the tables of the specifications.
  constexpr std::uint16_t word() const {
    return static_cast<std::uint16_t>((layer & 0xF) << 12 | (type & 0xF) << 8 | code);
  }
};

// Which one is sent when is decided in rdmap/terminate.cpp; here are only their names.
namespace terminate_code {
inline constexpr TerminateCode kRdmapLocalCatastrophic{0, 0, 0x00};
inline constexpr TerminateCode kProtectionInvalidStag{0, 1, 0x00};
inline constexpr TerminateCode kProtectionBaseOrBounds{0, 1, 0x01};
inline constexpr TerminateCode kProtectionAccessRights{0, 1, 0x02};
inline constexpr TerminateCode kProtectionNotAssociated{0, 1, 0x03};
inline constexpr TerminateCode kProtectionToWrap{0, 1, 0x04};
inline constexpr TerminateCode kProtectionCannotInvalidate{0, 1, 0x09};
inline constexpr TerminateCode kProtectionUnspecified{0, 1, 0xFF};
inline constexpr TerminateCode kOperationRdmapVersion{0, 2, 0x05};
inline constexpr TerminateCode kOperationUnexpectedOpcode{0, 2, 0x06};
inline constexpr TerminateCode kOperationCatastrophicStream{0, 2, 0x07};
inline constexpr TerminateCode kOperationCatastrophicGlobal{0, 2, 0x08};
inline constexpr TerminateCode kOperationCannotInvalidate{0, 2, 0x09};
inline constexpr TerminateCode kOperationUnspecified{0, 2, 0xFF};
inline constexpr TerminateCode kDdpLocalCatastrophic{1, 0, 0x00};
inline constexpr TerminateCode kTaggedInvalidStag{1, 1, 0x00};
inline constexpr TerminateCode kTaggedBaseOrBounds{1, 1, 0x01};
inline constexpr TerminateCode kTaggedNotAssociated{1, 1, 0x02};
inline constexpr TerminateCode kTaggedToWrap{1, 1, 0x03};
inline constexpr TerminateCode kTaggedDdpVersion{1, 1, 0x04};
inline constexpr TerminateCode kUntaggedQueueNumber{1, 2, 0x01};
inline constexpr TerminateCode kUntaggedNoBuffer{1, 2, 0x02};
inline constexpr TerminateCode kUntaggedMsnRange{1, 2, 0x03};
inline constexpr TerminateCode kUntaggedMessageOffset{1, 2, 0x04};
inline constexpr TerminateCode kUntaggedTooLong{1, 2, 0x05};
inline constexpr TerminateCode kUntaggedDdpVersion{1, 2, 0x06};
inline constexpr TerminateCode kMpaTcpLost{2, 0, 0x01};
inline constexpr TerminateCode kMpaCrc{2, 0, 0x02};
inline constexpr TerminateCode kMpaMarker{2, 0, 0x03};
inline constexpr TerminateCode kMpaStartupFrame{2, 0, 0x04};
inline constexpr TerminateCode kMpaLocalCatastrophic{2, 0, 0x05};
inline constexpr TerminateCode kMpaInsufficientIrd{2, 0, 0x06};
inline constexpr TerminateCode kMpaNoMatchingRtr{2, 0, 0x07};
}  // namespace terminate_code

struct TerminateMessage {
  static constexpr std::size_t kSizeMin = 4;
  static constexpr std::size_t kSizeMax = 4 + 2 + kDdpHeaderSizeMax + ReadRequestHeader::kSize;

  TerminateCode code{};
  bool has_length = false;           // M
  std::uint16_t segment_length = 0;  // of the bad segment's ULPDU: DDP header and payload
  std::uint8_t ddp_header_size = 0;  // D: 14 or 18; 0 when there is none
  std::array<std::byte, kDdpHeaderSizeMax> ddp_header{};
  bool has_read_request = false;  // R
  std::array<std::byte, ReadRequestHeader::kSize> read_request{};

  constexpr bool operator==(const TerminateMessage&) const = default;
};

// Octets that emit() writes.
constexpr std::size_t terminate_size(const TerminateMessage& message) {
  std::size_t size = TerminateMessage::kSizeMin;
  if (message.has_length || message.ddp_header_size != 0) size += 2;
  size += message.ddp_header_size;
  if (message.has_read_request) size += ReadRequestHeader::kSize;
  return size;
}

// Any code, known or not, and any combination of M, D and R: a header that is announced but not
// there in full is taken for absent (W-RDMAP-33). Nothing only when even the first 4 octets are
// not there.
std::optional<TerminateMessage> parse_terminate(Bytes payload);

// Writes terminate_size() octets; returns how many.
std::size_t emit(const TerminateMessage& message, MutableBytes out);

}  // namespace rnic::wire
