// Where a packet goes next: our addresses and their networks, prefixes that routers call on-link,
// static routes and default routers; the longest prefix decides (RFC 1122 s3.3.1, RFC 4861 s5.2). Both
// versions of IP.
//
// Pure; bounded. Owned by one worker; control has a copy of its own to choose devices by.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/address.hpp"

namespace rnic::ip {

struct Route {
  wire::IpAddress prefix;  // of its `bits` first bits; 0: the default route
  unsigned bits = 0;
  wire::IpAddress gateway;  // unspecified: on-link
  bool advertised = false;  // by a router: it may go again
  bool suspect = false;     // its gateway does not answer; used where there is no other
  bool operator==(const Route&) const = default;
};

inline constexpr std::size_t kRoutesMax = 64;

class Routes {
 public:
  Routes();

  // An address of ours and the network that it is in. One that is not preferred any more speaks only
  // where no other can (RFC 4862 s5.5.4).
  void add_own(const wire::IpAddress& address, unsigned prefix_bits, bool preferred = true);
  void remove_own(const wire::IpAddress& address);
  void set_preferred(const wire::IpAddress& address, bool preferred);
  // One with the same prefix and gateway is replaced. False: there are too many.
  bool add(const Route& route);
  void remove(const wire::IpAddress& prefix, unsigned bits, const wire::IpAddress& gateway);
  void set_gateway(const wire::IpAddress& gateway);  // a default route
  // Those by this gateway are suspect, or are no more; true: something has changed.
  bool suspect(const wire::IpAddress& gateway) { return set_suspect(gateway, true); }
  bool trust(const wire::IpAddress& gateway) { return set_suspect(gateway, false); }

  bool is_own(const wire::IpAddress& address) const;
  // One of our own, or 127.0.0.1 or ::1: what is sent there never leaves us.
  bool is_self(const wire::IpAddress& address) const;
  // A directed broadcast of one of our networks, or 255.255.255.255.
  bool is_broadcast(const wire::IpAddress& address) const;
  // Whose link address a packet to `destination` needs; nothing: it cannot be reached. What is_self()
  // is its own next hop.
  std::optional<wire::IpAddress> next_hop(const wire::IpAddress& destination) const;
  // Our address to speak from toward `destination`. 127.0.0.1 and ::1 speak only to themselves, even
  // where they are own addresses.
  std::optional<wire::IpAddress> source_for(const wire::IpAddress& destination) const;
  // How long the prefix is by which `destination` is reached: -1: not at all, 0: by a default route.
  // What is_self(): all of its bits, and one.
  int prefix_toward(const wire::IpAddress& destination) const;

  const std::vector<Route>& routes() const { return routes_; }

 private:
  bool set_suspect(const wire::IpAddress& gateway, bool is);
  struct Own {
    wire::IpAddress address;
    unsigned prefix_bits;
    bool preferred;
  };
  const Own* network_of(const wire::IpAddress& destination) const;
  const Route* route_to(const wire::IpAddress& destination) const;

  std::vector<Own> own_;
  std::vector<Route> routes_;
};

}  // namespace rnic::ip
