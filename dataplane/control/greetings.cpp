#include "control/greetings.hpp"

#include <algorithm>
#include <cstring>

#include "mpa/meeting.hpp"

namespace rnic::control {
namespace {

constexpr std::uint32_t kQpsInit = 1, kQpsRtr = 2, kQpsRts = 3;  // enum ibv_qp_state

core::PrivateData with_mark(const wire::Mark& mark, Bytes consumers) {
  core::PrivateData data;
  const std::size_t size = wire::emit(mark, data.octets);
  const std::size_t room = std::min(consumers.size(), data.octets.size() - size);
  std::copy_n(consumers.begin(), room, data.octets.begin() + static_cast<std::ptrdiff_t>(size));
  data.length = static_cast<std::uint16_t>(size + room);
  return data;
}

// Of a RoCE face, for one.
wire::Mark mark_of(wire::Mark::Kind kind) {
  wire::Mark mark;
  mark.kind = kind;
  mark.capabilities = mark.needed = mpa::mark_capabilities(Face::roce);
  return mark;
}

// Nothing: it is none of that kind, or no RoCE face's.
std::optional<wire::Mark> mark_in(Bytes private_data, wire::Mark::Kind kind) {
  const auto mark = wire::parse_mark(private_data);
  if (!mark || mark->kind != kind || mpa::unfit(Face::roce, *mark)) return std::nullopt;
  return mark;
}

}  // namespace

core::PrivateData greeting_data(const wire::Greeting& greeting, Bytes consumers) {
  wire::Mark mark = mark_of(wire::Mark::Kind::greeting);
  mark.greeting = greeting;
  return with_mark(mark, consumers);
}

core::PrivateData inquiry_data(const wire::Inquiry& inquiry, Bytes consumers) {
  wire::Mark mark = mark_of(wire::Mark::Kind::inquiry);
  mark.inquiry = inquiry;
  return with_mark(mark, consumers);
}

core::PrivateData answer_data(const wire::Answer& answer, Bytes consumers) {
  wire::Mark mark = mark_of(wire::Mark::Kind::answer);
  mark.answer = answer;
  return with_mark(mark, consumers);
}

core::PrivateData refusal_data(Face face, wire::MarkRefusal why, Bytes consumers) {
  wire::Mark mark;
  if (face == Face::roce) mark.capabilities = mpa::mark_capabilities(face);
  mark.kind = wire::Mark::Kind::refusal;
  mark.refusal = why;
  return with_mark(mark, consumers);
}

std::optional<wire::Greeting> greeting_in(Bytes private_data) {
  const auto mark = mark_in(private_data, wire::Mark::Kind::greeting);
  return mark ? std::optional(mark->greeting) : std::nullopt;
}

std::optional<wire::Answer> answer_in(Bytes private_data) {
  const auto mark = mark_in(private_data, wire::Mark::Kind::answer);
  return mark ? std::optional(mark->answer) : std::nullopt;
}

bool is_inquiry(Bytes private_data) {
  const auto mark = wire::parse_mark(private_data);
  return mark && mark->kind == wire::Mark::Kind::inquiry;
}

Bytes behind_mark(Bytes private_data) {
  const auto mark = wire::parse_mark(private_data);
  return mark ? private_data.subspan(mark->length) : Bytes{};
}

int reject_reason_in(Bytes private_data) {
  const auto mark = wire::parse_mark(private_data);
  if (!mark || mark->kind != wire::Mark::Kind::refusal) return reject_reason::kOtherTransport;
  switch (mark->refusal) {
    case wire::MarkRefusal::its_own_wish:
      return reject_reason::kConsumer;
    case wire::MarkRefusal::other_ece:
      return reject_reason::kVendorOption;
    case wire::MarkRefusal::nobody:
    case wire::MarkRefusal::no_such_queue_pair:
    case wire::MarkRefusal::not_ready:
      return reject_reason::kNobodyListens;
    case wire::MarkRefusal::busy:
      return reject_reason::kNoResources;
    case wire::MarkRefusal::other_face:
      return reject_reason::kOtherTransport;
    case wire::MarkRefusal::not_the_peer:
      return reject_reason::kInvalidGid;
    case wire::MarkRefusal::not_able:
    case wire::MarkRefusal::there:
    case wire::MarkRefusal::unknown:
      break;
  }
  return reject_reason::kUnsupported;
}

int inquiry_status_in(Bytes private_data) {
  const auto mark = wire::parse_mark(private_data);
  if (!mark || mark->kind != wire::Mark::Kind::refusal) return inquiry_status::kUnsupportedVersion;
  switch (mark->refusal) {
    case wire::MarkRefusal::its_own_wish:
      return inquiry_status::kRejected;
    case wire::MarkRefusal::busy:
      return inquiry_status::kNoQueuePair;
    case wire::MarkRefusal::nobody:
    case wire::MarkRefusal::no_such_queue_pair:
    case wire::MarkRefusal::not_the_peer:
    case wire::MarkRefusal::not_ready:
    case wire::MarkRefusal::other_face:
    case wire::MarkRefusal::other_ece:
    case wire::MarkRefusal::not_able:
    case wire::MarkRefusal::there:
    case wire::MarkRefusal::unknown:
      break;
  }
  return inquiry_status::kUnsupported;
}

void fill_private_data(rnic_cm_parameters& to, Bytes consumers, std::size_t filled_up) {
  to.valid = 1;
  to.private_data_length = static_cast<std::uint16_t>(filled_up);
  std::memset(to.private_data, 0, sizeof to.private_data);
  if (!consumers.empty()) std::memcpy(to.private_data, consumers.data(), std::min(consumers.size(), filled_up));
}

void fill(rnic_cm_parameters& to, const wire::Greeting& peer, Bytes consumers, std::size_t filled_up) {
  fill_private_data(to, consumers, filled_up);
  to.qp_number = peer.number.value;
  to.srq = peer.shared_receive ? 1 : 0;
  // Of the other side's.
  to.responder_resources = peer.initiator_depth;
  to.initiator_depth = peer.responder_resources;
  to.flow_control = peer.flow_control ? 1 : 0;
  to.retry_count = peer.retry_count;
  to.rnr_retry_count = peer.rnr_retry_count;
  to.ece_vendor = peer.ece_vendor;
  to.ece_options = peer.ece_options;
}

void fill(wire::Greeting& to, const rnic_cm_parameters& own) {
  constexpr std::uint8_t kRetriesMax = 7;
  to.number = {own.qp_number & wire::Meeting::kNumberMask};
  to.shared_receive = own.srq != 0;
  to.flow_control = own.flow_control != 0;
  to.responder_resources = own.responder_resources;
  to.initiator_depth = own.initiator_depth;
  to.retry_count = std::min(own.retry_count, kRetriesMax);
  to.rnr_retry_count = std::min(own.rnr_retry_count, kRetriesMax);
  to.ece_vendor = own.ece_vendor & wire::Meeting::kNumberMask;
  to.ece_options = own.ece_options;
}

std::optional<rnic_cm_init_qp_attributes_reply> attributes_for(std::uint32_t state, const Acquaintance* known) {
  rnic_cm_init_qp_attributes_reply reply{};
  reply.state = state;
  reply.mask = RNIC_CM_ATTRIBUTES_STATE;
  if (state == kQpsInit) {
    reply.mask |= RNIC_CM_ATTRIBUTES_ACCESS | RNIC_CM_ATTRIBUTES_INIT;
    if (known == nullptr) return reply;
    reply.access = RNIC_ACCESS_REMOTE_WRITE;
    const std::uint8_t answers = known->calls ? known->own.responder_resources : known->peer.initiator_depth;
    if (answers != 0) reply.access |= RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_ATOMIC;
    return reply;
  }
  if ((state != kQpsRtr && state != kQpsRts) || known == nullptr || known->peer.number.value == 0) return std::nullopt;
  const Acquaintance& of = *known;
  reply.mask |= state == kQpsRtr ? RNIC_CM_ATTRIBUTES_RTR : RNIC_CM_ATTRIBUTES_RTS;
  reply.peer_number = of.peer.number.value;
  reply.receive_psn = of.own.psn;
  reply.send_psn = of.peer.psn;
  reply.gid_index = of.gid_index;
  reply.path_mtu = std::min(of.own.path_mtu, of.peer.path_mtu);
  reply.responder_resources = of.peer.initiator_depth;
  reply.initiator_depth = of.peer.responder_resources;
  reply.timeout = of.timeout.value_or(kPathLifeTime + 1);
  reply.retry_count = of.calls ? of.own.retry_count : of.peer.retry_count;  // the caller's, for both
  reply.rnr_retry = of.peer.rnr_retry_count;                                // each its peer's
  reply.traffic_class = of.traffic_class;
  reply.hop_limit = kHopLimit;
  std::memcpy(reply.peer_gid, of.peer.gid.octets().data(), sizeof reply.peer_gid);
  return reply;
}

}  // namespace rnic::control
