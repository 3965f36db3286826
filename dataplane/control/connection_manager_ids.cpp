// Channels and ids: how they come and go, and the events that wait.
#include "control/connection_manager.hpp"

#include <algorithm>
#include <cerrno>

namespace rnic::control {

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

ConnectionManager::Event ConnectionManager::take_event(Channel& channel) {
  const Event event = channel.events.front();
  channel.events.pop_front();
  if (Id* owner = find(event.owner)) {
    ++owner->events_reported;
    --owner->events_waiting;
  }
  if (const auto of = memberships_.find(event.membership); of != memberships_.end()) ++of->second.events_reported;
  if (Id* id = find(event.reply.id)) {
    id->known = true;
    if (id->withdrawn) leave_listener(*id);
  }
  return event;
}

// As if it had not been taken; what has gone meanwhile has no events.
void ConnectionManager::put_back(Channel& channel, const Event& event) {
  Id* owner = find(event.owner);
  if (owner == nullptr) return;
  --owner->events_reported;
  ++owner->events_waiting;
  if (const auto of = memberships_.find(event.membership); of != memberships_.end()) --of->second.events_reported;
  if (event.reply.event == RNIC_CM_CONNECT_REQUEST)
    if (Id* id = find(event.reply.id)) id->known = false;
  channel.events.push_front(event);
}

Result<rnic_cm_get_event_reply, int> ConnectionManager::get_event(std::uint32_t channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return Failure{EINVAL};
  if (found->second.events.empty()) return Failure{EAGAIN};
  return take_event(found->second).reply;
}

Result<std::vector<rnic_cm_told>, int> ConnectionManager::get_events(std::uint32_t number, std::uint64_t asker,
                                                                     std::size_t most) {
  const auto found = channels_.find(number);
  if (found == channels_.end()) return Failure{EINVAL};
  Channel& channel = found->second;
  if (channel.lent_to == asker) channel.lent.clear();
  if (channel.events.empty()) return Failure{EAGAIN};
  if (!channel.lent.empty()) most = 1;
  std::vector<rnic_cm_told> told;
  while (!channel.events.empty() && (told.empty() || told.size() < most)) {
    const Event event = take_event(channel);
    if (!told.empty()) {
      channel.lent.push_back(event);
      channel.lent_to = asker;
    }
    told.push_back({event.reply, {}});
    if (event.reply.event != RNIC_CM_ADDRESS_RESOLVED && event.reply.event != RNIC_CM_CONNECT_REQUEST) continue;
    if (const auto about = query(event.reply.id)) told.back().about = *about;
  }
  return told;
}

int ConnectionManager::give_back_events(std::uint32_t number, std::uint64_t asker, std::size_t count) {
  const auto found = channels_.find(number);
  if (found == channels_.end()) return EINVAL;
  Channel& channel = found->second;
  if (channel.lent_to != asker || count > channel.lent.size()) return EINVAL;
  for (; count > 0; --count) {
    put_back(channel, channel.lent.back());
    channel.lent.pop_back();
  }
  channel.lent.clear();
  return 0;
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

bool ConnectionManager::was_told_after(std::uint32_t number, Instant since) const {
  const Id* id = find(number);
  return id != nullptr && id->events_waiting != 0 && id->told_at > since;
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

}  // namespace rnic::control
