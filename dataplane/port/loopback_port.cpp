#include "port/loopback_port.hpp"

#include <sys/random.h>

#include <random>

#include "port/segment_runs.hpp"
#include "wire/vlan.hpp"

namespace rnic::port {

// Longer frames than usual have most of what runs would gain, and larger pools.
std::uint32_t run_bytes_in_memory(std::uint32_t mtu_bytes) {
  return mtu_bytes != 0 && mtu_bytes <= kMtuWireDefault ? kRunBytesMax : 0;
}

PoolSize pool_size_in_memory(std::uint32_t buffers, std::uint32_t mtu_bytes) {
  const std::uint32_t run_bytes = run_bytes_in_memory(mtu_bytes);
  return run_bytes == 0
             ? pool_size_for(buffers, mtu_bytes + wire::kLinkHeaderMax)
             : pool_size_for_runs(buffers, mtu_bytes + wire::kLinkHeaderMax, run_bytes + wire::kLinkHeaderMax);
}

wire::Mac random_mac() {
  wire::Mac mac;
  if (getrandom(mac.octets.data(), mac.octets.size(), 0) != static_cast<ssize_t>(mac.octets.size())) {
    std::random_device chance;
    for (auto& octet : mac.octets) octet = static_cast<std::uint8_t>(chance());
  }
  mac.octets[0] = 0x02;
  return mac;
}

LoopbackPort::LoopbackPort(const PortOptions& options)
    : facts_{.kind = "loopback",
             .name = "loopback",
             .mac = options.mac ? *options.mac : random_mac(),
             .mtu_bytes = options.mtu_bytes != 0 ? options.mtu_bytes : kMtuMemoryDefault,
             .verifies_checksums = true,
             .fills_checksums = true,
             .run_bytes = run_bytes_in_memory(options.mtu_bytes),
             .speed_mbps = 100'000,
             .netdev = {},
             .needs_wake = false},
      pool_(pool_size_in_memory(options.buffers, facts_.mtu_bytes)) {}

unsigned LoopbackPort::send_burst(Buffer* const* frames, unsigned count) {
  for (unsigned i = 0; i < count; ++i) BufferRef dropped(frames[i]);
  return count;
}

}  // namespace rnic::port
