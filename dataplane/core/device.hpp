// A device: one port, its IP addresses, and everything that lives on it. It is the turn: a host's streams
// (host/host.hpp) with the RDMA that runs on them (core/rdma_streams.hpp), step by step, and the share of each in what
// is sent.
//
// Pure but for the Port that it is given: the simulator runs whole devices over a simulated port.
//
// Owned by one worker: every call on its thread (control goes through Worker::call).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/buffer.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "core/connection.hpp"
#include "core/datagrams.hpp"
#include "core/device_options.hpp"
#include "core/loose.hpp"
#include "core/rdma_streams.hpp"
#include "core/stream_news.hpp"
#include "host/counters.hpp"
#include "host/host.hpp"
#include "ip/own_addresses.hpp"
#include "ip/routes.hpp"
#include "port/port.hpp"
#include "port/tap.hpp"
#include "qp/queue_pair.hpp"
#include "tcp/connection.hpp"
#include "wire/address.hpp"

namespace rnic::core {

using DeviceCounters = host::Counters;

// A line of `rnic show conn`.
struct StreamInfo {
  StreamId stream;
  wire::IpAddress local, remote;
  std::uint16_t local_port = 0, remote_port = 0;
  const char* tcp_state = "";
  const char* phase = "";  // opening, negotiating, waiting (for accept), starting, running, held, streaming, orphan
  std::uint32_t qp_number = 0;
  tcp::Counters tcp;
  std::uint32_t congestion_window_bytes = 0, in_flight_bytes = 0, mss_bytes = 0;
  std::int64_t rtt_us = 0;
  const char* congestion = "";  // the algorithm
  bool ecn = false;             // agreed on
};

class Device {
 public:
  Device(const DeviceOptions& options, port::Port& port, StreamEvents& events);
  ~Device();

  // `mate` is at the other end of the device's pair: the same worker's, and there as long as there are streams.
  void set_mate(Device& mate) { streams_.set_mate(mate.streams_); }

  // ---- connection commands ----
  // `address` unspecified: every address of the device, with 0.0.0.0 those of IPv4, with :: and
  // `v6_only` those of IPv6. The cookie comes with events.
  Result<Done, StreamError> listen(wire::IpAddress address, std::uint16_t port, std::uint32_t backlog,
                                   std::uint64_t cookie, bool v6_only = false);
  void unlisten(wire::IpAddress address, std::uint16_t port, Instant now) { host_.unlisten(address, port, now); }
  // The QP is Idle and stays the caller's; it is attached when the startup is over.
  Result<StreamId, StreamError> connect(const ConnectOptions& options, qp::QueuePair& qp, Instant now) {
    return streams_.connect(options, qp, now);
  }
  Result<Done, StreamError> accept(StreamId stream, const AcceptOptions& options, qp::QueuePair& qp, Instant now) {
    return streams_.accept(stream, options, qp, now);
  }
  // Of connections that no queue pair ever has (core/rdma_streams.hpp).
  Result<StreamId, StreamError> greet(const ConnectOptions& options, Instant now) {
    return streams_.greet(options, now);
  }
  Result<Done, StreamError> welcome(StreamId stream, const AcceptOptions& options, Instant now) {
    return streams_.welcome(stream, options, now);
  }
  Result<Done, StreamError> confirm(StreamId stream, Instant now) { return streams_.confirm(stream, now); }
  Result<Done, StreamError> reject(StreamId stream, const PrivateData& private_data, Instant now) {
    return streams_.reject(stream, private_data, now);
  }
  // Streams in streaming mode (core/rdma_streams.hpp).
  Result<StreamId, StreamError> open(const ConnectOptions& options, Instant now) { return streams_.open(options, now); }
  Result<Done, StreamError> claim(StreamId stream, std::uint64_t cookie) { return streams_.claim(stream, cookie); }
  Result<std::size_t, StreamError> say(StreamId stream, Bytes octets, Instant now) {
    return streams_.say(stream, octets, now);
  }
  Result<Heard, StreamError> hear(StreamId stream, MutableBytes room) { return streams_.hear(stream, room); }
  Result<Done, StreamError> begin_iwarp(StreamId stream, const IwarpOptions& options, qp::QueuePair& qp, Instant now) {
    return streams_.begin_iwarp(stream, options, qp, now);
  }
  // It has a connection, or is on the way to one.
  bool has_stream(const qp::QueuePair& qp) const { return streams_.has_stream(qp); }
  // The one that it is attached to; in Idle and Error none.
  std::optional<StreamId> stream_of(const qp::QueuePair& qp) const {
    const Stream* stream = streams_.of(qp);
    return stream != nullptr && stream->attached() && qp.attached() ? std::optional(stream->id()) : std::nullopt;
  }
  // Ends a running stream, drops one that is not yet.
  void disconnect(StreamId stream, Disconnect how, Instant now) { streams_.disconnect(stream, how, now); }
  void renew_call(StreamId stream, Instant now) { streams_.renew_call(stream, now); }
  // The QP is about to be destroyed: it is detached; what TCP holds is still delivered (orphan).
  void release(qp::QueuePair& qp, Instant now);
  // The same of one of type UD. It is in `datagrams()` from its making on.
  void release(ud::QueuePair& qp) { datagrams_.remove(qp); }
  Datagrams& datagrams() { return datagrams_; }
  // An administrator ends a stream: RST.
  bool kill(StreamId stream, Instant now) { return streams_.kill(stream, now); }

  // ---- the turn, in this order ----
  // Frames from the port -> IP -> TCP -> startup machines and queue pairs (placements submitted).
  bool receive(Instant now);
  // After the mover's flush: deliveries, consumption.
  bool settle(Instant now);
  // A queue pair's doorbell rang (its SQ, or its RQ/SRQ).
  void work_posted(qp::QueuePair& qp);
  void receive_posted(qp::QueuePair& qp);
  // The QP was changed from outside of a turn, by modify_state() for example.
  void touch(qp::QueuePair& qp);
  void work_posted(ud::QueuePair& qp) {
    qp.work_posted();
    datagrams_.touch(qp);
  }
  void receive_posted(ud::QueuePair& qp) {
    qp.receive_posted();
    datagrams_.touch(qp);
  }
  void touch(ud::QueuePair& qp) { datagrams_.touch(qp); }
  // Queue pairs with work fill segments (gathers submitted); settle() again after the flush.
  bool transmit(Instant now);
  // Segments, acknowledgements, ARP and the rest -> port.
  bool send(Instant now);
  bool run_timers(Instant now);
  Instant next_deadline() const { return std::min(host_.next_deadline(), datagrams_.next_deadline()); }
  // Nothing is pending that a turn would do something about before next_deadline() or a frame.
  bool idle() const { return host_.idle() && loose_.empty() && datagrams_.idle() && news_.empty(); }

  // ---- who watches ----
  // Sees every frame from the port, and every frame to it or to ourselves as it is queued.
  void add_tap(port::Tap& tap) { host_.add_tap(tap); }
  void remove_tap(port::Tap& tap) { host_.remove_tap(tap); }

  // ---- what it is ----
  const DeviceOptions& options() const { return options_; }
  port::Port& port() const { return host_.port(); }
  // For the device's queue pairs: buffers for transmitted data, never all that the port has.
  BufferPool& data_pool() { return host_.data_pool(); }
  // For its queue pairs, which are its worker's as it is.
  qp::Scratch& scratch() { return *scratch_; }
  const DeviceCounters& counters() const { return host_.counters(); }
  std::size_t stream_count() const { return host_.stream_count(); }
  std::size_t half_open_count() const { return host_.half_open_count(); }  // SYNs answered, the third segment is due
  std::vector<StreamInfo> streams() const;                                 // control's questions only
  // Has the address and may use it; reaches it on-link or by a gateway.
  bool owns(const wire::IpAddress& address) const { return routes().is_own(address); }
  bool reaches(const wire::IpAddress& address) const { return routes().next_hop(address).has_value(); }
  // Its places for addresses; an address keeps its place.
  const std::array<ip::OwnAddress, ip::OwnAddresses::kMax>& addresses() const { return host_.station().own().all(); }
  const ip::Routes& routes() const { return host_.station().routes(); }
  // The port passes frames with this many octets of IP now; more than it began with is taken for that.
  // Connections follow at once (W-TCP-08, W-MPA-59).
  void set_link_mtu(std::uint32_t mtu_bytes) { host_.set_link_mtu(mtu_bytes); }
  // Of the first shard, for the others (core/device_options.hpp).
  ip::Network network() const { return host_.network(); }
  void adopt(const ip::Network& network) { host_.adopt(network); }
  // No address is still being asked for, or cannot be while the link is down.
  bool addresses_settled() const { return host_.station().own().settled() || !host_.link_is_up(); }

  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  Stream* first_active() { return RdmaStreams::own(host_.active().front()); }
  Stream* next_active(Stream& stream) { return RdmaStreams::own(host_.active().after(stream)); }
  bool needs_turn(const Stream& stream, Instant now) const;
  void rest(Stream& stream, Instant now);
  Instant give_back_when_quiet(Stream& stream, Instant now);

  DeviceOptions options_;
  StreamNews news_;
  RdmaStreams streams_;
  host::Host host_;
  LooseQueuePairs loose_;
  Datagrams datagrams_;
  std::unique_ptr<qp::Scratch> scratch_ = std::make_unique<qp::Scratch>();
};

}  // namespace rnic::core
