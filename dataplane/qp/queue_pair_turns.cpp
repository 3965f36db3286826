// A queue pair's turns, what it does without the stream, and its face; its states are in queue_pair_states.cpp.
#include <algorithm>
#include <utility>

#include "qp/queue_pair_impl.hpp"

namespace rnic::qp {

// ---- without the stream ------------------------------------------------------------------------------

void QueuePair::Impl::join(Impl& peer, LocalSide& own) {
  RNIC_ASSERT(stream_ && peer_ == nullptr);
  peer_ = &peer;
  side_ = &own;
  stream_->local.emplace(peer, own);
  stream_->out.use(&*stream_->local);
  stream_->gate.taken();  // the peer is one of ours, and misses nothing (kNudges)
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

void QueuePair::set_idle_name(IdleName name) {
  RNIC_ASSERT(impl_->state_ == State::idle);
  impl_->idle_name_ = name;
  // Its peer may never come, and it be modified to ERR: as InfiniBand's, in RTR and RTS.
  const bool takes_receives = name == IdleName::rtr || name == IdleName::rts;
  impl_->last_wqe_due_ = takes_receives && impl_->config_.shared_receive;
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
