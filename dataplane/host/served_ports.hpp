// How many connections a device's users serve at each of its ports, only those that others made to us. Its shards
// count here together, as a server's next caller may come to another shard than those whom it serves.
//
// For all threads: counted when a connection begins or ends to be served, and asked for SYNs to a port that nobody
// listens at. The answer says only whether such a SYN is refused or not answered, so nothing need be ordered by it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace rnic::host {

class ServedPorts {
 public:
  void add(std::uint16_t port) { count_of(port).fetch_add(1, std::memory_order_relaxed); }
  void remove(std::uint16_t port) { count_of(port).fetch_sub(1, std::memory_order_relaxed); }
  // Also true where only another port with the same count is served.
  bool has(std::uint16_t port) const { return counts_[port % kPlaces].load(std::memory_order_relaxed) != 0; }

 private:
  static constexpr std::size_t kPlaces = 4096;  // a count for 16 ports each

  std::atomic<std::uint32_t>& count_of(std::uint16_t port) { return counts_[port % kPlaces]; }

  std::array<std::atomic<std::uint32_t>, kPlaces> counts_{};
};

}  // namespace rnic::host
