#include "sim/link.hpp"

#include <algorithm>

#include "wire/arp.hpp"
#include "wire/ecn.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/tcp.hpp"
#include "wire/vlan.hpp"

namespace rnic::sim {

namespace {

// Where IP begins, and which; 0: it is none.
struct IpPlace {
  std::size_t offset = 0;
  std::uint16_t type = 0;
};
IpPlace ip_in(Bytes frame) {
  const auto link = wire::parse_ethernet(frame);
  if (!link) return {};
  if (link->type != wire::ether_type::kVlan) return {wire::EthernetHeader::kSize, link->type};
  const auto tag = wire::parse_vlan(frame.subspan(wire::EthernetHeader::kSize));
  if (!tag) return {};
  return {wire::EthernetHeader::kSize + wire::VlanTag::kSize, tag->type};
}

// A whole TCP packet as two fragments, cut at a place by chance; nothing of any other.
std::vector<Frame> cut(Bytes frame, Random& random, std::uint16_t identification) {
  const IpPlace place = ip_in(frame);
  const Bytes packet = frame.subspan(std::min(place.offset, frame.size()));
  const auto four = place.type == wire::ether_type::kIpv4 ? wire::parse_ipv4(packet) : std::nullopt;
  const auto six = place.type == wire::ether_type::kIpv6 ? wire::parse_ipv6(packet) : std::nullopt;
  if (!(four && four->header.protocol == wire::protocol::kTcp) && !(six && six->next_header == wire::protocol::kTcp))
    return {};
  const std::size_t header = four ? four->header_size : wire::Ipv6Header::kSize;
  const std::size_t size = four ? four->payload_size() : six->payload_length;
  const std::size_t at = random.between(1, (size - 1) / 8) * 8;
  std::vector<Frame> halves;
  for (const bool first : {true, false}) {
    const Bytes part = packet.subspan(header, size).subspan(first ? 0 : at, first ? at : size - at);
    Frame& half = halves.emplace_back(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(place.offset));
    const auto append = [&](std::size_t octets) {
      half.resize(half.size() + octets);
      return MutableBytes(half).last(octets);
    };
    if (four) {
      wire::Ipv4Header changed = four->header;
      changed.total_length = static_cast<std::uint16_t>(wire::Ipv4Header::kSize + part.size());
      changed.identification = identification;
      changed.dont_fragment = false;
      changed.more_fragments = first;
      changed.fragment_offset_bytes = static_cast<std::uint16_t>(first ? 0 : at);
      wire::emit(changed, append(wire::Ipv4Header::kSize));
    } else {
      wire::Ipv6Header changed = *six;
      changed.payload_length = static_cast<std::uint16_t>(wire::Ipv6Fragment::kSize + part.size());
      changed.next_header = wire::ipv6_next::kFragment;
      wire::emit(changed, append(wire::Ipv6Header::kSize));
      const MutableBytes fragment = append(wire::Ipv6Fragment::kSize);
      store_be<std::uint16_t>(fragment, 0, static_cast<std::uint16_t>(wire::protocol::kTcp << 8));
      store_be(fragment, 2, static_cast<std::uint16_t>(first ? 1 : at));
      store_be<std::uint32_t>(fragment, 4, identification);
    }
    std::copy(part.begin(), part.end(), append(part.size()).begin());
  }
  return halves;
}

// Congestion experienced (RFC 3168 s5), if the sender allows it.
void mark(Frame& frame) {
  const IpPlace place = ip_in(frame);
  const MutableBytes packet = MutableBytes(frame).subspan(std::min(place.offset, frame.size()));
  if (auto four = wire::parse_ipv4(packet); place.type == wire::ether_type::kIpv4 && four) {
    if ((four->header.traffic_class & 3) == wire::ecn::kNotCapable || four->header_size != wire::Ipv4Header::kSize)
      return;
    four->header.traffic_class |= wire::ecn::kCongestion;
    wire::emit(four->header, packet);
  } else if (auto six = wire::parse_ipv6(packet); place.type == wire::ether_type::kIpv6 && six) {
    if ((six->traffic_class & 3) == wire::ecn::kNotCapable) return;
    six->traffic_class |= wire::ecn::kCongestion;
    wire::emit(*six, packet);
  }
}

}  // namespace

void Link::send(Bytes original, Instant now) {
  Frame edited;
  Bytes frame = original;
  if (editor_) {
    edited.assign(original.begin(), original.end());
    editor_(edited);
    frame = edited;
  }
  if (options_.fragment_per_1000 > 0 && random_.chance(options_.fragment_per_1000)) {
    const auto halves = cut(frame, random_, ++fragmented_);
    // No two flips in one packet: together they could cancel in TCP's checksum, which catches one always. What chance
    // would draw is drawn all the same, so that the story of no other seed changes.
    bool flipped = false;
    for (const Frame& half : halves) flipped |= carry(half, now, flipped);
    if (!halves.empty()) return;
  }
  carry(frame, now, false);
}

// Whether a bit was flipped.
bool Link::carry(Bytes frame, Instant now, bool spare) {
  const std::uint64_t number = frames_++;
  if (tap_) tap_(frame);
  if (options_.frame_max_bytes != 0 && frame.size() > options_.frame_max_bytes) {
    if (watcher_) watcher_(frame, now, Fate::lost);
    if (too_large_) too_large_(frame);
    return false;
  }
  const bool on_purpose = number < 64 && (options_.loss_pattern >> number & 1) != 0;
  if (on_purpose || random_.chance(options_.loss_per_1000)) {
    if (watcher_) watcher_(frame, now, Fate::lost);
    return false;
  }
  Frame copy(frame.begin(), frame.end());
  Fate fate = Fate::sent;
  if (options_.mark_per_1000 > 0 && random_.chance(options_.mark_per_1000)) mark(copy);
  if (random_.chance(options_.corrupt_per_1000)) {
    const std::uint64_t bit = random_.below(copy.size() * 8);
    // ARP has no checksum but the link's own, which would have had the frame dropped.
    if (ip_in(copy).type == wire::ether_type::kArp) {
      if (watcher_) watcher_(frame, now, Fate::lost);
      return false;
    }
    if (!spare) {
      copy[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      fate = Fate::corrupted;
    }
  }
  const bool flipped = fate == Fate::corrupted;
  if (random_.chance(options_.repeat_per_1000)) {
    deliver(copy, now);
    fate = Fate::repeated;
  }
  if (watcher_) watcher_(frame, now, fate);
  deliver(std::move(copy), now);
  return flipped;
}

void Link::deliver(Frame frame, Instant now) {
  if (options_.queue_max.ns > 0 && free_at_ > now + options_.queue_max) {
    ++dropped_;
    return;
  }
  if (options_.mark_above.ns > 0 && free_at_ > now + options_.mark_above) mark(frame);
  free_at_ =
      std::max(free_at_, now) + options_.per_frame + options_.per_octet * static_cast<std::int64_t>(frame.size());
  if (options_.line_mbps > 0)
    free_at_ =
        free_at_ + Duration{static_cast<std::int64_t>(static_cast<double>(frame.size()) * 8000 / options_.line_mbps)};
  Instant arrival = free_at_ + options_.delay;
  if (options_.jitter_max.ns > 0)
    arrival = arrival +
              Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(options_.jitter_max.ns)))};
  if (options_.late_per_1000 != 0 && random_.chance(options_.late_per_1000)) arrival = arrival + options_.late;
  in_flight_.push({arrival, order_++, std::make_shared<Frame>(std::move(frame))});
}

std::optional<Frame> Link::receive(Instant now) {
  if (next_arrival() > now) return std::nullopt;
  Frame frame = std::move(*in_flight_.top().frame);
  in_flight_.pop();
  return frame;
}

std::string describe(Bytes frame) {
  const IpPlace place = ip_in(frame);
  if (place.offset == 0) return "runt";
  std::string vlan;
  if (place.offset > wire::EthernetHeader::kSize)
    vlan = "vlan " + std::to_string(wire::parse_vlan(frame.subspan(wire::EthernetHeader::kSize))->id) + " ";
  const Bytes packet = frame.subspan(place.offset);
  if (place.type == wire::ether_type::kArp) {
    const auto arp = wire::parse_arp(packet);
    if (!arp) return vlan + "bad ARP";
    return vlan + (arp->operation == wire::ArpPacket::kRequest ? "who has " + to_string(arp->target_ip)
                                                               : "it is me: " + to_string(arp->sender_ip));
  }
  Bytes segment;
  if (const auto ip = place.type == wire::ether_type::kIpv4 ? wire::parse_ipv4(packet) : std::nullopt) {
    if (ip->header.is_fragment())
      return vlan + "fragment " + std::to_string(ip->header.identification) + " at " +
             std::to_string(ip->header.fragment_offset_bytes) + " len " + std::to_string(ip->payload_size());
    if (ip->header.protocol != wire::protocol::kTcp) return vlan + "IPv4, not TCP";
    segment = packet.subspan(ip->header_size, ip->payload_size());
  } else if (const auto six = place.type == wire::ether_type::kIpv6 ? wire::parse_ipv6(packet) : std::nullopt) {
    segment = packet.subspan(wire::Ipv6Header::kSize, six->payload_length);
    if (six->next_header == wire::ipv6_next::kFragment) {
      const auto fragment = wire::parse_ipv6_fragment(segment);
      return vlan + "fragment " + std::to_string(fragment ? fragment->fragment.identification : 0) + " at " +
             std::to_string(fragment ? fragment->fragment.offset_bytes : 0) + " len " + std::to_string(segment.size());
    }
    if (six->next_header == wire::protocol::kIcmpV6 && !segment.empty())
      return vlan + "ICMPv6 " + std::to_string(load_be<std::uint8_t>(segment, 0)) + " to " +
             to_string(six->destination);
    if (six->next_header != wire::protocol::kTcp) return vlan + "IPv6, not TCP";
  } else {
    return vlan + "not IP";
  }
  const auto tcp = wire::parse_tcp(segment);
  if (!tcp) return vlan + "bad TCP";
  const wire::TcpHeader& header = tcp->header;
  std::string flags;
  for (const auto& [bit, letter] : {std::pair{wire::tcp_flags::kSyn, 'S'},
                                    {wire::tcp_flags::kFin, 'F'},
                                    {wire::tcp_flags::kRst, 'R'},
                                    {wire::tcp_flags::kPsh, 'P'},
                                    {wire::tcp_flags::kAck, '.'}})
    if (header.has(bit)) flags += letter;
  std::string line = vlan + std::to_string(header.source_port) + ">" + std::to_string(header.destination_port) + " " +
                     flags + " seq " + std::to_string(header.sequence) + " len " +
                     std::to_string(segment.size() - tcp->data_offset) + " ack " +
                     std::to_string(header.acknowledgement) + " win " + std::to_string(header.window);
  if (header.timestamps)
    line += " ts " + std::to_string(header.timestamps->value) + " " + std::to_string(header.timestamps->echo);
  for (std::size_t i = 0; i < header.sack_count; ++i)
    line += " sack " + std::to_string(header.sack[i].first) + "-" + std::to_string(header.sack[i].end);
  return line;
}

}  // namespace rnic::sim
