#include "port/dpdk_port.hpp"

#include <fcntl.h>
#include <rte_ethdev.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "port/capability.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/kernel_interface.hpp"
#include "port/netdev.hpp"
#include "wire/vlan.hpp"

namespace rnic::port {
namespace {

using Kind = PortSpec::Kind;

std::uint32_t rounded_up(std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; }

constexpr std::uint32_t kVirtioHeader = 12;  // which its driver asks room for besides

// What many a driver takes for granted behind the headroom.
constexpr std::uint32_t kDriverRoomMin = 2048;

constexpr std::uint32_t kLargeMin = 64;  // fewer are not worth it

// Of a queue that is one of several: both of its rings may be full, and as many are wanted for what is under way.
constexpr std::uint32_t kBuffersPerDescriptor = 4;

// ---- sentences ---------------------------------------------------------------------------------

std::string lacking(const PortSpec& spec) {
  const std::string list = lacks(spec.kind);
  return list.empty() ? list : "port \"" + to_string(spec) + "\" needs " + list + ", which this process does not have";
}

// What there is against it before DPDK tries; empty if nothing.
std::string objection(const PortSpec& spec) {
  if (spec.kind != Kind::tap) return {};
  if (std::string lack = lacking(spec); !lack.empty()) return lack;
  if (find_netdev(spec.target)) return "port \"" + to_string(spec) + "\": there is an interface of that name already";
  return {};
}

// ---- how each kind is made ---------------------------------------------------------------------

struct Recipe {
  std::string driver, arguments;  // of a virtual device
  std::uint32_t room_bytes;       // that its buffers must have
  DpdkPool::Memory memory = DpdkPool::Memory::own;
  Ethdev::Wishes wishes{};
};

Recipe recipe_of_tap(const PortSpec& spec, std::uint32_t mtu) {
  Recipe recipe{.driver = "net_tap", .arguments = "iface=" + spec.target, .room_bytes = mtu + wire::kLinkHeaderMax};
  recipe.wishes.receive_interrupts = true;
  recipe.wishes.mtu_bytes = static_cast<std::uint16_t>(mtu);
  return recipe;
}

// pci, and vdev, whose driver and arguments the user says.
Recipe recipe_of_driver(const PortSpec& spec, const PortOptions& options, std::uint32_t mtu) {
  Recipe recipe{.driver = {},
                .arguments = {},
                .room_bytes = std::max(mtu + wire::kLinkHeaderMax + kVirtioHeader, kDriverRoomMin),
                .memory = DpdkPool::Memory::eal};
  recipe.wishes.receive_interrupts = true;
  recipe.wishes.checksums = spec.kind == Kind::pci;
  if (const std::uint32_t room = small_room_with_runs(mtu); room != 0) {
    recipe.wishes.runs = true;
    recipe.room_bytes = room;
  }
  if (options.mtu_bytes != 0) recipe.wishes.mtu_bytes = static_cast<std::uint16_t>(mtu);
  return recipe;
}

Recipe recipe_of(const PortSpec& spec, const PortOptions& options, std::uint32_t mtu) {
  return spec.kind == Kind::tap ? recipe_of_tap(spec, mtu) : recipe_of_driver(spec, options, mtu);
}

// ---- steps of opening --------------------------------------------------------------------------

bool make_device(const PortSpec& spec, const Recipe& recipe, Ethdev& device, std::string& error) {
  if (spec.kind == Kind::pci) {
    if (device.find(spec.target, error)) return true;
    error = "DPDK did not take it: is it bound to vfio-pci, and does this user own its /dev/vfio group?";
    return false;
  }
  if (spec.kind != Kind::vdev) return device.make_virtual(fresh_device_name(recipe.driver), recipe.arguments, error);
  const auto comma = spec.target.find(',');
  return device.make_virtual(spec.target.substr(0, comma),
                             comma == std::string::npos ? std::string() : spec.target.substr(comma + 1), error);
}

// Pools for `queues` queues, of `buffers` in all.
bool make_pools(const Recipe& recipe, std::uint32_t buffers, unsigned queues, DpdkDevice& device, std::string& error) {
  while (device.pools.size() < queues) {
    auto pool = DpdkPool::create(fresh_device_name("pool"), buffers / queues, rounded_up(recipe.room_bytes, 64),
                                 recipe.memory, error);
    if (pool == nullptr) return false;
    device.pools.push_back(std::move(pool));
  }
  return true;
}

// Large buffers for runs, `room_bytes` behind the headroom, in each pool. False: there is no memory for them.
bool add_large(std::uint32_t buffers, std::uint32_t room_bytes, DpdkDevice& device) {
  const auto queues = static_cast<std::uint32_t>(device.pools.size());
  const std::uint32_t least = std::max(kLargeMin / queues, 1u);
  auto count = static_cast<std::uint32_t>(kDpdkLargeBytes / (kHeadroom + room_bytes));
  count = std::min({count, buffers, kDpdkLargeMax}) / queues;
  // Where huge pages are few, fewer.
  const auto has = [&](DpdkPool& pool) {
    for (; count >= least; count /= 2)
      if (pool.add_large(count, room_bytes)) return true;
    return false;
  };
  return std::all_of(device.pools.begin(), device.pools.end(), [&](const auto& pool) { return has(*pool); });
}

// How many of `queues` queues are at work; 0: none, and the sentence says why. Where the device is to send or to
// receive runs, with large buffers for them; and without, where a driver fails with what it said it could. Likewise
// with fewer queues, one.
unsigned begin(const Recipe& recipe, std::uint32_t buffers, unsigned queues, DpdkDevice& device, std::string& error) {
  const std::uint32_t run_room = recipe.wishes.runs ? device.ethdev.run_room_bytes() : 0;
  if (!make_pools(recipe, buffers, queues, device, error)) return 0;
  const bool large = run_room != 0 && add_large(buffers, run_room, device);
  Ethdev::Wishes wishes = recipe.wishes;
  for (;;) {
    const auto pools = std::span<const std::unique_ptr<DpdkPool>>(device.pools).first(queues);
    for (const bool runs : {true, false}) {
      if (runs && !large) continue;
      wishes.runs = runs;
      if (device.ethdev.configure(wishes, pools, error) && device.ethdev.start(error)) return queues;
    }
    if (queues == 1) return 0;
    queues = 1;
  }
}

// A device's that is at work, as its queues all have them.
void learn(const PortSpec& spec, const PortOptions& options, const DpdkDevice& device, PortFacts& facts) {
  const Ethdev& ethdev = device.ethdev;
  facts.mac = ethdev.mac();
  // The kernel's end of a tap has the driver's address; we are another station on that wire.
  if (spec.kind == Kind::tap) facts.mac = options.mac ? *options.mac : random_mac();
  facts.fills_checksums = ethdev.offloads().tcp_sums;
  const DpdkPool& pool = *device.pools.front();
  const bool large = pool.room_bytes() != pool.small_room_bytes();
  if (large && (ethdev.offloads().cuts || device.guest)) facts.run_bytes = pool.room_bytes();
  facts.speed_mbps = ethdev.speed_mbps();
}

}  // namespace

// ---- opening -----------------------------------------------------------------------------------

std::vector<std::unique_ptr<Port>> DpdkPort::open_queues(const PortSpec& spec, const PortOptions& options,
                                                         unsigned shards, std::string& error) {
  if (error = objection(spec); !error.empty()) return {};

  PortFacts facts{.kind = name(spec.kind), .name = to_string(spec), .mac = {}, .netdev = {}};
  facts.mtu_bytes = mtu_of(options, {});
  if (spec.kind == Kind::tap) facts.netdev = spec.target;
  Recipe recipe = recipe_of(spec, options, facts.mtu_bytes);
  recipe.wishes.shards = shards;

  const auto device = std::make_shared<DpdkDevice>();
  Ethdev& ethdev = device->ethdev;
  const bool made = make_device(spec, recipe, ethdev, error);
  unsigned queues = 0;
  if (made) {
    if (ethdev.driver() == "net_vhost")
      device->guest = VhostGuest::follow(ethdev.id(), spec.target.substr(spec.target.find(',') + 1));
    queues = std::clamp(options.buffers / (kBuffersPerDescriptor * recipe.wishes.descriptors), 1u,
                        std::min(shards, ethdev.queues_max()));
    queues = begin(recipe, options.buffers, queues, *device, error);
  }
  if (queues == 0) {
    error = "port \"" + to_string(spec) + "\": " + error;
    // Its interrupt would outlive it (DPDK 22.11), and crash us before the reason is told.
    if (made && ethdev.driver() == "net_virtio_user") ethdev.never_close();
    return {};
  }
  learn(spec, options, *device, facts);
  // Neighbours ask for IPv6 addresses in groups, which an interface does not hear unasked.
  if (options.groups) rte_eth_allmulticast_enable(ethdev.id());
  std::vector<std::unique_ptr<Port>> ports;
  for (std::uint16_t i = 0; i < queues; ++i) {
    std::unique_ptr<DpdkPort> port(new DpdkPort(device, i));
    port->facts_ = facts;
    port->listen();
    ports.push_back(std::move(port));
  }
  return ports;
}

DpdkPort::DpdkPort(std::shared_ptr<DpdkDevice> device, std::uint16_t queue)
    : shared_(std::move(device)), device_(shared_->ethdev), pool_(*shared_->pools[queue]), queue_(queue) {}

DpdkPort::~DpdkPort() {
  if (edges_ >= 0) close(edges_);
  while (stash_next_ < stash_count_) BufferRef dropped(stash_[stash_next_++]);
}

// Where the driver's descriptor stays readable, for its edges: else the worker never sleeps.
void DpdkPort::listen() {
  wake_ = device_.wake_descriptor(queue_);
  if (wake_ < 0) return;
  if (!device_.wake_stays_readable()) {
    wakes_by_signals_ = (fcntl(wake_, F_GETFL) & O_ASYNC) != 0;
    return;
  }
  edges_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  if (edges_ >= 0 && epoll_ctl(edges_, EPOLL_CTL_ADD, wake_, &event) == 0) wake_ = edges_;
}

}  // namespace rnic::port
