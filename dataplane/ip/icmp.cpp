#include "ip/icmp.hpp"

#include <algorithm>
#include <array>

#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"

namespace rnic::ip {

bool answer_echo(Bytes message, MutableBytes out) {
  const auto header = wire::parse_icmp(message);
  if (!header || header->type != wire::icmp_type::kEchoRequest || header->code != 0) return false;
  RNIC_ASSERT(out.size() == message.size());
  std::copy(message.begin(), message.end(), out.begin());
  wire::emit(wire::IcmpHeader{.type = wire::icmp_type::kEchoReply, .code = 0, .rest = header->rest}, out);
  wire::icmp_set_checksum(out);
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
  if (quoted.size() < header_size + 8) return std::nullopt;
  if (load_be<std::uint8_t>(quoted, 9) != wire::protocol::kTcp) return std::nullopt;
  error.quoted_length = load_be<std::uint16_t>(quoted, 2);
  error.local = wire::IpAddress::load_v4(quoted, 12);
  error.remote = wire::IpAddress::load_v4(quoted, 16);
  error.local_port = load_be<std::uint16_t>(quoted, header_size);
  error.remote_port = load_be<std::uint16_t>(quoted, header_size + 2);
  error.sequence = load_be<std::uint32_t>(quoted, header_size + 4);
  return error;
}

std::optional<std::uint32_t> lowered_path_mtu(const IcmpError& error, std::uint32_t mtu_now) {
  if (error.kind != IcmpError::Kind::packet_too_large) return std::nullopt;
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

}  // namespace rnic::ip
