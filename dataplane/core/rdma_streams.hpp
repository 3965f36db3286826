// The RDMA streams of a device: the user of a host's streams who runs the MPA startup on each, gives it to a queue
// pair, and takes it back when that is over. The phases of one are drawn in core/stream.hpp.
//
//   connect(), or a SYN to a listener  ->  startup (core/startup.hpp)  ->  attach  ->  review() in each turn  -> orphan
//
// Before changing this, read wire.md s1.1, s1.2 and verbs.md s2.4, s2.11.
//
// Pure. Owned by one worker.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "core/connection.hpp"
#include "core/device_options.hpp"
#include "core/stream.hpp"
#include "core/stream_news.hpp"
#include "host/host.hpp"

namespace rnic::core {

class RdmaStreams final : public host::StreamUser {
 public:
  // `host` may be made after this: it is used by none of its user's functions before it has streams.
  RdmaStreams(const DeviceOptions& options, host::Host& host, StreamNews& news)
      : options_(options), host_(host), news_(news) {}

  // What is at the other end of the device's pair, of the same worker and as long as this.
  void set_mate(RdmaStreams& mate) { mate_ = &mate; }

  static Stream& own(host::Stream& stream) { return static_cast<Stream&>(stream); }
  static Stream* own(host::Stream* stream) { return static_cast<Stream*>(stream); }
  // The queue pair's, if it has one.
  static Stream* of(const qp::QueuePair& qp) { return static_cast<Stream*>(qp.bound_to); }
  // And one that it has not let go of.
  bool has_stream(const qp::QueuePair& qp) const {
    const Stream* stream = of(qp);
    return stream != nullptr && (!stream->attached() || qp.attached());
  }

  // ---- connection commands (core/device.hpp) ----
  Result<StreamId, StreamError> connect(const ConnectOptions& options, qp::QueuePair& qp, Instant now);
  Result<Done, StreamError> accept(StreamId id, const AcceptOptions& options, qp::QueuePair& qp, Instant now);
  // A connection that no queue pair ever has. Of rdma_cm between RoCE faces: its two startup frames greet, the caller
  // confirms when its application has heard the answer, and the FIN of either ends it for both. Inquiries and probes
  // (docs/wire.md s8) are such calls, too, whose answer is always a rejection.
  Result<StreamId, StreamError> greet(const ConnectOptions& options, Instant now);
  Result<Done, StreamError> welcome(StreamId id, const AcceptOptions& options, Instant now);
  Result<Done, StreamError> confirm(StreamId id, Instant now);
  Result<Done, StreamError> reject(StreamId id, const PrivateData& private_data, Instant now);
  void disconnect(StreamId id, Disconnect how, Instant now);
  // A call whose peer is known to be there by now does not wait for the next of its SYNs.
  void renew_call(StreamId id, Instant now);
  void release(qp::QueuePair& qp, Instant now);

  // ---- streams in streaming mode (core/streaming.cpp); disconnect() ends them, too ----
  // What a stream has of its application's octets, and of the peer's, is TCP's: as much as its window, and of what is
  // said kSaidMax. None of these wait.
  static constexpr std::size_t kSaidMax = 65536;
  // A call. Told: established, later ready; or failed. The cookie is a streaming one, as in claim().
  Result<StreamId, StreamError> open(const ConnectOptions& options, Instant now);
  // One that a listener's connect_request told of: from now on the caller's, by that cookie.
  Result<Done, StreamError> claim(StreamId id, std::uint64_t cookie);
  // How many octets were taken. Fewer than all: ready is told when there is room.
  Result<std::size_t, StreamError> say(StreamId id, Bytes octets, Instant now);
  // None, and not the end: ready is told when there is something.
  Result<Heard, StreamError> hear(StreamId id, MutableBytes room);
  // Idle -> RTS (V-CONN-04): the queue pair has the connection, with all that the peer has said since hear() was last
  // called. wrong_state: the queue pair is not in Idle; unknown: the stream is not Established (V-CONN-01);
  // no_resources: there are no buffers for the last message. Nothing has happened then, but that a stream whose path
  // can hardly take anything may have ended.
  Result<Done, StreamError> begin_iwarp(StreamId id, const IwarpOptions& options, qp::QueuePair& qp, Instant now);

  bool kill(StreamId id, Instant now);

  // ---- an active stream in its turn ----
  void take_input(Stream& stream, Instant now);
  // What the steps before have changed.
  void review(Stream& stream);
  // Its queue pair has let go of it: an orphan.
  void end_if_detached(Stream& stream, Instant now) {
    if (stream.attached() && !stream.qp->attached()) abandon(stream, now);
  }
  // The device goes: no queue pair has a connection any more.
  void detach_all();

 private:
  // ---- host::StreamUser ----
  std::unique_ptr<host::Stream> make_stream(const tcp::Options& options, const host::Flow& flow) override {
    return std::make_unique<Stream>(options, flow);
  }
  void on_admitted(host::Stream& stream) override { news_.tell_request(own(stream)); }
  void on_lost(host::Stream& stream, Loss loss, Instant now) override;
  void on_unreachable(host::Stream& stream, Instant now) override;
  void on_must_end(host::Stream& stream, Instant now) override { (void)kill(stream.id(), now); }
  void on_deadline(host::Stream& stream, Instant now) override;
  void on_network_change() override { news_.tell_network_change(); }
  void on_ended_for_buffers(std::uint32_t streams) override { news_.tell_ended_for_buffers(streams); }
  BufferCount held_by(const host::Stream& stream) const override {
    return static_cast<const Stream&>(stream).held_to_send();
  }

  Stream* find(StreamId id) { return own(host_.find(id)); }
  bool may_have_stream(qp::QueuePair& qp, Instant now);
  void bind(qp::QueuePair& qp, Stream& stream);
  void unbind(Stream& stream);

  // ---- startup ----
  bool send_octets(Stream& stream, Bytes octets);
  void begin_startup(Stream& stream, Instant now);
  void feed_startup(Stream& stream, Instant now);
  void on_request(Stream& stream, Instant now);
  void on_accepted(Stream& stream, Instant now);
  void on_rejected(Stream& stream, Instant now);
  void on_startup_failed(Stream& stream, Instant now);
  bool call_without_markers(Stream& stream, Instant now);
  void check_connection_lost(Stream& stream, Instant now);
  void end_rejected(Stream& stream, Instant now);

  // ---- of a greeting ----
  Result<Stream*, StreamError> call(const ConnectOptions& options, Instant now);
  Result<Stream*, StreamError> answered(StreamId id, const AcceptOptions& options, Instant now);
  void on_greeted(Stream& stream, Instant now);
  void take_confirmation(Stream& stream, Instant now);
  bool hear_confirmation(Stream& stream);
  void end_held(Stream& stream, Instant now);

  // ---- in streaming mode ----
  Stream* find_streaming(StreamId id);
  std::size_t room_to_say(const Stream& stream) const;
  BufferRef take_said(Stream& stream, Bytes& octets);
  void begin_streaming(Stream& stream, Instant now);
  void look_at_streaming(Stream& stream, Instant now);
  void end_streaming(Stream& stream, Disconnect how, Instant now);
  void on_streaming_deadline(Stream& stream, Instant now);

  void attach(Stream& stream, qp::Start start, Instant now);
  void join_itself(Stream& stream, Instant now);
  // core/local_peers.cpp.
  void join_local_peer(Stream& stream, const qp::Start& start);
  // The QP is gone, or was never there: an orphan.
  void abandon(Stream& stream, Instant now, host::Host::Fin fin = host::Host::Fin::at_once);
  // By a RST.
  void abort(Stream& stream, Instant now);

  const DeviceOptions& options_;
  host::Host& host_;
  StreamNews& news_;
  RdmaStreams* mate_ = nullptr;
};

}  // namespace rnic::core
