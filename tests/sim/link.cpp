#include "sim/link.hpp"

#include <algorithm>

#include "wire/arp.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/tcp.hpp"

namespace rnic::sim {

void Link::send(Bytes frame, Instant now) {
  const std::uint64_t number = frames_++;
  const bool on_purpose = number < 64 && (options_.loss_pattern >> number & 1) != 0;
  if (on_purpose || random_.chance(options_.loss_per_1000)) {
    if (watcher_) watcher_(frame, now, Fate::lost);
    return;
  }
  Frame copy(frame.begin(), frame.end());
  Fate fate = Fate::sent;
  if (random_.chance(options_.corrupt_per_1000)) {
    const std::uint64_t bit = random_.below(copy.size() * 8);
    // ARP has no checksum but the link's own, which would have had the frame dropped.
    const auto link = wire::parse_ethernet(copy);
    if (link && link->type == wire::ether_type::kArp) {
      if (watcher_) watcher_(frame, now, Fate::lost);
      return;
    }
    copy[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    fate = Fate::corrupted;
  }
  if (random_.chance(options_.repeat_per_1000)) {
    deliver(copy, now);
    fate = Fate::repeated;
  }
  if (watcher_) watcher_(frame, now, fate);
  deliver(std::move(copy), now);
}

void Link::deliver(Frame frame, Instant now) {
  free_at_ = std::max(free_at_, now) + options_.per_frame;
  Instant arrival = free_at_ + options_.delay;
  if (options_.jitter_max.ns > 0)
    arrival = arrival +
              Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(options_.jitter_max.ns)))};
  in_flight_.push({arrival, order_++, std::make_shared<Frame>(std::move(frame))});
}

std::optional<Frame> Link::receive(Instant now) {
  if (next_arrival() > now) return std::nullopt;
  Frame frame = std::move(*in_flight_.top().frame);
  in_flight_.pop();
  return frame;
}

std::string describe(Bytes frame) {
  const auto link = wire::parse_ethernet(frame);
  if (!link) return "runt";
  const Bytes packet = frame.subspan(wire::EthernetHeader::kSize);
  if (link->type == wire::ether_type::kArp) {
    const auto arp = wire::parse_arp(packet);
    if (!arp) return "bad ARP";
    return (arp->operation == wire::ArpPacket::kRequest ? "who has " + to_string(arp->target_ip)
                                                        : "it is me: " + to_string(arp->sender_ip));
  }
  const auto ip = wire::parse_ipv4(packet);
  if (!ip) return "not IPv4";
  const Bytes segment = packet.subspan(ip->header_size, ip->payload_size());
  const auto tcp = wire::parse_tcp(segment);
  if (ip->header.protocol != wire::protocol::kTcp || !tcp) return "not TCP";
  const wire::TcpHeader& header = tcp->header;
  std::string flags;
  for (const auto& [bit, letter] : {std::pair{wire::tcp_flags::kSyn, 'S'},
                                    {wire::tcp_flags::kFin, 'F'},
                                    {wire::tcp_flags::kRst, 'R'},
                                    {wire::tcp_flags::kPsh, 'P'},
                                    {wire::tcp_flags::kAck, '.'}})
    if (header.has(bit)) flags += letter;
  std::string line = std::to_string(header.source_port) + ">" + std::to_string(header.destination_port) + " " + flags +
                     " seq " + std::to_string(header.sequence) + " len " +
                     std::to_string(segment.size() - tcp->data_offset) + " ack " +
                     std::to_string(header.acknowledgement) + " win " + std::to_string(header.window);
  if (header.timestamps)
    line += " ts " + std::to_string(header.timestamps->value) + " " + std::to_string(header.timestamps->echo);
  for (std::size_t i = 0; i < header.sack_count; ++i)
    line += " sack " + std::to_string(header.sack[i].first) + "-" + std::to_string(header.sack[i].end);
  return line;
}

}  // namespace rnic::sim
