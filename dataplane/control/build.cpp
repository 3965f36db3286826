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

void make_workers(const Configuration& configuration, Machine& machine) {
  const std::size_t count = std::max<std::size_t>(configuration.cores.size(), 1);
  for (std::size_t i = 0; i < count; ++i) {
    core::WorkerOptions options = configuration.worker;
    options.index = static_cast<unsigned>(i);
    options.cpu = configuration.cores.empty() ? -1 : configuration.cores[i];
    options.copier = machine.copier;
    options.acted_for = count == 1;
    options.on_start = [] { port::dpdk_register_thread(); };
    machine.workers.push_back(std::make_unique<core::Worker>(options));
  }
}

core::Worker& worker_for(const Configuration& configuration, const DeviceConfiguration& device, Machine& machine) {
  const auto found = std::find(configuration.cores.begin(), configuration.cores.end(), device.core);
  if (device.core < 0 || found == configuration.cores.end()) return *machine.workers.front();
  return *machine.workers[static_cast<std::size_t>(found - configuration.cores.begin())];
}

// What an application puts behind the % of a link-local address: the kernel's number of the
// interface, or one that is no interface's.
std::uint32_t scope_of(const ServedDevice& served) {
  constexpr std::uint32_t kNobodys = 0x40000000;
  const unsigned interface = if_nametoindex(served.port->facts().netdev.c_str());
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
                        std::unique_ptr<port::Port> port, Machine& machine) {
  auto served = std::make_unique<ServedDevice>();
  served->index = static_cast<std::uint32_t>(machine.devices.size());
  served->name = wanted.name;
  served->port_spec = port::to_string(*wanted.port);
  served->port = std::move(port);
  served->table = std::make_unique<tpt::Table>(static_cast<std::uint32_t>(served->stags.total()), random_seed());
  served->node_guid = node_guid_of(served->port->facts().mac, served->index);
  served->queue_pairs = wanted.queue_pairs;
  served->worker = &worker_for(configuration, wanted, machine);

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
  served->device = std::make_unique<core::Device>(options, *served->port, *served->worker);
  int error = 0;
  served->worker->call([&](Instant) { error = served->worker->add_device(*served->device); });
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
    if (other.worker == served->worker) served->worker->call([&](Instant) { served->device->set_mate(*other.device); });
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
    auto port = factory.open(*wanted.port, wanted.port_options, error);
    if (port == nullptr) return wanted.name + ": " + error;
    if (wanted.options.ipv6 && port->facts().mtu_bytes < ip::kPathMtuMinV6)
      return wanted.name + ": IPv6 needs an MTU of at least " + std::to_string(ip::kPathMtuMinV6) +
             ", and the port has " + std::to_string(port->facts().mtu_bytes);
    if (std::string why = make_device(configuration, wanted, std::move(port), machine); !why.empty()) return why;
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
      if (device->port->link_up()) device->worker->call([&](Instant) { streams += device->device->stream_count(); });
    if (streams == 0) break;
    usleep(kPauseUs);
  }
  // Nobody answers for them from here on: who is still there is told so, instead of asking for minutes.
  for (const auto& device : machine.devices)
    device->worker->call([&](Instant now) {
      for (const core::StreamInfo& stream : device->device->streams()) device->device->kill(stream.stream, now);
    });
  // A turn sends before it serves calls: the resets leave in this one's.
  for (const auto& worker : machine.workers) worker->call([](Instant) {});
  bool all_back = true;
  for (const auto& worker : machine.workers) all_back &= worker->stop();
  if (!all_back) return false;
  for (const auto& device : machine.devices) {
    device->worker->remove_device(*device->device);
    device->device.reset();
    device->port.reset();
  }
  machine.devices.clear();
  machine.workers.clear();
  return true;
}

}  // namespace rnic::control
