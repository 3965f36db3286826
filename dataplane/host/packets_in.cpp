// From top to bottom the way of a frame that is the next segment of a stream, over IPv4 or IPv6; behind it that of all
// the others.
//
// Whatever makes no sense in a packet ends it here, counted; nothing in this file asserts on what a peer sent.
#include "host/packets_in.hpp"

#include "ip/extensions.hpp"
#include "ip/host_loopback.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::host {

namespace {
constexpr std::size_t kIpv4 = wire::Ipv4Header::kSize;
constexpr std::size_t kIpv6 = wire::Ipv6Header::kSize;

// 127.0.0.1 and ::1 mean ourselves, so whoever puts them on the wire would be taken for us.
bool is_loopback_from_wire(bool looped, const wire::IpAddress& from, const wire::IpAddress& to) {
  return !looped && (ip::is_host_loopback(from) || ip::is_host_loopback(to));
}
// What on_ipv4(), on_ipv6() and on_tcp() ask of checksums.
bool is_intact(const InputRun::Next& next) {
  const std::byte* header = next.ip_header.data();
  const bool v4 = next.ip_header.size() == kIpv4;
  if (v4 && wire::checksum_of(next.ip_header) != 0) return false;
  const wire::IpAddress from = v4 ? load_v4_address(header + 12) : load_v6_address(header + 8);
  const wire::IpAddress to = v4 ? load_v4_address(header + 16) : load_v6_address(header + 24);
  return wire::transport_checksum(from, to, wire::protocol::kTcp, next.segment) == 0;
}
}  // namespace

void PacketsIn::take(Link::Batch batch, Source source, Instant now) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (i + 1 < batch.size()) __builtin_prefetch(batch[i + 1]->room + batch[i + 1]->head);
    BufferRef frame{batch[i]};
    if (run_.stream() != nullptr && continue_run(frame, source, now)) continue;
    run_.look_at(frame->frames() == 1 ? frame->bytes() : Bytes{});
    on_frame(std::move(frame), source, now);
  }
  run_.end();
}

// False: nothing of it was taken.
bool PacketsIn::continue_run(BufferRef& frame, Source source, Instant now) {
  const Bytes bytes = frame->bytes();
  const auto next = frame->frames() == 1 ? run_.next(bytes) : std::nullopt;
  Stream& stream = *run_.stream();
  if (!next || !buffers_.may_take_at_once(stream, *frame)) return false;
  if (!is_trusted(*frame, source) && !is_intact(*next)) return false;
  if (!stream.tcp.on_next_segment(frame, next->payload, next->sequence, now)) return false;
  ++counters_.frames_in;
  ++counters_.continued_in;
  counters_.bytes_in += bytes.size();
  return true;
}

void PacketsIn::on_frame(BufferRef frame, Source source, Instant now) {
  const Bytes bytes = frame->bytes();
  counters_.frames_in += frame->frames() - 1;
  const auto link = link_.take_header(bytes);
  if (!link) return;
  const bool looped = source == Source::ourselves;
  const Arrival arrival{
      .offset = link->size, .trusted = is_trusted(*frame, source), .to_all = link->to_all, .looped = looped};
  switch (link->type) {
    case wire::ether_type::kIpv4:
      on_ipv4(std::move(frame), arrival, now);
      break;
    case wire::ether_type::kIpv6:
      on_ipv6(std::move(frame), arrival, now);
      break;
    case wire::ether_type::kArp:
      if (!station_.on_arp(bytes.subspan(link->size), link->to_all, now)) ++counters_.bad_frames;
      break;
    default:
      break;
  }
}

// Not wire::parse_ipv4(): of most headers we need four fields. TCP finds its connection by the
// addresses, and only of what finds none it asks whether they can be.
void PacketsIn::on_ipv4(BufferRef frame, const Arrival& arrival, Instant now) {
  const Bytes packet = frame->bytes().subspan(arrival.offset);
  if (packet.size() < kIpv4) {
    ++counters_.bad_frames;
    return;
  }
  const std::byte* header = packet.data();
  const auto first = std::to_integer<unsigned>(header[0]);
  const std::size_t header_size = std::size_t{first & 0xF} * 4;
  const std::size_t total_length = load_be<std::uint16_t>(packet, 2);
  const bool fragment = (load_be<std::uint16_t>(packet, 6) & 0x3FFF) != 0;  // MF, offset
  if ((first >> 4) != 4 || header_size < kIpv4 || header_size > total_length || total_length > packet.size()) {
    ++counters_.bad_frames;
    return;
  }
  if (!arrival.trusted && wire::checksum_of(packet.first(header_size)) != 0) {
    ++counters_.bad_checksums;
    return;
  }
  const wire::IpAddress from = load_v4_address(header + 12), to = load_v4_address(header + 16);
  if (is_loopback_from_wire(arrival.looped, from, to)) [[unlikely]] {
    ++counters_.bad_frames;
    return;
  }
  const Bytes payload = packet.subspan(header_size, total_length - header_size);
  const auto protocol = std::to_integer<std::uint8_t>(header[9]);
  if (protocol == wire::protocol::kTcp && !fragment) [[likely]] {
    on_tcp(std::move(frame), payload, from, to, arrival.trusted, wire::ecn::of(header[1], wire::ecn::kShiftV4), now);
    return;
  }
  const bool to_group = to.is_multicast() && station_.listens_to(to);
  if (!to_group && !is_for_us(from, to)) return;
  const Packet whole{.from = from,
                     .to = to,
                     .whole = packet.first(total_length),
                     .hop_limit = std::to_integer<std::uint8_t>(header[8]),
                     .to_all = arrival.to_all,
                     .looped = arrival.looped,
                     .trusted = arrival.trusted};
  if (to_group)
    on_ipv4_group(whole, fragment ? std::uint8_t{0} : protocol, payload, std::move(frame), now);
  else if (fragment)
    on_whole(fragments_.take_v4(whole, header_size, now), now);
  else
    on_upper(whole, protocol, payload, 0, std::move(frame), now);
}

// Not wire::parse_ipv6(): of most headers we need the addresses and two fields.
void PacketsIn::on_ipv6(BufferRef frame, const Arrival& arrival, Instant now) {
  const Bytes whole = frame->bytes().subspan(arrival.offset);
  if (whole.size() < kIpv6) {
    ++counters_.bad_frames;
    return;
  }
  const std::byte* header = whole.data();
  const std::size_t length = load_be<std::uint16_t>(whole, 4);
  if (std::to_integer<unsigned>(header[0]) >> 4 != 6 || length > whole.size() - kIpv6) {
    ++counters_.bad_frames;
    return;
  }
  const wire::IpAddress from = load_v6_address(header + 8), to = load_v6_address(header + 24);
  // A mapped address is IPv4's for us and must not come by this way (RFC 4291 s2.5.5.2 keeps them off
  // the wire); nor can a group send.
  if (from.is_v4() || to.is_v4() || from.is_multicast() || is_loopback_from_wire(arrival.looped, from, to)) {
    ++counters_.bad_frames;
    return;
  }
  const Bytes payload = whole.subspan(kIpv6, length);
  const auto next_header = std::to_integer<std::uint8_t>(header[6]);
  if (next_header == wire::protocol::kTcp) [[likely]] {
    on_tcp(std::move(frame), payload, from, to, arrival.trusted, wire::ecn::of(header[1], wire::ecn::kShiftV6), now);
    return;
  }
  if (!routes_.is_self(to) && !station_.listens_to(to)) return;
  const Packet packet{.from = from,
                      .to = to,
                      .whole = whole.first(kIpv6 + length),
                      .hop_limit = std::to_integer<std::uint8_t>(header[7]),
                      .link_from = wire::load_mac(frame->bytes(), wire::Mac::kSize),
                      .to_all = arrival.to_all,
                      .looped = arrival.looped,
                      .trusted = arrival.trusted};
  on_ipv6_headers(std::move(frame), packet, next_header, payload, arrival.trusted, now);
}

void PacketsIn::on_tcp(BufferRef frame, Bytes segment, const wire::IpAddress& from, const wire::IpAddress& to,
                       bool trusted, std::uint8_t ecn, Instant now) {
  auto parsed = wire::parse_tcp(segment);
  if (!parsed) {
    ++counters_.bad_frames;
    return;
  }
  if (!trusted && wire::transport_checksum(from, to, wire::protocol::kTcp, segment) != 0) {
    ++counters_.bad_checksums;
    return;
  }
  const Flow flow{to, from, parsed->header.destination_port, parsed->header.source_port};
  tcp::SegmentIn in{parsed->header, std::move(frame), segment.subspan(parsed->data_offset),
                    ecn == wire::ecn::kCongestion};
  const auto found = streams_.find(flow, streams_.hash_of(flow));
  if (!found) {
    if (!streams_.shard().has(flow)) return;  // what every shard gets: in fragments, or behind extension headers
    if (!in.header.has(wire::tcp_flags::kRst) && is_for_us(from, to)) doors_.on_unknown(flow, std::move(in), now);
    return;
  }
  if (found->is_waiting()) {
    doors_.on_waiting(found->index(), std::move(in), now);
    return;
  }
  if (found->is_half_open()) [[unlikely]] {
    doors_.on_half_open(found->index(), std::move(in), now);
    return;
  }
  Stream& stream = streams_.at(*found);
  // The SYN-ACK's, for TIME-WAIT.
  if (in.header.has(wire::tcp_flags::kSyn) && stream.initiator && stream.stage == Stream::Stage::opening)
    stream.initial_receive = {in.header.sequence};
  if (!buffers_.may_take(stream, in)) [[unlikely]] {
    ++counters_.no_buffer;
    return;
  }
  const std::uint64_t after = stream.tcp.received() + in.payload.size();
  const bool has_octets = !in.payload.empty();
  stream.tcp.on_segment(std::move(in), now);  // which takes the octets, and leaves the header
  streams_.activate(stream);
  const bool was_taken_whole = has_octets && stream.tcp.received() == after;
  if (was_taken_whole && stream.tcp.is_last_word(in.header)) run_.begin(stream);
}

// ---- all the others -----------------------------------------------------------------------

// RFC 1122 s3.2.1.3: addresses that no sender can have, and those of others.
bool PacketsIn::is_for_us(const wire::IpAddress& from, const wire::IpAddress& to) const {
  return routes_.is_self(to) && can_send(from);
}
bool PacketsIn::can_send(const wire::IpAddress& from) const {
  return !from.is_multicast() && !from.is_unspecified() && !routes_.is_broadcast(from);
}

// Of a group that we listen to. A querier need not have an address (RFC 4541 s2.1.1); nobody is answered.
void PacketsIn::on_ipv4_group(const Packet& packet, std::uint8_t protocol, Bytes payload, BufferRef frame,
                              Instant now) {
  if (protocol == wire::protocol::kIgmp)
    station_.on_igmp(payload, now);
  else if (protocol == wire::protocol::kUdp && can_send(packet.from))
    (void)datagrams_.take(packet, payload, std::move(frame), now);
}

void PacketsIn::on_ipv6_headers(BufferRef frame, const Packet& packet, std::uint8_t next_header, Bytes payload,
                                bool trusted, Instant now) {
  using End = ip::Walk::End;
  const ip::Walk walk = ip::walk_extensions(next_header, payload);
  switch (walk.end) {
    case End::upper:
      if (walk.protocol != wire::protocol::kTcp)
        on_upper(packet, walk.protocol, payload.subspan(walk.offset), walk.pointer, std::move(frame), now);
      else if (!packet.to.is_multicast())
        on_tcp(std::move(frame), payload.subspan(walk.offset), packet.from, packet.to, trusted,
               wire::ecn::of(packet.whole[1], wire::ecn::kShiftV6), now);
      break;
    case End::fragment:
      on_whole(fragments_.take_v6(packet, payload, walk.offset, now), now);
      break;
    case End::nothing:
      break;
    case End::problem:
      icmp_.complain({.kind = ip::Complaint::parameter_problem, .code = walk.code, .pointer = walk.pointer}, packet,
                     now, walk.even_if_multicast);
      [[fallthrough]];
    case End::drop:
      ++counters_.bad_frames;
      break;
  }
}

void PacketsIn::on_whole(std::optional<Fragments::Whole> whole, Instant now) {
  if (!whole) return;
  if (whole->protocol == wire::protocol::kTcp)
    on_tcp(std::move(whole->buffer), whole->payload, whole->packet.from, whole->packet.to, !link_.checks_in(),
           whole->ecn, now);
  else
    on_upper(whole->packet, whole->protocol, whole->payload, 0, {}, now);
}

// `next_pointer`: in IPv6, where the octet is that says `protocol`. `frame`: null, where there was more than one.
void PacketsIn::on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload, std::uint32_t next_pointer,
                         BufferRef frame, Instant now) {
  // The frame is looked into after it, too: of what is nobody's.
  if (protocol == wire::protocol::kUdp && datagrams_.take(packet, payload, frame.share(), now)) return;
  if (const auto error = icmp_.on_upper(packet, protocol, payload, next_pointer, now))
    on_icmp_error(*error, packet.looped, now);
}

void PacketsIn::on_icmp_error(const ip::IcmpError& error, bool looped, Instant now) {
  Stream* stream = streams_.find_stream({error.local, error.remote, error.local_port, error.remote_port});
  // No router is on the way between two addresses of this host.
  if (stream == nullptr || (stream->local_peer && !looped)) return;
  // Somebody who cannot see our segments does not know what is in flight (RFC 5927 s4.1).
  const tcp::Seq quoted{error.sequence};
  const tcp::Seq first = stream->tcp.initial() + static_cast<std::uint32_t>(stream->tcp.acknowledged());
  if (quoted.before(first) || quoted.after(stream->send_next(true))) return;
  switch (error.kind) {
    case ip::IcmpError::Kind::packet_too_large:
      if (const auto mtu = ip::lowered_path_mtu(error, stream->path_mtu_bytes)) {
        const std::size_t ip_header = error.remote.is_v6() ? kIpv6 : kIpv4;
        const auto mss = *mtu - static_cast<std::uint32_t>(ip_header + wire::TcpHeader::kSize);
        stream->tcp.on_packet_too_big(mss, quoted, now);
        streams_.activate(*stream);
      }
      break;
    case ip::IcmpError::Kind::unreachable:
      // Of an established connection it is only a hint (RFC 1122 s4.2.3.9); TCP's timeout decides.
      if (stream->stage == Stream::Stage::opening && stream->initiator) user_.on_unreachable(*stream, now);
      break;
    case ip::IcmpError::Kind::other:
      break;
  }
}

}  // namespace rnic::host
