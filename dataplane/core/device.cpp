#include "core/device.hpp"

#include <algorithm>

namespace rnic::core {

namespace {

// Bounds of one turn.
constexpr std::int64_t kTransmitQuantumMax = 64 * 1024;  // bytes of one stream's share
constexpr std::int64_t kTransmitQuantumMin = 4 * 1024;
constexpr std::int64_t kTransmitTurnBytes = 256 * 1024;  // of all streams
// With more than so many streams a turn takes long before it has sent anything: of what goes from memory to memory, in
// a fifth of the time of what is framed, so many octets count as one.
constexpr std::uint32_t kFewStreams = 16;
constexpr std::uint32_t kLocalPerCost = 4;
constexpr unsigned kSegmentsMax = 1024;
constexpr Duration kStarvedPause = microseconds(50);  // before a starved queue pair asks for buffers again
constexpr Duration kQuiet = seconds(1);               // after it the memory of a connection's queues is given back
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
  host.shard = options.shard;
  host.served_ports = options.served_ports;
  return host;
}

}  // namespace

Device::Device(const DeviceOptions& options, port::Port& port, StreamEvents& events)
    : options_(options),
      news_(events, options.index),
      streams_(options_, host_, news_),
      host_(host_options(options), port, streams_),
      datagrams_(host_, options_.oob_connect) {
  if (options_.face == Face::roce) datagrams_.serve(options_.ud_port);
}

Device::~Device() { streams_.detach_all(); }

// ---- the turn -----------------------------------------------------------------------------

bool Device::receive(Instant now) {
  const bool busy = host_.receive(now);
  for (Stream* stream = first_active(); stream != nullptr; stream = next_active(*stream)) {
    streams_.take_input(*stream, now);
    stream->input_end = stream->tcp.received();
  }
  news_.deliver();
  return busy || !host_.active().empty();
}

bool Device::settle(Instant now) {
  bool busy = false;
  for (Stream* stream = first_active(); stream != nullptr; stream = next_active(*stream)) {
    if (stream->attached()) busy |= stream->qp->settle(now);
    stream->tcp.end_of_burst();
    streams_.review(*stream);
  }
  busy |= loose_.settle(now);
  busy |= datagrams_.settle(now);
  news_.deliver();
  return busy;
}

bool Device::transmit(Instant now) {
  bool busy = false;
  std::uint32_t waiting = 0;
  for (Stream* s = first_active(); s != nullptr; s = next_active(*s)) ++waiting;
  if (waiting > 0) {
    // Deficit round robin by bytes: a turn's bytes are shared by those who want to send, and who
    // comes too late for this turn is first in the next.
    const std::uint32_t beside_per_cost = waiting > kFewStreams ? kLocalPerCost : 1;
    const std::int64_t share = std::max(kTransmitTurnBytes / waiting, kTransmitQuantumMin);
    std::int64_t left = kTransmitTurnBytes;
    for (; waiting > 0 && left > 0; --waiting) {
      Stream& stream = *RdmaStreams::own(host_.active().pop_front());
      host_.activate(stream);
      if (!stream.attached()) continue;
      // On a wire a turn is a burst, which others' buffers have to take.
      const std::int64_t most = stream.qp->goes_locally() ? kTransmitTurnBytes : kTransmitQuantumMax;
      stream.deficit_bytes = std::min(stream.deficit_bytes + std::min(share, most), most);
      if (stream.deficit_bytes <= 0) continue;
      const std::uint64_t before = stream.qp->spent_bytes();
      host_.data_pool().for_stream(stream.held_to_send());
      busy |= stream.qp->transmit(now, static_cast<std::uint32_t>(stream.deficit_bytes), beside_per_cost);
      const auto used = static_cast<std::int64_t>(stream.qp->spent_bytes() - before);
      stream.deficit_bytes = stream.qp->idle() ? 0 : stream.deficit_bytes - used;
      left -= used;
    }
  }
  host_.data_pool().for_anybody();
  busy |= loose_.transmit(now);
  busy |= datagrams_.transmit(now);
  return busy;
}

bool Device::send(Instant now) {
  bool busy = false;
  host_.begin_send(now);

  unsigned budget = kSegmentsMax;
  for (Stream* stream = first_active(); stream != nullptr;) {
    Stream* next = next_active(*stream);
    busy |= host_.send_segments(*stream, now, budget);
    streams_.review(*stream);
    streams_.end_if_detached(*stream, now);
    if (host_.finish(*stream, now)) {
      busy = true;
    } else if (!needs_turn(*stream, now)) {
      rest(*stream, now);
    }
    stream = next;
  }
  loose_.end_turn();
  datagrams_.end_turn(now);
  host_.flush(now);
  news_.deliver();
  return busy;
}

bool Device::run_timers(Instant now) {
  bool busy = host_.run_timers(now);
  busy |= datagrams_.run_timers(now);
  news_.deliver();
  return busy;
}

bool Device::needs_turn(const Stream& stream, Instant now) const {
  if (host_.needs_turn(stream, now)) return true;
  // TCP gives up while it is asked for segments: who is above it hears of it in the next turn.
  if (stream.tcp.ended() != tcp::Ended::no && stream.stage != Stream::Stage::orphan && !stream.lost) return true;
  if (!stream.attached()) return false;
  return (!stream.qp->idle() && (stream.qp->can_push() || host_.data_pool().has_some_for(stream.held_to_send()))) ||
         stream.qp->next_deadline() <= now;
}

void Device::rest(Stream& stream, Instant now) {
  Instant due = kNever;
  if (stream.attached()) {
    due = stream.qp->next_deadline();
    // Buffers come back without a word, from a port or from a peer on the same pair.
    if (!stream.qp->idle()) due = std::min(due, now + (stream.held_to_send().all() > 0 ? kSharePause : kStarvedPause));
  }
  host_.rest(stream, std::min(due, give_back_when_quiet(stream, now)));
}

// What ten thousand connections that are silent hold is not theirs to keep. Says when to look again.
Instant Device::give_back_when_quiet(Stream& stream, Instant now) {
  std::uint64_t progress = stream.tcp.appended() + stream.tcp.acknowledged() + stream.tcp.received();
  if (stream.attached()) progress += stream.qp->octets_beside_stream();
  if (progress != stream.last_progress) {
    stream.last_progress = progress;
    stream.quiet_since = now;
  }
  if (stream.quiet_since == kNever) return kNever;
  if (now < stream.quiet_since + kQuiet) return stream.quiet_since + kQuiet;
  stream.quiet_since = kNever;
  stream.tcp.give_back_slots();
  if (stream.attached()) stream.qp->give_back_slots();
  return kNever;
}

// ---- the face -----------------------------------------------------------------------------

Result<Done, StreamError> Device::listen(wire::IpAddress address, std::uint16_t port, std::uint32_t backlog,
                                         std::uint64_t cookie, bool v6_only) {
  if (const auto error = host_.listen(address, port, backlog, cookie, v6_only)) return Failure{*error};
  return Done{};
}

void Device::release(qp::QueuePair& qp, Instant now) {
  LooseQueuePairs::remove(qp);
  streams_.release(qp, now);
}

void Device::work_posted(qp::QueuePair& qp) {
  qp.work_posted();
  touch(qp);
}

void Device::receive_posted(qp::QueuePair& qp) {
  qp.receive_posted();
  touch(qp);
}

void Device::touch(qp::QueuePair& qp) {
  if (Stream* stream = streams_.of(qp)) {
    host_.activate(*stream);
  } else if (qp.state() != qp::State::idle) {
    loose_.add(qp);
  }
}

std::vector<StreamInfo> Device::streams() const {
  std::vector<StreamInfo> all;
  host_.for_each([&](host::Stream& each) {
    const Stream* stream = &RdmaStreams::own(each);
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

}  // namespace rnic::core
