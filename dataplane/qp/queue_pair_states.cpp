// A queue pair's states: attachment, Modify, and what happens to the stream. It owns the parts of both directions, made
// anew for each stream, and is alone in changing states; what the parts find comes back as a Verdict. The tables of
// qp/state.hpp are acted on here and nowhere else, so that a change of state reads in one place.
#include <utility>

#include "qp/queue_pair_impl.hpp"

namespace rnic::qp {

const char* name(State state) {
  switch (state) {
    case State::idle:
      return "Idle";
    case State::rts:
      return "RTS";
    case State::closing:
      return "Closing";
    case State::terminate:
      return "Terminate";
    case State::error:
      return "Error";
  }
  return "?";
}

// ---- life ------------------------------------------------------------------------------------------

// A reused queue pair starts from the same values as a new one (V-CONN-02).
void QueuePair::Impl::attach(tcp::Connection& connection, const Start& start, Instant now) {
  RNIC_ASSERT(state_ == State::idle && !stream_);
  config_.ird = start.ird;
  config_.ord = start.ord;
  outlives_peer_ = start.outlives_peer || start.acknowledged;
  last_wqe_due_ = config_.shared_receive;
  record_ = {};
  way_down_ = {};
  deadline_ = kNever;
  common_.moves = {};
  common_.flushed_sends = common_.flushed_receives = 0;
  common_.receive_limit.in_progress = 0;
  messages_.emplace(common_, start, common_.table.read_stags());
  stream_.emplace(connection, start, now, *messages_, common_, counters_, pool_, scratch_);
  requester().posted();  // V-IDLE-07
  receive_hint_ = true;
  state_ = State::rts;
  changed(State::idle, Cause::connected);
}

Result<Done, ModifyError> QueuePair::Impl::modify_state(State wanted, Instant now) {
  switch (modify_step(state_, wanted)) {
    case ModifyStep::refuse:
    case ModifyStep::connect:
      return Failure{ModifyError::invalid_state};
    case ModifyStep::attributes:
      return Done{};
    case ModifyStep::close_stream:
      begin_closing(Cause::consumer, now);
      return Done{};
    case ModifyStep::send_terminate:
      begin_terminate(rdmap::Fault::by_consumer, {}, now);
      go_down(now);
      return Done{};
    case ModifyStep::reset_stream:
    case ModifyStep::flush:
      to_error(std::nullopt, Cause::consumer, Reset::stream, now);
      return Done{};
    case ModifyStep::rest:
      flush();
      if (requester().may_be_posted() || receive_hint_) return Failure{ModifyError::still_flushing};
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
  if (stream_) {
    if (state_ == State::terminate) go_down(now);
    const bool terminate_waits = state_ == State::terminate && way_down_.fin_due && stream_;
    if (state_ == State::rts || terminate_waits) say_last_words(std::move(last_words));
    // What was completed is delivered, whatever else is given up (V-ORD-08).
    if (stream_ && stream_->connection.ended() == tcp::Ended::no) leftover = Leftover::graceful;
  }
  forget_stream();
  state_ = State::error;
  return leftover;
}

// Nothing is on its way to or from memory any more.
void QueuePair::Impl::cancel_moves() {
  still_copied_ |= common_.mover.cancel(owner_);
  common_.moves = {};
  let_carriers_go();
  requester().forget_executing();
  if (messages_->early != nullptr) messages_->early->clear();
}

// Where its moves are made from and into.
void QueuePair::Impl::keep(tpt::Kept& kept) {
  if (stream_) stream_->out.keep(kept);
  if (common_.moves.places == 0) return;
  if (stream_) stream_->in.keep(kept);
  for (const BufferRef& carrier : carriers_) kept.buffers.push_back(carrier.share());
  responder().keep(kept);
}

// What was taken from buffers without the stream is placed.
void QueuePair::Impl::let_carriers_go() {
  if (carriers_.empty() || common_.moves.places != 0) return;
  carriers_.clear();
  if (peer_ == nullptr || !peer_->stream_->out.waits_for_peer()) return;
  peer_->stream_->out.peer_let_go();
  peer_->side_->activate();
}

// Nothing of the stream is referred to any more.
void QueuePair::Impl::forget_stream() {
  let_carriers_go();
  part();
  if (stream_) {
    was_open_ = stream_->gate.open();
    stream_->out.drop();
    stream_->in.let_acknowledgements_go();
    stream_.reset();
  }
  deadline_ = kNever;
  responder().stop();
  messages_->reads.give_up_theirs();
  requester().forget_executing();
}

// ---- states ----------------------------------------------------------------------------------------

// What a part has found.
void QueuePair::Impl::obey(const rdmap::Verdict& verdict, Instant now) {
  using Kind = rdmap::Verdict::Kind;
  switch (verdict.kind) {
    case Kind::go_on:
      return;
    case Kind::fault:
      begin_terminate(verdict.fault, verdict.culprit != nullptr ? *verdict.culprit : rdmap::Culprit{}, now);
      return;
    case Kind::peer_terminated:
      apply(stream_step(state_, StreamEvent::terminate_received), now);
      return;
  }
}

// Out of RTS: nothing new is begun in either direction.
void QueuePair::Impl::leave_rts(State next, Instant now) {
  state_ = next;
  deadline_ = now + config_.close_timeout;
  responder().stop();
  requester().stop();
  messages_->reads.give_up_theirs();
  stream_->out.close_segment();
  if (stream_->local) stream_->local->wait_no_more();
  stream_->gate.close();
}

void QueuePair::Impl::changed(State from, Cause cause) {
  host_.state_changed({from, state_, cause, common_.flushed_sends, common_.flushed_receives});
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
  if (requester().acknowledgement_due()) {
    if (BufferRef buffer = stream_->out.buffer_for_last()) {
      LastWords words;
      add_acknowledgements(words);
      stream_->out.append_last(words.all(), std::move(buffer));
      push(now);
      if (!stream_->out.empty()) stream_->out.drop();  // there is no slot, and the FIN does not wait
    }
  }
  stream_->connection.close();
  go_down(now);
}

// The first error wins; exactly one Terminate (W-RDMAP-29).
void QueuePair::Impl::begin_terminate(rdmap::Fault fault, const rdmap::Culprit& culprit, Instant now) {
  if (state_ == State::closing) return apply(stream_step(state_, StreamEvent::fault), now);
  if (state_ != State::rts) return;
  const rdmap::FaultRow& row = rdmap::row(fault);
  record_ = TerminateRecord::said(rdmap::terminate_message(fault, culprit));
  way_down_.terminate_due = stream_->gate.may_terminate();
  way_down_.fin_due = true;
  way_down_.told_by_event = row.told == rdmap::Told::event;
  ++counters_.errors;
  leave_rts(State::terminate, now);
  if (row.told == rdmap::Told::event) host_.raise(static_cast<Event>(row.event));
  changed(State::rts, fault == rdmap::Fault::by_consumer ? Cause::consumer : Cause::fault);
}

// A Terminate came: nothing is sent back (V-RTS-10), nor anything else any more (W-RDMAP-32).
void QueuePair::Impl::stop_after_terminate(Instant now) {
  const bool merely_goes = says_nothing(responder().terminate());
  const bool left_alone = may_be_left_alone(merely_goes);
  static_assert(sizeof record_.octets >= rdmap::kTerminateMax);
  if (!merely_goes || !left_alone) record_ = TerminateRecord::heard(responder().terminate());
  const bool lost_nothing = merely_goes && (left_alone || is_between_messages());
  const Event told = lost_nothing ? Event::peer_gone : Event::terminate_received;
  if (!lost_nothing) ++counters_.errors;
  if (left_alone) return be_left_alone(told, Cause::peer_terminated);
  // Sends and Writes have completed long since. Of acknowledged streams it was said before what is done, and what is
  // refused.
  const auto read = messages_->acknowledgements ? std::nullopt : refused_read(record_.bytes());
  if (read) requester().blame_read(read->msn, read->code);
  way_down_.terminate_due = false;
  way_down_.fin_due = way_down_.drop_unsent = true;
  way_down_.told_by_event = true;
  leave_rts(State::terminate, now);
  host_.raise(told);
  changed(State::rts, Cause::peer_terminated);
}

// A peer that exits, or gives its queue pair up, says 0x0000 and no more. Where no work of ours is
// outstanding, no Read of the peer's waits for its answer, and no message has been cut short or waits
// for a receive, it took nothing with it. Receives that are posted lose nothing by it.
bool QueuePair::Impl::is_between_messages() {
  return quiet() && !responder().holds() && !responder().mid_write() && !responder().mid_send();
}

void QueuePair::Impl::to_error(std::optional<Event> event, Cause cause, Reset reset, Instant now) {
  const State from = state_;
  if (from == State::idle) common_.flushed_sends = common_.flushed_receives = 0;
  cancel_moves();
  if (stream_ && reset == Reset::stream && stream_->connection.ended() == tcp::Ended::no)
    stream_->connection.abort(now);
  forget_stream();
  state_ = State::error;
  if (event) host_.raise(*event);
  flush();
  if (std::exchange(last_wqe_due_, false)) host_.raise(Event::last_wqe_reached);  // V-LIM-08
  changed(from, cause);
}

void QueuePair::Impl::to_idle() {
  forget_stream();
  state_ = State::idle;
  idle_name_ = IdleName::reset;
  // Of a RoCE face the application sees RTS, and waits for the event when it modifies that to ERR.
  if (config_.face != Face::roce) last_wqe_due_ = false;
  host_.raise(Event::close_complete);
  changed(State::closing, Cause::finished);
}

// Of one that outlives its peer, when that goes, and `merely` goes. Where requests are acknowledged they may be under
// way: those of InfiniBand's RC fail when their retries are over, and an application that has all it wanted ends
// before. But what the peer has refused, or found no receive for, is told at once.
bool QueuePair::Impl::may_be_left_alone(bool merely) {
  if (!outlives_peer_ || requester().was_refused()) return false;
  return messages_->acknowledgements || (merely && is_between_messages());
}

// As it was before it had a stream, and its receives with it; requests that the peer owes to us wait for give_up().
void QueuePair::Impl::be_left_alone(Event told, Cause cause) {
  cancel_moves();
  forget_stream();
  state_ = State::idle;
  host_.raise(told);
  changed(State::rts, cause);
}

void QueuePair::Impl::apply(StreamStep step, Instant now) {
  const bool lost =
      step == StreamStep::bad_llp_close || step == StreamStep::connection_reset || step == StreamStep::connection_lost;
  // Nothing has gone either way: it is as if nobody had called.
  if (lost && leaves_unopened(now)) return;
  // A peer that is modified to ERR resets the stream.
  if (step == StreamStep::connection_reset && state_ == State::rts && may_be_left_alone(true))
    return be_left_alone(Event::peer_gone, Cause::peer_reset);
  // It costs no request that could tell of it: the next that is posted does. The peer hears of it at once, where it was
  // we who ended it.
  if (step == StreamStep::connection_lost && messages_->acknowledgements && state_ == State::rts && quiet()) {
    if (stream_->connection.ended() == tcp::Ended::no) stream_->connection.abort(now);
    return be_left_alone(Event::peer_gone, Cause::lost);
  }
  if (lost && messages_->acknowledgements && state_ == State::rts)
    requester().peer_is_lost(rdmap::Status::retry_exceeded);
  switch (step) {
    case StreamStep::none:
    case StreamStep::proceed:
    case StreamStep::ignore:
    case StreamStep::terminate:
      return;
    case StreamStep::stop_silently:
      return stop_after_terminate(now);
    case StreamStep::close:
      return begin_closing(Cause::peer_closed, now);
    case StreamStep::bad_llp_close:
      return begin_terminate(rdmap::Fault::bad_llp_close, {}, now);
    case StreamStep::connection_reset:
      return to_error(Event::connection_reset, Cause::peer_reset, Reset::stream, now);
    case StreamStep::connection_lost:
      return to_error(Event::connection_lost, Cause::lost, Reset::stream, now);
    case StreamStep::bad_close:
      return to_error(Event::bad_close, Cause::busy_close, Reset::stream, now);
    case StreamStep::failed_terminate:
      return to_error(way_down_.told_by_event ? std::nullopt : std::optional(Event::bad_close), Cause::lost,
                      Reset::stream, now);
    case StreamStep::rest:
      return to_idle();
    case StreamStep::error:
      return to_error(std::nullopt, Cause::finished, Reset::nothing, now);
  }
}

bool QueuePair::was_open() const { return impl_->was_open_; }

void QueuePair::succeed(const QueuePair& before) {
  const Impl& was = *before.impl_;
  RNIC_ASSERT(was.state_ == State::idle && !was.stream_ && !before.has_begun_work());
  impl_->counters_ = was.counters_;
  impl_->common_.receive_limit = was.common_.receive_limit;
  impl_->idle_name_ = was.idle_name_;
  impl_->record_ = was.record_;
  impl_->was_open_ = was.was_open_;
  impl_->last_wqe_due_ = was.last_wqe_due_;
}

bool QueuePair::leave_unopened(Instant now) { return impl_->leaves_unopened(now); }

bool QueuePair::Impl::leaves_unopened(Instant now) {
  if (!stream_ || stream_->gate.open() || state_ != State::rts || !outlives_peer_) return false;
  if (stream_->connection.ended() == tcp::Ended::no) stream_->connection.abort(now);
  be_left_alone(Event::peer_gone, Cause::lost);
  return true;
}

void QueuePair::lose_stream(Instant now) {
  if (attached()) impl_->apply(stream_step(impl_->state_, StreamEvent::lost), now);
}

void QueuePair::give_up(Instant now) {
  RNIC_ASSERT(impl_->state_ == State::idle && !impl_->stream_);
  impl_->requester().peer_is_lost(Status::retry_exceeded);
  impl_->to_error(std::nullopt, Cause::unreached, Impl::Reset::nothing, now);
}

// SQ and IRRQ are empty (V-RTS-07). What is posted but not yet seen counts.
bool QueuePair::Impl::quiet() {
  requester().look();
  return requester().quiet() && (!stream_ || stream_->out.empty());
}

// ---- the stream's end --------------------------------------------------------------------------------

bool QueuePair::Impl::check_stream(Instant now) {
  if (!stream_) return false;
  const tcp::Connection& connection = stream_->connection;
  const bool down = state_ == State::closing || state_ == State::terminate;
  // What was placed is told before the queue pair is Idle.
  // (An abort has let go of what is to be placed.)
  if (state_ == State::closing && responder().open() && connection.ended() != tcp::Ended::aborted &&
      !(responder().deliverable() && responder().lets_go()))
    return false;
  switch (connection.ended()) {
    case tcp::Ended::no:
      break;
    case tcp::Ended::gracefully:
      // Our FIN is acknowledged and the peer's is here; TIME-WAIT is the device's (V-CLS-11).
      if (down && !closing_is_bad(now) && stream_)
        apply(stream_step(state_, StreamEvent::close_finished), now);
      else if (!down)
        apply(stream_step(state_, StreamEvent::lost), now);
      return true;
    case tcp::Ended::reset:
    case tcp::Ended::refused:
      apply(stream_step(state_, StreamEvent::reset), now);
      return true;
    case tcp::Ended::timed_out:
    case tcp::Ended::aborted:
      apply(stream_step(state_, StreamEvent::lost), now);
      return true;
  }
  if (state_ != State::rts || !connection.peer_closed() || stream_->in.waits() || responder().open()) return false;
  if (responder().stopped()) return false;
  // Inside an FPDU or a message it is no close but a loss (W-MPA-77).
  const bool cut = stream_->in.unframed() || responder().mid_send();
  // Sends that wait for a receive came before the FIN, and completed at the peer: they are delivered
  // first, within rnr_timeout (W-DDP-13). Work that the FIN cuts short does not wait for them.
  if (!cut && quiet() && responder().holds()) return false;
  // A peer that was to say a Terminate before its FIN, and had no buffer for it.
  if (messages_->acknowledgements && !quiet() && may_be_left_alone(true))
    be_left_alone(Event::peer_gone, Cause::peer_closed);
  else if (cut)
    apply(stream_step(state_, StreamEvent::lost), now);
  else
    apply(stream_step(state_, quiet() ? StreamEvent::closed_quiet : StreamEvent::closed_busy), now);
  return true;
}

// In Closing: inbound data, or work on the SQ (V-CLS-05).
bool QueuePair::Impl::closing_is_bad(Instant now) {
  if (state_ != State::closing) return false;
  if (stream_->in.unframed() && !stream_->in.take_empty_writes()) {
    apply(stream_step(state_, StreamEvent::segment), now);
    return true;
  }
  if (requester().look()) {
    apply(stream_step(state_, StreamEvent::late_work), now);
    return true;
  }
  return false;
}

void QueuePair::Impl::check_deadline(Instant now) {
  if (!stream_) return;
  Gate& gate = stream_->gate;
  if (gate.first_is_late(now)) return apply(StreamStep::connection_lost, now);  // W-MPA-90
  if (deadline_ <= now) return apply(stream_step(state_, StreamEvent::timed_out), now);
  gate.on_time(now, stream_->out.spoken() && !requester().sending());
  if (state_ != State::rts) return;
  if (messages_->acknowledgements) return judge_peer(now);
  if (responder().held_deadline() <= now && !responder().full() && !responder().stopped()) {
    rdmap::Verdict verdict;
    responder().refuse_held(verdict);
    obey(verdict, now);
    go_down(now);
  }
}

// Of acknowledged streams: as long as it may take.
void QueuePair::Impl::look_at_peer(Instant now) {
  if (!messages_->acknowledgements || !stream_ || state_ != State::rts) return;
  // What goes without the stream counts as if it went there, and were acknowledged.
  const std::uint64_t acknowledged = stream_->connection.acknowledged() + stream_->out.beside_bytes();
  messages_->acknowledgements->look(requester().awaits_peer(), requester().sends_request(), stream_->out.end(),
                                    {acknowledged, messages_->reads.progress()},
                                    {.octets = stream_->connection.received() + counters_.direct_bytes_in,
                                     .mid_message = responder().mid_send() || responder().mid_write(),
                                     .stands = stream_->in.waits() || stream_->in.paused(),
                                     .heard = stream_->connection.heard()},
                                    now);
}

// And when that is over.
void QueuePair::Impl::judge_peer(Instant now) {
  rdmap::Acknowledgements& own = *messages_->acknowledgements;
  if (own.next_deadline() > now) return;
  look_at_peer(now);
  using Liveness = rdmap::Acknowledgements::Liveness;
  const Liveness liveness = own.judge_liveness(now);
  if (liveness == Liveness::to_probe) stream_->connection.send_keepalive();
  if (own.retry_deadline() <= now || liveness == Liveness::none) {
    requester().peer_is_lost(rdmap::Status::retry_exceeded);
    to_error(std::nullopt, Cause::lost, Reset::stream, now);
  } else if (own.receive_deadline() <= now) {
    obey(requester().peer_found_no_receive(), now);
    go_down(now);
  }
}

}  // namespace rnic::qp
