#include "port/dpdk_port.hpp"

#include <rte_ethdev.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "port/capability.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/kernel_interface.hpp"
#include "port/netdev.hpp"

namespace rnic::port {
namespace {

using Kind = PortSpec::Kind;

constexpr std::uint32_t kLinkHeaderMax = 18;  // Ethernet with a VLAN tag

std::uint32_t rounded_up(std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; }

// ---- af_xdp ------------------------------------------------------------------------------------

constexpr std::uint32_t kXdpChunkMax = 4096;                      // the kernel's: a page
constexpr std::uint32_t kXdpHeadroom = 256;                       // XDP_PACKET_HEADROOM
constexpr std::uint32_t kXdpElement = 64 + 128 + 64 + kHeadroom;  // mempool's, mbuf, Buffer, headroom
constexpr std::uint32_t kXdpMtuMax = kXdpChunkMax - kXdpElement - kXdpHeadroom - kLinkHeaderMax - 64;

constexpr std::uint32_t kVirtioHeader = 12;  // which its driver asks room for besides

// What many a driver takes for granted behind the headroom.
constexpr std::uint32_t kDriverRoomMin = 2048;

constexpr std::uint32_t kLargeMin = 64;  // fewer are not worth it

// ---- sentences ---------------------------------------------------------------------------------

std::string lacking(const PortSpec& spec) {
  const std::string list = lacks(spec.kind);
  return list.empty() ? list : "port \"" + to_string(spec) + "\" needs " + list + ", which this process does not have";
}

// What there is against af_xdp on the interface; empty if nothing.
std::string objection_to_xdp(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev) {
  if (std::string objection = objection_of_kernel(spec, options, netdev); !objection.empty()) return objection;
  const std::string what = "port \"" + to_string(spec) + "\"";
  if (mtu_of(options, netdev) > kXdpMtuMax)
    return what + ": af_xdp carries an MTU of at most " + std::to_string(kXdpMtuMax) +
           "; give a smaller one, or take af_packet";
  if (!netdev->up) return what + ": the interface is down; first: ip link set " + spec.target + " up";
  if (const unsigned queues = netdev_queues(spec.target); queues > 1)
    return what + ": the interface spreads what it receives over " + std::to_string(queues) +
           " queues and af_xdp listens to one; first: ethtool -L " + spec.target + " combined 1";
  return {};
}

// What there is against it before DPDK tries; empty if nothing.
std::string objection(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev) {
  if (spec.kind == Kind::af_xdp) return objection_to_xdp(spec, options, netdev);
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
  int socket_family = 0;  // the driver makes a socket of it, by which it wakes us
};

Recipe recipe_of_af_xdp(const PortSpec& spec, std::uint32_t mtu) {
  Recipe recipe{.driver = "net_af_xdp",
                .arguments = "iface=" + spec.target + ",start_queue=0,queue_count=1",
                // The kernel takes no chunk under 2048.
                .room_bytes = std::max(mtu + kLinkHeaderMax + kXdpHeadroom, 2048u - (kXdpElement - kHeadroom)),
                .socket_family = AF_XDP};
  recipe.wishes.descriptors = 2048;
  return recipe;
}

Recipe recipe_of_tap(const PortSpec& spec, std::uint32_t mtu) {
  Recipe recipe{.driver = "net_tap", .arguments = "iface=" + spec.target, .room_bytes = mtu + kLinkHeaderMax};
  recipe.wishes.receive_interrupts = true;
  recipe.wishes.mtu_bytes = static_cast<std::uint16_t>(mtu);
  return recipe;
}

// pci, and vdev, whose driver and arguments the user says.
Recipe recipe_of_driver(const PortSpec& spec, const PortOptions& options, std::uint32_t mtu) {
  Recipe recipe{.driver = {},
                .arguments = {},
                .room_bytes = std::max(mtu + kLinkHeaderMax + kVirtioHeader, kDriverRoomMin),
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
  switch (spec.kind) {
    case Kind::af_xdp:
      return recipe_of_af_xdp(spec, mtu);
    case Kind::tap:
      return recipe_of_tap(spec, mtu);
    case Kind::loopback:
    case Kind::pair:
    case Kind::memif:
    case Kind::af_packet:
    case Kind::pci:
    case Kind::vdev:
      break;
  }
  return recipe_of_driver(spec, options, mtu);
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

// What may be behind a driver's refusal.
std::string hint(const PortSpec& spec) {
  if (spec.kind != Kind::af_xdp) return {};
  return has(Capability::ipc_lock)
             ? " (does another program have the interface's XDP or its queue 0?)"
             : " (its buffers are locked memory: CAP_IPC_LOCK is missing, or a higher limit, ulimit -l)";
}

// The one socket of the family that was not there before; -1: none, or more. Anything but one is not the driver that we
// know: a timed sleep is slow, and never wrong.
int new_socket(int family, const std::vector<int>& before) {
  int found = -1;
  unsigned count = 0;
  for (const int fd : sockets_of_family(family)) {
    if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
    found = fd;
    ++count;
  }
  return count == 1 ? found : -1;
}

}  // namespace

// ---- opening -----------------------------------------------------------------------------------

std::unique_ptr<DpdkPort> DpdkPort::open(const PortSpec& spec, const PortOptions& options, std::string& error) {
  std::optional<Netdev> netdev;
  const bool of_kernel = spec.kind == Kind::af_xdp;
  if (of_kernel) netdev = find_netdev(spec.target);
  if (error = objection(spec, options, netdev); !error.empty()) return nullptr;

  std::unique_ptr<DpdkPort> port(new DpdkPort);
  port->facts_.kind = name(spec.kind);
  port->facts_.name = to_string(spec);
  port->facts_.mtu_bytes = mtu_of(options, netdev);
  if (of_kernel) port->kernel_interface_ = netdev->index;
  if (of_kernel || spec.kind == Kind::tap) port->facts_.netdev = spec.target;

  const Recipe recipe = recipe_of(spec, options, port->facts_.mtu_bytes);
  const std::string what = "port \"" + to_string(spec) + "\": ";
  port->pool_ = DpdkPool::create(fresh_device_name("pool"), options.buffers, rounded_up(recipe.room_bytes, 64),
                                 recipe.memory, error);
  if (port->pool_ == nullptr) {
    error = what + error;
    return nullptr;
  }
  const std::vector<int> before =
      recipe.socket_family != 0 ? sockets_of_family(recipe.socket_family) : std::vector<int>{};
  if (of_kernel) stop_merging(spec.target);
  Ethdev& device = port->device_;
  const bool made = make_device(spec, recipe, device, error);
  if (made && device.driver() == "net_vhost")
    port->guest_ = VhostGuest::follow(device.id(), spec.target.substr(spec.target.find(',') + 1));
  if (!made || !port->begin(recipe.wishes, options.buffers, error)) {
    error = what + error + hint(spec);
    // Its interrupt would outlive it (DPDK 22.11), and crash us before the reason is told.
    if (made && device.driver() == "net_virtio_user") device.never_close();
    return nullptr;
  }
  port->learn_of_device(spec, options);
  if (recipe.socket_family != 0)
    port->wake_ = new_socket(recipe.socket_family, before);
  else if (device.has_receive_interrupts())
    port->wake_ = std::max(-1, rte_eth_dev_rx_intr_ctl_q_get_fd(device.id(), 0));
  if (port->wake_ >= 0 && device.wake_stays_readable()) port->hear_edges();
  // Neighbours ask for IPv6 addresses in groups, which an interface does not hear unasked. After the search for the
  // driver's own socket.
  if (options.groups && of_kernel) port->groups_ = hear_all_groups(spec.target);
  return port;
}

// Where it is to send or to receive runs, with large buffers for them; and without, where a driver fails with what it
// said it could.
bool DpdkPort::begin(Ethdev::Wishes wishes, std::uint32_t buffers, std::string& error) {
  const std::uint32_t room = wishes.runs ? device_.run_room_bytes() : 0;
  // Where huge pages are few, fewer.
  auto count = static_cast<std::uint32_t>(kDpdkLargeBytes / (kHeadroom + std::max(room, 1u)));
  count = std::min({count, buffers, kDpdkLargeMax});
  wishes.runs = false;
  for (; room != 0 && count >= kLargeMin && !wishes.runs; count /= 2) wishes.runs = pool_->add_large(count, room);
  if (device_.configure(wishes, *pool_, error) && device_.start(error)) return true;
  if (!wishes.runs) return false;
  wishes.runs = false;
  return device_.configure(wishes, *pool_, error) && device_.start(error);
}

void DpdkPort::learn_of_device(const PortSpec& spec, const PortOptions& options) {
  if (options.groups && kernel_interface_ == 0) rte_eth_allmulticast_enable(device_.id());
  facts_.mac = device_.mac();
  // The kernel's end of a tap has the driver's address; we are another station on that wire.
  if (spec.kind == Kind::tap) facts_.mac = options.mac ? *options.mac : random_mac();
  facts_.fills_checksums = device_.offloads().tcp_sums;
  const bool large = pool_->room_bytes() != pool_->small_room_bytes();
  if (large && (device_.offloads().cuts || guest_)) facts_.run_bytes = pool_->room_bytes();
  facts_.speed_mbps = device_.speed_mbps();
}

DpdkPort::~DpdkPort() {
  if (groups_ >= 0) close(groups_);
  if (edges_ >= 0) close(edges_);
  while (stash_next_ < stash_count_) BufferRef dropped(stash_[stash_next_++]);
  device_.stop();
}

// Without it the worker never sleeps.
void DpdkPort::hear_edges() {
  edges_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  if (edges_ >= 0 && epoll_ctl(edges_, EPOLL_CTL_ADD, wake_, &event) == 0) wake_ = edges_;
}

bool DpdkPort::link_up() const {
  if (kernel_interface_ != 0) return netdev_link_up(facts_.netdev, kernel_interface_);
  return device_.link_up();
}

}  // namespace rnic::port
