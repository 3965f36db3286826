// TCP connections of a device for which there is no stream yet, or no more: half open, and in
// TIME-WAIT. Whoever has only an address to his name costs us a small entry here, or nothing.
//
// Before changing this file, read RFC 9293 s3.10.7.2, RFC 4987 s3 and RFC 6191.
#include "core/device_impl.hpp"
#include "tcp/handshake.hpp"
#include "tcp/reuse.hpp"

namespace rnic::core {

namespace flags = wire::tcp_flags;

// ---- half open ----------------------------------------------------------------------------

// A SYN that may not fit the backlog is answered all the same, but with window 0: so the peer sends nothing that would
// be lost, and our next segment opens the window when there is room. `time_wait_slot`: of the TIME-WAIT that it replaces.
void Device::Impl::on_syn(std::uint32_t listener, const Flow& flow, std::uint64_t hash, const tcp::SegmentIn& syn,
                          std::uint32_t time_wait_slot, Instant now) {
  if (syn.header.has(flags::kFin) || !routes_.next_hop(flow.remote)) return;
  if (streams_.half_opens().full()) {
    // Of one in TIME-WAIT the third segment would not be looked at as a cookie.
    if (time_wait_slot != HalfOpen::kNone || !send_cookie(flow, syn, now)) ++counters_.syns_dropped;
    return;
  }
  const Listener& at = listeners_.at(listener);
  const bool held = at.pending + at.half_open >= at.backlog;
  HalfOpen& half = add_half_open(listener, flow, hash);
  tcp::Seq ours = initial_sequence(flow, streams_.keys(), now);
  if (time_wait_slot != HalfOpen::kNone) {
    const Waiting& before = streams_.waiting_at(time_wait_slot);
    // RFC 9293 s3.6.1 (1): behind all that the one before it used.
    if (!ours.after(before.finished.send_next)) ours = before.finished.send_next + host::Streams::kSequenceStep;
    streams_.hide(time_wait_slot);
    half.time_wait_slot = time_wait_slot;
  }
  half.handshake = tcp::agree(syn.header, streams_.tcp_options(flow), ours, timestamp_offset(flow, streams_.keys()));
  half.handshake.held = held;
  send_syn_ack(half, now);
}

// Not while all are in use.
HalfOpen& Device::Impl::add_half_open(std::uint32_t listener, const Flow& flow, std::uint64_t hash) {
  HalfOpen& half = streams_.add_half_open(flow, hash);
  half.listener = listener;
  ++listeners_.at(listener).half_open;
  return half;
}

void Device::Impl::send_syn_ack(HalfOpen& half, Instant now) {
  tcp::Handshake& handshake = half.handshake;
  if (handshake.sent == 0) handshake.sent_at = now;
  const tcp::Options& tcp = streams_.tcp_options(half.flow);
  wake_at(half, now + tcp::handshake_wait(tcp, handshake.sent));
  ++handshake.sent;
  out_.send_bare_segment(half.flow, tcp::syn_ack(handshake, tcp, now), now, tcp::syn_ack_may_be_marked(handshake, tcp));
}

void Device::Impl::run_half_open_timers(Instant now) {
  while (HalfOpen* half = streams_.half_opens().next_due(now)) {
    if (half->awaits_backlog()) {
      forget(*half, now);
    } else if (half->handshake.sent > tcp::handshake_repeats(streams_.tcp_options(), streams_.tcp_options().syn_ack_retransmissions_max)) {
      forget(*half, now);
    } else {
      send_syn_ack(*half, now);
    }
  }
}

// Nothing became of it: back to LISTEN, or to the TIME-WAIT that it replaced (RFC 9293 s3.6.1 (2)).
void Device::Impl::forget(HalfOpen& half, Instant now) {
  --listeners_.at(half.listener).half_open;
  if (half.awaits_backlog()) --backlog_queued_;
  if (half.time_wait_slot != HalfOpen::kNone) {
    if (streams_.hidden(half.time_wait_slot, half.flow, now) != nullptr) streams_.show_again(half.time_wait_slot);
  }
  streams_.remove(half);
}

void Device::Impl::forget_half_opens_of(std::uint32_t listener, Instant now) {
  for (std::uint32_t slot = 0; slot < streams_.half_opens().size() && listeners_.at(listener).half_open > 0; ++slot)
    if (HalfOpen& half = streams_.half_opens().at(slot); half.used && half.listener == listener) {
      // It takes itself for connected.
      if (half.awaits_backlog()) out_.send_bare_segment(half.flow, tcp::reset(half.handshake), now);
      forget(half, now);
    }
}

void Device::Impl::on_half_open_segment(std::uint32_t slot, tcp::SegmentIn&& segment, Instant now) {
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
    case tcp::HalfOpenStep::acknowledge: {
      if (step == tcp::HalfOpenStep::acknowledge && half.time_wait_slot != HalfOpen::kNone) {
        // The peer's last FIN again: it is there yet, and somebody else's SYN may have this place.
        Waiting* before = streams_.hidden(half.time_wait_slot, half.flow, now);
        if (before != nullptr && tcp::is_last_fin(before->finished, segment.header, segment.payload.size())) {
          acknowledge_again(*before, now);
          return;
        }
      }
      if (!out_.take_answer()) return;
      const bool again = step == tcp::HalfOpenStep::answer;
      const tcp::Options& tcp = streams_.tcp_options(half.flow);
      if (again) tcp::on_syn_again(half.handshake, segment.header);
      if (again && half.handshake.timestamps && segment.header.timestamps)
        half.handshake.timestamp_recent = segment.header.timestamps->value;
      out_.send_bare_segment(half.flow,
                        again ? tcp::syn_ack(half.handshake, tcp, now) : tcp::acknowledge(half.handshake, tcp, now),
                        now, again && tcp::syn_ack_may_be_marked(half.handshake, tcp));
      // Whether the answer to the first or to this one comes, nobody can tell (Karn).
      if (again) half.handshake.sent_at = kNever;
      return;
    }
    case tcp::HalfOpenStep::complete:
      break;
  }
  const std::uint32_t listener = half.listener;
  // Not before those that have waited longer.
  if (!has_backlog_room(listener) || !backlog_queues_[listener].empty()) {
    await_backlog(half, segment, now);
    return;
  }
  complete(half, std::move(segment), now);
}

// Its third segment has come, and there is room in the backlog.
void Device::Impl::complete(HalfOpen& half, tcp::SegmentIn&& third, Instant now) {
  const std::uint32_t listener = half.listener;
  const Flow flow = half.flow;
  const tcp::Handshake handshake = half.handshake;
  if (half.time_wait_slot != HalfOpen::kNone && streams_.hidden(half.time_wait_slot, flow, now) != nullptr)
    streams_.remove_hidden(half.time_wait_slot);
  half.time_wait_slot = HalfOpen::kNone;
  forget(half, now);
  make_passive_stream(listener, flow, handshake, std::move(third), now);
}

// ---- waiting for room in the backlog -------------------------------------------------------

// Nothing is kept of what `segment` carries: its sender sends it again. Where our window is shut it is a probe, and
// wants an answer (RFC 9293 s3.8.6.1).
void Device::Impl::await_backlog(HalfOpen& half, const tcp::SegmentIn& segment, Instant now) {
  if (!half.awaits_backlog()) {
    ++counters_.backlog_waits;
    ++backlog_queued_;
    backlog_queues_[half.listener].push_back(half);
    half.until = now + kBacklogWait;
    const Instant sent_at = half.handshake.sent_at;
    half.round_trip = sent_at == kNever ? Duration{0} : now - sent_at;
    wake_at(half, half.until);
    // Where it is places for streams that are wanting, those go first that ask for nothing.
    if (!streams_.has_room()) end_oldest_silent(half.listener, now);
  } else if (half.handshake.held && !segment.payload.empty() && out_.take_answer()) {
    out_.send_bare_segment(half.flow, tcp::acknowledge(half.handshake, streams_.tcp_options(half.flow), now), now);
  }
}

void Device::Impl::admit_queued(Instant now) {
  backlog_room_ = false;
  if (backlog_queued_ + in_line_ == 0) return;
  for (std::uint32_t listener = 0; listener < backlog_queues_.size(); ++listener) {
    while (Stream* stream = listeners_.at(listener).has_room() ? callers_[listener].in_line.front() : nullptr) {
      admit(*stream);
      activate(*stream);
    }
    // Of those who waited none is to end the ones before, who have had no time to ask yet.
    while (HalfOpen* half = has_backlog_room(listener) && listeners_.at(listener).not_admitted < Listeners::kSilentMax / 2
                                ? backlog_queues_[listener].front()
                                : nullptr) {
      tcp::SegmentIn third;
      third.header = tcp::third_segment(half->handshake);
      // The wait is no part of the round trip.
      half->handshake.sent_at = half->round_trip.ns > 0 ? now - half->round_trip : kNever;
      complete(*half, std::move(third), now);
    }
  }
}

// Whoever only connects, or does not end his Request, takes no place from those who ask.
void Device::Impl::end_oldest_silent(std::uint32_t listener, Instant now) {
  Stream* oldest = callers_[listener].silent.front();
  if (oldest == nullptr) return;
  oldest->tcp.abort(now);
  abandon(*oldest, now);
}

void Device::Impl::make_room_for_silent(std::uint32_t listener, Instant now) {
  const std::uint32_t own = listeners_.at(listener).not_admitted;
  if (own >= Listeners::kSilentMax || (silent_count_ >= silent_max() && own > std::min<std::size_t>(Listeners::kSilentFew, silent_max() / 4)))
    end_oldest_silent(listener, now);
  if (silent_count_ >= silent_max()) end_oldest_silent(silent_.front()->listener, now);
}

void Device::Impl::on_no_longer_silent(Stream& stream) {
  if (!stream.ListLink<host::SilentTag>::linked()) return;
  stream.ListLink<host::SilentTag>::unlink();
  --silent_count_;
}

// Its MPA Request has come in full: it is told of when the backlog has a place for it.
void Device::Impl::on_request(Stream& stream, Instant now) {
  stream.enter(Stream::Phase::waiting);
  stream.deadline = kNever;
  if (listeners_.at(stream.listener).has_room() && callers_[stream.listener].in_line.empty()) {
    admit(stream);
    return;
  }
  ++counters_.backlog_waits;
  ++in_line_;
  stream.in_line = true;
  on_no_longer_silent(stream);
  stream.ListLink<host::ListenerTag>::unlink();
  callers_[stream.listener].in_line.push_back(stream);
  stream.deadline = now + kBacklogWait;
}

void Device::Impl::admit(Stream& stream) {
  Listener& at = listeners_.at(stream.listener);
  if (stream.in_line) --in_line_;
  stream.in_line = false;
  stream.deadline = kNever;
  on_no_longer_silent(stream);
  stream.ListLink<host::ListenerTag>::unlink();
  --at.not_admitted;
  ++at.pending;
  stream.pending = true;
  stream.told_request = true;
  tell_request(stream);
}

bool Device::Impl::make_passive_stream(std::uint32_t listener, const Flow& flow, const tcp::Handshake& handshake,
                                       tcp::SegmentIn&& third, Instant now) {
  Listener& at = listeners_.at(listener);
  if (!has_backlog_room(listener)) return false;
  make_room_for_silent(listener, now);
  Stream* stream = own(streams_.make(flow));
  if (stream == nullptr) return false;
  ++at.not_admitted;
  callers_[listener].silent.push_back(*stream);
  silent_.push_back(*stream);
  ++silent_count_;
  stream->listener = listener;
  stream->cookie = at.cookie;
  stream->initial_receive = handshake.theirs;
  stream->initial_send = handshake.ours;
  stream->tcp.open_passive(handshake, third.header, now);
  stream->tcp.on_segment(std::move(third), now);
  activate(*stream);
  return true;
}

// ---- cookies ------------------------------------------------------------------------------

bool Device::Impl::send_cookie(const Flow& flow, const tcp::SegmentIn& syn, Instant now) {
  if (!out_.take_answer()) return false;
  ++counters_.cookies_sent;
  const tcp::Handshake made =
      cookies_.make(siphash(flow, streams_.keys().names), syn.header, streams_.tcp_options(flow), timestamp_offset(flow, streams_.keys()), now);
  wire::TcpHeader answer = tcp::syn_ack(made, streams_.tcp_options(flow), now);
  if (made.timestamps) answer.timestamps->value = tcp::cookie_timestamp(made, now);
  out_.send_bare_segment(flow, answer, now);
  return true;
}

// False: it answers none.
bool Device::Impl::on_cookie(std::uint32_t listener, const Flow& flow, tcp::SegmentIn& segment, Instant now) {
  if (!cookies_.any_valid(now)) return false;
  const auto handshake =
      cookies_.open(siphash(flow, streams_.keys().names), segment.header, streams_.tcp_options(flow), timestamp_offset(flow, streams_.keys()), now);
  if (!handshake) return false;
  if (backlog_queues_[listener].empty() && make_passive_stream(listener, flow, *handshake, std::move(segment), now)) {
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

void Device::Impl::enter_time_wait(Stream& stream, Instant now) {
  Waiting waiting{.flow = stream.flow,
                  .hash = stream.hash,
                  .finished = {.send_next = stream.send_next(true), .receive_next = stream.receive_next(true)},
                  .until = now + streams_.tcp_options().time_wait,
                  .used = true};
  if (const auto recent = stream.tcp.timestamp_recent(); recent && stream.timestamp_sent)
    waiting.finished.timestamps = {*stream.timestamp_sent, *recent};
  free_stream(stream);
  streams_.add(waiting);
}

// Whether it went.
bool Device::Impl::acknowledge_again(Waiting& waiting, Instant now) {
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

// RFC 9293 s3.10.7.4 in TIME-WAIT.
void Device::Impl::on_waiting_segment(std::uint32_t slot, tcp::SegmentIn&& segment, Instant now) {
  Waiting& waiting = streams_.waiting_at(slot);
  const wire::TcpHeader& header = segment.header;
  if (header.has(flags::kRst)) return;  // RFC 1337: it does not cut TIME-WAIT short
  if (header.has(flags::kSyn) && !header.has(flags::kAck) &&
      tcp::may_begin_anew(waiting.finished, header, streams_.tcp_options().timestamps)) {
    const Flow flow = waiting.flow;
    const std::uint32_t listener = listeners_.find(flow.local, flow.local_port);
    if (listener != Listeners::kNone)
      on_syn(listener, flow, waiting.hash, segment, slot, now);
    else
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

}  // namespace rnic::core
