// Packets that are not TCP over IPv4 in one piece, and what ip::Station has to say on the link.
//
// Whatever makes no sense in a packet ends it here, counted; nothing in this file asserts on what a
// peer sent.
#include <algorithm>
#include <cstring>

#include "core/device_impl.hpp"
#include "ip/extensions.hpp"
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
                      .link_from = wire::load_mac(frame->bytes(), wire::Mac::kSize),
                      .to_all = frame_to_all_,
                      .looped = frame_looped_};
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

// ---- above IP -----------------------------------------------------------------------------

void Device::Impl::on_whole(std::optional<host::Fragments::Whole> whole, Instant now) {
  if (!whole) return;
  if (whole->protocol == wire::protocol::kTcp)
    on_tcp(std::move(whole->buffer), whole->payload, whole->packet.from, whole->packet.to, !link_.checks_in(),
           whole->ecn, now);
  else
    on_upper(whole->packet, whole->protocol, whole->payload, 0, now);
}

// `next_pointer`: in IPv6, where the octet is that says `protocol`.
void Device::Impl::on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload, std::uint32_t next_pointer,
                            Instant now) {
  if (const auto error = icmp_.on_upper(packet, protocol, payload, next_pointer, now))
    on_icmp_error(*error, packet.looped, now);
}

void Device::Impl::on_icmp_error(const ip::IcmpError& error, bool looped, Instant now) {
  const Flow flow{error.local, error.remote, error.local_port, error.remote_port};
  Stream* stream = own(streams_.find_stream(flow));
  // No router is on the way between two addresses of this device.
  if (stream == nullptr || (stream->local_peer && !looped)) return;
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
