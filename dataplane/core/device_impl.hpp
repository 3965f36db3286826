// The inside of core::Device. Its sources: device.cpp (the turn), device_frames.cpp (IPv4 and TCP
// headers, in and out), device_packets.cpp (IPv6, fragments, ICMP, and what ip::Station says),
// device_streams.cpp (life of streams), device_buffers.cpp (who holds buffers).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/device.hpp"
#include "core/stream.hpp"
#include "host/data_pool.hpp"
#include "host/doors.hpp"
#include "host/fragments.hpp"
#include "host/icmp.hpp"
#include "host/link.hpp"
#include "host/packets_out.hpp"
#include "host/streams.hpp"
#include "ip/station.hpp"
#include "wire/ipv4.hpp"

namespace rnic::core {

using host::DataPool;
using host::EphemeralPorts;
using host::Flow;
using host::load_v4_address;
using host::load_v6_address;

// Bounds of one turn.
inline constexpr unsigned kReceiveFramesMax = 256;              // taken in one turn, from port and loop each
inline constexpr std::uint64_t kReceiveTurnBytes = 512 * 1024;  // and no further frame, or batch, behind so many
inline constexpr std::int64_t kTransmitQuantumMax = 64 * 1024;  // bytes of one stream's share
inline constexpr std::int64_t kTransmitQuantumMin = 4 * 1024;
inline constexpr std::int64_t kTransmitTurnBytes = 256 * 1024;  // of all streams
inline constexpr unsigned kSegmentsMax = 1024;
inline constexpr std::uint64_t kOrphanDiscardMax = 1u << 20;
inline constexpr std::uint64_t kUnconsumedMax = 64 * 1024;   // of a stream, while buffers are nearly gone
inline constexpr Duration kStarvedPause = microseconds(50);  // before a starved queue pair asks for buffers again
inline constexpr Duration kSharePause = milliseconds(1);     // and one that holds its share: mostly its own come back
inline constexpr Duration kPressedLook = milliseconds(100);  // between looks for who holds buffers
inline constexpr Duration kPressedLookLost = seconds(1);     // what was seen longer ago is forgotten
inline constexpr Duration kStuckAfter = seconds(3);          // and gives back, or has consumed, less than it holds
inline constexpr unsigned kEndedPerLook = 64;
inline constexpr Duration kLookAtLink = milliseconds(10);  // to ask a port costs a system call
inline constexpr Duration kCloseTimeout = seconds(5);        // after a refusal or a failed startup

struct Device::Impl final : host::StreamUser {
  Impl(const DeviceOptions& options, port::Port& port, StreamEvents& events);
  ~Impl();

  // ---- the turn ---------------------------------------------------------------------------
  bool receive(Instant now);
  bool settle(Instant now);
  bool transmit(Instant now);
  bool send(Instant now);
  bool run_timers(Instant now);
  void turn_loose();
  Instant next_deadline() const;
  bool idle() const;

  // ---- frames in (device_frames.cpp) ------------------------------------------------------
  // `looped`: they come from ourselves, not from the port. Takes over the references.
  void on_frames(host::Link::Batch batch, bool looped, Instant now);
  void on_frame(BufferRef frame, bool looped, Instant now);
  void on_ipv4(BufferRef frame, std::size_t offset, bool trusted, Instant now);
  bool is_for_us(const wire::IpAddress& from, const wire::IpAddress& to) const;
  bool is_loopback_from_wire(const wire::IpAddress& from, const wire::IpAddress& to) const;
  // `ecn`: what IP said (wire/ecn.hpp).
  void on_tcp(BufferRef frame, Bytes segment, const wire::IpAddress& from, const wire::IpAddress& to, bool trusted,
              std::uint8_t ecn, Instant now);
  bool must_refuse(Stream& stream, const tcp::SegmentIn& segment) const;

  // ---- what is not TCP over IPv4 in whole packets (device_packets.cpp) ---------------------
  using Packet = host::Packet;
  void on_ipv6(BufferRef frame, std::size_t offset, bool trusted, Instant now);
  void on_ipv6_headers(BufferRef frame, const Packet& packet, std::uint8_t next_header, Bytes payload, bool trusted,
                       Instant now);
  void on_whole(std::optional<host::Fragments::Whole> packet, Instant now);
  void on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload, std::uint32_t next_pointer, Instant now);
  void on_icmp_error(const ip::IcmpError& error, bool looped, Instant now);
  void serve_station(Instant now);
  void on_network_change(Instant now);
  void set_link_mtu(std::uint32_t mtu_bytes);

  // ---- streams (device_streams.cpp) -------------------------------------------------------
  std::unique_ptr<host::Stream> make_stream(const tcp::Options& options, const Flow& flow) override {
    return std::make_unique<Stream>(options, flow);
  }
  void on_admitted(host::Stream& stream) override;
  void on_lost(host::Stream& stream, Loss loss, Instant now) override;
  static Stream* own(host::Stream* stream) { return static_cast<Stream*>(stream); }
  Stream* find(StreamId id) { return own(streams_.find(id)); }
  Stream* first_active() { return own(streams_.active().front()); }
  Stream* next_active(Stream& stream) { return own(streams_.active().after(stream)); }
  Stream* stream_of(const qp::QueuePair& qp);
  void bind(qp::QueuePair& qp, Stream& stream);
  void unbind(Stream& stream);
  std::optional<std::uint16_t> ephemeral_port(const Flow& flow, Instant now) {
    return streams_.ephemeral_port(flow, now, [&](std::uint16_t port) { return doors_.is_listening_at(port); });
  }
  void activate(Stream& stream) { streams_.activate(stream); }

  // ---- buffers (device_buffers.cpp) ---------------------------------------------------------
  BufferCount transmit_buffers_of(const Stream& stream) const;
  struct Candidate {
    Stream* stream;
    std::uint32_t count;  // of buffers that are wanted back
  };
  using Greediest = std::array<Candidate, kEndedPerLook>;
  void relieve_pool(Instant now);
  Greediest find_stuck(bool first, Instant now);
  void end_greediest(Greediest greediest, Instant now);

  void take_input(Stream& stream, Instant now);  // after the burst
  void begin_plain(Stream& stream, Instant now);
  void serve_plain(Stream& stream, Instant now);
  void begin_startup(Stream& stream, Instant now);
  void feed_startup(Stream& stream, Instant now);
  void on_accepted(Stream& stream, Instant now);
  void on_startup_failed(Stream& stream, Instant now);
  void attach(Stream& stream, const mpa::Negotiated& negotiated, Instant now);
  void review(Stream& stream);  // what the steps before have changed
  void check_connection_lost(Stream& stream, Instant now);
  void on_phase_deadline(Stream& stream, Instant now);
  void abandon(Stream& stream, Instant now);  // the QP is gone
  void end_rejected(Stream& stream, Instant now);
  void send_waiting_fin(Stream& stream);
  bool finish(Stream& stream, Instant now);   // true: it is no more
  void discard_input(Stream& stream, Instant now);
  bool send_octets(Stream& stream, Bytes octets);
  void send_terminate(Stream& stream, const wire::TerminateCode& code, const mpa::Negotiated& framing);
  void rearm(Stream& stream, Instant now);
  bool needs_turn(const Stream& stream, Instant now) const;

  // `qp` null: a plain stream.
  Result<StreamId, StreamError> connect(const ConnectOptions& options, qp::QueuePair* qp, Instant now);
  void call(Stream& stream, const ConnectOptions& options, qp::QueuePair* qp, std::optional<tcp::Seq> before,
            Instant now);
  bool call_without_markers(Stream& stream, Instant now);
  Result<Done, StreamError> accept(StreamId id, const AcceptOptions& options, qp::QueuePair& qp, Instant now);
  Result<Done, StreamError> reject(StreamId id, const PrivateData& private_data, Instant now);
  void disconnect(StreamId id, Disconnect how, Instant now);
  void release(qp::QueuePair& qp, Instant now);
  bool kill(StreamId id, Instant now);

  // ---- events -----------------------------------------------------------------------------
  StreamEvent& queue_event(StreamEvent::Kind kind, Stream& stream);
  void tell_established(Stream& stream);
  void tell_failed(Stream& stream, StreamFailure failure);
  void tell_disconnected(Stream& stream);
  void deliver_events();


  DeviceOptions options_;
  StreamEvents& events_;
  DeviceCounters counters_;
  host::Link link_;
  DataPool data_pool_;
  std::unique_ptr<qp::Scratch> scratch_ = std::make_unique<qp::Scratch>();
  ip::Station station_;
  const ip::Routes& routes_ = station_.routes();
  ip::Neighbours& neighbours_ = station_.neighbours();
  host::PacketsOut out_;
  host::Streams streams_;
  host::Doors doors_;
  host::Icmp icmp_;
  host::Fragments fragments_;
  std::uint64_t network_version_ = 0;
  Instant pressed_looked_at_ = kNever;
  std::uint32_t ended_untold_ = 0;  // streams, for their buffers
  tcp::RateLimit ended_tells_{1, seconds(10)};
  Instant link_looked_at_ = kNever;
  bool frame_to_all_ = false;  // the frame in hand came by a link multicast
  bool frame_looped_ = false;  // and from ourselves
  // QPs that have a stream. Looked at by doorbells.
  std::unordered_map<const qp::QueuePair*, Stream*> bound_;
  // QPs without a stream whose doorbell rang: they flush what was posted too late, so many in a turn.
  static constexpr unsigned kLooseTurnMax = 32;
  List<qp::QueuePair, qp::LooseTag> loose_;

  std::vector<StreamEvent> queued_events_, delivering_;

};

}  // namespace rnic::core
