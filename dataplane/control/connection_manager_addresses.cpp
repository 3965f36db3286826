// Ids and addresses: which device and port an id has, and which way to its peer.
#include "control/connection_manager.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/addresses.hpp"
#include "ip/host_loopback.hpp"

namespace rnic::control {

std::optional<std::uint32_t> ConnectionManager::owner_of(const wire::IpAddress& address, DeviceSet among) const {
  for (std::uint32_t device = 0; device < devices_.size(); ++device) {
    if ((among >> device & 1u) == 0) continue;
    for (const wire::IpAddress& own : devices_[device].addresses)
      if (own == address) return device;
  }
  return std::nullopt;
}

// Whose address it is. 127.0.0.1 and ::1 are every device's: where none has them by configuration, the
// first is meant, for whoever binds there and for whoever calls.
std::optional<std::uint32_t> ConnectionManager::meant_by(const wire::IpAddress& address, DeviceSet among) const {
  const auto owner = owner_of(address, among);
  if (owner || !ip::is_host_loopback(address)) return owner;
  for (std::uint32_t device = 0; device < devices_.size(); ++device)
    if ((among >> device & 1u) != 0) return device;
  return std::nullopt;
}

// Those of the devices whose link a link-local address can be on: all of them, where no scope says.
DeviceSet ConnectionManager::within_scope(DeviceSet among, const wire::IpAddress& address, std::uint32_t scope) const {
  if (scope == 0 || !address.is_v6() || !address.is_link_local()) return among;
  DeviceSet within = 0;
  for (std::uint32_t device = 0; device < devices_.size(); ++device)
    if (devices_[device].scope == scope) within |= DeviceSet{1} << device;
  return among & within;
}

// An address as the application is told it.
rnic_address ConnectionManager::told(const wire::IpAddress& address, std::uint16_t port, int device) const {
  rnic_address out = to_abi(address, port);
  if (device >= 0 && address.is_v6() && address.is_link_local())
    out.scope = devices_[static_cast<std::size_t>(device)].scope;
  return out;
}

int ConnectionManager::bind_to(Id& id, const wire::IpAddress& address, std::uint16_t port, std::uint32_t scope) {
  int device = -1;
  DeviceSet devices = id.visible;
  if (!address.is_unspecified()) {
    const auto owner = meant_by(address, within_scope(id.visible, address, scope));
    if (!owner) return EADDRNOTAVAIL;
    device = static_cast<int>(*owner);
    devices = DeviceSet{1} << *owner;
  }
  Share share = shares_of(port).take(channels_[id.channel].holder);
  if (!share) return ENOMEM;
  Binding binding{address, port, devices, id.reuse, id.family_only && address.is_v6()};
  if (!ports_of(id).bind(id.number, binding)) return port == 0 ? EADDRNOTAVAIL : EADDRINUSE;
  id.port_share = std::move(share);
  id.device = device;
  id.source = address;
  id.source_port = binding.port;
  id.has_source = true;
  id.port_chosen = port != 0;
  id.state = IdState::bound;
  return 0;
}

int ConnectionManager::bind(std::uint32_t number, const rnic_address& address) {
  Id* id = find(number);
  if (id == nullptr) return EINVAL;
  const auto ip = ip_of(address);
  if (!ip) return EAFNOSUPPORT;
  if (id->state != IdState::idle) return EINVAL;
  return bind_to(*id, *ip, port_of(address), address.scope);
}

// The device to reach `destination` by, and our address there: for 127.0.0.1 and ::1 the device that they
// mean, and no other; where the application is bound; a device whose other end owns it; the device that
// owns it; the one with the longest prefix toward it, its own networks and its routes counted.
Result<ConnectionManager::Route, int> ConnectionManager::choose_route(const Id& id,
                                                                      const wire::IpAddress& destination) const {
  if (id.has_datagrams() && destination.is_multicast()) return route_to_group(id, destination);
  const auto mate_owns_it = [&](std::uint32_t device) {
    const int mate = devices_[device].mate;
    return mate >= 0 && owner_of(destination, DeviceSet{1} << mate).has_value();
  };
  // From a mate's address the way back is the wire itself, whatever networks the two are in.
  const auto source_on = [&](std::uint32_t device) -> std::optional<wire::IpAddress> {
    if (const auto source = devices_[device].routes.source_for(destination)) return source;
    for (const wire::IpAddress& own : devices_[device].addresses)
      if (own.is_v4() == destination.is_v4() && !ip::is_host_loopback(own)) return own;
    return std::nullopt;
  };

  if (id.device >= 0) {
    const auto device = static_cast<std::uint32_t>(id.device);
    if (id.source.is_v4() != destination.is_v4()) return Failure{EINVAL};
    if (ip::is_host_loopback(destination) && meant_by(destination, id.visible) != device) return Failure{ENETUNREACH};
    // As the kernel has it: who is bound to a loopback address speaks to nobody beyond a wire.
    if (ip::is_host_loopback(id.source) && !devices_[device].routes.is_self(destination)) return Failure{EINVAL};
    if (devices_[device].routes.prefix_toward(destination) < 0 && !mate_owns_it(device)) return Failure{ENETUNREACH};
    return Route{device, id.source};
  }

  if (ip::is_host_loopback(destination)) {
    const auto itself = meant_by(destination, id.visible);
    if (!itself) return Failure{ENODEV};
    return Route{*itself, destination};
  }
  const DeviceSet candidates = within_scope(id.visible, destination, id.scope);
  std::optional<std::uint32_t> best;
  for (std::uint32_t device = 0; device < devices_.size() && !best; ++device)
    if ((candidates >> device & 1u) != 0 && mate_owns_it(device)) best = device;
  if (!best) best = owner_of(destination, candidates);
  if (!best) {
    int longest = -1;
    bool alone = true;
    for (std::uint32_t device = 0; device < devices_.size(); ++device) {
      const int prefix = (candidates >> device & 1u) != 0 ? devices_[device].routes.prefix_toward(destination) : -1;
      if (prefix < 0 || prefix < longest) continue;
      alone = prefix > longest;
      if (prefix == longest) continue;
      longest = prefix;
      best = device;
    }
    // A link-local address can be on every link: which is meant must be said (RFC 4007 s6).
    if (best && !alone && destination.is_v6() && destination.is_link_local()) return Failure{EINVAL};
  }
  if (!best) return Failure{ENODEV};
  const auto source = source_on(*best);
  if (!source) return Failure{ENODEV};
  return Route{*best, *source};
}

int ConnectionManager::resolve_address(std::uint32_t number, const rnic_address& source,
                                       const rnic_address& destination) {
  Id* id = find(number);
  if (id == nullptr) return EINVAL;
  auto to = ip_of(destination);
  if (!to) return EINVAL;
  std::optional<wire::IpAddress> from;
  if (source.family != AF_UNSPEC) {
    from = ip_of(source);
    if (!from) return EINVAL;
    // A wildcard of the other version leaves the choice to us.
    if (from->is_v4() != to->is_v4()) {
      if (!from->is_unspecified()) return EINVAL;
      from = to->is_v4() ? wire::IpAddress::v4(0) : wire::IpAddress();
    }
  }
  if (id->state != IdState::idle && id->state != IdState::bound) return EINVAL;
  // A wildcard for a destination is this host, as rdma_cm has it.
  if (to->is_unspecified()) {
    for (std::uint32_t device = 0; device < devices_.size() && to->is_unspecified(); ++device) {
      if (!sees(*id, device) || (id->device >= 0 && id->device != static_cast<int>(device))) continue;
      for (const wire::IpAddress& own : devices_[device].addresses)
        if (own.is_v4() == to->is_v4() && to->is_unspecified()) to = own;
    }
    if (to->is_unspecified()) to = to->is_v4() ? ip::kHostLoopbackV4 : ip::kHostLoopbackV6;
  }
  if (id->state == IdState::idle) {
    const wire::IpAddress any = to->is_v4() ? wire::IpAddress::v4(0) : wire::IpAddress();
    const int error = bind_to(*id, from.value_or(any), from ? port_of(source) : std::uint16_t{0}, source.scope);
    if (error != 0) return error;
  }
  id->scope = destination.scope;
  id->destination = *to;
  id->destination_port = port_of(destination);
  id->has_destination = true;

  const auto route = choose_route(*id, *to);
  if (!route) {
    queue(*id, RNIC_CM_ADDRESS_ERROR, -route.error());
    return 0;
  }
  id->device = static_cast<int>(route->device);
  id->source = route->source;
  id->state = IdState::address_resolved;
  queue(*id, RNIC_CM_ADDRESS_RESOLVED, 0);
  return 0;
}

int ConnectionManager::resolve_route(std::uint32_t number) {
  Id* id = find(number);
  if (id == nullptr || id->state != IdState::address_resolved) return EINVAL;
  id->state = IdState::route_resolved;
  queue(*id, RNIC_CM_ROUTE_RESOLVED, 0);
  return 0;
}

// To the kernel 127.0.0.1 and ::1 are wildcards that come with no device until somebody is called, and libfabric
// builds on it: of an id that has a device it takes the address for the one where peers on other hosts find it.
// Datagrams of rsocket take the device at once, there too.
bool ConnectionManager::hides_device(const Id& id) const {
  return !id.has_datagrams() && (id.state == IdState::bound || id.state == IdState::listening) &&
         ip::is_host_loopback(id.source) && !owner_of(id.source, DeviceSet{1} << id.device);
}

Result<rnic_cm_query_reply, int> ConnectionManager::query(std::uint32_t number) const {
  const Id* id = find(number);
  if (id == nullptr) return Failure{EINVAL};
  rnic_cm_query_reply reply{};
  if (id->has_source) reply.source = told(id->source, id->source_port, id->device);
  if (id->has_destination) reply.destination = told(id->destination, id->destination_port, id->device);
  // Netlink's index is not known to who lists devices by sysfs: the GUID alone says which it is.
  reply.device_index = ~0u;
  if (id->device >= 0 && !hides_device(*id)) {
    reply.node_guid = devices_[static_cast<std::size_t>(id->device)].node_guid;
    reply.port_number = 1;
    describe_path(*id, reply);
  }
  return reply;
}

}  // namespace rnic::control
