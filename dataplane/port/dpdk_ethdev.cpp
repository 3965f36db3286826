#include "port/dpdk_ethdev.hpp"

#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "port/dpdk_runtime.hpp"
#include "wire/rss.hpp"
#include "wire/vlan.hpp"

namespace rnic::port {
namespace {

// DPDK's own words where it said any, and what the number means where it did not.
std::string reason(int code) {
  const std::string complaint = dpdk_complaint();
  return complaint.empty() ? std::string(rte_strerror(code < 0 ? -code : code)) : complaint;
}

constexpr std::uint64_t kSendChecksums = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
constexpr std::uint64_t kReceiveChecksums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
constexpr std::uint64_t kCut = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
// What was merged comes in a chain of small buffers, for which virtio needs mergeable ones (SCATTER).
constexpr std::uint64_t kMerge = RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_SCATTER;

constexpr std::size_t kHashKeyBytes = 40, kHashKeyBytesMax = 64;  // of most devices; of any that we know

// Drivers keep where it is, and read it when they start.
std::array<std::uint8_t, kHashKeyBytesMax> hash_key = [] {
  std::array<std::uint8_t, kHashKeyBytesMax> key{};
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::uint8_t>(i % 2 == 0 ? wire::rss::kKey >> 8 : wire::rss::kKey & 0xFF);
  return key;
}();

bool all_of(std::uint64_t there, std::uint64_t wanted) { return (there & wanted) == wanted; }

DriverHabits habits(const rte_eth_dev_info& info) {
  return habits_of(info.driver_name != nullptr ? info.driver_name : "");
}
bool may_cut(const rte_eth_dev_info& info) { return habits(info).cuts && all_of(info.tx_offload_capa, kCut); }
bool may_merge(const rte_eth_dev_info& info) { return habits(info).merges && all_of(info.rx_offload_capa, kMerge); }

// The offloads that are asked for, of those that there are.
void ask_for(const Ethdev::Wishes& wishes, const rte_eth_dev_info& info, rte_eth_conf& conf) {
  const bool runs = wishes.runs && may_cut(info);
  if (wishes.checksums || habits(info).fills_checksums || runs) {
    // Without IPv4's it is TCP's that costs.
    if (all_of(info.tx_offload_capa, RTE_ETH_TX_OFFLOAD_TCP_CKSUM))
      conf.txmode.offloads |= info.tx_offload_capa & kSendChecksums;
    conf.rxmode.offloads |= info.rx_offload_capa & kReceiveChecksums;
  }
  if (runs) conf.txmode.offloads |= kCut;
  if (wishes.runs && may_merge(info)) conf.rxmode.offloads |= kMerge;
}

// The hash that we divide by; nothing where the device has it not, of TCP, with a table that says which queue
// is whose.
std::optional<rte_eth_rss_conf> our_hash(const rte_eth_dev_info& info) {
  constexpr std::uint64_t kTcp = RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV6_TCP;
  const std::size_t key_bytes = info.hash_key_size != 0 ? info.hash_key_size : kHashKeyBytes;
  const std::uint64_t hashed = info.flow_type_rss_offloads & kTcp;
  if (hashed == 0 || info.reta_size == 0 || key_bytes > hash_key.size()) return std::nullopt;
  return rte_eth_rss_conf{
      .rss_key = hash_key.data(), .rss_key_len = static_cast<std::uint8_t>(key_bytes), .rss_hf = hashed};
}

// As rte_eth_dev_configure() has it, which says so in octets of frames.
std::uint32_t mtu_max(const rte_eth_dev_info& info) {
  const bool says_mtu = info.max_mtu != UINT16_MAX && info.max_rx_pktlen > info.max_mtu;
  const std::uint32_t headers = says_mtu ? info.max_rx_pktlen - info.max_mtu : wire::kLinkHeaderMax;
  return info.max_rx_pktlen > headers ? info.max_rx_pktlen - headers : UINT32_MAX;
}

}  // namespace

std::string fresh_device_name(const std::string& driver) {
  static std::atomic<unsigned> count{0};
  return driver + "_rnic" + std::to_string(count.fetch_add(1, std::memory_order_relaxed));
}

Ethdev::~Ethdev() {
  if (!present_) return;
  stop();
  if (!close_) return;
  rte_eth_dev_close(id_);
  if (!virtual_name_.empty()) rte_vdev_uninit(virtual_name_.c_str());
}

bool Ethdev::make_virtual(const std::string& name, const std::string& arguments, std::string& error) {
  (void)dpdk_complaint();
  // Not by rte_eal_hotplug_add(): its message to other processes of DPDK's, of which we have none, holds 127 octets of
  // arguments, and from DPDK 24 on longer ones are refused: a memif socket's path alone may have 107.
  if (const int code = rte_vdev_init(name.c_str(), arguments.c_str()); code != 0) {
    // A name that no driver claims is answered by -1 and its like, without a word.
    error = dpdk_complaint();
    if (error.empty()) error = "DPDK has no driver for a device of this name, or the driver refuses its arguments";
    return false;
  }
  virtual_name_ = name;
  return find(name, error);
}

bool Ethdev::find(const std::string& name, std::string& error) {
  if (rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0) {
    error = "DPDK has no Ethernet device " + name;
    return false;
  }
  present_ = true;
  return true;
}

std::string Ethdev::driver() const {
  rte_eth_dev_info info{};
  return rte_eth_dev_info_get(id_, &info) == 0 && info.driver_name != nullptr ? info.driver_name : std::string();
}

std::uint32_t Ethdev::run_room_bytes() const {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(id_, &info) != 0) return 0;
  if (habits(info).takes_long_pieces) return DpdkPool::kRoomBytesMax;
  return may_cut(info) ? kRunPieceBytes : 0;
}

unsigned Ethdev::queues_max() const {
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(id_, &info) != 0 || habits(info).one_queue) return 1;
  return std::max<unsigned>(1, std::min(info.max_rx_queues, info.max_tx_queues));
}

bool Ethdev::configure(const Wishes& wishes, std::span<const std::unique_ptr<DpdkPool>> pools, std::string& error) {
  (void)dpdk_complaint();
  rte_eth_dev_info info{};
  if (const int code = rte_eth_dev_info_get(id_, &info); code != 0) {
    error = reason(code);
    return false;
  }
  if (const std::uint32_t most = mtu_max(info); wishes.mtu_bytes > most) {
    error = "its driver takes an MTU of " + std::to_string(most) + " at most, not " + std::to_string(wishes.mtu_bytes);
    return false;
  }
  const auto queues = static_cast<std::uint16_t>(pools.size());
  rte_eth_conf conf{};
  conf.rxmode.mtu = wishes.mtu_bytes;
  conf.intr_conf.rxq = wishes.receive_interrupts ? 1 : 0;
  ask_for(wishes, info, conf);
  const auto hash = queues > 1 ? our_hash(info) : std::nullopt;
  if (hash) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf = *hash;
  }

  std::uint16_t receive = wishes.descriptors;
  std::uint16_t transmit = wishes.descriptors;
  const auto attempt = [&] {
    int code = rte_eth_dev_configure(id_, queues, queues, &conf);
    if (code == 0) code = rte_eth_dev_adjust_nb_rx_tx_desc(id_, &receive, &transmit);
    for (std::uint16_t i = 0; code == 0 && i < queues; ++i) {
      code = rte_eth_rx_queue_setup(id_, i, receive, SOCKET_ID_ANY, nullptr, pools[i]->mempool());
    }
    for (std::uint16_t i = 0; code == 0 && i < queues; ++i)
      code = rte_eth_tx_queue_setup(id_, i, transmit, SOCKET_ID_ANY, nullptr);
    return code;
  };
  int code = attempt();
  if (code != 0 && conf.intr_conf.rxq != 0) {
    conf.intr_conf.rxq = 0;
    (void)dpdk_complaint();
    code = attempt();
  }
  if (code != 0) {
    error = reason(code);
    return false;
  }
  receive_interrupts_ = conf.intr_conf.rxq != 0;
  offloads_.tcp_sums = all_of(conf.txmode.offloads, RTE_ETH_TX_OFFLOAD_TCP_CKSUM);
  offloads_.ip_sums = all_of(conf.txmode.offloads, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM);
  offloads_.cuts = all_of(conf.txmode.offloads, kCut);
  offloads_.partial_is_good = habits(info).partial_is_good;
  wake_stays_readable_ = habits(info).wake_stays_readable;
  queues_ = queues;
  shards_ = wishes.shards;
  hashed_queues_ = hash ? queues : 0;
  return true;
}

bool Ethdev::start(std::string& error) {
  if (started_) return true;
  (void)dpdk_complaint();
  if (const int code = rte_eth_dev_start(id_); code != 0) {
    error = reason(code);
    return false;
  }
  started_ = true;
  divide_as_we_do();
  return true;
}

// Where it refuses, it divides in its own way, and what is others' is handed over. Not each driver looks at the hash
// that it is configured with.
void Ethdev::divide_as_we_do() const {
  rte_eth_dev_info info{};
  if (hashed_queues_ == 0 || rte_eth_dev_info_get(id_, &info) != 0) return;
  if (auto hash = our_hash(info)) (void)rte_eth_dev_rss_hash_update(id_, &*hash);
  constexpr unsigned kGroup = RTE_ETH_RETA_GROUP_SIZE;
  std::vector<rte_eth_rss_reta_entry64> table((info.reta_size + kGroup - 1) / kGroup);
  for (unsigned i = 0; i < info.reta_size; ++i) {
    table[i / kGroup].mask |= std::uint64_t{1} << i % kGroup;
    table[i / kGroup].reta[i % kGroup] = static_cast<std::uint16_t>(i % wire::rss::kTable % shards_ % hashed_queues_);
  }
  (void)rte_eth_dev_rss_reta_update(id_, table.data(), info.reta_size);
}

int Ethdev::wake_descriptor(std::uint16_t queue) const {
  if (!receive_interrupts_) return -1;
  const int own = rte_eth_dev_rx_intr_ctl_q_get_fd(id_, queue);
  // Where queues share an interrupt, who switches it off or hears it does so for the others, too.
  for (std::uint16_t i = 0; i < queues_; ++i)
    if (i != queue && rte_eth_dev_rx_intr_ctl_q_get_fd(id_, i) == own) return -1;
  return std::max(-1, own);
}

void Ethdev::stop() {
  if (!started_) return;
  rte_eth_dev_stop(id_);
  started_ = false;
}

wire::Mac Ethdev::mac() const {
  rte_ether_addr address{};
  wire::Mac mac;
  if (rte_eth_macaddr_get(id_, &address) == 0)
    for (std::size_t i = 0; i < wire::Mac::kSize; ++i) mac.octets[i] = address.addr_bytes[i];
  return mac;
}

bool Ethdev::link_up() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

std::uint32_t Ethdev::speed_mbps() const {
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(id_, &link) != 0) return 10'000;
  return link.link_speed == RTE_ETH_SPEED_NUM_NONE || link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 10'000
                                                                                                   : link.link_speed;
}

}  // namespace rnic::port
