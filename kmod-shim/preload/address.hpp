// Addresses: struct sockaddr of the application, rnic_address of the control protocol, and GIDs.
#pragma once

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "rnic_control.h"

namespace rnic::preload {

// What follows in a sockaddr of this family, or 0 for one that is not served.
inline std::size_t sockaddr_size(std::uint16_t family) {
  if (family == AF_INET) return sizeof(sockaddr_in);
  if (family == AF_INET6) return sizeof(sockaddr_in6);
  return 0;
}

// `octets` has at least sockaddr_size octets. An IPv4 address in an IPv6 coat (RFC 4291 s2.5.5.2)
// goes to the daemon as what it is; its peers speak IPv4. False for a family that is not served.
inline bool to_daemon(const void* octets, rnic_address& address) {
  address = {};
  std::uint16_t family = 0;
  memcpy(&family, octets, sizeof family);
  if (family == AF_INET) {
    sockaddr_in in{};
    memcpy(&in, octets, sizeof in);
    address.family = AF_INET;
    address.port = in.sin_port;
    memcpy(address.octets, &in.sin_addr, sizeof in.sin_addr);
    return true;
  }
  if (family == AF_INET6) {
    sockaddr_in6 in{};
    memcpy(&in, octets, sizeof in);
    address.port = in.sin6_port;
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      address.family = AF_INET;
      memcpy(address.octets, in.sin6_addr.s6_addr + 12, 4);
      return true;
    }
    address.family = AF_INET6;
    address.scope = in.sin6_scope_id;
    memcpy(address.octets, &in.sin6_addr, sizeof in.sin6_addr);
    return true;
  }
  return false;
}

// Writes a sockaddr into `octets`, at most `room` of it, and says how long it is. No address
// leaves zeros, whose family is AF_UNSPEC.
inline std::size_t from_daemon(const rnic_address& address, void* octets, std::size_t room) {
  memset(octets, 0, room);
  if (address.family == AF_INET && room >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = address.port;
    memcpy(&in.sin_addr, address.octets, sizeof in.sin_addr);
    memcpy(octets, &in, sizeof in);
    return sizeof in;
  }
  if (address.family == AF_INET6 && room >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = address.port;
    in.sin6_scope_id = address.scope;
    memcpy(&in.sin6_addr, address.octets, sizeof in.sin6_addr);
    memcpy(octets, &in, sizeof in);
    return sizeof in;
  }
  return 0;
}

// The GID that a device has for this address: ::ffff:a.b.c.d, or the IPv6 address itself.
inline void to_gid(const rnic_address& address, std::uint8_t* gid) {
  memset(gid, 0, 16);
  if (address.family == AF_INET) {
    gid[10] = 0xff;
    gid[11] = 0xff;
    memcpy(gid + 12, address.octets, 4);
  } else if (address.family == AF_INET6) {
    memcpy(gid, address.octets, 16);
  }
}

}  // namespace rnic::preload
