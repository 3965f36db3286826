// Delivery: what an FPDU brought takes effect when it is placed, and everything before it delivered
// (RFC 5041 s5.3, W-DDP-13). Then, and not before, its octets are consumed and acknowledged.

#include <algorithm>
#include <cstring>

#include "qp/impl.hpp"
#include "qp/status.hpp"

namespace rnic::qp {

bool QueuePair::Impl::deliver_all(Instant now) {
  bool busy = false;
  while (!deliveries_.empty() && deliveries_.front().moves == 0) {
    if (state_ == State::terminate || state_ == State::error) break;  // V-TERM-07: the flush takes them
    Delivery& delivery = deliveries_.front();
    // Out of the ring first: what it does may end everything.
    const Delivery taken = delivery;
    deliveries_.pop();
    Delivery copy = taken;
    deliver(copy, now);
    busy = true;
  }
  return busy;
}

void QueuePair::Impl::deliver(Delivery& delivery, Instant now) {
  if (delivery.position != 0) consumable_ = std::max(consumable_, delivery.position);
  if (delivery.held_mark != 0) held_.release(delivery.held_mark);
  if (delivery.stored) framer_->release_store();
  // Closing: what was placed before may still be told; nothing else is begun (V-CLS-02).
  if (delivery.failed && delivery.act != Delivery::Act::receive) {
    begin_terminate(rdmap::Fault::catastrophic, {}, now);
    return;
  }
  switch (delivery.act) {
    case Delivery::Act::nothing: return;
    case Delivery::Act::receive: deliver_receive(delivery, now); return;
    case Delivery::Act::read_response: deliver_read_response(delivery, now); return;
    case Delivery::Act::read_request: ++reads_ready_; return;
    case Delivery::Act::terminate:
      apply(stream_step(state_, StreamEvent::terminate_received), now);
      return;
    case Delivery::Act::fault: begin_terminate(fault_.fault, fault_.culprit, now); return;
  }
}

void QueuePair::Impl::deliver_receive(Delivery& delivery, Instant now) {
  if (delivery.failed) {
    complete_receive(delivery.slot, delivery.shared, Status::local_catastrophic);
    begin_terminate(rdmap::Fault::local_work, {}, now);
    return;
  }
  if (delivery.invalidates) {
    // Payload placed, then the STag invalidated, then the completion (V-SR-07).
    const auto done = table_.invalidate_remote(delivery.invalidate, config_.pd, config_.number, config_.access);
    ++turn_;  // no Access made before is good any more
    if (!done) {
      complete_receive(delivery.slot, delivery.shared, Status::invalidate_pd_access);
      rdmap::Culprit culprit;
      wire::emit(wire::UntaggedHeader{
                     .last = true,
                     .rdmap_control = wire::rdmap_control(rdmap::send_opcode(delivery.solicited, true)),
                     .invalidate = delivery.invalidate,
                     .queue = wire::queue_number::kSend,
                     .msn = delivery.msn,
                     .message_offset = delivery.offset},
                 culprit.octets);
      culprit.size = wire::UntaggedHeader::kSize;
      culprit.segment_length = delivery.ulpdu_size;
      begin_terminate(rdmap::invalidate_fault(done.error()), culprit, now);
      return;
    }
  }
  Completion completion;
  completion.opcode = delivery.immediate ? Opcode::receive_write_immediate : Opcode::receive;
  completion.of_send_queue = false;
  completion.shared = delivery.shared;
  completion.solicited = delivery.solicited;
  completion.invalidated = delivery.invalidates;
  completion.immediate = delivery.immediate;
  completion.word = delivery.invalidates ? delivery.invalidate.value : delivery.word;
  completion.slot = delivery.slot;
  completion.length = delivery.length;
  if (!host_.complete(completion)) begin_terminate(rdmap::Fault::cq_of_receives, {}, now);
}

void QueuePair::Impl::deliver_read_response(Delivery& delivery, Instant now) {
  rdmap::OutboundRead& read = reads_out_.front();
  if (delivery.refused != Status::success) {
    const std::uint32_t index = read.work;
    reads_out_.pop();
    fail_work(index, delivery.refused, now);
    return;
  }
  if (read.of_consumer) {
    Work& work = work_[read.work];
    work.until = Work::Until::nothing;
    if (read.invalidate) {
      const auto done = table_.invalidate_local(read.sink.consumers, config_.pd, config_.number);
      ++turn_;
      if (!done) {
        // The data was transferred; then the error (V-INV-06).
        const std::uint32_t index = read.work;
        reads_out_.pop();
        fail_work(index, status_of(done.error()), now);
        return;
      }
      if (moving()) work.until = Work::Until::moved;
    }
  }
  reads_out_.pop();
  send_hint_ = true;  // an ORD slot is free, a fence may have fallen
  next_waits_ = false;
  complete_work(now);
}

// Gives back what is done with. Octets placed late are neither consumed nor acknowledged before.
void QueuePair::Impl::consume() {
  const std::uint64_t upto = base_ + (deliveries_.empty() && !has_ulpdu_ ? parsed_ : consumable_);
  if (upto > connection_->consumed()) connection_->consume(upto - connection_->consumed());
  if (!deliveries_.empty()) {
    connection_->hold_acknowledgements_from(upto);
    holds_acknowledgements_ = true;
  } else if (holds_acknowledgements_) {
    connection_->hold_acknowledgements_from(tcp::Connection::kNoHold);
    holds_acknowledgements_ = false;
  }
}

}  // namespace rnic::qp
