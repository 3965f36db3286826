// Frames by hand, from the link to the segment: each function puts one header in front of what it carries, with the
// lengths and checksums that belong there. Whose addresses they are the caller says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kit/hex.hpp"
#include "wire/arp.hpp"
#include "wire/ethernet.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/tcp.hpp"
#include "wire/udp.hpp"
#include "wire/vlan.hpp"

namespace rnic::test {
using Octets = std::vector<std::byte>;
}

namespace rnic::test::frames {

// Behind VLAN tags of these ids, the outer first.
inline Octets ethernet(const wire::EthernetHeader& header, Bytes payload, std::span<const std::uint16_t> tags = {}) {
  Octets frame(wire::EthernetHeader::kSize + tags.size() * wire::VlanTag::kSize);
  MutableBytes at(frame);
  wire::EthernetHeader first = header;
  if (!tags.empty()) first.type = wire::ether_type::kVlan;
  wire::emit(first, at);
  at = at.subspan(wire::EthernetHeader::kSize);
  for (std::size_t i = 0; i < tags.size(); ++i, at = at.subspan(wire::VlanTag::kSize))
    wire::emit(wire::VlanTag{.id = tags[i], .type = i + 1 == tags.size() ? header.type : wire::ether_type::kVlan}, at);
  append(frame, payload);
  return frame;
}

// As long as a frame is at least.
inline Octets arp(const wire::EthernetHeader& header, const wire::ArpPacket& packet) {
  wire::EthernetHeader typed = header;
  typed.type = wire::ether_type::kArp;
  Octets body(46);
  wire::emit(packet, body);
  return ethernet(typed, body);
}

inline Octets ipv4(const wire::Ipv4Header& header, Bytes payload) {
  Octets packet(wire::Ipv4Header::kSize);
  wire::Ipv4Header sized = header;
  sized.total_length = static_cast<std::uint16_t>(packet.size() + payload.size());
  wire::emit(sized, packet);
  append(packet, payload);
  return packet;
}

inline Octets ipv6(const wire::Ipv6Header& header, Bytes payload) {
  Octets packet(wire::Ipv6Header::kSize);
  wire::Ipv6Header sized = header;
  sized.payload_length = static_cast<std::uint16_t>(payload.size());
  wire::emit(sized, packet);
  append(packet, payload);
  return packet;
}

// IPv4 or IPv6, as `from` is, in Ethernet.
inline Octets packet(wire::EthernetHeader link, std::uint8_t protocol, const wire::IpAddress& from,
                     const wire::IpAddress& to, Bytes payload, std::span<const std::uint16_t> tags = {}) {
  if (from.is_v4()) {
    link.type = wire::ether_type::kIpv4;
    return ethernet(link, ipv4({.protocol = protocol, .source = from, .destination = to}, payload), tags);
  }
  link.type = wire::ether_type::kIpv6;
  return ethernet(link, ipv6({.next_header = protocol, .source = from, .destination = to}, payload), tags);
}

inline Octets udp(std::uint16_t from_port, std::uint16_t to_port, const wire::IpAddress& from,
                  const wire::IpAddress& to, Bytes payload) {
  Octets datagram(wire::UdpHeader::kSize);
  append(datagram, payload);
  wire::emit_udp(from_port, to_port, from, to, datagram);
  return datagram;
}

inline Octets tcp(const wire::TcpHeader& header, const wire::IpAddress& from, const wire::IpAddress& to,
                  Bytes payload = {}) {
  Octets segment(wire::header_size(header));
  wire::emit(header, segment);
  append(segment, payload);
  store_be(MutableBytes(segment), wire::TcpHeader::kChecksumOffset,
           wire::transport_checksum(from, to, wire::protocol::kTcp, segment));
  return segment;
}

inline Octets icmp(const wire::IcmpHeader& header, Bytes body) {
  Octets message(wire::IcmpHeader::kSize);
  wire::emit(header, message);
  append(message, body);
  wire::icmp_set_checksum(message);
  return message;
}

inline Octets icmp6(const wire::IcmpHeader& header, Bytes body, const wire::IpAddress& from,
                    const wire::IpAddress& to) {
  Octets message(wire::IcmpHeader::kSize);
  wire::emit(header, message);
  append(message, body);
  wire::icmp6_set_checksum(message, from, to);
  return message;
}

// What an ICMP error says of a segment: the header of its packet, of the length that is said there, and 8 octets.
inline Octets quote(wire::Ipv4Header of, const wire::TcpHeader& segment) {
  Octets quoted(wire::Ipv4Header::kSize + 8);
  of.protocol = wire::protocol::kTcp;
  wire::emit(of, quoted);
  store_be(MutableBytes(quoted), wire::Ipv4Header::kSize, segment.source_port);
  store_be(MutableBytes(quoted), wire::Ipv4Header::kSize + 2, segment.destination_port);
  store_be(MutableBytes(quoted), wire::Ipv4Header::kSize + 4, segment.sequence);
  return quoted;
}

// Right again, of a frame that was changed: IPv4's checksum, and those of TCP, ICMP and ICMPv6, as far as the frame's
// own lengths let it.
inline void fix_checksums(MutableBytes frame) {
  if (frame.size() < wire::EthernetHeader::kSize) return;
  const MutableBytes packet = frame.subspan(wire::EthernetHeader::kSize);
  const auto fix = [](std::uint8_t protocol, const wire::IpAddress& from, const wire::IpAddress& to,
                      MutableBytes payload) {
    std::size_t at = 0;
    if (protocol == wire::protocol::kTcp) at = wire::TcpHeader::kChecksumOffset;
    if (protocol == wire::protocol::kIcmp || protocol == wire::protocol::kIcmpV6) at = 2;
    if (at == 0 || payload.size() < at + 2) return;
    store_be<std::uint16_t>(payload, at, 0);
    store_be(payload, at,
             protocol == wire::protocol::kIcmp ? wire::checksum_of(Bytes(payload))
                                               : wire::transport_checksum(from, to, protocol, payload));
  };
  const auto type = load_be<std::uint16_t>(frame, 12);
  if (type == wire::ether_type::kIpv4) {
    const auto parsed = wire::parse_ipv4(packet);
    if (!parsed) return;
    store_be<std::uint16_t>(packet, 10, 0);
    store_be(packet, 10, wire::checksum_of(Bytes(packet.first(parsed->header_size))));
    fix(parsed->header.protocol, parsed->header.source, parsed->header.destination,
        packet.subspan(parsed->header_size, parsed->payload_size()));
  } else if (type == wire::ether_type::kIpv6 && packet.size() >= 40) {
    const std::size_t size = std::min<std::size_t>(load_be<std::uint16_t>(packet, 4), packet.size() - 40);
    fix(load_be<std::uint8_t>(packet, 6), wire::IpAddress::load_v6(packet, 8), wire::IpAddress::load_v6(packet, 24),
        packet.subspan(40, size));
  }
}

}  // namespace rnic::test::frames
