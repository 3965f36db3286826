// A port over a receive and a transmit queue of a DPDK ethdev: af_xdp, tap, pci, vdev. memif needs more and is in
// port/dpdk_memif. A device of several workers has a queue each way for each of them (port/steered_ports), as far as it
// has so many and buffers suffice. Which frame comes to which queue is the device's affair: pci, and what else divides
// by a hash, is told to divide as we do (wire/rss.hpp); a tap remembers by which queue a flow was sent; an interface
// under af_xdp divides as it does.
//
// Frames are mbufs of the port's own pool (port/dpdk_pool). Checksums and the cutting of runs are the device's where it
// can, of pci and vdev (port/dpdk_offloads); elsewhere they are done above.
//
// How it wakes a sleeping worker:
//   af_xdp          the driver's own socket: poll() on it looks at the ring, so it is readable as long as frames wait,
//                   and nothing is to be armed
//   tap, pci, vdev  receive interrupts, where the driver has them
//
// Each queue is owned by one worker, but for link_up() and facts().
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "port/dpdk_offloads.hpp"
#include "port/dpdk_pool.hpp"
#include "port/dpdk_vhost.hpp"
#include "port/options.hpp"
#include "port/port.hpp"
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

// An ethdev that is ours. As many queues each way as it is given pools.
class Ethdev {
 public:
  struct Wishes {
    std::uint16_t descriptors = 1024;
    bool receive_interrupts = false;
    bool checksums = false;       // in hardware, both ways, if it can
    bool runs = false;            // of segments, both ways, if it can; and checksums then
    std::uint16_t mtu_bytes = 0;  // 0: leave what it is
    unsigned shards = 1;          // among whom the device is divided: at least as many as there are queues
    int socket_family = 0;        // the driver makes a socket of it for each queue, which is readable as frames wait
  };

  Ethdev() = default;
  ~Ethdev();
  Ethdev(const Ethdev&) = delete;
  Ethdev& operator=(const Ethdev&) = delete;

  // A virtual device made now, or a PCI device that DPDK found at its start.
  bool make_virtual(const std::string& name, const std::string& arguments, std::string& error);
  bool find(const std::string& name, std::string& error);
  // Behind a buffer's headroom, that it needs for Wishes::runs: octets. 0: it can neither send nor receive them.
  std::uint32_t run_room_bytes() const;
  // How many there can be each way, at least 1.
  unsigned queues_max() const;
  // Queue i receives into pools[i]. Again, with other wishes, where start() has failed.
  bool configure(const Wishes& wishes, std::span<const std::unique_ptr<DpdkPool>> pools, std::string& error);
  bool start(std::string& error);
  void stop();

  std::uint16_t id() const { return id_; }
  bool started() const { return started_; }
  // What is readable as frames wait, or where a receive interrupt is told; -1: nothing is.
  int wake_descriptor(std::uint16_t queue) const;
  bool has_receive_interrupts() const { return receive_interrupts_; }
  bool wake_stays_readable() const { return wake_stays_readable_; }  // DriverHabits
  std::string driver() const;
  const Offloads& offloads() const { return offloads_; }
  wire::Mac mac() const;
  bool link_up() const;
  std::uint32_t speed_mbps() const;
  // The driver cannot be taken down safely while the process lives on.
  void never_close() { close_ = false; }

 private:
  void divide_as_we_do() const;

  std::string virtual_name_;  // empty for PCI
  std::uint16_t id_ = 0xffff;
  bool present_ = false;
  bool started_ = false;
  bool close_ = true;
  bool receive_interrupts_ = false;
  bool wake_stays_readable_ = false;
  Offloads offloads_;
  unsigned queues_ = 0;
  unsigned shards_ = 1;
  unsigned hashed_queues_ = 0;       // among which its table of hashes divides; 0: it has none
  std::vector<int> queues_sockets_;  // of Wishes::socket_family; -1: not known
};

// What the queues of one device have in common. While they are at work nothing of it changes but who the guest is.
struct DpdkDevice {
  DpdkDevice() = default;
  ~DpdkDevice();
  DpdkDevice(const DpdkDevice&) = delete;
  DpdkDevice& operator=(const DpdkDevice&) = delete;

  std::vector<std::unique_ptr<DpdkPool>> pools;  // each queue's; they go after the ethdev that sends from them
  Ethdev ethdev;
  std::unique_ptr<VhostGuest> guest;  // of net_vhost
  int groups = -1;                    // open for as long as the interface is to hear all multicast
  int kernel_interface = 0;           // the index of the one whose link is ours; 0: none
  std::mutex interrupts;              // drivers have one register for those of all queues: held while one is switched
};

class DpdkPort : public Port {
 public:
  // Any kind but loopback, pair, memif and af_packet: for `shards` workers as many queues, or fewer. Of one shard one.
  // Empty: the sentence says why.
  static std::vector<std::unique_ptr<Port>> open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned shards, std::string& error);
  ~DpdkPort() override;

  struct Recipe;  // how a kind is made: of dpdk_port.cpp alone

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override;
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return lost_; }
  int wake_descriptor() override { return wake_; }
  bool arm() override;
  void disarm() override;

 protected:
  static constexpr unsigned kBurst = 64;
  static constexpr unsigned kCutAtOnce = 8;

  // The device has a pool for it already.
  DpdkPort(std::shared_ptr<DpdkDevice> device, std::uint16_t queue);
  static bool open_device(const PortSpec& spec, const PortOptions& options, Recipe& recipe, PortFacts& facts,
                          std::vector<std::unique_ptr<Port>>& ports, std::string& error);
  void listen();
  bool send_cut(Buffer* run);
  unsigned receive_now(Buffer** out, unsigned max);
  unsigned send_now(Buffer* const* frames, unsigned count);
  // Looks for frames and keeps what it finds for the next receive_burst().
  bool frames_wait();

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
  std::uint64_t lost_ = 0;  // there was no buffer that holds it, or the driver refuses it
};

// Numbers the devices of this process: net_tap_rnic0, ...
std::string fresh_device_name(const std::string& driver);

}  // namespace rnic::port
