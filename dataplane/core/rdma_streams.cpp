#include "core/rdma_streams.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "mpa/meeting.hpp"

namespace rnic::core {

namespace {

constexpr Duration kLostRequestKept = seconds(30);
constexpr Duration kCloseTimeout = seconds(5);  // after a refusal or a failed startup
// For a caller's application to hear that it was welcome: InfiniBand's responder is asked for as much patience.
constexpr Duration kConfirmationTimeout = seconds(60);

}  // namespace

// ---- streams and queue pairs -------------------------------------------------------------

// A new one: the last one's end is seen to, if no turn has done so since the queue pair let go of it.
bool RdmaStreams::may_have_stream(qp::QueuePair& qp, Instant now) {
  if (qp.state() != qp::State::idle || qp.attached() || has_stream(qp)) return false;
  if (Stream* last = of(qp)) {
    review(*last);
    end_if_detached(*last, now);
  }
  return true;
}

void RdmaStreams::bind(qp::QueuePair& qp, Stream& stream) {
  stream.qp = &qp;
  qp.bound_to = &stream;
}

void RdmaStreams::unbind(Stream& stream) {
  if (stream.qp == nullptr) return;
  stream.qp->bound_to = nullptr;
  stream.qp = nullptr;
}

// ---- connection commands -----------------------------------------------------------------

Result<StreamId, StreamError> RdmaStreams::connect(const ConnectOptions& options, qp::QueuePair& qp, Instant now) {
  if (!may_have_stream(qp, now)) return Failure{StreamError::wrong_state};
  const auto called = call(options, now);
  if (!called) return Failure{called.error()};
  bind(qp, **called);
  return (*called)->id();
}

Result<StreamId, StreamError> RdmaStreams::greet(const ConnectOptions& options, Instant now) {
  const auto called = call(options, now);
  if (!called) return Failure{called.error()};
  (*called)->wishes.greets = true;
  return (*called)->id();
}

Result<Stream*, StreamError> RdmaStreams::call(const ConnectOptions& options, Instant now) {
  const auto called = host_.call({.local = options.local,
                                  .remote = options.remote,
                                  .local_port = options.local_port,
                                  .remote_port = options.remote_port,
                                  .traffic_class = options.traffic_class},
                                 now);
  if (!called) return Failure{called.error()};
  Stream& stream = own(**called);
  stream.cookie = options.cookie;
  stream.wishes = options;
  return &stream;
}

Result<Done, StreamError> RdmaStreams::accept(StreamId id, const AcceptOptions& options, qp::QueuePair& qp,
                                              Instant now) {
  const Stream* asked = find(id);
  if (asked == nullptr || asked->phase() != Stream::Phase::waiting) return Failure{StreamError::unknown};
  if (!may_have_stream(qp, now)) return Failure{StreamError::wrong_state};
  const auto answer = answered(id, options, now);
  if (!answer) return Failure{answer.error()};
  Stream* stream = *answer;
  // The QP takes FPDUs before the Reply is out: it leaves in send() (W-MPA-80).
  bind(qp, *stream);
  qp::Start start = stream->startup->start();
  start.outlives_peer = options.outlives_peer;
  start.acknowledged = options.acknowledged;
  const bool first_fpdu_due = start.peer_to_peer;
  attach(*stream, start, now);
  if (first_fpdu_due) {
    stream->deadline = now + mpa::kFirstFpduTimeout;  // W-MPA-90
  } else {
    // A client may stay silent, and a server that waited for it would hang (W-MPA-90).
    stream->enter(Stream::Phase::running);
    news_.tell_established(*stream);
  }
  return Done{};
}

Result<Done, StreamError> RdmaStreams::welcome(StreamId id, const AcceptOptions& options, Instant now) {
  const auto answer = answered(id, options, now);
  if (!answer) return Failure{answer.error()};
  Stream& stream = **answer;
  stream.enter(Stream::Phase::held);
  host_.begin_serving(stream);
  stream.deadline = now + kConfirmationTimeout;
  return Done{};
}

// The Reply has been said.
Result<Stream*, StreamError> RdmaStreams::answered(StreamId id, const AcceptOptions& options, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::waiting) return Failure{StreamError::unknown};
  host_.activate(*stream);
  if (stream->lost) {
    abandon(*stream, now);
    return Failure{StreamError::unknown};
  }
  const auto reply = stream->startup->accept(options);
  if (!reply) return Failure{StreamError::no_resources};
  host_.leave_listener(*stream);
  stream->cookie = options.cookie;
  host_.set_traffic_class(*stream, options.traffic_class);
  if (!send_octets(*stream, *reply)) {
    abort(*stream, now);
    return Failure{StreamError::no_resources};
  }
  return stream;
}

// Of a call that was welcome.
Result<Done, StreamError> RdmaStreams::confirm(StreamId id, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::held) return Failure{StreamError::unknown};
  if (!stream->initiator || stream->confirmed) return Failure{StreamError::wrong_state};
  host_.activate(*stream);
  stream->confirmed = true;
  Startup::LastFpdu room;
  if (send_octets(*stream, stream->startup->confirmation(room))) return Done{};
  end_held(*stream, now);
  return Failure{StreamError::no_resources};
}

Result<Done, StreamError> RdmaStreams::reject(StreamId id, const PrivateData& private_data, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::waiting) return Failure{StreamError::unknown};
  host_.activate(*stream);
  stream->told_end = true;
  if (!stream->lost) {
    const auto reply = stream->startup->reject(private_data);
    if (!reply) {
      stream->told_end = false;
      return Failure{StreamError::no_resources};
    }
    send_octets(*stream, *reply);
  }
  end_rejected(*stream, now);
  return Done{};
}

void RdmaStreams::renew_call(StreamId id, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::opening) return;
  host_.activate(*stream);
  stream->tcp.renew_syn(now);
}

void RdmaStreams::disconnect(StreamId id, Disconnect how, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr) return;
  host_.activate(*stream);
  switch (stream->phase()) {
    case Stream::Phase::opening:
    case Stream::Phase::negotiating:
      stream->told_end = true;
      abort(*stream, now);
      break;
    case Stream::Phase::waiting:
      (void)reject(id, {}, now);
      break;
    case Stream::Phase::starting:
    case Stream::Phase::running:
      // One that is on its way down stays so.
      (void)stream->qp->modify_state(how == Disconnect::graceful ? qp::State::closing : qp::State::terminate, now);
      break;
    case Stream::Phase::held:
      end_held(*stream, now);
      break;
    case Stream::Phase::streaming:
      end_streaming(*stream, how, now);
      break;
    case Stream::Phase::orphan:
      break;
  }
}

void RdmaStreams::release(qp::QueuePair& qp, Instant now) {
  Stream* stream = of(qp);
  if (stream == nullptr) {
    if (qp.attached()) qp.detach(now);
    return;
  }
  host_.activate(*stream);
  bool graceful = false;
  if (stream->attached() && qp.attached())
    graceful = qp.detach(now, host_.take_control()) == qp::QueuePair::Leftover::graceful;
  if (stream->told_established)
    news_.tell_disconnected(*stream);
  else
    news_.tell_failed(*stream, StreamFailure::reset);
  if (!graceful) stream->tcp.abort(now);
  abandon(*stream, now);
}

bool RdmaStreams::kill(StreamId id, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr) return false;
  host_.activate(*stream);
  if (stream->attached()) {
    stream->qp->lose_stream(now);
    review(*stream);
  } else if (stream->phase() == Stream::Phase::waiting) {
    stream->tcp.abort(now);
  } else if (stream->phase() == Stream::Phase::held) {
    stream->tcp.abort(now);
    end_held(*stream, now);
  } else {
    news_.tell_failed(*stream, StreamFailure::reset);
    abort(*stream, now);
  }
  return true;
}

// ---- startup -----------------------------------------------------------------------------

bool RdmaStreams::send_octets(Stream& stream, Bytes octets) {
  while (!octets.empty()) {
    BufferRef buffer = host_.take_control();
    if (!buffer) return false;
    const std::size_t size =
        std::min({octets.size(), std::size_t{std::max(stream.tcp.emss(), 1u)}, std::size_t{buffer->tailroom()}});
    std::memcpy(buffer->append(static_cast<std::uint32_t>(size)).data(), octets.data(), size);
    if (!stream.tcp.append(std::move(buffer))) return false;
    octets = octets.subspan(size);
  }
  return true;
}

void RdmaStreams::begin_startup(Stream& stream, Instant now) {
  if (is_streaming(stream.cookie)) return begin_streaming(stream, now);
  if (stream.wishes.itself) return join_itself(stream, now);
  stream.enter(Stream::Phase::negotiating);
  if (!stream.initiator) {
    stream.startup = std::make_unique<Startup>(options_, now);
    stream.deadline = stream.startup->next_deadline();
    return;
  }
  const auto markers = stream.without_markers ? Startup::Markers::not_asked_for : Startup::Markers::as_configured;
  const qp::Config config = stream.qp != nullptr ? stream.qp->config() : qp::Config{};
  stream.startup = std::make_unique<Startup>(options_, stream.wishes, config, markers, now);
  stream.deadline = stream.startup->next_deadline();
  if (stream.startup->outcome() == Startup::Outcome::failed) {
    on_startup_failed(stream, now);
  } else if (!send_octets(stream, stream.startup->request())) {
    news_.tell_failed(stream, StreamFailure::no_resources);
    abort(stream, now);
  }
}

// What both ends agree on is what the one wants.
void RdmaStreams::join_itself(Stream& stream, Instant now) {
  if (stream.qp->state() != qp::State::idle) return abort(stream, now);
  qp::Start start;
  start.initiator = true;
  start.crc = options_.crc_required ? mpa::Crc::on : mpa::Crc::off;
  start.acknowledged = stream.wishes.acknowledged;
  start.ird = stream.wishes.ird;
  start.ord = std::min(stream.wishes.ord, stream.wishes.ird);
  attach(stream, start, now);
}

void RdmaStreams::feed_startup(Stream& stream, Instant now) {
  switch (stream.startup->feed(stream.tcp)) {
    case Startup::Outcome::more:
      if (stream.tcp.ended() != tcp::Ended::no) check_connection_lost(stream, now);
      break;
    case Startup::Outcome::request:
      on_request(stream, now);
      break;
    case Startup::Outcome::accepted:
      on_accepted(stream, now);
      break;
    case Startup::Outcome::rejected:
      if (!call_without_markers(stream, now)) on_rejected(stream, now);
      break;
    case Startup::Outcome::failed:
      on_startup_failed(stream, now);
      break;
  }
}

void RdmaStreams::on_request(Stream& stream, Instant now) {
  if (!stream.startup->acceptable()) {
    if (const auto reply = stream.startup->reject({})) send_octets(stream, *reply);
    end_rejected(stream, now);
    return;
  }
  stream.enter(Stream::Phase::waiting);
  host_.asked(stream, now);
}

void RdmaStreams::on_accepted(Stream& stream, Instant now) {
  if (stream.wishes.greets) return on_greeted(stream, now);
  if (stream.qp->state() != qp::State::idle) {  // the application has given up its QP meanwhile
    news_.tell_failed(stream, StreamFailure::reset);
    abort(stream, now);
    return;
  }
  stream.reply_data = stream.startup->private_data();
  if (stream.wishes.meeting && !mpa::answers(*stream.wishes.meeting, options_.face, bytes_of(stream.reply_data))) {
    news_.tell_failed(stream, StreamFailure::protocol);
    abort(stream, now);
    return;
  }
  const Startup::Depths heard = stream.startup->depths_of_reply();
  qp::Start start = stream.startup->start();
  start.outlives_peer = stream.wishes.meeting.has_value();
  start.acknowledged = stream.wishes.acknowledged;
  attach(stream, start, now);
  stream.established_ird = heard.ird;
  stream.established_ord = heard.ord;
  stream.deadline = kNever;
  // FPDUs may have come together with the Reply (W-MPA-22).
  stream.qp->receive(now);
}

void RdmaStreams::on_rejected(Stream& stream, Instant now) {
  news_.tell_rejected(stream);
  abandon(stream, now);
  stream.deadline = now + kCloseTimeout;
}

// A peer that knows no markers rejects who asks for them, as siw does, and says nothing else: once
// more, from another port, without asking. The consumer hears of the second answer only, and the id
// that it has means the second stream.
bool RdmaStreams::call_without_markers(Stream& stream, Instant now) {
  if (options_.markers != mpa::MarkerUse::both || stream.without_markers || stream.wishes.local_port != 0) return false;
  if (stream.wishes.greets) return false;  // and has not asked
  if (!stream.startup->may_be_for_markers()) return false;
  Stream* again = own(host_.call_again(stream, stream.wishes.traffic_class, now));
  if (again == nullptr) return false;
  again->without_markers = true;
  again->cookie = stream.wishes.cookie;
  again->wishes = stream.wishes;
  qp::QueuePair& qp = *stream.qp;
  unbind(stream);
  bind(qp, *again);
  stream.told_end = true;
  abandon(stream, now);
  stream.deadline = now + kCloseTimeout;
  return true;
}

void RdmaStreams::on_startup_failed(Stream& stream, Instant now) {
  if (stream.initiator || stream.told_request) news_.tell_failed(stream, stream.startup->failure());
  Startup::LastFpdu room;
  send_octets(stream, stream.startup->terminate(room));
  abandon(stream, now);
  stream.deadline = now + kCloseTimeout;
}

// Before a queue pair is attached nobody but us sees that the connection has ended.
void RdmaStreams::check_connection_lost(Stream& stream, Instant now) {
  if (stream.phase() == Stream::Phase::waiting && stream.told_request) {
    // The consumer has been told of a request: it finds out when it answers, if it does not look before.
    stream.lost = true;
    stream.deadline = now + kLostRequestKept;
    news_.tell_withdrawn(stream);
    return;
  }
  if (stream.initiator) news_.tell_failed(stream, failure_of(stream.tcp.ended()));
  abandon(stream, now);
}

// FIN after the Reply, never RST, so that the Reply arrives (W-MPA-19); and only when it is acknowledged. Linux joins
// segments that wait for a socket, and siw does not look for a Reply in a connection that has ended.
void RdmaStreams::end_rejected(Stream& stream, Instant now) {
  abandon(stream, now, host::Host::Fin::when_acknowledged);
  stream.deadline = now + kCloseTimeout;
  host_.take_orphan_input(stream, now);
}

// ---- greetings ---------------------------------------------------------------------------

// The Reply: whether it is one of ours, who called looks at.
void RdmaStreams::on_greeted(Stream& stream, Instant now) {
  stream.reply_data = stream.startup->private_data();
  const auto mark = wire::parse_mark(bytes_of(stream.reply_data));
  if (!mark || mark->kind != wire::Mark::Kind::greeting) {
    news_.tell_failed(stream, StreamFailure::protocol);
    abort(stream, now);
    return;
  }
  stream.enter(Stream::Phase::held);
  stream.deadline = kNever;
  news_.tell_established(stream);
  take_confirmation(stream, now);
}

// Nothing else is ever said, and of a caller not that.
void RdmaStreams::take_confirmation(Stream& stream, Instant now) {
  const bool known = hear_confirmation(stream);
  if (!known) stream.tcp.abort(now);
  if (!known || stream.tcp.peer_closed() || stream.tcp.ended() != tcp::Ended::no) return end_held(stream, now);
  if (stream.initiator || !stream.confirmed) return;
  stream.deadline = kNever;
  news_.tell_established(stream);
}

// False: it is something else.
bool RdmaStreams::hear_confirmation(Stream& stream) {
  if (stream.tcp.readable_count() == 0) return true;
  if (stream.initiator) return false;
  Startup::LastFpdu room;
  const Bytes due = stream.startup->confirmation(room);
  while (stream.tcp.readable_count() > 0) {
    const Bytes octets = stream.tcp.readable(0).span;
    if (octets.size() > due.size() - stream.heard_octets) return false;
    if (!std::equal(octets.begin(), octets.end(), due.begin() + stream.heard_octets)) return false;
    stream.heard_octets += static_cast<std::uint32_t>(octets.size());
    stream.tcp.consume(octets.size());
  }
  stream.confirmed = stream.heard_octets == due.size();
  return true;
}

// By whichever side, however it did.
void RdmaStreams::end_held(Stream& stream, Instant now) {
  if (!stream.initiator && stream.confirmed) news_.tell_established(stream);  // it came together with the FIN
  if (stream.told_established)
    news_.tell_disconnected(stream);
  else
    news_.tell_failed(stream, StreamFailure::reset);
  abandon(stream, now);
}

// ---- running -----------------------------------------------------------------------------

void RdmaStreams::take_input(Stream& stream, Instant now) {
  switch (stream.phase()) {
    case Stream::Phase::opening:
      if (stream.tcp.ended() != tcp::Ended::no) {
        check_connection_lost(stream, now);
        break;
      }
      if (!stream.tcp.established()) break;
      begin_startup(stream, now);
      // The Request may have come with the third segment of the handshake (W-TCP-16).
      if (stream.phase() == Stream::Phase::negotiating) feed_startup(stream, now);
      break;
    case Stream::Phase::negotiating:
      feed_startup(stream, now);
      break;
    case Stream::Phase::waiting:
      if (stream.lost) break;
      // Octets before our Reply are the peer's error (W-MPA-17); its FIN means that it gave up.
      if (stream.tcp.readable_count() > 0 || stream.tcp.peer_closed()) stream.tcp.abort(now);
      if (stream.tcp.ended() != tcp::Ended::no) check_connection_lost(stream, now);
      break;
    case Stream::Phase::starting:
    case Stream::Phase::running:
      stream.qp->receive(now);
      break;
    case Stream::Phase::held:
      take_confirmation(stream, now);
      break;
    case Stream::Phase::streaming:
      look_at_streaming(stream, now);
      break;
    case Stream::Phase::orphan:
      host_.take_orphan_input(stream, now);
      break;
  }
}

// Full operation from here on: the queue pair has the connection.
void RdmaStreams::attach(Stream& stream, qp::Start start, Instant now) {
  start.checks_crc = !options_.crc_trusted;
  stream.established_ird = start.ird;
  stream.established_ord = start.ord;
  stream.enter(Stream::Phase::starting);
  host_.begin_serving(stream);
  host_.keep_beyond(stream);
  stream.qp->attach(stream.tcp, start, now);
  stream.startup.reset();
  join_local_peer(stream, start);
}

void RdmaStreams::review(Stream& stream) {
  if (!stream.attached()) return;
  // One that is in Idle again has been connected, if for no longer than its peer's first word and Terminate take.
  const bool is_idle = stream.qp->state() == qp::State::idle;
  const bool was_connected = stream.qp->gate_open() || (is_idle && stream.qp->was_open());
  if (stream.phase() == Stream::Phase::starting && was_connected) {
    stream.enter(Stream::Phase::running);
    stream.deadline = kNever;
    news_.tell_established(stream);
  }
  if (stream.qp->state() != qp::State::rts) {
    if (stream.phase() == Stream::Phase::running)
      news_.tell_disconnected(stream);
    else
      news_.tell_failed(stream, failure_of(stream.tcp.ended()));
  }
}

void RdmaStreams::abandon(Stream& stream, Instant now, host::Host::Fin fin) {
  unbind(stream);
  stream.startup.reset();
  host_.orphan(stream, fin, now);
}

void RdmaStreams::abort(Stream& stream, Instant now) {
  stream.tcp.abort(now);
  abandon(stream, now);
}

void RdmaStreams::detach_all() {
  host_.for_each([](host::Stream& each) {
    Stream& stream = own(each);
    if (stream.qp != nullptr && stream.qp->attached()) stream.qp->detach(Instant{0});
  });
}

// ---- what the host tells -----------------------------------------------------------------

void RdmaStreams::on_lost(host::Stream& stream, Loss loss, Instant now) {
  switch (loss) {
    case Loss::place:
      abandon(own(stream), now);
      break;
    case Loss::listener:
      own(stream).told_end = true;
      break;
  }
}

void RdmaStreams::on_unreachable(host::Stream& calling, Instant now) {
  Stream& stream = own(calling);
  news_.tell_failed(stream, StreamFailure::unreachable);
  abort(stream, now);
}

void RdmaStreams::on_deadline(host::Stream& due, Instant now) {
  Stream& stream = own(due);
  switch (stream.phase()) {
    case Stream::Phase::opening:
      break;
    case Stream::Phase::negotiating:
      if (stream.startup->on_time(now) == Startup::Outcome::failed)
        on_startup_failed(stream, now);
      else
        stream.deadline = stream.startup->next_deadline();
      break;
    case Stream::Phase::waiting:
      abandon(stream, now);
      break;
    case Stream::Phase::starting:
      news_.tell_failed(stream, StreamFailure::timed_out);
      if (!stream.qp->leave_unopened(now)) (void)stream.qp->modify_state(qp::State::error, now);
      break;
    case Stream::Phase::held:
      news_.tell_failed(stream, StreamFailure::timed_out);
      abort(stream, now);
      break;
    case Stream::Phase::streaming:
      on_streaming_deadline(stream, now);
      break;
    case Stream::Phase::running:
    case Stream::Phase::orphan:  // the host sees to that
      break;
  }
}

}  // namespace rnic::core
