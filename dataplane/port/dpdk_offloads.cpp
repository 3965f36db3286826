#include "port/dpdk_offloads.hpp"

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "port/segment_runs.hpp"

namespace rnic::port {

DriverHabits habits_of(std::string_view driver) {
  DriverHabits habits;
  if (driver == "net_virtio" || driver == "net_virtio_user") {
    habits.fills_checksums = habits.takes_long_pieces = habits.partial_is_good = habits.merges = true;
  } else if (driver == "net_vhost") {
    habits.fills_checksums = habits.takes_long_pieces = habits.partial_is_good = habits.wake_stays_readable = true;
    habits.one_queue = true;
  } else if (driver == "net_tap") {
    // DPDK 22.11's compares a segment's frame with the MTU, so that full ones never leave, and writes IPv6 uncut.
    habits.cuts = false;
  }
  return habits;
}

namespace {

void ask_tcp(rte_mbuf& mbuf, const Buffer& frame, std::uint32_t headers_before) {
  if (frame.unit_bytes == 0) {
    mbuf.ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    return;
  }
  RNIC_ASSERT(frame.headers_bytes > headers_before);
  mbuf.l4_len = (frame.headers_bytes - headers_before) & 0xff;
  mbuf.tso_segsz = frame.unit_bytes;
  mbuf.ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
}

}  // namespace

void Offloads::ask(rte_mbuf& mbuf, const Buffer& frame) const {
  auto* octets = rte_pktmbuf_mtod(&mbuf, std::uint8_t*);
  const std::uint32_t length = mbuf.data_len;
  std::uint32_t link = 14;
  if (length < link + 20) return;
  std::uint32_t type = static_cast<std::uint32_t>(octets[12] << 8 | octets[13]);
  if (type == RTE_ETHER_TYPE_VLAN) {
    type = static_cast<std::uint32_t>(octets[16] << 8 | octets[17]);
    link = 18;
    if (length < link + 20) return;
  }
  if (type == RTE_ETHER_TYPE_IPV6) {
    // What we send has no extension headers in front of TCP.
    constexpr std::uint32_t kHeader = sizeof(rte_ipv6_hdr);
    if (length < link + kHeader + sizeof(rte_tcp_hdr)) return;
    auto* six = reinterpret_cast<rte_ipv6_hdr*>(octets + link);
    if (six->proto != IPPROTO_TCP) return;
    mbuf.l2_len = link & 0x7f;
    mbuf.l3_len = kHeader & 0x1ff;
    mbuf.ol_flags |= RTE_MBUF_F_TX_IPV6;
    ask_tcp(mbuf, frame, link + kHeader);
    auto* tcp = reinterpret_cast<rte_tcp_hdr*>(octets + link + kHeader);
    tcp->cksum = rte_ipv6_phdr_cksum(six, mbuf.ol_flags);
    return;
  }
  if (type != RTE_ETHER_TYPE_IPV4) return;
  auto* ip = reinterpret_cast<rte_ipv4_hdr*>(octets + link);
  const std::uint32_t ip_bytes = 4u * (ip->version_ihl & 0xf);
  if (ip_bytes < sizeof(rte_ipv4_hdr) || length < link + ip_bytes) return;
  mbuf.l2_len = link & 0x7f;
  mbuf.l3_len = ip_bytes & 0x1ff;
  mbuf.ol_flags |= RTE_MBUF_F_TX_IPV4;
  if (ip->next_proto_id == IPPROTO_TCP && length >= link + ip_bytes + sizeof(rte_tcp_hdr)) {
    ask_tcp(mbuf, frame, link + ip_bytes);
    auto* tcp = reinterpret_cast<rte_tcp_hdr*>(octets + link + ip_bytes);
    tcp->cksum = rte_ipv4_phdr_cksum(ip, mbuf.ol_flags);
  }
  // Who cuts fills it in each, and DPDK has it asked for.
  if (ip_sums || frame.unit_bytes != 0) mbuf.ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
  ip->hdr_checksum = 0;
  if (!ip_sums) ip->hdr_checksum = rte_ipv4_cksum(ip);
}

bool Offloads::are_sums_good(std::uint64_t flags, Bytes frame) const {
  const std::uint64_t transport = flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
  const bool verified =
      transport == RTE_MBUF_F_RX_L4_CKSUM_GOOD || (partial_is_good && transport == RTE_MBUF_F_RX_L4_CKSUM_NONE);
  if (!verified) return false;
  const std::uint64_t header = flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
  if (header == RTE_MBUF_F_RX_IP_CKSUM_GOOD) return true;
  return header == RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN && is_ip_header_good(frame);
}

}  // namespace rnic::port
