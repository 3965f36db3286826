// What goes wrong on a stream, and what of it goes on the wire: THE table of Terminate codes
// (wire.md s3.4, verbs.md s9). Holds to RFC 5040 s4.8 and s7, RFC 5041 s7.2, RFC 5044 s8.
//
// Read wire.md s3.4 before changing a row: a difference between the two is a bug.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "tpt/table.hpp"
#include "wire/terminate.hpp"

namespace rnic::rdmap {

// In the order of the table in terminate.cpp.
enum class Fault : std::uint8_t {
  // LLP
  segment_size,
  crc,
  bad_fpdu,
  // versions, opcodes, queues
  ddp_version_tagged,
  ddp_version_untagged,
  rdmap_version,
  unexpected_opcode,
  queue_number,
  reads_disabled,
  writes_disabled,
  // tagged placement
  tagged_invalid_stag,
  tagged_bounds,
  tagged_access,
  tagged_association,
  tagged_wrap,
  // queue 0
  receive_no_buffer,
  receive_msn_range,
  receive_msn_gap,
  receive_offset,
  receive_too_long,
  // queue 1
  read_too_many,
  read_msn_gap,
  read_msn_range,
  read_offset,
  read_size,
  not_last,
  read_invalid_stag,
  read_bounds,
  read_access,
  read_association,
  read_wrap,
  // RFC 7306
  immediate_size,
  atomic_invalid_stag,
  atomic_bounds,
  atomic_access,
  atomic_association,
  atomic_wrap,
  atomic_alignment,
  // queue 3
  atomic_response_no_request,
  atomic_response_msn,
  atomic_response_offset,
  atomic_response_form,
  // queue 4, of acknowledged streams
  acknowledge_msn,
  acknowledge_form,
  acknowledge_range,
  // Send with Invalidate
  invalidate_invalid_stag,
  invalidate_access,
  invalidate_refused,
  // not tied to a message that came in
  local_work,   // a work request of either queue: its completion tells
  by_consumer,  // Modify -> Terminate
  bad_llp_close,
  cq_of_sends,
  cq_of_receives,
  srq,
  catastrophic,
  count,
};

// What of the message at fault is copied.
enum class Copied : std::uint8_t { nothing, ddp_header, ddp_and_read_request };

// How the consumer hears: by an event, or by the completion of the work request at fault.
enum class Told : std::uint8_t { event, completion, nobody };

struct FaultRow {
  wire::TerminateCode code;
  Copied copied = Copied::nothing;
  Told told = Told::event;
  std::uint8_t event = 0;  // V-AE-NN
};

const FaultRow& row(Fault fault);

// From the TPT's refusals to the faults of each use.
Fault tagged_fault(tpt::Refusal refusal);
Fault read_fault(tpt::Refusal refusal);
Fault atomic_fault(tpt::Refusal refusal);
Fault invalidate_fault(tpt::Refusal refusal);

// The message at fault, as far as it is to be copied.
struct Culprit {
  std::array<std::byte, wire::kDdpHeaderSizeMax + wire::ReadRequestHeader::kSize> octets{};
  std::uint32_t size = 0;            // of `octets` that hold something
  std::uint32_t segment_length = 0;  // of its ULPDU
};

// The Terminate's payload for this fault: M, D and R as the row says and as far as `culprit` has
// the octets (W-RDMAP-25, -26, -28).
wire::TerminateMessage terminate_message(Fault fault, const Culprit& culprit);

// A Read Request that was partly answered: its header says what is left (W-RDMAP-27).
void advance_read_request(Culprit& request, std::uint32_t sent_bytes);

}  // namespace rnic::rdmap
