// The life of streams: opened by connect() or a SYN, through the MPA startup, attached to a queue
// pair, and orphaned when that is gone.
//
// Before changing this file, read wire.md s1.1, s1.2 and verbs.md s2.4, s2.11.
#include <algorithm>
#include <cstring>

#include "core/device_impl.hpp"
#include "mpa/packer.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"
#include "wire/terminate.hpp"

namespace rnic::core {

namespace {

constexpr std::uint32_t kDepthUnknown = 128;  // what a peer that negotiates no depths is taken to have
constexpr Duration kLostRequestKept = seconds(30);
constexpr Duration kCloseTimeout = seconds(5);  // after a refusal or a failed startup

std::uint32_t depth_of(std::uint16_t told) {
  return told == wire::EnhancedBlock::kNotNegotiated ? kDepthUnknown : told;
}
std::uint16_t depth_for(std::uint32_t wanted) {
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(wanted, wire::EnhancedBlock::kDepthMax));
}

void copy_private_data(Bytes from, PrivateData& to) {
  to.length = static_cast<std::uint16_t>(std::min(from.size(), to.octets.size()));
  std::copy_n(from.begin(), to.length, to.octets.begin());
}
Bytes bytes_of(const PrivateData& data) {
  return {data.octets.data(), std::min<std::size_t>(data.length, data.octets.size())};
}

StreamFailure failure_of(tcp::Ended ended) {
  switch (ended) {
    case tcp::Ended::refused:
      return StreamFailure::refused;
    case tcp::Ended::timed_out:
      return StreamFailure::timed_out;
    case tcp::Ended::no:
    case tcp::Ended::gracefully:
    case tcp::Ended::reset:
    case tcp::Ended::aborted:
      break;
  }
  return StreamFailure::reset;
}

StreamFailure failure_of(mpa::StartupFailure reason) {
  if (reason == mpa::StartupFailure::timed_out) return StreamFailure::timed_out;
  if (reason == mpa::StartupFailure::ended) return StreamFailure::reset;
  return StreamFailure::protocol;
}

qp::Start::Rtr rtr_of(mpa::Rtr rtr) {
  switch (rtr) {
    case mpa::Rtr::none:
      return qp::Start::Rtr::none;
    case mpa::Rtr::write:
      return qp::Start::Rtr::write;
    case mpa::Rtr::read:
      return qp::Start::Rtr::read;
    case mpa::Rtr::send:
      return qp::Start::Rtr::send;
  }
  return qp::Start::Rtr::none;
}

mpa::StartupOptions startup_options(const DeviceOptions& options) {
  mpa::StartupOptions startup;
  startup.crc = options.crc_required;
  startup.markers = options.markers;
  startup.revision = static_cast<std::uint8_t>(options.mpa_revision);
  startup.peer_to_peer = options.peer_to_peer;
  startup.request_timeout = options.request_timeout;
  startup.reply_timeout = options.reply_timeout;
  return startup;
}

}  // namespace

const char* name(Stream::Phase phase) {
  switch (phase) {
    case Stream::Phase::opening:
      return "opening";
    case Stream::Phase::negotiating:
      return "negotiating";
    case Stream::Phase::waiting:
      return "waiting";
    case Stream::Phase::starting:
      return "starting";
    case Stream::Phase::running:
      return "running";
    case Stream::Phase::orphan:
      return "orphan";
  }
  return "";
}

// ---- streams and queue pairs --------------------------------------------------------------

std::unique_ptr<host::Stream> Device::Impl::make_stream(const tcp::Options& options, const host::Flow& flow) {
  return std::make_unique<Stream>(options, flow);
}

Stream* Device::Impl::stream_of(const qp::QueuePair& qp) {
  const auto found = bound_.find(&qp);
  return found == bound_.end() ? nullptr : found->second;
}

void Device::Impl::bind(qp::QueuePair& qp, Stream& stream) {
  stream.qp = &qp;
  bound_[&qp] = &stream;
}

void Device::Impl::unbind(Stream& stream) {
  if (stream.qp == nullptr) return;
  bound_.erase(stream.qp);
  stream.qp = nullptr;
}

// ---- opening ------------------------------------------------------------------------------

Result<StreamId, StreamError> Device::Impl::connect(const ConnectOptions& options, qp::QueuePair& qp, Instant now) {
  if (qp.state() != qp::State::idle || qp.attached() || stream_of(qp) != nullptr)
    return Failure{StreamError::wrong_state};
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
  bind(qp, stream);
  return stream.id();
}

// A peer that knows no markers rejects who asks for them, as siw does, and says nothing else: once
// more, from another port, without asking. The consumer hears of the second answer only, and the id
// that it has means the second stream.
bool Device::Impl::call_without_markers(Stream& stream, Instant now) {
  const auto& initiator = std::get<mpa::Initiator>(*stream.startup);
  if (options_.markers != mpa::MarkerUse::both || stream.without_markers || stream.wishes.local_port != 0) return false;
  if (initiator.negotiated().markers_out != mpa::Markers::none || !initiator.private_data().empty()) return false;
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

// ---- what the host tells ------------------------------------------------------------------

void Device::Impl::on_lost(host::Stream& stream, Loss loss, Instant now) {
  switch (loss) {
    case Loss::place:
      abandon(own(stream), now);
      break;
    case Loss::listener:
      own(stream).told_end = true;
      break;
  }
}

void Device::Impl::on_unreachable(host::Stream& calling, Instant now) {
  Stream& stream = own(calling);
  tell_failed(stream, StreamFailure::unreachable);
  stream.tcp.abort(now);
  abandon(stream, now);
}

void Device::Impl::on_deadline(host::Stream& due, Instant now) {
  Stream& stream = own(due);
  switch (stream.phase()) {
    case Stream::Phase::opening:
      break;
    case Stream::Phase::negotiating:
      if (std::visit([&](auto& machine) { return machine.on_time(now); }, *stream.startup) == mpa::Fed::Outcome::failed)
        on_startup_failed(stream, now);
      else
        stream.deadline = std::visit([](auto& machine) { return machine.next_deadline(); }, *stream.startup);
      break;
    case Stream::Phase::waiting:
      abandon(stream, now);
      break;
    case Stream::Phase::starting:
      tell_failed(stream, StreamFailure::timed_out);
      (void)stream.qp->modify_state(qp::State::error, now);
      break;
    case Stream::Phase::running:
    case Stream::Phase::orphan:  // the host sees to that
      break;
  }
}

// ---- startup ------------------------------------------------------------------------------

bool Device::Impl::send_octets(Stream& stream, Bytes octets) {
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

void Device::Impl::begin_startup(Stream& stream, Instant now) {
  stream.enter(Stream::Phase::negotiating);
  mpa::StartupOptions options = startup_options(options_);
  if (stream.without_markers) options.markers = mpa::MarkerUse::send;
  if (!stream.initiator) {
    stream.startup = std::make_unique<Stream::Startup>(std::in_place_type<mpa::Responder>, options, now);
    stream.deadline = std::get<mpa::Responder>(*stream.startup).next_deadline();
    return;
  }
  options.ird = depth_for(stream.wishes.ird);
  options.ord = depth_for(stream.wishes.ord);
  options.ird_max = depth_for(stream.qp->config().ird_max);
  options.ord_max = depth_for(stream.qp->config().ord_max);
  stream.startup = std::make_unique<Stream::Startup>(std::in_place_type<mpa::Initiator>, options,
                                                     bytes_of(stream.wishes.private_data), now);
  auto& initiator = std::get<mpa::Initiator>(*stream.startup);
  stream.deadline = initiator.next_deadline();
  if (initiator.outcome() == mpa::Fed::Outcome::failed) {
    on_startup_failed(stream, now);
  } else if (!send_octets(stream, initiator.request())) {
    tell_failed(stream, StreamFailure::no_resources);
    stream.tcp.abort(now);
    abandon(stream, now);
  }
}

void Device::Impl::feed_startup(Stream& stream, Instant now) {
  using Outcome = mpa::Fed::Outcome;
  const auto feed = [&](Bytes octets) {
    return std::visit([&](auto& machine) { return machine.feed(octets); }, *stream.startup);
  };
  Outcome outcome = Outcome::more;
  bool stuck = false;
  while (outcome == Outcome::more && !stuck && stream.tcp.readable_count() > 0) {
    const mpa::Fed fed = feed(stream.tcp.readable(0).span);
    stream.tcp.consume(fed.consumed);
    outcome = fed.outcome;
    stuck = fed.consumed == 0;
  }
  if (outcome == Outcome::more && (stream.tcp.peer_closed() || stream.tcp.ended() != tcp::Ended::no)) {
    if (stream.tcp.ended() != tcp::Ended::no) {
      check_connection_lost(stream, now);
      return;
    }
    outcome = std::visit([](auto& machine) { return machine.on_end(); }, *stream.startup);
  }
  switch (outcome) {
    case Outcome::more:
      break;
    case Outcome::request: {
      auto& responder = std::get<mpa::Responder>(*stream.startup);
      if (!responder.acceptable()) {
        if (const auto reply = responder.reject({})) send_octets(stream, *reply);
        end_rejected(stream, now);
        break;
      }
      stream.enter(Stream::Phase::waiting);
      host_.asked(stream, now);
      break;
    }
    case Outcome::accepted:
      on_accepted(stream, now);
      break;
    case Outcome::rejected: {
      if (call_without_markers(stream, now)) break;
      const auto& initiator = std::get<mpa::Initiator>(*stream.startup);
      stream.told_end = true;
      StreamEvent& event = queue_event(StreamEvent::Kind::rejected, stream);
      event.ird = depth_of(initiator.negotiated().peer_ord);
      event.ord = depth_of(initiator.negotiated().peer_ird);
      copy_private_data(initiator.private_data(), event.private_data);
      abandon(stream, now);
      stream.deadline = now + kCloseTimeout;
      break;
    }
    case Outcome::failed:
      on_startup_failed(stream, now);
      break;
  }
}

void Device::Impl::on_admitted(host::Stream& admitted) {
  Stream& stream = own(admitted);
  stream.told_request = true;
  const auto& responder = std::get<mpa::Responder>(*stream.startup);
  StreamEvent& event = queue_event(StreamEvent::Kind::connect_request, stream);
  event.ird = depth_of(responder.negotiated().peer_ord);
  event.ord = depth_of(responder.negotiated().peer_ird);
  copy_private_data(responder.private_data(), event.private_data);
}

void Device::Impl::on_accepted(Stream& stream, Instant now) {
  const auto& initiator = std::get<mpa::Initiator>(*stream.startup);
  if (stream.qp->state() != qp::State::idle) {  // the application has given up its QP meanwhile
    tell_failed(stream, StreamFailure::reset);
    stream.tcp.abort(now);
    abandon(stream, now);
    return;
  }
  copy_private_data(initiator.private_data(), stream.reply_data);
  const mpa::Negotiated negotiated = initiator.negotiated();
  attach(stream, negotiated, now);
  // The consumer hears what the peer said, though less may hold (W-MPA-38).
  if (negotiated.peer_ord != wire::EnhancedBlock::kNotNegotiated) stream.established_ird = negotiated.peer_ord;
  if (negotiated.peer_ird != wire::EnhancedBlock::kNotNegotiated) stream.established_ord = negotiated.peer_ird;
  stream.deadline = kNever;
  // FPDUs may have come together with the Reply (W-MPA-22).
  stream.qp->receive(now);
}

// Full operation from here on: the queue pair has the connection.
void Device::Impl::attach(Stream& stream, const mpa::Negotiated& negotiated, Instant now) {
  stream.established_ird = negotiated.ird;
  stream.established_ord = negotiated.ord;
  stream.enter(Stream::Phase::starting);
  stream.serving = true;
  stream.tcp.limit_beyond(host_.streams().tcp_options().out_of_order_segments_max);
  qp::Start start;
  start.initiator = stream.initiator;
  start.crc = negotiated.crc;
  start.markers_out = negotiated.markers_out != mpa::Markers::none;
  start.markers_in = negotiated.markers_in;
  start.rtr = rtr_of(negotiated.rtr);
  start.peer_to_peer = negotiated.peer_to_peer;
  start.ird = negotiated.ird;
  start.ord = negotiated.ord;
  stream.qp->attach(stream.tcp, start, now);
  stream.startup.reset();
}

void Device::Impl::on_startup_failed(Stream& stream, Instant now) {
  const mpa::StartupVerdict verdict = std::visit([](auto& machine) { return machine.verdict(); }, *stream.startup);
  if (stream.initiator || stream.told_request) tell_failed(stream, failure_of(verdict.reason));
  if (verdict.terminate)
    send_terminate(stream, *verdict.terminate, std::visit([](auto& m) { return m.negotiated(); }, *stream.startup));
  abandon(stream, now);
  stream.deadline = now + kCloseTimeout;
}

// The first and only FPDU of a stream whose Reply was not what it had to be (W-MPA-35, -43, -84).
void Device::Impl::send_terminate(Stream& stream, const wire::TerminateCode& code, const mpa::Negotiated& framing) {
  wire::TerminateMessage message;
  message.code = code;
  std::array<std::byte, wire::UntaggedHeader::kSize + wire::TerminateMessage::kSizeMax> ulpdu;
  wire::emit(wire::UntaggedHeader{.last = true,
                                  .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::terminate),
                                  .invalidate = {},
                                  .queue = wire::queue_number::kTerminate,
                                  .msn = 1,
                                  .message_offset = 0},
             ulpdu);
  const std::size_t size =
      wire::UntaggedHeader::kSize + wire::emit(message, MutableBytes(ulpdu).subspan(wire::UntaggedHeader::kSize));
  mpa::Packer packer(framing.crc, framing.markers_out);
  std::array<std::byte, 256> fpdu;
  auto pieces = std::make_unique<mpa::PieceList>();
  const std::uint32_t octets = packer.begin(fpdu, Bytes(ulpdu).first(size), 0, *pieces);
  packer.seal(MutableBytes(fpdu).first(octets));
  send_octets(stream, Bytes(fpdu).first(octets));
}

// ---- answering ----------------------------------------------------------------------------

Result<Done, StreamError> Device::Impl::accept(StreamId id, const AcceptOptions& options, qp::QueuePair& qp,
                                               Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::waiting) return Failure{StreamError::unknown};
  if (qp.state() != qp::State::idle || qp.attached() || stream_of(qp) != nullptr)
    return Failure{StreamError::wrong_state};
  host_.activate(*stream);
  if (stream->lost) {
    abandon(*stream, now);
    return Failure{StreamError::unknown};
  }
  auto& responder = std::get<mpa::Responder>(*stream->startup);
  const auto reply = responder.accept(bytes_of(options.private_data), depth_for(options.ird), depth_for(options.ord));
  if (!reply) return Failure{StreamError::no_resources};
  host_.leave_listener(*stream);
  stream->cookie = options.cookie;
  host_.set_traffic_class(*stream, options.traffic_class);
  if (!send_octets(*stream, *reply)) {
    stream->tcp.abort(now);
    abandon(*stream, now);
    return Failure{StreamError::no_resources};
  }
  // The QP takes FPDUs before the Reply is out: it leaves in send() (W-MPA-80).
  bind(qp, *stream);
  const mpa::Negotiated negotiated = responder.negotiated();
  attach(*stream, negotiated, now);
  if (negotiated.peer_to_peer) {
    stream->deadline = now + mpa::kFirstFpduTimeout;  // W-MPA-90
  } else {
    // A client may stay silent, and a server that waited for it would hang (W-MPA-90).
    stream->enter(Stream::Phase::running);
    tell_established(*stream);
  }
  return Done{};
}

Result<Done, StreamError> Device::Impl::reject(StreamId id, const PrivateData& private_data, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::waiting) return Failure{StreamError::unknown};
  host_.activate(*stream);
  stream->told_end = true;
  if (!stream->lost) {
    auto& responder = std::get<mpa::Responder>(*stream->startup);
    const auto reply = responder.reject(bytes_of(private_data));
    if (!reply) {
      stream->told_end = false;
      return Failure{StreamError::no_resources};
    }
    send_octets(*stream, *reply);
  }
  end_rejected(*stream, now);
  return Done{};
}

void Device::Impl::disconnect(StreamId id, Disconnect how, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr) return;
  host_.activate(*stream);
  switch (stream->phase()) {
    case Stream::Phase::opening:
    case Stream::Phase::negotiating:
      stream->told_end = true;
      stream->tcp.abort(now);
      abandon(*stream, now);
      break;
    case Stream::Phase::waiting:
      (void)reject(id, {}, now);
      break;
    case Stream::Phase::starting:
    case Stream::Phase::running:
      // One that is on its way down stays so.
      (void)stream->qp->modify_state(how == Disconnect::graceful ? qp::State::closing : qp::State::terminate, now);
      break;
    case Stream::Phase::orphan:
      break;
  }
}

void Device::Impl::release(qp::QueuePair& qp, Instant now) {
  qp.ListLink<qp::LooseTag>::unlink();
  Stream* stream = stream_of(qp);
  if (stream == nullptr) {
    if (qp.attached()) qp.detach(now);
    return;
  }
  host_.activate(*stream);
  bool graceful = false;
  if (stream->attached() && qp.attached())
    graceful = qp.detach(now, host_.take_control()) == qp::QueuePair::Leftover::graceful;
  if (stream->told_established)
    tell_disconnected(*stream);
  else
    tell_failed(*stream, StreamFailure::reset);
  if (!graceful) stream->tcp.abort(now);
  abandon(*stream, now);
}

bool Device::Impl::kill(StreamId id, Instant now) {
  Stream* stream = find(id);
  if (stream == nullptr) return false;
  host_.activate(*stream);
  if (stream->attached()) {
    (void)stream->qp->modify_state(qp::State::error, now);
    if (stream->qp->attached()) stream->tcp.abort(now);
    review(*stream);
  } else if (stream->phase() == Stream::Phase::waiting) {
    stream->tcp.abort(now);
  } else {
    tell_failed(*stream, StreamFailure::reset);
    stream->tcp.abort(now);
    abandon(*stream, now);
  }
  return true;
}

// ---- running ------------------------------------------------------------------------------

void Device::Impl::take_input(Stream& stream, Instant now) {
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
    case Stream::Phase::orphan:
      host_.take_orphan_input(stream, now);
      break;
  }
}

// Before a queue pair is attached nobody but us sees that the connection has ended.
void Device::Impl::check_connection_lost(Stream& stream, Instant now) {
  if (stream.phase() == Stream::Phase::waiting && stream.told_request) {
    // The consumer has been told of a request: it finds out when it answers.
    stream.lost = true;
    stream.deadline = now + kLostRequestKept;
    return;
  }
  if (stream.initiator) tell_failed(stream, failure_of(stream.tcp.ended()));
  abandon(stream, now);
}

void Device::Impl::review(Stream& stream) {
  if (!stream.attached()) return;
  if (stream.phase() == Stream::Phase::starting && stream.qp->gate_open()) {
    stream.enter(Stream::Phase::running);
    stream.deadline = kNever;
    tell_established(stream);
  }
  if (stream.qp->state() != qp::State::rts) {
    if (stream.phase() == Stream::Phase::running)
      tell_disconnected(stream);
    else
      tell_failed(stream, failure_of(stream.tcp.ended()));
  }
}

void Device::Impl::abandon(Stream& stream, Instant now, host::Host::Fin fin) {
  unbind(stream);
  stream.startup.reset();
  host_.orphan(stream, fin, now);
}

// FIN after the Reply, never RST, so that the Reply arrives (W-MPA-19); and only when it is acknowledged. Linux joins
// segments that wait for a socket, and siw does not look for a Reply in a connection that has ended.
void Device::Impl::end_rejected(Stream& stream, Instant now) {
  abandon(stream, now, host::Host::Fin::when_acknowledged);
  stream.deadline = now + kCloseTimeout;
  host_.take_orphan_input(stream, now);
}

}  // namespace rnic::core
