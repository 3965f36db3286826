#include "rdmap/begun_work.hpp"

#include "rdmap/acknowledgements.hpp"
#include "rdmap/atomics.hpp"

namespace rnic::rdmap {

bool BegunWork::complete(Verdict& verdict) {
  const auto has_moved = [&](Work& work) {
    if (work.until == Work::Until::moved && !common_.moves.any()) work.until = Work::Until::flushed;
    return work.until == Work::Until::flushed && common_.mover.has_done(common_.settings.space, work.mark);
  };
  bool busy = false;
  while (!ring_.empty()) {
    Work& work = ring_.front();
    if (work.status != Status::success) {
      // The flush reports it, behind those before. Of an acknowledged stream it has waited for these.
      if (acknowledgements_ != nullptr) verdict = Verdict::of(Fault::local_work);
      break;
    }
    const bool done = work.until == Work::Until::nothing ||
                      (work.until == Work::Until::carried && work.carrier < carried_) || is_acknowledged(work) ||
                      has_moved(work);
    if (!done) break;
    busy = true;
    if (work.signaled) {
      const Completion completion{.opcode = work.opcode, .slot = work.slot, .length = work.brought};
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

// Asked for by DAPL, which compares it with what it wanted to read.
std::uint32_t BegunWork::octets_brought(const WorkRequest& request) {
  if (request.opcode == Opcode::fetch_add || request.opcode == Opcode::compare_swap) return kAtomicBytes;
  if (request.opcode != Opcode::read && request.opcode != Opcode::read_invalidate) return 0;
  std::uint32_t octets = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) octets += request.sges[i].length;
  return octets;
}

bool BegunWork::is_acknowledged(const Work& work) const {
  return work.until == Work::Until::acknowledged && work.carrier < carried_ &&
         acknowledgements_->has_acknowledged(work.number);
}

bool BegunWork::fail_first(Status status, std::optional<std::uint32_t> from, std::uint32_t detail) {
  Work* first = nullptr;
  for (std::uint32_t i = ring_.first(); i != ring_.next(); ++i) {
    Work& work = ring_[i];
    if (work.status != Status::success) {
      if (first == nullptr) return true;
      work.status = Status::success;  // no more than one of those behind it
    }
    const bool of_peer =
        work.until == Work::Until::built || work.until == Work::Until::acknowledged || work.until == Work::Until::read;
    const bool later = !from || work.number == 0 || !Acknowledgements::is_after(*from, work.number);
    if (first == nullptr && of_peer && later && !is_acknowledged(work)) first = &work;
  }
  if (first == nullptr) return false;
  first->status = status;
  first->detail = detail;
  return true;
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
