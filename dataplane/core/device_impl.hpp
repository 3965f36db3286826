// The inside of core::Device: the user of a host's streams that runs MPA and queue pairs on them. Its sources:
// device.cpp (the turn, and what is told), device_streams.cpp (the life of a stream).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "core/device.hpp"
#include "core/stream.hpp"
#include "host/host.hpp"

namespace rnic::core {

struct Device::Impl final : host::StreamUser {
  Impl(const DeviceOptions& options, port::Port& port, StreamEvents& events);
  ~Impl();

  // ---- the turn (device.cpp) --------------------------------------------------------------
  bool receive(Instant now);
  bool settle(Instant now);
  bool transmit(Instant now);
  bool send(Instant now);
  bool run_timers(Instant now);
  void turn_loose();
  bool idle() const { return host_.idle() && loose_.empty() && queued_events_.empty(); }
  bool needs_turn(const Stream& stream, Instant now) const;
  void rest(Stream& stream, Instant now);
  BufferCount transmit_buffers_of(const Stream& stream) const {
    const std::uint32_t filling = stream.attached() ? stream.qp->filling() : 0;
    return stream.tcp.queued() + BufferCount{filling, filling};  // of which class they are is not looked at
  }

  // ---- the host's streams are ours --------------------------------------------------------
  static Stream& own(host::Stream& stream) { return static_cast<Stream&>(stream); }
  static Stream* own(host::Stream* stream) { return static_cast<Stream*>(stream); }
  Stream* find(StreamId id) { return own(host_.streams().find(id)); }
  Stream* first_active() { return own(host_.active().front()); }
  Stream* next_active(Stream& stream) { return own(host_.active().after(stream)); }
  Stream* stream_of(const qp::QueuePair& qp);
  void bind(qp::QueuePair& qp, Stream& stream);
  void unbind(Stream& stream);

  // ---- what the host tells (device_streams.cpp) -------------------------------------------
  std::unique_ptr<host::Stream> make_stream(const tcp::Options& options, const host::Flow& flow) override;
  void on_admitted(host::Stream& stream) override;
  void on_lost(host::Stream& stream, Loss loss, Instant now) override;
  void on_unreachable(host::Stream& stream, Instant now) override;
  void on_must_end(host::Stream& stream, Instant now) override { (void)kill(stream.id(), now); }
  void on_deadline(host::Stream& stream, Instant now) override;
  void on_network_change() override { events_.on_network_change(options_.index); }
  void on_ended_for_buffers(std::uint32_t streams) override { events_.on_ended_for_buffers(options_.index, streams); }
  BufferCount held_by(const host::Stream& stream) const override {
    return transmit_buffers_of(static_cast<const Stream&>(stream));
  }

  // ---- the life of a stream (device_streams.cpp) ------------------------------------------
  Result<StreamId, StreamError> connect(const ConnectOptions& options, qp::QueuePair& qp, Instant now);
  bool call_without_markers(Stream& stream, Instant now);
  void take_input(Stream& stream, Instant now);
  void begin_startup(Stream& stream, Instant now);
  void feed_startup(Stream& stream, Instant now);
  void on_accepted(Stream& stream, Instant now);
  void on_startup_failed(Stream& stream, Instant now);
  void attach(Stream& stream, const mpa::Negotiated& negotiated, Instant now);
  bool send_octets(Stream& stream, Bytes octets);
  void send_terminate(Stream& stream, const wire::TerminateCode& code, const mpa::Negotiated& framing);
  void review(Stream& stream);  // what the steps before have changed
  void check_connection_lost(Stream& stream, Instant now);
  Result<Done, StreamError> accept(StreamId id, const AcceptOptions& options, qp::QueuePair& qp, Instant now);
  Result<Done, StreamError> reject(StreamId id, const PrivateData& private_data, Instant now);
  void disconnect(StreamId id, Disconnect how, Instant now);
  void release(qp::QueuePair& qp, Instant now);
  bool kill(StreamId id, Instant now);
  // The QP is gone, or was never there: an orphan.
  void abandon(Stream& stream, Instant now, host::Host::Fin fin = host::Host::Fin::at_once);
  void end_rejected(Stream& stream, Instant now);

  // ---- events (device.cpp) ----------------------------------------------------------------
  StreamEvent& queue_event(StreamEvent::Kind kind, Stream& stream);
  void tell_established(Stream& stream);
  void tell_failed(Stream& stream, StreamFailure failure);
  void tell_disconnected(Stream& stream);
  void deliver_events();

  DeviceOptions options_;
  StreamEvents& events_;
  host::Host host_;
  std::unique_ptr<qp::Scratch> scratch_ = std::make_unique<qp::Scratch>();
  // QPs that have a stream. Looked at by doorbells.
  std::unordered_map<const qp::QueuePair*, Stream*> bound_;
  // QPs without a stream whose doorbell rang: they flush what was posted too late, so many in a turn.
  static constexpr unsigned kLooseTurnMax = 32;
  List<qp::QueuePair, qp::LooseTag> loose_;
  std::vector<StreamEvent> queued_events_, delivering_;
};

}  // namespace rnic::core
