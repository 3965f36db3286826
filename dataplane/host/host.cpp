#include "host/host.hpp"

#include <algorithm>
#include <array>

#include "ip/host_loopback.hpp"

namespace rnic::host {

namespace {

// Bounds of one turn.
constexpr unsigned kFramesMax = 256;             // taken, from port and loop each
constexpr std::uint64_t kBytesMax = 512 * 1024;  // and no further frame, or batch, behind so many
constexpr std::uint64_t kOrphanDiscardMax = 1u << 20;
constexpr Duration kLookAtLink = milliseconds(10);  // to ask a port costs a system call
constexpr std::uint8_t kDscp = 0xFC;                // of the octet that it shares with ECN

ip::StationOptions station_options(const Options& options, const port::PortFacts& facts) {
  ip::StationOptions station;
  station.mac = facts.mac;
  station.mtu_bytes = facts.mtu_bytes;
  station.addresses = options.addresses;
  station.routes = options.routes;
  station.link_local = options.link_local;
  station.accept_advertisements = options.accept_advertisements;
  station.probe = options.probe;
  station.opaque = options.opaque_addresses;
  station.follows = options.shard.index != 0;
  station.seed = options.seed;
  return station;
}

// One search looks at ports of all shards, so at fewer of ours. As many searches as there are shards look at about as
// many of ours as one does where there is but one shard: a shard does not run out of ports before.
template <typename Search>
std::optional<std::uint16_t> search_for(const Shard& shard, Search&& search) {
  std::optional<std::uint16_t> port;
  for (unsigned left = shard.count; !port && left > 0; --left) port = search();
  return port;
}

}  // namespace

Host::Host(const Options& options, port::Port& port, StreamUser& user)
    : orphan_timeout_(options.orphan_timeout),
      user_(user),
      station_(station_options(options, port.facts())),
      link_(port, options.vlan, kBytesMax, counters_),
      out_(link_, station_, options.hop_limit, counters_),
      icmp_(link_, station_, out_, counters_),
      fragments_(port.facts().mtu_bytes, icmp_, counters_),
      streams_(options.tcp, options.streams_max, options.shard, options.served_ports, options.seed, link_, station_,
               user),
      buffers_(port.pool(), streams_, user, counters_),
      doors_(streams_, station_.routes(), out_, user, counters_),
      datagrams_(link_, station_, options.hop_limit, counters_),
      in_(link_, station_, streams_, doors_, buffers_, icmp_, fragments_, datagrams_, user, counters_) {}

// ---- listeners and calls ------------------------------------------------------------------

std::optional<StreamError> Host::listen(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog,
                                        std::uint64_t cookie, bool v6_only) {
  if (!address.is_unspecified() && !ip::is_host_loopback(address) && station_.own().find(address) == nullptr)
    return StreamError::no_route;
  if (!doors_.listen(address, port, backlog, cookie, v6_only)) return StreamError::address_in_use;
  return std::nullopt;
}

Result<Stream*, StreamError> Host::call(const Call& call, Instant now) {
  const ip::Routes& routes = station_.routes();
  Flow flow{call.local, call.remote, call.local_port, call.remote_port};
  if (flow.local.is_unspecified()) {
    const auto source = routes.source_for(flow.remote);
    if (!source) return Failure{StreamError::no_route};
    flow.local = *source;
  }
  if (!routes.is_self(flow.local) || !routes.next_hop(flow.remote) || flow.remote.is_v4() != flow.local.is_v4())
    return Failure{StreamError::no_route};
  if (ip::is_host_loopback(flow.local) && !routes.is_self(flow.remote)) return Failure{StreamError::no_route};
  if (flow.local_port == 0) {
    const auto port = search_for(streams_.shard(), [&] { return ephemeral_port(flow, now); });
    if (!port) return Failure{StreamError::no_ports};
    flow.local_port = *port;
  } else if (!streams_.shard().has(flow)) {
    return Failure{StreamError::another_shard};
  } else if (streams_.use_of(flow, now) == EphemeralPorts::Use::taken) {
    return Failure{StreamError::address_in_use};
  }
  if (!streams_.has_room()) return Failure{StreamError::no_resources};
  const auto before = streams_.take_place_of_waiting(flow);
  Stream* stream = streams_.make(flow);
  begin_call(*stream, call.traffic_class, before, now);
  return stream;
}

Stream* Host::call_again(Stream& first, std::uint8_t traffic_class, Instant now) {
  Flow flow = first.flow;
  const auto port = search_for(streams_.shard(), [&] { return ephemeral_port(flow, now); });
  if (!port || !streams_.has_room()) return nullptr;
  flow.local_port = *port;
  const auto before = streams_.take_place_of_waiting(flow);
  Stream* again = streams_.make(flow);
  streams_.swap_places(first, *again);
  begin_call(*again, traffic_class, before, now);
  return again;
}

// `before`: where the numbers of the one ended that had these ports.
void Host::begin_call(Stream& stream, std::uint8_t traffic_class, std::optional<tcp::Seq> before, Instant now) {
  stream.initiator = true;
  stream.front.traffic_class = traffic_class & kDscp;
  tcp::Seq ours = initial_sequence(stream.flow, streams_.keys(), now);
  if (before && !ours.after(*before)) ours = *before + Streams::kSequenceStep;
  stream.tcp.open_active(ours, timestamp_offset(stream.flow, streams_.keys()));
  activate(stream);
}

void Host::set_traffic_class(Stream& stream, std::uint8_t traffic_class) {
  stream.front.traffic_class = traffic_class & kDscp;
  stream.front.generation = 0;
}

// ---- the turn -----------------------------------------------------------------------------

bool Host::receive(Instant now) {
  out_.begin_turn();
  buffers_.begin_turn(now);
  // What two ends of a memif agree on is known once they have met; before a SYN of the peer's is answered.
  if (link_.follow_port()) [[unlikely]]
    streams_.on_mtu_change();

  bool busy = false;
  Link::Room room;
  // Frames to ourselves first: they are the older ones.
  std::uint64_t looped = 0;
  for (unsigned left = std::min(link_.looped(), kFramesMax); left > 0 && looped < kBytesMax;) {
    const Link::Batch batch = link_.receive_looped(room, left, looped, kBytesMax);
    in_.take(batch, PacketsIn::Source::ourselves, now);
    left -= static_cast<unsigned>(batch.size());
    busy = true;
  }
  const std::uint64_t begun = counters_.bytes_in;
  bool more = true;
  for (std::size_t frames = 0; more && frames < kFramesMax && counters_.bytes_in - begun < kBytesMax;) {
    const Link::Batch batch = link_.receive(room, more);
    in_.take(batch, PacketsIn::Source::port, now);
    const unsigned others = link_.port().take_moved_for_others();
    frames += batch.size() + others;
    more |= others != 0;
    busy |= !batch.empty() || others != 0;
  }
  if (doors_.has_room_for_queued()) [[unlikely]]
    doors_.admit_queued(now);
  return busy;
}

void Host::begin_send(Instant now) {
  serve_station(now);
  link_.flush(now);
}

bool Host::run_timers(Instant now) {
  bool busy = false;
  while (Stream* stream = streams_.next_due(now)) {
    busy = true;
    if (stream->deadline > now) continue;
    stream->deadline = kNever;
    if (stream->stage == Stream::Stage::orphan)
      stream->tcp.abort(now);
    else
      user_.on_deadline(*stream, now);
  }
  doors_.run_timers(now);
  streams_.expire_waiting(now);
  if (fragments_.next_deadline() <= now) fragments_.expire(now);
  if (station_.next_deadline() <= now) {
    begin_send(now);
    busy = true;
  }
  return busy;
}

Instant Host::next_deadline() const {
  return std::min({streams_.earliest(), doors_.next_deadline(), station_.next_deadline(), fragments_.next_deadline()});
}

void Host::set_link_mtu(std::uint32_t mtu_bytes) {
  link_.set_mtu(mtu_bytes);
  streams_.on_mtu_change();
}

// ---- orphans ------------------------------------------------------------------------------

void Host::orphan(Stream& stream, Fin fin, Instant now) {
  doors_.leave(stream);
  stream.stage = Stream::Stage::orphan;
  streams_.stop_serving(stream);
  stream.fin_waits = fin == Fin::when_acknowledged;
  stream.deadline = now + orphan_timeout_;
  stream.tcp.hold_acknowledgements_from(tcp::Connection::kNoHold);
  stream.tcp.limit_beyond(Streams::kBeyondUnused);
  if (stream.tcp.ended() == tcp::Ended::no && !stream.fin_waits) stream.tcp.close();
  discard_input(stream, now);
  activate(stream);
}

void Host::take_orphan_input(Stream& stream, Instant now) {
  discard_input(stream, now);
  if (!stream.fin_waits || stream.tcp.acknowledged() != stream.tcp.appended()) return;
  stream.fin_waits = false;
  if (stream.tcp.ended() == tcp::Ended::no) stream.tcp.close();
}

// Nobody is there who wants it. It is acknowledged all the same while octets of ours are still to
// arrive: a RST now could make the peer throw away what it has of them (RFC 9293 s3.6).
void Host::discard_input(Stream& stream, Instant now) {
  const std::uint64_t bytes = stream.tcp.received() - stream.tcp.consumed();
  if (bytes == 0) return;
  stream.tcp.consume(bytes);
  stream.discarded_bytes += bytes;
  if (stream.discarded_bytes > kOrphanDiscardMax && stream.tcp.acknowledged() == stream.tcp.appended())
    stream.tcp.abort(now);
}

bool Host::finish(Stream& stream, Instant now) {
  if (stream.stage != Stream::Stage::orphan || stream.more_segments) return false;
  if (stream.tcp.state() == tcp::State::time_wait) {
    doors_.enter_time_wait(stream, now);
    return true;
  }
  if (stream.tcp.ended() == tcp::Ended::no) return false;
  if (stream.tcp.next_deadline() <= now) return false;  // its RST is still to go
  doors_.free(stream);
  return true;
}

// ---- the station --------------------------------------------------------------------------

void Host::serve_station(Instant now) {
  if (link_looked_at_ == kNever || now - link_looked_at_ >= kLookAtLink) {
    link_looked_at_ = now;
    station_.set_link(link_.is_up(), now);
  }
  if (station_.has_message(now)) {
    std::array<std::byte, ip::Station::kMessageMax> octets;
    while (const auto message = station_.next_message(now, octets)) out_.send_message(*message, octets, now);
  }
  while (BufferRef frame = station_.next_released()) link_.push(std::move(frame), now);
  while (const auto failed = station_.next_failed()) give_up_calls_by(*failed, now);
  if (station_.version() != network_version_) on_network_change(now);
}

void Host::give_up_calls_by(const wire::IpAddress& hop, Instant now) {
  bool again = false;
  streams_.for_each([&](Stream& stream) {
    if (!stream.initiator || stream.stage != Stream::Stage::opening) return;
    if (station_.routes().next_hop(stream.flow.remote) != hop) return;
    // On a bad wire three questions can be lost: the next SYN asks anew, once.
    if (!stream.hop_failed) {
      stream.hop_failed = again = true;
      return;
    }
    user_.on_unreachable(stream, now);
  });
  if (again) station_.neighbours().forget(hop);
}

void Host::on_network_change(Instant now) {
  const bool first = network_version_ == 0;
  network_version_ = station_.version();
  if (first) return;
  streams_.on_mtu_change();
  streams_.for_each([&](Stream& stream) {
    // An address whose time is over must not be used (RFC 4862 s5.5.4).
    if (stream.stage != Stream::Stage::orphan && station_.own().find(stream.flow.local) == nullptr)
      user_.on_must_end(stream, now);
  });
  if (!station_.follows()) user_.on_network_change();
}

}  // namespace rnic::host
