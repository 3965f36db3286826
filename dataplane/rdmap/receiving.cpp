#include "rdmap/receiving.hpp"

#include <algorithm>

#include "rdmap/early.hpp"
#include "rdmap/status.hpp"

namespace rnic::rdmap {

bool Receiving::take() {
  if (!common_.host.take_receive(request_)) return false;
  common_.receive_taken();
  active_ = true;
  status_ = Status::success;
  capacity_ = 0;
  sge_ = sge_offset_ = 0;
  checked_in_ = 0;
  if (request_.sge_count > kSgesMax) request_.malformed = true;
  if (!request_.malformed)
    for (std::uint32_t i = 0; i < request_.sge_count; ++i) capacity_ += request_.sges[i].length;
  return true;
}

Status Receiving::check() {
  if (checked_in_ == common_.turn) return Status::success;
  for (std::uint32_t i = 0; i < request_.sge_count; ++i) {
    const Sge& sge = request_.sges[i];
    const auto access = common_.table.check_local(sge.lkey, common_.settings.receive_pd, tpt::Rights::local_write,
                                                  sge.address, sge.length);
    if (!access) return status_of(access.error());
    access_[i] = *access;
  }
  checked_in_ = common_.turn;
  return Status::success;
}

bool Receiving::is_mapped() const {
  for (std::uint32_t i = 0; i < request_.sge_count; ++i)
    if (request_.sges[i].length != 0 && access_[i].direct == nullptr) return false;
  return true;
}

ddp::Placement Receiving::place(const ddp::Ulpdu& ulpdu, std::size_t header, std::uint32_t size, bool last,
                                tpt::MoveTicket ticket, Early* early) {
  ddp::Payload payload(ulpdu.spans, header);
  ddp::Placement placement;
  std::uint32_t left = size;
  while (left != 0) {
    const Sge& sge = request_.sges[sge_];
    if (sge_offset_ == sge.length) {
      ++sge_;
      sge_offset_ = 0;
      continue;
    }
    const std::uint32_t piece = std::min(left, sge.length - sge_offset_);
    const auto ends = last && piece == left ? ddp::Ends::message : ddp::Ends::nothing;
    const tpt::Access to = ddp::slice(access_[sge_], sge_offset_, piece);
    if (early != nullptr) early->placed_in_order(to);
    if (const tpt::Access* const memory = ulpdu.memory) [[unlikely]]
      placement.add(ddp::transfer(common_.mover, ddp::slice(*memory, size - left, piece), to, ends, ticket));
    else
      ddp::place(common_.mover, payload, to, ends, ticket, placement);
    sge_offset_ += piece;
    left -= piece;
  }
  return placement;
}

void Receiving::flush() {
  if (!active_) return;
  common_.fail_receive(slot(), shared(), status_ != Status::success ? status_ : Status::flushed);
  active_ = false;
}

}  // namespace rnic::rdmap
