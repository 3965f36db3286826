// A user of a host's streams that has nothing above TCP: connections as TCP has them, for tests of our TCP/IP against
// itself and against others'.
//
// Owned by one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "host/host.hpp"

namespace rnic::test {

// Who has the connections.
class PlainStreams {
 public:
  // The handshake is over. A stream of call() has the id that it returned.
  virtual void on_open(host::StreamId stream, const host::Flow& flow) = 0;
  // Frames have come, or wake() was called: consume, append, close or abort. True: again soon.
  virtual bool on_turn(host::StreamId stream, tcp::Connection& tcp, Instant now) = 0;
  // Once, whether it was ever open or not: closed by both, or `tcp.ended()` says how.
  virtual void on_end(host::StreamId stream, const tcp::Connection& tcp) = 0;

 protected:
  ~PlainStreams() = default;
};

class PlainHost final : public host::StreamUser {
 public:
  PlainHost(const host::Options& options, port::Port& port, PlainStreams& streams)
      : streams_(streams), host_(options, port, *this) {}

  bool listen(std::uint16_t port, std::uint32_t backlog = 0) { return !host_.listen({}, port, backlog, 0, false); }
  Result<host::StreamId, host::StreamError> call(const host::Call& call, Instant now);
  // Gives it a turn.
  void wake(host::StreamId stream);

  bool turn(Instant now);
  Instant next_deadline() const { return host_.next_deadline(); }
  bool idle() const { return host_.idle(); }

  const host::Counters& counters() const { return host_.counters(); }
  std::size_t stream_count() const { return host_.stream_count(); }
  std::size_t half_open_count() const { return host_.half_open_count(); }
  BufferPool& data_pool() { return host_.data_pool(); }
  void set_link_mtu(std::uint32_t mtu_bytes) { host_.set_link_mtu(mtu_bytes); }
  std::uint32_t mss_bytes(host::StreamId stream) { return host_.find(stream)->tcp.emss(); }

 private:
  struct Stream final : host::Stream {
    using host::Stream::Stream;
    bool again_soon = false;
    bool told_end = false;
  };

  void take_input(Stream& stream, Instant now);
  void serve(Stream& stream, Instant now);
  void end(Stream& stream);
  Stream* first() { return static_cast<Stream*>(host_.active().front()); }
  Stream* after(Stream& stream) { return static_cast<Stream*>(host_.active().after(stream)); }

  std::unique_ptr<host::Stream> make_stream(const tcp::Options& options, const host::Flow& flow) override {
    return std::make_unique<Stream>(options, flow);
  }
  void on_admitted(host::Stream&) override {}  // nobody asks
  void on_lost(host::Stream& stream, Loss loss, Instant now) override;
  void on_unreachable(host::Stream& stream, Instant now) override { on_must_end(stream, now); }
  void on_must_end(host::Stream& stream, Instant now) override;
  void on_deadline(host::Stream&, Instant) override {}
  void on_network_change() override {}
  void on_ended_for_buffers(std::uint32_t) override {}
  BufferCount held_by(const host::Stream& stream) const override { return stream.tcp.queued(); }

  PlainStreams& streams_;
  host::Host host_;
};

}  // namespace rnic::test
