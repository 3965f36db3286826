#include "ip/routes.hpp"

#include <algorithm>

#include "ip/host_loopback.hpp"

namespace rnic::ip {
namespace {

unsigned width(const wire::IpAddress& address) { return address.is_v4() ? 32 : 128; }

// How far an address is valid (RFC 6724 s3.1), as far as it matters to who speaks to whom.
int scope(const wire::IpAddress& address) { return address.is_link_local() ? 0 : 1; }

unsigned common_bits(const wire::IpAddress& a, const wire::IpAddress& b) {
  unsigned bits = 0;
  while (bits < 128 && ((a.octets()[bits / 8] ^ b.octets()[bits / 8]) >> (7 - bits % 8) & 1) == 0) ++bits;
  return bits;
}

}  // namespace

Routes::Routes() {
  own_.reserve(16);
  routes_.reserve(kRoutesMax);
}

void Routes::add_own(const wire::IpAddress& address, unsigned prefix_bits, bool preferred) {
  remove_own(address);
  own_.push_back({address, std::min(prefix_bits, width(address)), preferred});
}

void Routes::remove_own(const wire::IpAddress& address) {
  std::erase_if(own_, [&](const Own& own) { return own.address == address; });
}

void Routes::set_preferred(const wire::IpAddress& address, bool preferred) {
  for (Own& own : own_)
    if (own.address == address) own.preferred = preferred;
}

bool Routes::add(const Route& route) {
  for (Route& known : routes_)
    if (known.bits == route.bits && known.gateway == route.gateway &&
        wire::same_network(known.prefix, route.prefix, route.bits)) {
      known = route;
      return true;
    }
  if (routes_.size() == kRoutesMax) return false;
  routes_.push_back(route);
  return true;
}

void Routes::remove(const wire::IpAddress& prefix, unsigned bits, const wire::IpAddress& gateway) {
  std::erase_if(routes_, [&](const Route& known) {
    return known.bits == bits && known.gateway == gateway && wire::same_network(known.prefix, prefix, bits);
  });
}

void Routes::set_gateway(const wire::IpAddress& gateway) {
  if (gateway.is_unspecified()) return;
  add({.prefix = gateway.is_v4() ? wire::IpAddress::v4(0) : wire::IpAddress(), .bits = 0, .gateway = gateway});
}

bool Routes::set_suspect(const wire::IpAddress& gateway, bool is) {
  bool changed = false;
  for (Route& route : routes_)
    if (route.gateway == gateway && route.suspect != is) {
      route.suspect = is;
      changed = true;
    }
  return changed;
}

bool Routes::is_own(const wire::IpAddress& address) const {
  for (const Own& own : own_)
    if (own.address == address) return true;
  return false;
}

bool Routes::is_self(const wire::IpAddress& address) const { return is_host_loopback(address) || is_own(address); }

bool Routes::is_broadcast(const wire::IpAddress& address) const {
  if (address.is_limited_broadcast()) return true;
  if (!address.is_v4()) return false;
  for (const Own& own : own_) {
    // A /31 and a /32 have no broadcast address (RFC 3021).
    if (own.prefix_bits >= 31 || !wire::same_network(own.address, address, own.prefix_bits)) continue;
    const std::uint32_t host_mask = 0xFFFFFFFFu >> own.prefix_bits;
    if ((address.to_v4() & host_mask) == host_mask) return true;
  }
  return false;
}

const Routes::Own* Routes::network_of(const wire::IpAddress& destination) const {
  const Own* best = nullptr;
  for (const Own& own : own_) {
    if (!wire::same_network(own.address, destination, own.prefix_bits)) continue;
    if (best == nullptr || own.prefix_bits > best->prefix_bits ||
        (own.prefix_bits == best->prefix_bits && own.preferred && !best->preferred))
      best = &own;
  }
  return best;
}

// The first of the longest, but one that is suspect only where no other is as long.
const Route* Routes::route_to(const wire::IpAddress& destination) const {
  const Route* best = nullptr;
  for (const Route& route : routes_) {
    if (!wire::same_network(route.prefix, destination, route.bits)) continue;
    if (best == nullptr || route.bits > best->bits || (route.bits == best->bits && best->suspect && !route.suspect))
      best = &route;
  }
  return best;
}

std::optional<wire::IpAddress> Routes::next_hop(const wire::IpAddress& destination) const {
  if (destination.is_unspecified() || destination.is_multicast() || is_broadcast(destination)) return std::nullopt;
  if (is_self(destination)) return destination;
  const Own* own = network_of(destination);
  const Route* route = route_to(destination);
  if (own != nullptr && (route == nullptr || own->prefix_bits >= route->bits)) return destination;
  if (route == nullptr) return std::nullopt;
  return route->gateway.is_unspecified() ? destination : route->gateway;
}

// RFC 6724 s5, as far as it goes here: of the same scope; of the network that the next hop is in;
// preferred; with the most bits in common.
std::optional<wire::IpAddress> Routes::source_for(const wire::IpAddress& destination) const {
  if (is_self(destination)) return destination;
  const auto hop = next_hop(destination);
  if (!hop) return std::nullopt;
  const Own* best = nullptr;
  const auto better = [&](const Own& a, const Own& b) {
    if (scope(a.address) != scope(b.address)) {
      // The same scope as the destination's, else the wider.
      const bool a_fits = scope(a.address) == scope(destination), b_fits = scope(b.address) == scope(destination);
      if (a_fits != b_fits) return a_fits;
      return scope(a.address) > scope(b.address);
    }
    if (a.preferred != b.preferred) return a.preferred;
    const bool a_near = wire::same_network(a.address, *hop, a.prefix_bits),
               b_near = wire::same_network(b.address, *hop, b.prefix_bits);
    if (a_near != b_near) return a_near;
    if (a_near && a.prefix_bits != b.prefix_bits) return a.prefix_bits > b.prefix_bits;
    return common_bits(a.address, destination) > common_bits(b.address, destination);
  };
  for (const Own& own : own_) {
    if (own.address.is_v4() != destination.is_v4() || is_host_loopback(own.address)) continue;
    if (best == nullptr || better(own, *best)) best = &own;
  }
  if (best == nullptr) return std::nullopt;
  return best->address;
}

int Routes::prefix_toward(const wire::IpAddress& destination) const {
  if (is_self(destination)) return static_cast<int>(width(destination)) + 1;
  if (!next_hop(destination)) return -1;
  const Own* own = network_of(destination);
  const Route* route = route_to(destination);
  return std::max(own != nullptr ? static_cast<int>(own->prefix_bits) : -1,
                  route != nullptr ? static_cast<int>(route->bits) : -1);
}

}  // namespace rnic::ip
