#include "qp/stream_in.hpp"

#include <algorithm>

#include "mpa/run_reader.hpp"

namespace rnic::qp {

StreamIn::StreamIn(const Parts& parts, mpa::Crc crc, mpa::Markers markers)
    : connection_(parts.connection),
      responder_(parts.responder),
      requester_(parts.requester),
      early_(parts.early),
      gate_(parts.gate),
      counters_(parts.counters),
      scratch_(parts.scratch),
      crc_(crc),
      framer_(crc, markers),
      base_(parts.connection.consumed()),
      ahead_(parts.early != nullptr ? std::make_unique<ReadAhead>() : nullptr) {}

// ---- in order ----------------------------------------------------------------------------------------

// Where the next FPDU begins.
mpa::Cursor StreamIn::cursor() {
  const std::size_t count = std::min(connection_.readable_count(), Scratch::kReadableMax);
  for (std::size_t i = 0; i < count; ++i) scratch_.readable[i] = connection_.readable(i).span;
  return mpa::Cursor({scratch_.readable.data(), count}, base_ + parsed_ - connection_.consumed());
}

bool StreamIn::parse(Instant now, rdmap::Verdict& verdict) {
  bool busy = responder_.take_held(now, verdict);
  if (verdict || responder_.stopped()) return busy;
  if (connection_.readable_count() == 0 && !has_ulpdu_) return busy;
  mpa::Cursor at = cursor();

  while (!verdict && !responder_.stopped() && !responder_.full()) {
    if (!has_ulpdu_) {
      take_store_back();
      const auto fpdu = framer_.next(at, ulpdu_);
      if (!fpdu) {
        rdmap::Fault fault = rdmap::Fault::crc;
        switch (fpdu.error()) {
          case mpa::FramingError::bad_crc:
            break;
          case mpa::FramingError::marker_mismatch:
            fault = rdmap::Fault::bad_fpdu;
            break;
          case mpa::FramingError::too_long:
            fault = rdmap::Fault::segment_size;
            break;
        }
        responder_.refuse(fault, {{}, 0}, verdict);
        busy = true;
        break;
      }
      if (!fpdu->has_value()) break;
      fpdu_position_ = (*fpdu)->position;
      parsed_ += (*fpdu)->octets;
      has_ulpdu_ = true;
      ulpdu_stored_ = (*fpdu)->stored;
      ++counters_.fpdus_in;
    }
    if (!take_fpdu(now, verdict)) {
      if (!verdict && responder_.held_since() != kNever && connection_.peer_closed()) look_for_terminate(at, verdict);
      break;
    }
    busy = true;
  }
  paused_ = !verdict && responder_.full();
  if (ahead_ != nullptr) {
    ahead_->forget_before(parsed_);
    early_->early().forget_before(parsed_);
  }
  consume();
  return busy;
}

// The FPDU in ulpdu_. False: it has to wait.
bool StreamIn::take_fpdu(Instant now, rdmap::Verdict& verdict) {
  if (gate_.heard()) requester_.posted();
  if (!responder_.take(ulpdu_of(ulpdu_), {fpdu_position_, parsed_, ulpdu_stored_}, now, verdict)) return false;
  has_ulpdu_ = false;
  gate_.taken();
  return true;
}

// The stream stands still for want of a receive, as much is held as may be, and the peer has closed its
// half: a Terminate behind what waits there is not to wait with it (W-RDMAP-66). `at` is behind it.
void StreamIn::look_for_terminate(mpa::Cursor at, rdmap::Verdict& verdict) {
  if (looked_ahead_) return;
  looked_ahead_ = true;  // nothing more will come
  mpa::Framer ahead = framer_.ahead();
  for (;;) {
    const auto fpdu = ahead.next(at, scratch_.ahead);
    if (!fpdu || !fpdu->has_value()) return;
    if (responder_.take_if_terminate(ulpdu_of(scratch_.ahead), verdict)) return;
    if ((*fpdu)->stored) ahead.release_store();
  }
}

void StreamIn::consume() {
  take_store_back();
  const bool all = !responder_.open() && !has_ulpdu_;
  const std::uint64_t upto = base_ + (all ? parsed_ : responder_.delivered_up_to());
  if (upto > connection_.consumed()) connection_.consume(upto - connection_.consumed());
  if (responder_.open()) {
    connection_.hold_acknowledgements_from(upto);
    holds_acknowledgements_ = true;
  } else {
    let_acknowledgements_go();
  }
}

// ---- the way down ------------------------------------------------------------------------------------

bool StreamIn::take_empty_writes() {
  take_store_back();
  mpa::Cursor at = cursor();
  while (connection_.received() > base_ + parsed_) {
    const auto fpdu = framer_.next(at, ulpdu_);
    if (!fpdu || !fpdu->has_value() || !responder_.brings_nothing(ulpdu_of(ulpdu_))) return false;
    parsed_ += (*fpdu)->octets;
    if ((*fpdu)->stored) framer_.release_store();
  }
  consume();
  return true;
}

bool StreamIn::discard() {
  if (connection_.received() <= connection_.consumed()) return false;
  let_acknowledgements_go();
  connection_.consume(connection_.received() - connection_.consumed());
  return true;
}

void StreamIn::let_acknowledgements_go() {
  if (holds_acknowledgements_) connection_.hold_acknowledgements_from(tcp::Connection::kNoHold);
  holds_acknowledgements_ = false;
}

void StreamIn::keep(tpt::Kept& kept) const {
  for (std::size_t i = 0; i < connection_.readable_count(); ++i)
    kept.buffers.push_back(connection_.readable(i).buffers->share());
  if (framer_.store() != nullptr) kept.memory.push_back(framer_.store());
}

// ---- beyond a gap ------------------------------------------------------------------------------------

void StreamIn::place_early() {
  if (ahead_ == nullptr) return;
  const std::uint64_t arrived = connection_.counters().out_of_order;
  if (arrived == ahead_->seen || ahead_->distrusted) return;
  ahead_->seen = arrived;
  const std::size_t count = connection_.beyond_count();
  for (std::size_t first = 0; first < count;) {
    const std::uint64_t start = connection_.beyond(first).position;
    std::uint64_t end = start;
    std::size_t pieces = 0;
    while (first + pieces < count && pieces < Scratch::kRunMax) {
      const tcp::Connection::Beyond piece = connection_.beyond(first + pieces);
      if (piece.position != end) break;
      scratch_.run[pieces++] = piece.span;
      end += piece.span.size();
    }
    if (!place_run_early({scratch_.run.data(), pieces}, first, start - base_)) return;
    first += pieces;
  }
}

// `first` is the index of the run's first piece, `position` its place in the FPDU stream. False: no
// more of what is beyond is looked at now.
bool StreamIn::place_run_early(std::span<const Bytes> run, std::size_t first, std::uint64_t position) {
  mpa::RunReader reader(crc_, run, position);
  while (const auto fpdu = reader.find()) {
    if (fpdu->position >= ahead_->limit) return false;
    const ReadAhead::Interval* known = ahead_->interval_from(fpdu->position);
    if (known != nullptr && known->first == fpdu->position) {
      reader.go_on_at(known->end);
      continue;
    }
    const auto taken = reader.take(scratch_.ahead);
    ahead_->distrusted = taken == mpa::RunReader::Taken::invalid;
    if (ahead_->distrusted || !ahead_->remember(fpdu->position, fpdu->end())) return false;
    if (taken == mpa::RunReader::Taken::scattered) continue;
    if (!place_fpdu_early(fpdu->position, fpdu->octets, first)) return false;
  }
  return true;
}

// Its ULPDU is in scratch_.ahead.
bool StreamIn::place_fpdu_early(std::uint64_t position, std::uint32_t octets, std::size_t first) {
  const ddp::Ulpdu ulpdu = ulpdu_of(scratch_.ahead);
  const auto to = early_->target(ulpdu);
  if (!to) {
    ahead_->limit = position;
    return false;
  }
  if (!to->has_value()) return true;

  // The pieces that it lies in.
  rdmap::Early& early = early_->early();
  const std::uint64_t from = base_ + position, end = from + octets;
  while (connection_.beyond(first).position + connection_.beyond(first).span.size() <= from) ++first;
  std::size_t last = first;
  while (last < connection_.beyond_count() && connection_.beyond(last).position < end) ++last;
  if (early.full() || !early.has_room_for(last - first)) return false;

  // Until it is done, TCP may let go of these.
  if (early_->place(ulpdu, **to, position) != 0)
    for (; first != last; ++first) early.keep(connection_.beyond(first).buffer->share());
  ++counters_.fpdus_early;
  return true;
}

}  // namespace rnic::qp
