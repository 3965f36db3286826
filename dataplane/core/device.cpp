// The turn of a device, step by step; what it tells; its face.
#include "core/device.hpp"

#include <algorithm>

#include "core/device_impl.hpp"

namespace rnic::core {

namespace {

// Bounds of one turn.
constexpr std::int64_t kTransmitQuantumMax = 64 * 1024;  // bytes of one stream's share
constexpr std::int64_t kTransmitQuantumMin = 4 * 1024;
constexpr std::int64_t kTransmitTurnBytes = 256 * 1024;  // of all streams
constexpr unsigned kSegmentsMax = 1024;
constexpr Duration kStarvedPause = microseconds(50);  // before a starved queue pair asks for buffers again
constexpr Duration kSharePause = milliseconds(1);     // and one that holds its share: mostly its own come back

host::Options host_options(const DeviceOptions& options) {
  host::Options host;
  for (const DeviceAddress& own : options.addresses) host.addresses.push_back({own.address, own.prefix_length});
  host.routes = options.routes;
  host.vlan = options.vlan;
  host.link_local = options.ipv6;
  host.accept_advertisements = options.accept_ra;
  host.hop_limit = options.hop_limit;
  host.probe = options.probe;
  host.opaque_addresses = options.opaque_addresses;
  host.tcp = options.tcp;
  host.streams_max = options.streams_max;
  host.orphan_timeout = options.orphan_timeout;
  host.seed = options.seed;
  return host;
}

}  // namespace

Device::Impl::Impl(const DeviceOptions& options, port::Port& port, StreamEvents& events)
    : options_(options), events_(events), host_(host_options(options), port, *this) {
  queued_events_.reserve(16);
  delivering_.reserve(16);
}

Device::Impl::~Impl() {
  host_.streams().for_each([](host::Stream& each) {
    Stream& stream = own(each);
    if (stream.qp != nullptr && stream.qp->attached()) stream.qp->detach(Instant{0});
  });
}

// ---- the turn -----------------------------------------------------------------------------

bool Device::Impl::receive(Instant now) {
  const bool busy = host_.receive(now);
  for (Stream* stream = first_active(); stream != nullptr; stream = next_active(*stream)) {
    take_input(*stream, now);
    stream->unread_bytes = stream->tcp.received() - stream->tcp.consumed();
  }
  deliver_events();
  return busy || !host_.active().empty();
}

bool Device::Impl::settle(Instant now) {
  bool busy = false;
  for (Stream* stream = first_active(); stream != nullptr; stream = next_active(*stream)) {
    if (stream->attached()) busy |= stream->qp->settle(now);
    stream->tcp.end_of_burst();
    review(*stream);
  }
  unsigned left = kLooseTurnMax;
  for (qp::QueuePair* qp = loose_.front(); qp != nullptr && left-- > 0; qp = loose_.after(*qp)) busy |= qp->settle(now);
  deliver_events();
  return busy;
}

bool Device::Impl::transmit(Instant now) {
  bool busy = false;
  std::uint32_t waiting = 0;
  for (Stream* s = first_active(); s != nullptr; s = next_active(*s)) ++waiting;
  if (waiting > 0) {
    // Deficit round robin by bytes: a turn's bytes are shared by those who want to send, and who
    // comes too late for this turn is first in the next.
    const std::int64_t quantum = std::clamp(kTransmitTurnBytes / waiting, kTransmitQuantumMin, kTransmitQuantumMax);
    std::int64_t left = kTransmitTurnBytes;
    for (; waiting > 0 && left > 0; --waiting) {
      Stream& stream = *own(host_.active().pop_front());
      host_.activate(stream);
      if (!stream.attached()) continue;
      stream.deficit_bytes = std::min(stream.deficit_bytes + quantum, kTransmitQuantumMax);
      if (stream.deficit_bytes <= 0) continue;
      const std::uint64_t before = stream.qp->counters().bytes_out;
      host_.data_pool().for_stream(transmit_buffers_of(stream));
      busy |= stream.qp->transmit(now, static_cast<std::uint32_t>(stream.deficit_bytes));
      const auto used = static_cast<std::int64_t>(stream.qp->counters().bytes_out - before);
      stream.deficit_bytes = stream.qp->idle() ? 0 : stream.deficit_bytes - used;
      left -= used;
    }
  }
  host_.data_pool().for_anybody();
  unsigned left = kLooseTurnMax;
  for (qp::QueuePair* qp = loose_.front(); qp != nullptr && left-- > 0; qp = loose_.after(*qp))
    busy |= qp->transmit(now, 0);
  return busy;
}

bool Device::Impl::send(Instant now) {
  bool busy = false;
  host_.begin_send(now);

  unsigned budget = kSegmentsMax;
  for (Stream* stream = first_active(); stream != nullptr;) {
    Stream* next = next_active(*stream);
    busy |= host_.send_segments(*stream, now, budget);
    review(*stream);
    if (stream->attached() && !stream->qp->attached()) abandon(*stream, now);
    if (host_.finish(*stream, now)) {
      busy = true;
    } else if (!needs_turn(*stream, now)) {
      rest(*stream, now);
    }
    stream = next;
  }
  turn_loose();
  host_.flush(now);
  deliver_events();
  return busy;
}

// Those that had this turn go, or to the end; the others are next.
void Device::Impl::turn_loose() {
  if (loose_.empty()) return;
  List<qp::QueuePair, qp::LooseTag> again;
  for (unsigned left = kLooseTurnMax; left > 0 && !loose_.empty(); --left)
    if (qp::QueuePair* qp = loose_.pop_front(); !qp->idle()) again.push_back(*qp);
  while (qp::QueuePair* qp = again.pop_front()) loose_.push_back(*qp);
}

bool Device::Impl::run_timers(Instant now) {
  const bool busy = host_.run_timers(now);
  deliver_events();
  return busy;
}

bool Device::Impl::needs_turn(const Stream& stream, Instant now) const {
  if (host_.needs_turn(stream, now)) return true;
  // TCP gives up while it is asked for segments: who is above it hears of it in the next turn.
  if (stream.tcp.ended() != tcp::Ended::no && stream.stage != Stream::Stage::orphan && !stream.lost) return true;
  if (!stream.attached()) return false;
  return (!stream.qp->idle() && host_.data_pool().has_some_for(transmit_buffers_of(stream))) ||
         stream.qp->next_deadline() <= now;
}

void Device::Impl::rest(Stream& stream, Instant now) {
  Instant due = kNever;
  if (stream.attached()) {
    due = stream.qp->next_deadline();
    // Buffers come back without a word, from a port or from a peer on the same pair.
    if (!stream.qp->idle())
      due = std::min(due, now + (transmit_buffers_of(stream).all() > 0 ? kSharePause : kStarvedPause));
  }
  host_.rest(stream, due);
}

// ---- events -------------------------------------------------------------------------------

StreamEvent& Device::Impl::queue_event(StreamEvent::Kind kind, Stream& stream) {
  StreamEvent& event = queued_events_.emplace_back();
  event.kind = kind;
  event.device = options_.index;
  event.stream = stream.id();
  event.cookie = stream.cookie;
  if (stream.qp != nullptr) event.qp_number = stream.qp->config().number.value;
  event.local = stream.flow.local;
  event.remote = stream.flow.remote;
  event.local_port = stream.flow.local_port;
  event.remote_port = stream.flow.remote_port;
  return event;
}

void Device::Impl::tell_established(Stream& stream) {
  if (stream.told_established || stream.told_end) return;
  stream.told_established = true;
  StreamEvent& event = queue_event(StreamEvent::Kind::established, stream);
  event.ird = stream.established_ird;
  event.ord = stream.established_ord;
  event.private_data = stream.reply_data;
}

void Device::Impl::tell_failed(Stream& stream, StreamFailure failure) {
  if (stream.told_end) return;
  stream.told_end = true;
  queue_event(StreamEvent::Kind::failed, stream).failure = failure;
}

void Device::Impl::tell_disconnected(Stream& stream) {
  if (stream.told_end) return;
  stream.told_end = true;
  queue_event(StreamEvent::Kind::disconnected, stream);
}

// At the end of a step, never inside of one: who hears of an event may give commands at once.
void Device::Impl::deliver_events() {
  while (!queued_events_.empty()) {
    delivering_.swap(queued_events_);
    for (const StreamEvent& event : delivering_) events_.on_stream_event(event);
    delivering_.clear();
  }
}

// ---- the face -----------------------------------------------------------------------------

Device::Device(const DeviceOptions& options, port::Port& port, StreamEvents& events)
    : impl_(std::make_unique<Impl>(options, port, events)) {}
Device::~Device() = default;

Result<Done, StreamError> Device::listen(wire::IpAddress address, std::uint16_t port, std::uint32_t backlog,
                                         std::uint64_t cookie, bool v6_only) {
  if (const auto error = impl_->host_.listen(address, port, backlog, cookie, v6_only)) return Failure{*error};
  return Done{};
}

void Device::unlisten(wire::IpAddress address, std::uint16_t port, Instant now) {
  impl_->host_.unlisten(address, port, now);
}

Result<StreamId, StreamError> Device::connect(const ConnectOptions& options, qp::QueuePair& qp, Instant now) {
  return impl_->connect(options, qp, now);
}
Result<Done, StreamError> Device::accept(StreamId stream, const AcceptOptions& options, qp::QueuePair& qp,
                                         Instant now) {
  return impl_->accept(stream, options, qp, now);
}
Result<Done, StreamError> Device::reject(StreamId stream, const PrivateData& private_data, Instant now) {
  return impl_->reject(stream, private_data, now);
}
void Device::disconnect(StreamId stream, Disconnect how, Instant now) { impl_->disconnect(stream, how, now); }
void Device::release(qp::QueuePair& qp, Instant now) { impl_->release(qp, now); }
bool Device::kill(StreamId stream, Instant now) { return impl_->kill(stream, now); }

bool Device::receive(Instant now) { return impl_->receive(now); }
bool Device::settle(Instant now) { return impl_->settle(now); }
bool Device::transmit(Instant now) { return impl_->transmit(now); }
bool Device::send(Instant now) { return impl_->send(now); }
bool Device::run_timers(Instant now) { return impl_->run_timers(now); }
Instant Device::next_deadline() const { return impl_->host_.next_deadline(); }
bool Device::idle() const { return impl_->idle(); }

void Device::work_posted(qp::QueuePair& qp) {
  qp.work_posted();
  touch(qp);
}

void Device::receive_posted(qp::QueuePair& qp) {
  qp.receive_posted();
  touch(qp);
}

void Device::touch(qp::QueuePair& qp) {
  if (Stream* stream = impl_->stream_of(qp)) {
    impl_->host_.activate(*stream);
  } else if (qp.state() != qp::State::idle) {
    impl_->loose_.push_back(qp);
  }
}

void Device::add_tap(port::Tap& tap) { impl_->host_.link().add_tap(tap); }
void Device::remove_tap(port::Tap& tap) { impl_->host_.link().remove_tap(tap); }

const DeviceOptions& Device::options() const { return impl_->options_; }
port::Port& Device::port() const { return impl_->host_.link().port(); }
BufferPool& Device::data_pool() { return impl_->host_.data_pool(); }
qp::Scratch& Device::scratch() { return *impl_->scratch_; }
const DeviceCounters& Device::counters() const { return impl_->host_.counters(); }
std::size_t Device::stream_count() const { return impl_->host_.streams().count(); }
std::size_t Device::half_open_count() const { return impl_->host_.streams().half_opens().used(); }

std::vector<StreamInfo> Device::streams() const {
  std::vector<StreamInfo> all;
  impl_->host_.streams().for_each([&](host::Stream& each) {
    const Stream* stream = &Impl::own(each);
    all.push_back({.stream = stream->id(),
                   .local = stream->flow.local,
                   .remote = stream->flow.remote,
                   .local_port = stream->flow.local_port,
                   .remote_port = stream->flow.remote_port,
                   .tcp_state = tcp::name(stream->tcp.state()),
                   .phase = name(stream->phase()),
                   .qp_number = stream->qp != nullptr ? stream->qp->config().number.value : 0,
                   .tcp = stream->tcp.counters(),
                   .congestion_window_bytes = stream->tcp.congestion_window_bytes(),
                   .in_flight_bytes = stream->tcp.in_flight_bytes(),
                   .mss_bytes = stream->tcp.emss(),
                   .rtt_us = stream->tcp.smoothed_rtt().ns / 1000,
                   .congestion = tcp::name(stream->tcp.congestion()),
                   .ecn = stream->tcp.ecn_agreed()});
  });
  return all;
}

bool Device::owns(const wire::IpAddress& address) const { return impl_->host_.station().routes().is_own(address); }
bool Device::reaches(const wire::IpAddress& address) const {
  return impl_->host_.station().routes().next_hop(address).has_value();
}
const std::array<ip::OwnAddress, ip::OwnAddresses::kMax>& Device::addresses() const {
  return impl_->host_.station().own().all();
}
const ip::Routes& Device::routes() const { return impl_->host_.station().routes(); }
void Device::set_link_mtu(std::uint32_t mtu_bytes) { impl_->host_.set_link_mtu(mtu_bytes); }
bool Device::addresses_settled() const {
  return impl_->host_.station().own().settled() || !impl_->host_.link().is_up();
}

}  // namespace rnic::core
