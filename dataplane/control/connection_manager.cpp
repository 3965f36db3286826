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

// Its application has heard that it is welcome.
int ConnectionManager::confirm(Id& id) {
  const auto confirmed = host_.confirm(static_cast<std::uint32_t>(id.device), id.stream);
  if (!confirmed) return errno_of(confirmed.error());
  id.state = IdState::connected;
  return 0;
}

// On its way down, or down already, is no error: both sides of a connection disconnect, and one of
// them is second.
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
  ++id.events_waiting;
  id.told_at = host_.now();
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
