// Where a packet goes next: on-link networks and a default gateway. Addresses of both IP versions.
//
// Pure. Owned by one worker; written by control between turns.
#pragma once

#include <optional>
#include <vector>

#include "wire/address.hpp"

namespace rnic::ip {

class Routes {
 public:
  // An address of ours and the network that it is in.
  void add_own(const wire::IpAddress& address, unsigned prefix_bits);
  void set_gateway(const wire::IpAddress& gateway) { gateway_ = gateway; }

  bool is_own(const wire::IpAddress& address) const;
  // A directed broadcast of one of our networks, or 255.255.255.255.
  bool is_broadcast(const wire::IpAddress& address) const;
  // Whose link address a packet to `destination` needs; nothing: it cannot be reached. One of our
  // own addresses is its own next hop.
  std::optional<wire::IpAddress> next_hop(const wire::IpAddress& destination) const;
  // Our address to speak from toward `destination`.
  std::optional<wire::IpAddress> source_for(const wire::IpAddress& destination) const;

 private:
  struct Own {
    wire::IpAddress address;
    unsigned prefix_bits;
  };
  const Own* network_of(const wire::IpAddress& destination) const;

  std::vector<Own> own_;
  std::optional<wire::IpAddress> gateway_;
};

}  // namespace rnic::ip
