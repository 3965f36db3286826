// A queue pair's application, as its queues in shared memory: a qp::Host, or of one of type UD a ud::Host, made of
// rings.
//
// Owned by the QP's worker once the QP is there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.hpp"
#include "qp/work.hpp"
#include "shm/queues.hpp"
#include "ud/work.hpp"

namespace rnic::shm {

// Where a worker's news for control go. Implemented by core's ring; nothing blocks.
class WorkerEvents {
 public:
  virtual void on_qp_event(std::uint64_t qp_cookie, qp::Event event) = 0;
  virtual void on_qp_state(std::uint64_t qp_cookie, const qp::Change& change) = 0;
  virtual void on_srq_limit(std::uint64_t srq_cookie) = 0;
  virtual void on_cq_overflow(std::uint64_t cq_cookie) = 0;
  // CQEs were pushed: publish them, and look at its arming before the turn ends.
  virtual void cq_pushed(CompletionQueue& cq) = 0;
  // The time now, which is later than the turn's: for completions that are to tell when they were made.
  virtual Instant clock() const = 0;

 protected:
  ~WorkerEvents() = default;
};

class QueueHost final : public qp::Host, public ud::Host {
 public:
  struct Parts {
    SendQueue* send = nullptr;
    ReceiveQueue* receive = nullptr;  // null with a shared receive queue
    SharedReceiveQueue* shared = nullptr;
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* receive_cq = nullptr;
    std::uint32_t qp_number = 0;
    std::uint64_t user_pointer = 0;
    std::uint64_t cookie = 0;  // control's name for the QP
  };
  QueueHost(const Parts& parts, WorkerEvents& events) : parts_(parts), events_(&events) {}

  bool take_send(qp::WorkRequest& out) override;
  bool take_send(ud::WorkRequest& out) override;
  bool take_receive(qp::ReceiveRequest& out) override;
  void give_back_receive() override;
  bool complete(const qp::Completion& completion) override;
  bool has_room_for_receive() const override { return parts_.receive_cq->has_room(worker_); }
  void raise(qp::Event event) override;
  void state_changed(const qp::Change& change) override;

  SharedReceiveQueue* shared() const { return parts_.shared; }
  void set_worker(std::uint32_t worker, WorkerEvents& events);

 private:
  Parts parts_;
  WorkerEvents* events_;
  std::uint32_t worker_ = 0;
};

}  // namespace rnic::shm
