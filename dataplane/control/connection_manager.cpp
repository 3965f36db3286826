#include "control/connection_manager.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/addresses.hpp"
#include "control/stream_errno.hpp"
#include "ip/host_loopback.hpp"
#include "wire/mark.hpp"

namespace rnic::control {
namespace {

using core::StreamError;
using core::StreamEvent;
using core::StreamFailure;

// An ephemeral port may be one whose last connection to that peer is still in TIME-WAIT.
constexpr int kPortTries = 64;

// enum ibv_qp_state.
constexpr std::uint32_t kQpsInit = 1, kQpsRtr = 2, kQpsRts = 3;

// rdma_cm's levels and options.
constexpr std::uint32_t kLevelId = 0;
constexpr std::uint32_t kOptionTos = 0, kOptionReuse = 1, kOptionFamilyOnly = 2, kOptionAckTimeout = 3;
constexpr std::uint32_t kEventCommunicationEstablished = 4;  // IBV_EVENT_COMM_EST

core::PrivateData to_private_data(Bytes octets) {
  core::PrivateData data;
  data.length = static_cast<std::uint16_t>(octets.size());
  std::copy(octets.begin(), octets.end(), data.octets.begin());
  return data;
}

core::PrivateData to_private_data(const rnic_cm_parameters& parameters) {
  return to_private_data(as_bytes(parameters.private_data, parameters.private_data_length));
}

std::uint8_t depth(std::uint32_t value) { return static_cast<std::uint8_t>(std::min<std::uint32_t>(value, 255)); }

void fill(rnic_cm_parameters& to, const StreamEvent& event) {
  to.valid = 1;
  to.responder_resources = depth(event.ird);
  to.initiator_depth = depth(event.ord);
  to.private_data_length =
      static_cast<std::uint16_t>(std::min<std::size_t>(event.private_data.length, RNIC_PRIVATE_DATA_MAX));
  std::memcpy(to.private_data, event.private_data.octets.data(), to.private_data_length);
}

}  // namespace

const char* name(IdState state) {
  switch (state) {
    case IdState::idle:
      return "idle";
    case IdState::bound:
      return "bound";
    case IdState::address_resolved:
      return "address-resolved";
    case IdState::route_resolved:
      return "route-resolved";
    case IdState::listening:
      return "listening";
    case IdState::connecting:
      return "connecting";
    case IdState::answered:
      return "answered";
    case IdState::requested:
      return "requested";
    case IdState::accepting:
      return "accepting";
    case IdState::connected:
      return "connected";
    case IdState::ended:
      return "ended";
  }
  return "";
}

ConnectionManager::ConnectionManager(std::vector<CmDevice> devices, CmHost& host, std::uint64_t seed)
    : devices_(std::move(devices)), host_(host), ports_(seed), udp_ports_(seed), ipoib_ports_(seed), psns_(seed) {
  RNIC_ASSERT(devices_.size() <= kDeviceSetMax);
  for (const CmDevice& device : devices_) {
    streams_.emplace_back("connections", device.streams_max - device.streams_max / 8);
    inquiries_.emplace_back("inquiries without an answer", kInquiriesMax);
  }
}

void ConnectionManager::tell_refusals_by(const Shares::Tell& tell) {
  shares_.tell_by(tell);
  for (Shares& each : streams_) each.tell_by(tell);
  for (Shares& each : inquiries_) each.tell_by(tell);
  ephemeral_ports_.tell_by(tell);
  other_ports_.tell_by(tell);
}

// ---- channels ------------------------------------------------------------------------------------

std::uint32_t ConnectionManager::open_channel(Holder holder) {
  while (next_channel_ == 0 || channels_.contains(next_channel_)) ++next_channel_;
  channels_[next_channel_].holder = holder;
  return next_channel_++;
}

void ConnectionManager::close_channel(std::uint32_t channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  // All events first: nobody looks through them for those of each id. Ids of requests that they told of are the
  // channel's, too.
  found->second.events.clear();
  Left left;
  for (const std::uint32_t number : found->second.ids) {
    take_apart(*ids_.at(number), left);
    ids_.erase(number);
  }
  channels_.erase(channel);
  abandon(left);
}

Result<rnic_cm_get_event_reply, int> ConnectionManager::get_event(std::uint32_t channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return Failure{EINVAL};
  auto& events = found->second.events;
  if (events.empty()) return Failure{EAGAIN};
  const Event event = events.front();
  events.pop_front();
  if (Id* owner = find(event.owner)) ++owner->events_reported;
  if (const auto of = memberships_.find(event.membership); of != memberships_.end()) ++of->second.events_reported;
  if (Id* id = find(event.reply.id)) {
    id->known = true;
    if (id->withdrawn) leave_listener(*id);
  }
  return event.reply;
}

// ---- ids -----------------------------------------------------------------------------------------

ConnectionManager::Id* ConnectionManager::find(std::uint32_t id) {
  const auto found = ids_.find(id);
  return found == ids_.end() ? nullptr : found->second.get();
}

const ConnectionManager::Id* ConnectionManager::find(std::uint32_t id) const {
  const auto found = ids_.find(id);
  return found == ids_.end() ? nullptr : found->second.get();
}

ConnectionManager::Id* ConnectionManager::make_id(std::uint32_t channel) {
  Share share = shares_.take(channels_[channel].holder);
  if (!share) return nullptr;
  // The number is the cookie's lower half: late news of an id that is gone find nobody.
  while (static_cast<std::uint32_t>(next_cookie_) == 0 || ids_.contains(static_cast<std::uint32_t>(next_cookie_)))
    ++next_cookie_;
  auto id = std::make_unique<Id>();
  id->cookie = next_cookie_++;
  id->number = static_cast<std::uint32_t>(id->cookie);
  id->channel = channel;
  id->share = std::move(share);
  Id& made = *id;
  ids_.emplace(made.number, std::move(id));
  channels_[channel].ids.insert(made.number);
  return &made;
}

Result<std::uint32_t, int> ConnectionManager::create_id(std::uint32_t channel, std::uint32_t port_space,
                                                        std::uint64_t user_pointer, DeviceSet devices) {
  if (!channels_.contains(channel)) return Failure{EINVAL};
  if (port_spaces::has_datagrams(port_space))
    devices = with_datagrams(devices);
  else if (port_space != port_spaces::kTcp)
    return Failure{EINVAL};
  // No device of a face that has them.
  if (port_space != port_spaces::kTcp && devices == 0) return Failure{EINVAL};
  Id* id = make_id(channel);
  if (id == nullptr) return Failure{ENOMEM};
  id->port_space = port_space;
  id->user_pointer = user_pointer;
  id->visible = devices;
  id->known = true;
  return id->number;
}

std::optional<std::uint32_t> ConnectionManager::channel_of(std::uint32_t number) const {
  const Id* id = find(number);
  if (id == nullptr || !id->known) return std::nullopt;
  return id->channel;
}

bool ConnectionManager::has_events(std::uint32_t number) const {
  const Id* id = find(number);
  if (id == nullptr) return false;
  const auto& events = channels_.at(id->channel).events;
  return std::any_of(events.begin(), events.end(), [&](const Event& event) { return event.owner == number; });
}

void ConnectionManager::unlisten(Id& id, Left& left) {
  if (id.has_datagrams()) id.listening_on = 0;  // which no device knows of
  for (std::uint32_t device = 0; device < devices_.size(); ++device)
    if ((id.listening_on >> device & 1u) != 0) left[device].listeners.push_back({id.source, id.source_port});
  id.listening_on = 0;
}

// All but its number and its events.
void ConnectionManager::take_apart(Id& id, Left& left) {
  switch (id.state) {
    case IdState::listening:
      unlisten(id, left);
      break;
    case IdState::connected:
      if (id.has_datagrams()) break;
      [[fallthrough]];
    case IdState::connecting:
    case IdState::answered:
    case IdState::accepting:
    case IdState::requested:
      if (id.withdrawn) break;
      // Nobody has disconnected: its process may have been killed.
      left[static_cast<std::uint32_t>(id.device)].streams.push_back(
          {info_of(id), id.stream, id.state == IdState::requested,
           roce_device(id) != nullptr ? Face::roce : Face::iwarp});
      break;
    case IdState::idle:
    case IdState::bound:
    case IdState::address_resolved:
    case IdState::route_resolved:
    case IdState::ended:
      break;
  }
  ports_of(id).release(id.number);
  end_inquiry(id);
  drop_memberships(id);
}

// Requests that the application was not told of go with their listener.
std::uint32_t ConnectionManager::purge_events(Id& id, Left& left) {
  std::vector<std::uint32_t> unheard;
  const auto purged = std::erase_if(channels_[id.channel].events, [&](const Event& event) {
    if (event.owner != id.number) return false;
    if (event.reply.event == RNIC_CM_CONNECT_REQUEST) unheard.push_back(event.reply.id);
    return true;
  });
  // Such an id has no events of its own.
  for (const std::uint32_t number : unheard) {
    Id* request = find(number);
    if (request == nullptr) continue;
    take_apart(*request, left);
    forget(*request);
  }
  return static_cast<std::uint32_t>(purged);
}

// There is nothing left of its connection for the application.
void ConnectionManager::end(Id& id) {
  id.state = IdState::ended;
  id.stream_share = {};
}

void ConnectionManager::forget(const Id& id) {
  const std::uint32_t number = id.number;
  channels_[id.channel].ids.erase(number);
  ids_.erase(number);
}

std::uint32_t ConnectionManager::destroy(Id& id) {
  Left left;
  take_apart(id, left);
  const std::uint32_t purged = purge_events(id, left);
  forget(id);
  abandon(left);
  return purged;
}

void ConnectionManager::abandon(const Left& left) {
  for (const auto& [device, at] : left) {
    if (!at.listeners.empty()) host_.unlisten(device, at.listeners);
    if (!at.streams.empty()) host_.abandon(device, at.streams);
  }
}

Result<rnic_cm_destroy_id_reply, int> ConnectionManager::destroy_id(std::uint32_t number) {
  Id* id = find(number);
  if (id == nullptr) return Failure{EINVAL};
  rnic_cm_destroy_id_reply reply{};
  reply.events_reported = id->events_reported;
  reply.purged = destroy(*id);
  return reply;
}

Result<rnic_cm_migrate_id_reply, int> ConnectionManager::migrate_id(std::uint32_t number, std::uint32_t channel) {
  Id* id = find(number);
  if (id == nullptr || !channels_.contains(channel)) return Failure{EINVAL};
  rnic_cm_migrate_id_reply reply{};
  reply.events_reported = id->events_reported;
  reply.old_channel = id->channel;
  if (id->channel == channel) return reply;
  Channel& from = channels_[id->channel];
  Channel& to = channels_[channel];
  for (const Event& event : from.events) {
    if (event.owner != number) continue;
    to.events.push_back(event);
    ++reply.purged;
    if (event.reply.event != RNIC_CM_CONNECT_REQUEST) continue;
    if (Id* request = find(event.reply.id)) {
      request->channel = channel;
      from.ids.erase(request->number);
      to.ids.insert(request->number);
    }
  }
  std::erase_if(from.events, [&](const Event& event) { return event.owner == number; });
  id->channel = channel;
  from.ids.erase(number);
  to.ids.insert(number);
  if (reply.purged > 0) host_.events_added(channel, reply.purged);
  return reply;
}

// ---- addresses and routes ------------------------------------------------------------------------

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

// ---- connections ---------------------------------------------------------------------------------

int ConnectionManager::listen(std::uint32_t number, std::uint32_t backlog) {
  Id* id = find(number);
  if (id == nullptr) return EINVAL;
  if (id->state == IdState::idle) {
    if (const int error = bind_to(*id, wire::IpAddress::v4(0), 0, 0); error != 0) return error;
  }
  if (id->state != IdState::bound) return EINVAL;
  if (!ports_of(*id).may_listen(number)) return EADDRINUSE;
  if (id->has_datagrams()) return listen_for_inquiries(*id, backlog);
  for (std::uint32_t device = 0; device < devices_.size(); ++device) {
    if (!sees(*id, device) || (id->device >= 0 && id->device != static_cast<int>(device))) continue;
    const auto opened =
        host_.listen(device, id->source, id->source_port, backlog, id->cookie, id->family_only && id->source.is_v6());
    if (!opened) {
      Left left;
      unlisten(*id, left);
      abandon(left);
      return errno_of(opened.error());
    }
    id->listening_on |= DeviceSet{1} << device;
  }
  if (id->listening_on == 0) return ENODEV;
  id->state = IdState::listening;
  return 0;
}

// 0, or what is wrong with the parameters of connect and accept.
int ConnectionManager::check(const Id& id, const rnic_cm_parameters& parameters, std::size_t data_max) const {
  const CmDevice& device = devices_[static_cast<std::size_t>(id.device)];
  if (parameters.valid == 0 || parameters.private_data_length > data_max) return EINVAL;
  if (parameters.responder_resources > device.ird_max || parameters.initiator_depth > device.ord_max) return EINVAL;
  // The mark speaks for a queue pair: only the daemon does, which knows whose it is.
  const core::PrivateData data = to_private_data(parameters);
  if (wire::has_mark(core::bytes_of(data))) return EACCES;
  return 0;
}

int ConnectionManager::connect(std::uint32_t number, const rnic_cm_parameters& parameters) {
  Id* id = find(number);
  if (id == nullptr || id->state != IdState::route_resolved) return EINVAL;
  if (id->has_datagrams()) return inquire(*id, parameters);
  const bool roce = roce_device(*id) != nullptr;
  if (const int error = check(*id, parameters, roce ? kRequestDataMax : kPrivateDataMax); error != 0) return error;

  Share share = streams_[static_cast<std::size_t>(id->device)].take(channels_[id->channel].holder);
  if (!share) return ENOMEM;
  core::ConnectOptions options;
  options.local = id->source;
  options.remote = id->destination;
  options.remote_port = id->destination_port;
  options.ird = parameters.responder_resources;
  options.ord = parameters.initiator_depth;
  options.private_data = to_private_data(parameters);
  options.cookie = id->cookie;
  options.traffic_class = id->traffic_class;
  if (roce) {
    introduce(*id, parameters);
    id->calls = true;
    options.private_data = greeting_data(id->own, core::bytes_of(to_private_data(parameters)));
  }
  for (int tries = 0;; ++tries) {
    options.local_port = id->source_port;
    const auto device = static_cast<std::uint32_t>(id->device);
    const auto stream = roce ? host_.greet(device, options) : host_.connect(device, options, {parameters.qp_number});
    if (stream) {
      id->stream = *stream;
      break;
    }
    if (stream.error() != StreamError::address_in_use || id->port_chosen || tries == kPortTries)
      return errno_of(stream.error());
    Binding binding{id->source, 0, DeviceSet{1} << id->device, id->reuse, false};
    if (!ports_.rebind(number, binding)) return EADDRNOTAVAIL;
    id->source_port = binding.port;
  }
  id->stream_share = std::move(share);
  id->state = IdState::connecting;
  return 0;
}

int ConnectionManager::accept(std::uint32_t number, std::uint64_t user_pointer, const rnic_cm_parameters& parameters,
                              std::uint32_t qkey) {
  Id* id = find(number);
  if (id != nullptr && id->state == IdState::answered && parameters.valid == 0) return confirm(*id);
  if (id == nullptr || id->state != IdState::requested) return EINVAL;
  if (id->has_datagrams()) return answer(*id, user_pointer, parameters, qkey);
  const bool roce = roce_device(*id) != nullptr;
  if (const int error = check(*id, parameters, roce ? kReplyDataMax : kPrivateDataMax); error != 0) return error;

  core::AcceptOptions options;
  options.ird = parameters.responder_resources;
  options.ord = parameters.initiator_depth;
  options.private_data = to_private_data(parameters);
  options.cookie = id->cookie;
  options.traffic_class = id->traffic_class;
  if (roce) {
    introduce(*id, parameters);
    options.private_data = greeting_data(id->own, core::bytes_of(to_private_data(parameters)));
  }
  const auto device = static_cast<std::uint32_t>(id->device);
  const auto accepted = roce ? host_.welcome(device, id->stream, options)
                             : host_.accept(device, id->stream, options, {parameters.qp_number});
  if (!accepted) {
    // The peer has gone: there is nothing left to answer.
    if (accepted.error() == StreamError::unknown) end(*id);
    return errno_of(accepted.error());
  }
  id->user_pointer = user_pointer;
  id->state = IdState::accepting;
  return 0;
}

int ConnectionManager::reject(std::uint32_t number, Bytes private_data, bool for_ece) {
  Id* id = find(number);
  if (id == nullptr || id->state != IdState::requested) return EINVAL;
  if (id->has_datagrams()) return refuse_inquiry(*id, private_data);
  const bool roce = roce_device(*id) != nullptr;
  if (private_data.size() > (roce ? kRejectDataMax : kPrivateDataMax)) return EINVAL;
  const auto why = for_ece ? wire::MarkRefusal::other_ece : wire::MarkRefusal::its_own_wish;
  const core::PrivateData said = roce ? refusal_data(Face::roce, why, private_data) : to_private_data(private_data);
  const auto rejected = host_.reject(static_cast<std::uint32_t>(id->device), id->stream, said, Rejects::application);
  // A peer that has gone meanwhile needs no answer.
  if (!rejected && rejected.error() != StreamError::unknown) return errno_of(rejected.error());
  end(*id);
  return 0;
}

// On its way down, or down already, is no error: both sides of a connection disconnect, and one of
// them is second.
// Its application has heard that it is welcome.
int ConnectionManager::confirm(Id& id) {
  const auto confirmed = host_.confirm(static_cast<std::uint32_t>(id.device), id.stream);
  if (!confirmed) return errno_of(confirmed.error());
  id.state = IdState::connected;
  return 0;
}

int ConnectionManager::disconnect(std::uint32_t number) {
  Id* id = find(number);
  if (id == nullptr) return EINVAL;
  // There is no connection, and an answer that is on its way is told all the same, as Linux has it.
  if (id->has_datagrams()) return id->device < 0 ? EINVAL : 0;
  switch (id->state) {
    case IdState::connected:
    case IdState::answered:
    case IdState::accepting:
      host_.disconnect(static_cast<std::uint32_t>(id->device), id->stream, core::Disconnect::graceful);
      return 0;
    case IdState::connecting:
      host_.disconnect(static_cast<std::uint32_t>(id->device), id->stream, core::Disconnect::graceful);
      end(*id);
      // An application that waits for the outcome of connect() must not wait for ever.
      queue(*id, RNIC_CM_CONNECT_ERROR, -ECONNABORTED);
      return 0;
    case IdState::requested:
    case IdState::ended:
      return 0;
    case IdState::idle:
    case IdState::bound:
    case IdState::address_resolved:
    case IdState::route_resolved:
    case IdState::listening:
      break;
  }
  return EINVAL;
}

// What iw_cm says, and atomics, which it has not: rights on the way to INIT and RTR; RTS is the connection's own doing.
Result<rnic_cm_init_qp_attributes_reply, int> ConnectionManager::init_qp_attributes(std::uint32_t number,
                                                                                    std::uint32_t state) const {
  const Id* id = find(number);
  if (id == nullptr) return Failure{EINVAL};
  if (id->has_datagrams()) {
    if (id->device < 0) return Failure{EINVAL};
    return datagram_attributes(state);
  }
  if (const CmDevice* device = roce_device(*id)) {
    const auto index = gid_index(*device, id->own.gid);
    const bool known = id->own.path_mtu != 0 && index;
    const Acquaintance acquaintance{.own = id->own,
                                    .peer = id->peer,
                                    .calls = id->calls,
                                    .gid_index = index.value_or(0),
                                    .traffic_class = id->traffic_class,
                                    .timeout = id->timeout};
    const auto attributes = attributes_for(state, known ? &acquaintance : nullptr);
    if (!attributes) return Failure{EINVAL};
    return *attributes;
  }
  rnic_cm_init_qp_attributes_reply reply{};
  reply.state = state;
  if (id->device >= 0) reply.mask = RNIC_CM_ATTRIBUTES_OF_DEVICE;
  switch (state) {
    case kQpsInit:
    case kQpsRtr:
      reply.mask |= RNIC_CM_ATTRIBUTES_STATE | RNIC_CM_ATTRIBUTES_ACCESS;
      reply.access = RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC;
      return reply;
    case kQpsRts:
      return reply;
    default:
      return Failure{EINVAL};
  }
}

int ConnectionManager::set_option(std::uint32_t number, std::uint32_t level, std::uint32_t option, Bytes value) {
  Id* id = find(number);
  if (id == nullptr) return EINVAL;
  if (level != kLevelId) return ENOSYS;
  const bool on = std::any_of(value.begin(), value.end(), [](std::byte b) { return b != std::byte{}; });
  switch (option) {
    case kOptionTos:  // for connect() or accept(); later it changes nothing
      if (value.size() != 1) return EINVAL;
      id->traffic_class = std::to_integer<std::uint8_t>(value[0]);
      return 0;
    case kOptionAckTimeout:  // InfiniBand's
      if (value.size() != 1) return EINVAL;
      id->timeout = static_cast<std::uint8_t>(std::to_integer<unsigned>(value[0]) & 31u);
      return 0;
    case kOptionReuse:
      // After binding it would come too late.
      if (value.size() != sizeof(std::int32_t) || id->state != IdState::idle) return EINVAL;
      id->reuse = on;
      return 0;
    case kOptionFamilyOnly:
      if (value.size() != sizeof(std::int32_t) || id->state != IdState::idle) return EINVAL;
      id->family_only = on;
      return 0;
    default:
      return ENOSYS;
  }
}

int ConnectionManager::notify(std::uint32_t number, std::uint32_t event) const {
  const Id* id = find(number);
  if (id == nullptr || id->device < 0 || event != kEventCommunicationEstablished) return EINVAL;
  return 0;
}

// ---- events --------------------------------------------------------------------------------------

ConnectionManager::Event& ConnectionManager::queue(Id& id, rnic_cm_event kind, int status) {
  Channel& channel = channels_[id.channel];
  Event& event = channel.events.emplace_back();
  event.owner = id.number;
  event.reply.uid = id.user_pointer;
  event.reply.id = id.number;
  event.reply.event = kind;
  event.reply.status = status;
  host_.events_added(id.channel, 1);
  return event;
}

// iw_cm's outcome of a connection attempt, as rdma_cm tells it.
void ConnectionManager::queue_failure(Id& id, StreamFailure failure) {
  switch (failure) {
    case StreamFailure::refused:
      queue(id, RNIC_CM_REJECTED, -ECONNREFUSED);
      break;
    case StreamFailure::reset:
      queue(id, RNIC_CM_REJECTED, -ECONNRESET);
      break;
    case StreamFailure::unreachable:
      queue(id, RNIC_CM_UNREACHABLE, -EHOSTUNREACH);
      break;
    case StreamFailure::timed_out:
      queue(id, RNIC_CM_UNREACHABLE, -ETIMEDOUT);
      break;
    case StreamFailure::no_resources:
      queue(id, RNIC_CM_CONNECT_ERROR, -ENOMEM);
      break;
    case StreamFailure::none:
    case StreamFailure::protocol:
      queue(id, RNIC_CM_CONNECT_ERROR, -EPROTO);
      break;
  }
}

void ConnectionManager::on_request(const StreamEvent& event) {
  Id* listener = find(static_cast<std::uint32_t>(event.cookie));
  const bool listens = listener != nullptr && listener->cookie == event.cookie && listener->state == IdState::listening;
  const bool roce = devices_[event.device].face == Face::roce;
  const auto refuse = [&](Rejects why) {
    const auto said = why == Rejects::nobody_listens ? wire::MarkRefusal::nobody : wire::MarkRefusal::busy;
    (void)host_.reject(event.device, event.stream, roce ? refusal_data(Face::roce, said) : core::PrivateData{}, why);
  };
  if (!listens) return refuse(Rejects::nobody_listens);
  if (const auto why = unfit(event)) {
    // Who has no mark is answered without one.
    const bool marked = wire::has_mark(core::bytes_of(event.private_data));
    (void)host_.reject(event.device, event.stream,
                       marked ? refusal_data(devices_[event.device].face, *why) : core::PrivateData{}, Rejects::unfit);
    return;
  }
  Share share = streams_[event.device].take(channels_[listener->channel].holder);
  if (!share) return refuse(Rejects::too_many_streams);
  Id* made = make_id(listener->channel);
  if (made == nullptr) return refuse(Rejects::too_many_ids);
  Id& id = *made;
  id.stream_share = std::move(share);
  id.state = IdState::requested;
  id.visible = listener->visible;
  id.traffic_class = listener->traffic_class;
  id.device = static_cast<int>(event.device);
  id.source = event.local;
  id.source_port = event.local_port;
  id.destination = event.remote;
  id.destination_port = event.remote_port;
  id.has_source = id.has_destination = true;
  id.stream = event.stream;

  Event& told = queue(*listener, RNIC_CM_CONNECT_REQUEST, 0);
  told.reply.id = id.number;
  told.reply.listener = listener->number;
  if (!roce) return fill(told.reply.parameters, event);
  introduce(id, {});
  id.peer = *greeting_in(core::bytes_of(event.private_data));
  fill(told.reply.parameters, id.peer, behind_mark(core::bytes_of(event.private_data)), kRequestDataMax);
}

void ConnectionManager::on_stream_event(const StreamEvent& event, Instant now) {
  if (event.kind == StreamEvent::Kind::connect_request) {
    if (is_inquiry(core::bytes_of(event.private_data))) return on_inquiry(event);
    return on_request(event);
  }
  if (event.kind == StreamEvent::Kind::withdrawn) return on_withdrawn(event);
  Id* id = find(static_cast<std::uint32_t>(event.cookie));
  if (id == nullptr || id->cookie != event.cookie) return;
  if (id->has_datagrams()) return on_answer_event(*id, event);
  if (roce_device(*id) != nullptr) return on_greeting_event(*id, event, now);
  const bool pending = id->state == IdState::connecting || id->state == IdState::accepting;
  switch (event.kind) {
    case StreamEvent::Kind::established:
      if (!pending) return;
      id->state = IdState::connected;
      fill(queue(*id, RNIC_CM_ESTABLISHED, 0).reply.parameters, event);
      break;
    case StreamEvent::Kind::rejected:
      if (!pending) return;
      end(*id);
      fill(queue(*id, RNIC_CM_REJECTED, -ECONNREFUSED).reply.parameters, event);
      break;
    case StreamEvent::Kind::failed:
      if (!pending) return;
      end(*id);
      queue_failure(*id, event.failure);
      break;
    case StreamEvent::Kind::disconnected:
      if (id->state != IdState::connected) return;
      end(*id);
      queue(*id, RNIC_CM_DISCONNECTED, 0);
      break;
    case StreamEvent::Kind::connect_request:
    case StreamEvent::Kind::ready:
    case StreamEvent::Kind::withdrawn:
      break;
  }
}

// ---- what is shown -------------------------------------------------------------------------------

std::vector<IdInfo> ConnectionManager::ids() const {
  std::vector<IdInfo> infos;
  for (const auto& [number, id] : ids_) infos.push_back(info_of(*id));
  std::sort(infos.begin(), infos.end(), [](const IdInfo& a, const IdInfo& b) { return a.id < b.id; });
  return infos;
}

IdInfo ConnectionManager::info_of(const Id& id) const {
  const auto channel = channels_.find(id.channel);
  const pid_t pid = channel == channels_.end() ? 0 : static_cast<pid_t>(channel->second.holder);
  return {id.number,           id.state,  id.source, id.destination, id.source_port,
          id.destination_port, id.device, pid,       id.port_space};
}

std::optional<IdInfo> ConnectionManager::info(std::uint32_t number) const {
  const Id* id = find(number);
  if (id == nullptr) return std::nullopt;
  return info_of(*id);
}

std::optional<IdInfo> ConnectionManager::info(std::uint32_t device, core::StreamId stream) const {
  for (const auto& [number, id] : ids_)
    if (id->device == static_cast<int>(device) && id->stream == stream) return info_of(*id);
  return std::nullopt;
}

}  // namespace rnic::control
