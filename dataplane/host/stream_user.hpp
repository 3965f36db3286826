// Who uses the streams of a host. None of this is called for a frame or a segment: what a stream has to do its user
// sees by walking over those that are active.
#pragma once

#include <memory>

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

 protected:
  ~StreamUser() = default;
};

}  // namespace rnic::host
