#include "rdmap/early_placer.hpp"

#include <algorithm>

#include "rdmap/sinks.hpp"

namespace rnic::rdmap {

Result<std::optional<tpt::Access>, Fault> EarlyPlacer::target(const ddp::Ulpdu& ulpdu) {
  std::array<std::byte, wire::kDdpHeaderSizeMax> head;
  const auto in = check_form(ulpdu.head(head), ulpdu.size, extensions(common_.settings.extensions, acknowledged_));
  if (!in) return Failure{in.error()};
  const std::uint32_t body = in->payload - (in->ddp.last ? std::min(in->payload, ddp::kTailBytes) : 0);
  if (!in->ddp.tagged || body == 0) return std::optional<tpt::Access>{};
  const bool response = in->message.operation == Operation::read_response;
  const OutboundRead* const read = response ? read_answered(*in) : nullptr;
  if (response && read == nullptr) return Failure{Fault::tagged_bounds};
  const auto access = response ? check_response(common_, *read, *in) : check_sink(common_, *in);
  if (!access) return Failure{access.error()};
  return std::optional(ddp::slice(*access, 0, body));
}

std::uint32_t EarlyPlacer::place(const ddp::Ulpdu& ulpdu, const tpt::Access& to, std::uint64_t position) {
  const std::uint32_t slot = early_.add(position, to);
  ddp::Payload payload(ulpdu.spans, wire::TaggedHeader::kSize);
  ddp::Placement placement;
  ddp::place(common_.mover, payload, to, ddp::Ends::nothing, {&common_.owner, token::kEarly | slot}, placement);
  early_[slot].again |= placement.failed;
  common_.moves.places += placement.later;
  early_.moves_later(slot, placement.later);
  return placement.later;
}

// The Read outstanding of which these octets are left; or null. Whether it is its turn, and that none is
// missing, is checked in order (W-RDMAP-14).
const OutboundRead* EarlyPlacer::read_answered(const Inbound& in) {
  for (std::uint32_t i = 0; i != reads_.due(); ++i) {
    const OutboundRead& read = reads_.due_at(i);
    const std::uint64_t offset = in.ddp.tagged_offset - read.next_to;
    if (!read.atomic && in.ddp.stag == read.sink.stag && offset <= read.left && in.payload <= read.left - offset)
      return &read;
  }
  return nullptr;
}

}  // namespace rnic::rdmap
