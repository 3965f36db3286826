// DPDK's environment layer (EAL), once per process. A plain C++ interface: no rte header here.
//
// It runs for an ordinary user, without huge pages, with no shared files in /var/run or $HOME (so
// that any number of daemons live side by side), no telemetry thread, and no core of its own. What
// stays is one helper thread, EAL's interrupt thread, which sleeps until a driver's descriptor
// says something.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rnic::port {

struct DpdkOptions {
  // DPDK is told of PCI devices when it starts, never later.
  std::vector<std::string> pci_addresses;
  // For what is not in our own pools: rings, driver data, and whole pools of pci: and vdev: ports.
  std::uint32_t memory_mib = 64;
  // Gets each line that DPDK says (errors only), from any thread. May be empty.
  std::function<void(const std::string& line)> log;
};

// Starts it, if it is not started. False: the sentence says why. The calling thread keeps the cores
// that it may run on.
bool start_dpdk(const DpdkOptions& options, std::string& error);
bool dpdk_started();

// To be called once by each worker thread before it polls a DPDK port: gives it a cache of buffers
// of its own in each pool. Does nothing where DPDK is not started.
void dpdk_register_thread();

// The first thing that DPDK complained of since the last call; empty if nothing.
std::string dpdk_complaint();

}  // namespace rnic::port
