// A capture that runs: a ring for each of its devices, and the taps that fill them. It ends with
// this.
//
// Owned by the control thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "control/machine.hpp"
#include "port/capture.hpp"

namespace rnic::control {

// A power of two. Memory is taken only as it is written to.
inline constexpr std::uint32_t kCaptureRingBytes = 32u << 20;
inline constexpr std::uint32_t kCapturesMax = 8;

class Capture {
 public:
  // Of these devices. An error is an errno.
  static Result<std::unique_ptr<Capture>, int> start(std::vector<ServedDevice*> devices);
  ~Capture();

  // Of the rings, in the order of the devices.
  std::vector<int> descriptors() const;

  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  Capture() = default;
  // A shard's tap. The ring is written by one at a time; what every shard gets the first has seen.
  class ShardTap;
  struct Part {
    ServedDevice* device = nullptr;
    int fd = -1;
    void* memory = nullptr;
    std::unique_ptr<port::CaptureRing> ring;
    std::unique_ptr<std::mutex> writes;  // where there are several shards
    std::vector<std::unique_ptr<ShardTap>> taps;
    void on_taps(const std::function<void(core::Device& shard, port::Tap& tap)>& task);
  };
  std::vector<Part> parts_;
};

}  // namespace rnic::control
