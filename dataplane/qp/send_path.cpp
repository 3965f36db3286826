// Work requests and Read Responses -> DDP segments -> FPDUs -> TCP segments.
//
// One message at a time, whatever it is (W-DDP-10); work and responses take turns at message
// boundaries. FPDUs that fit share a TCP segment, across work requests of one turn (W-TCP-02, -13),
// and none lies in two (W-TCP-24). A TCP segment goes to the connection when every gather into it
// is done; then, and not before, its work requests complete (V-ORD-08).

#include <algorithm>
#include <cstring>

#include "qp/impl.hpp"
#include "qp/status.hpp"

namespace rnic::qp {

bool QueuePair::Impl::transmit(Instant now, std::uint32_t budget_bytes) {
  if (connection_ == nullptr || state_ != State::rts) {
    if (send_hint_ && (state_ == State::closing || state_ == State::terminate || state_ == State::error))
      return go_down(now);
    return false;
  }
  ++turn_;
  starved_ = next_waits_ = false;
  needs_room_ = 0;
  const std::uint32_t room = connection_->room_bytes();
  room_ = room > filling_bytes_ ? room - filling_bytes_ : 0;
  bool busy = false;
  while (budget_bytes != 0) {
    if (sending_.kind == Sending::Kind::nothing) {
      if (!begin_message(now)) break;
      busy = true;
      if (state_ != State::rts) break;
      if (sending_.kind == Sending::Kind::nothing) continue;
    }
    if (!emit_segment(budget_bytes, now)) break;
    busy = true;
    if (state_ != State::rts) break;
  }
  close_segment();
  if (state_ != State::rts) {
    go_down(now);
    return true;
  }
  busy |= push_segments(now);
  busy |= complete_work(now);
  return busy;
}

// ---- what is next ----------------------------------------------------------------------------------

// Sets sending_, or completes something without a message; false: nothing can be begun now.
bool QueuePair::Impl::begin_message(Instant now) {
  if (gate_rtr_) return begin_rtr();
  if (!gate_open_) return false;  // W-MPA-21, -42
  if (nudge_due_) {
    begin_nudge();
    return true;
  }
  const bool response = reads_ready_ != 0;
  if (response && work_was_last_ && begin_response(now)) return true;
  if (begin_work(now)) return true;
  return response && state_ == State::rts && begin_response(now);
}

// The initiator's first FPDU where the startup agreed on one; it is no work of the consumer's
// (W-MPA-42, -45, -46).
bool QueuePair::Impl::begin_rtr() {
  gate_rtr_ = false;
  sending_ = {};
  switch (start_.rtr) {
    case Start::Rtr::none: break;
    case Start::Rtr::write:
      // An STag of 0 is special to some hardware.
      sending_.message = rdmap::Sender::write({1}, 0, 0);
      sending_.kind = Sending::Kind::data;
      break;
    case Start::Rtr::send:
      sending_.message = sender_.send(false, false, {}, 0);
      sending_.kind = Sending::Kind::data;
      break;
    case Start::Rtr::read:
      sending_.message = sender_.read_request();
      wire::emit(wire::ReadRequestHeader{.sink_stag = {1}, .source_stag = {1}}, sending_.header);
      sending_.kind = Sending::Kind::request;
      reads_out_.push({.sink = {.stag = {1}}, .msn = sending_.message.msn, .of_consumer = false});
      ++responses_due_;
      break;
  }
  rtr_segment_ = next_segment_;
  return true;
}

// No work of the consumer's either, and nothing to the peer's: see kNudges.
void QueuePair::Impl::begin_nudge() {
  nudge_due_ = false;
  sending_ = {};
  sending_.message = rdmap::Sender::write({1}, 0, 0);
  sending_.kind = Sending::Kind::data;
}

// False: it has to wait.
bool QueuePair::Impl::begin_response(Instant now) {
  rdmap::InboundRead& read = reads_in_.front();
  if (read.atomic) return begin_atomic_response(now);
  const wire::ReadRequestHeader& request = read.request;
  // The source of a Read of no octets is not looked at (W-RDMAP-12).
  if (request.size_bytes != 0) {
    const auto access = table_.check_remote(request.source_stag, config_.pd, config_.number, tpt::Rights::remote_read,
                                            request.source_to, request.size_bytes);
    if (!access) {
      begin_terminate(rdmap::read_fault(access.error()), read.culprit, now);
      return true;
    }
  }
  sending_ = {};
  sending_.kind = Sending::Kind::response;
  sending_.message = rdmap::Sender::read_response(request.sink_stag, request.sink_to, request.size_bytes);
  work_was_last_ = false;
  return true;
}

bool QueuePair::Impl::begin_work(Instant now) {
  for (std::uint32_t i = 0; i < kLocalWorkMax; ++i) {
    if (!has_next_) {
      if (!send_hint_) return i != 0;
      if (!host_.take_send(next_)) {
        send_hint_ = false;
        return i != 0;
      }
      has_next_ = true;
      next_checked_in_ = 0;
      next_.sge_count = static_cast<std::uint8_t>(std::min<std::uint32_t>(next_.sge_count, kSgesMax));
    }
    switch (begin_next_work(now)) {
      case Began::message: work_was_last_ = true; return true;
      case Began::failed: return true;
      case Began::waits: next_waits_ = true; return i != 0;
      case Began::completed: has_next_ = false; break;
    }
  }
  return true;
}

QueuePair::Impl::Began QueuePair::Impl::begin_next_work(Instant now) {
  if (work_.full()) return Began::waits;
  const bool local = next_.opcode == Opcode::local_invalidate || next_.opcode == Opcode::bind;
  const bool read = next_.opcode == Opcode::read || next_.opcode == Opcode::read_invalidate;
  const bool atomic = next_.opcode == Opcode::fetch_add || next_.opcode == Opcode::compare_swap;
  const bool extension = atomic || next_.opcode == Opcode::write_immediate;
  if (next_.fence) {
    // Read Fence waits for Reads, Local Fence for all (V-FEN-01, -02).
    if (next_.opcode == Opcode::local_invalidate && !work_.empty()) return Began::waits;
    if (!local && !read && !reads_out_.empty()) return Began::waits;
  }
  if ((read || atomic) && !next_.malformed && config_.ord != 0 && reads_out_.count() >= config_.ord)
    return Began::waits;  // V-ORD-07: all of the SQ

  const std::uint32_t index = work_.next();
  Work& work = work_.push({.opcode = next_.opcode, .signaled = next_.signaled, .slot = next_.slot});
  const auto fails = [&](Status status) {
    has_next_ = false;
    fail_work(index, status, now);
    return Began::failed;
  };
  // W-EXT-14. Whoever hands work to us has checked its opcode; an unknown one fails all the same.
  if (next_.malformed || next_.opcode > Opcode::fast_register || (extension && !config_.extensions))
    return fails(Status::invalid_wqe);

  switch (next_.opcode) {
    case Opcode::send:
    case Opcode::send_invalidate:
    case Opcode::write:
    case Opcode::write_immediate: {
      std::uint64_t length = 0;
      if (next_.has_data) {
        length = next_.data.size();
      } else {
        for (std::uint32_t i = 0; i < next_.sge_count; ++i) length += next_.sges[i].length;
      }
      if (length > 0xFFFFFFFF) return fails(Status::invalid_length);  // V-SGL-06
      // Also of what was gathered at post: the SGEs are checked all the same (V-SEC-08).
      if (next_.sge_count != 0) {
        const Status status = check_gather(next_);
        if (status != Status::success) return fails(status);
      }
      sending_.kind = Sending::Kind::data;
      sending_.sge = sending_.sge_offset = 0;
      if (next_.opcode == Opcode::write || next_.opcode == Opcode::write_immediate) {
        sending_.message =
            rdmap::Sender::write(next_.remote_stag, next_.remote_to, static_cast<std::uint32_t>(length));
        ++counters_.writes_out;
      } else {
        sending_.message = sender_.send(next_.solicited, next_.opcode == Opcode::send_invalidate, next_.invalidate,
                                        static_cast<std::uint32_t>(length));
        ++counters_.sends_out;
      }
      break;
    }
    case Opcode::read:
    case Opcode::read_invalidate: {
      if (config_.ord == 0) return fails(Status::zero_read_resources);  // V-RD-09
      // One local address (V-SGL-07).
      if (next_.sge_count > 1 || next_.has_data) return fails(Status::invalid_wqe);
      const Sge local = next_.sge_count == 1 ? next_.sges[0] : Sge{};
      tpt::ReadSink sink{.stag = local.lkey, .consumers = local.lkey};
      if (local.length != 0) {
        const auto checked = read_sink(local);
        if (!checked) return fails(status_of(checked.error()));
        sink = *checked;
      }
      sending_.kind = Sending::Kind::request;
      sending_.message = sender_.read_request();
      wire::emit(wire::ReadRequestHeader{.sink_stag = sink.stag,
                                         .sink_to = local.address,
                                         .size_bytes = local.length,
                                         .source_stag = next_.remote_stag,
                                         .source_to = next_.remote_to},
                 sending_.header);
      reads_out_.push({.sink = sink,
                       .next_to = local.address,
                       .left = local.length,
                       .msn = sending_.message.msn,
                       .work = index,
                       .invalidate = next_.opcode == Opcode::read_invalidate});
      ++responses_due_;
      ++counters_.reads_out;
      break;
    }
    case Opcode::local_invalidate: {
      const auto done = table_.invalidate_local(next_.remote_stag, config_.pd, config_.number);
      ++turn_;
      if (!done) return fails(status_of(done.error()));
      // Complete only when nothing is on its way under the old binding (V-INV-10).
      work.until = moving() ? Work::Until::moved : Work::Until::nothing;
      return Began::completed;
    }
    case Opcode::bind: {
      const Status status = bind(next_);
      ++turn_;
      if (status != Status::success) return fails(status);
      work.until = Work::Until::nothing;
      return Began::completed;
    }
    case Opcode::fast_register: return fails(Status::not_privileged);
    case Opcode::fetch_add:
    case Opcode::compare_swap: {
      const Status status = begin_atomic(index);
      if (status != Status::success) return fails(status);
      break;
    }
    case Opcode::receive:
    case Opcode::receive_write_immediate: return fails(Status::invalid_wqe);
  }
  sending_.of_consumer = true;
  sending_.work = index;
  return Began::message;
}

// Where a Read of at least one octet goes. Strictly it is first looked at when the Response comes, and the
// consumer's own STag has to have Remote Write (V-RD-03, V-RD-04).
Result<tpt::ReadSink, tpt::Refusal> QueuePair::Impl::read_sink(const Sge& local) {
  if (!config_.strict_read_sink)
    return table_.check_read_sink(local.lkey, config_.pd, config_.number, config_.access, local.address, local.length,
                                  read_stags_);
  if (local.lkey == Stag{}) return Failure{tpt::Refusal::invalid_stag};
  return tpt::ReadSink{.stag = local.lkey, .consumers = local.lkey};
}

Status QueuePair::Impl::bind(const WorkRequest& request) {
  if (!tpt::permits(config_.access, tpt::Rights::window_bind)) return Status::access;
  const auto done = table_.bind(request.remote_stag, request.remote_stag.key(), request.invalidate, config_.pd,
                                config_.number, request.rights, request.remote_to, request.argument);
  return done ? Status::success : status_of_bind(done.error());
}

// Every SGE whole, once in a turn: what the TPT permits now may be gone in the next (V-INV-10).
Status QueuePair::Impl::check_gather(const WorkRequest& request) {
  if (next_checked_in_ == turn_) return Status::success;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) {
    const Sge& sge = request.sges[i];
    const auto access = table_.check_local(sge.lkey, config_.pd, tpt::Rights::local_read, sge.address, sge.length);
    if (!access) return status_of(access.error());
    next_access_[i] = *access;
  }
  next_checked_in_ = turn_;
  return Status::success;
}

// Not sent, or no further: the Terminate goes in its place (V-STOP-03).
void QueuePair::Impl::fail_work(std::uint32_t index, Status status, Instant now) {
  work_[index].status = status;
  stop_sending();
  begin_terminate(rdmap::Fault::local_work, {}, now);
}

// ---- segments --------------------------------------------------------------------------------------

// One DDP segment of the message under way. False: no room for it now.
bool QueuePair::Impl::emit_segment(std::uint32_t& budget_bytes, Instant now) {
  ddp::OutboundMessage& message = sending_.message;
  // The first segment of a turn may be a probe of the path's MTU.
  const std::uint32_t emss = open_ == nullptr ? connection_->begin_segment(room_, now) : connection_->emss();
  const mpa::Markers markers = start_.markers_out ? mpa::Markers::inserted : mpa::Markers::none;
  const ddp::Segment segment =
      ddp::next_segment(message, mpa::mulpdu(std::min(emss, room_of_buffer()), markers));

  // What it is gathered from, before anything of it is written.
  tpt::Access source;
  if (sending_.kind == Sending::Kind::response && segment.payload != 0) {
    rdmap::InboundRead& read = reads_in_.front();
    const auto access = table_.check_remote(read.request.source_stag, config_.pd, config_.number,
                                            tpt::Rights::remote_read, read.request.source_to + message.done,
                                            segment.payload);
    if (!access) {
      rdmap::advance_read_request(read.culprit, message.done);
      begin_terminate(rdmap::read_fault(access.error()), read.culprit, now);
      return true;
    }
    source = *access;
  } else if (sending_.of_consumer && sending_.kind == Sending::Kind::data && next_.sge_count != 0) {
    const Status status = check_gather(next_);
    if (status != Status::success) {
      fail_work(sending_.work, status, now);
      return true;
    }
  }

  std::array<std::byte, wire::kDdpHeaderSizeMax + sizeof(Sending::header)> header;
  std::uint32_t header_bytes = message.header_bytes();
  std::uint32_t payload_bytes = segment.payload;
  ddp::write_header(message, segment, header);
  if (sending_.is_header()) {
    std::memcpy(header.data() + header_bytes, sending_.header.data(), payload_bytes);
    header_bytes += payload_bytes;
    payload_bytes = 0;
  }

  const std::uint32_t octets = packer_->octets_for(header_bytes + payload_bytes);
  FillingSegment* into = room_for(octets, emss);
  if (into == nullptr) return false;
  const std::uint32_t offset = into->buffer->length;
  const MutableBytes fpdu = into->buffer->append(octets);
  packer_->begin(fpdu, Bytes(header).first(header_bytes), payload_bytes, pieces_);
  filling_bytes_ += octets;
  room_ -= std::min(room_, octets);
  open_room_ -= std::min(open_room_, octets);
  ++counters_.fpdus_out;
  counters_.bytes_out += payload_bytes;

  const std::uint32_t gathers_before = into->gathers;
  if (payload_bytes != 0) {
    if (sending_.kind == Sending::Kind::response) {
      std::uint32_t at = 0;
      for (std::uint32_t i = 0; i < pieces_.count; ++i) {
        const auto size = static_cast<std::uint32_t>(pieces_.pieces[i].size());
        gather_piece(*into, ddp::slice(source, at, size), pieces_.pieces[i]);
        at += size;
      }
    } else {
      gather(*into, pieces_);
    }
  }
  if (into->gathers == gathers_before) {
    packer_->seal(fpdu);
  } else {
    unsealed_.push({offset, octets});
    ++into->unsealed;
  }

  message.done += segment.payload;
  budget_bytes -= std::min(budget_bytes, std::max(octets, 1u));
  if (segment.last) {
    if (sending_.kind == Sending::Kind::response || sending_.kind == Sending::Kind::atomic_response) {
      // The whole Response has been generated: its place in the queue is free (V-IRD-10).
      reads_in_.pop();
      --reads_ready_;
    } else if (sending_.kind == Sending::Kind::data && sending_.of_consumer &&
               next_.opcode == Opcode::write_immediate) {
      begin_immediate();
      return true;
    } else if (sending_.of_consumer) {
      Work& work = work_[sending_.work];
      work.until = sending_.kind == Sending::Kind::request ? Work::Until::read : Work::Until::appended;
      work.segment = next_segment_ - 1;
      has_next_ = false;
    }
    sending_.kind = Sending::Kind::nothing;
  }
  return true;
}

// What the FPDU begun now is cut for: a large buffer, if there is one, else a small one. Smaller FPDUs
// than the path has room for are slower, and wait for nobody. Of small ones the whole frame is to fit
// one, as a receiver may put it there.
std::uint32_t QueuePair::Impl::room_of_buffer() const {
  const bool any = pool_.large_available() != 0 || pool_.small_room_bytes() == pool_.room_bytes();
  const std::uint32_t fresh = any ? pool_.room_bytes() : pool_.small_room_bytes() - kHeadroom;
  return open_ == nullptr ? fresh : std::max(fresh, open_room_);
}

// A segment that takes an FPDU of so many octets: the open one, or a fresh one of up to `emss`.
FillingSegment* QueuePair::Impl::room_for(std::uint32_t octets, std::uint32_t emss) {
  if (unsealed_.full()) return nullptr;
  if (open_ != nullptr && octets <= open_room_) return open_;
  close_segment();
  // Less room than the FPDU, though no less than a full segment: it is larger than one (W-MPA-58).
  if (room_ < std::min(octets, emss)) {
    needs_room_ = octets;
    return nullptr;
  }
  if (next_segment_ - first_segment_ == kSegmentsMax) return nullptr;
  BufferRef buffer = BufferRef::take(pool_, octets + kHeadroom);
  if (!buffer) {
    starved_ = true;  // a pause, not an error
    return nullptr;
  }
  RNIC_ASSERT(octets <= buffer->tailroom());
  const std::uint32_t tail = buffer->tailroom();
  open_room_ = std::max(octets, std::min({emss, room_, tail >= pool_.room_bytes() ? tail : tail - kHeadroom}));
  open_ = &segments_[next_segment_ % kSegmentsMax];
  *open_ = FillingSegment{};
  open_->buffer = std::move(buffer);
  ++next_segment_;
  return open_;
}

// From the work request under way, into these pieces.
void QueuePair::Impl::gather(FillingSegment& segment, const mpa::PieceList& pieces) {
  std::uint32_t done = 0;
  for (std::uint32_t i = 0; i < pieces.count; ++i) {
    MutableBytes into = pieces.pieces[i];
    if (next_.has_data) {
      std::memcpy(into.data(), next_.data.data() + sending_.message.done + done, into.size());
      done += static_cast<std::uint32_t>(into.size());
      continue;
    }
    while (!into.empty()) {
      const Sge& sge = next_.sges[sending_.sge];
      if (sending_.sge_offset == sge.length) {
        ++sending_.sge;
        sending_.sge_offset = 0;
        continue;
      }
      const auto size = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(into.size(), sge.length - sending_.sge_offset));
      gather_piece(segment, ddp::slice(next_access_[sending_.sge], sending_.sge_offset, size), into.first(size));
      sending_.sge_offset += size;
      into = into.subspan(size);
    }
  }
}

void QueuePair::Impl::gather_piece(FillingSegment& segment, const tpt::Access& from, MutableBytes into) {
  const std::uint32_t work = sending_.of_consumer ? sending_.work & 0x7FFF : token::kNoWork;
  switch (mover_.gather(from, into, {&owner_, token::gather(next_segment_ - 1, work)})) {
    case tpt::Moved::done: return;
    case tpt::Moved::failed:
      if (!segment.failed) segment.failed_work = work;
      segment.failed = true;
      return;
    case tpt::Moved::later:
      ++segment.gathers;
      ++gathers_;
      if (work == token::kNoWork) ++response_gathers_;
      return;
  }
}

// Seals what is gathered and hands it to the connection, in order.
bool QueuePair::Impl::push_segments(Instant now) {
  bool busy = false;
  waits_for_slot_ = false;
  while (first_segment_ != next_segment_) {
    FillingSegment& segment = segments_[first_segment_ % kSegmentsMax];
    if (&segment == open_ || segment.gathers != 0) break;
    if (segment.failed) {
      // It is not sent, nor anything behind it.
      const std::uint32_t work = segment.failed_work;
      if (state_ == State::rts) {
        if (work != token::kNoWork) {
          for (std::uint32_t i = work_.first(); i != work_.next(); ++i)
            if ((i & 0x7FFF) == work) work_[i].status = Status::access;
          begin_terminate(rdmap::Fault::local_work, {}, now);
        } else {
          begin_terminate(rdmap::Fault::catastrophic, {}, now);
        }
      }
      close_segment();
      drop_unsent_ = true;
      return true;
    }
    for (; segment.unsealed != 0; --segment.unsealed) {
      const UnsealedFpdu& fpdu = unsealed_.front();
      packer_->seal(segment.buffer->bytes().subspan(fpdu.offset, fpdu.size));
      unsealed_.pop();
    }
    const std::uint32_t length = segment.buffer->length;
    // No slot: it stays here until acknowledgements free one.
    BufferRef share = segment.buffer.share();
    waits_for_slot_ = !connection_->append(std::move(share));
    if (waits_for_slot_) break;
    segment.buffer.reset();
    filling_bytes_ -= length;
    ++first_segment_;
    busy = true;
    if (rtr_segment_ && first_segment_ > *rtr_segment_) {
      // The RTR is with TCP: the consumer's FPDUs may follow (W-MPA-87).
      rtr_segment_.reset();
      gate_open_ = true;
      send_hint_ = true;
    }
  }
  return busy;
}

}  // namespace rnic::qp
