#include "sim/stranger.hpp"

#include "kit/frames.hpp"

namespace rnic::sim {

namespace frames = test::frames;

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
    world_.a_to_b.send(
        frames::arp({.destination = arp->sender_mac, .source = mac_}, {.operation = wire::ArpPacket::kReply,
                                                                       .sender_mac = mac_,
                                                                       .sender_ip = arp->target_ip,
                                                                       .target_mac = arp->sender_mac,
                                                                       .target_ip = arp->sender_ip}),
        world_.clock.now);
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
  put(from, wire::protocol::kTcp, frames::tcp(filled, from, kAddressB, test::text(payload)));
}

void Stranger::sends_icmp(std::uint8_t type, std::uint8_t code, std::uint32_t rest, Bytes quoted) {
  put(kAddress, wire::protocol::kIcmp, frames::icmp({.type = type, .code = code, .rest = rest}, quoted));
}

void Stranger::put(const wire::IpAddress& from, std::uint8_t protocol, Bytes payload) {
  world_.a_to_b.send(
      frames::packet({.destination = world_.b.port.facts().mac, .source = mac_}, protocol, from, kAddressB, payload),
      world_.clock.now);
}

}  // namespace rnic::sim
