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

 protected:
  ~StreamUser() = default;
};

}  // namespace rnic::host
