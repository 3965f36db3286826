#include "control/capture.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "shm/sealed_memory.hpp"

namespace rnic::control {
namespace {
constexpr std::uint64_t kMemoryBytes = std::uint64_t{RNIC_CAPTURE_DATA} + kCaptureRingBytes;
}

Result<std::unique_ptr<Capture>, int> Capture::start(std::vector<ServedDevice*> devices) {
  std::unique_ptr<Capture> capture(new Capture);
  for (ServedDevice* device : devices) {
    auto memory = shm::sealed_memory("rnic-capture", kMemoryBytes);
    if (!memory) return Failure{memory.error()};
    capture->parts_.push_back(
        {device, memory->fd, memory->base, std::make_unique<port::CaptureRing>(memory->base, kCaptureRingBytes)});
  }
  for (Part& part : capture->parts_)
    part.device->worker->call([&part](Instant) { part.device->device->add_tap(*part.ring); });
  return capture;
}

// What was never added is removed without harm.
Capture::~Capture() {
  for (Part& part : parts_) {
    part.device->worker->call([&part](Instant) { part.device->device->remove_tap(*part.ring); });
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
