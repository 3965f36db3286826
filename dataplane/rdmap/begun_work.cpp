#include "rdmap/begun_work.hpp"

namespace rnic::rdmap {

bool BegunWork::complete(Verdict& verdict) {
  const auto has_moved = [&](Work& work) {
    if (work.until == Work::Until::moved && !common_.moves.any()) work.until = Work::Until::flushed;
    return work.until == Work::Until::flushed && !common_.mover.is_stuck(common_.settings.space);
  };
  bool busy = false;
  while (!ring_.empty()) {
    Work& work = ring_.front();
    if (work.status != Status::success) break;  // the flush reports it, behind those before
    const bool done = work.until == Work::Until::nothing ||
                      (work.until == Work::Until::carried && work.carrier < carried_) || has_moved(work);
    if (!done) break;
    busy = true;
    if (work.signaled) {
      const Completion completion{.opcode = work.opcode, .slot = work.slot};
      if (!common_.host.complete(completion)) {
        ring_.pop();
        verdict = Verdict::of(Fault::cq_of_sends);
        return true;
      }
    }
    ring_.pop();
  }
  return busy;
}

void BegunWork::fail_low(std::uint32_t low, Status status) {
  for (std::uint32_t i = ring_.first(); i != ring_.next(); ++i)
    if ((i & 0x7FFF) == low) ring_[i].status = status;
}

void BegunWork::blame(std::uint32_t index, std::uint32_t detail) {
  Work& work = ring_[index];
  if (work.until != Work::Until::read) return;
  work.status = Status::remote_termination;
  work.detail = detail;
}

void BegunWork::flush() {
  for (; !ring_.empty(); ring_.pop()) {
    const Work& work = ring_.front();
    const Status status = work.status != Status::success ? work.status : Status::flushed;
    if (status == Status::flushed) ++common_.flushed_sends;
    // A full CQ has nobody left to tell.
    (void)common_.host.complete({.opcode = work.opcode, .status = status, .slot = work.slot, .detail = work.detail});
  }
}

void BegunWork::flush(const WorkRequest& request) {
  ++common_.flushed_sends;
  (void)common_.host.complete({.opcode = request.opcode, .status = Status::flushed, .slot = request.slot});
}

}  // namespace rnic::rdmap
