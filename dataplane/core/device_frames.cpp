// Frames in and out: from Ethernet to a stream's connection, and from a connection's segment to
// the port.
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
constexpr std::size_t kEthernet = wire::EthernetHeader::kSize;
constexpr std::size_t kIpv4 = wire::Ipv4Header::kSize;
}  // namespace

// ---- in -----------------------------------------------------------------------------------

void Device::Impl::on_frame(BufferRef frame, bool looped, Instant now) {
  const Bytes bytes = frame->bytes();
  ++counters_.frames_in;
  counters_.bytes_in += bytes.size();
  if (bytes.size() < kEthernet) {
    ++counters_.bad_frames;
    return;
  }
  const wire::Mac destination = wire::load_mac(bytes, 0);
  if (destination != mac_ && !destination.is_multicast()) return;  // a wire may show us others' frames
  auto type = load_be<std::uint16_t>(bytes, 12);
  std::size_t offset = kEthernet;
  if ((type == wire::ether_type::kVlan || options_.vlan) && !take_tag(bytes, type, offset)) [[unlikely]]
    return;
  frame_to_all_ = destination.is_multicast();
  frame_looped_ = looped;
  // Before the frame is moved: arguments have no order.
  const bool good = looped || frame->checksum_good != 0;
  switch (type) {
    case wire::ether_type::kIpv4:
      on_ipv4(std::move(frame), offset, good, now);
      break;
    case wire::ether_type::kIpv6:
      on_ipv6(std::move(frame), offset, good, now);
      break;
    case wire::ether_type::kArp:
      if (!station_.on_arp(bytes.subspan(offset), frame_to_all_, now)) ++counters_.bad_frames;
      break;
    default:
      break;
  }
}

// Steps over a tag. False: the frame is of another VLAN than ours. VLAN 0 is no VLAN, only a priority
// (IEEE 802.1Q s6.9.1).
bool Device::Impl::take_tag(Bytes frame, std::uint16_t& type, std::size_t& offset) {
  std::uint16_t id = 0;
  if (type == wire::ether_type::kVlan) {
    const auto tag = wire::parse_vlan(frame.subspan(offset));
    if (!tag) {
      ++counters_.bad_frames;
      return false;
    }
    id = tag->id;
    type = tag->type;
    offset += wire::VlanTag::kSize;
  }
  if (id == options_.vlan.value_or(0)) return true;
  ++counters_.other_vlan;
  return false;
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
  if (checksums_in_ && !trusted && wire::checksum_of(packet.first(header_size)) != 0) {
    ++counters_.bad_checksums;
    return;
  }
  const wire::IpAddress from = load_v4_address(header + 12), to = load_v4_address(header + 16);
  if (is_loopback_from_wire(from, to)) [[unlikely]] {
    ++counters_.bad_frames;
    return;
  }
  if (fragment) [[unlikely]] {
    on_fragment_v4(packet.first(total_length), header_size, now);
    return;
  }
  const Bytes payload = packet.subspan(header_size, total_length - header_size);
  const auto protocol = std::to_integer<std::uint8_t>(header[9]);
  if (protocol == wire::protocol::kTcp) [[likely]]
    on_tcp(std::move(frame), payload, from, to, trusted || !checksums_in_,
           wire::ecn::of(header[1], wire::ecn::kShiftV4), now);
  else if (is_for_us(from, to))
    on_upper({.from = from, .to = to, .whole = packet.first(total_length)}, protocol, payload, 0, now);
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
  const std::uint64_t hash = hash_of(flow, keys_);
  const auto found = flows_.find(hash, [&](std::uint32_t value) { return flow_of(value) == flow; });
  if (!found) {
    on_unknown_segment(flow, std::move(in), now);
    return;
  }
  if ((*found & kTimeWaitBit) != 0) {
    on_waiting_segment(*found & ~kTimeWaitBit, std::move(in), now);
    return;
  }
  if ((*found & kHalfOpenBit) != 0) [[unlikely]] {
    on_half_open_segment(*found & ~kHalfOpenBit, std::move(in), now);
    return;
  }
  Stream& stream = *streams_[*found];
  // The SYN-ACK's, for TIME-WAIT.
  if (in.header.has(wire::tcp_flags::kSyn) && stream.initiator && stream.phase == Stream::Phase::opening)
    stream.initial_receive = {in.header.sequence};
  if (!data_pool_.may_keep(stream.tcp.kept(), *in.buffer) && must_refuse(stream, in)) [[unlikely]] {
    ++counters_.no_buffer;
    return;
  }
  stream.tcp.on_segment(std::move(in), now);
  activate(stream);
}

// RFC 9293 s3.10.7.1 and s3.10.7.2.
void Device::Impl::on_unknown_segment(const Flow& flow, tcp::SegmentIn&& segment, Instant now) {
  namespace flags = wire::tcp_flags;
  const wire::TcpHeader& header = segment.header;
  if (header.has(flags::kRst) || !is_for_us(flow.remote, flow.local)) return;
  const std::uint32_t listener = listeners_.find(flow.local, flow.local_port);
  if (listener != Listeners::kNone) {
    if (header.has(flags::kSyn) && !header.has(flags::kAck)) {
      on_syn(listener, flow, hash_of(flow, keys_), segment, HalfOpen::kNone, now);
      return;
    }
    if (!header.has(flags::kAck)) return;  // s3.10.7.2, fourth
    if (on_cookie(listener, flow, segment, now)) return;
  } else if (header.has(flags::kSyn) && !header.has(flags::kAck) &&
             listeners_.closed_just_now(flow.local, flow.local_port, now,
                                        [&] { return serves(flow.local, flow.local_port); })) {
    return;
  }
  ++counters_.no_listener;
  send_reset(flow, segment, now);
}

bool Device::Impl::serves(const wire::IpAddress& address, std::uint16_t port) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
    return stream != nullptr && !stream->initiator && stream->attached() && stream->flow.local_port == port &&
           stream->flow.local == address;
  });
}

void Device::Impl::send_reset(const Flow& flow, const tcp::SegmentIn& to, Instant now) {
  if (replies_left_ == 0) return;
  const auto reset = tcp::reset_in_reply(to.header, to.payload.size());
  if (!reset) return;
  --replies_left_;
  send_bare_segment(flow, *reset, now);
}

// ---- out ----------------------------------------------------------------------------------

BufferRef Device::Impl::take_control() {
  if (control_count_ == 0) {
    control_count_ = port_.pool().take(control_.data(), static_cast<unsigned>(control_.size()));
    if (control_count_ == 0) {
      BufferRef large{port_.pool().take_large()};
      if (!large) ++counters_.no_buffer;
      return large;
    }
  }
  return BufferRef{control_[--control_count_]};
}

// Where there is no large one, a small one: for the front of what was to go. A frame in a small one is
// no longer than these, headers and all.
BufferRef Device::Impl::take_control_for(std::size_t octets) {
  if (octets + kHeadroom > port_.pool().small_room_bytes())
    if (BufferRef large{port_.pool().take_large()}) return large;
  return take_control();
}

bool Device::Impl::send_segments(Stream& stream, Instant now, unsigned& budget) {
  bool busy = false;
  stream.more_segments = false;
  for (unsigned sent = 0;; ++sent) {
    // What the port or the loop has no room for stays with TCP.
    const bool room = stream.local_peer ? loop_room() > 0 : tx_has_room();
    if (!room || sent == kSegmentsPerStreamMax || budget == 0) {
      stream.more_segments = true;
      break;
    }
    auto segment = stream.tcp.next_segment(now);
    if (!segment) break;
    --budget;
    busy = true;
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
void Device::Impl::doubt_hop(Stream& stream, Instant now) {
  if (stream.local_peer) return;
  if (const auto hop = routes_.next_hop(stream.flow.remote)) neighbours_.doubt(*hop, now);
}

void Device::Impl::write_link_header(const wire::Mac& destination, std::uint16_t type, MutableBytes out) const {
  wire::emit(
      wire::EthernetHeader{
          .destination = destination, .source = mac_, .type = options_.vlan ? wire::ether_type::kVlan : type},
      out);
  if (options_.vlan) wire::emit(wire::VlanTag{.id = *options_.vlan, .type = type}, out.subspan(kEthernet));
}

// Ethernet and IP headers of all segments of a stream, but for lengths and checksum. False: the
// neighbour is still being asked for, and `front` has no destination.
bool Device::Impl::refresh_front(Stream& stream, Instant now) {
  if (stream.hop_generation == neighbours_.generation() && now < stream.hop_until) return true;
  const auto hop = routes_.next_hop(stream.flow.remote);
  if (!hop) return false;
  wire::Mac destination;
  bool known = true;
  if (stream.local_peer) {
    destination = mac_;
    stream.hop_until = kNever;
    stream.hop_generation = neighbours_.generation();
  } else {
    // RFC 4861 s7.3.1: new acknowledgements, or new octets, say that what we send arrives.
    const std::uint64_t arrived = stream.tcp.acknowledged() + stream.tcp.received();
    const bool progress = stream.hop_in_doubt && arrived > stream.hop_progress;
    if (const auto found = neighbours_.resolve(*hop, now, progress)) {
      destination = found->mac;
      stream.hop_until = found->ask_again;
      stream.hop_in_doubt = found->in_doubt;
      stream.hop_progress = arrived;
      stream.hop_generation = neighbours_.generation();
    } else {
      known = false;
    }
  }
  const MutableBytes front(stream.front);
  const bool v6 = stream.flow.remote.is_v6();
  write_link_header(destination, v6 ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4, front);
  stream.ip_offset = link_header_size();
  const MutableBytes ip = front.subspan(stream.ip_offset);
  if (v6) {
    // The flow label spreads streams over paths of equal cost (RFC 6437 s3).
    wire::emit(wire::Ipv6Header{.traffic_class = stream.traffic_class,
                                .flow_label = flow_label(stream.hash, 0),
                                .payload_length = 0,
                                .next_header = wire::protocol::kTcp,
                                .hop_limit = hop_limit(),
                                .source = stream.flow.local,
                                .destination = stream.flow.remote},
               ip);
    stream.front_size = stream.ip_offset + static_cast<std::uint32_t>(wire::Ipv6Header::kSize);
  } else {
    wire::emit(wire::Ipv4Header{.traffic_class = stream.traffic_class,
                                .total_length = 0,
                                .dont_fragment = true,
                                .ttl = ttl(),
                                .protocol = wire::protocol::kTcp,
                                .source = stream.flow.local,
                                .destination = stream.flow.remote},
               ip);
    store_be<std::uint16_t>(ip, 10, 0);
    stream.ip_sum = wire::sum_of(ip.first(kIpv4));
    stream.front_size = stream.ip_offset + static_cast<std::uint32_t>(kIpv4);
  }
  stream.pseudo_sum = wire::pseudo_header(stream.flow.local, stream.flow.remote, wire::protocol::kTcp, 0);
  return known;
}

void Device::Impl::emit_segment(Stream& stream, tcp::SegmentOut&& segment, Instant now) {
  const bool known = refresh_front(stream, now);
  const auto tcp_size = static_cast<std::uint32_t>(wire::header_size(segment.header));
  const std::uint32_t front_size = stream.front_size;
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
    frame = take_control_for(payload_size);
    if (!frame) return;  // as if lost; TCP sends it again
    const std::uint32_t tail = frame->tailroom();
    if (const std::uint32_t most = tail >= port_.pool().room_bytes() ? tail : tail - kHeadroom; payload_size > most) {
      ++counters_.no_buffer;  // as if the rest were lost
      payload_size = most;
    }
    if (payload_size > 0) std::memcpy(frame->append(payload_size).data(), segment.payload.data(), payload_size);
    frame->prepend(headers);
  }

  const MutableBytes bytes = frame->bytes();
  constexpr std::uint32_t kPlain = static_cast<std::uint32_t>(kEthernet + kIpv4);
  const bool plain = front_size == kPlain;
  if (plain) [[likely]]
    std::memcpy(bytes.data(), stream.front.data(), kPlain);
  else
    std::memcpy(bytes.data(), stream.front.data(), front_size);
  if (segment.header.timestamps) stream.timestamp_sent = segment.header.timestamps->value;
  segment.header.source_port = stream.flow.local_port;
  segment.header.destination_port = stream.flow.remote_port;
  const MutableBytes tcp = bytes.subspan(front_size);
  if (tcp_size == wire::TcpHeader::kSize)
    wire::emit_plain(segment.header, tcp);
  else
    wire::emit(segment.header, tcp);
  const bool sums = checksums_out_ && !stream.local_peer;
  const std::uint32_t ip = plain ? static_cast<std::uint32_t>(kEthernet) : stream.ip_offset;
  // The template says not-ECT, so its sum needs only what is added.
  const std::uint8_t ecn = segment.may_be_marked ? wire::ecn::kCapable : wire::ecn::kNotCapable;
  if (plain || front_size - ip == kIpv4) [[likely]] {
    const auto total_length = static_cast<std::uint16_t>(bytes.size() - ip);
    store_be(bytes, ip + 2, total_length);
    if (ecn != wire::ecn::kNotCapable) [[unlikely]]
      bytes[ip + 1] |= std::byte{ecn};
    if (sums)
      store_be(bytes, ip + 10,
               wire::checksum_of(stream.ip_sum + wire::PartialSum{to_big(total_length)} +
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
    const auto sum = stream.pseudo_sum + wire::PartialSum{to_big(tcp_length)} + wire::sum_of(tcp);
    store_be(tcp, wire::TcpHeader::kChecksumOffset, wire::checksum_of(sum));
  }

  if (stream.local_peer)
    push_loop(std::move(frame));
  else if (known)
    push_frame(std::move(frame), now);
  else if (const auto hop = routes_.next_hop(stream.flow.remote))
    neighbours_.hold(*hop, std::move(frame));
}

void Device::Impl::send_bare_segment(const Flow& flow, const wire::TcpHeader& header, Instant now, bool may_be_marked) {
  BufferRef packet = take_control();
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

void Device::Impl::send_packet(BufferRef packet, std::uint8_t protocol, const wire::IpAddress& from,
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
  write_link_header(hop ? hop->mac : mac_, to.is_v6() ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4,
                    packet->prepend(link_header_size()));
  if (own)
    push_loop(std::move(packet));
  else if (hop)
    push_frame(std::move(packet), now);
  else
    neighbours_.hold(*next, std::move(packet));
}

void Device::Impl::push_loop(BufferRef frame) {
  if (loop_room() == 0) {  // lost, as on any wire; streams have asked for the room before
    ++counters_.frames_dropped;
    return;
  }
  if (taps_ != nullptr) [[unlikely]]
    show_taps(port::FrameDirection::sent, *frame);
  ++counters_.frames_out;
  counters_.bytes_out += frame->length;
  loop_[loop_tail_++ & (kLoopRing - 1)] = frame.release();
}

void Device::Impl::push_frame(BufferRef frame, Instant now) {
  if (!tx_has_room()) flush_port(now);
  if (!tx_has_room()) {
    ++counters_.frames_dropped;
    return;
  }
  if (taps_ != nullptr) [[unlikely]]
    show_taps(port::FrameDirection::sent, *frame);
  tx_[tx_count_++] = frame.release();
  if (tx_count_ == kTxQueue) flush_port(now);
}

void Device::Impl::flush_port(Instant now) {
  if (tx_count_ == 0) return;
  unsigned sent = 0;
  while (sent < tx_count_) {
    const unsigned count = std::min(tx_count_ - sent, kReceiveBurst);
    std::uint64_t bytes = 0;
    std::array<std::uint32_t, kReceiveBurst> lengths;
    for (unsigned i = 0; i < count; ++i) lengths[i] = tx_[sent + i]->length;
    const unsigned taken = port_.send_burst(tx_.data() + sent, count);
    for (unsigned i = 0; i < taken; ++i) bytes += lengths[i];
    counters_.frames_out += taken;
    counters_.bytes_out += bytes;
    sent += taken;
    if (taken < count) break;
  }
  std::copy(tx_.begin() + sent, tx_.begin() + tx_count_, tx_.begin());
  tx_count_ -= sent;
  if (tx_count_ == 0) {
    tx_progress_ = kNever;
    return;
  }
  if (sent > 0 || tx_progress_ == kNever) tx_progress_ = now;
  if (port_.link_up() && now - tx_progress_ < kTxStuck) return;
  counters_.frames_dropped += tx_count_;
  for (unsigned i = 0; i < tx_count_; ++i) BufferRef{tx_[i]}.reset();
  tx_count_ = 0;
  tx_progress_ = kNever;
}

}  // namespace rnic::core
