// A queue pair's life: attachment, Modify, what happens to the stream, and the way down. It owns the parts of both
// directions, made anew for each stream, and is alone in changing states; what the parts find comes back as a
// Verdict. The tables of qp/state.hpp are acted on here and nowhere else, so that a change of state reads in one place:
// that is why the file is long.

#include "qp/queue_pair.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "qp/parts.hpp"
#include "qp/state.hpp"

namespace rnic::qp {
namespace {

// Of each queue, of what is posted in Error, in a step: it can be posted as fast as it is flushed.
constexpr std::uint32_t kLateFlushMax = 64;

// How far it has come; anew with each stream.
struct WayDown {
  bool terminate_due = false;  // record_ is to be sent
  bool fin_due = false;
  bool told_by_event = false;  // the cause of Terminate
  bool drop_unsent = false;    // what was filled is not sent any more
  bool flushed = false;        // nothing begun is left; what is posted now is flushed as it is found
};

}  // namespace

struct QueuePair::Impl final : LocalPeer {
  Impl(QueuePair& owner, const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover, BufferPool& pool,
       Scratch& scratch)
      : owner_(owner), config_(config), host_(host), pool_(pool), scratch_(scratch), common_{config_, host,
                                                                                             table,   mover,
                                                                                             owner,   counters_} {
    messages_.emplace(common_);
  }

  void attach(tcp::Connection& connection, const Start& start, Instant now);
  Result<Done, ModifyError> modify_state(State wanted, Instant now);
  Leftover detach(Instant now, BufferRef last_words);

  // ---- turns
  bool receive(Instant now);
  bool transmit(Instant now, std::uint32_t budget_bytes, std::uint32_t beside_per_cost);
  bool settle(Instant now);
  bool idle() const;
  Instant next_deadline() const;
  bool parse(Instant now);
  bool push(Instant now);
  bool complete_work(Instant now);
  bool deliver_all(Instant now);
  void obey(const rdmap::Verdict& verdict, Instant now);

  // ---- states
  void leave_rts(State next, Instant now);
  void begin_closing(Cause cause, Instant now);
  void begin_terminate(rdmap::Fault fault, const rdmap::Culprit& culprit, Instant now);
  void stop_after_terminate(Instant now);
  enum class Reset : std::uint8_t { stream, nothing };
  void to_error(std::optional<Event> event, Cause cause, Reset reset, Instant now);
  void to_idle();
  bool may_be_left_alone(bool merely);
  void be_left_alone(Event told, Cause cause);
  void changed(State from, Cause cause);
  bool is_between_messages();
  void apply(StreamStep step, Instant now);
  bool check_stream(Instant now);
  void check_deadline(Instant now);
  bool quiet();
  bool closing_is_bad(Instant now);

  // ---- the way down
  bool go_down(Instant now);
  bool go_down_closing(Instant now);
  void send_terminate(Instant now);
  // What goes in front of a Terminate or a FIN, and the Terminate.
  struct LastWords {
    std::array<StreamOut::Last, StreamOut::kLastMax> messages{};
    std::size_t count = 0;
    std::array<std::byte, wire::AcknowledgeHeader::kSize> acknowledge{};
    std::array<std::byte, wire::NegativeAcknowledgeHeader::kSize> refuse{};
    std::span<const StreamOut::Last> all() const { return std::span(messages).first(count); }
    void add(const ddp::OutboundMessage& message, Bytes payload) { messages[count++] = {message, payload}; }
  };
  void add_acknowledgements(LastWords& words);
  void judge_peer(Instant now);
  void look_at_peer(Instant now);
  void say_last_words(BufferRef buffer);

  // ---- without the stream
  void join(Impl& peer, LocalSide& own);
  void part();
  void let_carriers_go();
  bool goes_locally() const;  // of a joined one
  bool is_open() const override;
  bool has_taken(std::uint64_t octets) const override { return stream_->in.has_taken(octets); }
  bool would_take(const ddp::Ulpdu& ulpdu, std::uint32_t more) override;
  void take(const ddp::Ulpdu& ulpdu, bool ends_message, const BufferRef* carrier, Instant now) override;

  rdmap::Requester& requester() { return messages_->requester; }
  rdmap::Responder& responder() { return messages_->responder; }
  void forget_stream();
  void cancel_moves();
  void keep(tpt::Kept& kept);
  void flush_receives(std::uint32_t count_max = rdmap::kFlushMax);
  void flush(std::uint32_t count_max = rdmap::kFlushMax);

  QueuePair& owner_;
  Config config_;
  Host& host_;
  BufferPool& pool_;
  Scratch& scratch_;
  QpCounters counters_;
  rdmap::Common common_;
  std::optional<Messages> messages_;  // always; anew with each stream
  std::optional<Stream> stream_;
  // Of a joined one, else null.
  Impl* peer_ = nullptr;
  LocalSide* side_ = nullptr;
  std::vector<BufferRef> carriers_;  // of the peer's, while what lies in them is placed
  std::uint64_t spent_bytes_ = 0;

  State state_ = State::idle;
  bool outlives_peer_ = false;  // of this stream
  bool last_wqe_due_ = false;   // one with a shared receive queue that was connected is to say when it takes no more
  // A new one's, as that of every iWARP device in the kernel, and of every other.
  IdleName idle_name_ = config_.face == Face::roce ? IdleName::reset : IdleName::init;
  TerminateRecord record_;
  Instant deadline_ = kNever;  // of Closing and Terminate
  bool receive_hint_ = false;  // a receive may have been posted
  bool still_copied_ = false;  // a copy of what was cancelled waits for a page: the flush waits for it
  WayDown way_down_{.flushed = true};
};

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
// before. But what the peer has refused is told at once.
bool QueuePair::Impl::may_be_left_alone(bool merely) {
  if (!outlives_peer_ || requester().has_failed()) return false;
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
  // A peer that is modified to ERR resets the stream.
  if (step == StreamStep::connection_reset && state_ == State::rts && may_be_left_alone(true))
    return be_left_alone(Event::peer_gone, Cause::peer_reset);
  // Nobody is told of it by the requests that it costs: what is posted next is.
  if (step == StreamStep::connection_lost && messages_->acknowledgements && state_ == State::rts && quiet())
    return be_left_alone(Event::peer_gone, Cause::lost);
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
  if (messages_->acknowledgements && (cut || !quiet()) && may_be_left_alone(true))
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

// ---- the way down

// Closing and Terminate: what is under way comes to its end, the Terminate and the FIN leave, work is
// flushed. Error: what is posted late is flushed.
bool QueuePair::Impl::go_down(Instant now) {
  if (state_ == State::error) {
    if (still_copied_ || (!requester().may_be_posted() && !receive_hint_)) return false;
    flush(kLateFlushMax);
    return true;
  }
  if (!stream_) return false;
  if (state_ == State::closing) return go_down_closing(now);
  if (state_ != State::terminate) return false;

  bool busy = false;
  const rdmap::Moves& moves = common_.moves;
  if (way_down_.drop_unsent && moves.gathers == 0) {
    stream_->out.drop();
    way_down_.drop_unsent = false;
  }
  if (!way_down_.drop_unsent) busy |= push(now);
  if (stream_->out.empty() && moves.gathers == 0) {
    if (way_down_.terminate_due) {
      send_terminate(now);
      busy |= !way_down_.terminate_due;
    }
    if (!way_down_.terminate_due && way_down_.fin_due && stream_->out.empty()) {
      stream_->connection.close();
      way_down_.fin_due = false;
      busy = true;
    }
  }
  if (moves.places == 0) {
    // Ignored (V-TERM-07), but taken, or the peer's FIN could not come.
    busy |= stream_->in.discard();
    const bool posted = requester().may_be_posted() || receive_hint_;
    if (moves.gathers == 0 && !way_down_.terminate_due && !way_down_.fin_due && (!way_down_.flushed || posted)) {
      complete_work(now);
      flush();
      busy = true;
    }
  }
  return busy;
}

bool QueuePair::Impl::go_down_closing(Instant now) {
  bool busy = deliver_all(now);
  if (state_ != State::closing || closing_is_bad(now)) return true;
  if (!responder().open() && (!way_down_.flushed || receive_hint_)) {
    flush_receives();
    way_down_.flushed = true;
    busy = true;
  }
  requester().nothing_posted();
  return busy;
}

// Of acknowledged streams: what has been performed, and what has not.
void QueuePair::Impl::add_acknowledgements(LastWords& words) {
  rdmap::Acknowledgements* const own = messages_->acknowledgements.get();
  if (own == nullptr) return;
  // Again, where one may have been dropped on its way.
  if (requester().acknowledgement_due() || own->performed() != 0) {
    wire::emit(own->say(requester().holds()), words.acknowledge);
    words.add(requester().sender().acknowledge(), words.acknowledge);
  }
  if (const auto& refused = own->refused()) {
    wire::emit(*refused, words.refuse);
    words.add(requester().sender().negative_acknowledge(), words.refuse);
  }
}

// Behind the last whole FPDU (V-STOP-01).
void QueuePair::Impl::send_terminate(Instant now) {
  BufferRef buffer = stream_->out.buffer_for_last();
  if (!buffer) return;
  LastWords words;
  add_acknowledgements(words);
  words.add(requester().sender().terminate(record_.length), record_.bytes());
  stream_->out.append_last(words.all(), std::move(buffer));
  way_down_.terminate_due = false;
  push(now);
}

// Destroyed, its application perhaps killed, and nobody has closed the stream. A FIN alone would pass
// for a clean close, after which the peer's late work waits for ever (V-IDLE-06). So a Terminate goes
// behind what was completed, and the peer's queue pair ends in Error: all is flushed. The same for one
// that was on its way to a Terminate, and whose segments found no room yet.
void QueuePair::Impl::say_last_words(BufferRef buffer) {
  stream_->out.drop();
  if (!buffer || !stream_->gate.may_terminate()) return;
  if (state_ == State::rts) record_ = TerminateRecord::said(rdmap::terminate_message(rdmap::Fault::by_consumer, {}));
  if (record_.origin != TerminateRecord::Origin::local) return;  // an answer to a Terminate there is not
  LastWords words;
  add_acknowledgements(words);
  words.add(requester().sender().terminate(record_.length), record_.bytes());
  stream_->out.append_last_at_once(words.all(), std::move(buffer));
}

void QueuePair::Impl::flush_receives(std::uint32_t count_max) { receive_hint_ = responder().flush(count_max); }

// Not before the last octet that could still be copied: a flushed request gives its memory back.
void QueuePair::Impl::flush(std::uint32_t count_max) {
  if (still_copied_) {
    requester().posted();
    receive_hint_ = true;
    return;
  }
  // The error before what is flushed for it, also where both queues report to one CQ.
  const bool sends_first = requester().first_has_failed();
  if (!sends_first) flush_receives(count_max);
  requester().flush(count_max);
  if (sends_first) flush_receives(count_max);
  way_down_.flushed = true;
}

// ---- without the stream ------------------------------------------------------------------------------

void QueuePair::Impl::join(Impl& peer, LocalSide& own) {
  RNIC_ASSERT(stream_ && peer_ == nullptr);
  peer_ = &peer;
  side_ = &own;
  stream_->local.emplace(peer, own);
  stream_->out.use(&*stream_->local);
}

// For both.
void QueuePair::Impl::part() {
  if (peer_ == nullptr) return;
  for (Impl* each : {std::exchange(peer_, nullptr), this}) {
    if (each->stream_->out.waits_for_peer()) each->side_->activate();
    each->peer_ = nullptr;
    each->side_ = nullptr;
    each->stream_->out.use(nullptr);
    each->stream_->local.reset();
  }
}

bool QueuePair::Impl::goes_locally() const { return stream_->local->is_usual() && side_->is_allowed(); }

bool QueuePair::Impl::is_open() const {
  return state_ == State::rts && stream_->gate.open() && stream_->connection.ended() == tcp::Ended::no &&
         !common_.mover.is_stuck(config_.space);
}

bool QueuePair::Impl::would_take(const ddp::Ulpdu& ulpdu, std::uint32_t more) {
  ++common_.turn;  // it may be long since the last one of ours
  return responder().would_take(ulpdu, more);
}

void QueuePair::Impl::take(const ddp::Ulpdu& ulpdu, bool ends_message, const BufferRef* carrier, Instant now) {
  rdmap::Verdict verdict;
  const bool taken = responder().take(ulpdu, {}, now, verdict);
  RNIC_ASSERT(taken);
  stream_->gate.taken();
  if (ends_message) ++counters_.direct_in;
  counters_.direct_bytes_in += ulpdu.size;
  if (carrier != nullptr && common_.moves.places != 0 &&
      (carriers_.empty() || carriers_.back().get() != carrier->get()))
    carriers_.push_back(carrier->share());
  LocalSide& side = *side_;
  obey(verdict, now);
  if (verdict || !idle()) side.activate();
}

// ---- turns -------------------------------------------------------------------------------------------

bool QueuePair::Impl::receive(Instant now) {
  if (!stream_) return false;
  ++common_.turn;
  bool busy = false;
  if (state_ == State::rts) busy |= parse(now);
  if (state_ == State::rts && !responder().stopped()) stream_->in.place_early();
  busy |= check_stream(now);
  if (state_ != State::rts) busy |= go_down(now);
  check_deadline(now);
  return busy;
}

bool QueuePair::Impl::transmit(Instant now, std::uint32_t budget_bytes, std::uint32_t beside_per_cost) {
  if (!stream_ || state_ != State::rts) {
    const bool down = state_ == State::closing || state_ == State::terminate || state_ == State::error;
    return requester().may_be_posted() && down && go_down(now);
  }
  ++common_.turn;
  rdmap::Verdict verdict;
  std::int64_t left_bytes = budget_bytes;
  bool busy = stream_->out.fill(now, left_bytes, beside_per_cost, verdict);
  spent_bytes_ += static_cast<std::uint64_t>(budget_bytes - left_bytes);
  if (verdict) {
    obey(verdict, now);
    go_down(now);
    return true;
  }
  busy |= push(now);
  busy |= complete_work(now);
  look_at_peer(now);
  return busy;
}

bool QueuePair::Impl::settle(Instant now) {
  if (!stream_) return state_ == State::error && go_down(now);
  ++common_.turn;
  if (!carriers_.empty()) [[unlikely]]
    let_carriers_go();
  bool busy = deliver_all(now);
  if (state_ == State::rts) {
    if (receive_hint_ || stream_->in.waits() || stream_->in.paused()) {
      receive_hint_ = false;
      busy |= parse(now);
    } else {
      stream_->in.consume();
    }
  }
  if (state_ == State::rts) {
    busy |= push(now);
    busy |= complete_work(now);
    look_at_peer(now);
  }
  busy |= check_stream(now);
  if (state_ != State::rts) busy |= go_down(now);
  check_deadline(now);
  return busy;
}

bool QueuePair::Impl::parse(Instant now) {
  rdmap::Verdict verdict;
  const bool busy = stream_->in.parse(now, verdict);
  obey(verdict, now);
  return busy;
}

bool QueuePair::Impl::push(Instant now) {
  std::optional<std::uint32_t> failed_work;
  const bool busy = stream_->out.push(now, failed_work);
  if (failed_work) [[unlikely]] {
    if (state_ == State::rts) obey(requester().gather_failed(*failed_work), now);
    way_down_.drop_unsent = true;
  }
  return busy;
}

bool QueuePair::Impl::complete_work(Instant now) {
  rdmap::Verdict verdict;
  const bool busy = requester().complete(verdict);
  obey(verdict, now);
  return busy;
}

bool QueuePair::Impl::deliver_all(Instant now) {
  bool busy = false;
  while (responder().deliverable()) {
    if (state_ == State::terminate || state_ == State::error) break;  // V-TERM-07: the flush takes them
    if (!responder().lets_go()) break;
    // Closing: what was placed before may still be told; nothing else is begun (V-CLS-02).
    obey(responder().deliver_next(), now);
    busy = true;
  }
  return busy;
}

bool QueuePair::Impl::idle() const {
  const rdmap::Requester& requester = messages_->requester;
  const bool posted = requester.may_be_posted() || receive_hint_;
  if (state_ == State::idle) return true;
  if (!stream_) return still_copied_ || !posted;
  const StreamOut& out = stream_->out;
  // What waits for a page of the application's waits without us, and all that it asks for behind it.
  if (common_.moves.any()) return common_.mover.is_stuck(config_.space);
  if (out.starved()) return false;
  const bool delivers = state_ == State::rts || state_ == State::closing;
  if (delivers && messages_->responder.waits_for_flush()) [[unlikely]]
    return common_.mover.is_stuck(config_.space);
  if (state_ != State::rts) return !posted;
  if (requester.waits_for_flush()) [[unlikely]]
    return common_.mover.is_stuck(config_.space);
  if (receive_hint_ || stream_->in.paused()) return false;
  // Filled, and not with TCP: for want of a slot there, whose coming free wakes us; or because their
  // gathers were done while nobody looked.
  if (!out.empty()) return !out.can_push();
  const Gate& gate = stream_->gate;
  const bool wants = gate.rtr_due() || (gate.open() && (gate.nudge_due() || requester.wants_to_send()));
  return !wants || out.waits_for_room();
}

Instant QueuePair::Impl::next_deadline() const {
  if (!stream_) return kNever;
  const Instant of_peer =
      messages_->acknowledgements && state_ == State::rts ? messages_->acknowledgements->next_deadline() : kNever;
  return std::min({deadline_, messages_->responder.held_deadline(), stream_->gate.next_deadline(), of_peer});
}

// ---- the face ----------------------------------------------------------------------------------------

QueuePair::QueuePair(const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover, BufferPool& data_pool,
                     Scratch& scratch)
    : impl_(std::make_unique<Impl>(*this, config, host, table, mover, data_pool, scratch)) {}

QueuePair::~QueuePair() {
  impl_->part();
  impl_->common_.mover.forget(*this);
}

void QueuePair::attach(tcp::Connection& connection, const Start& start, Instant now) {
  impl_->attach(connection, start, now);
}
bool QueuePair::attached() const { return impl_->stream_.has_value(); }
bool QueuePair::has_begun_work() const { return impl_->requester().has_begun_work(); }
void QueuePair::join(QueuePair& peer, LocalSide& own, LocalSide& peers) {
  RNIC_ASSERT(&peer != this);
  impl_->join(*peer.impl_, own);
  peer.impl_->join(*impl_, peers);
}
Result<Done, ModifyError> QueuePair::modify_state(State wanted, Instant now) {
  return impl_->modify_state(wanted, now);
}

void QueuePair::lose_stream(Instant now) {
  if (attached()) impl_->apply(stream_step(impl_->state_, StreamEvent::lost), now);
}

void QueuePair::give_up(Instant now) {
  RNIC_ASSERT(impl_->state_ == State::idle && !impl_->stream_);
  impl_->requester().peer_is_lost(Status::retry_exceeded);
  impl_->to_error(std::nullopt, Cause::unreached, Impl::Reset::nothing, now);
}

void QueuePair::set_idle_name(IdleName name) {
  RNIC_ASSERT(impl_->state_ == State::idle);
  impl_->idle_name_ = name;
}

// In Idle; in RTS what they are may be said again (V-MOD-01). InfiniBand has them change in RTS, too: from the next
// segment on.
Result<Done, ModifyError> QueuePair::set_access(tpt::Rights access) {
  constexpr auto kAllowed =
      tpt::Rights::remote_read | tpt::Rights::remote_write | tpt::Rights::remote_atomic | tpt::Rights::window_bind;
  if (!tpt::permits(kAllowed, access)) return Failure{ModifyError::invalid_attribute};
  const State state = impl_->state_;
  if (state != State::idle && state != State::rts) return Failure{ModifyError::invalid_state};
  const bool fixed = state == State::rts && impl_->config_.face != Face::roce;
  if (fixed && access != impl_->config_.access) return Failure{ModifyError::invalid_attribute};
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

// V-MOD-08, V-MOD-11.
Result<Done, ModifyError> QueuePair::set_receive_limit(std::uint32_t limit) {
  if (!impl_->config_.shared_receive) return Failure{ModifyError::invalid_attribute};
  if (impl_->state_ != State::idle && impl_->state_ != State::rts) return Failure{ModifyError::invalid_state};
  rdmap::ReceiveLimit& now = impl_->common_.receive_limit;
  now.limit = limit;
  now.armed = limit != 0;
  if (now.is_reached()) impl_->host_.raise(Event::receive_limit);
  return Done{};
}

QueuePair::Leftover QueuePair::detach(Instant now, BufferRef last_words) {
  return impl_->detach(now, std::move(last_words));
}
bool QueuePair::receive(Instant now) { return impl_->receive(now); }
bool QueuePair::transmit(Instant now, std::uint32_t budget_bytes, std::uint32_t beside_per_cost) {
  return impl_->transmit(now, budget_bytes, beside_per_cost);
}
bool QueuePair::settle(Instant now) { return impl_->settle(now); }
void QueuePair::work_posted() { impl_->requester().posted(); }
void QueuePair::receive_posted() { impl_->receive_hint_ = true; }
bool QueuePair::idle() const { return impl_->idle(); }
Instant QueuePair::next_deadline() const { return impl_->next_deadline(); }
void QueuePair::give_back_slots() {
  if (impl_->stream_) impl_->stream_->out.give_back_slots();
  impl_->messages_->reads.give_back_slots();
  impl_->messages_->requester.give_back_slots();
  impl_->messages_->responder.give_back_slots();
}
bool QueuePair::can_push() const { return impl_->stream_ && impl_->stream_->out.can_push(); }
std::uint64_t QueuePair::spent_bytes() const { return impl_->spent_bytes_; }
bool QueuePair::goes_locally() const { return impl_->peer_ != nullptr && impl_->goes_locally(); }
std::uint64_t QueuePair::octets_beside_stream() const {
  return impl_->counters_.direct_bytes_in + (impl_->stream_ ? impl_->stream_->out.beside_bytes() : 0);
}
std::uint32_t QueuePair::filling() const { return impl_->stream_ ? impl_->stream_->out.filling() : 0; }

void QueuePair::on_moved(std::uint32_t token, bool ok) {
  if ((token & rdmap::token::kGather) != 0)
    impl_->stream_->out.on_moved(token, ok);
  else if ((token & rdmap::token::kAtomic) != 0)
    impl_->requester().atomics().on_moved(ok);
  else
    impl_->responder().on_moved(token, ok);
}

void QueuePair::keep(tpt::Kept& kept) { impl_->keep(kept); }

void QueuePair::on_let_go() {
  Impl& impl = *impl_;
  impl.still_copied_ = false;
  // What waited for this is flushed in the next turn.
  if (impl.state_ != State::error) return;
  impl.receive_hint_ = true;
  impl.requester().posted();
}

State QueuePair::state() const { return impl_->state_; }
void QueuePair::set_patience(const rdmap::Patience& patience) { impl_->config_.patience = patience; }

std::optional<Duration> QueuePair::retry_time() const {
  const Duration time = rdmap::retry_time(impl_->config_.patience);
  return time == rdmap::kForever ? std::nullopt : std::optional(time);
}

IdleName QueuePair::idle_name() const { return impl_->idle_name_; }
const Config& QueuePair::config() const { return impl_->config_; }
const TerminateRecord& QueuePair::terminate_record() const { return impl_->record_; }
const rdmap::ReceiveLimit& QueuePair::receive_limit() const { return impl_->common_.receive_limit; }
const QpCounters& QueuePair::counters() const { return impl_->counters_; }
bool QueuePair::gate_open() const { return impl_->stream_ && impl_->stream_->gate.open(); }

}  // namespace rnic::qp
