// Addresses as text.
#include "wire/address.hpp"

#include <arpa/inet.h>

#include <cstdio>

namespace rnic::wire {

std::string to_string(const Mac& mac) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac.octets[0], mac.octets[1], mac.octets[2],
                mac.octets[3], mac.octets[4], mac.octets[5]);
  return text;
}

namespace {
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

std::optional<Mac> parse_mac(std::string_view text) {
  if (text.size() != 17) return std::nullopt;
  Mac mac;
  for (std::size_t i = 0; i < Mac::kSize; ++i) {
    if (i > 0 && text[3 * i - 1] != ':') return std::nullopt;
    const int high = hex_digit(text[3 * i]), low = hex_digit(text[3 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    mac.octets[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return mac;
}

std::string to_string(const IpAddress& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.is_v4())
    inet_ntop(AF_INET, address.octets().data() + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, address.octets().data(), text, sizeof text);
  return text;
}

std::optional<IpAddress> parse_ip(std::string_view text) {
  const std::string terminated(text);
  std::array<std::uint8_t, 16> octets{};
  if (inet_pton(AF_INET, terminated.c_str(), octets.data()) == 1)
    return IpAddress::v4(octets[0], octets[1], octets[2], octets[3]);
  if (inet_pton(AF_INET6, terminated.c_str(), octets.data()) == 1) return IpAddress::from_octets(octets);
  return std::nullopt;
}

}  // namespace rnic::wire
