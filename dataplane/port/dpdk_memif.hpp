// A memif port: shared-memory rings to another process, by DPDK's driver, with what that lacks:
//
// - a client whose server is not there yet, or comes back, connects by itself (the driver only tries
//   once, when it is started);
// - the driver's interrupt thread does not take the rings away under a burst (port/dpdk_gate);
// - two rnicd wake each other (port/wake_channel).
//
// The driver trusts what its peer writes into the rings: memif joins only processes that trust
// each other (architecture.md s8).
//
// Bursts, arm() and disarm() belong to one worker; on_round() to the gate's thread, which holds the
// port's lock then.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "port/dpdk_gate.hpp"
#include "port/dpdk_port.hpp"
#include "port/wake_channel.hpp"

namespace rnic::port {

class MemifPort final : public DpdkPort, private Gated {
 public:
  static std::unique_ptr<MemifPort> open(const PortSpec& spec, const PortOptions& options, std::string& error);
  ~MemifPort() override;

  bool link_up() const override { return up_.load(std::memory_order_relaxed); }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  // While there is no peer, frames are lost, as on a cable with nobody at its end.
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  // One descriptor for the port's whole life, so it can be watched from the start (before the first
  // arm() it is always given); but -1 while a peer is there that has no wake channel, so ask again
  // before each sleep.
  int wake_descriptor() override;
  bool arm() override;
  void disarm() override;

 private:
  MemifPort(const PortSpec& spec, WakeChannel::Role role);

  void on_round(bool tick) override;
  void descriptors(std::vector<int>& out) const override { wake_channel_.descriptors(out); }
  bool wants_ticks() const override;
  bool has_connection() const;
  void reconnect();

  // A client's patience, in ticks, with a server that has no wake channel.
  static constexpr unsigned kJoinTicks = 20;

  PortSpec::Role role_;
  std::string socket_;
  WakeChannel wake_channel_;
  bool armed_once_ = false;  // the worker's
  bool ready_ = false;       // guarded by the lock, as the next
  unsigned join_ticks_ = 0;
  // Written with the lock held; read by anybody, to whom a moment more or less is the same.
  std::atomic<bool> up_{false};
  std::atomic<bool> joined_{false};
};

}  // namespace rnic::port
