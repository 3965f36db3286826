// The stream -> FPDUs -> checks -> placements. Nothing is placed before all checks of its segment
// have passed (RFC 5041 s7.1, V-ERR-06), in the order that wire.md gives ("Check order").

#include <algorithm>
#include <cstring>

#include "qp/impl.hpp"
#include "qp/status.hpp"

namespace rnic::qp {
namespace {

// Spans looked at in one call. An FPDU lies in fewer, unless its sender cuts it into segments of a
// few octets.
constexpr std::size_t kReadableMax = 4096;
// Scratch of the worker's: nothing in it outlives a call.
thread_local std::array<Bytes, kReadableMax> readable_spans;
thread_local mpa::SpanList ahead_ulpdu;

constexpr std::size_t kHeadSize = wire::UntaggedHeader::kSize + wire::AtomicRequestHeader::kSize;

std::uint32_t copy_head(std::span<const Bytes> spans, MutableBytes out) {
  std::size_t copied = 0;
  for (const Bytes& span : spans) {
    const std::size_t n = std::min(span.size(), out.size() - copied);
    std::memcpy(out.data() + copied, span.data(), n);
    copied += n;
    if (copied == out.size()) break;
  }
  return static_cast<std::uint32_t>(copied);
}

}  // namespace

bool QueuePair::Impl::receive(Instant now) {
  if (connection_ == nullptr) return false;
  ++turn_;
  bool busy = false;
  if (state_ == State::rts) busy |= parse(now);
  if (early_ != nullptr && state_ == State::rts && !inbound_stopped_) place_early();
  busy |= check_stream(now);
  if (state_ != State::rts) busy |= go_down(now);
  check_deadline(now);
  return busy;
}

bool QueuePair::Impl::parse(Instant now) {
  bool busy = take_held(now);
  if (inbound_stopped_) return busy;
  const std::size_t count = std::min(connection_->readable_count(), kReadableMax);
  if (count == 0 && !has_ulpdu_) return busy;
  for (std::size_t i = 0; i < count; ++i) readable_spans[i] = connection_->readable(i).span;
  const std::uint64_t skip = base_ + parsed_ - connection_->consumed();
  mpa::Cursor at(std::span<const Bytes>(readable_spans.data(), count), skip);

  while (state_ == State::rts && !inbound_stopped_ && !deliveries_.full()) {
    if (!has_ulpdu_) {
      const auto fpdu = framer_->next(at, ulpdu_);
      if (!fpdu) {
        switch (fpdu.error()) {
          case mpa::FramingError::bad_crc: refuse(rdmap::Fault::crc, {}, 0, now); break;
          case mpa::FramingError::marker_mismatch: refuse(rdmap::Fault::bad_fpdu, {}, 0, now); break;
          case mpa::FramingError::too_long: refuse(rdmap::Fault::segment_size, {}, 0, now); break;
        }
        busy = true;
        break;
      }
      if (!fpdu->has_value()) break;
      fpdu_position_ = (*fpdu)->position;
      parsed_ += (*fpdu)->octets;
      has_ulpdu_ = true;
      ulpdu_stored_ = (*fpdu)->stored;
      ++counters_.fpdus_in;
    }
    if (!take_fpdu(now)) {
      if (held_since_ != kNever && connection_->peer_closed()) look_for_terminate(at, now);
      break;
    }
    busy = true;
  }
  parse_paused_ = state_ == State::rts && deliveries_.full();
  if (early_ != nullptr) early_->forget_before(parsed_);
  if (connection_ != nullptr) consume();
  return busy;
}

// In Closing. Writes of no octets bring nothing to anybody, and are no data: an initiator's nudge may
// cross our FIN. False: what came is something else.
bool QueuePair::Impl::take_empty_writes() {
  const std::size_t count = std::min(connection_->readable_count(), kReadableMax);
  for (std::size_t i = 0; i < count; ++i) readable_spans[i] = connection_->readable(i).span;
  mpa::Cursor at(std::span<const Bytes>(readable_spans.data(), count), base_ + parsed_ - connection_->consumed());
  while (connection_->received() > base_ + parsed_) {
    const auto fpdu = framer_->next(at, ulpdu_);
    if (!fpdu || !fpdu->has_value() || ulpdu_.size != wire::TaggedHeader::kSize) return false;
    std::array<std::byte, wire::TaggedHeader::kSize> octets;
    ulpdu_.copy(0, octets);
    const auto header = wire::parse_tagged(octets);
    if (!header || wire::rdmap_opcode(header->rdmap_control) != wire::RdmapOpcode::write || !header->last) return false;
    parsed_ += (*fpdu)->octets;
    if ((*fpdu)->stored) framer_->release_store();
  }
  consume();
  return true;
}

// The FPDU in ulpdu_. False: it has to wait.
bool QueuePair::Impl::take_fpdu(Instant now) {
  if (!gate_open_ && !start_.initiator) {
    // Any valid first FPDU lets the responder send (W-MPA-21, -87).
    gate_open_ = true;
    deadline_ = kNever;
    send_hint_ = true;
  }
  Early::Placed* early = early_ != nullptr ? early_->find(fpdu_position_) : nullptr;
  if (early != nullptr) [[unlikely]] {
    if (early->moves != 0) return false;
    placed_early_ = early->again ? 0 : early->to.length;
    early_->drop(*early);
  }
  const std::span<const Bytes> spans(ulpdu_.spans.data(), ulpdu_.count);
  const bool taken = on_ulpdu(spans, ulpdu_.size, 0, now);
  placed_early_ = 0;
  if (!taken) return false;
  has_ulpdu_ = false;
  first_fpdu_ = false;
  nudge_at_ = kNever;
  nudge_due_ = false;
  return true;
}

// A ULPDU of the stream (held_mark 0), or one that was set aside. False: it has to wait.
bool QueuePair::Impl::on_ulpdu(std::span<const Bytes> spans, std::uint32_t size, std::uint64_t held_mark,
                               Instant now) {
  std::array<std::byte, wire::kDdpHeaderSizeMax> head;
  // Its first span nearly always has all of the header.
  const Bytes first = !spans.empty() ? spans[0] : Bytes{};
  const Bytes header = first.size() >= head.size() ? first.first(head.size())
                                                   : Bytes(head).first(copy_head(spans, head));
  const auto extensions = config_.extensions ? rdmap::Extensions::on : rdmap::Extensions::off;
  const auto in = rdmap::check_form(header, size, extensions);
  if (!in) {
    refuse(in.error(), spans, size, now);
    return true;
  }

  Delivery& delivery = next_delivery();
  delivery = Delivery{};
  delivery.position = held_mark == 0 ? parsed_ : 0;
  delivery.held_mark = held_mark;
  delivery.stored = held_mark == 0 && ulpdu_stored_;

  switch (in->message.receiver) {
    case rdmap::Receiver::write: on_write(*in, spans, size, now); return true;
    case rdmap::Receiver::read_response: on_read_response(*in, spans, size, now); return true;
    case rdmap::Receiver::atomic_response: on_atomic_response(*in, spans, size, now); return true;
    case rdmap::Receiver::send:
    case rdmap::Receiver::immediate:
      if (held_mark != 0) {
        place_send(*in, spans, size, held_mark, now);
        return true;
      }
      return on_send(*in, spans, size, now);
    case rdmap::Receiver::read_request:
    case rdmap::Receiver::atomic_request:
      if (held_mark != 0) {
        delivery.act = Delivery::Act::read_request;
        finish_delivery(now);
        return true;
      }
      // Not served before what was sent before it is delivered (V-ORD-05).
      if (held_.unread() && !set_aside(spans, size, now)) return false;
      on_request(*in, spans, size, held_.unread(), now);
      return true;
    case rdmap::Receiver::terminate: take_terminate(*in, spans, now); return true;
    case rdmap::Receiver::nobody: refuse(rdmap::Fault::unexpected_opcode, spans, size, now); return true;
  }
  return true;
}

// Whatever else it says, it ends the connection (W-RDMAP-33, -35). It goes to a buffer of its own, which
// no receive queue and no limit has a part in (W-RDMAP-66).
void QueuePair::Impl::take_terminate(const rdmap::Inbound& in, std::span<const Bytes> spans, Instant now) {
  ddp::Payload payload(spans, in.ddp.size());
  terminate_in_size_ = 0;
  std::uint32_t left = std::min<std::uint32_t>(in.payload, static_cast<std::uint32_t>(terminate_in_.size()));
  while (left != 0) {
    const Bytes piece = payload.take(left);
    std::memcpy(terminate_in_.data() + terminate_in_size_, piece.data(), piece.size());
    terminate_in_size_ += static_cast<std::uint32_t>(piece.size());
    left -= static_cast<std::uint32_t>(piece.size());
  }
  next_delivery().act = Delivery::Act::terminate;
  inbound_stopped_ = true;
  finish_delivery(now);
}

// The stream stands still for want of a receive, as much is held as may be, and the peer has closed its
// half: a Terminate behind what waits there is not to wait with it (W-RDMAP-66). `at` is behind it.
void QueuePair::Impl::look_for_terminate(mpa::Cursor at, Instant now) {
  if (looked_ahead_) return;
  looked_ahead_ = true;  // nothing more will come
  mpa::Framer ahead = framer_->ahead();
  for (;;) {
    const auto fpdu = ahead.next(at, ahead_ulpdu);
    if (!fpdu || !fpdu->has_value()) return;
    const std::span<const Bytes> spans(ahead_ulpdu.spans.data(), ahead_ulpdu.count);
    std::array<std::byte, wire::kDdpHeaderSizeMax> head;
    const auto in = rdmap::check_form(Bytes(head).first(copy_head(spans, head)), ahead_ulpdu.size,
                                      rdmap::Extensions::off);
    if (in && in->message.receiver == rdmap::Receiver::terminate) {
      next_delivery() = Delivery{};
      return take_terminate(*in, spans, now);
    }
    if ((*fpdu)->stored) ahead.release_store();
  }
}

// What was accepted stands in next_delivery(): delivered at once if nothing is before it.
void QueuePair::Impl::finish_delivery(Instant now) {
  Delivery& delivery = next_delivery();
  if (deliveries_.empty() && delivery.moves == 0) {
    deliver(delivery, now);
    return;
  }
  deliveries_.push_filled();
}

// The first error of the inbound direction; it takes effect when all before it is delivered
// (V-STOP-06).
void QueuePair::Impl::refuse(rdmap::Fault fault, std::span<const Bytes> spans, std::uint32_t size, Instant now) {
  if (inbound_stopped_) return;
  inbound_stopped_ = true;
  fault_.fault = fault;
  fault_.culprit.size = copy_head(spans, fault_.culprit.octets);
  fault_.culprit.segment_length = size;
  Delivery& delivery = next_delivery();
  delivery = Delivery{};
  delivery.act = Delivery::Act::fault;
  finish_delivery(now);
}

// ---- queue 0 -------------------------------------------------------------------------------------

bool QueuePair::Impl::on_send(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                              Instant now) {
  constexpr std::uint32_t kGapWindow = 1u << 31;
  ddp::InboundQueue& queue = inbound_[wire::queue_number::kSend];
  switch (queue.check(in.ddp.msn, kGapWindow)) {
    case ddp::MsnCheck::expected: break;
    case ddp::MsnCheck::gap: refuse(rdmap::Fault::receive_msn_gap, spans, size, now); return true;
    case ddp::MsnCheck::range: refuse(rdmap::Fault::receive_msn_range, spans, size, now); return true;
  }

  const bool immediate = in.message.receiver == rdmap::Receiver::immediate;
  // A Send RTR: MSN 1, no octets, and a buffer of our own (W-MPA-45, -46).
  if (!immediate && first_fpdu_ && start_.rtr == Start::Rtr::send && !start_.initiator && in.payload == 0 && in.ddp.last && in.ddp.message_offset == 0) {
    queue.accept(0, true);
    finish_delivery(now);
    return true;
  }

  const bool behind_held = held_.unread();
  bool hold = behind_held;
  if (!behind_held && !receiving_.active && !take_receive()) {
    if (!config_.hold_without_receive) {
      refuse(rdmap::Fault::receive_no_buffer, spans, size, now);
      return true;
    }
    hold = true;
  }
  if (in.ddp.message_offset != queue.offset()) {
    refuse(rdmap::Fault::receive_offset, spans, size, now);
    return true;
  }
  if (immediate && !immediate_is_well_formed(in, spans, size, now)) return true;
  // A message has less than 2^32 octets (W-DDP-08).
  if (in.payload > ~queue.offset()) {
    receiving_.status = receiving_.active ? Status::message_too_long : Status::success;
    refuse(rdmap::Fault::receive_too_long, spans, size, now);
    return true;
  }
  if (hold) {
    if (!set_aside(spans, size, now)) return false;
    queue.accept(in.payload, in.ddp.last);
    finish_delivery(now);
    return true;
  }
  queue.accept(in.payload, in.ddp.last);
  place_send(in, spans, size, 0, now);
  return true;
}

// Sequence and offset are checked, and a receive is there.
void QueuePair::Impl::place_send(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                                 std::uint64_t held_mark, Instant now) {
  const std::uint32_t offset = in.ddp.message_offset;
  if (receiving_.request.malformed) {
    receiving_.status = Status::invalid_wqe;
    return refuse(rdmap::Fault::local_work, spans, size, now);
  }
  if (in.message.receiver == rdmap::Receiver::immediate) return place_immediate(in, spans, now);
  if (in.payload != 0) {
    if (offset + std::uint64_t{in.payload} > receiving_.capacity) {
      receiving_.status = Status::message_too_long;
      return refuse(rdmap::Fault::receive_too_long, spans, size, now);
    }
    const Status status = check_scatter();
    if (status != Status::success) {
      receiving_.status = status;
      return refuse(rdmap::Fault::local_work, spans, size, now);
    }
  }

  Delivery& delivery = next_delivery();
  ddp::Payload payload(spans, in.ddp.size());
  ddp::Placement placement;
  const tpt::MoveTicket ticket{&owner_, deliveries_.next() & (deliveries_.size() - 1)};
  std::uint32_t left = in.payload;
  while (left != 0) {
    const Sge& sge = receiving_.request.sges[receiving_.sge];
    if (receiving_.sge_offset == sge.length) {
      ++receiving_.sge;
      receiving_.sge_offset = 0;
      continue;
    }
    const std::uint32_t piece = std::min(left, sge.length - receiving_.sge_offset);
    const auto ends = in.ddp.last && piece == left ? ddp::Ends::message : ddp::Ends::nothing;
    const tpt::Access to = ddp::slice(receiving_.access[receiving_.sge], receiving_.sge_offset, piece);
    if (early_ != nullptr) early_->placed_in_order(to);
    ddp::place(mover_, payload, to, ends, ticket, placement);
    receiving_.sge_offset += piece;
    left -= piece;
  }
  delivery.moves = placement.later;
  delivery.failed = placement.failed;
  delivery.held_mark = held_mark;
  places_ += placement.later;
  counters_.bytes_in += in.payload;
  if (in.ddp.last) {
    delivery.act = Delivery::Act::receive;
    delivery.slot = receiving_.request.slot;
    delivery.shared = receiving_.request.shared;
    delivery.length = offset + in.payload;  // W-DDP-14
    delivery.solicited = in.message.solicited;
    delivery.invalidates = in.message.invalidates;
    delivery.invalidate = in.ddp.stag;
    delivery.msn = in.ddp.msn;
    delivery.offset = offset;
    delivery.ulpdu_size = size;
    receiving_.active = false;
    ++counters_.sends_in;
  }
  finish_delivery(now);
}

bool QueuePair::Impl::take_receive() {
  ReceiveRequest& request = receiving_.request;
  if (!host_.take_receive(request)) return false;
  receiving_.active = true;
  receiving_.status = Status::success;
  receiving_.capacity = 0;
  receiving_.sge = receiving_.sge_offset = 0;
  receiving_.checked_in = 0;
  if (request.sge_count > kSgesMax) request.malformed = true;
  if (!request.malformed)
    for (std::uint32_t i = 0; i < request.sge_count; ++i) receiving_.capacity += request.sges[i].length;
  return true;
}

// Each SGE whole, once in a turn: what the TPT permits now may be gone in the next (V-INV-10).
Status QueuePair::Impl::check_scatter() {
  if (receiving_.checked_in == turn_) return Status::success;
  const ReceiveRequest& request = receiving_.request;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const Sge& sge = request.sges[i];
    const auto access =
        table_.check_local(sge.lkey, config_.receive_pd, tpt::Rights::local_write, sge.address, sge.length);
    if (!access) return status_of(access.error());
    receiving_.access[i] = *access;
  }
  receiving_.checked_in = turn_;
  return Status::success;
}

// ---- what waits for a receive (V-SR-06) ------------------------------------------------------------

bool QueuePair::Impl::set_aside(std::span<const Bytes> spans, std::uint32_t size, Instant now) {
  const bool began = !held_.unread();
  if (!held_.push(spans, size)) {
    // Full: the stream waits, and its window closes. What could never fit has no buffer at all.
    if (!held_.anything() && !held_.fits_ever(size)) refuse(rdmap::Fault::receive_no_buffer, spans, size, now);
    if (held_since_ == kNever) held_since_ = now;
    return false;
  }
  if (began) held_since_ = now;
  return true;
}

bool QueuePair::Impl::take_held(Instant now) {
  bool busy = false;
  while (state_ == State::rts && !inbound_stopped_ && held_.unread() && !deliveries_.full()) {
    const Bytes ulpdu = held_.front();
    const rdmap::Message& message = rdmap::message(wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu[1])));
    const bool wants_receive = message.queue == wire::queue_number::kSend;
    if (wants_receive && !receiving_.active && !take_receive()) break;
    const std::array<Bytes, 1> spans{ulpdu};
    const auto size = static_cast<std::uint32_t>(ulpdu.size());
    const std::uint64_t mark = held_.advance();
    on_ulpdu(spans, size, mark, now);
    held_since_ = held_.unread() ? now : kNever;
    busy = true;
  }
  return busy;
}

// ---- queue 1 -------------------------------------------------------------------------------------

// A Read or an Atomic Request: one sequence and one depth (W-EXT-06).
void QueuePair::Impl::on_request(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                                 bool is_set_aside, Instant now) {
  const bool is_atomic = in.message.receiver == rdmap::Receiver::atomic_request;
  std::array<std::byte, kHeadSize> head;
  const std::uint32_t copied = copy_head(spans, head);
  const Bytes payload = Bytes(head).first(copied).subspan(std::min<std::size_t>(copied, wire::UntaggedHeader::kSize));
  const auto request = is_atomic ? std::optional<wire::ReadRequestHeader>() : wire::parse_read_request(payload);
  const auto atomic = is_atomic ? wire::parse_atomic_request(payload) : std::optional<wire::AtomicRequestHeader>();
  ddp::InboundQueue& queue = inbound_[wire::queue_number::kReadRequest];

  // A zero-length Read as first FPDU is an RTR, allowed whatever was negotiated (W-MPA-49).
  const bool rtr = first_fpdu_ && !start_.initiator && request && request->size_bytes == 0;
  if (!is_atomic && !rtr && !tpt::permits(config_.access, tpt::Rights::remote_read))
    return refuse(rdmap::Fault::reads_disabled, spans, size, now);
  const std::uint32_t ird = std::max(config_.ird, rtr ? 1u : 0u);
  switch (queue.check(in.ddp.msn, std::max(ird, 1u))) {
    case ddp::MsnCheck::expected: break;
    case ddp::MsnCheck::gap: return refuse(rdmap::Fault::read_msn_gap, spans, size, now);
    case ddp::MsnCheck::range: return refuse(rdmap::Fault::read_msn_range, spans, size, now);
  }
  if (reads_in_.count() >= ird) return refuse(rdmap::Fault::read_too_many, spans, size, now);
  if (in.ddp.message_offset != 0) return refuse(rdmap::Fault::read_offset, spans, size, now);
  if ((!request && !atomic) || in.payload != in.message.header_bytes)
    return refuse(rdmap::Fault::read_size, spans, size, now);
  if (!in.ddp.last) return refuse(rdmap::Fault::not_last, spans, size, now);
  if (atomic && atomic->opcode > wire::AtomicOpcode::compare_swap)
    return refuse(rdmap::Fault::unexpected_opcode, spans, size, now);  // W-EXT-02

  queue.accept(0, true);
  rdmap::InboundRead& read = reads_in_.push({});
  if (request) read.request = *request;
  read.atomic = atomic;
  read.culprit.size = copy_head(spans, read.culprit.octets);
  read.culprit.segment_length = size;
  ++(is_atomic ? counters_.atomics_in : counters_.reads_in);
  // If it was set aside, its record will make it ready, in its turn.
  if (!is_set_aside) next_delivery().act = Delivery::Act::read_request;
  finish_delivery(now);
}

// ---- tagged --------------------------------------------------------------------------------------

// The order is V-ACC-08's; the QP's own enable is one of the access rights.
Result<tpt::Access, rdmap::Fault> QueuePair::Impl::check_sink(const rdmap::Inbound& in) const {
  const auto access = table_.check_remote(in.ddp.stag, config_.pd, config_.number, tpt::Rights::remote_write,
                                          in.ddp.tagged_offset, in.payload);
  if (!tpt::permits(config_.access, tpt::Rights::remote_write) &&
      (access || (access.error() != tpt::Refusal::invalid_stag && access.error() != tpt::Refusal::not_associated)))
    return Failure{rdmap::Fault::writes_disabled};
  if (!access) return Failure{rdmap::tagged_fault(access.error())};
  return *access;
}

// A segment that names the STag of this Read's sink. One of the Read's own was made for what we asked for
// ourselves: the queue pair's enable, which says what a peer may begin, has no part in it.
Result<tpt::Access, rdmap::Fault> QueuePair::Impl::check_response(const rdmap::OutboundRead& read,
                                                                  const rdmap::Inbound& in) const {
  if (!read.sink.own_stag()) return check_sink(in);
  const auto access = table_.check_read(read.sink, in.ddp.tagged_offset, in.payload);
  if (!access) return Failure{rdmap::tagged_fault(access.error())};
  return *access;
}

void QueuePair::Impl::on_write(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                               Instant now) {
  if (in.ddp.last) ++counters_.writes_in;
  mid_write_ = !in.ddp.last;
  // A segment of no octets names no memory: its STag is not even looked at (V-ACC-07).
  if (in.payload != 0) {
    const auto access = check_sink(in);
    if (!access) return refuse(access.error(), spans, size, now);
    place_tagged(in, *access, spans);
  }
  finish_delivery(now);
}

void QueuePair::Impl::on_read_response(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                                       Instant now) {
  // Checked against the oldest Read outstanding, or a peer could write through any sink (W-RDMAP-14).
  if (responses_due_ == 0) return refuse(rdmap::Fault::unexpected_opcode, spans, size, now);
  rdmap::OutboundRead& read = reads_out_[reads_out_.next() - responses_due_];
  if (read.atomic) return refuse(rdmap::Fault::unexpected_opcode, spans, size, now);
  std::optional<tpt::Access> to;
  if (in.payload != 0) {
    if (in.ddp.stag != read.sink.stag) return refuse(rdmap::Fault::tagged_invalid_stag, spans, size, now);
    const auto access = check_response(read, in);
    if (!access) return refuse(access.error(), spans, size, now);
    to = *access;
    if (in.ddp.tagged_offset != read.next_to || in.payload > read.left)
      return refuse(rdmap::Fault::tagged_bounds, spans, size, now);
  }
  // All that was asked for, and L with its end: no less, no more.
  if (in.ddp.last != (in.payload == read.left)) return refuse(rdmap::Fault::tagged_bounds, spans, size, now);
  if (to) {
    place_tagged(in, *to, spans);
    read.next_to += in.payload;
    read.left -= in.payload;
  }
  if (in.ddp.last) {
    --responses_due_;
    next_delivery().act = Delivery::Act::read_response;
  }
  finish_delivery(now);
}

void QueuePair::Impl::place_tagged(const rdmap::Inbound& in, const tpt::Access& to, std::span<const Bytes> spans) {
  Delivery& delivery = next_delivery();
  const std::uint32_t done = std::min(placed_early_, in.payload);
  if (early_ != nullptr && done == 0) early_->placed_in_order(to);
  ddp::Payload payload(spans, in.ddp.size() + done);
  ddp::Placement placement;
  ddp::place(mover_, payload, ddp::slice(to, done, in.payload - done), in.ddp.last ? ddp::Ends::message : ddp::Ends::nothing,
             {&owner_, deliveries_.next() & (deliveries_.size() - 1)}, placement);
  delivery.moves = placement.later;
  delivery.failed = placement.failed;
  places_ += placement.later;
  counters_.bytes_in += in.payload;
}

}  // namespace rnic::qp
