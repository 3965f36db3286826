// RFC 7306: atomic operations, both ends, and Immediate Data (wire.md s4). Off unless both ends are
// known to have them (W-EXT-14): there is no negotiation on the wire.

#include <algorithm>
#include <cstring>
#include <utility>

#include "qp/impl.hpp"
#include "qp/status.hpp"
#include "wire/atomic.hpp"

namespace rnic::qp {
namespace {

constexpr std::uint32_t kAtomicBytes = 8;

// The whole payload of a message whose form was checked.
template <std::size_t kSize>
std::array<std::byte, kSize> copy_payload(const rdmap::Inbound& in, std::span<const Bytes> spans) {
  std::array<std::byte, kSize> octets;
  ddp::Payload payload(spans, in.ddp.size());
  for (std::size_t done = 0; done != kSize;) {
    const Bytes piece = payload.take(kSize - done);
    std::memcpy(octets.data() + done, piece.data(), piece.size());
    done += piece.size();
  }
  return octets;
}

}  // namespace

// ---- Immediate Data --------------------------------------------------------------------------------

// The second message of next_, an RDMA Write with Immediate whose Write is out (W-EXT-12).
void QueuePair::Impl::begin_immediate() {
  sending_.kind = Sending::Kind::immediate;
  sending_.message = sender_.immediate(next_.solicited);
  wire::emit(wire::ImmediateHeader::from_verbs(next_.immediate), sending_.header);
}

// What on_send() has not checked. Nothing is longer than one segment, nor is any part of another
// message.
bool QueuePair::Impl::immediate_is_well_formed(const rdmap::Inbound& in, std::span<const Bytes> spans,
                                               std::uint32_t size, Instant now) {
  std::optional<rdmap::Fault> fault;
  if (inbound_[wire::queue_number::kSend].mid_message())
    fault = rdmap::Fault::unexpected_opcode;
  else if (in.payload != wire::ImmediateHeader::kSize)
    fault = rdmap::Fault::immediate_size;  // W-EXT-11
  else if (!in.ddp.last)
    fault = rdmap::Fault::not_last;
  if (fault) refuse(*fault, spans, size, now);
  return !fault;
}

// The receive that it consumes is told the value; its memory is not even looked at (W-EXT-13).
void QueuePair::Impl::place_immediate(const rdmap::Inbound& in, std::span<const Bytes> spans, Instant now) {
  Delivery& delivery = next_delivery();
  delivery.act = Delivery::Act::receive;
  delivery.slot = receiving_.request.slot;
  delivery.shared = receiving_.request.shared;
  delivery.solicited = in.message.solicited;
  delivery.immediate = true;
  delivery.word = wire::parse_immediate(copy_payload<wire::ImmediateHeader::kSize>(in, spans))->to_verbs();
  receiving_.active = false;
  ++counters_.sends_in;
  finish_delivery(now);
}

// ---- atomic operations: the requester --------------------------------------------------------------

// Of next_, which is work_[index].
Status QueuePair::Impl::begin_atomic(std::uint32_t index) {
  if (config_.ord == 0) return Status::zero_read_resources;  // W-EXT-06
  if (next_.sge_count != 1 || next_.has_data) return Status::invalid_wqe;
  const Sge& sink = next_.sges[0];
  if (sink.length < kAtomicBytes) return Status::invalid_length;
  const auto access = table_.check_local(sink.lkey, config_.pd, tpt::Rights::local_write, sink.address, kAtomicBytes);
  if (!access) return status_of(access.error());

  sending_.kind = Sending::Kind::request;
  sending_.message = sender_.atomic_request();
  wire::AtomicRequestHeader header;
  header.request_id = sending_.message.msn;
  header.stag = next_.remote_stag;
  header.tagged_offset = next_.remote_to;
  if (next_.opcode == Opcode::fetch_add) {
    // Mask 0: a plain sum of 64 bits. What is compared is not used, and has the values of W-EXT-10.
    header.opcode = wire::AtomicOpcode::fetch_add;
    header.data = next_.argument;
  } else {
    header.opcode = wire::AtomicOpcode::compare_swap;
    header.data = next_.swap;
    header.data_mask = UINT64_MAX;
    header.compare = next_.argument;
  }
  wire::emit(header, sending_.header);
  reads_out_.push({.sink = {.consumers = sink.lkey},
                   .next_to = sink.address,
                   .left = kAtomicBytes,
                   .msn = sending_.message.msn,
                   .work = index,
                   .atomic = true});
  ++responses_due_;
  ++counters_.atomics_out;
  return Status::success;
}

void QueuePair::Impl::on_atomic_response(const rdmap::Inbound& in, std::span<const Bytes> spans, std::uint32_t size,
                                         Instant now) {
  ddp::InboundQueue& queue = inbound_[wire::queue_number::kAtomicResponse];
  if (in.ddp.msn != queue.msn()) return refuse(rdmap::Fault::atomic_response_msn, spans, size, now);
  // The buffers of this queue are the atomics outstanding (RFC 7306 s5.2.2).
  bool outstanding = false;
  for (std::uint32_t i = responses_due_; i != 0; --i) outstanding |= reads_out_[reads_out_.next() - i].atomic;
  if (!outstanding) return refuse(rdmap::Fault::atomic_response_no_request, spans, size, now);
  if (in.ddp.message_offset != 0) return refuse(rdmap::Fault::atomic_response_offset, spans, size, now);
  if (in.payload != wire::AtomicResponseHeader::kSize)
    return refuse(rdmap::Fault::atomic_response_form, spans, size, now);
  if (!in.ddp.last) return refuse(rdmap::Fault::not_last, spans, size, now);
  // Reads and atomics are answered in the order of their requests (RFC 7306 s7).
  const rdmap::OutboundRead& atomic = reads_out_[reads_out_.next() - responses_due_];
  if (!atomic.atomic) return refuse(rdmap::Fault::unexpected_opcode, spans, size, now);
  const auto response = wire::parse_atomic_response(copy_payload<wire::AtomicResponseHeader::kSize>(in, spans));
  if (response->request_id != atomic.msn) return refuse(rdmap::Fault::atomic_response_form, spans, size, now);

  queue.accept(0, true);
  --responses_due_;
  Delivery& delivery = next_delivery();
  delivery.act = Delivery::Act::read_response;
  // Checked when it was posted; but that was then (V-INV-10).
  const auto sink =
      table_.check_local(atomic.sink.consumers, config_.pd, tpt::Rights::local_write, atomic.next_to, kAtomicBytes);
  if (!sink) {
    delivery.refused = status_of(sink.error());
  } else {
    const tpt::MoveTicket ticket{&owner_, deliveries_.next() & (deliveries_.size() - 1)};
    switch (mover_.place_word(response->original, *sink, ticket)) {  // in the host's order (W-EXT-05)
      case tpt::Moved::done: break;
      case tpt::Moved::failed: delivery.failed = true; break;
      case tpt::Moved::later:
        delivery.moves = 1;
        ++places_;
        break;
    }
  }
  counters_.bytes_in += kAtomicBytes;
  finish_delivery(now);
}

// ---- atomic operations: the responder --------------------------------------------------------------

// The oldest request, which is Delivered, and everything before it answered: it is executed now, once,
// and its Response is the next message (RFC 7306 s5.4, W-EXT-16). False: not yet.
bool QueuePair::Impl::begin_atomic_response(Instant now) {
  // A Read before it shall not see what it changes.
  if (response_gathers_ != 0) return false;
  const rdmap::InboundRead& read = reads_in_.front();
  if (executing_.state == Executing::State::nothing) {
    if (const auto refused = execute(*read.atomic)) {
      begin_terminate(*refused, read.culprit, now);
      return true;
    }
  }
  if (executing_.state == Executing::State::begun) return false;
  const Executing done = std::exchange(executing_, {});
  if (done.state == Executing::State::failed) {
    begin_terminate(rdmap::Fault::catastrophic, read.culprit, now);
    return true;
  }
  sending_ = {};
  sending_.kind = Sending::Kind::atomic_response;
  sending_.message = sender_.atomic_response();
  wire::emit(wire::AtomicResponseHeader{.request_id = read.atomic->request_id, .original = done.original},
             sending_.header);
  work_was_last_ = false;
  return true;
}

// The checks in the order of V-ACC-08, the alignment of the address last (W-EXT-03, -04).
std::optional<rdmap::Fault> QueuePair::Impl::execute(const wire::AtomicRequestHeader& request) {
  const auto access = table_.check_remote(request.stag, config_.pd, config_.number, tpt::Rights::remote_atomic,
                                          request.tagged_offset, kAtomicBytes);
  // The queue pair's own enable is one of the access rights.
  if (!tpt::permits(config_.access, tpt::Rights::remote_atomic) &&
      (access || (access.error() != tpt::Refusal::invalid_stag && access.error() != tpt::Refusal::not_associated)))
    return rdmap::Fault::atomic_access;
  if (!access) return rdmap::atomic_fault(access.error());
  if (access->address % kAtomicBytes != 0) return rdmap::Fault::atomic_alignment;
  if (early_ != nullptr) early_->placed_in_order(*access);
  const tpt::MoveTicket ticket{&owner_, token::kAtomic};
  tpt::Moved moved = tpt::Moved::failed;
  switch (request.opcode) {
    case wire::AtomicOpcode::fetch_add:
      moved = mover_.fetch_add(*access, request.data, request.data_mask, executing_.original, ticket);
      break;
    case wire::AtomicOpcode::swap:  // compares with nothing, and looks at no mask
      moved = mover_.compare_swap(*access, 0, 0, request.data, UINT64_MAX, executing_.original, ticket);
      break;
    case wire::AtomicOpcode::compare_swap:
      moved = mover_.compare_swap(*access, request.compare, request.compare_mask, request.data, request.data_mask,
                                  executing_.original, ticket);
      break;
  }
  switch (moved) {
    case tpt::Moved::done: executing_.state = Executing::State::done; break;
    case tpt::Moved::failed: executing_.state = Executing::State::failed; break;
    case tpt::Moved::later: executing_.state = Executing::State::begun; break;
  }
  return std::nullopt;
}

}  // namespace rnic::qp
