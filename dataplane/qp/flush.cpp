// Completions: in post order (V-ORD-02), successes only if asked for (V-WR-15), errors and flushes
// always (V-WR-14, V-ERRST-03). And the flush: at most one status that is neither Success nor
// Flushed for each queue pair (V-ERRST-04).

#include "qp/impl.hpp"

namespace rnic::qp {

// From the head, as far as they are done.
bool QueuePair::Impl::complete_work(Instant now) {
  bool busy = false;
  while (!work_.empty()) {
    Work& work = work_.front();
    if (work.status != Status::success) break;  // the flush reports it, behind those before
    const bool done = work.until == Work::Until::nothing ||
                      (work.until == Work::Until::appended && work.segment < first_segment_) ||
                      (work.until == Work::Until::moved && !moving());
    if (!done) break;
    busy = true;
    if (work.signaled) {
      const Completion completion{.opcode = work.opcode, .slot = work.slot};
      if (!host_.complete(completion)) {
        work_.pop();
        begin_terminate(rdmap::Fault::cq_of_sends, {}, now);
        return true;
      }
    }
    work_.pop();
  }
  if (busy) next_waits_ = false;  // perhaps for one of these
  return busy;
}

void QueuePair::Impl::complete(Work& work, Status status) {
  const Completion completion{.opcode = work.opcode, .status = status, .slot = work.slot, .detail = work.detail};
  if (status == Status::flushed) ++flushed_sends_;
  // A full CQ has nobody left to tell.
  (void)host_.complete(completion);
}

void QueuePair::Impl::complete_receive(std::uint32_t slot, bool shared, Status status) {
  const Completion completion{
      .opcode = Opcode::receive, .status = status, .of_send_queue = false, .shared = shared, .slot = slot};
  if (status == Status::flushed) ++flushed_receives_;
  (void)host_.complete(completion);
}

void QueuePair::Impl::flush_sends(std::uint32_t count_max) {
  while (!work_.empty()) {
    Work& work = work_.front();
    complete(work, work.status != Status::success ? work.status : Status::flushed);
    work_.pop();
  }
  reads_out_.clear();
  responses_due_ = 0;
  stop_sending();
  const auto flush_one = [this](const WorkRequest& request) {
    ++flushed_sends_;
    (void)host_.complete({.opcode = request.opcode, .status = Status::flushed, .slot = request.slot});
  };
  if (has_next_) {
    flush_one(next_);
    has_next_ = false;
  }
  std::uint32_t count = 0;
  while (count < count_max && host_.take_send(next_)) {
    flush_one(next_);
    ++count;
  }
  send_hint_ = count == count_max;
}

void QueuePair::Impl::flush_receives(std::uint32_t count_max) {
  while (!deliveries_.empty()) {
    const Delivery& delivery = deliveries_.front();
    if (delivery.act == Delivery::Act::receive) complete_receive(delivery.slot, delivery.shared, Status::flushed);
    if (delivery.stored && framer_) framer_->release_store();
    deliveries_.pop();
  }
  held_.clear();
  held_since_ = kNever;
  if (receiving_.active) {
    complete_receive(receiving_.request.slot, receiving_.request.shared,
                     receiving_.status != Status::success ? receiving_.status : Status::flushed);
    receiving_.active = false;
  }
  receive_hint_ = false;
  // What is left in a shared queue is other queue pairs' (V-SRQ-19).
  if (config_.shared_receive) return;
  std::uint32_t count = 0;
  while (count < count_max && host_.take_receive(receiving_.request)) {
    complete_receive(receiving_.request.slot, receiving_.request.shared, Status::flushed);
    ++count;
  }
  receive_hint_ = count == count_max;
}

// Not before the last octet that could still be copied: a flushed request gives its memory back.
void QueuePair::Impl::flush(std::uint32_t count_max) {
  if (still_copied_) {
    send_hint_ = receive_hint_ = true;
    return;
  }
  flush_receives(count_max);
  flush_sends(count_max);
  flushed_ = true;
}

}  // namespace rnic::qp
