// Who is at the other end of a net_vhost port, and whether he takes runs of TCP segments as they are (virtio 1.2
// s5.1.3.1, guest offloads). DPDK's driver hands runs over as whoever cuts is asked to, but does not say so, nor asks
// whether the guest has agreed to it: that is known here alone.
//
// Guests come and go, each with features of its own. Told by vhost's thread; asked by the port's worker.
#pragma once

#include <rte_ethdev.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace rnic::port {

class VhostGuest {
 public:
  // To be made before the device is configured, and gone before it is closed. `ethdev` is its number; `arguments` are
  // those of its driver, which name the socket (iface=). Null: they name none.
  static std::unique_ptr<VhostGuest> follow(std::uint16_t ethdev, const std::string& arguments);
  ~VhostGuest();
  VhostGuest(const VhostGuest&) = delete;
  VhostGuest& operator=(const VhostGuest&) = delete;

  // The guest that is there. False: there is none, or it is not known yet.
  bool takes_runs() const { return takes_runs_.load(std::memory_order_relaxed); }

 private:
  VhostGuest(std::uint16_t ethdev, std::string socket);
  static int on_link(std::uint16_t ethdev, rte_eth_event_type, void* guest, void*);

  std::uint16_t ethdev_;
  std::string socket_;
  std::atomic<bool> takes_runs_{false};
};

}  // namespace rnic::port
