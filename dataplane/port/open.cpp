#include "port/open.hpp"

#include "port/dpdk_memif.hpp"
#include "port/dpdk_port.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/loopback_port.hpp"
#include "port/packet_port.hpp"
#include "port/pair_port.hpp"
#include "port/xdp_port.hpp"

namespace rnic::port {

std::uint32_t mtu_max(PortSpec::Kind kind) {
  return kind == PortSpec::Kind::loopback || kind == PortSpec::Kind::pair || kind == PortSpec::Kind::memif
             ? kMtuMax
             : kMtuWireMax;
}

PortFactory::PortFactory(std::vector<PortSpec> all, std::function<void(const std::string&)> log)
    : all_(std::move(all)), log_(std::move(log)) {}

namespace {

// Empty: nothing is to be said against it.
std::string objection_to_mtu(const PortSpec& spec, const PortOptions& options) {
  const std::uint32_t most = mtu_max(spec.kind);
  if (options.mtu_bytes == 0 || (options.mtu_bytes >= kMtuMin && options.mtu_bytes <= most)) return {};
  return "port \"" + to_string(spec) + "\": an MTU is between " + std::to_string(kMtuMin) + " and " +
         std::to_string(most) + ", not " + std::to_string(options.mtu_bytes);
}

}  // namespace

std::vector<std::unique_ptr<Port>> PortFactory::open_queues(const PortSpec& spec, const PortOptions& options,
                                                            unsigned shards, std::string& error) {
  RNIC_ASSERT(shards >= 1);
  std::vector<std::unique_ptr<Port>> queues;
  const bool one_workers = spec.kind == PortSpec::Kind::loopback || spec.kind == PortSpec::Kind::pair;
  if (shards > 1 && one_workers) {
    error = "port \"" + to_string(spec) + "\": it has one worker, not " + std::to_string(shards) +
            ": its frames never leave that worker's hands";
    return queues;
  }
  if (error = objection_to_mtu(spec, options); !error.empty()) return queues;
  std::unique_ptr<Port> only;
  switch (spec.kind) {
    case PortSpec::Kind::af_packet:
      return PacketPort::open_queues(spec, options, shards, error);
    case PortSpec::Kind::af_xdp:
      return XdpPort::open_queues(spec, options, shards, error);
    case PortSpec::Kind::loopback:
      only = std::make_unique<LoopbackPort>(options);
      break;
    case PortSpec::Kind::pair:
      only = open_pair(spec, options, error);
      break;
    case PortSpec::Kind::memif:
      if (!start_dpdk_for(options, error)) break;
      return MemifPort::open_queues(spec, options, shards, error);
    case PortSpec::Kind::tap:
    case PortSpec::Kind::pci:
    case PortSpec::Kind::vdev:
      if (!start_dpdk_for(options, error)) break;
      return DpdkPort::open_queues(spec, options, shards, error);
  }
  if (only != nullptr) queues.push_back(std::move(only));
  return queues;
}

std::unique_ptr<Port> PortFactory::open(const PortSpec& spec, const PortOptions& options, std::string& error) {
  auto only = open_queues(spec, options, 1, error);
  return only.empty() ? nullptr : std::move(only.front());
}

std::unique_ptr<Port> PortFactory::open_pair(const PortSpec& spec, const PortOptions& options, std::string& error) {
  const std::string& pair = spec.target;
  const std::uint32_t mtu = options.mtu_bytes != 0 ? options.mtu_bytes : kMtuMemoryDefault;
  if (joined_[pair]) {
    error = "port \"" + to_string(spec) + "\": a pair has two ends, and a third device names it";
    return nullptr;
  }
  const auto found = half_open_.find(pair);
  if (found == half_open_.end()) {
    const auto wire = std::make_shared<PairWire>(pair, mtu, options.buffers);
    half_open_[pair] = wire;
    return std::make_unique<PairPort>(wire, 0, options);
  }
  const auto wire = found->second;
  half_open_.erase(found);
  joined_[pair] = true;
  return std::make_unique<PairPort>(wire, 1, options);
}

// Of its memory no more can be had later.
bool PortFactory::start_dpdk_for(const PortOptions& options, std::string& error) {
  if (dpdk_started()) return true;
  DpdkOptions dpdk;
  dpdk.log = log_;
  for (const PortSpec& each : all_) {
    if (each.kind == PortSpec::Kind::pci) dpdk.pci_addresses.push_back(each.target);
    // Pools that devices or other processes must reach are in EAL's memory.
    if (each.kind != PortSpec::Kind::pci && each.kind != PortSpec::Kind::vdev) continue;
    const std::uint32_t buffer_bytes = (options.mtu_bytes != 0 ? options.mtu_bytes : kMtuWireDefault) + 1024;
    // A buffer of up to a page is kept within one where there are no huge pages.
    dpdk.memory_mib += 16 + options.buffers / 256 * ((buffer_bytes + 4095) / 4096);
    // Large ones take a page more than they have. Without huge pages one page of each is memory before it is used.
    dpdk.memory_mib += static_cast<std::uint32_t>((kDpdkLargeBytes + kDpdkLargeBytes / 8) >> 20);
  }
  return start_dpdk(dpdk, error);
}

}  // namespace rnic::port
