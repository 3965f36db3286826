// Opening ports: what main() needs to know of this folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "port/options.hpp"
#include "port/port.hpp"
#include "port/spec.hpp"

namespace rnic::port {

class PairWire;

// The largest MTU that a port of this kind can have.
std::uint32_t mtu_max(PortSpec::Kind kind);

// Owned by the control thread. Outlives nothing: the ports it opened may live longer.
class PortFactory {
 public:
  // `all`: every SPEC that will be opened, because DPDK is told of PCI devices when it starts and
  // never later. `log` gets DPDK's complaints, from any thread.
  explicit PortFactory(std::vector<PortSpec> all, std::function<void(const std::string&)> log = {});

  // Null: `error` is one sentence that says why. DPDK is started by the first port that needs it.
  // The first two that name the same pair are joined.
  std::unique_ptr<Port> open(const PortSpec& spec, const PortOptions& options, std::string& error);

  // For SteeredPorts among `shards` workers, at least 1: as many as `shards` or fewer, whatever the device can have. Of
  // one shard what open() gives. Empty: `error` is one sentence that says why.
  std::vector<std::unique_ptr<Port>> open_queues(const PortSpec& spec, const PortOptions& options, unsigned shards,
                                                 std::string& error);

 private:
  std::unique_ptr<Port> open_pair(const PortSpec& spec, const PortOptions& options, std::string& error);
  bool start_dpdk_for(const PortOptions& options, std::string& error);

  std::vector<PortSpec> all_;
  std::function<void(const std::string&)> log_;
  std::map<std::string, std::shared_ptr<PairWire>> half_open_;  // one end is taken
  std::map<std::string, bool> joined_;
};

}  // namespace rnic::port
