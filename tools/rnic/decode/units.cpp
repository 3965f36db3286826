#include "decode/units.hpp"

#include <algorithm>
#include <array>

#include "mpa/meeting.hpp"
#include "rdmap/receiver.hpp"
#include "rdmap/terminate.hpp"
#include "wire/acknowledge.hpp"
#include "wire/atomic.hpp"
#include "wire/datagram.hpp"
#include "wire/ddp.hpp"
#include "wire/ib_mtu.hpp"
#include "wire/mark.hpp"
#include "wire/rdmap.hpp"

namespace rnic::tool {
namespace {

constexpr std::array<const char*, 16> kNames{"RDMA Write",
                                             "RDMA Read Request",
                                             "RDMA Read Response",
                                             "Send",
                                             "Send with Invalidate",
                                             "Send with SE",
                                             "Send with SE and Invalidate",
                                             "Terminate",
                                             "Immediate Data",
                                             "Immediate Data with SE",
                                             "Atomic Request",
                                             "Atomic Response",
                                             "Acknowledge",
                                             "Negative Acknowledge",
                                             "Send with Immediate",
                                             "Send with Immediate and SE"};

Json read_request_object(const wire::ReadRequestHeader& header) {
  return {{"sink_stag", header.sink_stag.value},
          {"sink_to", header.sink_to},
          {"size", header.size_bytes},
          {"source_stag", header.source_stag.value},
          {"source_to", header.source_to}};
}

// M, D and R as they stand on the wire, whether or not what they announce is there.
Json terminate_object(Bytes payload, const wire::TerminateMessage& message) {
  const auto bits = load_be<std::uint8_t>(payload, 2);
  Json object{{"layer", message.code.layer}, {"etype", message.code.type}, {"code", message.code.code},
              {"m", (bits & 0x80) != 0},     {"d", (bits & 0x40) != 0},    {"r", (bits & 0x20) != 0},
              {"segment_length", nullptr}};
  if (message.has_length) object["segment_length"] = message.segment_length;
  return object;
}

Json atomic_request_object(const wire::AtomicRequestHeader& header) {
  return {{"opcode", static_cast<unsigned>(header.opcode)},
          {"request_id", header.request_id},
          {"stag", header.stag.value},
          {"to", header.tagged_offset},
          {"data", header.data},
          {"mask", header.data_mask},
          {"compare", header.compare},
          {"compare_mask", header.compare_mask}};
}

// What stands behind the DDP header of a message that has a header of its own.
void add_message(Json& object, wire::RdmapOpcode opcode, Bytes payload) {
  switch (opcode) {
    case wire::RdmapOpcode::read_request:
      if (const auto header = wire::parse_read_request(payload)) object["read_request"] = read_request_object(*header);
      break;
    case wire::RdmapOpcode::terminate:
      if (const auto message = wire::parse_terminate(payload))
        object["terminate"] = terminate_object(payload, *message);
      break;
    case wire::RdmapOpcode::atomic_request:
      if (const auto header = wire::parse_atomic_request(payload))
        object["atomic_request"] = atomic_request_object(*header);
      break;
    case wire::RdmapOpcode::atomic_response:
      if (const auto header = wire::parse_atomic_response(payload))
        object["atomic_response"] = {{"request_id", header->request_id}, {"original", header->original}};
      break;
    case wire::RdmapOpcode::immediate:
    case wire::RdmapOpcode::immediate_se:
      if (wire::parse_immediate(payload)) object["immediate"] = to_hex(payload.first(wire::ImmediateHeader::kSize));
      break;
    case wire::RdmapOpcode::acknowledge:
      if (const auto header = wire::parse_acknowledge(payload))
        object["acknowledge"] = {{"performed", header->performed}, {"waits", header->waits}, {"timer", header->timer}};
      break;
    case wire::RdmapOpcode::negative_acknowledge:
      if (const auto header = wire::parse_negative_acknowledge(payload))
        object["negative_acknowledge"] = {{"request", header->request},
                                          {"layer", header->code >> 12},
                                          {"etype", header->code >> 8 & 0xF},
                                          {"code", header->code & 0xFF}};
      break;
    case wire::RdmapOpcode::send_value:
    case wire::RdmapOpcode::send_value_se:
    case wire::RdmapOpcode::write:
    case wire::RdmapOpcode::read_response:
    case wire::RdmapOpcode::send:
    case wire::RdmapOpcode::send_invalidate:
    case wire::RdmapOpcode::send_se:
    case wire::RdmapOpcode::send_se_invalidate:
      break;
  }
}

FormError refused(rdmap::Fault fault, std::string reason) { return {std::move(reason), rdmap::row(fault).code}; }

std::string count_of(std::size_t n, const char* of) { return std::to_string(n) + " " + of + (n == 1 ? "" : "s"); }

// The words for what rdmap::check_form() refuses.
FormError header_error(rdmap::Fault fault, Bytes ulpdu) {
  const auto ddp = wire::parse_ddp(ulpdu);
  if (!ddp) {
    return refused(fault, "the ULPDU has " + count_of(ulpdu.size(), "octet") +
                              ", fewer than a DDP header (14 if tagged, else 18)");
  }
  const wire::RdmapOpcode opcode = wire::rdmap_opcode(ddp->rdmap_control);
  const std::string name = kNames[static_cast<std::size_t>(opcode)];
  switch (fault) {
    case rdmap::Fault::ddp_version_tagged:
    case rdmap::Fault::ddp_version_untagged:
      return refused(fault, "DDP version " + std::to_string(ddp->version) + " where only 1 is known");
    case rdmap::Fault::rdmap_version:
      return refused(
          fault, "RDMAP version " + std::to_string(wire::rdmap_version(ddp->rdmap_control)) + " where only 1 is known");
    case rdmap::Fault::queue_number:
      return refused(fault, "queue " + std::to_string(ddp->queue) + " where 0 to 3 are known");
    default:
      if (ddp->tagged != (rdmap::message(opcode).model == rdmap::Model::tagged))
        return refused(fault, name + " in " + (ddp->tagged ? "a tagged" : "an untagged") + " segment");
      return refused(fault, name + " on queue " + std::to_string(ddp->queue));
  }
}

// A message of a fixed size in one segment.
std::optional<FormError> message_error(const rdmap::Inbound& in, Bytes payload) {
  rdmap::Fault size = rdmap::Fault::read_size, offset = rdmap::Fault::read_offset;
  using enum wire::RdmapOpcode;
  const wire::RdmapOpcode opcode = wire::rdmap_opcode(in.ddp.rdmap_control);
  switch (opcode) {
    case read_request:
    case atomic_request:
      break;
    case immediate:
    case immediate_se:
      size = rdmap::Fault::immediate_size, offset = rdmap::Fault::receive_offset;
      break;
    case atomic_response:
      size = rdmap::Fault::atomic_response_form, offset = rdmap::Fault::atomic_response_offset;
      break;
    case acknowledge:
    case negative_acknowledge:
      size = offset = rdmap::Fault::acknowledge_form;
      break;
    default:  // of any size; and any Terminate ends the connection (W-RDMAP-33, -35)
      return std::nullopt;
  }
  const std::string name = kNames[static_cast<std::size_t>(opcode)];
  if (in.ddp.message_offset != 0)
    return refused(offset, name + " with message offset " + std::to_string(in.ddp.message_offset) + ", not 0");
  if (payload.size() != in.message.header_bytes)
    return refused(size, name + " with " + count_of(payload.size(), "octet") + " behind the DDP header, not " +
                             std::to_string(in.message.header_bytes));
  if (!in.ddp.last) return refused(rdmap::Fault::not_last, name + " without the Last flag");
  if (opcode == atomic_request) {
    const auto operation = static_cast<unsigned>(wire::parse_atomic_request(payload)->opcode);
    // 1 is Swap in the draft, and reserved in RFC 7306.
    if (operation > 2)
      return refused(rdmap::Fault::unexpected_opcode,
                     "atomic operation " + std::to_string(operation) + " is unassigned");
  }
  return std::nullopt;
}

}  // namespace

std::string to_hex(Bytes octets) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(octets.size() * 2, '0');
  for (std::size_t i = 0; i < octets.size(); ++i) {
    text[2 * i] = kDigits[std::to_integer<unsigned>(octets[i]) >> 4];
    text[2 * i + 1] = kDigits[std::to_integer<unsigned>(octets[i]) & 0xF];
  }
  return text;
}

namespace {

const char* kind_name(wire::Mark::Kind kind) {
  switch (kind) {
    case wire::Mark::Kind::meeting:
      return "meeting";
    case wire::Mark::Kind::refusal:
      return "refusal";
    case wire::Mark::Kind::greeting:
      return "greeting";
    case wire::Mark::Kind::inquiry:
      return "inquiry";
    case wire::Mark::Kind::answer:
      return "answer";
    case wire::Mark::Kind::probe:
      return "probe";
  }
  return "";
}

// rnic's own mark in front of the consumer's private data.
Json mark_object(const wire::Mark& mark) {
  const bool refusal = mark.kind == wire::Mark::Kind::refusal;
  Json object{{"version", mark.version},
              {"kind", kind_name(mark.kind)},
              {"capabilities", mark.capabilities},
              {"face", mpa::face_of(mark) == Face::roce ? "roce" : "iwarp"},
              {"needed", mark.needed}};
  if (refusal) {
    object["reason"] = static_cast<unsigned>(mark.refusal);
    object["why"] = wire::in_words(mark.refusal);
    return object;
  }
  if (mark.kind == wire::Mark::Kind::greeting) {
    const wire::Greeting& greeting = mark.greeting;
    object["gid"] = wire::to_string(greeting.gid);
    object["qp"] = greeting.number.value;
    object["psn"] = greeting.psn;
    object["path_mtu"] = wire::ib_mtu_octets(greeting.path_mtu & 7u);
    object["srq"] = greeting.shared_receive;
    object["flow_control"] = greeting.flow_control;
    object["responder_resources"] = greeting.responder_resources;
    object["initiator_depth"] = greeting.initiator_depth;
    object["retry_count"] = greeting.retry_count;
    object["rnr_retry_count"] = greeting.rnr_retry_count;
    if (greeting.has_ece()) object["ece"] = {{"vendor", greeting.ece_vendor}, {"options", greeting.ece_options}};
    return object;
  }
  if (mark.kind == wire::Mark::Kind::inquiry) {
    object["port_space"] = mark.inquiry.port_space;
    object["port"] = mark.inquiry.port;
    object["own_port"] = mark.inquiry.own_port;
    return object;
  }
  if (mark.kind == wire::Mark::Kind::answer) {
    object["gid"] = wire::to_string(mark.answer.gid);
    object["qp"] = mark.answer.number.value;
    object["q_key"] = mark.answer.qkey;
    return object;
  }
  const wire::Meeting& meeting = mark.meeting;
  object["gid"] = wire::to_string(meeting.own_gid);
  object["qp"] = meeting.own_number.value;
  object["psn"] = meeting.own_psn ? Json(*meeting.own_psn) : Json(nullptr);
  object["peer_gid"] = wire::to_string(meeting.peer_gid);
  object["peer_qp"] = meeting.peer_number.value;
  object["peer_psn"] = meeting.due_psn;
  return object;
}

}  // namespace

Json startup_object(const wire::StartupHeader& header, Bytes private_data) {
  Json object{{"kind", "mpa"},          {"type", header.reply ? "reply" : "request"},
              {"rev", header.revision}, {"m", header.markers},
              {"c", header.crc},        {"r", header.rejected},
              {"s", header.enhanced},   {"pd_length", header.private_data_length}};
  for (const char* member : {"a", "b", "rtr_write", "rtr_read", "ird", "ord"}) object[member] = nullptr;
  if (const auto block = header.enhanced ? wire::parse_enhanced(private_data) : std::nullopt) {
    object["a"] = block->peer_to_peer;
    object["b"] = block->rtr_send;
    object["rtr_write"] = block->rtr_write;
    object["rtr_read"] = block->rtr_read;
    object["ird"] = block->ird;
    object["ord"] = block->ord;
    private_data = private_data.subspan(wire::EnhancedBlock::kSize);
  }
  if (const auto mark = wire::parse_mark(private_data)) {
    object["mark"] = mark_object(*mark);
    private_data = private_data.subspan(mark->length);
  }
  object["private_data"] = to_hex(private_data);
  return object;
}

Json fpdu_object(const FpduPlace& place, Bytes ulpdu) {
  Json object{{"kind", "fpdu"},         {"position", place.position},
              {"length", place.length}, {"ulpdu_length", ulpdu.size()},
              {"crc", place.crc},       {"markers", place.markers}};
  const auto ddp = wire::parse_ddp(ulpdu);
  const wire::RdmapOpcode opcode = ddp ? wire::rdmap_opcode(ddp->rdmap_control) : wire::RdmapOpcode{};
  Bytes payload = ulpdu;
  if (ddp) {
    payload = ulpdu.subspan(ddp->size());
    object["opcode"] = static_cast<unsigned>(opcode);
    object["name"] = kNames[static_cast<std::size_t>(opcode)];
    object["tagged"] = ddp->tagged;
    object["last"] = ddp->last;
    if (ddp->tagged) {
      object["stag"] = ddp->stag.value;
      object["to"] = ddp->tagged_offset;
    } else {
      object["qn"] = ddp->queue;
      object["msn"] = ddp->msn;
      object["mo"] = ddp->message_offset;
      const bool value = rdmap::message(opcode).value;
      object["invalidate_stag"] = value ? 0 : ddp->stag.value;
      if (value) object["immediate"] = ddp->stag.value;
    }
  }
  object["payload_length"] = payload.size();
  object["payload"] = to_hex(payload);
  if (ddp) add_message(object, opcode, payload);
  return object;
}

std::optional<Json> datagram_object(Bytes whole) {
  using wire::Datagram;
  if (whole.size() < Datagram::kSize || load_be<std::uint16_t>(whole, 0) != Datagram::kMagic) return std::nullopt;
  Json object;
  object["kind"] = "datagram";
  object["version"] = load_be<std::uint8_t>(whole, 2);
  const auto datagram = wire::parse_datagram(whole);
  if (!datagram) {
    const bool known = load_be<std::uint8_t>(whole, 2) == Datagram::kVersion;
    const bool fits = load_be<std::uint32_t>(whole, 20) == whole.size() - Datagram::kSize;
    object["error"] = !known ? "version" : !fits ? "length" : "crc";
    return object;
  }
  object["solicited"] = datagram->solicited;
  object["source_qp"] = datagram->source.value;
  object["destination_qp"] = datagram->destination.value;
  object["q_key"] = datagram->q_key;
  object["immediate"] = datagram->has_immediate ? Json(datagram->immediate) : Json();
  object["payload_length"] = datagram->length;
  object["payload"] = to_hex(whole.subspan(Datagram::kSize));
  return object;
}

Json error_object(std::uint64_t position, const std::string& reason, std::optional<wire::TerminateCode> code) {
  Json object{{"kind", "error"},  {"position", position}, {"reason", reason},
              {"layer", nullptr}, {"etype", nullptr},     {"code", nullptr}};
  if (code) {
    object["layer"] = code->layer;
    object["etype"] = code->type;
    object["code"] = code->code;
  }
  return object;
}

std::optional<FormError> form_error(Bytes ulpdu) {
  const Bytes head = ulpdu.first(std::min(ulpdu.size(), wire::kDdpHeaderSizeMax));
  // Of acknowledged streams are only those opcodes that are assigned to nothing elsewhere.
  const bool own =
      ulpdu.size() > 1 && wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu[1])) >= wire::RdmapOpcode::acknowledge;
  const auto known = own ? rdmap::Extensions::all : rdmap::Extensions::on;
  const auto in = rdmap::check_form(head, static_cast<std::uint32_t>(ulpdu.size()), known);
  if (!in) return header_error(in.error(), ulpdu);
  return message_error(*in, ulpdu.subspan(in->ddp.size()));
}

}  // namespace rnic::tool
