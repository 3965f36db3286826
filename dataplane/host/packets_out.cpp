#include "host/packets_out.hpp"

#include <algorithm>
#include <cstring>

#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::host {

namespace {
constexpr std::size_t kEthernet = wire::EthernetHeader::kSize;
constexpr std::size_t kIpv4 = wire::Ipv4Header::kSize;
constexpr std::uint32_t kDoubtAfter = 3;  // timeouts without an answer: RFC 9293 s3.8.3's R1 (SHLD-10)
constexpr std::uint32_t kFrameMin = 60;   // Ethernet's smallest without FCS; not every driver fills it up
}  // namespace

// ---- segments of a stream -----------------------------------------------------------------

bool PacketsOut::send_segments(Stream& stream, Instant now, unsigned& budget) {
  bool busy = false;
  stream.more_segments = false;
  for (unsigned sent = 0;;) {
    // What the port or the loop has no room for stays with TCP: a run that has to be copied is so many frames.
    const bool room =
        stream.local_peer ? link_.loop_room() >= tcp::kRunSegmentsMax : link_.make_room(tcp::kRunSegmentsMax, now);
    if (!room || sent >= kSegmentsPerStreamMax || budget == 0) {
      stream.more_segments = true;
      break;
    }
    auto segment = stream.tcp.next_segment(now);
    if (!segment) break;
    const unsigned segments = segment->segments();
    sent += segments;
    budget -= std::min(budget, segments);
    busy = true;
    if (segments > 1 && !segment->whole)
      emit_each(stream, *segment, now);
    else
      emit_segment(stream, std::move(*segment), now);
  }
  const bool silent = stream.tcp.unanswered_timeouts() >= kDoubtAfter;
  if (silent != stream.hop_doubted) [[unlikely]] {
    stream.hop_doubted = silent;
    if (silent) doubt_hop(stream, now);
  }
  return busy;
}

// RFC 9293 s3.8.3: at R1 IP is told. It asks the next hop, and one that is silent is not used any more:
// a neighbour is looked for anew, a gateway gives way to another (RFC 1122 s3.3.1.4).
void PacketsOut::doubt_hop(Stream& stream, Instant now) {
  if (stream.local_peer) return;
  if (const auto hop = routes_.next_hop(stream.flow.remote)) neighbours_.doubt(*hop, now);
}

// Ethernet and IP headers of all segments of a stream, but for lengths and checksum. False: the
// neighbour is still being asked for, and `front` has no destination.
bool PacketsOut::refresh_front(Stream& stream, Instant now) {
  if (stream.front.generation == neighbours_.generation() && now < stream.front.until) return true;
  const auto hop = routes_.next_hop(stream.flow.remote);
  if (!hop) return false;
  wire::Mac destination;
  bool known = true;
  if (stream.local_peer) {
    destination = link_.mac();
    stream.front.until = kNever;
    stream.front.generation = neighbours_.generation();
  } else {
    // RFC 4861 s7.3.1: new acknowledgements, or new octets, say that what we send arrives.
    const std::uint64_t arrived = stream.tcp.acknowledged() + stream.tcp.received();
    const bool progress = stream.front.in_doubt && arrived > stream.front.progress;
    if (const auto found = neighbours_.resolve(*hop, now, progress)) {
      destination = found->mac;
      stream.front.until = found->ask_again;
      stream.front.in_doubt = found->in_doubt;
      stream.front.progress = arrived;
      stream.front.generation = neighbours_.generation();
    } else {
      known = false;
    }
  }
  const MutableBytes front(stream.front.octets);
  const bool v6 = stream.flow.remote.is_v6();
  link_.write_header(destination, v6 ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4, front);
  stream.front.ip_offset = link_.header_size();
  const MutableBytes ip = front.subspan(stream.front.ip_offset);
  if (v6) {
    // The flow label spreads streams over paths of equal cost (RFC 6437 s3).
    wire::emit(wire::Ipv6Header{.traffic_class = stream.front.traffic_class,
                                .flow_label = flow_label(stream.hash, 0),
                                .payload_length = 0,
                                .next_header = wire::protocol::kTcp,
                                .hop_limit = hop_limit(),
                                .source = stream.flow.local,
                                .destination = stream.flow.remote},
               ip);
    stream.front.size = stream.front.ip_offset + static_cast<std::uint32_t>(wire::Ipv6Header::kSize);
  } else {
    wire::emit(wire::Ipv4Header{.traffic_class = stream.front.traffic_class,
                                .total_length = 0,
                                .dont_fragment = true,
                                .ttl = ttl(),
                                .protocol = wire::protocol::kTcp,
                                .source = stream.flow.local,
                                .destination = stream.flow.remote},
               ip);
    store_be<std::uint16_t>(ip, 10, 0);
    stream.front.ip_sum = wire::sum_of(ip.first(kIpv4));
    stream.front.size = stream.front.ip_offset + static_cast<std::uint32_t>(kIpv4);
  }
  stream.front.pseudo_sum = wire::pseudo_header(stream.flow.local, stream.flow.remote, wire::protocol::kTcp, 0);
  return known;
}

// A run that has to be copied: each segment by itself, in a small buffer.
void PacketsOut::emit_each(Stream& stream, const tcp::SegmentOut& run, Instant now) {
  for (std::size_t at = 0; at < run.payload.size(); at += run.unit_bytes) {
    tcp::SegmentOut segment;
    segment.header = run.header;
    segment.header.sequence += static_cast<std::uint32_t>(at);
    segment.payload = run.payload.subspan(at, std::min<std::size_t>(run.unit_bytes, run.payload.size() - at));
    if (at + run.unit_bytes < run.payload.size())
      segment.header.flags &= static_cast<std::uint8_t>(~wire::tcp_flags::kPsh);
    segment.may_be_marked = run.may_be_marked;
    emit_segment(stream, std::move(segment), now);
  }
}

void PacketsOut::emit_segment(Stream& stream, tcp::SegmentOut&& segment, Instant now) {
  const bool known = refresh_front(stream, now);
  const auto tcp_size = static_cast<std::uint32_t>(wire::header_size(segment.header));
  const std::uint32_t front_size = stream.front.size;
  const std::uint32_t headers = front_size + tcp_size;
  auto payload_size = static_cast<std::uint32_t>(segment.payload.size());

  BufferRef frame;
  if (segment.whole && payload_size > 0) {
    Buffer& buffer = *segment.buffer;
    const auto at = static_cast<std::uint32_t>(segment.payload.data() - buffer.room);
    RNIC_ASSERT(at >= headers);
    buffer.head = at - headers;
    buffer.length = headers + payload_size;
    frame = std::move(segment.buffer);
  } else {
    frame = link_.take_control_for(payload_size);
    if (!frame) return;  // as if lost; TCP sends it again
    const std::uint32_t tail = frame->tailroom();
    if (const std::uint32_t most = tail >= link_.port().pool().room_bytes() ? tail : tail - kHeadroom;
        payload_size > most) {
      ++counters_.no_buffer;  // as if the rest were lost
      payload_size = most;
    }
    if (payload_size > 0) std::memcpy(frame->append(payload_size).data(), segment.payload.data(), payload_size);
    frame->prepend(headers);
  }

  frame->unit_bytes = static_cast<std::uint16_t>(segment.unit_bytes);
  frame->headers_bytes = static_cast<std::uint16_t>(headers);
  const MutableBytes bytes = frame->bytes();
  constexpr std::uint32_t kPlain = static_cast<std::uint32_t>(kEthernet + kIpv4);
  const bool plain = front_size == kPlain;
  if (plain) [[likely]]
    std::memcpy(bytes.data(), stream.front.octets.data(), kPlain);
  else
    std::memcpy(bytes.data(), stream.front.octets.data(), front_size);
  if (segment.header.timestamps) stream.timestamp_sent = segment.header.timestamps->value;
  segment.header.source_port = stream.flow.local_port;
  segment.header.destination_port = stream.flow.remote_port;
  const MutableBytes tcp = bytes.subspan(front_size);
  if (tcp_size == wire::TcpHeader::kSize)
    wire::emit_plain(segment.header, tcp);
  else
    wire::emit(segment.header, tcp);
  const bool sums = link_.sums_out() && !stream.local_peer;
  const std::uint32_t ip = plain ? static_cast<std::uint32_t>(kEthernet) : stream.front.ip_offset;
  // The template says not-ECT, so its sum needs only what is added.
  const std::uint8_t ecn = segment.may_be_marked ? wire::ecn::kCapable : wire::ecn::kNotCapable;
  if (plain || front_size - ip == kIpv4) [[likely]] {
    const auto total_length = static_cast<std::uint16_t>(bytes.size() - ip);
    store_be(bytes, ip + 2, total_length);
    if (ecn != wire::ecn::kNotCapable) [[unlikely]]
      bytes[ip + 1] |= std::byte{ecn};
    if (sums)
      store_be(bytes, ip + 10,
               wire::checksum_of(stream.front.ip_sum + wire::PartialSum{to_big(total_length)} +
                                 wire::PartialSum{to_big(std::uint16_t{ecn})}));
  } else {
    store_be(bytes, ip + 4, static_cast<std::uint16_t>(tcp.size()));
    bytes[ip + 1] |= std::byte{ecn} << wire::ecn::kShiftV6;
    if (stream.tcp.counters().timeouts > 0) [[unlikely]] {
      const std::uint32_t first = load_be<std::uint32_t>(bytes, ip);
      store_be(bytes, ip, (first & ~0xFFFFFu) | flow_label(stream.hash, stream.tcp.counters().timeouts));
    }
  }
  if (sums) {
    const auto tcp_length = static_cast<std::uint32_t>(tcp.size());
    const auto sum = stream.front.pseudo_sum + wire::PartialSum{to_big(tcp_length)} + wire::sum_of(tcp);
    store_be(tcp, wire::TcpHeader::kChecksumOffset, wire::checksum_of(sum));
  }

  if (stream.local_peer)
    link_.push_loop(std::move(frame));
  else if (known)
    link_.push(std::move(frame), now);
  else if (const auto hop = routes_.next_hop(stream.flow.remote))
    neighbours_.hold(*hop, std::move(frame));
}

// ---- what has no stream -------------------------------------------------------------------

void PacketsOut::send_bare_segment(const Flow& flow, const wire::TcpHeader& header, Instant now, bool may_be_marked) {
  BufferRef packet = link_.take_control();
  if (!packet) return;
  wire::TcpHeader filled = header;
  filled.source_port = flow.local_port;
  filled.destination_port = flow.remote_port;
  const MutableBytes tcp = packet->append(static_cast<std::uint32_t>(wire::header_size(filled)));
  wire::emit(filled, tcp);
  store_be(tcp, wire::TcpHeader::kChecksumOffset,
           wire::transport_checksum(flow.local, flow.remote, wire::protocol::kTcp, tcp));
  send_packet(std::move(packet), wire::protocol::kTcp, flow.local, flow.remote, now,
              may_be_marked ? wire::ecn::kCapable : wire::ecn::kNotCapable);
}

void PacketsOut::send_reset(const Flow& flow, const tcp::SegmentIn& to, Instant now) {
  const auto reset = tcp::reset_in_reply(to.header, to.payload.size());
  if (!reset || !take_answer()) return;
  send_bare_segment(flow, *reset, now);
}

void PacketsOut::send_packet(BufferRef packet, std::uint8_t protocol, const wire::IpAddress& from,
                             const wire::IpAddress& to, Instant now, std::uint8_t ecn) {
  const auto next = routes_.next_hop(to);
  if (!next) return;
  const auto size = static_cast<std::uint16_t>(packet->length);
  if (to.is_v6())
    wire::emit(wire::Ipv6Header{.traffic_class = ecn,
                                .payload_length = size,
                                .next_header = protocol,
                                .hop_limit = hop_limit(),
                                .source = from,
                                .destination = to},
               packet->prepend(wire::Ipv6Header::kSize));
  else
    wire::emit(wire::Ipv4Header{.traffic_class = ecn,
                                .total_length = static_cast<std::uint16_t>(kIpv4 + size),
                                .dont_fragment = protocol == wire::protocol::kTcp,
                                .ttl = ttl(),
                                .protocol = protocol,
                                .source = from,
                                .destination = to},
               packet->prepend(kIpv4));
  const bool own = routes_.is_self(to);
  const auto hop = own ? std::nullopt : neighbours_.resolve(*next, now);
  link_.write_header(hop ? hop->mac : link_.mac(), to.is_v6() ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4,
                     packet->prepend(link_.header_size()));
  if (own)
    link_.push_loop(std::move(packet));
  else if (hop)
    link_.push(std::move(packet), now);
  else
    neighbours_.hold(*next, std::move(packet));
}

void PacketsOut::send_message(const ip::Station::Outgoing& message, Bytes octets, Instant now) {
  BufferRef frame = link_.take_control();
  if (!frame) return;  // as if lost; it is sent again, or asked for
  std::memcpy(frame->append(static_cast<std::uint32_t>(message.size)).data(), octets.data(), message.size);
  link_.write_header(message.destination, message.type, frame->prepend(link_.header_size()));
  if (frame->length < kFrameMin) {
    const MutableBytes pad = frame->append(kFrameMin - frame->length);
    std::fill(pad.begin(), pad.end(), std::byte{0});
  }
  link_.push(std::move(frame), now);
}

}  // namespace rnic::host
