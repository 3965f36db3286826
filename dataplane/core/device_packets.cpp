// Packets that are not TCP over IPv4 in one piece: IPv6 with its extension headers, fragments of both
// versions, ICMP, and what ip::Station has to say on the link.
//
// Whatever makes no sense in a packet ends it here, counted; nothing in this file asserts on what a
// peer sent.
#include <algorithm>
#include <cstring>

#include "core/device_impl.hpp"
#include "ip/extensions.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::core {

namespace {
constexpr std::size_t kIpv4 = wire::Ipv4Header::kSize;
constexpr std::size_t kIpv6 = wire::Ipv6Header::kSize;
}  // namespace

// ---- IPv6 ---------------------------------------------------------------------------------

// Not wire::parse_ipv6(): of most headers we need the addresses and two fields.
void Device::Impl::on_ipv6(BufferRef frame, std::size_t offset, bool trusted, Instant now) {
  const Bytes whole = frame->bytes().subspan(offset);
  const std::byte* header = whole.data();
  const std::size_t length = whole.size() < kIpv6 ? 0 : load_be<std::uint16_t>(whole, 4);
  if (whole.size() < kIpv6 || std::to_integer<unsigned>(header[0]) >> 4 != 6 || length > whole.size() - kIpv6) {
    ++counters_.bad_frames;
    return;
  }
  const wire::IpAddress from = load_v6_address(header + 8), to = load_v6_address(header + 24);
  // A mapped address is IPv4's for us and must not come by this way (RFC 4291 s2.5.5.2 keeps them off
  // the wire); nor can a group send.
  if (from.is_v4() || to.is_v4() || from.is_multicast() || is_loopback_from_wire(from, to)) {
    ++counters_.bad_frames;
    return;
  }
  const Bytes payload = whole.subspan(kIpv6, length);
  const auto next_header = std::to_integer<std::uint8_t>(header[6]);
  if (next_header == wire::protocol::kTcp) [[likely]] {
    on_tcp(std::move(frame), payload, from, to, trusted || !link_.checks_in(),
           wire::ecn::of(header[1], wire::ecn::kShiftV6), now);
    return;
  }
  if (!routes_.is_self(to) && !station_.listens_to(to)) return;
  const Packet packet{.from = from,
                      .to = to,
                      .whole = whole.first(kIpv6 + length),
                      .hop_limit = std::to_integer<std::uint8_t>(header[7]),
                      .link_from = wire::load_mac(frame->bytes(), wire::Mac::kSize)};
  on_ipv6_headers(std::move(frame), packet, next_header, payload, trusted, now);
}

void Device::Impl::on_ipv6_headers(BufferRef frame, const Packet& packet, std::uint8_t next_header, Bytes payload,
                                   bool trusted, Instant now) {
  using End = ip::Walk::End;
  const ip::Walk walk = ip::walk_extensions(next_header, payload);
  switch (walk.end) {
    case End::upper:
      if (walk.protocol != wire::protocol::kTcp)
        on_upper(packet, walk.protocol, payload.subspan(walk.offset), walk.pointer, now);
      else if (!packet.to.is_multicast())
        on_tcp(std::move(frame), payload.subspan(walk.offset), packet.from, packet.to, trusted || !link_.checks_in(),
               wire::ecn::of(packet.whole[1], wire::ecn::kShiftV6), now);
      break;
    case End::fragment:
      on_fragment_v6(packet, payload, walk.offset, now);
      break;
    case End::nothing:
      break;
    case End::problem:
      complain({.kind = ip::Complaint::parameter_problem, .code = walk.code, .pointer = walk.pointer}, packet, now,
               walk.even_if_multicast);
      [[fallthrough]];
    case End::drop:
      ++counters_.bad_frames;
      break;
  }
}

// ---- fragments ----------------------------------------------------------------------------

void Device::Impl::on_fragment_v4(Bytes packet, std::size_t header_size, Instant now) {
  const auto parsed = wire::parse_ipv4(packet);
  if (!parsed || !is_for_us(parsed->header.source, parsed->header.destination)) return;
  const wire::Ipv4Header& header = parsed->header;
  on_fragment({.from = header.source, .to = header.destination, .whole = packet},
              {.source = header.source,
               .destination = header.destination,
               .identification = header.identification,
               .protocol = header.protocol,
               .ecn = static_cast<std::uint8_t>(header.traffic_class & 3),
               .offset_bytes = header.fragment_offset_bytes,
               .more = header.more_fragments,
               .header = packet.first(header_size),
               .payload = packet.subspan(header_size)},
              now);
}

// `payload` is behind the IPv6 header; the fragment header is at `offset`.
void Device::Impl::on_fragment_v6(const Packet& packet, Bytes payload, std::size_t offset, Instant now) {
  const auto parsed = wire::parse_ipv6_fragment(payload.subspan(offset));
  if (!parsed || packet.from.is_unspecified() || packet.to.is_multicast()) {
    ++counters_.bad_frames;
    return;
  }
  const std::size_t before = offset + wire::Ipv6Fragment::kSize;
  const Bytes data = payload.subspan(before);
  if (parsed->fragment.offset_bytes == 0 && parsed->fragment.more) {
    // All headers must be in the first fragment (RFC 8200 s4.5, RFC 7112): nobody can judge them later.
    const ip::Walk walk = ip::walk_extensions(parsed->next_header, data, ip::Behind::another_header);
    if (walk.end == ip::Walk::End::drop ||
        (walk.end == ip::Walk::End::upper && data.size() - walk.offset < wire::IcmpHeader::kSize)) {
      complain({.kind = ip::Complaint::parameter_problem,
                .code = wire::icmp6_code::kIncompleteFirstFragment,
                .pointer = 0},
               packet, now);
      ++counters_.bad_frames;
      return;
    }
  }
  on_fragment(packet,
              {.source = packet.from,
               .destination = packet.to,
               .identification = parsed->fragment.identification,
               .protocol = parsed->next_header,
               .ecn = static_cast<std::uint8_t>(load_be<std::uint16_t>(packet.whole, 0) >> 4 & 3),
               .offset_bytes = parsed->fragment.offset_bytes,
               .more = parsed->fragment.more,
               .header = packet.whole.first(kIpv6 + before),
               .payload = data},
              now);
}

void Device::Impl::on_fragment(const Packet& packet, const ip::Fragment& fragment, Instant now) {
  using Outcome = ip::Reassembly::Outcome;
  ++counters_.fragments_in;
  ip::Reassembly::Taken taken = reassembly_.take(fragment, now);
  const bool v6 = packet.from.is_v6();
  const auto complain_of = [&](std::size_t pointer) {
    if (v6)
      complain({.kind = ip::Complaint::parameter_problem,
                .code = wire::icmp6_code::kErroneousField,
                .pointer = static_cast<std::uint32_t>(pointer)},
               packet, now);
  };
  switch (taken.outcome) {
    case Outcome::waiting:
      return;
    case Outcome::complete: {
      ++counters_.reassembled;
      Packet whole = packet;
      whole.whole = taken.packet.header;
      whole.rest = taken.packet.buffer->bytes();
      on_reassembled(whole, std::move(taken.packet), now);
      return;
    }
    case Outcome::bad_length:
      complain_of(4);  // the payload's length
      break;
    case Outcome::too_long:
      complain_of(fragment.header.size() - wire::Ipv6Fragment::kSize + 2);  // the fragment's offset
      break;
    case Outcome::dropped:
      break;
  }
  ++counters_.fragments_dropped;
}

// No port has looked at the checksum of the whole.
void Device::Impl::on_reassembled(const Packet& packet, ip::Reassembled reassembled, Instant now) {
  const Bytes payload = reassembled.buffer->bytes();
  std::uint8_t protocol = reassembled.protocol;
  std::size_t offset = 0;
  if (packet.from.is_v6()) {
    const ip::Walk walk = ip::walk_extensions(protocol, payload, ip::Behind::another_header);
    if (walk.end != ip::Walk::End::upper) {
      ++counters_.bad_frames;
      return;
    }
    protocol = walk.protocol;
    offset = walk.offset;
  }
  if (protocol == wire::protocol::kTcp)
    on_tcp(std::move(reassembled.buffer), payload.subspan(offset), packet.from, packet.to, !link_.checks_in(),
           reassembled.ecn, now);
  else
    on_upper(packet, protocol, payload.subspan(offset), 0, now);
}

// RFC 8200 s4.5, RFC 1122 s3.3.2: the sender hears of it where his first fragment had come.
void Device::Impl::expire_fragments(Instant now) {
  frame_to_all_ = false;
  while (const auto expired = reassembly_.next_expired(now)) {
    ++counters_.fragments_dropped;
    if (expired->header.empty()) continue;
    complain({.kind = ip::Complaint::reassembly_timeout},
             {.from = expired->source, .to = expired->destination, .whole = expired->header, .rest = expired->payload},
             now);
  }
}

// ---- above IP -----------------------------------------------------------------------------

// `next_pointer`: in IPv6, where the octet is that says `protocol`.
void Device::Impl::on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload, std::uint32_t next_pointer,
                            Instant now) {
  const bool v6 = packet.from.is_v6();
  if (protocol == (v6 ? wire::protocol::kIcmpV6 : wire::protocol::kIcmp)) {
    on_icmp(packet, payload, now);
  } else if (protocol == wire::protocol::kUdp) {
    complain({.kind = ip::Complaint::port_unreachable}, packet, now);
  } else {
    complain({.kind = ip::Complaint::protocol_unreachable, .pointer = next_pointer}, packet, now);
  }
}

void Device::Impl::on_icmp(const Packet& packet, Bytes message, Instant now) {
  const bool v6 = packet.from.is_v6();
  const auto header = wire::parse_icmp(message);
  if (!header) return;
  // Looked at even on trusted ports: there is little of it, and it steers us.
  const bool good =
      v6 ? wire::transport_checksum(packet.from, packet.to, wire::protocol::kIcmpV6, message) == 0
         : wire::icmp_checksum_is_good(message);
  if (!good) {
    ++counters_.bad_checksums;
    return;
  }
  // Discovery in fragments is not to be believed (RFC 6980 s5).
  if (v6 && packet.rest.empty() &&
      station_.on_icmp6({.source = packet.from,
                         .destination = packet.to,
                         .hop_limit = packet.hop_limit,
                         .from = packet.link_from},
                        message, now))
    return;
  if (header->type != (v6 ? wire::icmp6_type::kEchoRequest : wire::icmp_type::kEchoRequest)) {
    if (const auto error = v6 ? ip::parse_icmp6_error(message) : ip::parse_icmp_error(message))
      on_icmp_error(*error, now);
    return;
  }
  // A ping to a group is answered from an address of ours (RFC 4443 s4.2).
  const auto source = packet.to.is_multicast() ? routes_.source_for(packet.from) : packet.to;
  const std::size_t most = link_.mtu_bytes() - (v6 ? kIpv6 : kIpv4);
  if (!source || packet.from.is_unspecified() || !out_.may_answer() || message.size() > most) return;
  out_.take_answer();
  BufferRef reply = link_.take_control_for(message.size());
  if (!reply || reply->tailroom() < message.size()) return;
  if (!ip::answer_echo(message, packet.from, *source, reply->append(static_cast<std::uint32_t>(message.size())))) return;
  out_.send_packet(std::move(reply), v6 ? wire::protocol::kIcmpV6 : wire::protocol::kIcmp, *source, packet.from, now);
}

void Device::Impl::on_icmp_error(const ip::IcmpError& error, Instant now) {
  const Flow flow{error.local, error.remote, error.local_port, error.remote_port};
  Stream* stream = own(streams_.find_stream(flow));
  // No router is on the way between two addresses of this device.
  if (stream == nullptr || (stream->local_peer && !frame_looped_)) return;
  // Somebody who cannot see our segments does not know what is in flight (RFC 5927 s4.1).
  const tcp::Seq quoted{error.sequence};
  const tcp::Seq first = stream->initial_send + static_cast<std::uint32_t>(stream->tcp.acknowledged());
  if (quoted.before(first) || quoted.after(stream->send_next(true))) return;
  switch (error.kind) {
    case ip::IcmpError::Kind::packet_too_large:
      if (const auto mtu = ip::lowered_path_mtu(error, stream->path_mtu_bytes)) {
        const std::size_t ip_header = error.remote.is_v6() ? kIpv6 : kIpv4;
        const auto mss = *mtu - static_cast<std::uint32_t>(ip_header + wire::TcpHeader::kSize);
        stream->tcp.on_packet_too_big(mss, quoted, now);
        activate(*stream);
      }
      break;
    case ip::IcmpError::Kind::unreachable:
      // Of an established connection it is only a hint (RFC 1122 s4.2.3.9); TCP's timeout decides.
      if (stream->stage == Stream::Stage::opening && stream->initiator) {
        tell_failed(*stream, StreamFailure::unreachable);
        stream->tcp.abort(now);
        abandon(*stream, now);
      }
      break;
    case ip::IcmpError::Kind::other:
      break;
  }
}

void Device::Impl::complain(const ip::IcmpComplaint& complaint, const Packet& packet, Instant now,
                            bool even_if_multicast) {
  if ((frame_to_all_ && !even_if_multicast) || !out_.may_answer()) return;
  if (!ip::may_complain_of(packet.whole, packet.rest, even_if_multicast) || routes_.is_broadcast(packet.from)) return;
  const auto source = packet.to.is_multicast() ? routes_.source_for(packet.from) : packet.to;
  if (!source || !complaints_.take(now)) return;
  out_.take_answer();
  BufferRef message = link_.take_control();
  if (!message) return;
  std::array<std::byte, ip::kComplaintMax> octets;
  const std::size_t most = std::min<std::size_t>(
      {octets.size(), message->tailroom(), link_.mtu_bytes() - (packet.from.is_v6() ? kIpv6 : kIpv4)});
  const std::size_t size =
      ip::write_complaint(complaint, *source, packet.from, packet.whole, packet.rest, MutableBytes(octets).first(most));
  std::memcpy(message->append(static_cast<std::uint32_t>(size)).data(), octets.data(), size);
  ++counters_.icmp_errors_out;
  out_.send_packet(std::move(message), packet.from.is_v6() ? wire::protocol::kIcmpV6 : wire::protocol::kIcmp, *source,
              packet.from, now);
}

// ---- the station --------------------------------------------------------------------------

void Device::Impl::serve_station(Instant now) {
  if (link_looked_at_ == kNever || now - link_looked_at_ >= kLookAtLink) {
    link_looked_at_ = now;
    station_.set_link(link_.is_up(), now);
  }
  if (station_.has_message(now)) {
    std::array<std::byte, ip::Station::kMessageMax> octets;
    while (const auto message = station_.next_message(now, octets)) out_.send_message(*message, octets, now);
  }
  while (BufferRef frame = station_.next_released()) link_.push(std::move(frame), now);
  while (const auto failed = station_.next_failed()) {
    bool again = false;
    streams_.for_each([&](host::Stream& each) {
      Stream& stream = *own(&each);
      if (!stream.initiator || stream.stage != Stream::Stage::opening) return;
      if (routes_.next_hop(stream.flow.remote) != failed) return;
      // On a bad wire three questions can be lost: the next SYN asks anew, once.
      if (!stream.hop_failed) {
        stream.hop_failed = again = true;
        return;
      }
      tell_failed(stream, StreamFailure::unreachable);
      stream.tcp.abort(now);
      abandon(stream, now);
    });
    if (again) neighbours_.forget(*failed);
  }
  if (station_.version() != network_version_) on_network_change(now);
}

void Device::Impl::on_network_change(Instant now) {
  const bool first = network_version_ == 0;
  network_version_ = station_.version();
  if (first) return;
  streams_.on_mtu_change();
  streams_.for_each([&](host::Stream& stream) {
    // An address whose time is over must not be used (RFC 4862 s5.5.4).
    if (stream.stage != Stream::Stage::orphan && station_.own().find(stream.flow.local) == nullptr)
      (void)kill(stream.id(), now);
  });
  events_.on_network_change(options_.index);
}

}  // namespace rnic::core
