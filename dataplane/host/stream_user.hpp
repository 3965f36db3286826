// Who uses the streams of a host. None of this is called for a frame or a segment: what a stream has to do its user
// sees by walking over those that are active (host/host.hpp).
#pragma once

#include <memory>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "host/stream.hpp"

namespace rnic::host {

class StreamUser {
 public:
  // A stream of the user's own kind.
  virtual std::unique_ptr<Stream> make_stream(const tcp::Options& options, const Flow& flow) = 0;
  // One of a listener's, which has asked, has its place in the backlog now.
  virtual void on_admitted(Stream& stream) = 0;
  // The connection of one that has not asked yet, or waits in line, was reset: others want its place, or its listener
  // was closed.
  enum class Loss : std::uint8_t { place, listener };
  virtual void on_lost(Stream& stream, Loss loss, Instant now) = 0;
  // A call of ours finds no way: the user gives it up.
  virtual void on_unreachable(Stream& stream, Instant now) = 0;
  // The user ends it, by a RST: its address is not ours any more, or it holds too much.
  virtual void on_must_end(Stream& stream, Instant now) = 0;
  // Stream::deadline is there.
  virtual void on_deadline(Stream& stream, Instant now) = 0;
  // Addresses or routes have changed.
  virtual void on_network_change() = 0;
  // So many were ended for the buffers that they held since this was last told: every ten seconds at most.
  virtual void on_ended_for_buffers(std::uint32_t streams) = 0;
  // Buffers that a stream holds of what it sends.
  virtual BufferCount held_by(const Stream& stream) const = 0;

 protected:
  ~StreamUser() = default;
};

}  // namespace rnic::host
