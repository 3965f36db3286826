#include "port/dpdk_port.hpp"

#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_tcp.h>
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

// What many a driver takes for granted behind the headroom.
constexpr std::uint32_t kDriverRoomMin = 2048;

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
                .room_bytes = std::max(mtu + kLinkHeaderMax, kDriverRoomMin),
                .memory = DpdkPool::Memory::eal};
  recipe.wishes.receive_interrupts = true;
  recipe.wishes.checksums = spec.kind == Kind::pci;
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
  if (!make_device(spec, recipe, device, error) || !device.configure(recipe.wishes, *port->pool_, error) ||
      !device.start(error)) {
    error = what + error + hint(spec);
    return nullptr;
  }
  port->learn_of_device(spec, options);
  if (recipe.socket_family != 0)
    port->wake_ = new_socket(recipe.socket_family, before);
  else if (device.has_receive_interrupts())
    port->wake_ = std::max(-1, rte_eth_dev_rx_intr_ctl_q_get_fd(device.id(), 0));
  // Neighbours ask for IPv6 addresses in groups, which an interface does not hear unasked. After the search for the
  // driver's own socket.
  if (options.groups && of_kernel) port->groups_ = hear_all_groups(spec.target);
  return port;
}

void DpdkPort::learn_of_device(const PortSpec& spec, const PortOptions& options) {
  if (options.groups && kernel_interface_ == 0) rte_eth_allmulticast_enable(device_.id());
  facts_.mac = device_.mac();
  // The kernel's end of a tap has the driver's address; we are another station on that wire.
  if (spec.kind == Kind::tap) facts_.mac = options.mac ? *options.mac : random_mac();
  facts_.fills_checksums = device_.fills_checksums();
  facts_.speed_mbps = device_.speed_mbps();
}

DpdkPort::~DpdkPort() {
  if (groups_ >= 0) close(groups_);
  while (stash_next_ < stash_count_) BufferRef dropped(stash_[stash_next_++]);
  device_.stop();
}

bool DpdkPort::link_up() const {
  if (kernel_interface_ != 0) return netdev_link_up(facts_.netdev, kernel_interface_);
  return device_.link_up();
}

// ---- receiving ---------------------------------------------------------------------------------

unsigned DpdkPort::receive_now(Buffer** out, unsigned max) {
  rte_mbuf* mbufs[kBurst];
  const auto wanted = static_cast<std::uint16_t>(std::min(max, kBurst));
  const unsigned received = rte_eth_rx_burst(device_.id(), 0, mbufs, wanted);
  unsigned kept = 0;
  for (unsigned i = 0; i < received; ++i) {
    rte_mbuf* mbuf = mbufs[i];
    // Buffers hold the port's largest frame, so a chain is a peer with a larger MTU.
    if (mbuf->nb_segs > 1 && rte_pktmbuf_linearize(mbuf) != 0) {
      rte_pktmbuf_free(mbuf);
      continue;
    }
    Buffer* buffer = DpdkPool::adopt(mbuf);
    __builtin_prefetch(buffer->room + buffer->head);
    constexpr std::uint64_t kGood = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    const std::uint64_t checked = mbuf->ol_flags & (RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
    // IPv6's header has none, so a NIC says nothing of it.
    buffer->checksum_good =
        checked == kGood ||
        ((checked & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD &&
         wire::parse_ethernet(buffer->bytes()).value_or(wire::EthernetHeader{}).type == wire::ether_type::kIpv6);
    out[kept++] = buffer;
  }
  return kept;
}

unsigned DpdkPort::receive_burst(Buffer** out, unsigned max) {
  if (stash_next_ < stash_count_) {
    const unsigned n = std::min(max, stash_count_ - stash_next_);
    std::copy_n(stash_.begin() + stash_next_, n, out);
    stash_next_ += n;
    return n;
  }
  return receive_now(out, max);
}

bool DpdkPort::frames_wait() {
  if (stash_next_ < stash_count_) return true;
  stash_next_ = 0;
  stash_count_ = receive_now(stash_.data(), kBurst);
  return stash_count_ != 0;
}

// ---- sending -----------------------------------------------------------------------------------

namespace {

// Tells the NIC where the checksums go, and puts the pseudo-header's sum where TCP's is, as DPDK
// asks. Frames that are not IP are sent as they are, and so is what is not TCP but for IPv4's header.
void ask_for_checksums(rte_mbuf* mbuf) {
  auto* frame = rte_pktmbuf_mtod(mbuf, std::uint8_t*);
  const std::uint32_t length = mbuf->data_len;
  std::uint32_t link = 14;
  if (length < link + 20) return;
  std::uint32_t type = static_cast<std::uint32_t>(frame[12] << 8 | frame[13]);
  if (type == 0x8100) {
    type = static_cast<std::uint32_t>(frame[16] << 8 | frame[17]);
    link = 18;
    if (length < link + 20) return;
  }
  if (type == RTE_ETHER_TYPE_IPV6) {
    // What we send has no extension headers in front of TCP.
    constexpr std::uint32_t kHeader = sizeof(rte_ipv6_hdr);
    if (length < link + kHeader + sizeof(rte_tcp_hdr)) return;
    auto* six = reinterpret_cast<rte_ipv6_hdr*>(frame + link);
    if (six->proto != IPPROTO_TCP) return;
    mbuf->l2_len = link & 0x7f;
    mbuf->l3_len = kHeader & 0x1ff;
    mbuf->ol_flags |= RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_TCP_CKSUM;
    auto* tcp = reinterpret_cast<rte_tcp_hdr*>(frame + link + kHeader);
    tcp->cksum = rte_ipv6_phdr_cksum(six, mbuf->ol_flags);
    return;
  }
  if (type != RTE_ETHER_TYPE_IPV4) return;
  auto* ip = reinterpret_cast<rte_ipv4_hdr*>(frame + link);
  const std::uint32_t ip_bytes = 4u * (ip->version_ihl & 0xf);
  mbuf->l2_len = link & 0x7f;
  mbuf->l3_len = ip_bytes & 0x1ff;
  mbuf->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
  ip->hdr_checksum = 0;
  if (ip->next_proto_id == IPPROTO_TCP && length >= link + ip_bytes + 20) {
    mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    auto* tcp = reinterpret_cast<rte_tcp_hdr*>(frame + link + ip_bytes);
    tcp->cksum = rte_ipv4_phdr_cksum(ip, mbuf->ol_flags);
  }
}

}  // namespace

unsigned DpdkPort::send_now(Buffer* const* frames, unsigned count) {
  unsigned sent = 0;
  while (sent < count) {
    rte_mbuf* mbufs[kBurst];
    const unsigned n = std::min(count - sent, kBurst);
    for (unsigned i = 0; i < n; ++i) {
      RNIC_ASSERT(frames[sent + i]->pool == pool_.get());
      mbufs[i] = DpdkPool::lend(frames[sent + i]);
      if (device_.fills_checksums()) ask_for_checksums(mbufs[i]);
    }
    const unsigned taken = rte_eth_tx_burst(device_.id(), 0, mbufs, static_cast<std::uint16_t>(n));
    for (unsigned i = n; i-- > taken;) DpdkPool::take_back(frames[sent + i]);
    sent += taken;
    if (taken < n) break;
  }
  return sent;
}

unsigned DpdkPort::send_burst(Buffer* const* frames, unsigned count) { return send_now(frames, count); }

// ---- sleeping ----------------------------------------------------------------------------------

bool DpdkPort::arm() {
  if (device_.has_receive_interrupts() && wake_ >= 0)
    interrupts_armed_ = rte_eth_dev_rx_intr_enable(device_.id(), 0) == 0;
  // Armed first, then looked: a frame that comes between is seen here or wakes.
  if (!frames_wait()) return true;
  disarm();
  return false;
}

void DpdkPort::disarm() {
  // Only an interrupt that can be switched has a count to be read; a tap's descriptor is the tap.
  if (!interrupts_armed_) return;
  interrupts_armed_ = false;
  rte_eth_dev_rx_intr_disable(device_.id(), 0);
  std::uint64_t count = 0;
  (void)!read(wake_, &count, sizeof count);
}

}  // namespace rnic::port
