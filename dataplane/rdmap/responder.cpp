// ULPDUs -> checks -> placements -> deliveries. Long, as it is the checks of every message in their order, a function
// for each; how the codes follow from it is read in one place.
#include "rdmap/responder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdmap/sinks.hpp"
#include "rdmap/status.hpp"
#include "wire/atomic.hpp"

namespace rnic::rdmap {
namespace {

constexpr std::size_t kHeadSize = wire::UntaggedHeader::kSize + wire::AtomicRequestHeader::kSize;

// The whole payload of a message whose form was checked.
template <std::size_t kSize>
std::array<std::byte, kSize> copy_payload(const Inbound& in, const ddp::Ulpdu& ulpdu) {
  std::array<std::byte, kSize> octets;
  ddp::Payload payload(ulpdu.spans, in.ddp.size());
  for (std::size_t done = 0; done != kSize;) {
    const Bytes piece = payload.take(kSize - done);
    std::memcpy(octets.data() + done, piece.data(), piece.size());
    done += piece.size();
  }
  return octets;
}

// The packet table: who takes a message whose form is good. False: it has to wait.
using Receive = bool (*)(Responder&, const Inbound&, Arrival&);
template <auto kTaker>
bool taken_by(Responder& responder, const Inbound& in, Arrival& at) {
  return (responder.*kTaker)(in, at);
}
struct PacketTable {
  std::array<Receive, kOperations> takers{};
  std::size_t rows = 0;
};
constexpr PacketTable kPacketTable = [] {
  PacketTable table;
  const auto row = [&](Operation operation, Receive taken) {
    table.takers[static_cast<std::size_t>(operation)] = taken;
    ++table.rows;
  };
  row(Operation::write, taken_by<&Responder::on_write>);
  row(Operation::read_request, taken_by<&Responder::on_request>);
  row(Operation::read_response, taken_by<&Responder::on_read_response>);
  row(Operation::send, taken_by<&Responder::on_send>);
  row(Operation::terminate, taken_by<&Responder::on_terminate>);
  row(Operation::immediate, taken_by<&Responder::on_immediate>);
  row(Operation::atomic_request, taken_by<&Responder::on_request>);
  row(Operation::atomic_response, taken_by<&Responder::on_atomic_response>);
  row(Operation::acknowledge, taken_by<&Responder::on_acknowledge>);
  row(Operation::negative_acknowledge, taken_by<&Responder::on_acknowledge>);
  return table;
}();
static_assert(kPacketTable.rows == kOperations - 1, "a row for each, but for none");

}  // namespace

// ---- in --------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline bool Responder::dispatch(Arrival& at, const Place& place) {
  std::array<std::byte, wire::kDdpHeaderSizeMax> head;
  const auto in = check_form(at.ulpdu.head(head), at.ulpdu.size, known_);
  if (!in) {
    refuse(in.error(), at.ulpdu, at.verdict);
    return true;
  }

  Delivery& delivery = deliveries_.start();
  delivery.end = place.end;
  delivery.held_mark = at.held_mark;
  delivery.stored = place.stored;
  if (acknowledgements_ != nullptr) [[unlikely]]
    note_arrival(*in, at, delivery);
  return kPacketTable.takers[static_cast<std::size_t>(in->message.operation)](*this, *in, at);
}

bool Responder::take(const ddp::Ulpdu& ulpdu, const Place& place, Instant now, Verdict& verdict) {
  Early::Placed* const early = early_ != nullptr ? early_->find(place.position) : nullptr;
  if (early != nullptr) [[unlikely]] {
    if (early->moves != 0) return false;
    placed_early_ = early->again ? 0 : early->to.length;
    early_->drop(*early);
  }
  Arrival at{ulpdu, 0, now, verdict};
  const bool taken = dispatch(at, place);
  placed_early_ = 0;
  if (taken) none_yet_ = false;
  return taken;
}

// Whatever else it says, it ends the connection (W-RDMAP-33, -35). It goes to a buffer of its own, which
// no receive queue and no limit has a part in (W-RDMAP-66).
bool Responder::on_terminate(const Inbound& in, Arrival& at) {
  ddp::Payload payload(at.ulpdu.spans, in.ddp.size());
  terminate_size_ = 0;
  std::uint32_t left = std::min<std::uint32_t>(in.payload, static_cast<std::uint32_t>(terminate_.size()));
  while (left != 0) {
    const Bytes piece = payload.take(left);
    std::memcpy(terminate_.data() + terminate_size_, piece.data(), piece.size());
    terminate_size_ += static_cast<std::uint32_t>(piece.size());
    left -= static_cast<std::uint32_t>(piece.size());
  }
  deliveries_.next().act = Delivery::Act::terminate;
  stopped_ = true;
  finish(at.verdict);
  return true;
}

bool Responder::take_if_terminate(const ddp::Ulpdu& ulpdu, Verdict& verdict) {
  std::array<std::byte, wire::kDdpHeaderSizeMax> head;
  const auto in = check_form(ulpdu.head(head), ulpdu.size, Extensions::off);
  if (!in || in->message.operation != Operation::terminate) return false;
  deliveries_.start();
  Arrival at{ulpdu, 0, {}, verdict};
  on_terminate(*in, at);
  return true;
}

bool Responder::brings_nothing(const ddp::Ulpdu& ulpdu) const {
  if (acknowledgements_ != nullptr) {
    std::array<std::byte, wire::kDdpHeaderSizeMax> head;
    const auto in = check_form(ulpdu.head(head), ulpdu.size, known_);
    if (in && in->message.operation == Operation::acknowledge) return true;
  }
  if (ulpdu.size != wire::TaggedHeader::kSize) return false;
  std::array<std::byte, wire::TaggedHeader::kSize> octets;
  ulpdu.copy_head(octets);
  const auto header = wire::parse_tagged(octets);
  return header && wire::rdmap_opcode(header->rdmap_control) == wire::RdmapOpcode::write && header->last;
}

void Responder::take_culprit(const ddp::Ulpdu& culprit) {
  culprit_ = {};
  culprit_.size = culprit.copy_head(culprit_.octets);
  culprit_.segment_length = culprit.size;
}

void Responder::refuse(Fault fault, const ddp::Ulpdu& culprit, Verdict& verdict) {
  if (stopped_) return;
  stopped_ = true;
  fault_ = fault;
  take_culprit(culprit);
  deliveries_.start().act = Delivery::Act::fault;
  finish(verdict);
}

// ---- queue 0 ---------------------------------------------------------------------------------------

bool Responder::on_send(const Inbound& in, Arrival& at) {
  return at.held_mark != 0 ? place_send(in, at) : accept_send(in, at, false);
}

bool Responder::on_immediate(const Inbound& in, Arrival& at) {
  return at.held_mark != 0 ? place_send(in, at) : accept_send(in, at, true);
}

bool Responder::accept_send(const Inbound& in, Arrival& at, bool immediate) {
  constexpr std::uint32_t kGapWindow = 1u << 31;
  ddp::InboundQueue& queue = inbound_[wire::queue_number::kSend];
  switch (queue.check(in.ddp.msn, kGapWindow)) {
    case ddp::MsnCheck::expected:
      break;
    case ddp::MsnCheck::gap:
      return refuse(Fault::receive_msn_gap, at);
    case ddp::MsnCheck::range:
      return refuse(Fault::receive_msn_range, at);
  }

  // A Send RTR: MSN 1, no octets, and a buffer of our own (W-MPA-45, -46).
  if (!immediate && none_yet_ && first_.may_be_send && in.payload == 0 && in.ddp.last && in.ddp.message_offset == 0) {
    queue.accept(0, true);
    finish(at.verdict);
    return true;
  }

  const bool behind_held = held_.unread();
  bool hold = behind_held;
  if (!behind_held && !receiving_.active() && !receiving_.take()) {
    if (!holds_without_receive()) return refuse(Fault::receive_no_buffer, at);
    hold = true;
  }
  if (in.ddp.message_offset != queue.offset()) return refuse(Fault::receive_offset, at);
  if (immediate) {
    if (const auto fault = immediate_fault(in)) return refuse(*fault, at);
  }
  // A message has less than 2^32 octets (W-DDP-08).
  if (in.payload > ~queue.offset()) {
    if (receiving_.active()) receiving_.fails(Status::message_too_long);
    return refuse(Fault::receive_too_long, at);
  }
  if (hold) {
    if (!set_aside(at)) return false;
    if (immediate) write_octets_ = 0;
    queue.accept(in.payload, in.ddp.last);
    finish(at.verdict);
    return true;
  }
  queue.accept(in.payload, in.ddp.last);
  return place_send(in, at);
}

// What accept_send() has not checked. Nothing is longer than one segment, nor is any part of another message.
std::optional<Fault> Responder::immediate_fault(const Inbound& in) const {
  if (mid_send()) return Fault::unexpected_opcode;
  if (in.payload != wire::ImmediateHeader::kSize) return Fault::immediate_size;  // W-EXT-11
  if (!in.ddp.last) return Fault::not_last;
  return std::nullopt;
}

// Sequence and offset are checked, and a receive is there.
bool Responder::place_send(const Inbound& in, Arrival& at) {
  const std::uint32_t offset = in.ddp.message_offset;
  if (receiving_.malformed()) {
    receiving_.fails(Status::invalid_wqe);
    return refuse(Fault::local_work, at);
  }
  if (in.message.operation == Operation::immediate) return place_immediate(in, at);
  if (in.payload != 0) {
    if (offset + std::uint64_t{in.payload} > receiving_.capacity()) {
      receiving_.fails(Status::message_too_long);
      return refuse(Fault::receive_too_long, at);
    }
    const Status status = receiving_.check();
    if (status != Status::success) {
      receiving_.fails(status);
      return refuse(Fault::local_work, at);
    }
  }

  Delivery& delivery = deliveries_.next();
  deliveries_.note_places(
      receiving_.place(at.ulpdu, in.ddp.size(), in.payload, in.ddp.last, deliveries_.ticket(), early_));
  common_.counters.bytes_in += in.payload;
  if (in.ddp.last) {
    delivery.act = Delivery::Act::receive;
    delivery.slot = receiving_.slot();
    delivery.shared = receiving_.shared();
    delivery.length = offset + in.payload;  // W-DDP-14
    delivery.solicited = in.message.solicited;
    delivery.invalidates = in.message.invalidates;
    delivery.invalidate = in.ddp.stag;
    if (in.message.value) [[unlikely]] {
      delivery.immediate = delivery.with_data = true;
      delivery.word = to_big(in.ddp.stag.value);
    }
    delivery.msn = in.ddp.msn;
    delivery.offset = offset;
    delivery.ulpdu_size = at.ulpdu.size;
    receiving_.done();
    ++common_.counters.sends_in;
  }
  finish(at.verdict);
  return true;
}

// The receive that it consumes is told the value; its memory is not even looked at (W-EXT-13). On acknowledged streams
// it is told how much the Write before it wrote, too, which there is always one of.
bool Responder::place_immediate(const Inbound& in, Arrival& at) {
  Delivery& delivery = deliveries_.next();
  delivery.act = Delivery::Act::receive;
  delivery.slot = receiving_.slot();
  delivery.shared = receiving_.shared();
  if (acknowledgements_ != nullptr) delivery.length = at.held_mark != 0 ? at.written : std::exchange(write_octets_, 0);
  delivery.solicited = in.message.solicited;
  delivery.immediate = true;
  delivery.word = wire::parse_immediate(copy_payload<wire::ImmediateHeader::kSize>(in, at.ulpdu))->to_verbs();
  receiving_.done();
  ++common_.counters.sends_in;
  finish(at.verdict);
  return true;
}

// ---- what waits for a receive (V-SR-06) --------------------------------------------------------------

bool Responder::set_aside(Arrival& at) {
  const bool began = !held_.unread();
  // What lies in an application's memory stays there, and waits.
  if (at.ulpdu.memory != nullptr ||
      !held_.push(at.ulpdu.spans, at.ulpdu.size, deliveries_.next().number, write_octets_)) {
    // Full: the stream waits, and its window closes. What could never fit has no buffer at all.
    if (at.ulpdu.memory == nullptr && !held_.anything() && !held_.fits_ever(at.ulpdu.size))
      refuse(Fault::receive_no_buffer, at);
    if (held_since_ == kNever) held_since_ = at.now;
    return false;
  }
  if (began) held_since_ = at.now;
  deliveries_.next().aside = true;
  requester_.peer_waits_for_us(true);
  return true;
}

bool Responder::take_held(Instant now, Verdict& verdict) {
  bool busy = false;
  while (!verdict && !stopped_ && held_.unread() && !deliveries_.full()) {
    const Bytes ulpdu = held_.front();
    const Message& of = message(wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu[1])));
    const bool wants_receive = of.queue == wire::queue_number::kSend;
    if (wants_receive && !receiving_.active() && !receiving_.take()) break;
    const std::uint32_t number = held_.front_number(), written = held_.front_written();
    const std::array<Bytes, 1> spans{ulpdu};
    const ddp::Ulpdu held(spans, static_cast<std::uint32_t>(ulpdu.size()));
    Arrival at{held, held_.advance(), now, verdict, number, written};
    dispatch(at, {});
    held_since_ = held_.unread() ? now : kNever;
    requester_.peer_waits_for_us(held_.unread());
    busy = true;
  }
  return busy;
}

void Responder::refuse_held(Verdict& verdict) {
  const Bytes ulpdu = held_.unread() ? held_.front() : Bytes{};
  const std::array<Bytes, 1> spans{ulpdu};
  refuse(Fault::receive_no_buffer, {spans, static_cast<std::uint32_t>(ulpdu.size())}, verdict);
}

Instant Responder::held_deadline() const {
  // Of acknowledged streams it is the peer that waits, and its patience that ends.
  if (held_since_ == kNever || common_.settings.rnr_timeout.ns == 0 || acknowledgements_ != nullptr) return kNever;
  return held_since_ + common_.settings.rnr_timeout;
}

// ---- queue 1 ---------------------------------------------------------------------------------------

// A Read or an Atomic Request: one sequence and one depth (W-EXT-06).
bool Responder::on_request(const Inbound& in, Arrival& at) {
  if (at.held_mark != 0) {
    deliveries_.next().act = Delivery::Act::read_request;
    finish(at.verdict);
    return true;
  }
  // Not served before what was sent before it is delivered (V-ORD-05).
  const bool behind_held = held_.unread();
  if (behind_held && acknowledgements_ == nullptr && !set_aside(at)) return false;

  const Request request = parse_request(in, at.ulpdu);
  if (const auto fault = request_form_fault(in, request)) return refuse(*fault, at);
  if (acknowledgements_ != nullptr) {
    // Now, before what comes behind it: there it is one of those that follow the first that fails.
    if (const auto fault = request_fault(request)) return refuse(*fault, at);
    if (behind_held && !set_aside(at)) return false;
  }

  inbound_[wire::queue_number::kReadRequest].accept(0, true);
  InboundRead& read = reads_.owe();
  if (request.read) read.request = *request.read;
  read.atomic = request.atomic;
  read.number = deliveries_.next().number;
  read.culprit.size = at.ulpdu.copy_head(read.culprit.octets);
  read.culprit.segment_length = at.ulpdu.size;
  ++(request.atomic ? common_.counters.atomics_in : common_.counters.reads_in);
  // If it was set aside, its record will make it ready, in its turn.
  if (!behind_held) deliveries_.next().act = Delivery::Act::read_request;
  finish(at.verdict);
  return true;
}

Responder::Request Responder::parse_request(const Inbound& in, const ddp::Ulpdu& ulpdu) {
  std::array<std::byte, kHeadSize> head;
  const std::uint32_t copied = ulpdu.copy_head(head);
  const Bytes payload = Bytes(head).first(copied).subspan(std::min<std::size_t>(copied, wire::UntaggedHeader::kSize));
  if (in.message.operation == Operation::atomic_request)
    return {.read = std::nullopt, .atomic = wire::parse_atomic_request(payload)};
  return {.read = wire::parse_read_request(payload), .atomic = std::nullopt};
}

// All but what its memory says.
std::optional<Fault> Responder::request_form_fault(const Inbound& in, const Request& request) const {
  const bool is_atomic = in.message.operation == Operation::atomic_request;
  // A zero-length Read as first message is an RTR, allowed whatever was negotiated (W-MPA-49).
  const bool rtr = none_yet_ && first_.may_be_read && request.read && request.read->size_bytes == 0;
  if (!is_atomic && !rtr && !tpt::permits(common_.settings.access, tpt::Rights::remote_read))
    return Fault::reads_disabled;
  const std::uint32_t ird = std::max(common_.settings.ird, rtr ? 1u : 0u);
  switch (inbound_[wire::queue_number::kReadRequest].check(in.ddp.msn, std::max(ird, 1u))) {
    case ddp::MsnCheck::expected:
      break;
    case ddp::MsnCheck::gap:
      return Fault::read_msn_gap;
    case ddp::MsnCheck::range:
      return Fault::read_msn_range;
  }
  if (reads_.owed() >= ird) return Fault::read_too_many;
  if (in.ddp.message_offset != 0) return Fault::read_offset;
  if ((!request.read && !request.atomic) || in.payload != in.message.header_bytes) return Fault::read_size;
  if (!in.ddp.last) return Fault::not_last;
  if (request.atomic && request.atomic->opcode > wire::AtomicOpcode::compare_swap)
    return Fault::unexpected_opcode;  // W-EXT-02
  return std::nullopt;
}

// ---- tagged ----------------------------------------------------------------------------------------

bool Responder::on_write(const Inbound& in, Arrival& at) {
  if (!mid_write_) write_octets_ = 0;
  mid_write_ = !in.ddp.last;
  write_octets_ += in.payload;
  // A segment of no octets names no memory: its STag is not even looked at (V-ACC-07).
  if (in.payload != 0) {
    const auto access = check_sink(common_, in);
    if (!access) return refuse(access.error(), at);
    place_tagged(in, *access, at);
  }
  if (in.ddp.last) ++common_.counters.writes_in;
  finish(at.verdict);
  return true;
}

bool Responder::on_read_response(const Inbound& in, Arrival& at) {
  // Checked against the oldest Read outstanding, or a peer could write through any sink (W-RDMAP-14).
  if (reads_.due() == 0) return refuse(Fault::unexpected_opcode, at);
  OutboundRead& read = reads_.due_at(0);
  if (read.atomic) return refuse(Fault::unexpected_opcode, at);
  std::optional<tpt::Access> to;
  if (in.payload != 0) {
    if (in.ddp.stag != read.sink.stag) return refuse(Fault::tagged_invalid_stag, at);
    const auto access = check_response(common_, read, in);
    if (!access) return refuse(access.error(), at);
    to = *access;
    if (in.ddp.tagged_offset != read.next_to || in.payload > read.left) return refuse(Fault::tagged_bounds, at);
  }
  // All that was asked for, and L with its end: no less, no more.
  if (in.ddp.last != (in.payload == read.left)) return refuse(Fault::tagged_bounds, at);
  if (to) {
    place_tagged(in, *to, at);
    read.next_to += in.payload;
    read.left -= in.payload;
  }
  if (in.ddp.last) {
    reads_.came_in_full();
    deliveries_.next().act = Delivery::Act::read_response;
  }
  finish(at.verdict);
  return true;
}

void Responder::place_tagged(const Inbound& in, const tpt::Access& to, Arrival& at) {
  const std::uint32_t done = std::min(placed_early_, in.payload);
  if (early_ != nullptr && done == 0) early_->placed_in_order(to);
  const auto ends = in.ddp.last ? ddp::Ends::message : ddp::Ends::nothing;
  ddp::Placement placement;
  if (at.ulpdu.memory != nullptr) [[unlikely]] {
    placement = ddp::transfer(common_.mover, *at.ulpdu.memory, to, ends, deliveries_.ticket());
  } else {
    ddp::Payload payload(at.ulpdu.spans, in.ddp.size() + done);
    ddp::place(common_.mover, payload, ddp::slice(to, done, in.payload - done), ends, deliveries_.ticket(), placement);
  }
  deliveries_.note_places(placement);
  common_.counters.bytes_in += in.payload;
}

bool Responder::on_atomic_response(const Inbound& in, Arrival& at) {
  ddp::InboundQueue& queue = inbound_[wire::queue_number::kAtomicResponse];
  if (in.ddp.msn != queue.msn()) return refuse(Fault::atomic_response_msn, at);
  // The buffers of this queue are the atomics outstanding (RFC 7306 s5.2.2).
  bool outstanding = false;
  for (std::uint32_t i = 0; i != reads_.due(); ++i) outstanding |= reads_.due_at(i).atomic;
  if (!outstanding) return refuse(Fault::atomic_response_no_request, at);
  if (in.ddp.message_offset != 0) return refuse(Fault::atomic_response_offset, at);
  if (in.payload != wire::AtomicResponseHeader::kSize) return refuse(Fault::atomic_response_form, at);
  if (!in.ddp.last) return refuse(Fault::not_last, at);
  // Reads and atomics are answered in the order of their requests (RFC 7306 s7).
  const OutboundRead& atomic = reads_.due_at(0);
  if (!atomic.atomic) return refuse(Fault::unexpected_opcode, at);
  const auto response = wire::parse_atomic_response(copy_payload<wire::AtomicResponseHeader::kSize>(in, at.ulpdu));
  if (response->request_id != atomic.msn) return refuse(Fault::atomic_response_form, at);

  queue.accept(0, true);
  reads_.came_in_full();
  Delivery& delivery = deliveries_.next();
  delivery.act = Delivery::Act::read_response;
  // Checked when it was posted; but that was then (V-INV-10).
  const auto sink = common_.table.check_local(atomic.sink.consumers, common_.settings.pd, tpt::Rights::local_write,
                                              atomic.next_to, kAtomicBytes);
  if (!sink) {
    delivery.refused = status_of(sink.error());
  } else {
    ddp::Placement placement;
    placement.add(
        common_.mover.place_word(response->original, *sink, deliveries_.ticket()));  // the host's order (W-EXT-05)
    deliveries_.note_places(placement);
  }
  common_.counters.bytes_in += kAtomicBytes;
  finish(at.verdict);
  return true;
}

// ---- deliveries ------------------------------------------------------------------------------------

void Responder::on_moved(std::uint32_t token, bool ok) {
  RNIC_ASSERT(common_.moves.places != 0);
  --common_.moves.places;
  if ((token & token::kEarly) != 0) {
    RNIC_ASSERT(early_ != nullptr);
    early_->on_moved(token & ~token::kEarly, ok);
    return;
  }
  deliveries_.on_moved(token, ok);
}

Verdict Responder::deliver_next() {
  // Out of the ring first: what it does may end everything.
  const Delivery taken = deliveries_.take();
  if (taken.held_mark != 0) held_.release(taken.held_mark);
  const Verdict verdict = effect_of(taken);
  if (taken.ends) [[unlikely]]
    note_delivered(taken, verdict);
  return verdict;
}

Verdict Responder::effect_of(const Delivery& delivery) {
  // The peer is not told that its request was wrong: it is memory that has gone, most often with its application.
  if (delivery.failed && delivery.act != Delivery::Act::receive) return Verdict::of(Fault::catastrophic);
  switch (delivery.act) {
    case Delivery::Act::nothing:
      return {};
    case Delivery::Act::receive:
      return deliver_receive(delivery);
    case Delivery::Act::read_response:
      return requester_.on_read_delivered(delivery.refused);
    case Delivery::Act::read_request:
      reads_.request_delivered();
      return {};
    case Delivery::Act::terminate:
      return {.kind = Verdict::Kind::peer_terminated};
    case Delivery::Act::fault:
      if (refused_number_ != 0) acknowledgements_->refuse(refused_number_, row(fault_).code.word());
      return Verdict::of(fault_, &culprit_);
  }
  return {};
}

// Payload placed, then the STag invalidated, then the completion (V-SR-07).
bool Responder::has_let_go(const Delivery& first) {
  const Settings& own = common_.settings;
  if (!invalidated_) {
    if (first.failed) return true;
    if (!common_.table.invalidate_remote(first.invalidate, own.pd, own.number, own.access)) return true;
    ++common_.turn;  // no Access made before is good any more
    invalidated_ = true;
    mark_ = common_.mover.mark();
  }
  return common_.mover.has_done(own.space, mark_);
}

Verdict Responder::deliver_receive(const Delivery& delivery) {
  if (delivery.failed) {
    common_.fail_receive(delivery.slot, delivery.shared, Status::local_catastrophic);
    return Verdict::of(Fault::local_work);
  }
  if (delivery.invalidates && !std::exchange(invalidated_, false)) {
    const Settings& own = common_.settings;
    const auto done = common_.table.invalidate_remote(delivery.invalidate, own.pd, own.number, own.access);
    ++common_.turn;  // no Access made before is good any more
    if (!done) {
      common_.fail_receive(delivery.slot, delivery.shared, Status::invalidate_pd_access);
      culprit_ = {};
      wire::emit(wire::UntaggedHeader{.last = true,
                                      .rdmap_control = wire::rdmap_control(send_opcode(delivery.solicited, true)),
                                      .invalidate = delivery.invalidate,
                                      .queue = wire::queue_number::kSend,
                                      .msn = delivery.msn,
                                      .message_offset = delivery.offset},
                 culprit_.octets);
      culprit_.size = wire::UntaggedHeader::kSize;
      culprit_.segment_length = delivery.ulpdu_size;
      return refused(delivery, invalidate_fault(done.error()), &culprit_);
    }
  }
  Completion completion;
  completion.opcode = delivery.immediate && !delivery.with_data ? Opcode::receive_write_immediate : Opcode::receive;
  completion.of_send_queue = false;
  completion.shared = delivery.shared;
  completion.solicited = delivery.solicited;
  completion.invalidated = delivery.invalidates;
  completion.immediate = delivery.immediate;
  completion.word = delivery.invalidates ? delivery.invalidate.value : delivery.word;
  completion.slot = delivery.slot;
  completion.length = delivery.length;
  return common_.complete_receive(completion) ? Verdict{} : refused(delivery, Fault::cq_of_receives);
}

// ---- acknowledged streams (docs/wire.md s8.1) ---------------------------------------------------------

// Of ours; not in the order of the stream's deliveries, as it brings nothing to memory.
bool Responder::on_acknowledge(const Inbound& in, Arrival& at) {
  static_assert(wire::AcknowledgeHeader::kSize == wire::NegativeAcknowledgeHeader::kSize);
  // In order, but one may have been dropped for a later one, which says all that it said.
  constexpr std::uint32_t kBehind = 1u << 31;
  const bool in_form = in.ddp.message_offset == 0 && in.ddp.last && in.payload == wire::AcknowledgeHeader::kSize;
  if (in.ddp.msn - next_acknowledge_ >= kBehind) return refuse(Fault::acknowledge_msn, at);
  if (!in_form) return refuse(Fault::acknowledge_form, at);
  const auto octets = copy_payload<wire::AcknowledgeHeader::kSize>(in, at.ulpdu);
  next_acknowledge_ = in.ddp.msn + 1;
  const bool taken = in.message.operation == Operation::acknowledge
                         ? requester_.on_acknowledge(*wire::parse_acknowledge(octets), at.now, at.verdict)
                         : requester_.on_negative_acknowledge(*wire::parse_negative_acknowledge(octets), at.verdict);
  if (!taken) return refuse(Fault::acknowledge_range, at);
  finish(at.verdict);
  return true;
}

// Why its memory is not to be had.
std::optional<Fault> Responder::request_fault(const Request& request) const {
  if (request.atomic) return requester_.atomics().fault_of(*request.atomic);
  const wire::ReadRequestHeader& read = *request.read;
  if (read.size_bytes == 0) return std::nullopt;
  const Settings& own = common_.settings;
  const auto access = common_.table.check_remote(read.source_stag, own.pd, own.number, tpt::Rights::remote_read,
                                                 read.source_to, read.size_bytes);
  if (!access) return read_fault(access.error());
  return std::nullopt;
}

void Responder::note_arrival(const Inbound& in, const Arrival& at, Delivery& delivery) const {
  if (!is_request(in.message.operation)) return;
  delivery.number = at.held_mark != 0 ? at.number : acknowledgements_->next_number();
  delivery.ends = in.ddp.last;
}

void Responder::note_accepted(const Delivery& delivery) {
  if (!delivery.ends) return;
  if (delivery.held_mark != 0) {
    ++aside_open_;
    return;
  }
  acknowledgements_->accept();
  if (delivery.aside) acknowledgements_->set_aside();
}

// It has taken effect, or has not.
void Responder::note_delivered(const Delivery& delivery, const Verdict& verdict) {
  if (delivery.held_mark != 0) --aside_open_;
  if (verdict) return;
  if (delivery.held_mark == 0) return acknowledgements_->deliver(delivery.number, delivery.aside);
  std::optional<std::uint32_t> next;
  if (aside_open_ == 0 && held_.unread()) next = held_.front_number();
  acknowledgements_->deliver_aside(delivery.number, next, aside_open_ != 0);
}

Verdict Responder::refused(const Delivery& delivery, Fault fault, const Culprit* culprit) {
  if (delivery.number != 0) acknowledgements_->refuse(delivery.number, row(fault).code.word());
  return Verdict::of(fault, culprit);
}

// Behind all that comes before it, and what waits for a receive is before it; and so may be Reads that are not
// answered. False: it has to wait.
bool Responder::refuse_request(Fault fault, Arrival& at) {
  const std::uint32_t number = deliveries_.next().number;
  if (number != 0 && at.held_mark == 0 && held_.unread()) return false;
  if (stopped_) return true;
  refused_number_ = number;
  if (number == 0 || !owes_before(number)) {
    refuse(fault, at.ulpdu, at.verdict);
    return true;
  }
  stopped_ = true;
  fault_ = fault;
  take_culprit(at.ulpdu);
  refusal_ = deliveries_.ticket().token;
  refusal_waits_ = true;
  Delivery& delivery = deliveries_.start();
  delivery.act = Delivery::Act::fault;
  delivery.moves = 1;
  finish(at.verdict);
  return true;
}

// ---- the way down ----------------------------------------------------------------------------------

bool Responder::flush(std::uint32_t count_max) {
  deliveries_.give_up([this](const Delivery& delivery) {
    if (delivery.act == Delivery::Act::receive) common_.fail_receive(delivery.slot, delivery.shared, Status::flushed);
  });
  held_.clear();
  held_since_ = kNever;
  aside_open_ = 0;
  refusal_waits_ = false;
  invalidated_ = false;
  receiving_.flush();
  // What is left in a shared queue is other queue pairs' (V-SRQ-19).
  if (common_.settings.shared_receive) return false;
  std::uint32_t count = 0;
  while (count < count_max && receiving_.take()) {
    receiving_.flush();
    ++count;
  }
  return count == count_max;
}

void Responder::keep(tpt::Kept& kept) const {
  if (early_ != nullptr) early_->share_kept(kept.buffers);
  if (held_.memory() != nullptr) kept.memory.push_back(held_.memory());
}

}  // namespace rnic::rdmap
