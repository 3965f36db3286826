#include "port/segment_runs.hpp"

#include <algorithm>
#include <cstring>

#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/tcp.hpp"
#include "wire/vlan.hpp"

namespace rnic::port {

namespace {

constexpr std::uint32_t kEthernet = wire::EthernetHeader::kSize;
constexpr std::uint32_t kTag = wire::VlanTag::kSize;
constexpr std::uint32_t kIpv4 = wire::Ipv4Header::kSize;
constexpr std::uint32_t kIpv6 = wire::Ipv6Header::kSize;
constexpr std::uint32_t kTcp = wire::TcpHeader::kSize;

// Offsets within their headers.
constexpr std::uint32_t kV4Length = 2, kV4Fragment = 6, kV4Protocol = 9, kV4Checksum = 10, kV4Addresses = 12;
constexpr std::uint32_t kV6Length = 4, kV6Next = 6, kV6Addresses = 8;
constexpr std::uint32_t kTcpSequence = 4, kTcpAcknowledgement = 8, kTcpOffset = 12, kTcpFlags = 13, kTcpWindow = 14,
                        kTcpUrgent = 18;

bool same(Bytes a, Bytes b, std::uint32_t from, std::uint32_t to) {
  return std::memcmp(a.data() + from, b.data() + from, to - from) == 0;
}

SegmentLayout look(Bytes frame) {
  SegmentLayout layout;
  if (frame.size() < kEthernet) return layout;
  layout.ip = kEthernet;
  auto type = load_be<std::uint16_t>(frame, kEthernet - 2);
  if (type == wire::ether_type::kVlan) {
    if (frame.size() < kEthernet + kTag) return layout;
    layout.tagged = true;
    layout.ip += kTag;
    type = load_be<std::uint16_t>(frame, layout.ip - 2);
  }
  const auto octets = static_cast<std::uint32_t>(frame.size()) - layout.ip;
  std::uint32_t tcp = 0, length = 0;
  if (type == wire::ether_type::kIpv4 && frame.size() >= layout.ip + kIpv4) {
    const std::uint32_t header = 4u * (std::to_integer<std::uint32_t>(frame[layout.ip]) & 0xF);
    layout.v4 = header >= kIpv4 && frame.size() >= layout.ip + header;
    length = load_be<std::uint16_t>(frame, layout.ip + kV4Length);
    const bool fragment = (load_be<std::uint16_t>(frame, layout.ip + kV4Fragment) & 0x3FFF) != 0;
    if (layout.v4 && !fragment && frame[layout.ip + kV4Protocol] == std::byte{wire::protocol::kTcp})
      tcp = layout.ip + header;
  } else if (type == wire::ether_type::kIpv6 && frame.size() >= layout.ip + kIpv6) {
    layout.v6 = true;
    length = kIpv6 + load_be<std::uint16_t>(frame, layout.ip + kV6Length);
    if (frame[layout.ip + kV6Next] == std::byte{wire::protocol::kTcp}) tcp = layout.ip + kIpv6;
  }
  layout.end = layout.ip + std::min(length, octets);
  if (tcp == 0 || layout.end < tcp + kTcp) return layout;
  layout.headers = tcp + 4 * (std::to_integer<std::uint32_t>(frame[tcp + kTcpOffset]) >> 4);
  if (layout.headers >= tcp + kTcp && layout.headers <= layout.end) layout.tcp = tcp;
  return layout;
}

// The pseudo-header's sum, as it is in the checksum's place until the rest is added.
std::uint16_t undone_checksum(Bytes frame, const SegmentLayout& at, std::uint32_t octets_of_tcp) {
  const std::uint32_t addresses = at.ip + (at.v6 ? kV6Addresses : kV4Addresses);
  const auto part = wire::sum_of(frame.subspan(addresses, at.v6 ? 32 : 8)) +
                    wire::PartialSum{to_big(std::uint16_t{wire::protocol::kTcp})} +
                    wire::PartialSum{to_big(octets_of_tcp)};
  return static_cast<std::uint16_t>(~wire::checksum_of(part));
}

}  // namespace

void SegmentRun::begin(Buffer& frame) {
  first_ = &frame;
  const Bytes bytes = frame.bytes();
  layout_ = look(bytes);
  count_ = 1;
  bytes_ = layout_.tcp != 0 ? layout_.end : frame.length;
  pieces_[0] = bytes.first(bytes_);
  segment_bytes_ = layout_.tcp != 0 ? bytes_ - layout_.headers : 0;
  made_before_ = frame.unit_bytes != 0;
  if (made_before_) segment_bytes_ = frame.unit_bytes;
  if (layout_.tcp != 0) {
    first_length_ = load_be<std::uint16_t>(bytes, layout_.ip + (layout_.v6 ? kV6Length : kV4Length));
    first_flags_ = bytes[layout_.tcp + kTcpFlags];
  }
  // FIN, SYN, RST, URG and CWR are those of one segment. What IPv4 has between header and TCP would be cut anew, too. A
  // tag's own type hides from the kernel what is behind it.
  may_grow_ = segment_bytes_ != 0 && !made_before_ && !layout_.tagged &&
              (layout_.v6 || layout_.tcp == layout_.ip + kIpv4) &&
              (bytes[layout_.tcp + kTcpFlags] & ~std::byte{wire::tcp_flags::kEce}) == std::byte{wire::tcp_flags::kAck};
}

// All but lengths, checksums, the IPv4 identification, the place in the stream, and PSH, which is the last one's.
bool SegmentRun::continues(Bytes frame) const {
  const Bytes first = pieces_[0];
  const auto& [ip, tcp, headers, end, v6, v4, tagged] = layout_;
  if (!same(first, frame, 0, ip)) return false;
  if (v6) {
    if (!same(first, frame, ip, ip + kV6Length) || !same(first, frame, ip + kV6Next, tcp)) return false;
  } else if (!same(first, frame, ip, ip + kV4Length) || !same(first, frame, ip + kV4Fragment, ip + kV4Checksum) ||
             !same(first, frame, ip + kV4Addresses, tcp)) {
    return false;
  }
  constexpr std::byte kLasts{wire::tcp_flags::kPsh};
  return same(first, frame, tcp, tcp + kTcpSequence) &&
         same(first, frame, tcp + kTcpAcknowledgement, tcp + kTcpFlags) &&
         first[tcp + kTcpFlags] == (frame[tcp + kTcpFlags] & ~kLasts) &&
         same(first, frame, tcp + kTcpWindow, tcp + wire::TcpHeader::kChecksumOffset) &&
         same(first, frame, tcp + kTcpUrgent, headers);
}

bool SegmentRun::add(const Buffer& buffer) {
  const Bytes frame = buffer.bytes();
  // One that is a run by itself has segments of its own length.
  if (!may_grow_ || buffer.unit_bytes != 0 || count_ == kSegmentsMax || frame.size() <= layout_.headers) return false;
  if (!continues(frame)) return false;
  // The same headers, so its length has the same place.
  const std::uint32_t end = look(frame).end;
  if (end <= layout_.headers) return false;
  const std::uint32_t octets = end - layout_.headers;
  if (octets > segment_bytes_ || bytes_ + octets - layout_.ip > kRunBytesMax) return false;
  const auto sequence = load_be<std::uint32_t>(pieces_[0], layout_.tcp + kTcpSequence) + count_ * segment_bytes_;
  if (load_be<std::uint32_t>(frame, layout_.tcp + kTcpSequence) != sequence) return false;
  pieces_[count_++] = frame.subspan(layout_.headers, octets);
  bytes_ += octets;
  const bool pushed = (frame[layout_.tcp + kTcpFlags] & std::byte{wire::tcp_flags::kPsh}) != std::byte{0};
  may_grow_ = octets == segment_bytes_ && !pushed;
  if (pushed) first_->bytes()[layout_.tcp + kTcpFlags] |= std::byte{wire::tcp_flags::kPsh};
  return true;
}

OffloadHeader SegmentRun::finish() {
  OffloadHeader said{};
  const MutableBytes first = first_->bytes();
  const auto& [ip, tcp, headers, end, v6, v4, tagged] = layout_;
  if (v4) {
    const std::uint32_t header = 4u * (std::to_integer<std::uint32_t>(first[ip]) & 0xF);
    if (tcp != 0) store_be(first, ip + kV4Length, static_cast<std::uint16_t>(bytes_ - ip));
    store_be<std::uint16_t>(first, ip + kV4Checksum, 0);
    store_be(first, ip + kV4Checksum, wire::checksum_of(wire::sum_of(first.subspan(ip, header))));
  }
  if (tcp == 0) return said;
  if (v6) store_be(first, ip + kV6Length, static_cast<std::uint16_t>(bytes_ - tcp));
  store_be(first, tcp + wire::TcpHeader::kChecksumOffset, undone_checksum(first, layout_, bytes_ - tcp));
  said.flags = OffloadHeader::kNeedsChecksum;
  said.checksum_start = static_cast<std::uint16_t>(tcp);
  said.checksum_at = static_cast<std::uint16_t>(wire::TcpHeader::kChecksumOffset);
  if (count_ == 1 && !made_before_) return said;
  said.merged = v6 ? OffloadHeader::kTcpV6 : OffloadHeader::kTcpV4;
  said.segment_bytes = static_cast<std::uint16_t>(segment_bytes_);
  said.headers_bytes = static_cast<std::uint16_t>(headers);
  return said;
}

void SegmentRun::restore() {
  if (layout_.tcp == 0) return;
  const MutableBytes first = first_->bytes();
  store_be(first, layout_.ip + (layout_.v6 ? kV6Length : kV4Length), first_length_);
  first[layout_.tcp + kTcpFlags] = first_flags_;
}

Received judge(const OffloadHeader& header, Bytes frame) {
  const unsigned merged = header.merged & ~unsigned{OffloadHeader::kWithCwr};
  if (merged != OffloadHeader::kWhole && merged != OffloadHeader::kTcpV4 && merged != OffloadHeader::kTcpV6)
    return Received::unusable;
  if ((header.flags & (OffloadHeader::kNeedsChecksum | OffloadHeader::kChecksumGood)) == 0) return Received::unchecked;
  // It speaks of TCP's or UDP's alone.
  return is_ip_header_good(frame) ? Received::good : Received::unchecked;
}

bool is_checksum_undone(Bytes frame) {
  const SegmentLayout at = look(frame);
  return at.tcp != 0 && load_be<std::uint16_t>(frame, at.tcp + wire::TcpHeader::kChecksumOffset) ==
                            undone_checksum(frame, at, at.end - at.tcp);
}

bool is_ip_header_good(Bytes frame) {
  std::size_t at = kEthernet;
  if (frame.size() < at) return true;
  if (load_be<std::uint16_t>(frame, at - 2) == wire::ether_type::kVlan) at += kTag;
  if (frame.size() < at + kIpv4 || load_be<std::uint16_t>(frame, at - 2) != wire::ether_type::kIpv4) return true;
  const std::uint32_t size = 4u * (std::to_integer<std::uint32_t>(frame[at]) & 0xF);
  const Bytes ip = frame.subspan(at, std::min<std::size_t>(size, frame.size() - at));
  return wire::checksum_of(wire::sum_of(ip)) == 0;
}

void mark_received_run(Buffer& frame, std::uint32_t segment_bytes, std::uint32_t mtu_bytes) {
  const Bytes bytes = frame.bytes();
  if (segment_bytes == 0 || bytes.size() < kEthernet + kIpv4 + kTcp) return;
  const auto type = load_be<std::uint16_t>(bytes, kEthernet - 2);
  std::uint32_t tcp = 0, end = 0;
  if (type == wire::ether_type::kIpv4 && bytes[kEthernet] == std::byte{0x45} &&
      (load_be<std::uint16_t>(bytes, kEthernet + kV4Fragment) & 0x3FFF) == 0 &&
      bytes[kEthernet + kV4Protocol] == std::byte{wire::protocol::kTcp}) {
    tcp = kEthernet + kIpv4;
    end = kEthernet + load_be<std::uint16_t>(bytes, kEthernet + kV4Length);
  } else if (type == wire::ether_type::kIpv6 && bytes.size() >= kEthernet + kIpv6 + kTcp &&
             bytes[kEthernet + kV6Next] == std::byte{wire::protocol::kTcp}) {
    tcp = kEthernet + kIpv6;
    end = tcp + load_be<std::uint16_t>(bytes, kEthernet + kV6Length);
  }
  if (tcp == 0 || end != bytes.size()) return;
  const std::uint32_t headers = tcp + 4 * (std::to_integer<std::uint32_t>(bytes[tcp + kTcpOffset]) >> 4);
  if (headers < tcp + kTcp || headers + segment_bytes > kEthernet + mtu_bytes) return;
  if (bytes.size() <= headers + segment_bytes || bytes.size() - headers > kReceivedSegmentsMax * segment_bytes) return;
  frame.unit_bytes = static_cast<std::uint16_t>(segment_bytes);
  frame.headers_bytes = static_cast<std::uint16_t>(headers);
}

}  // namespace rnic::port
