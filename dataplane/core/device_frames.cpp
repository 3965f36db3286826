// Packets in: from a frame to a stream's connection.
//
// Whatever makes no sense in a frame ends it here, counted; nothing in this file asserts on what a
// peer sent.
#include <algorithm>
#include <cstring>

#include "core/device_impl.hpp"
#include "ip/host_loopback.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::core {

namespace {
constexpr std::size_t kIpv4 = wire::Ipv4Header::kSize;
}  // namespace

void Device::Impl::on_frames(host::Link::Batch batch, bool looped, Instant now) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (i + 1 < batch.size()) __builtin_prefetch(batch[i + 1]->room + batch[i + 1]->head);
    on_frame(BufferRef{batch[i]}, looped, now);
  }
}

void Device::Impl::on_frame(BufferRef frame, bool looped, Instant now) {
  const Bytes bytes = frame->bytes();
  const auto link = link_.take_header(bytes);
  if (!link) return;
  frame_to_all_ = link->to_all;
  frame_looped_ = looped;
  // Before the frame is moved: arguments have no order.
  const bool good = looped || frame->checksum_good != 0;
  switch (link->type) {
    case wire::ether_type::kIpv4:
      on_ipv4(std::move(frame), link->size, good, now);
      break;
    case wire::ether_type::kIpv6:
      on_ipv6(std::move(frame), link->size, good, now);
      break;
    case wire::ether_type::kArp:
      if (!station_.on_arp(bytes.subspan(link->size), frame_to_all_, now)) ++counters_.bad_frames;
      break;
    default:
      break;
  }
}

// 127.0.0.1 and ::1 mean ourselves, so whoever puts them on the wire would be taken for us.
bool Device::Impl::is_loopback_from_wire(const wire::IpAddress& from, const wire::IpAddress& to) const {
  return !frame_looped_ && (ip::is_host_loopback(from) || ip::is_host_loopback(to));
}

// RFC 1122 s3.2.1.3: addresses that no sender can have, and those of others.
bool Device::Impl::is_for_us(const wire::IpAddress& from, const wire::IpAddress& to) const {
  return routes_.is_self(to) && !from.is_multicast() && !from.is_unspecified() && !routes_.is_broadcast(from);
}

// Not wire::parse_ipv4(): of most headers we need four fields. TCP finds its connection by the
// addresses, and only of what finds none it asks whether they can be.
void Device::Impl::on_ipv4(BufferRef frame, std::size_t offset, bool trusted, Instant now) {
  const Bytes packet = frame->bytes().subspan(offset);
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
  if (link_.checks_in() && !trusted && wire::checksum_of(packet.first(header_size)) != 0) {
    ++counters_.bad_checksums;
    return;
  }
  const wire::IpAddress from = load_v4_address(header + 12), to = load_v4_address(header + 16);
  if (is_loopback_from_wire(from, to)) [[unlikely]] {
    ++counters_.bad_frames;
    return;
  }
  if (fragment) [[unlikely]] {
    if (is_for_us(from, to))
      on_whole(fragments_.take_v4({.from = from,
                                   .to = to,
                                   .whole = packet.first(total_length),
                                   .to_all = frame_to_all_,
                                   .looped = frame_looped_},
                                  header_size, now),
               now);
    return;
  }
  const Bytes payload = packet.subspan(header_size, total_length - header_size);
  const auto protocol = std::to_integer<std::uint8_t>(header[9]);
  if (protocol == wire::protocol::kTcp) [[likely]]
    on_tcp(std::move(frame), payload, from, to, trusted || !link_.checks_in(),
           wire::ecn::of(header[1], wire::ecn::kShiftV4), now);
  else if (is_for_us(from, to))
    on_upper({.from = from,
              .to = to,
              .whole = packet.first(total_length),
              .to_all = frame_to_all_,
              .looped = frame_looped_},
             protocol, payload, 0, now);
}

void Device::Impl::on_tcp(BufferRef frame, Bytes segment, const wire::IpAddress& from, const wire::IpAddress& to,
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
  Stream& stream = *own(&streams_.at(*found));
  // The SYN-ACK's, for TIME-WAIT.
  if (in.header.has(wire::tcp_flags::kSyn) && stream.initiator && stream.stage == Stream::Stage::opening)
    stream.initial_receive = {in.header.sequence};
  if (!data_pool_.may_keep(stream.tcp.kept(), *in.buffer) && must_refuse(stream, in)) [[unlikely]] {
    ++counters_.no_buffer;
    return;
  }
  stream.tcp.on_segment(std::move(in), now);
  activate(stream);
}

}  // namespace rnic::core
