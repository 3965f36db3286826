// 127.0.0.1 and ::1: to every device the device itself, whatever its addresses and its version of IP.
// They are never on a wire (RFC 1122 s3.2.1.3 (g), RFC 4291 s2.5.3). The others of 127.0.0.0/8 mean
// nobody until a device has them.
#pragma once

#include "wire/address.hpp"

namespace rnic::ip {

inline constexpr wire::IpAddress kHostLoopbackV4 = wire::IpAddress::v4(127, 0, 0, 1);
inline constexpr wire::IpAddress kHostLoopbackV6 =
    wire::IpAddress::from_octets({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});

constexpr bool is_host_loopback(const wire::IpAddress& address) {
  return address == kHostLoopbackV4 || address == kHostLoopbackV6;
}

}  // namespace rnic::ip
