#include "decode/packet.hpp"

#include <algorithm>

#include "ip/extensions.hpp"
#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/vlan.hpp"

namespace rnic::tool {
namespace {

using Outcome = PacketParser::Outcome;

constexpr std::size_t kPacketMax = 256 * 1024;  // what an interface that joins segments may show as one
constexpr std::uint16_t kProviderVlan = 0x88A8, kOldProviderVlan = 0x9100;

// Steps over VLAN tags, any number of them. Nothing when they are cut off.
struct Network {
  std::uint16_t type;
  Bytes packet;
};
std::optional<Network> skip_tags(std::uint16_t type, Bytes packet) {
  while (type == wire::ether_type::kVlan || type == kProviderVlan || type == kOldProviderVlan) {
    const auto tag = wire::parse_vlan(packet);
    if (!tag) return std::nullopt;
    type = tag->type;
    packet = packet.subspan(wire::VlanTag::kSize);
  }
  return Network{type, packet};
}

// The IP packet of a frame; empty: none is in it. Nothing: cut off.
std::optional<Bytes> ip_of(LinkType link, Bytes frame) {
  std::uint16_t type = 0;
  std::size_t header = 0;
  switch (link) {
    case LinkType::raw_ip:
      return frame;
    case LinkType::null:  // the sender's number of the address family, in the sender's order
      if (frame.size() < 4) return std::nullopt;
      return frame.subspan(4);
    case LinkType::ethernet:
      if (frame.size() < wire::EthernetHeader::kSize) return std::nullopt;
      type = wire::parse_ethernet(frame)->type;
      header = wire::EthernetHeader::kSize;
      break;
    case LinkType::linux_cooked:
      if (frame.size() < 16) return std::nullopt;
      type = load_be<std::uint16_t>(frame, 14);
      header = 16;
      break;
    case LinkType::linux_cooked_2:
      if (frame.size() < 20) return std::nullopt;
      type = load_be<std::uint16_t>(frame, 0);
      header = 20;
      break;
  }
  const auto network = skip_tags(type, frame.subspan(header));
  if (!network) return std::nullopt;
  if (network->type != wire::ether_type::kIpv4 && network->type != wire::ether_type::kIpv6) return Bytes{};
  return network->packet;
}

// A checksum that is not there because the interface was to fill it in: nothing, or the sum of the
// pseudo-header (with the length or, where the interface also cuts, without).
bool left_to_the_interface(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes segment) {
  const auto field = load_be<std::uint16_t>(segment, wire::TcpHeader::kChecksumOffset);
  if (field == 0) return true;
  for (const std::uint32_t length : {static_cast<std::uint32_t>(segment.size()), 0u}) {
    const auto sum = wire::pseudo_header(source, destination, wire::protocol::kTcp, length);
    if (field == static_cast<std::uint16_t>(~wire::checksum_of(sum))) return true;
  }
  return false;
}

}  // namespace

// How many of these octets, which end somewhere in the packet, were not captured.
std::size_t PacketParser::missing_behind(Bytes octets) const {
  const std::byte* end = octets.data() + octets.size();
  const std::byte* real = whole_.data() + captured_;
  return end > real ? std::min<std::size_t>(static_cast<std::size_t>(end - real), octets.size()) : 0;
}

Outcome PacketParser::parse(LinkType link, Bytes captured, std::uint32_t length) {
  // At its full length, so that the codecs see the lengths that the sender wrote.
  captured_ = std::min(captured.size(), kPacketMax);
  whole_.assign(captured.begin(), captured.begin() + static_cast<std::ptrdiff_t>(captured_));
  whole_.resize(std::clamp<std::size_t>(length, captured_, kPacketMax));
  const auto packet = ip_of(link, whole_);
  if (!packet) return Outcome::malformed;
  if (packet->empty()) return Outcome::other;
  return on_ip(*packet);
}

Outcome PacketParser::on_ip(Bytes packet) {
  const auto version = std::to_integer<unsigned>(packet[0]) >> 4;
  if (version == 4) {
    if (packet.size() < wire::Ipv4Header::kSize) return Outcome::malformed;
    // Captured before the interface cut it: the length was not written yet.
    if (load_be<std::uint16_t>(packet, 2) == 0)
      store_be(MutableBytes(whole_).last(packet.size()), 2,
               static_cast<std::uint16_t>(std::min<std::size_t>(packet.size(), 65535)));
    const auto ip = wire::parse_ipv4(packet);
    if (!ip) return Outcome::malformed;
    const Bytes payload = packet.subspan(ip->header_size, ip->payload_size());
    if (ip->header.protocol == wire::protocol::kUdp && !ip->header.is_fragment())
      return on_udp(ip->header.source, ip->header.destination, payload);
    if (ip->header.protocol != wire::protocol::kTcp) return Outcome::other;
    if (ip->header.is_fragment()) return Outcome::fragment;
    return on_tcp(ip->header.source, ip->header.destination, payload);
  }
  if (version != 6) return Outcome::other;
  const auto ip = wire::parse_ipv6(packet);
  if (!ip) return Outcome::malformed;
  Bytes payload = packet.subspan(wire::Ipv6Header::kSize);
  if (ip->payload_length != 0) payload = payload.first(ip->payload_length);
  const ip::Walk walk = ip::walk_extensions(ip->next_header, payload);
  switch (walk.end) {
    case ip::Walk::End::upper:
      break;
    case ip::Walk::End::nothing:
      return Outcome::other;
    case ip::Walk::End::fragment:
      return on_ipv6_fragment(ip->source, ip->destination, payload.subspan(walk.offset));
    case ip::Walk::End::drop:
    case ip::Walk::End::problem:
      return Outcome::malformed;
  }
  if (walk.protocol == wire::protocol::kUdp) return on_udp(ip->source, ip->destination, payload.subspan(walk.offset));
  if (walk.protocol != wire::protocol::kTcp) return Outcome::other;
  return on_tcp(ip->source, ip->destination, payload.subspan(walk.offset));
}

// Only one that is the whole of its packet tells anything (RFC 6946).
Outcome PacketParser::on_ipv6_fragment(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes rest) {
  const auto parsed = wire::parse_ipv6_fragment(rest);
  if (!parsed) return Outcome::malformed;
  if (parsed->fragment.more || parsed->fragment.offset_bytes != 0) return Outcome::fragment;
  const Bytes payload = rest.subspan(wire::Ipv6Fragment::kSize);
  const ip::Walk walk = ip::walk_extensions(parsed->next_header, payload, ip::Behind::another_header);
  if (walk.end != ip::Walk::End::upper) return Outcome::malformed;
  if (walk.protocol != wire::protocol::kTcp) return Outcome::other;
  return on_tcp(source, destination, payload.subspan(walk.offset));
}

// What is not here whole can be judged by nobody.
Outcome PacketParser::on_udp(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes whole) {
  const auto header = wire::parse_udp(whole);
  if (!header || missing_behind(whole.first(header->length)) != 0) return Outcome::malformed;
  datagram_ = {.source = source,
               .destination = destination,
               .header = *header,
               .payload = whole.subspan(wire::UdpHeader::kSize, header->length - wire::UdpHeader::kSize)};
  return Outcome::udp;
}

Outcome PacketParser::on_tcp(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes segment) {
  const auto parsed = wire::parse_tcp(segment);
  if (!parsed || missing_behind(segment.first(parsed->data_offset)) != 0) return Outcome::malformed;
  packet_ = {.source = source, .destination = destination, .header = parsed->header, .payload = {}, .cut = 0};
  const Bytes payload = segment.subspan(parsed->data_offset);
  packet_.cut = missing_behind(payload);
  packet_.payload = payload.first(payload.size() - packet_.cut);
  if (packet_.cut == 0 && wire::transport_checksum(source, destination, wire::protocol::kTcp, segment) != 0 &&
      !left_to_the_interface(source, destination, segment))
    return Outcome::corrupted;
  return Outcome::tcp;
}

}  // namespace rnic::tool
