// The life of one DPDK device: made or found, configured with as many queues each way as it is given pools, started,
// stopped, closed. What is sent and received by it is port/dpdk_port's.
//
// Configured by one thread; while it is at work, what is const may be asked by any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "port/dpdk_offloads.hpp"
#include "port/dpdk_pool.hpp"
#include "wire/address.hpp"

namespace rnic::port {

class Ethdev {
 public:
  struct Wishes {
    std::uint16_t descriptors = 1024;
    bool receive_interrupts = false;
    bool checksums = false;       // in hardware, both ways, if it can
    bool runs = false;            // of segments, both ways, if it can; and checksums then
    std::uint16_t mtu_bytes = 0;  // 0: leave what it is
    unsigned shards = 1;          // among whom the device is divided: at least as many as there are queues
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
  // Where a receive interrupt is told; -1: nowhere.
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
  unsigned hashed_queues_ = 0;  // among which its table of hashes divides; 0: it has none
};

// Numbers the devices of this process: net_tap_rnic0, ...
std::string fresh_device_name(const std::string& driver);

}  // namespace rnic::port
