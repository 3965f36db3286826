// Addresses: Ethernet's, and those of IP in both versions.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"

namespace rnic::wire {

struct Mac {
  static constexpr std::size_t kSize = 6;
  std::array<std::uint8_t, kSize> octets{};

  constexpr auto operator<=>(const Mac&) const = default;
  constexpr bool is_multicast() const { return (octets[0] & 1) != 0; }  // broadcast too
  constexpr bool is_broadcast() const;
};
inline constexpr Mac kBroadcastMac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
constexpr bool Mac::is_broadcast() const { return *this == kBroadcastMac; }

constexpr Mac load_mac(Bytes bytes, std::size_t offset) {
  Mac mac;
  for (std::size_t i = 0; i < Mac::kSize; ++i) mac.octets[i] = load_be<std::uint8_t>(bytes, offset + i);
  return mac;
}
constexpr void store_mac(MutableBytes bytes, std::size_t offset, const Mac& mac) {
  for (std::size_t i = 0; i < Mac::kSize; ++i) store_be<std::uint8_t>(bytes, offset + i, mac.octets[i]);
}

std::string to_string(const Mac& mac);  // 02:00:5e:00:00:01
std::optional<Mac> parse_mac(std::string_view text);

// An IPv4 or an IPv6 address. IPv4 is held as RFC 4291 s2.5.5.2 maps it into IPv6, which is also
// how a GID says it; so both compare, hash and order as 16 octets. A mapped address is never on
// the wire as IPv6, and reading one gives IPv4.
class IpAddress {
 public:
  constexpr IpAddress() = default;  // ::

  static constexpr IpAddress v4(std::uint32_t host_order) {
    IpAddress a;
    a.octets_[10] = a.octets_[11] = 0xff;
    for (std::size_t i = 0; i < 4; ++i) a.octets_[12 + i] = static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
    return a;
  }
  static constexpr IpAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return v4(static_cast<std::uint32_t>(a) << 24 | static_cast<std::uint32_t>(b) << 16 |
              static_cast<std::uint32_t>(c) << 8 | d);
  }
  static constexpr IpAddress from_octets(const std::array<std::uint8_t, 16>& octets) {
    IpAddress a;
    a.octets_ = octets;
    return a;
  }
  // As they stand in a header.
  static constexpr IpAddress load_v4(Bytes bytes, std::size_t offset) {
    return v4(load_be<std::uint32_t>(bytes, offset));
  }
  static constexpr IpAddress load_v6(Bytes bytes, std::size_t offset) {
    IpAddress a;
    for (std::size_t i = 0; i < 16; ++i) a.octets_[i] = load_be<std::uint8_t>(bytes, offset + i);
    return a;
  }

  constexpr bool is_v4() const {
    for (std::size_t i = 0; i < 10; ++i)
      if (octets_[i] != 0) return false;
    return octets_[10] == 0xff && octets_[11] == 0xff;
  }
  constexpr bool is_v6() const { return !is_v4(); }
  // Of an IPv4 address only.
  constexpr std::uint32_t to_v4() const {
    return static_cast<std::uint32_t>(octets_[12]) << 24 | static_cast<std::uint32_t>(octets_[13]) << 16 |
           static_cast<std::uint32_t>(octets_[14]) << 8 | octets_[15];
  }
  constexpr const std::array<std::uint8_t, 16>& octets() const { return octets_; }

  constexpr void store_v4(MutableBytes bytes, std::size_t offset) const { store_be(bytes, offset, to_v4()); }
  constexpr void store_v6(MutableBytes bytes, std::size_t offset) const {
    for (std::size_t i = 0; i < 16; ++i) store_be<std::uint8_t>(bytes, offset + i, octets_[i]);
  }

  constexpr bool is_unspecified() const {  // 0.0.0.0 or ::
    if (is_v4()) return to_v4() == 0;
    return octets_ == std::array<std::uint8_t, 16>{};
  }
  constexpr bool is_multicast() const { return is_v4() ? (to_v4() >> 28) == 0xE : octets_[0] == 0xff; }
  constexpr bool is_limited_broadcast() const { return is_v4() && to_v4() == 0xFFFFFFFF; }
  constexpr bool is_loopback() const {
    if (is_v4()) return octets_[12] == 127;
    std::array<std::uint8_t, 16> one{};
    one[15] = 1;
    return octets_ == one;
  }
  constexpr bool is_link_local() const {
    if (is_v4()) return octets_[12] == 169 && octets_[13] == 254;
    return octets_[0] == 0xfe && (octets_[1] & 0xc0) == 0x80;
  }

  constexpr auto operator<=>(const IpAddress&) const = default;

 private:
  std::array<std::uint8_t, 16> octets_{};
};

// The first `prefix_bits` of both are the same, and both are of one version. For IPv4 the prefix
// counts from the IPv4 address's first bit.
constexpr bool same_network(const IpAddress& a, const IpAddress& b, unsigned prefix_bits) {
  if (a.is_v4() != b.is_v4()) return false;
  unsigned bits = a.is_v4() ? prefix_bits + 96 : prefix_bits;
  for (std::size_t i = 0; i < 16 && bits > 0; ++i) {
    const unsigned here = bits < 8 ? bits : 8;
    const auto mask = static_cast<std::uint8_t>(0xff00u >> here);
    if (((a.octets()[i] ^ b.octets()[i]) & mask) != 0) return false;
    bits -= here;
  }
  return true;
}

std::string to_string(const IpAddress& address);
std::optional<IpAddress> parse_ip(std::string_view text);

static_assert(same_network(IpAddress::v4(10, 0, 1, 2), IpAddress::v4(10, 0, 1, 200), 24));
static_assert(!same_network(IpAddress::v4(10, 0, 1, 2), IpAddress::v4(10, 0, 2, 2), 24));

}  // namespace rnic::wire

template <>
struct std::hash<rnic::wire::Mac> {
  std::size_t operator()(const rnic::wire::Mac& mac) const noexcept {
    std::uint64_t value = 0;
    for (auto octet : mac.octets) value = value << 8 | octet;
    return static_cast<std::size_t>(value * 0x9E3779B97F4A7C15u);
  }
};
template <>
struct std::hash<rnic::wire::IpAddress> {
  std::size_t operator()(const rnic::wire::IpAddress& address) const noexcept {
    std::uint64_t high, low;
    std::memcpy(&high, address.octets().data(), 8);
    std::memcpy(&low, address.octets().data() + 8, 8);
    std::uint64_t value = (high * 0xC2B2AE3D27D4EB4Fu ^ low) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(value ^ (value >> 29));
  }
};
