// Longest prefix first among our networks, then the gateway (RFC 1122 s3.3.1).
#include "ip/routes.hpp"

namespace rnic::ip {

void Routes::add_own(const wire::IpAddress& address, unsigned prefix_bits) {
  const unsigned most = address.is_v4() ? 32 : 128;
  own_.push_back({address, prefix_bits < most ? prefix_bits : most});
}

bool Routes::is_own(const wire::IpAddress& address) const {
  for (const Own& own : own_)
    if (own.address == address) return true;
  return false;
}

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
    if (best == nullptr || own.prefix_bits > best->prefix_bits) best = &own;
  }
  return best;
}

std::optional<wire::IpAddress> Routes::next_hop(const wire::IpAddress& destination) const {
  if (destination.is_unspecified() || destination.is_multicast() || is_broadcast(destination)) return std::nullopt;
  if (is_own(destination)) return destination;
  if (network_of(destination) != nullptr) return destination;
  if (gateway_ && gateway_->is_v4() == destination.is_v4() && !gateway_->is_unspecified()) return gateway_;
  return std::nullopt;
}

std::optional<wire::IpAddress> Routes::source_for(const wire::IpAddress& destination) const {
  if (is_own(destination)) return destination;
  if (const Own* own = network_of(destination)) return own->address;
  const auto hop = next_hop(destination);
  if (!hop) return std::nullopt;
  if (const Own* own = network_of(*hop)) return own->address;
  for (const Own& own : own_)
    if (own.address.is_v4() == destination.is_v4()) return own.address;
  return std::nullopt;
}

}  // namespace rnic::ip
