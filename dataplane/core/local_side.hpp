// An end of a stream both of whose ends are this worker's, as qp/local_path.hpp sees it.
#pragma once

#include "host/host.hpp"
#include "qp/local_path.hpp"

namespace rnic::core {

class StreamSide final : public qp::LocalSide {
 public:
  // `there`: the other end's host.
  StreamSide(host::Host& host, host::Stream& stream, host::Host& there) : host_(host), stream_(stream), there_(there) {}
  // A capture is to see every message that begins while it is attached.
  bool is_allowed() const override { return !host_.is_tapped() && !there_.is_tapped(); }
  void activate() override { host_.activate(stream_); }
  void count(std::uint32_t octets) override {
    host_.count_direct_out(octets);
    there_.count_direct_in(octets);
  }

 private:
  host::Host& host_;
  host::Stream& stream_;
  host::Host& there_;
};

}  // namespace rnic::core
