#include "host/doors.hpp"

#include "tcp/handshake.hpp"
#include "tcp/reuse.hpp"

namespace rnic::host {

namespace flags = wire::tcp_flags;

namespace {
constexpr Duration kTimeWaitAnswers = milliseconds(100);  // between answers for one in TIME-WAIT
}  // namespace

// ---- listeners ----------------------------------------------------------------------------

bool Doors::listen(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog, std::uint64_t cookie,
                   bool v6_only) {
  if (callers_.open(address, port, backlog, cookie, v6_only) == Listeners::kNone) return false;
  while (queues_.size() < callers_.listeners().size()) queues_.emplace_back();
  return true;
}

void Doors::unlisten(const wire::IpAddress& address, std::uint16_t port, Instant now) {
  Listeners& listeners = callers_.listeners();
  const std::uint32_t listener = listeners.find_exactly(address, port);
  if (listener == Listeners::kNone) return;
  listeners.close(listener, now);
  forget_all_of(listener, now);
  if (callers_.close(listener, now)) look_for_room();
}

// Then a SYN is as good as lost: it comes again, to the next listener or to a RST.
bool Doors::may_listen_again(const Flow& flow, Instant now) {
  return callers_.listeners().closed_just_now(flow.local, flow.local_port, now, streams_.is_served(flow.local_port));
}

void Doors::on_unknown(const Flow& flow, tcp::SegmentIn&& segment, Instant now) {
  const wire::TcpHeader& header = segment.header;
  const bool is_syn = header.has(flags::kSyn) && !header.has(flags::kAck);
  Listeners& listeners = callers_.listeners();
  const std::uint32_t listener = listeners.find(flow.local, flow.local_port);
  if (listener != Listeners::kNone) {
    if (is_syn) {
      on_syn(listener, flow, streams_.hash_of(flow), segment, HalfOpen::kNone, now);
      return;
    }
    if (!header.has(flags::kAck)) return;  // s3.10.7.2, fourth
    if (on_cookie(listener, flow, segment, now)) return;
  } else if (is_syn && may_listen_again(flow, now)) {
    return;
  }
  ++counters_.no_listener;
  out_.send_reset(flow, segment, now);
}

// ---- half open ----------------------------------------------------------------------------

// A SYN that may not fit the backlog is answered all the same, but with window 0: so the peer sends nothing that would
// be lost, and our next segment opens the window when there is room. `time_wait_slot`: of the TIME-WAIT that it
// replaces.
void Doors::on_syn(std::uint32_t listener, const Flow& flow, std::uint64_t hash, const tcp::SegmentIn& syn,
                   std::uint32_t time_wait_slot, Instant now) {
  if (syn.header.has(flags::kFin) || !routes_.next_hop(flow.remote)) return;
  if (streams_.half_opens().full()) {
    // Of one in TIME-WAIT the third segment would not be looked at as a cookie.
    if (time_wait_slot != HalfOpen::kNone || !send_cookie(flow, syn, now)) ++counters_.syns_dropped;
    return;
  }
  const Listener& at = callers_.listeners().at(listener);
  const bool held = at.pending + at.half_open >= at.backlog;
  HalfOpen& half = add_half_open(listener, flow, hash);
  tcp::Seq ours = initial_sequence(flow, streams_.keys(), now);
  if (time_wait_slot != HalfOpen::kNone) {
    const Waiting& before = streams_.waiting_at(time_wait_slot);
    // RFC 9293 s3.6.1 (1): behind all that the one before it used.
    if (!ours.after(before.finished.send_next)) ours = before.finished.send_next + Streams::kSequenceStep;
    streams_.hide_waiting(time_wait_slot);
    half.time_wait_slot = time_wait_slot;
  }
  half.handshake = tcp::agree(syn.header, streams_.tcp_options(flow), ours, timestamp_offset(flow, streams_.keys()));
  half.handshake.held = held;
  send_syn_ack(half, now);
}

// Not while all are in use.
HalfOpen& Doors::add_half_open(std::uint32_t listener, const Flow& flow, std::uint64_t hash) {
  HalfOpen& half = streams_.add_half_open(flow, hash);
  half.listener = listener;
  ++callers_.listeners().at(listener).half_open;
  return half;
}

void Doors::wake_at(HalfOpen& half, Instant due) {
  HalfOpens& half_opens = streams_.half_opens();
  half_opens.wake_at(half_opens.slot_of(half), due);
}

void Doors::send_syn_ack(HalfOpen& half, Instant now) {
  tcp::Handshake& handshake = half.handshake;
  if (handshake.sent == 0) handshake.sent_at = now;
  const tcp::Options& tcp = streams_.tcp_options(half.flow);
  wake_at(half, now + tcp::handshake_wait(tcp, handshake.sent));
  ++handshake.sent;
  out_.send_bare_segment(half.flow, tcp::syn_ack(handshake, tcp, now), now, tcp::syn_ack_may_be_marked(handshake, tcp));
}

void Doors::run_timers(Instant now) {
  while (HalfOpen* half = streams_.half_opens().next_due(now)) {
    if (half->awaits_backlog()) {
      forget(*half, now);
    } else if (half->handshake.sent >
               tcp::handshake_repeats(streams_.tcp_options(), streams_.tcp_options().syn_ack_retransmissions_max)) {
      forget(*half, now);
    } else {
      send_syn_ack(*half, now);
    }
  }
}

// Nothing became of it: back to LISTEN, or to the TIME-WAIT that it replaced (RFC 9293 s3.6.1 (2)).
void Doors::forget(HalfOpen& half, Instant now) {
  --callers_.listeners().at(half.listener).half_open;
  if (half.awaits_backlog()) --queued_;
  if (half.time_wait_slot != HalfOpen::kNone) {
    if (streams_.hidden(half.time_wait_slot, half.flow, now) != nullptr) streams_.show_waiting(half.time_wait_slot);
  }
  streams_.remove(half);
}

void Doors::forget_all_of(std::uint32_t listener, Instant now) {
  for (std::uint32_t slot = 0; slot < streams_.half_opens().size() && callers_.listeners().at(listener).half_open > 0;
       ++slot)
    if (HalfOpen& half = streams_.half_opens().at(slot); half.used && half.listener == listener) {
      // It takes itself for connected.
      if (half.awaits_backlog()) out_.send_bare_segment(half.flow, tcp::reset(half.handshake), now);
      forget(half, now);
    }
}

void Doors::on_half_open(std::uint32_t slot, tcp::SegmentIn&& segment, Instant now) {
  HalfOpen& half = streams_.half_opens().at(slot);
  const tcp::HalfOpenStep step =
      tcp::on_half_open(half.handshake, streams_.tcp_options(half.flow), segment.header, segment.payload.size());
  switch (step) {
    case tcp::HalfOpenStep::ignore:
      return;
    case tcp::HalfOpenStep::forget:
      forget(half, now);
      return;
    case tcp::HalfOpenStep::reset:
      out_.send_reset(half.flow, segment, now);
      return;
    case tcp::HalfOpenStep::answer:
      answer_again(half, segment.header, now);
      return;
    case tcp::HalfOpenStep::acknowledge:
      acknowledge(half, segment, now);
      return;
    case tcp::HalfOpenStep::complete:
      break;
  }
  const std::uint32_t listener = half.listener;
  // Not before those that have waited longer.
  if (!callers_.has_room(listener) || !queues_[listener].empty()) {
    await_backlog(half, segment, now);
    return;
  }
  complete(half, std::move(segment), now);
}

void Doors::answer_again(HalfOpen& half, const wire::TcpHeader& syn, Instant now) {
  if (!out_.take_answer()) return;
  const tcp::Options& tcp = streams_.tcp_options(half.flow);
  tcp::on_syn_again(half.handshake, syn);
  if (half.handshake.timestamps && syn.timestamps) half.handshake.timestamp_recent = syn.timestamps->value;
  out_.send_bare_segment(half.flow, tcp::syn_ack(half.handshake, tcp, now), now,
                         tcp::syn_ack_may_be_marked(half.handshake, tcp));
  // Whether the answer to the first or to this one comes, nobody can tell (Karn).
  half.handshake.sent_at = kNever;
}

void Doors::acknowledge(HalfOpen& half, const tcp::SegmentIn& segment, Instant now) {
  if (half.time_wait_slot != HalfOpen::kNone) {
    // The peer's last FIN again: it is there yet, and somebody else's SYN may have this place.
    Waiting* before = streams_.hidden(half.time_wait_slot, half.flow, now);
    if (before != nullptr && tcp::is_last_fin(before->finished, segment.header, segment.payload.size())) {
      acknowledge_again(*before, now);
      return;
    }
  }
  if (!out_.take_answer()) return;
  out_.send_bare_segment(half.flow, tcp::acknowledge(half.handshake, streams_.tcp_options(half.flow), now), now);
}

// Its third segment has come, and there is room in the backlog.
void Doors::complete(HalfOpen& half, tcp::SegmentIn&& third, Instant now) {
  const std::uint32_t listener = half.listener;
  const Flow flow = half.flow;
  const tcp::Handshake handshake = half.handshake;
  if (half.time_wait_slot != HalfOpen::kNone && streams_.hidden(half.time_wait_slot, flow, now) != nullptr)
    streams_.remove_hidden(half.time_wait_slot);
  half.time_wait_slot = HalfOpen::kNone;
  forget(half, now);
  make_stream(listener, flow, handshake, std::move(third), now);
}

// False: there is no room.
bool Doors::make_stream(std::uint32_t listener, const Flow& flow, const tcp::Handshake& handshake,
                        tcp::SegmentIn&& third, Instant now) {
  if (!callers_.has_room(listener)) return false;
  callers_.make_room_for_silent(listener, now);
  Stream* stream = streams_.make(flow);
  if (stream == nullptr) return false;
  callers_.add(*stream, listener);
  stream->initial_receive = handshake.theirs;
  stream->tcp.open_passive(handshake, third.header, now);
  stream->tcp.on_segment(std::move(third), now);
  streams_.activate(*stream);
  return true;
}

// ---- waiting for room in the backlog -------------------------------------------------------

// Nothing is kept of what `segment` carries: its sender sends it again. Where our window is shut it is a probe, and
// wants an answer (RFC 9293 s3.8.6.1).
void Doors::await_backlog(HalfOpen& half, const tcp::SegmentIn& segment, Instant now) {
  if (!half.awaits_backlog()) {
    ++counters_.backlog_waits;
    ++queued_;
    queues_[half.listener].push_back(half);
    half.until = now + kBacklogWait;
    const Instant sent_at = half.handshake.sent_at;
    half.round_trip = sent_at == kNever ? Duration{0} : now - sent_at;
    wake_at(half, half.until);
    // Where it is places for streams that are wanting, those go first that ask for nothing.
    if (!streams_.has_room()) callers_.end_oldest_silent(half.listener, now);
  } else if (half.handshake.held && !segment.payload.empty() && out_.take_answer()) {
    out_.send_bare_segment(half.flow, tcp::acknowledge(half.handshake, streams_.tcp_options(half.flow), now), now);
  }
}

void Doors::admit_queued(Instant now) {
  room_ = false;
  if (queued_ == 0 && !callers_.any_in_line()) return;
  for (std::uint32_t listener = 0; listener < queues_.size(); ++listener) {
    callers_.admit_in_line(listener);
    // Of those who waited none is to end the ones before, who have had no time to ask yet.
    const Listener& at = callers_.listeners().at(listener);
    while (HalfOpen* half = callers_.has_room(listener) && at.not_admitted < Listeners::kSilentMax / 2
                                ? queues_[listener].front()
                                : nullptr) {
      tcp::SegmentIn third;
      third.header = tcp::third_segment(half->handshake);
      // The wait is no part of the round trip.
      half->handshake.sent_at = half->round_trip.ns > 0 ? now - half->round_trip : kNever;
      complete(*half, std::move(third), now);
    }
  }
}

// ---- cookies ------------------------------------------------------------------------------

bool Doors::send_cookie(const Flow& flow, const tcp::SegmentIn& syn, Instant now) {
  if (!out_.take_answer()) return false;
  ++counters_.cookies_sent;
  const tcp::Handshake made = cookies_.make(siphash(flow, streams_.keys().names), syn.header,
                                            streams_.tcp_options(flow), timestamp_offset(flow, streams_.keys()), now);
  wire::TcpHeader answer = tcp::syn_ack(made, streams_.tcp_options(flow), now);
  if (made.timestamps) answer.timestamps->value = tcp::cookie_timestamp(made, now);
  out_.send_bare_segment(flow, answer, now);
  return true;
}

// False: it answers none.
bool Doors::on_cookie(std::uint32_t listener, const Flow& flow, tcp::SegmentIn& segment, Instant now) {
  if (!cookies_.any_valid(now)) return false;
  const auto handshake = cookies_.open(siphash(flow, streams_.keys().names), segment.header, streams_.tcp_options(flow),
                                       timestamp_offset(flow, streams_.keys()), now);
  if (!handshake) return false;
  if (queues_[listener].empty() && make_stream(listener, flow, *handshake, std::move(segment), now)) {
    ++counters_.cookies_good;
  } else if (!streams_.half_opens().full()) {
    ++counters_.cookies_good;
    HalfOpen& half = add_half_open(listener, flow, streams_.hash_of(flow));
    half.handshake = *handshake;
    await_backlog(half, segment, now);
  } else {
    ++counters_.syns_dropped;  // as if it were lost: the peer sends again
  }
  return true;
}

// ---- TIME-WAIT ----------------------------------------------------------------------------

void Doors::enter_time_wait(Stream& stream, Instant now) {
  Waiting waiting{.flow = stream.flow,
                  .hash = stream.hash,
                  .finished = {.send_next = stream.send_next(true), .receive_next = stream.receive_next(true)},
                  .until = now + streams_.tcp_options().time_wait,
                  .used = true};
  if (const auto recent = stream.tcp.timestamp_recent(); recent && stream.timestamp_sent)
    waiting.finished.timestamps = {*stream.timestamp_sent, *recent};
  free(stream);
  streams_.add(waiting);
}

// Whether it went.
bool Doors::acknowledge_again(Waiting& waiting, Instant now) {
  if (now < waiting.answer_from || !out_.take_answer()) return false;
  wire::TcpHeader acknowledgement;
  acknowledgement.sequence = waiting.finished.send_next.value;
  acknowledgement.acknowledgement = waiting.finished.receive_next.value;
  acknowledgement.flags = flags::kAck;
  acknowledgement.timestamps = waiting.finished.timestamps;
  out_.send_bare_segment(waiting.flow, acknowledgement, now);
  waiting.answer_from = now + kTimeWaitAnswers;
  return true;
}

void Doors::free(Stream& stream) {
  callers_.leave(stream);
  streams_.free(stream);
  look_for_room();
}

// RFC 9293 s3.10.7.4 in TIME-WAIT.
void Doors::on_waiting(std::uint32_t slot, tcp::SegmentIn&& segment, Instant now) {
  Waiting& waiting = streams_.waiting_at(slot);
  const wire::TcpHeader& header = segment.header;
  if (header.has(flags::kRst)) return;  // RFC 1337: it does not cut TIME-WAIT short
  if (header.has(flags::kSyn) && !header.has(flags::kAck) &&
      tcp::may_begin_anew(waiting.finished, header, streams_.tcp_options().timestamps)) {
    const Flow flow = waiting.flow;
    const std::uint32_t listener = callers_.listeners().find(flow.local, flow.local_port);
    if (listener != Listeners::kNone)
      on_syn(listener, flow, waiting.hash, segment, slot, now);
    else if (!may_listen_again(flow, now))
      out_.send_reset(flow, segment, now);
    return;
  }
  // Anything else that takes sequence space may be the peer's FIN again: our acknowledgement was lost.
  if (segment.payload.empty() && !header.has(flags::kFin) && !header.has(flags::kSyn) &&
      tcp::Seq{header.sequence} == waiting.finished.receive_next)
    return;
  if (!acknowledge_again(waiting, now) || !tcp::is_last_fin(waiting.finished, header, segment.payload.size())) return;
  // All wait equally long, so one that begins anew goes to the end.
  Waiting anew = waiting;
  anew.until = now + streams_.tcp_options().time_wait;
  streams_.remove_waiting(slot);
  streams_.add(anew);
}

}  // namespace rnic::host
