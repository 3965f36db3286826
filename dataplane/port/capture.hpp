// The worker's end of a capture's ring (abi/rnic_capture.h).
//
// Made and destroyed by control, while no device has it; written by one worker.
#pragma once

#include <cstdint>

#include "port/tap.hpp"
#include "rnic_capture.h"

namespace rnic::port {

class CaptureRing final : public Tap {
 public:
  // `memory`: RNIC_CAPTURE_DATA + `size` octets, zero, shared with the reader; valid as long as this.
  // `size` is a power of two.
  CaptureRing(void* memory, std::uint32_t size);

  // Copies the frame with the time of now, or counts it as dropped.
  void on_frame(FrameDirection direction, Bytes frame) override;

 private:
  void put(Bytes octets);

  rnic_capture_ring& shared_;
  std::byte* data_;
  std::uint32_t size_;
  std::uint64_t produced_ = 0;  // our own: what is shared is never read back
  std::uint64_t frames_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace rnic::port
