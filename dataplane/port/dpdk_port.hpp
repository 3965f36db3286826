// A port over a receive and a transmit queue of a DPDK ethdev: tap, pci, vdev. memif needs more and is in
// port/dpdk_memif. A device of several workers has a queue each way for each of them (port/steered_ports), as far as it
// has so many and buffers suffice. Which frame comes to which queue is the device's affair: pci, and what else divides
// by a hash, is told to divide as we do (wire/rss.hpp); a tap remembers by which queue a flow was sent.
//
// Frames are mbufs of the port's own pool (port/dpdk_pool). Checksums and the cutting of runs are the device's where it
// can, of pci and vdev (port/dpdk_offloads); elsewhere they are done above.
//
// It wakes a sleeping worker by receive interrupts, where the driver has them; a tap's signals come to the worker
// besides.
//
// Each queue is owned by one worker, but for link_up() and facts().
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "port/dpdk_ethdev.hpp"
#include "port/dpdk_pool.hpp"
#include "port/dpdk_vhost.hpp"
#include "port/options.hpp"
#include "port/port.hpp"
#include "port/silent_descriptor.hpp"
#include "port/spec.hpp"

namespace rnic::port {

// Large buffers of a port that sends or receives runs: so many octets in all, and no more than kDpdkLargeMax.
inline constexpr std::uint64_t kDpdkLargeBytes = std::uint64_t{64} << 20;
inline constexpr std::uint32_t kDpdkLargeMax = 2048;

// Behind kHeadroom, what a small buffer of a port with runs has, in octets: a frame, and the headroom that who takes
// one for a segment asks for besides. 0: it would count as large, so there are no runs with such an MTU.
constexpr std::uint32_t small_room_with_runs(std::uint32_t mtu_bytes) {
  constexpr std::uint32_t kLinkHeader = 18, kDriversMin = 2048, kStep = 64;
  const std::uint32_t room = (std::max(mtu_bytes + kLinkHeader + kHeadroom, kDriversMin) + kStep - 1) / kStep * kStep;
  return room <= 2 * kSmallRoom ? room : 0;
}

// What the queues of one device have in common. While they are at work nothing of it changes but who the guest is.
struct DpdkDevice {
  std::vector<std::unique_ptr<DpdkPool>> pools;  // each queue's; they go after the ethdev that sends from them
  Ethdev ethdev;
  std::unique_ptr<VhostGuest> guest;  // of net_vhost
  std::mutex interrupts;              // drivers have one register for those of all queues: held while one is switched
};

class DpdkPort : public Port {
 public:
  // tap, pci or vdev: for `shards` workers as many queues, or fewer. Of one shard one.
  // Empty: the sentence says why.
  static std::vector<std::unique_ptr<Port>> open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned shards, std::string& error);
  ~DpdkPort() override;

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return device_.link_up(); }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return lost_; }
  int wake_descriptor() override { return wake_; }
  bool arm() override;
  void disarm() override;
  void tend() override;

 protected:
  static constexpr unsigned kBurst = 64;
  static constexpr unsigned kCutAtOnce = 8;

  // The device has a pool for it already.
  DpdkPort(std::shared_ptr<DpdkDevice> device, std::uint16_t queue);
  void listen();
  bool send_cut(Buffer* run);
  unsigned receive_now(Buffer** out, unsigned max);
  unsigned send_now(Buffer* const* frames, unsigned count);
  // Looks for frames and keeps what it finds for the next receive_burst().
  bool frames_wait();
  void take_signals();

  PortFacts facts_;
  const std::shared_ptr<DpdkDevice> shared_;
  Ethdev& device_;  // of it, as the pool
  DpdkPool& pool_;
  const std::uint16_t queue_;
  BufferRef cutting_;            // a run of which not all segments found room
  std::uint32_t cut_of_it_ = 0;  // segments that did
  std::array<Buffer*, kBurst> stash_{};
  unsigned stash_next_ = 0;
  unsigned stash_count_ = 0;
  int wake_ = -1;
  int edges_ = -1;  // where the driver's descriptor does not become silent again: an epoll of ours for its edges
  bool interrupts_armed_ = false;
  bool wakes_by_signals_ = false;  // a tap: besides the descriptor
  std::optional<SilentDescriptor> silent_;
  std::uint64_t signals_go_to_ = 0;  // the thread that has received last
  std::uint64_t lost_ = 0;           // there was no buffer that holds it, or the driver refuses it
};

}  // namespace rnic::port
