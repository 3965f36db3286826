// The messages we send, as DDP messages (RFC 5040 s4, s5): the opcode row and the header fields of
// each. MSNs are counted here: one message sequence for each untagged queue (W-DDP-05).
#pragma once

#include <array>
#include <cstdint>

#include "ddp/segmenter.hpp"
#include "rdmap/messages.hpp"
#include "wire/rdmap.hpp"

namespace rnic::rdmap {

class Sender {
 public:
  ddp::OutboundMessage send(bool solicited, bool invalidates, Stag invalidate, std::uint32_t length) {
    return untagged(send_opcode(solicited, invalidates), invalidates ? invalidate : Stag{}, length);
  }
  static ddp::OutboundMessage write(Stag sink, std::uint64_t to, std::uint32_t length) {
    return tagged(wire::RdmapOpcode::write, sink, to, length);
  }
  // Its payload is the 28 octets of the request.
  ddp::OutboundMessage read_request() {
    return untagged(wire::RdmapOpcode::read_request, {}, wire::ReadRequestHeader::kSize);
  }
  // Sink STag and TO as the request has them, not interpreted (W-RDMAP-13).
  static ddp::OutboundMessage read_response(Stag sink, std::uint64_t to, std::uint32_t length) {
    return tagged(wire::RdmapOpcode::read_response, sink, to, length);
  }
  // RFC 7306: the payload of each is its header (s4, s6.3).
  ddp::OutboundMessage immediate(bool solicited) {
    return untagged(solicited ? wire::RdmapOpcode::immediate_se : wire::RdmapOpcode::immediate, {},
                    wire::ImmediateHeader::kSize);
  }
  ddp::OutboundMessage atomic_request() {
    return untagged(wire::RdmapOpcode::atomic_request, {}, wire::AtomicRequestHeader::kSize);
  }
  ddp::OutboundMessage atomic_response() {
    return untagged(wire::RdmapOpcode::atomic_response, {}, wire::AtomicResponseHeader::kSize);
  }
  // Of acknowledged streams: the value stands where the STag to invalidate would.
  ddp::OutboundMessage send_value(bool solicited, std::uint32_t value, std::uint32_t length) {
    return untagged(solicited ? wire::RdmapOpcode::send_value_se : wire::RdmapOpcode::send_value, {value}, length);
  }
  ddp::OutboundMessage acknowledge() {
    return untagged(wire::RdmapOpcode::acknowledge, {}, wire::AcknowledgeHeader::kSize);
  }
  ddp::OutboundMessage negative_acknowledge() {
    return untagged(wire::RdmapOpcode::negative_acknowledge, {}, wire::NegativeAcknowledgeHeader::kSize);
  }
  // The only one of its queue, however often it is built before it leaves (W-RDMAP-29).
  ddp::OutboundMessage terminate(std::uint32_t length) {
    msn_[wire::queue_number::kTerminate] = 1;
    return untagged(wire::RdmapOpcode::terminate, {}, length);
  }

 private:
  static ddp::OutboundMessage tagged(wire::RdmapOpcode opcode, Stag stag, std::uint64_t to, std::uint32_t length) {
    return {.tagged = true, .rdmap_control = wire::rdmap_control(opcode), .stag = stag, .to = to, .length = length};
  }
  ddp::OutboundMessage untagged(wire::RdmapOpcode opcode, Stag invalidate, std::uint32_t length) {
    const std::uint32_t queue = message(opcode).queue;
    return {.tagged = false,
            .rdmap_control = wire::rdmap_control(opcode),
            .stag = invalidate,
            .queue = queue,
            .msn = msn_[queue]++,
            .length = length};
  }
  std::array<std::uint32_t, 5> msn_{1, 1, 1, 1, 1};
};

}  // namespace rnic::rdmap
