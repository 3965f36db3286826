#include "rdmap/atomics.hpp"

#include "rdmap/early.hpp"

namespace rnic::rdmap {

// The checks in the order of V-ACC-08, the alignment of the address last (W-EXT-03, -04).
Result<tpt::Access, Fault> Atomics::check(const wire::AtomicRequestHeader& request) const {
  const Settings& own = common_.settings;
  const auto access = common_.table.check_remote(request.stag, own.pd, own.number, tpt::Rights::remote_atomic,
                                                 request.tagged_offset, kAtomicBytes);
  // The queue pair's own enable is one of the access rights.
  if (!tpt::permits(own.access, tpt::Rights::remote_atomic) &&
      (access || (access.error() != tpt::Refusal::invalid_stag && access.error() != tpt::Refusal::not_associated)))
    return Failure{Fault::atomic_access};
  if (!access) return Failure{atomic_fault(access.error())};
  if (access->address % kAtomicBytes != 0) return Failure{Fault::atomic_alignment};
  return *access;
}

std::optional<Fault> Atomics::execute(const wire::AtomicRequestHeader& request) {
  const auto access = check(request);
  if (!access) return access.error();
  if (early_ != nullptr) early_->placed_in_order(*access);
  const tpt::MoveTicket ticket{&common_.owner, token::kAtomic};
  tpt::Moved moved = tpt::Moved::failed;
  switch (request.opcode) {
    case wire::AtomicOpcode::fetch_add:
      moved = common_.mover.fetch_add(*access, request.data, request.data_mask, original_, ticket);
      break;
    case wire::AtomicOpcode::swap:  // compares with nothing, and looks at no mask
      moved = common_.mover.compare_swap(*access, 0, 0, request.data, UINT64_MAX, original_, ticket);
      break;
    case wire::AtomicOpcode::compare_swap:
      moved = common_.mover.compare_swap(*access, request.compare, request.compare_mask, request.data,
                                         request.data_mask, original_, ticket);
      break;
  }
  switch (moved) {
    case tpt::Moved::done:
      set(State::done);
      break;
    case tpt::Moved::failed:
      set(State::failed);
      break;
    case tpt::Moved::later:
      set(State::begun);
      break;
  }
  return std::nullopt;
}

}  // namespace rnic::rdmap
