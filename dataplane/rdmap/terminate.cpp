#include "rdmap/terminate.hpp"

#include <algorithm>
#include <cstring>

namespace rnic::rdmap {
namespace {

using namespace wire::terminate_code;
using enum Copied;
using enum Told;

constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::count);

constexpr std::array<FaultRow, kFaults> kRows{{
    // LLP: never a header (W-RDMAP-28).
    {kDdpLocalCatastrophic, nothing, event, 5},                   // segment_size
    {kMpaCrc, nothing, event, 6},                                 // crc
    {kMpaMarker, nothing, event, 7},                              // bad_fpdu
    {kTaggedDdpVersion, ddp_header, event, 8},                    // ddp_version_tagged
    {kUntaggedDdpVersion, ddp_header, event, 8},                  // ddp_version_untagged
    {kOperationRdmapVersion, ddp_header, event, 9},               // rdmap_version
    {kOperationUnexpectedOpcode, ddp_header, event, 10},          // unexpected_opcode
    {kUntaggedQueueNumber, ddp_header, event, 11},                // queue_number
    {kUntaggedQueueNumber, ddp_header, event, 12},                // reads_disabled (V-EH-23)
    {kTaggedNotAssociated, ddp_header, event, 13},                // writes_disabled (V-EH-24)
    {kTaggedInvalidStag, ddp_header, event, 16},                  // tagged_invalid_stag
    {kTaggedBaseOrBounds, ddp_header, event, 17},                 // tagged_bounds
    {kTaggedNotAssociated, ddp_header, event, 18},                // tagged_access: DDP has no such code (V-EH-14)
    {kTaggedNotAssociated, ddp_header, event, 19},                // tagged_association
    {kTaggedToWrap, ddp_header, event, 20},                       // tagged_wrap
    {kUntaggedNoBuffer, ddp_header, event, 23},                   // receive_no_buffer
    {kUntaggedMsnRange, ddp_header, event, 23},                   // receive_msn_range
    {kUntaggedMsnRange, ddp_header, event, 24},                   // receive_msn_gap
    {kUntaggedMessageOffset, ddp_header, event, 23},              // receive_offset
    {kUntaggedTooLong, ddp_header, completion, 0},                // receive_too_long (V-EH-20)
    {kUntaggedMsnRange, ddp_header, event, 25},                   // read_too_many (W-RDMAP-20)
    {kUntaggedMsnRange, ddp_header, event, 26},                   // read_msn_gap
    {kUntaggedMsnRange, ddp_header, event, 27},                   // read_msn_range
    {kUntaggedMessageOffset, ddp_header, event, 14},              // read_offset (V-EH-25)
    {kOperationCatastrophicStream, ddp_header, event, 14},        // read_size (V-EH-25)
    {kOperationCatastrophicStream, ddp_header, event, 15},        // not_last (V-EH-26)
    {kProtectionInvalidStag, ddp_and_read_request, event, 28},    // read_invalid_stag
    {kProtectionBaseOrBounds, ddp_and_read_request, event, 29},   // read_bounds
    {kProtectionAccessRights, ddp_and_read_request, event, 30},   // read_access
    {kProtectionNotAssociated, ddp_and_read_request, event, 31},  // read_association
    {kProtectionToWrap, ddp_and_read_request, event, 32},         // read_wrap
    // Never the RDMA header (RFC 7306 s8.1, W-EXT-15).
    {kOperationCatastrophicStream, ddp_header, event, 14},     // immediate_size (W-EXT-11)
    {kProtectionInvalidStag, ddp_header, event, 28},           // atomic_invalid_stag
    {kProtectionBaseOrBounds, ddp_header, event, 29},          // atomic_bounds
    {kProtectionAccessRights, ddp_header, event, 30},          // atomic_access
    {kProtectionNotAssociated, ddp_header, event, 31},         // atomic_association
    {kProtectionToWrap, ddp_header, event, 32},                // atomic_wrap
    {kOperationCatastrophicStream, ddp_header, event, 14},     // atomic_alignment (RFC 7306 s8.2)
    {kUntaggedNoBuffer, ddp_header, event, 23},                // atomic_response_no_request
    {kUntaggedMsnRange, ddp_header, event, 23},                // atomic_response_msn
    {kUntaggedMessageOffset, ddp_header, event, 23},           // atomic_response_offset
    {kOperationCatastrophicStream, ddp_header, event, 14},     // atomic_response_form (W-EXT-07)
    {kUntaggedMsnRange, ddp_header, event, 23},                // acknowledge_msn
    {kOperationCatastrophicStream, ddp_header, event, 14},     // acknowledge_form
    {kOperationCatastrophicStream, ddp_header, event, 14},     // acknowledge_range: of what was never asked (W-ACK-09)
    {kProtectionInvalidStag, ddp_header, completion, 0},       // invalidate_invalid_stag
    {kProtectionAccessRights, ddp_header, completion, 0},      // invalidate_access
    {kProtectionCannotInvalidate, ddp_header, completion, 0},  // invalidate_refused (V-EH-34, -35)
    {kRdmapLocalCatastrophic, nothing, completion, 0},         // local_work
    {kRdmapLocalCatastrophic, nothing, nobody, 0},             // by_consumer (V-TERM-08)
    {kOperationCatastrophicStream, nothing, event, 22},        // bad_llp_close
    {kOperationCatastrophicStream, nothing, event, 33},        // cq_of_sends
    {kOperationCatastrophicStream, nothing, event, 34},        // cq_of_receives
    {kOperationCatastrophicStream, nothing, event, 35},        // srq
    {kOperationCatastrophicStream, nothing, event, 36},        // catastrophic
}};

constexpr const FaultRow& at(Fault fault) { return kRows[static_cast<std::size_t>(fault)]; }
static_assert(at(Fault::catastrophic).event == 36, "the rows are in the order of Fault");
static_assert(at(Fault::bad_llp_close).code.word() == 0x0207);               // V-EH-03
static_assert(at(Fault::writes_disabled).event == 13);                       // V-EH-24
static_assert(at(Fault::read_invalid_stag).copied == ddp_and_read_request);  // W-RDMAP-26
static_assert(at(Fault::atomic_alignment).code.word() == 0x0207);            // RFC 7306 s8.2
static_assert(at(Fault::receive_too_long).code.word() == 0x1205);            // V-EH-20
static_assert(at(Fault::invalidate_refused).code.word() == 0x0109);          // V-EH-34

}  // namespace

const FaultRow& row(Fault fault) { return at(fault); }

Fault tagged_fault(tpt::Refusal refusal) {
  switch (refusal) {
    case tpt::Refusal::invalid_stag:
    case tpt::Refusal::window:
    case tpt::Refusal::invalid_window:
    case tpt::Refusal::invalid_region:
    case tpt::Refusal::not_invalid:
    case tpt::Refusal::cannot_invalidate:
      return Fault::tagged_invalid_stag;
    case tpt::Refusal::not_associated:
      return Fault::tagged_association;
    case tpt::Refusal::access_rights:
      return Fault::tagged_access;
    case tpt::Refusal::to_wrap:
      return Fault::tagged_wrap;
    case tpt::Refusal::base_or_bounds:
      return Fault::tagged_bounds;
  }
  return Fault::tagged_invalid_stag;
}

Fault read_fault(tpt::Refusal refusal) {
  switch (refusal) {
    case tpt::Refusal::invalid_stag:
    case tpt::Refusal::window:
    case tpt::Refusal::invalid_window:
    case tpt::Refusal::invalid_region:
    case tpt::Refusal::not_invalid:
    case tpt::Refusal::cannot_invalidate:
      return Fault::read_invalid_stag;
    case tpt::Refusal::not_associated:
      return Fault::read_association;
    case tpt::Refusal::access_rights:
      return Fault::read_access;
    case tpt::Refusal::to_wrap:
      return Fault::read_wrap;
    case tpt::Refusal::base_or_bounds:
      return Fault::read_bounds;
  }
  return Fault::read_invalid_stag;
}

Fault atomic_fault(tpt::Refusal refusal) {
  switch (read_fault(refusal)) {
    case Fault::read_bounds:
      return Fault::atomic_bounds;
    case Fault::read_access:
      return Fault::atomic_access;
    case Fault::read_association:
      return Fault::atomic_association;
    case Fault::read_wrap:
      return Fault::atomic_wrap;
    default:
      return Fault::atomic_invalid_stag;
  }
}

Fault invalidate_fault(tpt::Refusal refusal) {
  switch (refusal) {
    case tpt::Refusal::invalid_stag:
      return Fault::invalidate_invalid_stag;
    case tpt::Refusal::access_rights:
      return Fault::invalidate_access;
    case tpt::Refusal::not_associated:
    case tpt::Refusal::cannot_invalidate:
    case tpt::Refusal::window:
    case tpt::Refusal::invalid_window:
    case tpt::Refusal::invalid_region:
    case tpt::Refusal::not_invalid:
    case tpt::Refusal::to_wrap:
    case tpt::Refusal::base_or_bounds:
      return Fault::invalidate_refused;
  }
  return Fault::invalidate_refused;
}

wire::TerminateMessage terminate_message(Fault fault, const Culprit& culprit) {
  const FaultRow& of = at(fault);
  wire::TerminateMessage message;
  message.code = of.code;
  if (of.copied == nothing || culprit.size < wire::TaggedHeader::kSize) return message;

  const bool tagged = (std::to_integer<unsigned>(culprit.octets[0]) & wire::ddp_control::kTagged) != 0;
  const std::size_t header = tagged ? wire::TaggedHeader::kSize : wire::UntaggedHeader::kSize;
  if (culprit.size < header) return message;
  message.has_length = true;
  message.segment_length = static_cast<std::uint16_t>(culprit.segment_length);
  message.ddp_header_size = static_cast<std::uint8_t>(header);
  std::copy_n(culprit.octets.begin(), header, message.ddp_header.begin());

  if (of.copied != ddp_and_read_request || culprit.size < header + wire::ReadRequestHeader::kSize) return message;
  message.has_read_request = true;
  std::memcpy(message.read_request.data(), culprit.octets.data() + header, wire::ReadRequestHeader::kSize);
  return message;
}

void advance_read_request(Culprit& request, std::uint32_t sent_bytes) {
  if (request.size < wire::UntaggedHeader::kSize + wire::ReadRequestHeader::kSize) return;
  const MutableBytes body = MutableBytes(request.octets).subspan(wire::UntaggedHeader::kSize);
  auto header = wire::parse_read_request(body);
  if (!header) return;
  header->sink_to += sent_bytes;
  header->source_to += sent_bytes;
  header->size_bytes -= sent_bytes;
  wire::emit(*header, body);
}

}  // namespace rnic::rdmap
