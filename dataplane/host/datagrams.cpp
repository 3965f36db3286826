#include "host/datagrams.hpp"

#include <algorithm>
#include <cstring>

#include "wire/ecn.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/udp.hpp"

namespace rnic::host {

namespace {
constexpr std::uint32_t kIpMax = wire::Ipv6Header::kSize;
constexpr std::uint32_t kUdp = wire::UdpHeader::kSize;
constexpr unsigned kLoopKept = 1024;  // places of the loop that are streams'
static_assert(wire::kLinkHeaderMax + kIpMax + kUdp + 28 <= kHeadroom);
}  // namespace

// ---- in -----------------------------------------------------------------------------------

bool Datagrams::take(const Packet& packet, Bytes udp, BufferRef frame, Instant now) {
  if (user_ == nullptr) [[likely]]
    return false;
  const auto header = wire::parse_udp(udp);
  if (!header) {
    ++counters_.bad_frames;
    return true;
  }
  if (header->destination_port != port_) return false;
  // Who speaks for us and is not ourselves, or has no address to answer to.
  const bool from_us = !packet.looped && station_.routes().is_self(packet.from);
  if (!frame || from_us || packet.from.is_unspecified()) {
    ++counters_.bad_frames;
    return true;
  }
  const Bytes whole = udp.first(header->length);
  if (!packet.trusted && !wire::udp_checksum_is_good(packet.from, packet.to, whole)) {
    ++counters_.bad_checksums;
    return true;
  }
  const bool v6 = packet.from.is_v6();
  const auto first = load_be<std::uint32_t>(packet.whole, 0);
  user_->on_datagram({.from = packet.from,
                      .to = packet.to,
                      .traffic_class = static_cast<std::uint8_t>(v6 ? first >> 20 : first >> 16),
                      .hop_limit = packet.hop_limit,
                      .flow_label = v6 ? first & 0xFFFFF : 0,
                      .payload = whole.subspan(kUdp),
                      .frame = std::move(frame)},
                     now);
  return true;
}

// ---- out ----------------------------------------------------------------------------------

std::uint32_t Datagrams::payload_max() const {
  constexpr std::uint32_t kHeaders = kIpMax + kUdp;
  const std::uint32_t frame = link_.mtu_bytes() - std::min(link_.mtu_bytes(), kHeaders);
  // The whole frame is to fit one buffer, as a receiver may put it into one like it.
  const std::uint32_t room = link_.port().pool().room_bytes();
  return std::min(frame, room - std::min(room, wire::kLinkHeaderMax + kHeaders));
}

bool Datagrams::has_room(const wire::IpAddress& to) const {
  return station_.routes().is_self(to) ? link_.loop_room() > kLoopKept : link_.has_room();
}

void Datagrams::send(BufferRef datagram, const Way& way, Instant now) {
  const ip::Routes& routes = station_.routes();
  const bool to_group = way.to.is_multicast();
  const bool own = !to_group && routes.is_self(way.to);
  const auto next = to_group ? std::optional(way.to) : routes.next_hop(way.to);
  if (!next || way.from.is_v4() != way.to.is_v4()) {
    ++counters_.datagrams_without_way;
    return;
  }
  // Each length before a header is in front.
  const auto udp_size = static_cast<std::uint16_t>(datagram->length + kUdp);
  datagram->prepend(kUdp);
  wire::emit_udp(port_, port_, way.from, way.to, datagram->bytes());
  const auto traffic_class = static_cast<std::uint8_t>(way.traffic_class & 0xFC);  // not capable of ECN
  if (way.to.is_v6()) {
    const std::uint8_t hops = way.hop_limit != 0 ? way.hop_limit : hop_limit_.value_or(station_.hop_limit_v6());
    wire::emit(wire::Ipv6Header{.traffic_class = traffic_class,
                                .flow_label = way.flow_label,
                                .payload_length = udp_size,
                                .next_header = wire::protocol::kUdp,
                                .hop_limit = hops,
                                .source = way.from,
                                .destination = way.to},
               datagram->prepend(kIpMax));
  } else {
    const std::uint8_t ttl = way.hop_limit != 0 ? way.hop_limit : hop_limit_.value_or(wire::Ipv4Header::kDefaultTtl);
    wire::emit(wire::Ipv4Header{.traffic_class = traffic_class,
                                .total_length = static_cast<std::uint16_t>(wire::Ipv4Header::kSize + udp_size),
                                .dont_fragment = true,
                                .ttl = ttl,
                                .protocol = wire::protocol::kUdp,
                                .source = way.from,
                                .destination = way.to},
               datagram->prepend(wire::Ipv4Header::kSize));
  }
  const std::uint16_t type = way.to.is_v6() ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4;
  ++counters_.datagrams_out;
  if (to_group) {
    link_.write_header(wire::multicast_mac(way.to), type, datagram->prepend(link_.header_size()));
    if (station_.listens_to(way.to)) loop_copy(*datagram);
    link_.push(std::move(datagram), now);
    return;
  }
  const auto hop = own ? std::nullopt : station_.neighbours().resolve(*next, now);
  link_.write_header(hop ? hop->mac : link_.mac(), type, datagram->prepend(link_.header_size()));
  if (own)
    link_.push_loop(std::move(datagram));
  else if (hop)
    link_.push(std::move(datagram), now);
  else
    station_.neighbours().hold(*next, std::move(datagram));
}

// What goes to a group that we listen to is for us, too; the other copy is the port's.
void Datagrams::loop_copy(const Buffer& frame) {
  if (link_.loop_room() <= kLoopKept) {
    ++counters_.frames_dropped;
    return;
  }
  BufferRef copy = BufferRef::take(link_.port().pool(), frame.length + kHeadroom);
  if (!copy || copy->tailroom() < frame.length) {
    ++counters_.no_buffer;
    return;
  }
  std::memcpy(copy->append(frame.length).data(), frame.bytes().data(), frame.length);
  link_.push_loop(std::move(copy));
}

}  // namespace rnic::host
