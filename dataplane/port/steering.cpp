#include "port/steering.hpp"

#include <cstdint>
#include <cstring>

#include "wire/arp.hpp"
#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/rss.hpp"
#include "wire/vlan.hpp"

namespace rnic::port {

namespace {

constexpr Steered kFirst{.shard = 0, .to_all = false};
constexpr Steered kAll{.shard = 0, .to_all = true};

constexpr std::size_t kEthernet = wire::EthernetHeader::kSize;
constexpr std::size_t kTag = wire::VlanTag::kSize;
constexpr std::size_t kIpv4 = wire::Ipv4Header::kSize;
constexpr std::size_t kIpv6 = wire::Ipv6Header::kSize;
constexpr std::size_t kPorts = 4;  // octets of TCP that say both
// Offsets within their headers.
constexpr std::size_t kArpOperation = 6;
constexpr std::size_t kV4Fragment = 6, kV4Protocol = 9, kV4Addresses = 12;
constexpr std::size_t kV6Next = 6, kV6Addresses = 8;
constexpr std::uint16_t kIsFragment = 0x3FFF;  // "more fragments", and the offset
// Beside those of wire/ipv6.hpp (RFC 4302, RFC 6275).
constexpr std::uint8_t kAuthentication = 51, kMobility = 135;

std::uint8_t octet(Bytes bytes, std::size_t at) { return std::to_integer<std::uint8_t>(bytes[at]); }

// Of as many octets, as they lie: which of a word's octets is which comes out in the end.
template <typename T>
T word(Bytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// As wire::rss::fold() of both addresses and both ports: of all words in them, in whatever order.
Steered of_words(std::uint32_t words, unsigned shards) {
  const auto folded = static_cast<std::uint16_t>(words ^ words >> 16);
  return {.shard = wire::rss::place(to_big(folded), shards), .to_all = false};
}

// A question, too, says who asks, and that he may have another link address now: then he connects, and is answered by
// any shard.
Steered steer_arp(Bytes packet) {
  if (packet.size() < kArpOperation + 2) return kFirst;
  const auto operation = load_be<std::uint16_t>(packet, kArpOperation);
  return operation == wire::ArpPacket::kReply || operation == wire::ArpPacket::kRequest ? kAll : kFirst;
}

bool is_icmp_error(std::uint8_t type) {
  return type == wire::icmp_type::kUnreachable || type == wire::icmp_type::kRedirect ||
         type == wire::icmp_type::kTimeExceeded || type == wire::icmp_type::kParameterProblem;
}

Steered steer_v4(Bytes packet, unsigned shards) {
  if (packet.size() < kIpv4) return kFirst;
  const std::uint8_t first = octet(packet, 0);
  const std::size_t header = 4u * (first & 0xFu);
  if (first >> 4 != 4 || header < kIpv4) return kFirst;
  if ((load_be<std::uint16_t>(packet, kV4Fragment) & kIsFragment) != 0) [[unlikely]]
    return kAll;
  const std::uint8_t protocol = octet(packet, kV4Protocol);
  if (protocol == wire::protocol::kTcp) [[likely]] {
    if (packet.size() < header + kPorts) return kFirst;
    return of_words(word<std::uint32_t>(packet, kV4Addresses) ^ word<std::uint32_t>(packet, kV4Addresses + 4) ^
                        word<std::uint32_t>(packet, header),
                    shards);
  }
  const bool is_error =
      protocol == wire::protocol::kIcmp && packet.size() > header && is_icmp_error(octet(packet, header));
  return is_error ? kAll : kFirst;
}

// Errors are all below the first that is none (RFC 4443 s2.1); 0 is no type.
bool is_for_all_v6(std::uint8_t type) {
  return (type != 0 && type < wire::icmp6_type::kInformational) || type == wire::icmp6_type::kRouterAdvertisement ||
         type == wire::icmp6_type::kNeighbourAdvertisement || type == wire::icmp6_type::kNeighbourSolicitation ||
         type == wire::icmp6_type::kRedirect;
}

Steered steer_v6(Bytes packet, unsigned shards) {
  if (packet.size() < kIpv6 || octet(packet, 0) >> 4 != 6) return kFirst;
  switch (octet(packet, kV6Next)) {
    case wire::protocol::kTcp: {
      if (packet.size() < kIpv6 + kPorts) return kFirst;
      std::uint64_t addresses = 0;
      for (std::size_t i = 0; i < 4; ++i) addresses ^= word<std::uint64_t>(packet, kV6Addresses + 8 * i);
      return of_words(static_cast<std::uint32_t>(addresses ^ addresses >> 32) ^ word<std::uint32_t>(packet, kIpv6),
                      shards);
    }
    case wire::protocol::kIcmpV6:
      return packet.size() > kIpv6 && is_for_all_v6(octet(packet, kIpv6)) ? kAll : kFirst;
    case wire::ipv6_next::kHopByHop:
    case wire::ipv6_next::kRouting:
    case wire::ipv6_next::kFragment:
    case wire::ipv6_next::kDestination:
    case kAuthentication:
    case kMobility:
      return kAll;
    default:
      return kFirst;
  }
}

}  // namespace

Steered steer(Bytes frame, unsigned shards) {
  if (frame.size() < kEthernet) return kFirst;
  std::size_t at = kEthernet;
  auto type = load_be<std::uint16_t>(frame, at - 2);
  if (type == wire::ether_type::kVlan) {
    at += kTag;
    if (frame.size() < at) return kFirst;
    type = load_be<std::uint16_t>(frame, at - 2);
  }
  const Bytes packet = frame.subspan(at);
  if (type == wire::ether_type::kIpv4) [[likely]]
    return steer_v4(packet, shards);
  if (type == wire::ether_type::kIpv6) return steer_v6(packet, shards);
  return type == wire::ether_type::kArp ? steer_arp(packet) : kFirst;
}

}  // namespace rnic::port
