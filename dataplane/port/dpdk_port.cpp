#include "port/dpdk_port.hpp"

#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "port/dpdk_runtime.hpp"
#include "port/capability.hpp"
#include "port/netdev.hpp"

namespace rnic::port {
namespace {

using Kind = PortSpec::Kind;

constexpr std::uint32_t kLinkHeaderMax = 18;  // Ethernet with a VLAN tag

std::uint32_t rounded_up(std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; }

// ---- af_packet ---------------------------------------------------------------------------------

// In front of a frame in a TPACKET_V2 ring: header, address, alignment (packet_mmap.rst).
constexpr std::uint32_t kPacketRingOverhead = 80;

struct PacketRing {
  std::uint32_t frame_bytes;
  std::uint32_t block_bytes;
  std::uint32_t frames;
};
// The driver wants whole frames per block, the kernel whole pages. The rings are locked memory: 4 MiB
// both together stay under the usual limit of those without CAP_IPC_LOCK.
PacketRing packet_ring(std::uint32_t mtu) {
  constexpr std::uint32_t kEachWay = 2u << 20;
  constexpr std::uint32_t kPerBlock = 4;  // and frames are whole KiB
  const std::uint32_t frame = std::max(2048u, rounded_up(kPacketRingOverhead + kLinkHeaderMax + mtu, 1024));
  return {.frame_bytes = frame,
          .block_bytes = frame * kPerBlock,
          .frames = kEachWay / frame / kPerBlock * kPerBlock};
}

// ---- af_xdp ------------------------------------------------------------------------------------

constexpr std::uint32_t kXdpChunkMax = 4096;     // the kernel's: a page
constexpr std::uint32_t kXdpHeadroom = 256;      // XDP_PACKET_HEADROOM
constexpr std::uint32_t kXdpElement = 64 + 128 + 64 + kHeadroom;  // mempool's, mbuf, Buffer, headroom
constexpr std::uint32_t kXdpMtuMax = kXdpChunkMax - kXdpElement - kXdpHeadroom - kLinkHeaderMax - 64;

// What many a driver takes for granted behind the headroom.
constexpr std::uint32_t kDriverRoomMin = 2048;

// ---- sentences ---------------------------------------------------------------------------------

std::string lacking(const PortSpec& spec) {
  const std::string list = lacks(spec.kind);
  return list.empty() ? list : "port \"" + to_string(spec) + "\" needs " + list + ", which this process does not have";
}

// What the kernel says against it before DPDK tries; empty if nothing.
std::string objection(const PortSpec& spec, const PortOptions& options, const std::optional<Netdev>& netdev) {
  const std::string what = "port \"" + to_string(spec) + "\"";
  if (!netdev) return what + ": there is no network interface \"" + spec.target + "\" here";
  if (!netdev->ethernet) return what + ": the interface is no Ethernet interface";
  if (options.mtu_bytes > netdev->mtu_bytes)
    return what + ": MTU " + std::to_string(options.mtu_bytes) + " is more than the interface's " +
           std::to_string(netdev->mtu_bytes) + "; raise that first: ip link set " + spec.target + " mtu " +
           std::to_string(options.mtu_bytes);
  if (std::string lack = lacking(spec); spec.kind == Kind::af_packet || !lack.empty()) return lack;

  const std::uint32_t mtu = options.mtu_bytes != 0 ? options.mtu_bytes : netdev->mtu_bytes;
  if (mtu > kXdpMtuMax)
    return what + ": af_xdp carries an MTU of at most " + std::to_string(kXdpMtuMax) +
           "; give a smaller one, or take af_packet";
  if (!netdev->up) return what + ": the interface is down; first: ip link set " + spec.target + " up";
  if (const unsigned queues = netdev_queues(spec.target); queues > 1)
    return what + ": the interface spreads what it receives over " + std::to_string(queues) +
           " queues and af_xdp listens to one; first: ethtool -L " + spec.target + " combined 1";
  return {};
}

}  // namespace

// ---- opening -----------------------------------------------------------------------------------

std::unique_ptr<DpdkPort> DpdkPort::open(const PortSpec& spec, const PortOptions& options, std::string& error) {
  const std::string what = "port \"" + to_string(spec) + "\"";
  const bool kernel_interface = spec.kind == Kind::af_packet || spec.kind == Kind::af_xdp;
  std::optional<Netdev> netdev;
  if (kernel_interface) {
    netdev = find_netdev(spec.target);
    if (error = objection(spec, options, netdev); !error.empty()) return nullptr;
  }
  if (spec.kind == Kind::tap) {
    if (error = lacking(spec); !error.empty()) return nullptr;
    if (find_netdev(spec.target)) {
      error = what + ": there is an interface of that name already";
      return nullptr;
    }
  }

  std::unique_ptr<DpdkPort> port(new DpdkPort);
  PortFacts& facts = port->facts_;
  facts.kind = name(spec.kind);
  facts.name = to_string(spec);
  facts.mtu_bytes = options.mtu_bytes != 0 ? options.mtu_bytes
                    : netdev               ? std::min(netdev->mtu_bytes, kMtuWireMax)
                                           : kMtuWireDefault;
  if (kernel_interface || spec.kind == Kind::tap) facts.netdev = spec.target;

  // How the device is made, and what its buffers must hold.
  std::string driver, arguments;
  std::uint32_t room = facts.mtu_bytes + kLinkHeaderMax;
  auto memory = DpdkPool::Memory::own;
  Ethdev::Wishes wishes;
  int socket_family = 0;
  switch (spec.kind) {
    case Kind::af_packet: {
      const PacketRing ring = packet_ring(facts.mtu_bytes);
      driver = "net_af_packet";
      // Through the queueing discipline, so that tcpdump on the interface sees both directions.
      arguments = "iface=" + spec.target + ",blocksz=" + std::to_string(ring.block_bytes) +
                  ",framesz=" + std::to_string(ring.frame_bytes) + ",framecnt=" + std::to_string(ring.frames) +
                  ",qdisc_bypass=0";
      room = std::max(room, ring.frame_bytes);
      socket_family = AF_PACKET;
      break;
    }
    case Kind::af_xdp:
      driver = "net_af_xdp";
      arguments = "iface=" + spec.target + ",start_queue=0,queue_count=1";
      room += kXdpHeadroom;
      // The kernel takes no chunk under 2048.
      room = std::max(room, 2048u - (kXdpElement - kHeadroom));
      wishes.descriptors = 2048;
      socket_family = AF_XDP;
      break;
    case Kind::tap:
      driver = "net_tap";
      arguments = "iface=" + spec.target;
      wishes.receive_interrupts = true;
      wishes.mtu_bytes = static_cast<std::uint16_t>(facts.mtu_bytes);
      break;
    default:  // pci, vdev
      memory = DpdkPool::Memory::eal;
      room = std::max(room, kDriverRoomMin);
      wishes.receive_interrupts = true;
      wishes.checksums = spec.kind == Kind::pci;
      if (options.mtu_bytes != 0) wishes.mtu_bytes = static_cast<std::uint16_t>(facts.mtu_bytes);
      break;
  }

  port->pool_ = DpdkPool::create(fresh_device_name("pool"), options.buffers, rounded_up(room, 64), memory, error);
  if (port->pool_ == nullptr) {
    error = what + ": " + error;
    return nullptr;
  }

  const std::vector<int> before = socket_family != 0 ? sockets_of_family(socket_family) : std::vector<int>{};
  if (kernel_interface) stop_merging(spec.target);

  Ethdev& device = port->device_;
  bool made = false;
  if (spec.kind == Kind::pci) {
    made = device.find(spec.target, error);
    if (!made)
      error = "DPDK did not take it: is it bound to vfio-pci, and does this user own its /dev/vfio group?";
  } else if (spec.kind == Kind::vdev) {
    const auto comma = spec.target.find(',');
    made = device.make_virtual(spec.target.substr(0, comma),
                               comma == std::string::npos ? std::string() : spec.target.substr(comma + 1), error);
  } else {
    made = device.make_virtual(fresh_device_name(driver), arguments, error);
  }
  made = made && device.configure(wishes, *port->pool_, error) && device.start(error);
  if (!made) {
    error = what + ": " + error;
    if (spec.kind == Kind::af_xdp && !has(Capability::ipc_lock))
      error += " (its buffers are locked memory: CAP_IPC_LOCK is missing, or a higher limit, ulimit -l)";
    else if (spec.kind == Kind::af_xdp)
      error += " (does another program have the interface's XDP or its queue 0?)";
    return nullptr;
  }

  // Neighbours ask for IPv6 addresses in groups, which an interface does not hear unasked.
  if (options.groups && !kernel_interface) rte_eth_allmulticast_enable(device.id());
  facts.mac = device.mac();
  // The kernel's end of a tap has the driver's address; we are another station on that wire.
  if (spec.kind == Kind::tap) facts.mac = options.mac ? *options.mac : random_mac();
  facts.fills_checksums = device.fills_checksums();
  facts.speed_mbps = device.speed_mbps();

  if (socket_family != 0) {
    int found = -1;
    unsigned count = 0;
    for (const int fd : sockets_of_family(socket_family)) {
      if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
      found = fd;
      ++count;
    }
    // Anything but one: not the driver that we know. A timed sleep is slow, and never wrong.
    if (count == 1) port->wake_ = found;
  } else if (device.has_receive_interrupts()) {
    port->wake_ = std::max(-1, rte_eth_dev_rx_intr_ctl_q_get_fd(device.id(), 0));
  }
  // After the search for the driver's own socket.
  if (options.groups && kernel_interface) port->groups_ = hear_all_groups(spec.target);
  return port;
}

DpdkPort::~DpdkPort() {
  if (groups_ >= 0) close(groups_);
  while (stash_next_ < stash_count_) BufferRef dropped(stash_[stash_next_++]);
  device_.stop();
}

bool DpdkPort::link_up() const {
  if (facts_.kind == "af_packet" || facts_.kind == "af_xdp") return netdev_link_up(facts_.netdev);
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
        checked == kGood || ((checked & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD &&
                             wire::parse_ethernet(buffer->bytes()).value_or(wire::EthernetHeader{}).type ==
                                 wire::ether_type::kIpv6);
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
