// Payloads that are placed before their turn: see early.hpp. Tagged ones, as their headers say where
// they go: RDMA Writes, and Read Responses that answer a Read outstanding. The rest waits, and so does
// all that is not placement: every complaint (V-STOP-06), every delivery (W-TCP-10, W-DDP-13), and the
// last octets of a message, which nobody may see before the others (V-ORD-09).

#include <algorithm>
#include <array>

#include "mpa/run_reader.hpp"
#include "qp/impl.hpp"

namespace rnic::qp {
namespace {

// Scratch of the worker's: nothing in it outlives a call.
constexpr std::size_t kRunMax = 1024;
thread_local std::array<Bytes, kRunMax> run_spans;
thread_local mpa::SpanList early_ulpdu;

}  // namespace

void QueuePair::Impl::place_early() {
  const std::uint64_t arrived = connection_->counters().out_of_order;
  if (arrived == early_->seen || early_->distrusted) return;
  early_->seen = arrived;
  const std::size_t count = connection_->beyond_count();
  for (std::size_t first = 0; first < count;) {
    const std::uint64_t start = connection_->beyond(first).position;
    std::uint64_t end = start;
    std::size_t pieces = 0;
    while (first + pieces < count && pieces < kRunMax) {
      const tcp::Connection::Beyond piece = connection_->beyond(first + pieces);
      if (piece.position != end) break;
      run_spans[pieces++] = piece.span;
      end += piece.span.size();
    }
    if (!place_run_early({run_spans.data(), pieces}, first, start - base_)) return;
    first += pieces;
  }
}

// `first` is the index of the run's first piece, `position` its place in the FPDU stream. False: no
// more of what is beyond is looked at now.
bool QueuePair::Impl::place_run_early(std::span<const Bytes> run, std::size_t first, std::uint64_t position) {
  mpa::RunReader reader(start_.crc, run, position);
  while (const auto fpdu = reader.find()) {
    if (fpdu->position >= early_->limit) return false;
    const Early::Interval* known = early_->interval_from(fpdu->position);
    if (known != nullptr && known->first == fpdu->position) {
      reader.go_on_at(known->end);
      continue;
    }
    const auto taken = reader.take(early_ulpdu);
    early_->distrusted = taken == mpa::RunReader::Taken::invalid;
    if (early_->distrusted || !early_->remember(fpdu->position, fpdu->end())) return false;
    if (taken == mpa::RunReader::Taken::scattered) continue;
    if (!place_fpdu_early(fpdu->position, fpdu->octets, first)) return false;
  }
  return true;
}

// Its ULPDU is in early_ulpdu.
bool QueuePair::Impl::place_fpdu_early(std::uint64_t position, std::uint32_t octets, std::size_t first) {
  const std::span<const Bytes> spans(early_ulpdu.spans.data(), early_ulpdu.count);
  std::array<std::byte, wire::kDdpHeaderSizeMax> head;
  std::size_t have = std::min<std::size_t>(head.size(), early_ulpdu.size);
  early_ulpdu.copy(0, MutableBytes(head).first(have));
  const auto extensions = config_.extensions ? rdmap::Extensions::on : rdmap::Extensions::off;
  const auto in = rdmap::check_form(Bytes(head).first(have), early_ulpdu.size, extensions);
  const auto refused = [&] {
    early_->limit = position;
    return false;
  };
  if (!in) return refused();
  const std::uint32_t body = in->payload - (in->ddp.last ? std::min(in->payload, ddp::kTailBytes) : 0);
  if (!in->ddp.tagged || body == 0) return true;
  const bool response = in->message.receiver == rdmap::Receiver::read_response;
  const rdmap::OutboundRead* const read = response ? read_answered(*in) : nullptr;
  if (response && read == nullptr) return refused();
  const auto access = response ? check_response(*read, *in) : check_sink(*in);
  if (!access) return refused();

  // The pieces that it lies in.
  const std::uint64_t from = base_ + position, to = from + octets;
  std::size_t last = first;
  while (connection_->beyond(first).position + connection_->beyond(first).span.size() <= from) ++first;
  for (last = first; last < connection_->beyond_count() && connection_->beyond(last).position < to;) ++last;
  if (early_->full() || !early_->has_room_for(last - first)) return false;

  const tpt::Access place = ddp::slice(*access, 0, body);
  const std::uint32_t slot = early_->add(position, place);
  ddp::Payload payload(spans, in->ddp.size());
  ddp::Placement placement;
  ddp::place(mover_, payload, place, ddp::Ends::nothing, {&owner_, token::kEarly | slot}, placement);
  (*early_)[slot].again |= placement.failed;
  places_ += placement.later;
  early_->moves_later(slot, placement.later);
  if (placement.later != 0)
    for (; first != last; ++first) early_->keep(connection_->beyond(first).buffer->share());
  ++counters_.fpdus_early;
  return true;
}

// The Read outstanding of which these octets are left; or null. Whether it is its turn, and that none is
// missing, is checked in order (W-RDMAP-14).
const rdmap::OutboundRead* QueuePair::Impl::read_answered(const rdmap::Inbound& in) {
  for (std::uint32_t i = responses_due_; i != 0; --i) {
    const rdmap::OutboundRead& read = reads_out_[reads_out_.next() - i];
    const std::uint64_t offset = in.ddp.tagged_offset - read.next_to;
    if (!read.atomic && in.ddp.stag == read.sink.stag && offset <= read.left && in.payload <= read.left - offset)
      return &read;
  }
  return nullptr;
}

}  // namespace rnic::qp
