// RDMAP on the wire: the control octet (RFC 5040 s4.1; RFC 7306 s4) and the Read Request header
// (RFC 5040 s4.4). Terminate is in wire/terminate.hpp, RFC 7306's headers are in wire/atomic.hpp.
//
//  control octet  |RV(2)|Rsv(2)|Opcode(4)|
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace rnic::wire {

// 12 to 15 are assigned to nothing (RFC 6580 s3.4); on acknowledged streams they are rnic's own (docs/wire.md s8.1).
enum class RdmapOpcode : std::uint8_t {
  write = 0,
  read_request = 1,
  read_response = 2,
  send = 3,
  send_invalidate = 4,
  send_se = 5,
  send_se_invalidate = 6,
  terminate = 7,
  immediate = 8,
  immediate_se = 9,
  atomic_request = 10,
  atomic_response = 11,
  acknowledge = 12,
  negative_acknowledge = 13,
  send_value = 14,  // Send with Immediate
  send_value_se = 15,
};

// Untagged queues.
namespace queue_number {
inline constexpr std::uint32_t kSend = 0;
inline constexpr std::uint32_t kReadRequest = 1;  // and Atomic Requests
inline constexpr std::uint32_t kTerminate = 2;
inline constexpr std::uint32_t kAtomicResponse = 3;
inline constexpr std::uint32_t kAcknowledge = 4;  // of acknowledged streams
}  // namespace queue_number

inline constexpr std::uint8_t kRdmapVersion = 1;

constexpr std::uint8_t rdmap_control(RdmapOpcode opcode) {
  return static_cast<std::uint8_t>((kRdmapVersion << 6) | static_cast<std::uint8_t>(opcode));
}
constexpr std::uint8_t rdmap_version(std::uint8_t control) { return static_cast<std::uint8_t>(control >> 6); }
// May be a value without a name.
constexpr RdmapOpcode rdmap_opcode(std::uint8_t control) { return static_cast<RdmapOpcode>(control & 0x0F); }
static_assert(rdmap_control(RdmapOpcode::send_se_invalidate) == 0x46);

// The payload of an RDMA Read Request, after the DDP header.
struct ReadRequestHeader {
  static constexpr std::size_t kSize = 28;

  Stag sink_stag{};
  std::uint64_t sink_to = 0;
  std::uint32_t size_bytes = 0;  // RDMARDSZ
  Stag source_stag{};
  std::uint64_t source_to = 0;

  constexpr bool operator==(const ReadRequestHeader&) const = default;
};

// Nothing when it is too short. That nothing may follow it (W-RDMAP-09) is the caller's to judge.
constexpr std::optional<ReadRequestHeader> parse_read_request(Bytes payload) {
  if (payload.size() < ReadRequestHeader::kSize) return std::nullopt;
  return ReadRequestHeader{.sink_stag = {load_be<std::uint32_t>(payload, 0)},
                           .sink_to = load_be<std::uint64_t>(payload, 4),
                           .size_bytes = load_be<std::uint32_t>(payload, 12),
                           .source_stag = {load_be<std::uint32_t>(payload, 16)},
                           .source_to = load_be<std::uint64_t>(payload, 20)};
}

constexpr void emit(const ReadRequestHeader& header, MutableBytes out) {
  store_be(out, 0, header.sink_stag.value);
  store_be(out, 4, header.sink_to);
  store_be(out, 12, header.size_bytes);
  store_be(out, 16, header.source_stag.value);
  store_be(out, 20, header.source_to);
}

namespace detail {
inline constexpr ReadRequestHeader kReadRequestExample{
    .sink_stag = {1}, .sink_to = 2, .size_bytes = 3, .source_stag = {4}, .source_to = 5};
constexpr bool read_request_is_parsed_back() {
  std::byte octets[ReadRequestHeader::kSize] = {};
  emit(kReadRequestExample, octets);
  return parse_read_request(octets) == kReadRequestExample;
}
}  // namespace detail
static_assert(detail::read_request_is_parsed_back());

}  // namespace rnic::wire
