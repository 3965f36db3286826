#include "control/capture.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "port/steering.hpp"
#include "shm/sealed_memory.hpp"

namespace rnic::control {
namespace {
constexpr std::uint64_t kMemoryBytes = std::uint64_t{RNIC_CAPTURE_DATA} + kCaptureRingBytes;
}

class Capture::ShardTap final : public port::Tap {
 public:
  ShardTap(port::CaptureRing& ring, std::mutex& writes, unsigned shard, unsigned shards)
      : ring_(ring), writes_(writes), shard_(shard), shards_(shards) {}

  void on_frame(port::FrameDirection direction, Bytes frame) override {
    if (shard_ != 0 && direction == port::FrameDirection::received && port::steer(frame, shards_).to_all) return;
    const std::lock_guard lock(writes_);
    ring_.on_frame(direction, frame);
  }

 private:
  port::CaptureRing& ring_;
  std::mutex& writes_;
  unsigned shard_, shards_;
};

Result<std::unique_ptr<Capture>, int> Capture::start(std::vector<ServedDevice*> devices) {
  std::unique_ptr<Capture> capture(new Capture);
  for (ServedDevice* device : devices) {
    auto memory = shm::sealed_memory("rnic-capture", kMemoryBytes);
    if (!memory) return Failure{memory.error()};
    Part part{device,
              memory->fd,
              memory->base,
              std::make_unique<port::CaptureRing>(memory->base, kCaptureRingBytes),
              std::make_unique<std::mutex>(),
              {}};
    const auto shards = static_cast<unsigned>(device->shards.size());
    for (unsigned i = 0; shards > 1 && i < shards; ++i)
      part.taps.push_back(std::make_unique<ShardTap>(*part.ring, *part.writes, i, shards));
    capture->parts_.push_back(std::move(part));
  }
  for (Part& part : capture->parts_) part.on_taps([](core::Device& shard, port::Tap& tap) { shard.add_tap(tap); });
  return capture;
}

void Capture::Part::on_taps(const std::function<void(core::Device&, port::Tap&)>& task) {
  std::size_t next = 0;
  device->on_each([&](Shard& shard, Instant) {
    task(*shard.device, taps.empty() ? static_cast<port::Tap&>(*ring) : static_cast<port::Tap&>(*taps[next++]));
  });
}

// What was never added is removed without harm.
Capture::~Capture() {
  for (Part& part : parts_) {
    part.on_taps([](core::Device& shard, port::Tap& tap) { shard.remove_tap(tap); });
    munmap(part.memory, kMemoryBytes);
    close(part.fd);
  }
}

std::vector<int> Capture::descriptors() const {
  std::vector<int> all;
  for (const Part& part : parts_) all.push_back(part.fd);
  return all;
}

}  // namespace rnic::control
