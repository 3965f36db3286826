#include "sim/attacker.hpp"

#include "kit/frames.hpp"

namespace rnic::sim {

namespace flag = wire::tcp_flags;
namespace frames = test::frames;

namespace {
constexpr std::size_t kSeenMax = 32;
constexpr wire::Mac kRouter{{2, 0, 0, 0, 0, 0x99}};
const wire::IpAddress& address_of(const Rnic& rnic) { return rnic.device.options().addresses[0].address; }
}  // namespace

Attacker::Attacker(World& world, Where where, std::uint64_t seed, std::uint16_t server_port)
    : world_(world), where_(where), random_(seed ^ 0xA77AC), server_port_(server_port) {
  world_.a_to_b.tap([this](Bytes frame) { see(true, frame); });
  world_.b_to_a.tap([this](Bytes frame) { see(false, frame); });
}

Attacker::~Attacker() {
  world_.a_to_b.tap(nullptr);
  world_.b_to_a.tap(nullptr);
}

void Attacker::begin() {
  if (next_ == kNever && blows_ == 0) next_ = world_.clock.now;
}

void Attacker::act() {
  const unsigned most = where_ == Where::off_path ? kBlowsOffPath : kBlowsOnPath;
  while (next_ <= world_.clock.now) {
    if (where_ == Where::off_path)
      strike_blindly();
    else
      strike_knowingly();
    // In bursts, and now and then.
    const std::uint64_t pause_us = random_.chance(50) ? random_.below(20'000) : random_.below(50);
    next_ = ++blows_ < most ? next_ + microseconds(static_cast<std::int64_t>(pause_us)) : kNever;
  }
}

// Frames pass here as they are handed to the wire; his own are among them, and told by the router's
// address.
void Attacker::see(bool from_a, Bytes frame) {
  const auto link = wire::parse_ethernet(frame);
  if (!link || link->type != wire::ether_type::kIpv4 || link->source == kRouter) return;
  const Bytes packet = frame.subspan(wire::EthernetHeader::kSize);
  const auto ip = wire::parse_ipv4(packet);
  if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
  const Bytes segment = packet.subspan(ip->header_size, ip->payload_size());
  const auto tcp = wire::parse_tcp(segment);
  if (!tcp) return;
  Seen seen;
  seen.from_a = from_a;
  seen.source_port = tcp->header.source_port;
  seen.destination_port = tcp->header.destination_port;
  seen.sequence = tcp->header.sequence;
  seen.end = seen.sequence + static_cast<std::uint32_t>(segment.size() - tcp->data_offset);
  seen.acknowledgement = tcp->header.acknowledgement;
  seen.frame.assign(frame.begin(), frame.end());
  if (seen_.size() < kSeenMax)
    seen_.push_back(std::move(seen));
  else
    seen_[seen_next_++ % kSeenMax] = std::move(seen);
}

// Addresses and ports are right, as if he had guessed them; numbers are any.
void Attacker::strike_blindly() {
  std::uint16_t source = static_cast<std::uint16_t>(random_.next()), destination = server_port_;
  bool to_b = random_.chance(500);
  if (!seen_.empty() && random_.chance(800)) {
    const Seen& seen = seen_[random_.below(seen_.size())];
    to_b = seen.from_a;
    source = seen.source_port;
    destination = seen.destination_port;
  }
  const auto any = [&] { return static_cast<std::uint32_t>(random_.next()); };
  switch (random_.below(8)) {
    case 0:
      return send_segment(to_b, source, destination, flag::kRst, any(), 0, {});
    case 1:
      return send_segment(to_b, source, destination, flag::kRst | flag::kAck, any(), any(), {});
    case 2:
      return send_segment(to_b, source, destination, flag::kSyn, any(), 0, {});
    case 3:
      return send_segment(to_b, source, destination, flag::kSyn | flag::kAck, any(), any(), {});
    case 4:
      return send_segment(to_b, source, destination, flag::kAck, any(), any(), octets(1000));
    case 5:
      return send_segment(to_b, source, destination, flag::kFin | flag::kAck, any(), any(), {});
    case 6:  // "too large", about a segment that its victim may have sent
      return send_icmp(to_b, wire::icmp_code::kFragmentationNeeded, static_cast<std::uint16_t>(random_.below(1500)),
                       destination, source, any());
    default:
      return send_icmp(to_b, static_cast<std::uint8_t>(random_.below(4)), 0, destination, source, any());
  }
}

void Attacker::strike_knowingly() {
  if (seen_.empty()) return;
  const Seen seen = seen_[random_.below(seen_.size())];
  const bool to_b = seen.from_a;
  const auto forged = [&](std::uint8_t flags, std::uint32_t sequence, std::uint32_t acknowledgement, Bytes payload) {
    send_segment(to_b, seen.source_port, seen.destination_port, flags, sequence, acknowledgement, payload);
  };
  switch (random_.below(14)) {
    case 0:
      return forged(flag::kRst, seen.end, 0, {});
    case 1:
      return forged(flag::kRst, seen.end + static_cast<std::uint32_t>(random_.below(5000)), 0, {});
    case 2:
      return forged(flag::kSyn, seen.end, 0, {});
    case 3:
      return forged(flag::kFin | flag::kAck, seen.end, seen.acknowledgement, {});
    case 4:  // octets of his own, next in line, or further on
      return forged(flag::kAck, seen.end, seen.acknowledgement, octets(1200));
    case 5:
      return forged(flag::kAck, seen.end + static_cast<std::uint32_t>(random_.below(8000)), seen.acknowledgement,
                    octets(1200));
    case 6:  // acknowledges what was never sent, or not yet received
      return forged(flag::kAck, seen.end, seen.acknowledgement + static_cast<std::uint32_t>(random_.below(100'000)),
                    {});
    case 7: {  // a good segment's octets once more, at another place
      const auto ip = wire::parse_ipv4(Bytes(seen.frame).subspan(wire::EthernetHeader::kSize));
      const std::size_t size = seen.end - seen.sequence;
      if (!ip || size == 0 || size > seen.frame.size()) return;
      const std::size_t end = wire::EthernetHeader::kSize + ip->header.total_length;
      return forged(flag::kAck, seen.end, seen.acknowledgement, Bytes(seen.frame).subspan(end - size, size));
    }
    case 8: {  // as it was, once more
      (to_b ? world_.a_to_b : world_.b_to_a).send(seen.frame, world_.clock.now);
      return;
    }
    case 9:
    case 10: {  // one octet of it changed, TCP's checksum made right
      const auto ip = wire::parse_ipv4(Bytes(seen.frame).subspan(wire::EthernetHeader::kSize));
      const std::size_t size = seen.end - seen.sequence;
      if (!ip || size == 0 || size > seen.frame.size()) return;
      const std::size_t end = wire::EthernetHeader::kSize + ip->header.total_length;
      const Bytes payload = Bytes(seen.frame).subspan(end - size, size);
      std::vector<std::byte> changed(payload.begin(), payload.end());
      changed[random_.below(changed.size())] ^= static_cast<std::byte>(random_.between(1, 255));
      return forged(flag::kAck, seen.sequence, seen.acknowledgement, changed);
    }
    case 11:
      return send_icmp(to_b, wire::icmp_code::kFragmentationNeeded, static_cast<std::uint16_t>(random_.below(1500)),
                       seen.destination_port, seen.source_port, seen.acknowledgement);
    case 12:
      return send_icmp(to_b, static_cast<std::uint8_t>(random_.below(4)), 0, seen.destination_port, seen.source_port,
                       seen.acknowledgement);
    default:  // another's SYN, to the listener
      return send_segment(to_b, static_cast<std::uint16_t>(random_.next()), server_port_, flag::kSyn,
                          static_cast<std::uint32_t>(random_.next()), 0, {});
  }
}

std::vector<std::byte> Attacker::octets(std::size_t max) {
  std::vector<std::byte> out(random_.between(1, max));
  random_.fill(out);
  return out;
}

void Attacker::send_segment(bool to_b, std::uint16_t source_port, std::uint16_t destination_port, std::uint8_t flags,
                            std::uint32_t sequence, std::uint32_t acknowledgement, Bytes payload) {
  wire::TcpHeader header;
  header.source_port = source_port;
  header.destination_port = destination_port;
  header.sequence = sequence;
  header.acknowledgement = acknowledgement;
  header.flags = flags;
  header.window = static_cast<std::uint16_t>(random_.next());
  const auto from = address_of(to_b ? world_.a : world_.b), to = address_of(to_b ? world_.b : world_.a);
  send_packet(to_b, wire::protocol::kTcp, from, frames::tcp(header, from, to, payload));
}

// Quotes a segment from the victim to the other side.
void Attacker::send_icmp(bool to_b, std::uint8_t code, std::uint16_t mtu, std::uint16_t source_port,
                         std::uint16_t destination_port, std::uint32_t sequence) {
  const auto victim = address_of(to_b ? world_.b : world_.a), other = address_of(to_b ? world_.a : world_.b);
  const wire::Ipv4Header quoted{.total_length = 1500, .dont_fragment = true, .source = victim, .destination = other};
  const wire::TcpHeader segment{.source_port = source_port, .destination_port = destination_port, .sequence = sequence};
  send_packet(
      to_b, wire::protocol::kIcmp, wire::IpAddress::v4(10, 0, 0, 99),
      frames::icmp({.type = wire::icmp_type::kUnreachable, .code = code, .rest = mtu}, frames::quote(quoted, segment)));
}

void Attacker::send_packet(bool to_b, std::uint8_t protocol, const wire::IpAddress& from, Bytes payload) {
  const Rnic& victim = to_b ? world_.b : world_.a;
  const Frame frame = frames::packet({.destination = victim.port.facts().mac, .source = kRouter}, protocol, from,
                                     address_of(victim), payload);
  (to_b ? world_.a_to_b : world_.b_to_a).send(frame, world_.clock.now);
}

}  // namespace rnic::sim
