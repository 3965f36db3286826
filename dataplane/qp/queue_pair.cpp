// A queue pair's life: attachment, Modify, what happens to the stream, and the way down.

#include "qp/queue_pair.hpp"

#include <algorithm>
#include <cstring>

#include "qp/impl.hpp"
#include "rdmap/describe.hpp"
#include "wire/terminate_of_siw.hpp"

namespace rnic::qp {

const char* name(State state) {
  switch (state) {
    case State::idle: return "Idle";
    case State::rts: return "RTS";
    case State::closing: return "Closing";
    case State::terminate: return "Terminate";
    case State::error: return "Error";
  }
  return "?";
}

std::string describe(const TerminateRecord& record) {
  using Origin = TerminateRecord::Origin;
  if (record.origin == Origin::none) return {};
  return rdmap::describe_terminate(as_bytes(record.octets, record.length),
                                   record.origin == Origin::remote ? rdmap::Origin::remote : rdmap::Origin::local);
}

QueuePair::Impl::Impl(QueuePair& owner, const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover,
                      BufferPool& pool)
    : owner_(owner), config_(config), host_(host), table_(table), mover_(mover), pool_(pool) {}

// ---- life ------------------------------------------------------------------------------------------

// A reused queue pair starts from the same values as a new one (V-CONN-02).
void QueuePair::Impl::attach(tcp::Connection& connection, const Start& start, Instant now) {
  RNIC_ASSERT(state_ == State::idle && connection_ == nullptr);
  connection_ = &connection;
  start_ = start;
  config_.ird = start.ird;
  config_.ord = start.ord;
  base_ = connection.consumed();
  record_ = {};

  packer_.emplace(start.crc, start.markers_out ? mpa::Markers::inserted : mpa::Markers::none);
  framer_.emplace(start.crc, start.markers_in);
  sender_ = {};
  sending_ = {};
  work_was_last_ = starved_ = waits_for_slot_ = false;
  work_.reserve(std::clamp(config_.send_depth, 1u, kWorkMax));
  reads_out_.reserve(std::max(start.ord, 1u));
  reads_in_.reserve(std::max(start.ird, 1u));
  responses_due_ = reads_ready_ = 0;
  read_stags_ = table_.read_stags();
  if (!segments_) segments_ = std::make_unique<FillingSegment[]>(kSegmentsMax);
  first_segment_ = next_segment_ = 0;
  open_ = nullptr;
  filling_bytes_ = room_ = open_room_ = 0;
  unsealed_.reserve(kUnsealedMax);
  early_.reset();
  if (start.markers_in == mpa::Markers::expected) early_ = std::make_unique<Early>();
  gathers_ = response_gathers_ = places_ = 0;

  ulpdu_.clear();
  parsed_ = consumable_ = 0;
  has_ulpdu_ = ulpdu_stored_ = inbound_stopped_ = holds_acknowledgements_ = parse_paused_ = looked_ahead_ = false;
  first_fpdu_ = true;
  inbound_ = {};
  receiving_.active = false;
  if (config_.hold_without_receive) held_.reserve(config_.held_bytes_max);
  held_since_ = kNever;
  deliveries_.reserve(kDeliveriesMax);
  terminate_due_ = fin_due_ = told_by_event_ = drop_unsent_ = false;
  flushed_ = false;

  // The initiator speaks first; the responder once it has heard an FPDU (W-MPA-21, V-CONN-11).
  gate_rtr_ = start.initiator && start.rtr != Start::Rtr::none;
  gate_open_ = start.initiator && !gate_rtr_;
  rtr_segment_.reset();
  // Not where the peer chose an RTR of its own taste: it is none that needs it.
  const bool plain = start.rtr == Start::Rtr::none || start.rtr == Start::Rtr::write;
  started_ = now;
  nudge_at_ = start.initiator && plain ? now + kNudges.front() : kNever;
  nudges_ = 0;
  nudge_due_ = false;
  deadline_ = !start.initiator && start.peer_to_peer ? now + kFirstFpduTime : kNever;
  send_hint_ = receive_hint_ = true;  // V-IDLE-07
  mid_write_ = false;
  flushed_sends_ = flushed_receives_ = 0;
  state_ = State::rts;
  changed(State::idle, Cause::connected);
}

Result<Done, ModifyError> QueuePair::Impl::modify_state(State wanted, Instant now) {
  switch (modify_step(state_, wanted)) {
    case ModifyStep::refuse:
    case ModifyStep::connect: return Failure{ModifyError::invalid_state};
    case ModifyStep::attributes: return Done{};
    case ModifyStep::close_stream: begin_closing(Cause::consumer, now); return Done{};
    case ModifyStep::send_terminate:
      begin_terminate(rdmap::Fault::by_consumer, {}, now);
      go_down(now);
      return Done{};
    case ModifyStep::reset_stream:
    case ModifyStep::flush: to_error(std::nullopt, Cause::consumer, Stream::reset, now); return Done{};
    case ModifyStep::rest:
      flush();
      if (send_hint_ || receive_hint_) return Failure{ModifyError::still_flushing};
      state_ = State::idle;
      idle_name_ = IdleName::reset;
      record_ = {};
      changed(State::error, Cause::consumer);
      return Done{};
  }
  return Failure{ModifyError::invalid_state};
}

QueuePair::Leftover QueuePair::Impl::detach(Instant now, BufferRef last_words) {
  cancel_moves();
  Leftover leftover = Leftover::reset;
  if (connection_ != nullptr) {
    if (state_ == State::terminate) go_down(now);
    const bool terminate_waits = state_ == State::terminate && fin_due_ && connection_ != nullptr;
    if (state_ == State::rts || terminate_waits) say_last_words(std::move(last_words));
    // What was completed is delivered, whatever else is given up (V-ORD-08).
    if (connection_ != nullptr && connection_->ended() == tcp::Ended::no) leftover = Leftover::graceful;
  }
  forget_stream();
  state_ = State::error;
  return leftover;
}

// Nothing is on its way to or from memory any more.
void QueuePair::Impl::cancel_moves() {
  still_copied_ |= mover_.cancel(owner_);
  gathers_ = response_gathers_ = places_ = 0;
  executing_ = {};
  if (early_ != nullptr) early_->clear();
}

// Where its moves are made from and into.
void QueuePair::Impl::keep(tpt::Kept& kept) {
  for (std::uint64_t i = first_segment_; i != next_segment_; ++i)
    if (const FillingSegment& segment = segments_[i % kSegmentsMax]; segment.gathers != 0)
      kept.buffers.push_back(segment.buffer.share());
  if (places_ == 0) return;
  if (connection_ != nullptr)
    for (std::size_t i = 0; i < connection_->readable_count(); ++i)
      kept.buffers.push_back(connection_->readable(i).buffers->share());
  if (early_ != nullptr) early_->share_kept(kept.buffers);
  if (framer_ && framer_->store() != nullptr) kept.memory.push_back(framer_->store());
  if (held_.memory() != nullptr) kept.memory.push_back(held_.memory());
}

// Nothing of the stream is referred to any more.
void QueuePair::Impl::forget_stream() {
  drop_segments();
  if (connection_ != nullptr && holds_acknowledgements_)
    connection_->hold_acknowledgements_from(tcp::Connection::kNoHold);
  holds_acknowledgements_ = false;
  connection_ = nullptr;
  has_ulpdu_ = false;
  deadline_ = held_since_ = nudge_at_ = kNever;
  gate_open_ = gate_rtr_ = nudge_due_ = false;
  reads_in_.clear();
  reads_ready_ = 0;
  executing_ = {};
}

void QueuePair::Impl::drop_segments() {
  open_ = nullptr;
  std::uint32_t dropped = 0;
  for (; first_segment_ != next_segment_; ++first_segment_) {
    FillingSegment& segment = segments_[first_segment_ % kSegmentsMax];
    dropped += segment.buffer->length;
    segment.buffer.reset();
  }
  // Their places in the FPDU stream are free again: a Terminate may follow, and markers count.
  if (dropped != 0) packer_->take_back(dropped);
  filling_bytes_ = 0;
  unsealed_.clear();
  rtr_segment_.reset();
}

// ---- states ----------------------------------------------------------------------------------------

// Out of RTS: nothing new is begun in either direction.
void QueuePair::Impl::leave_rts(State next, Instant now) {
  state_ = next;
  deadline_ = now + config_.close_timeout;
  inbound_stopped_ = true;
  stop_sending();
  close_segment();
  gate_rtr_ = nudge_due_ = false;
  reads_in_.clear();
  reads_ready_ = 0;
  held_since_ = nudge_at_ = kNever;
}

void QueuePair::Impl::changed(State from, Cause cause) {
  host_.state_changed({from, state_, cause, flushed_sends_, flushed_receives_});
}

void QueuePair::Impl::begin_closing(Cause cause, Instant now) {
  const bool busy = !quiet();
  leave_rts(State::closing, now);
  changed(State::rts, cause);
  if (busy) {
    // It did enter Closing, if not for long (V-ST-06, V-RTS-06).
    apply(stream_step(state_, StreamEvent::late_work), now);
    return;
  }
  connection_->close(now);
  go_down(now);
}

// The first error wins; exactly one Terminate (W-RDMAP-29).
void QueuePair::Impl::begin_terminate(rdmap::Fault fault, const rdmap::Culprit& culprit, Instant now) {
  if (state_ == State::closing) return apply(stream_step(state_, StreamEvent::fault), now);
  if (state_ != State::rts) return;
  const rdmap::FaultRow& row = rdmap::row(fault);
  record_ = {};
  record_.origin = TerminateRecord::Origin::local;
  record_.length = static_cast<std::uint32_t>(
      wire::emit(rdmap::terminate_message(fault, culprit), as_mutable_bytes(record_.octets, sizeof record_.octets)));
  // A responder that has not heard a valid FPDU may send none (W-MPA-79).
  terminate_due_ = gate_open_ || start_.initiator;
  fin_due_ = true;
  told_by_event_ = row.told == rdmap::Told::event;
  ++counters_.errors;
  leave_rts(State::terminate, now);
  if (row.told == rdmap::Told::event) host_.raise(static_cast<Event>(row.event));
  changed(State::rts, fault == rdmap::Fault::by_consumer ? Cause::consumer : Cause::fault);
}

// A Terminate came: nothing is sent back (V-RTS-10), nor anything else any more (W-RDMAP-32).
void QueuePair::Impl::stop_after_terminate(Instant now) {
  const Event told = nothing_is_lost() ? Event::peer_gone : Event::terminate_received;
  record_ = {};
  record_.origin = TerminateRecord::Origin::remote;
  record_.length = terminate_in_size_;
  std::memcpy(record_.octets, terminate_in_.data(), terminate_in_size_);
  blame_read();
  terminate_due_ = false;
  fin_due_ = drop_unsent_ = true;
  told_by_event_ = true;
  if (told == Event::terminate_received) ++counters_.errors;
  leave_rts(State::terminate, now);
  host_.raise(told);
  changed(State::rts, Cause::peer_terminated);
}

// A peer that exits, or gives its queue pair up, says 0x0000 and no more. Where no work of ours is
// outstanding, no Read of the peer's waits for its answer, and no message has been cut short or waits
// for a receive, it took nothing with it. Receives that are posted lose nothing by it.
bool QueuePair::Impl::nothing_is_lost() {
  const auto message = wire::parse_terminate(Bytes(terminate_in_).first(terminate_in_size_));
  if (!message || *message != wire::TerminateMessage{}) return false;
  return quiet() && !held_.unread() && !mid_write_ && !inbound_[wire::queue_number::kSend].mid_message();
}

// The Read that the peer refused, if its Terminate says which (V-CS-05). Sends and Writes have
// completed long since.
void QueuePair::Impl::blame_read() {
  const Bytes octets = Bytes(terminate_in_).first(terminate_in_size_);
  std::optional<std::uint32_t> msn;
  wire::TerminateCode code;
  if (const auto siws = wire::parse_terminate_of_siw(octets)) {
    // The MSN it gives is none, but it answers Reads one by one: it is the oldest.
    if (!siws->has_read_request) return;
    code = siws->code;
  } else {
    const auto message = wire::parse_terminate(octets);
    if (!message || message->ddp_header_size != wire::UntaggedHeader::kSize) return;
    const auto header = wire::parse_ddp(message->ddp_header);
    if (!header || header->tagged || header->queue != wire::queue_number::kReadRequest) return;
    msn = header->msn;
    code = message->code;
  }
  for (std::uint32_t i = reads_out_.first(); i != reads_out_.next(); ++i) {
    const rdmap::OutboundRead& read = reads_out_[i];
    if (!read.of_consumer || (msn && read.msn != *msn)) continue;
    Work& work = work_[read.work];
    if (work.until != Work::Until::read) return;
    work.status = Status::remote_termination;
    work.detail = code.word();
    return;
  }
}

void QueuePair::Impl::to_error(std::optional<Event> event, Cause cause, Stream stream, Instant now) {
  const State from = state_;
  if (from == State::idle) flushed_sends_ = flushed_receives_ = 0;
  cancel_moves();
  if (connection_ != nullptr && stream == Stream::reset && connection_->ended() == tcp::Ended::no)
    connection_->abort(now);
  const bool had_shared = config_.shared_receive && state_ != State::idle;
  forget_stream();
  inbound_stopped_ = true;
  state_ = State::error;
  if (event) host_.raise(*event);
  flush();
  if (had_shared) host_.raise(Event::last_wqe_reached);  // V-LIM-08
  changed(from, cause);
}

void QueuePair::Impl::to_idle() {
  forget_stream();
  state_ = State::idle;
  idle_name_ = IdleName::reset;
  host_.raise(Event::close_complete);
  changed(State::closing, Cause::finished);
}

void QueuePair::Impl::apply(StreamStep step, Instant now) {
  switch (step) {
    case StreamStep::none:
    case StreamStep::proceed:
    case StreamStep::ignore:
    case StreamStep::terminate: return;
    case StreamStep::stop_silently: return stop_after_terminate(now);
    case StreamStep::close: return begin_closing(Cause::peer_closed, now);
    case StreamStep::bad_llp_close: return begin_terminate(rdmap::Fault::bad_llp_close, {}, now);
    case StreamStep::connection_reset: return to_error(Event::connection_reset, Cause::peer_reset, Stream::reset, now);
    case StreamStep::connection_lost: return to_error(Event::connection_lost, Cause::lost, Stream::reset, now);
    case StreamStep::bad_close: return to_error(Event::bad_close, Cause::busy_close, Stream::reset, now);
    case StreamStep::failed_terminate:
      return to_error(told_by_event_ ? std::nullopt : std::optional(Event::bad_close), Cause::lost, Stream::reset, now);
    case StreamStep::rest: return to_idle();
    case StreamStep::error: return to_error(std::nullopt, Cause::finished, Stream::let_be, now);
  }
}

// SQ and IRRQ are empty (V-RTS-07). What is posted but not yet seen counts.
bool QueuePair::Impl::quiet() {
  if (!has_next_ && host_.take_send(next_)) has_next_ = true;
  return !has_next_ && sending_.kind == Sending::Kind::nothing && work_.empty() && first_segment_ == next_segment_ &&
         reads_out_.empty() && reads_in_.empty();
}

// ---- the stream's end --------------------------------------------------------------------------------

bool QueuePair::Impl::check_stream(Instant now) {
  if (connection_ == nullptr) return false;
  const bool down = state_ == State::closing || state_ == State::terminate;
  // What was placed is told before the queue pair is Idle.
  // (An abort has let go of what is to be placed.)
  if (state_ == State::closing && !deliveries_.empty() && deliveries_.front().moves != 0 &&
      connection_->ended() != tcp::Ended::aborted)
    return false;
  switch (connection_->ended()) {
    case tcp::Ended::no: break;
    case tcp::Ended::gracefully:
      if (down && !closing_is_bad(now) && connection_ != nullptr)
        apply(stream_step(state_, StreamEvent::close_finished), now);
      else if (!down)
        apply(stream_step(state_, StreamEvent::lost), now);
      return true;
    case tcp::Ended::reset:
    case tcp::Ended::refused: apply(stream_step(state_, StreamEvent::reset), now); return true;
    case tcp::Ended::timed_out:
    case tcp::Ended::aborted: apply(stream_step(state_, StreamEvent::lost), now); return true;
  }
  if (down && connection_->state() == tcp::State::time_wait) {
    // Our FIN is acknowledged and the peer's is here; TIME-WAIT is the device's (V-CLS-11).
    if (!closing_is_bad(now) && connection_ != nullptr) apply(stream_step(state_, StreamEvent::close_finished), now);
    return true;
  }
  if (state_ != State::rts || !connection_->peer_closed() || has_ulpdu_ || !deliveries_.empty()) return false;
  if (inbound_stopped_) return false;
  // Inside an FPDU or a message it is no close but a loss (W-MPA-77).
  const bool cut = connection_->received() != base_ + parsed_ || inbound_[wire::queue_number::kSend].mid_message();
  // Sends that wait for a receive came before the FIN, and completed at the peer: they are delivered
  // first, within rnr_timeout (W-DDP-13). Work that the FIN cuts short does not wait for them.
  if (!cut && quiet() && held_.unread()) return false;
  if (cut)
    apply(stream_step(state_, StreamEvent::lost), now);
  else
    apply(stream_step(state_, quiet() ? StreamEvent::closed_quiet : StreamEvent::closed_busy), now);
  return true;
}

// In Closing: inbound data, or work on the SQ (V-CLS-05).
bool QueuePair::Impl::closing_is_bad(Instant now) {
  if (state_ != State::closing) return false;
  if (connection_->received() > base_ + parsed_ && !take_empty_writes()) {
    apply(stream_step(state_, StreamEvent::segment), now);
    return true;
  }
  if (!has_next_ && host_.take_send(next_)) has_next_ = true;
  if (has_next_) {
    apply(stream_step(state_, StreamEvent::late_work), now);
    return true;
  }
  return false;
}

void QueuePair::Impl::check_deadline(Instant now) {
  if (connection_ == nullptr) return;
  if (deadline_ <= now) {
    if (state_ == State::rts)
      apply(StreamStep::connection_lost, now);  // the first FPDU did not come (W-MPA-90)
    else
      apply(stream_step(state_, StreamEvent::timed_out), now);
    return;
  }
  if (nudge_at_ <= now) {
    nudge_due_ = gate_open_ && next_segment_ != 0 && sending_.kind == Sending::Kind::nothing;
    nudge_at_ = ++nudges_ < kNudges.size() ? started_ + kNudges[nudges_] : kNever;
  }
  if (state_ == State::rts && held_deadline() <= now && !deliveries_.full() && !inbound_stopped_) {
    const Bytes ulpdu = held_.unread() ? held_.front() : Bytes{};
    const std::array<Bytes, 1> spans{ulpdu};
    refuse(rdmap::Fault::receive_no_buffer, spans, static_cast<std::uint32_t>(ulpdu.size()), now);
    go_down(now);
  }
}

// ---- the way down ------------------------------------------------------------------------------------

// Closing and Terminate: what is under way comes to its end, the Terminate and the FIN leave, work is
// flushed. Error: what is posted late is flushed.
bool QueuePair::Impl::go_down(Instant now) {
  if (state_ == State::error) {
    if (still_copied_ || (!send_hint_ && !receive_hint_)) return false;
    flush(kLateFlushMax);
    return true;
  }
  if (connection_ == nullptr) return false;
  bool busy = false;
  if (state_ == State::closing) {
    busy |= deliver_all(now);
    if (state_ != State::closing || closing_is_bad(now)) return true;
    if (deliveries_.empty() && (!flushed_ || receive_hint_)) {
      flush_receives();
      flushed_ = true;
      busy = true;
    }
    send_hint_ = false;
    return busy;
  }
  if (state_ != State::terminate) return false;

  if (drop_unsent_ && gathers_ == 0) {
    drop_segments();
    drop_unsent_ = false;
  }
  if (!drop_unsent_) busy |= push_segments(now);
  if (first_segment_ == next_segment_ && gathers_ == 0) {
    if (terminate_due_) busy |= send_terminate(now);
    if (!terminate_due_ && fin_due_ && first_segment_ == next_segment_) {
      connection_->close(now);
      fin_due_ = false;
      busy = true;
    }
  }
  if (places_ == 0) {
    // Ignored (V-TERM-07), but taken, or the peer's FIN could not come.
    if (connection_->received() > connection_->consumed()) {
      if (holds_acknowledgements_) connection_->hold_acknowledgements_from(tcp::Connection::kNoHold);
      holds_acknowledgements_ = false;
      connection_->consume(connection_->received() - connection_->consumed());
      busy = true;
    }
    if (gathers_ == 0 && !terminate_due_ && !fin_due_ && (!flushed_ || send_hint_ || receive_hint_)) {
      complete_work(now);
      flush();
      busy = true;
    }
  }
  return busy;
}

// Behind the last whole FPDU (V-STOP-01).
bool QueuePair::Impl::send_terminate(Instant now) {
  BufferRef buffer = BufferRef::take(pool_);
  starved_ = !buffer;
  if (!buffer) return false;
  write_terminate(*buffer);
  FillingSegment& segment = segments_[next_segment_++ % kSegmentsMax];
  segment = FillingSegment{};
  filling_bytes_ += buffer->length;
  segment.buffer = std::move(buffer);
  terminate_due_ = false;
  push_segments(now);
  return true;
}

// Destroyed, its application perhaps killed, and nobody has closed the stream. A FIN alone would pass
// for a clean close, after which the peer's late work waits for ever (V-IDLE-06). So a Terminate goes
// behind what was completed, and the peer's queue pair ends in Error: all is flushed. The same for one
// that was on its way to a Terminate, and whose segments found no room yet.
void QueuePair::Impl::say_last_words(BufferRef buffer) {
  drop_segments();
  // A responder that has not heard a valid FPDU may send none (W-MPA-79).
  if (!buffer || (!gate_open_ && !start_.initiator)) return;
  if (state_ == State::rts) {
    record_ = {};
    record_.origin = TerminateRecord::Origin::local;
    record_.length = static_cast<std::uint32_t>(wire::emit(rdmap::terminate_message(rdmap::Fault::by_consumer, {}),
                                                           as_mutable_bytes(record_.octets, sizeof record_.octets)));
  }
  if (record_.origin != TerminateRecord::Origin::local) return;  // an answer to a Terminate there is not
  write_terminate(*buffer);
  connection_->append_last(std::move(buffer));
}

// The FPDU of the Terminate in record_.
void QueuePair::Impl::write_terminate(Buffer& into) {
  const ddp::OutboundMessage message = sender_.terminate(record_.length);
  std::array<std::byte, wire::UntaggedHeader::kSize> header;
  ddp::write_header(message, {record_.length, true}, header);
  const auto ulpdu = static_cast<std::uint32_t>(header.size()) + record_.length;
  const MutableBytes fpdu = into.append(packer_->octets_for(ulpdu));
  packer_->begin(fpdu, header, record_.length, pieces_);
  std::size_t done = 0;
  for (std::uint32_t i = 0; i < pieces_.count; ++i) {
    std::memcpy(pieces_.pieces[i].data(), record_.octets + done, pieces_.pieces[i].size());
    done += pieces_.pieces[i].size();
  }
  packer_->seal(fpdu);
}

// ---- turns -------------------------------------------------------------------------------------------

bool QueuePair::Impl::settle(Instant now) {
  if (connection_ == nullptr) return state_ == State::error && go_down(now);
  ++turn_;
  bool busy = deliver_all(now);
  if (state_ == State::rts) {
    if (receive_hint_ || has_ulpdu_ || parse_paused_) {
      receive_hint_ = false;
      busy |= parse(now);
    } else {
      consume();
    }
  }
  if (state_ == State::rts) {
    busy |= push_segments(now);
    busy |= complete_work(now);
  }
  busy |= check_stream(now);
  if (state_ != State::rts) busy |= go_down(now);
  check_deadline(now);
  return busy;
}

bool QueuePair::Impl::idle() const {
  if (state_ == State::idle) return true;
  if (connection_ == nullptr) return still_copied_ || (!send_hint_ && !receive_hint_);
  // What waits for a page of the application's waits without us, and all that it asks for behind it.
  if (moving()) return mover_.is_stuck(config_.space);
  if (starved_) return false;
  if (state_ != State::rts) return !send_hint_ && !receive_hint_;
  if (receive_hint_ || parse_paused_) return false;
  // Filled, and not with TCP: for want of a slot there, whose coming free wakes us; or because their
  // gathers were done while nobody looked.
  if (first_segment_ != next_segment_) return waits_for_slot_;
  const bool wants = gate_rtr_ || (gate_open_ && (sending_.kind != Sending::Kind::nothing || reads_ready_ != 0 ||
                                                  nudge_due_ || (send_hint_ && !next_waits_)));
  // The EMSS may have shrunk since.
  return !wants || connection_->room_bytes() < std::min(needs_room_, connection_->emss());
}

Instant QueuePair::Impl::held_deadline() const {
  if (held_since_ == kNever || config_.rnr_timeout.ns == 0) return kNever;
  return held_since_ + config_.rnr_timeout;
}

Instant QueuePair::Impl::next_deadline() const {
  if (connection_ == nullptr) return kNever;
  return std::min({deadline_, held_deadline(), nudge_at_});
}

// ---- the face ----------------------------------------------------------------------------------------

QueuePair::QueuePair(const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover, BufferPool& data_pool)
    : impl_(std::make_unique<Impl>(*this, config, host, table, mover, data_pool)) {}

QueuePair::~QueuePair() { impl_->mover_.forget(*this); }

void QueuePair::attach(tcp::Connection& connection, const Start& start, Instant now) {
  impl_->attach(connection, start, now);
}
bool QueuePair::attached() const { return impl_->connection_ != nullptr; }
Result<Done, ModifyError> QueuePair::modify_state(State wanted, Instant now) {
  return impl_->modify_state(wanted, now);
}

void QueuePair::set_idle_name(IdleName name) {
  RNIC_ASSERT(impl_->state_ == State::idle);
  impl_->idle_name_ = name;
}

Result<Done, ModifyError> QueuePair::set_access(tpt::Rights access) {
  constexpr auto kAllowed = tpt::Rights::remote_read | tpt::Rights::remote_write | tpt::Rights::remote_atomic |
                            tpt::Rights::window_bind;
  if (!tpt::permits(kAllowed, access)) return Failure{ModifyError::invalid_attribute};
  impl_->config_.access = access;
  return Done{};
}

// In Idle, freely; in RTS only ORD, and only down (V-MOD-01, -02).
Result<Done, ModifyError> QueuePair::set_depths(std::uint32_t ird, std::uint32_t ord) {
  Config& config = impl_->config_;
  if (ird > config.ird_max || ord > config.ord_max) return Failure{ModifyError::invalid_attribute};
  if (impl_->state_ == State::idle) {
    config.ird = ird;
    config.ord = ord;
    return Done{};
  }
  if (impl_->state_ != State::rts) return Failure{ModifyError::invalid_state};
  if (ird != config.ird || ord > config.ord) return Failure{ModifyError::invalid_attribute};
  config.ord = ord;
  return Done{};
}

QueuePair::Leftover QueuePair::detach(Instant now, BufferRef last_words) {
  return impl_->detach(now, std::move(last_words));
}
bool QueuePair::receive(Instant now) { return impl_->receive(now); }
bool QueuePair::transmit(Instant now, std::uint32_t budget_bytes) { return impl_->transmit(now, budget_bytes); }
bool QueuePair::settle(Instant now) { return impl_->settle(now); }
void QueuePair::work_posted() { impl_->send_hint_ = true; }
void QueuePair::receive_posted() { impl_->receive_hint_ = true; }
bool QueuePair::idle() const { return impl_->idle(); }
Instant QueuePair::next_deadline() const { return impl_->next_deadline(); }
std::uint32_t QueuePair::filling() const {
  return static_cast<std::uint32_t>(impl_->next_segment_ - impl_->first_segment_);
}

void QueuePair::on_moved(std::uint32_t token, bool ok) {
  Impl& impl = *impl_;
  if ((token & token::kGather) != 0) {
    FillingSegment& segment = impl.segments_[token::segment(token)];
    RNIC_ASSERT(segment.gathers != 0 && impl.gathers_ != 0);
    --segment.gathers;
    --impl.gathers_;
    if (token::work(token) == token::kNoWork) --impl.response_gathers_;
    if (!ok && !segment.failed) {
      segment.failed = true;
      segment.failed_work = token::work(token);
    }
    return;
  }
  if ((token & token::kEarly) != 0) {
    RNIC_ASSERT(impl.early_ != nullptr && impl.places_ != 0);
    impl.early_->on_moved(token & ~token::kEarly, ok);
    --impl.places_;
    return;
  }
  if ((token & token::kAtomic) != 0) {
    RNIC_ASSERT(impl.executing_.state == Executing::State::begun);
    impl.executing_.state = ok ? Executing::State::done : Executing::State::failed;
    return;
  }
  Delivery& delivery = impl.deliveries_[token];
  RNIC_ASSERT(delivery.moves != 0 && impl.places_ != 0);
  --delivery.moves;
  --impl.places_;
  if (!ok) delivery.failed = true;
}

void QueuePair::keep(tpt::Kept& kept) { impl_->keep(kept); }

void QueuePair::on_let_go() {
  Impl& impl = *impl_;
  impl.still_copied_ = false;
  // What waited for this is flushed in the next turn.
  if (impl.state_ == State::error) impl.receive_hint_ = impl.send_hint_ = true;
}

State QueuePair::state() const { return impl_->state_; }
IdleName QueuePair::idle_name() const { return impl_->idle_name_; }
const Config& QueuePair::config() const { return impl_->config_; }
const TerminateRecord& QueuePair::terminate_record() const { return impl_->record_; }
const QpCounters& QueuePair::counters() const { return impl_->counters_; }
bool QueuePair::gate_open() const { return impl_->gate_open_; }

}  // namespace rnic::qp
