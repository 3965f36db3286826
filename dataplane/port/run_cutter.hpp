// The frames that a run of TCP segments (Buffer::unit_bytes) is on a wire: as a NIC or the kernel cuts it. For what has
// neither: a capture, and the simulator's wire.
//
// Pure.
#pragma once

#include <cstdint>

#include "base/buffer.hpp"
#include "base/bytes.hpp"

namespace rnic::port {

class RunCutter {
 public:
  // `run` is a frame of ours, without a VLAN tag; it is not changed, and outlives this.
  explicit RunCutter(const Buffer& run);

  std::uint32_t count() const { return count_; }
  std::uint32_t frame_bytes_max() const { return headers_bytes_ + unit_bytes_; }
  // Writes the frame of that number to the first octets of `room`, which has frame_bytes_max(), its checksums filled;
  // returns how many they are.
  std::uint32_t write(std::uint32_t number, MutableBytes room) const;

 private:
  Bytes run_;
  std::uint32_t headers_bytes_;
  std::uint32_t unit_bytes_;
  std::uint32_t count_;
};

}  // namespace rnic::port
