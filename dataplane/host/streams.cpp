#include "host/streams.hpp"

#include <algorithm>

#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::host {

namespace {

constexpr std::uint32_t kMssDefaultV6 = 1220;  // RFC 9293 s3.7.1: 1280 less the headers
// A second and more after a connection's end, timestamps of the next in its place are later than any of its own.
constexpr Duration kReuseAfter = seconds(1);

// A segment is one frame and one buffer.
std::uint32_t mss_of(std::uint32_t mtu_bytes, std::uint32_t headers_bytes, const Link& link) {
  return std::min(std::max(mtu_bytes, headers_bytes + 128) - headers_bytes, link.port().pool().room_bytes());
}

tcp::Options options_for(std::size_t ip_header, tcp::Options tcp, const Link& link) {
  tcp.headers_bytes = static_cast<std::uint32_t>(ip_header + wire::TcpHeader::kSize);
  tcp.mss_bytes = mss_of(link.mtu_bytes(), tcp.headers_bytes, link);
  if (link.run_bytes() > tcp.headers_bytes) tcp.run_bytes_max = link.run_bytes() - tcp.headers_bytes;
  if (ip_header == wire::Ipv6Header::kSize) tcp.mss_default_bytes = tcp.path_floor_bytes = kMssDefaultV6;
  return tcp;
}

std::uint32_t half_opens_of(std::uint32_t streams_max) {
  return std::clamp<std::uint32_t>(streams_max / 4, 1, Streams::kHalfOpenMax);
}

}  // namespace

Streams::Streams(const tcp::Options& tcp, std::uint32_t streams_max, const Shard& shard,
                 std::shared_ptr<ServedPorts> served_ports, std::uint64_t seed, const Link& link,
                 const ip::Station& station, StreamUser& user)
    : link_(link),
      station_(station),
      user_(user),
      tcp_v4_(options_for(wire::Ipv4Header::kSize, tcp, link)),
      tcp_v6_(options_for(wire::Ipv6Header::kSize, tcp, link)),
      streams_max_(streams_max),
      shard_(shard),
      served_ports_(served_ports != nullptr ? std::move(served_ports) : std::make_shared<ServedPorts>()),
      keys_(HashKeys::from_seed(seed)),
      chance_(keys_.isn.first ^ keys_.flow1),
      used_lately_(kPortsKept / shard.count),
      flows_(streams_max + std::min(kTimeWaitMax, streams_max) + half_opens_of(streams_max)),
      time_wait_(std::min(kTimeWaitMax, streams_max)),
      half_opens_(half_opens_of(streams_max)) {
  timers_.reserve(64);
}

// ---- streams ------------------------------------------------------------------------------

Stream* Streams::make(const Flow& flow) {
  std::uint32_t index;
  if (!free_slots_.empty()) {
    index = free_slots_.back();
    free_slots_.pop_back();
  } else if (streams_.size() < streams_max_) {
    index = static_cast<std::uint32_t>(streams_.size());
    streams_.emplace_back();
    generations_.push_back(0);
  } else {
    return nullptr;
  }
  streams_[index] = user_.make_stream(tcp_options(flow), flow);
  Stream& stream = *streams_[index];
  stream.index = index;
  stream.shard = shard_.index;
  stream.generation = ++generations_[index];
  stream.hash = hash_of(flow);
  stream.local_peer = station_.routes().is_self(flow.remote);
  stream.path_mtu_bytes = mtu_towards(flow.remote);
  stream.tcp.limit_beyond(kBeyondUnused);
  flows_.insert(stream.hash, index);
  ++count_;
  timers_.reserve(count_);
  return &stream;
}

void Streams::free(Stream& stream) {
  if (stream.initiator && stream.tcp.ended() != tcp::Ended::gracefully) used_lately_.add(stream.flow.local_port);
  stop_serving(stream);
  timers_.cancel(stream);
  flows_.erase(stream.hash, stream.index);
  free_slots_.push_back(stream.index);
  --count_;
  streams_[stream.index].reset();
}

Stream* Streams::find(StreamId id) {
  const std::uint32_t index = id.place();
  if (index >= streams_.size() || streams_[index] == nullptr) return nullptr;
  return streams_[index]->id() == id ? streams_[index].get() : nullptr;
}

Stream* Streams::find_stream(const Flow& flow) {
  const auto found = find(flow, hash_of(flow));
  return found && found->is_stream() ? streams_[found->index()].get() : nullptr;
}

void Streams::swap_places(Stream& a, Stream& b) {
  flows_.erase(a.hash, a.index);
  flows_.erase(b.hash, b.index);
  std::swap(streams_[a.index], streams_[b.index]);
  std::swap(a.index, b.index);
  std::swap(a.generation, b.generation);
  flows_.insert(a.hash, a.index);
  flows_.insert(b.hash, b.index);
}

void Streams::begin_serving(Stream& stream) {
  if (!stream.initiator && !stream.serving) served_ports_->add(stream.flow.local_port);
  stream.serving = true;
}

void Streams::stop_serving(Stream& stream) {
  if (!stream.initiator && stream.serving) served_ports_->remove(stream.flow.local_port);
  stream.serving = false;
}

// ---- ports of calls -----------------------------------------------------------------------

// Whatever is still on its way of a connection in TIME-WAIT has earlier timestamps, and is dropped for that (RFC 6191
// s2, RFC 7323 s5.8; Linux' tcp_tw_reuse).
EphemeralPorts::Use Streams::use_of(const Flow& flow, Instant now) const {
  using Use = EphemeralPorts::Use;
  const auto found = find(flow, hash_of(flow));
  if (!found) return Use::free;
  if (!found->is_waiting() || !tcp_v4_.timestamps) return Use::taken;
  const Waiting& waiting = time_wait_.at(found->index());
  const bool later = now >= waiting.until - tcp_v4_.time_wait + kReuseAfter;
  return waiting.finished.timestamps && later ? Use::may_begin_anew : Use::taken;
}

std::optional<tcp::Seq> Streams::take_place_of_waiting(const Flow& flow) {
  const auto found = find(flow, hash_of(flow));
  if (!found || !found->is_waiting()) return std::nullopt;
  const tcp::Seq end = time_wait_.at(found->index()).finished.send_next;
  remove_waiting(found->index());
  return end;
}

// ---- half-open connections, TIME-WAIT -----------------------------------------------------

HalfOpen& Streams::add_half_open(const Flow& flow, std::uint64_t hash) {
  const std::uint32_t slot = half_opens_.add();
  HalfOpen& half = half_opens_.at(slot);
  half.flow = flow;
  half.hash = hash;
  flows_.insert(hash, Place::half_open(slot).value_);
  return half;
}

void Streams::remove(HalfOpen& half) {
  const std::uint32_t slot = half_opens_.slot_of(half);
  flows_.erase(half.hash, Place::half_open(slot).value_);
  half_opens_.remove(slot);
}

void Streams::add(const Waiting& waiting) {
  if (const Waiting* lost = time_wait_.about_to_lose())
    flows_.erase(lost->hash, Place::waiting(time_wait_.slot_of(*lost)).value_);
  flows_.insert(waiting.hash, Place::waiting(time_wait_.add(waiting)).value_);
}

void Streams::remove_waiting(std::uint32_t slot) {
  flows_.erase(time_wait_.at(slot).hash, Place::waiting(slot).value_);
  time_wait_.remove(slot);
}

void Streams::hide_waiting(std::uint32_t slot) {
  Waiting& waiting = time_wait_.at(slot);
  flows_.erase(waiting.hash, Place::waiting(slot).value_);
  waiting.hidden = true;
}

void Streams::show_waiting(std::uint32_t slot) {
  Waiting& waiting = time_wait_.at(slot);
  waiting.hidden = false;
  flows_.insert(waiting.hash, Place::waiting(slot).value_);
}

void Streams::expire_waiting(Instant now) {
  while (const auto slot = time_wait_.next_expired(now))
    flows_.erase(time_wait_.at(*slot).hash, Place::waiting(*slot).value_);
}

// ---- the MTU ------------------------------------------------------------------------------

std::uint32_t Streams::mtu_towards(const wire::IpAddress& remote) const {
  return remote.is_v6() ? std::min(link_.mtu_bytes(), station_.mtu_bytes_v6()) : link_.mtu_bytes();
}

void Streams::on_mtu_change() {
  tcp_v4_.mss_bytes = mss_of(link_.mtu_bytes(), tcp_v4_.headers_bytes, link_);
  tcp_v6_.mss_bytes = mss_of(std::min(link_.mtu_bytes(), station_.mtu_bytes_v6()), tcp_v6_.headers_bytes, link_);
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    const std::uint32_t mtu = mtu_towards(stream->flow.remote);
    if (stream->path_mtu_bytes == mtu) continue;
    stream->path_mtu_bytes = mtu;
    stream->tcp.set_mss(tcp_options(stream->flow).mss_bytes);
    activate(*stream);
  }
}

}  // namespace rnic::host
