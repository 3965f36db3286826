#include "sim/stranger.hpp"

#include <algorithm>

#include "wire/arp.hpp"
#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"

namespace rnic::sim {

Stranger::Stranger(World& world) : world_(world) {
  world.b_to_a.watch([this](Bytes frame, Instant, Link::Fate) { hear(frame); });
}

void Stranger::hear(Bytes frame) {
  const auto link = wire::parse_ethernet(frame);
  if (!link) return;
  const Bytes packet = frame.subspan(wire::EthernetHeader::kSize);
  if (link->type == wire::ether_type::kArp) {
    const auto arp = wire::parse_arp(packet);
    if (!arp || arp->operation != wire::ArpPacket::kRequest || arp->target_ip == kAddressA) return;
    if (arp->target_ip == arp->sender_ip) return;  // an announcement
    ++asked;
    if (keeps_silent_in_arp) return;
    std::vector<std::byte> answer(60);
    wire::emit(wire::EthernetHeader{.destination = arp->sender_mac, .source = mac_, .type = wire::ether_type::kArp},
               answer);
    wire::emit(wire::ArpPacket{.operation = wire::ArpPacket::kReply,
                               .sender_mac = mac_,
                               .sender_ip = arp->target_ip,
                               .target_mac = arp->sender_mac,
                               .target_ip = arp->sender_ip},
               MutableBytes(answer).subspan(wire::EthernetHeader::kSize));
    world_.a_to_b.send(answer, world_.clock.now);
    return;
  }
  const auto ip = wire::parse_ipv4(packet);
  if (!ip || ip->header.protocol != wire::protocol::kTcp || ip->header.destination == kAddressA) return;
  const auto tcp = wire::parse_tcp(packet.subspan(ip->header_size, ip->payload_size()));
  if (tcp)
    heard.push_back({ip->header.destination, tcp->header, ip->payload_size() - tcp->data_offset, world_.clock.now});
}

void Stranger::says(const wire::IpAddress& from, wire::TcpHeader header, const std::string& payload) {
  sends(from, header, payload);
  world_.run_for(world_.a_to_b.options().delay + microseconds(100));
}

void Stranger::sends(const wire::IpAddress& from, const wire::TcpHeader& header, const std::string& payload) {
  wire::TcpHeader filled = header;
  if (filled.source_port == 0) filled.source_port = source_port;
  if (filled.destination_port == 0) filled.destination_port = destination_port;
  std::vector<std::byte> segment(wire::header_size(filled) + payload.size());
  const std::size_t size = wire::emit(filled, segment);
  std::transform(payload.begin(), payload.end(), segment.begin() + static_cast<std::ptrdiff_t>(size),
                 [](char c) { return static_cast<std::byte>(c); });
  store_be(MutableBytes(segment), wire::TcpHeader::kChecksumOffset,
           wire::transport_checksum(from, kAddressB, wire::protocol::kTcp, segment));
  put(from, wire::protocol::kTcp, segment);
}

void Stranger::sends_icmp(std::uint8_t type, std::uint8_t code, std::uint32_t rest, Bytes quoted) {
  std::vector<std::byte> message(wire::IcmpHeader::kSize + quoted.size());
  wire::emit(wire::IcmpHeader{.type = type, .code = code, .rest = rest}, message);
  std::copy(quoted.begin(), quoted.end(), message.begin() + wire::IcmpHeader::kSize);
  wire::icmp_set_checksum(message);
  put(kAddress, wire::protocol::kIcmp, message);
}

void Stranger::put(const wire::IpAddress& from, std::uint8_t protocol, Bytes payload) {
  std::vector<std::byte> frame(wire::EthernetHeader::kSize + wire::Ipv4Header::kSize + payload.size());
  const MutableBytes out(frame);
  wire::emit(
      wire::EthernetHeader{.destination = world_.b.port.facts().mac, .source = mac_, .type = wire::ether_type::kIpv4},
      out);
  wire::emit(wire::Ipv4Header{.total_length = static_cast<std::uint16_t>(wire::Ipv4Header::kSize + payload.size()),
                              .protocol = protocol,
                              .source = from,
                              .destination = kAddressB},
             out.subspan(wire::EthernetHeader::kSize));
  std::copy(payload.begin(), payload.end(), frame.begin() + wire::EthernetHeader::kSize + wire::Ipv4Header::kSize);
  world_.a_to_b.send(frame, world_.clock.now);
}

}  // namespace rnic::sim
