#include "ip/icmp.hpp"

#include <algorithm>
#include <array>

#include "ip/extensions.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::ip {
namespace {

constexpr std::size_t kTcpNames = 8;  // of a TCP header: ports and sequence number

void read_tcp(Bytes segment, IcmpError& error) {
  error.local_port = load_be<std::uint16_t>(segment, 0);
  error.remote_port = load_be<std::uint16_t>(segment, 2);
  error.sequence = load_be<std::uint32_t>(segment, 4);
}

bool is_one_station(const wire::IpAddress& address) {
  return !address.is_unspecified() && !address.is_multicast() && !address.is_limited_broadcast();
}

}  // namespace

bool answer_echo(Bytes message, const wire::IpAddress& from, const wire::IpAddress& to, MutableBytes out) {
  const bool v4 = from.is_v4();
  const auto header = wire::parse_icmp(message);
  if (!header || header->code != 0) return false;
  if (header->type != (v4 ? wire::icmp_type::kEchoRequest : wire::icmp6_type::kEchoRequest)) return false;
  RNIC_ASSERT(out.size() == message.size());
  std::copy(message.begin(), message.end(), out.begin());
  wire::emit(
      wire::IcmpHeader{
          .type = v4 ? wire::icmp_type::kEchoReply : wire::icmp6_type::kEchoReply, .code = 0, .rest = header->rest},
      out);
  if (v4)
    wire::icmp_set_checksum(out);
  else
    wire::icmp6_set_checksum(out, to, from);
  return true;
}

std::optional<IcmpError> parse_icmp_error(Bytes message) {
  const auto header = wire::parse_icmp(message);
  if (!header) return std::nullopt;
  IcmpError error;
  if (header->type == wire::icmp_type::kUnreachable) {
    if (header->code == wire::icmp_code::kFragmentationNeeded) {
      error.kind = IcmpError::Kind::packet_too_large;
      error.next_hop_mtu = header->next_hop_mtu_v4();
    } else {
      error.kind = IcmpError::Kind::unreachable;
    }
  } else if (header->type != wire::icmp_type::kTimeExceeded) {
    return std::nullopt;
  }
  // The quoted packet is cut off, so its own length says more than is there.
  const Bytes quoted = message.subspan(wire::IcmpHeader::kSize);
  if (quoted.size() < wire::Ipv4Header::kSize) return std::nullopt;
  const auto first = load_be<std::uint8_t>(quoted, 0);
  const std::size_t header_size = std::size_t{first & 0xFu} * 4;
  if ((first >> 4) != 4 || header_size < wire::Ipv4Header::kSize) return std::nullopt;
  if (quoted.size() < header_size + kTcpNames) return std::nullopt;
  if (load_be<std::uint8_t>(quoted, 9) != wire::protocol::kTcp) return std::nullopt;
  error.quoted_length = load_be<std::uint16_t>(quoted, 2);
  error.local = wire::IpAddress::load_v4(quoted, 12);
  error.remote = wire::IpAddress::load_v4(quoted, 16);
  read_tcp(quoted.subspan(header_size), error);
  return error;
}

std::optional<IcmpError> parse_icmp6_error(Bytes message) {
  const auto header = wire::parse_icmp(message);
  if (!header) return std::nullopt;
  IcmpError error;
  switch (header->type) {
    case wire::icmp6_type::kUnreachable:
      error.kind = IcmpError::Kind::unreachable;
      break;
    case wire::icmp6_type::kPacketTooBig:
      error.kind = IcmpError::Kind::packet_too_large;
      error.next_hop_mtu = header->mtu_v6();
      break;
    case wire::icmp6_type::kTimeExceeded:
    case wire::icmp6_type::kParameterProblem:
      break;
    default:
      return std::nullopt;
  }
  const Bytes quoted = message.subspan(wire::IcmpHeader::kSize);
  if (quoted.size() < wire::Ipv6Header::kSize || (load_be<std::uint8_t>(quoted, 0) >> 4) != 6) return std::nullopt;
  error.quoted_length = load_be<std::uint16_t>(quoted, 4) + static_cast<std::uint32_t>(wire::Ipv6Header::kSize);
  error.local = wire::IpAddress::load_v6(quoted, 8);
  error.remote = wire::IpAddress::load_v6(quoted, 24);
  if (error.local.is_v4() || error.remote.is_v4()) return std::nullopt;
  std::uint8_t protocol = 0;
  std::size_t offset = 0;
  const Bytes payload = quoted.subspan(wire::Ipv6Header::kSize);
  if (!find_quoted_upper(load_be<std::uint8_t>(quoted, 6), payload, protocol, offset)) return std::nullopt;
  if (protocol != wire::protocol::kTcp || payload.size() < offset + kTcpNames) return std::nullopt;
  read_tcp(payload.subspan(offset), error);
  return error;
}

std::optional<std::uint32_t> lowered_path_mtu(const IcmpError& error, std::uint32_t mtu_now) {
  if (error.kind != IcmpError::Kind::packet_too_large) return std::nullopt;
  if (error.remote.is_v6()) {
    if (error.next_hop_mtu < kPathMtuMinV6 || error.next_hop_mtu >= mtu_now) return std::nullopt;
    return error.next_hop_mtu;
  }
  std::uint32_t mtu = error.next_hop_mtu;
  if (mtu == 0) {
    constexpr std::array<std::uint32_t, 8> kPlateaus{32000, 17914, 8166, 4352, 2002, 1492, 1006, kPathMtuMin};
    const std::uint32_t sent = std::min(error.quoted_length, mtu_now);
    for (const std::uint32_t plateau : kPlateaus)
      if (plateau < sent) {
        mtu = plateau;
        break;
      }
  }
  if (mtu < kPathMtuMin || mtu >= mtu_now) return std::nullopt;
  return mtu;
}

// ---- errors that we send --------------------------------------------------------------------------

bool may_complain_of(Bytes packet, Bytes more, bool even_if_multicast) {
  if (packet.size() < wire::Ipv4Header::kSize) return false;
  // The first octet behind the headers: of a packet in two pieces that of the second.
  const auto type_at = [&](std::size_t offset) -> std::optional<std::uint8_t> {
    if (offset < packet.size()) return load_be<std::uint8_t>(packet, offset);
    if (offset == packet.size() && !more.empty()) return load_be<std::uint8_t>(more, 0);
    return std::nullopt;
  };
  if (load_be<std::uint8_t>(packet, 0) >> 4 == 4) {
    if ((load_be<std::uint16_t>(packet, 6) & 0x1FFF) != 0) return false;
    if (!is_one_station(wire::IpAddress::load_v4(packet, 12)) || !is_one_station(wire::IpAddress::load_v4(packet, 16)))
      return false;
    if (load_be<std::uint8_t>(packet, 9) != wire::protocol::kIcmp) return true;
    const auto type = type_at(std::size_t{load_be<std::uint8_t>(packet, 0) & 0xFu} * 4);
    namespace known = wire::icmp_type;
    return type && *type != known::kUnreachable && *type != known::kSourceQuench && *type != known::kRedirect &&
           *type != known::kTimeExceeded && *type != known::kParameterProblem;
  }
  if (packet.size() < wire::Ipv6Header::kSize) return false;
  const auto to = wire::IpAddress::load_v6(packet, 24);
  if (!is_one_station(wire::IpAddress::load_v6(packet, 8)) || to.is_unspecified()) return false;
  if (to.is_multicast() && !even_if_multicast) return false;
  std::uint8_t protocol = 0;
  std::size_t offset = 0;
  const Bytes payload = packet.subspan(wire::Ipv6Header::kSize);
  // Where its headers cannot be followed it may be anything, unless it ends there. A later fragment is
  // no exception in IPv6, but that of an ICMPv6 message could be an error's.
  if (!find_quoted_upper(load_be<std::uint8_t>(packet, 6), payload, protocol, offset))
    return protocol != wire::protocol::kIcmpV6 && more.empty();
  if (protocol != wire::protocol::kIcmpV6) return true;
  const auto type = type_at(wire::Ipv6Header::kSize + offset);
  return type && *type >= wire::icmp6_type::kInformational && *type != wire::icmp6_type::kRedirect;
}

std::size_t write_complaint(const IcmpComplaint& complaint, const wire::IpAddress& from, const wire::IpAddress& to,
                            Bytes packet, Bytes more, MutableBytes out) {
  const bool v4 = from.is_v4();
  wire::IcmpHeader header;
  switch (complaint.kind) {
    case Complaint::port_unreachable:
      header.type = v4 ? wire::icmp_type::kUnreachable : wire::icmp6_type::kUnreachable;
      header.code = v4 ? wire::icmp_code::kPortUnreachable : wire::icmp6_code::kPortUnreachable;
      break;
    case Complaint::protocol_unreachable:
      header.type = v4 ? wire::icmp_type::kUnreachable : wire::icmp6_type::kParameterProblem;
      header.code = v4 ? wire::icmp_code::kProtocolUnreachable : wire::icmp6_code::kUnknownNextHeader;
      header.rest = v4 ? 0 : complaint.pointer;
      break;
    case Complaint::reassembly_timeout:
      header.type = v4 ? wire::icmp_type::kTimeExceeded : wire::icmp6_type::kTimeExceeded;
      header.code = v4 ? wire::icmp_code::kReassemblyTimeout : wire::icmp6_code::kReassemblyTimeout;
      break;
    case Complaint::parameter_problem:
      header.type = v4 ? wire::icmp_type::kParameterProblem : wire::icmp6_type::kParameterProblem;
      header.code = complaint.code;
      header.rest = v4 ? complaint.pointer << 24 : complaint.pointer;
      break;
  }
  // RFC 1812 s4.3.2.3: a datagram of 576; RFC 4443 s2.4 (c): one of the smallest MTU.
  const std::size_t most = v4 ? 576 - wire::Ipv4Header::kSize : kComplaintMax;
  wire::emit(header, out);
  std::size_t size = wire::IcmpHeader::kSize;
  for (const Bytes piece : {packet, more}) {
    const std::size_t part = std::min(piece.size(), std::min(most, out.size()) - size);
    std::copy_n(piece.begin(), part, out.begin() + static_cast<std::ptrdiff_t>(size));
    size += part;
  }
  if (v4)
    wire::icmp_set_checksum(out.first(size));
  else
    wire::icmp6_set_checksum(out.first(size), from, to);
  return size;
}

}  // namespace rnic::ip
