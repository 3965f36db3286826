// The interface by which a capture is shown a device's frames as they come and go. A device without one pays a branch.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace rnic::port {

enum class FrameDirection : std::uint8_t { received, sent };

// Owned by whoever captures; in a device's list between Device::add_tap() and remove_tap(). Called on
// the device's worker: returns at once, whatever becomes of the frame.
class Tap {
 public:
  virtual void on_frame(FrameDirection direction, Bytes frame) = 0;

  Tap* next = nullptr;  // the device's

 protected:
  ~Tap() = default;
};

}  // namespace rnic::port
