#include "control/build.hpp"

#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "control/limits.hpp"
#include "control/network.hpp"
#include "ip/icmp.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"

namespace rnic::control {
namespace {

// Between two rnic nothing is lost but for want of room, and that comes back soon.
constexpr Duration kSynWaitInMemory = milliseconds(10);

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// The first of the cores on which the kernel would not let us run; -1: none.
int missing_core(const std::vector<int>& cores) {
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof before, &before) != 0) return -1;
  int missing = -1;
  for (const int core : cores) {
    cpu_set_t one;
    CPU_ZERO(&one);
    if (core < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(core), &one);
    if (missing < 0 && sched_setaffinity(0, sizeof one, &one) != 0) missing = core;
  }
  sched_setaffinity(0, sizeof before, &before);
  return missing;
}

std::size_t cores_allowed() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<std::size_t>(CPU_COUNT(&allowed)) : SIZE_MAX;
}

void make_workers(const Configuration& configuration, Machine& machine) {
  const std::size_t count = std::max<std::size_t>(configuration.cores.size(), 1);
  const bool any_shared = std::any_of(configuration.devices.begin(), configuration.devices.end(),
                                      [](const DeviceConfiguration& device) { return device.workers > 1; });
  if (any_shared) {
    machine.grace = std::make_unique<shm::Grace>(static_cast<unsigned>(count));
    machine.wakes = std::make_unique<core::Wakes>(static_cast<unsigned>(count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    core::WorkerOptions options = configuration.worker;
    options.index = static_cast<unsigned>(i);
    options.cpu = configuration.cores.empty() ? -1 : configuration.cores[i];
    options.copier = machine.copier;
    options.grace = machine.grace.get();
    options.wakes = machine.wakes.get();
    options.acted_for = count == 1;
    options.crowded = count >= cores_allowed();
    options.on_start = [] { port::dpdk_register_thread(); };
    machine.workers.push_back(std::make_unique<core::Worker>(options));
  }
}

// Of the shards of a device: from the worker of its core on, one after the other.
core::Worker& worker_for(const Configuration& configuration, const DeviceConfiguration& device, std::size_t shard,
                         Machine& machine) {
  const auto found = std::find(configuration.cores.begin(), configuration.cores.end(), device.core);
  const bool any = device.core < 0 || found == configuration.cores.end();
  const std::size_t first = any ? 0 : static_cast<std::size_t>(found - configuration.cores.begin());
  return *machine.workers[(first + shard) % machine.workers.size()];
}

// What an application puts behind the % of a link-local address: the kernel's number of the
// interface, or one that is no interface's.
std::uint32_t scope_of(const ServedDevice& served) {
  constexpr std::uint32_t kNobodys = 0x40000000;
  const unsigned interface = if_nametoindex(served.port_facts().netdev.c_str());
  return interface != 0 ? interface : kNobodys + served.index;
}

bool are_mates(const DeviceConfiguration& a, const DeviceConfiguration& b) {
  return &a != &b && a.port->kind == port::PortSpec::Kind::pair && *a.port == *b.port;
}

// The other end of a pair is there, whatever networks the two are in.
void add_routes_to_mate(const Configuration& configuration, const DeviceConfiguration& wanted,
                        core::DeviceOptions& options) {
  ip::Routes known;
  for (const core::DeviceAddress& own : options.addresses) known.add_own(own.address, own.prefix_length);
  for (const ip::Route& route : options.routes) known.add(route);
  for (const DeviceConfiguration& other : configuration.devices) {
    if (!are_mates(wanted, other)) continue;
    for (const core::DeviceAddress& theirs : other.addresses)
      if (known.prefix_toward(theirs.address) <= 0)
        options.routes.push_back(
            {.prefix = theirs.address, .bits = theirs.address.is_v4() ? 32u : 128u, .gateway = {}});
  }
}

// Empty, or why not.
std::string make_device(const Configuration& configuration, const DeviceConfiguration& wanted,
                        std::vector<std::unique_ptr<port::Port>> queues, Machine& machine) {
  auto served = std::make_unique<ServedDevice>();
  served->index = static_cast<std::uint32_t>(machine.devices.size());
  served->name = wanted.name;
  served->port_spec = port::to_string(*wanted.port);
  if (wanted.workers == 1)
    served->port = std::move(queues.front());
  else
    served->port_queues = std::make_unique<port::SteeredPorts>(std::move(queues), wanted.workers);
  const auto port_of = [&](unsigned shard) -> port::Port& {
    return served->port != nullptr ? *served->port : served->port_queues->of(shard);
  };
  served->table = std::make_unique<tpt::Table>(static_cast<std::uint32_t>(served->stags.total()), random_seed());
  served->node_guid = node_guid_of(port_of(0).facts().mac, served->index);
  served->queue_pairs = wanted.queue_pairs;

  core::DeviceOptions options = wanted.options;
  options.name = wanted.name;
  options.index = served->index;
  options.addresses = wanted.addresses;
  for (const wire::IpAddress& gateway : wanted.gateways)
    options.routes.push_back(
        {.prefix = gateway.is_v4() ? wire::IpAddress::v4(0) : wire::IpAddress(), .bits = 0, .gateway = gateway});
  options.routes.insert(options.routes.end(), wanted.routes.begin(), wanted.routes.end());
  add_routes_to_mate(configuration, wanted, options);
  // The kernel's interface has the same MAC as we, and where it speaks IPv6 what is made of it.
  options.opaque_addresses =
      wanted.port->kind == port::PortSpec::Kind::af_packet || wanted.port->kind == port::PortSpec::Kind::af_xdp;
  if (port::is_memory(wanted.port->kind)) options.tcp.syn_wait_first = kSynWaitInMemory;
  options.seed = random_seed();
  options.served_ports = std::make_shared<host::ServedPorts>();
  int error = 0;
  for (unsigned i = 0; i < wanted.workers && error == 0; ++i) {
    core::Worker& worker = worker_for(configuration, wanted, i, machine);
    options.shard = {.index = i, .count = wanted.workers};
    served->shards.push_back({&worker, std::make_unique<core::Device>(options, port_of(i), worker)});
    worker.call([&](Instant) { error = worker.add_device(*served->shards[i].device); });
  }
  if (error != 0) return wanted.name + ": its port cannot be watched: " + std::strerror(error);
  served->scope = scope_of(*served);
  refresh_network(*served);
  machine.devices.push_back(std::move(served));
  return {};
}

// Which device is at the other end of which pair.
void join_mates(const Configuration& configuration, Machine& machine) {
  const std::vector<DeviceConfiguration>& all = configuration.devices;
  for (const auto& served : machine.devices) {
    const auto mate = std::find_if(
        all.begin(), all.end(), [&](const DeviceConfiguration& other) { return are_mates(all[served->index], other); });
    if (mate == all.end()) continue;
    served->mate = static_cast<int>(mate - all.begin());
    ServedDevice& other = *machine.devices[static_cast<std::size_t>(served->mate)];
    Shard &own = served->first(), &its = other.first();
    if (own.worker == its.worker) own.worker->call([&](Instant) { own.device->set_mate(*its.device); });
  }
}

}  // namespace

std::string build_machine(const Configuration& configuration, const std::function<void(const std::string&)>& log,
                          Machine& machine) {
  machine.name = configuration.name;
  machine.page_wait = configuration.page_wait;
  machine.generation = static_cast<std::uint32_t>(random_seed()) | 1u;
  if (const int core = missing_core(configuration.cores); core >= 0)
    return "cores: this machine has no core " + std::to_string(core) + ", or rnicd may not use it; there are " +
           std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + ", from 0 on";
  const auto kernel = port::kernel_addresses();
  for (const DeviceConfiguration& device : configuration.devices)
    if (std::string why = taken_by_kernel(device, kernel); !why.empty()) return why;
  make_workers(configuration, machine);
  std::vector<port::PortSpec> all;
  for (const DeviceConfiguration& device : configuration.devices) all.push_back(*device.port);
  port::PortFactory factory(all, log);
  for (const DeviceConfiguration& wanted : configuration.devices) {
    std::string error;
    auto queues = factory.open_queues(*wanted.port, wanted.port_options, wanted.workers, error);
    if (queues.empty()) return wanted.name + ": " + error;
    const std::uint32_t mtu = queues.front()->facts().mtu_bytes;
    if (wanted.options.ipv6 && mtu < ip::kPathMtuMinV6)
      return wanted.name + ": IPv6 needs an MTU of at least " + std::to_string(ip::kPathMtuMinV6) +
             ", and the port has " + std::to_string(mtu);
    if (std::string why = make_device(configuration, wanted, std::move(queues), machine); !why.empty()) return why;
  }
  join_mates(configuration, machine);
  return {};
}

void start_workers(Machine& machine) {
  for (const auto& worker : machine.workers) worker->start();
}

bool stop_machine(Machine& machine) {
  // Enough for what was lost on the way to be sent again where the peer is near.
  constexpr int kTries = 40;
  constexpr useconds_t kPauseUs = 5'000;
  for (int i = 0; i < kTries; ++i) {
    std::size_t streams = 0;
    for (const auto& device : machine.devices)
      if (device->port_is_up())
        device->on_each([&](Shard& shard, Instant) { streams += shard.device->stream_count(); });
    if (streams == 0) break;
    usleep(kPauseUs);
  }
  // Nobody answers for them from here on: who is still there is told so, instead of asking for minutes.
  for (const auto& device : machine.devices)
    device->on_each([](Shard& shard, Instant now) {
      for (const core::StreamInfo& stream : shard.device->streams()) shard.device->kill(stream.stream, now);
    });
  // A turn sends before it serves calls: the resets leave in this one's. Those that one worker sends for others it has
  // from them at the next one's beginning.
  constexpr int kRounds = 3;
  for (int i = 0; i < kRounds; ++i)
    for (const auto& worker : machine.workers) worker->call([](Instant) {});
  bool all_back = true;
  for (const auto& worker : machine.workers) all_back &= worker->stop();
  if (!all_back) return false;
  for (const auto& device : machine.devices) {
    for (Shard& shard : device->shards) {
      shard.worker->remove_device(*shard.device);
      shard.device.reset();
    }
    device->port_queues.reset();
    device->port.reset();
  }
  machine.devices.clear();
  machine.workers.clear();
  return true;
}

}  // namespace rnic::control
