#include "shm/queue_host.hpp"

#include <algorithm>

namespace rnic::shm {

bool QueueHost::take_send(qp::WorkRequest& out) { return parts_.send->take(out); }

bool QueueHost::take_send(ud::WorkRequest& out) { return parts_.send->take(out); }

bool QueueHost::take_receive(qp::ReceiveRequest& out) {
  if (parts_.shared == nullptr) return parts_.receive->take(out);
  const bool taken = parts_.shared->take(out);
  if (parts_.shared->take_limit_event()) events_->on_srq_limit(parts_.shared->cookie);
  return taken;
}

void QueueHost::give_back_receive() {
  if (parts_.shared == nullptr)
    parts_.receive->give_back();
  else
    parts_.shared->give_back();
}

bool QueueHost::complete(const qp::Completion& completion) {
  rnic_cqe entry = {};
  entry.qp_number = parts_.qp_number;
  entry.slot = completion.slot;
  entry.length = completion.length;
  entry.word = completion.word;
  entry.opcode = static_cast<std::uint8_t>(completion.opcode);
  entry.status = static_cast<std::uint8_t>(completion.status);
  entry.flags = static_cast<std::uint8_t>(
      (completion.solicited ? RNIC_CQE_SOLICITED : 0u) | (completion.invalidated ? RNIC_CQE_INVALIDATED : 0u) |
      (completion.immediate ? RNIC_CQE_IMMEDIATE : 0u) | (completion.of_send_queue ? RNIC_CQE_SEND_QUEUE : 0u) |
      (completion.shared ? RNIC_CQE_SHARED : 0u) | (completion.datagram ? RNIC_CQE_DATAGRAM : 0u) |
      (completion.ipv4 ? RNIC_CQE_IPV4 : 0u));
  entry.source_qp = completion.source.value;
  entry.detail = completion.detail;
  entry.qp_cookie = static_cast<std::uint32_t>(parts_.user_pointer);
  CompletionQueue& cq = completion.of_send_queue ? *parts_.send_cq : *parts_.receive_cq;
  if (cq.timed()) entry.time = static_cast<std::uint64_t>(events_->clock().ns);
  const bool overflowed_before = cq.overflowed();
  if (!cq.push(entry, worker_)) {
    if (!overflowed_before) events_->on_cq_overflow(cq.cookie());
    return false;
  }
  events_->cq_pushed(cq);
  return true;
}

void QueueHost::raise(qp::Event event) { events_->on_qp_event(parts_.cookie, event); }

void QueueHost::state_changed(const qp::Change& change) { events_->on_qp_state(parts_.cookie, change); }

void QueueHost::set_worker(std::uint32_t worker, WorkerEvents& events) {
  events_ = &events;
  worker_ = worker;
  parts_.send->set_worker(worker);
  if (parts_.receive != nullptr) parts_.receive->set_worker(worker);
}

}  // namespace rnic::shm
