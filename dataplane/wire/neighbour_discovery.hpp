// Neighbour discovery's messages (RFC 4861 s4): solicitations and advertisements of neighbours and
// routers, and of their options those that matter to a host.
//
// They are ICMPv6 messages. The checksum is left 0 by emit() and not looked at by parse_*(); what
// the IPv6 header must be like is the business of ip/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/icmp.hpp"

namespace rnic::wire {

namespace nd_option {
inline constexpr std::uint8_t kSourceLink = 1;
inline constexpr std::uint8_t kTargetLink = 2;
inline constexpr std::uint8_t kPrefix = 3;
inline constexpr std::uint8_t kMtu = 5;
inline constexpr std::uint8_t kNonce = 14;  // RFC 3971 s5.3.2, used by RFC 7527
}  // namespace nd_option

namespace detail {
// Calls each(type, option) for all options from `at` on. False: one has no length, or is cut off
// (RFC 4861 s4.6: then the packet is thrown away).
template <typename Each>
constexpr bool walk_options(Bytes message, std::size_t at, Each&& each) {
  while (at < message.size()) {
    if (message.size() - at < 8) return false;
    const std::size_t size = std::size_t{load_be<std::uint8_t>(message, at + 1)} * 8;
    if (size == 0 || size > message.size() - at) return false;
    each(load_be<std::uint8_t>(message, at), message.subspan(at, size));
    at += size;
  }
  return true;
}
}  // namespace detail

// RFC 4861 s4.3 and s4.4.
struct NeighbourMessage {
  static constexpr std::size_t kSizeMin = 24;
  static constexpr std::size_t kSizeMax = kSizeMin + 8 + 8;  // as we send it, with both options

  bool advertisement = false;                                      // else a solicitation
  bool router = false, solicited = false, override_entry = false;  // of an advertisement
  IpAddress target;
  std::optional<Mac> link_address{};  // source's in a solicitation, target's in an advertisement
  // Of a solicitation that asks whether an address is taken: tells our own, come round by a loop,
  // from another's (RFC 7527 s4). 6 octets.
  std::optional<std::uint64_t> nonce{};

  constexpr bool operator==(const NeighbourMessage&) const = default;
};

constexpr std::optional<NeighbourMessage> parse_neighbour(Bytes message) {
  if (message.size() < NeighbourMessage::kSizeMin) return std::nullopt;
  const auto type = load_be<std::uint8_t>(message, 0);
  if (type != icmp6_type::kNeighbourSolicitation && type != icmp6_type::kNeighbourAdvertisement) return std::nullopt;
  if (load_be<std::uint8_t>(message, 1) != 0) return std::nullopt;
  NeighbourMessage found;
  found.advertisement = type == icmp6_type::kNeighbourAdvertisement;
  const auto flags = load_be<std::uint8_t>(message, 4);
  if (found.advertisement) {
    found.router = (flags & 0x80) != 0;
    found.solicited = (flags & 0x40) != 0;
    found.override_entry = (flags & 0x20) != 0;
  }
  found.target = IpAddress::load_v6(message, 8);
  const std::uint8_t wanted = found.advertisement ? nd_option::kTargetLink : nd_option::kSourceLink;
  const bool whole = detail::walk_options(message, NeighbourMessage::kSizeMin, [&](std::uint8_t kind, Bytes option) {
    if (option.size() != 8) return;
    if (kind == wanted) found.link_address = load_mac(option, 2);
    if (kind == nd_option::kNonce && !found.advertisement)
      found.nonce = std::uint64_t{load_be<std::uint16_t>(option, 2)} << 32 | load_be<std::uint32_t>(option, 4);
  });
  if (!whole) return std::nullopt;
  return found;
}

// Returns how many octets: kSizeMin, and 8 for each option.
constexpr std::size_t emit(const NeighbourMessage& message, MutableBytes out) {
  emit(IcmpHeader{.type =
                      message.advertisement ? icmp6_type::kNeighbourAdvertisement : icmp6_type::kNeighbourSolicitation,
                  .code = 0,
                  .rest = (message.router ? 0x80000000u : 0) | (message.solicited ? 0x40000000u : 0) |
                          (message.override_entry ? 0x20000000u : 0)},
       out);
  message.target.store_v6(out, 8);
  std::size_t at = NeighbourMessage::kSizeMin;
  if (message.link_address) {
    store_be(out, at, message.advertisement ? nd_option::kTargetLink : nd_option::kSourceLink);
    store_be<std::uint8_t>(out, at + 1, 1);
    store_mac(out, at + 2, *message.link_address);
    at += 8;
  }
  if (message.nonce) {
    store_be(out, at, nd_option::kNonce);
    store_be<std::uint8_t>(out, at + 1, 1);
    store_be(out, at + 2, static_cast<std::uint16_t>(*message.nonce >> 32));
    store_be(out, at + 4, static_cast<std::uint32_t>(*message.nonce));
    at += 8;
  }
  return at;
}

// RFC 4861 s4.1. Returns how many octets: 8, or 16 with the sender's link address.
constexpr std::size_t emit_router_solicitation(const std::optional<Mac>& link_address, MutableBytes out) {
  emit(IcmpHeader{.type = icmp6_type::kRouterSolicitation, .code = 0, .rest = 0}, out);
  if (!link_address) return IcmpHeader::kSize;
  store_be(out, 8, nd_option::kSourceLink);
  store_be<std::uint8_t>(out, 9, 1);
  store_mac(out, 10, *link_address);
  return IcmpHeader::kSize + 8;
}

// RFC 4861 s4.6.2.
struct PrefixInformation {
  static constexpr std::uint32_t kInfinite = 0xFFFFFFFF;
  IpAddress prefix;
  std::uint8_t bits = 0;
  bool on_link = false;
  bool autonomous = false;
  std::uint32_t valid_s = 0, preferred_s = 0;
  constexpr bool operator==(const PrefixInformation&) const = default;
};

// RFC 4861 s4.2.
struct RouterAdvertisement {
  static constexpr std::size_t kSizeMin = 16;
  static constexpr std::size_t kPrefixesMax = 8;  // of one message; more are left out

  std::uint8_t hop_limit = 0;    // 0: unspecified, as in the next four
  std::uint16_t lifetime_s = 0;  // 0: no default router
  std::uint32_t reachable_ms = 0;
  std::uint32_t retransmit_ms = 0;
  std::optional<Mac> link_address{};
  std::optional<std::uint32_t> mtu{};
  std::array<PrefixInformation, kPrefixesMax> prefixes{};
  std::size_t prefix_count = 0;
};

constexpr std::optional<RouterAdvertisement> parse_router_advertisement(Bytes message) {
  if (message.size() < RouterAdvertisement::kSizeMin) return std::nullopt;
  if (load_be<std::uint8_t>(message, 0) != icmp6_type::kRouterAdvertisement) return std::nullopt;
  if (load_be<std::uint8_t>(message, 1) != 0) return std::nullopt;
  RouterAdvertisement found;
  found.hop_limit = load_be<std::uint8_t>(message, 4);
  found.lifetime_s = load_be<std::uint16_t>(message, 6);
  found.reachable_ms = load_be<std::uint32_t>(message, 8);
  found.retransmit_ms = load_be<std::uint32_t>(message, 12);
  const bool whole = detail::walk_options(message, RouterAdvertisement::kSizeMin, [&](std::uint8_t kind, Bytes option) {
    if (kind == nd_option::kSourceLink && option.size() == 8) found.link_address = load_mac(option, 2);
    if (kind == nd_option::kMtu && option.size() == 8) found.mtu = load_be<std::uint32_t>(option, 4);
    if (kind == nd_option::kPrefix && option.size() == 32 && found.prefix_count < found.prefixes.size()) {
      const auto flags = load_be<std::uint8_t>(option, 3);
      found.prefixes[found.prefix_count++] = {.prefix = IpAddress::load_v6(option, 16),
                                              .bits = load_be<std::uint8_t>(option, 2),
                                              .on_link = (flags & 0x80) != 0,
                                              .autonomous = (flags & 0x40) != 0,
                                              .valid_s = load_be<std::uint32_t>(option, 4),
                                              .preferred_s = load_be<std::uint32_t>(option, 8)};
    }
  });
  if (!whole) return std::nullopt;
  return found;
}

}  // namespace rnic::wire
