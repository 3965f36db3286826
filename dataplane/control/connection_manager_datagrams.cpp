// The connection manager's ids for datagrams, of RoCE faces: who is asked for a queue pair's number and Q_Key, as
// InfiniBand's SIDR has it, and groups.
//
// An inquiry goes to the port where queue pairs without rdma_cm meet, and names the port that it means: so the port
// spaces of datagrams are apart from TCP's, on the wire too. Its answer rejects the Request that asked, and with it the
// stream is done.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "control/addresses.hpp"
#include "control/connection_manager.hpp"
#include "control/greetings.hpp"
#include "ip/host_loopback.hpp"
#include "mpa/meeting.hpp"
#include "wire/datagram.hpp"
#include "wire/mark.hpp"

namespace rnic::control {

using core::StreamError;
using core::StreamEvent;
using core::StreamFailure;

namespace {

constexpr std::uint32_t kQpsInit = 1;  // enum ibv_qp_state

Bytes consumers_of(const rnic_cm_parameters& parameters) {
  return as_bytes(parameters.private_data, parameters.private_data_length);
}

int status_of(StreamFailure failure) {
  switch (failure) {
    case StreamFailure::refused:
      return -ECONNREFUSED;
    case StreamFailure::reset:
      return -ECONNRESET;
    case StreamFailure::unreachable:
      return -EHOSTUNREACH;
    case StreamFailure::timed_out:
      return -ETIMEDOUT;
    case StreamFailure::no_resources:
      return -ENOMEM;
    case StreamFailure::none:
    case StreamFailure::protocol:
      break;
  }
  return inquiry_status::kUnsupportedVersion;
}

}  // namespace

PortSpace& ConnectionManager::ports_of(const Id& id) {
  if (id.port_space == port_spaces::kUdp) return udp_ports_;
  return id.port_space == port_spaces::kIpoib ? ipoib_ports_ : ports_;
}

DeviceSet ConnectionManager::with_datagrams(DeviceSet devices) const {
  DeviceSet with = 0;
  for (std::uint32_t device = 0; device < devices_.size(); ++device)
    if (devices_[device].face == Face::roce) with |= DeviceSet{1} << device;
  return devices & with;
}

// The device that it is bound to, or the one with the longest prefix toward the group that has an address of its
// version: a default route, where there is one.
Result<ConnectionManager::Route, int> ConnectionManager::route_to_group(const Id& id,
                                                                        const wire::IpAddress& group) const {
  if (id.device >= 0) {
    if (id.source.is_v4() != group.is_v4()) return Failure{EINVAL};
    return Route{static_cast<std::uint32_t>(id.device), id.source};
  }
  std::optional<Route> best;
  int longest = -2;  // without a route there is the link
  for (std::uint32_t device = 0; device < devices_.size(); ++device) {
    const CmDevice& each = devices_[device];
    const int prefix = each.routes.prefix_toward(group);
    if (!sees(id, device) || prefix <= longest) continue;
    if (group.is_v6() && id.scope != 0 && each.scope != id.scope) continue;
    const auto own = std::find_if(each.addresses.begin(), each.addresses.end(), [&](const wire::IpAddress& address) {
      return address.is_v4() == group.is_v4() && !ip::is_host_loopback(address);
    });
    if (own == each.addresses.end()) continue;
    longest = prefix;
    best = Route{device, each.routes.source_for(group).value_or(*own)};
  }
  if (!best) return Failure{ENODEV};
  return *best;
}

rnic_cm_way ConnectionManager::way_to(const Id& id, const wire::IpAddress& gid, std::uint32_t qkey) const {
  const CmDevice& device = devices_[static_cast<std::size_t>(id.device)];
  rnic_cm_way way{};
  way.qkey = qkey;
  way.gid_index = gid_index(device, gid_for(device, id.source)).value_or(0);
  way.traffic_class = id.traffic_class;
  way.hop_limit = kHopLimit;
  const auto octets = gid.octets();
  std::memcpy(way.gid, octets.data(), sizeof way.gid);
  return way;
}

// librdmacm asks for INIT, and knows of the others what there is to know.
rnic_cm_init_qp_attributes_reply ConnectionManager::datagram_attributes(std::uint32_t state) const {
  rnic_cm_init_qp_attributes_reply reply{};
  reply.state = state;
  reply.mask = RNIC_CM_ATTRIBUTES_STATE;
  if (state == kQpsInit) reply.mask |= RNIC_CM_ATTRIBUTES_INIT | RNIC_CM_ATTRIBUTES_QKEY;
  reply.qkey = kDatagramQkey;
  return reply;
}

// ---- who is asked --------------------------------------------------------------------------------

int ConnectionManager::listen_for_inquiries(Id& id, std::uint32_t backlog) {
  DeviceSet devices = id.visible;
  if (id.device >= 0) devices &= DeviceSet{1} << id.device;
  if (devices == 0) return ENODEV;
  id.listening_on = devices;
  id.backlog = backlog == 0 ? kInquiriesOfListener : std::min(backlog, kInquiriesOfListener);
  id.state = IdState::listening;
  ask_again();
  return 0;
}

ConnectionManager::Id* ConnectionManager::listener_for(const wire::Inquiry& inquiry, std::uint32_t device,
                                                       const wire::IpAddress& address) {
  if (!port_spaces::has_datagrams(inquiry.port_space)) return nullptr;
  const PortSpace& ports = inquiry.port_space == port_spaces::kUdp ? udp_ports_ : ipoib_ports_;
  for (const std::uint32_t number : ports.owners(inquiry.port)) {
    Id* id = find(number);
    if (id == nullptr || id->state != IdState::listening || (id->listening_on >> device & 1u) == 0) continue;
    const bool any = id->source.is_unspecified() &&
                     (id->source.is_v4() == address.is_v4() || (id->source.is_v6() && !id->family_only));
    if (any || id->source == address) return id;
  }
  return nullptr;
}

void ConnectionManager::on_inquiry(const StreamEvent& event) {
  const CmDevice& device = devices_[event.device];
  const auto refuse = [&](wire::MarkRefusal why, Rejects who) {
    (void)host_.reject(event.device, event.stream, refusal_data(device.face, why), who);
  };
  const Bytes data = core::bytes_of(event.private_data);
  const auto mark = wire::parse_mark(data);
  if (device.face == Face::iwarp) {
    host_.tell_unfit(event.device, event.remote, "asks for a queue pair as a RoCE face, and this is an iWARP face");
    return refuse(wire::MarkRefusal::other_face, Rejects::unfit);
  }
  if (const auto why = mpa::unfit(device.face, *mark)) return refuse(*why, Rejects::unfit);
  Id* listener = listener_for(mark->inquiry, event.device, event.local);
  if (listener == nullptr) {
    if (keep_early(event)) return;
    return refuse(wire::MarkRefusal::nobody, Rejects::nobody_listens);
  }

  const Holder holder = channels_[listener->channel].holder;
  if (listener->unanswered >= listener->backlog) return refuse(wire::MarkRefusal::busy, Rejects::too_many_streams);
  Share inquiry = inquiries_[event.device].take(holder);
  Share stream = streams_[event.device].take(holder);
  if (!inquiry || !stream) return refuse(wire::MarkRefusal::busy, Rejects::too_many_streams);
  Id* made = make_id(listener->channel);
  if (made == nullptr) return refuse(wire::MarkRefusal::busy, Rejects::too_many_ids);
  Id& id = *made;
  id.port_space = listener->port_space;
  id.inquiry_share = std::move(inquiry);
  id.stream_share = std::move(stream);
  id.listener = listener->cookie;
  ++listener->unanswered;
  id.state = IdState::requested;
  id.visible = listener->visible;
  id.traffic_class = listener->traffic_class;
  id.device = static_cast<int>(event.device);
  id.source = event.local;
  id.source_port = mark->inquiry.port;
  id.destination = event.remote;
  id.destination_port = mark->inquiry.own_port;
  id.has_source = id.has_destination = true;
  id.stream = event.stream;
  unanswered_.emplace(std::pair(event.device, event.stream), id.number);

  rnic_cm_get_event_reply& told = queue(*listener, RNIC_CM_CONNECT_REQUEST, 0).reply;
  told.id = id.number;
  told.listener = listener->number;
  told.datagrams = 1;
  fill_private_data(told.parameters, behind_mark(data), kInquiryDataMax);
}

// False: there is no room.
bool ConnectionManager::keep_early(const StreamEvent& event) {
  const auto of_caller = std::count_if(early_inquiries_.begin(), early_inquiries_.end(),
                                       [&](const EarlyInquiry& each) { return each.event.remote == event.remote; });
  if (early_inquiries_.size() >= kEarlyInquiriesMax || of_caller >= std::ptrdiff_t{kEarlyInquiriesOfCaller})
    return false;
  early_inquiries_.push_back({host_.now() + kEarlyInquiryKept, event});
  return true;
}

// Somebody listens.
void ConnectionManager::ask_again() {
  for (std::size_t left = early_inquiries_.size(); left > 0; --left) {
    EarlyInquiry early = std::move(early_inquiries_.front());
    early_inquiries_.pop_front();
    const auto mark = wire::parse_mark(core::bytes_of(early.event.private_data));
    if (listener_for(mark->inquiry, early.event.device, early.event.local) != nullptr)
      on_inquiry(early.event);
    else
      early_inquiries_.push_back(std::move(early));  // in its order
  }
}

void ConnectionManager::refuse_early(Instant now) {
  for (; !early_inquiries_.empty() && early_inquiries_.front().until <= now; early_inquiries_.pop_front()) {
    const StreamEvent& event = early_inquiries_.front().event;
    (void)host_.reject(event.device, event.stream, refusal_data(Face::roce, wire::MarkRefusal::nobody),
                       Rejects::nobody_listens);
  }
}

// Its caller has gone. What it had of the device is free at once; its listener's place, when the application has heard
// of it: the event stays, whose octet it has been sent, and with it the id, which it may answer or destroy.
void ConnectionManager::on_withdrawn(const StreamEvent& event) {
  const auto is_early = [&](const EarlyInquiry& each) {
    return each.event.device == event.device && each.event.stream == event.stream;
  };
  if (std::erase_if(early_inquiries_, is_early) != 0) {
    (void)host_.reject(event.device, event.stream, {}, Rejects::gone);
    return;
  }
  const auto found = unanswered_.find({event.device, event.stream});
  if (found == unanswered_.end()) return;
  Id& id = *find(found->second);
  (void)host_.reject(event.device, event.stream, {}, Rejects::gone);
  unanswered_.erase(found);
  id.stream_share = {};
  id.inquiry_share = {};
  id.stream = {};
  id.withdrawn = true;
  if (id.known) leave_listener(id);
}

// It has its answer, or nobody wants one any more.
void ConnectionManager::end_inquiry(Id& id) {
  id.stream_share = {};
  id.inquiry_share = {};
  if (id.listener == 0) return;
  if (!id.withdrawn) unanswered_.erase({static_cast<std::uint32_t>(id.device), id.stream});
  leave_listener(id);
}

void ConnectionManager::leave_listener(Id& id) {
  if (id.listener == 0) return;
  Id* listener = find(static_cast<std::uint32_t>(id.listener));
  if (listener != nullptr && listener->cookie == id.listener) --listener->unanswered;
  id.listener = 0;
}

int ConnectionManager::answer(Id& id, std::uint64_t user_pointer, const rnic_cm_parameters& parameters,
                              std::uint32_t qkey) {
  if (parameters.valid == 0 || parameters.private_data_length > kAnswerDataMax) return EINVAL;
  const wire::Answer said{.gid = gid_for(devices_[static_cast<std::size_t>(id.device)], id.source),
                          .number = {parameters.qp_number & wire::Meeting::kNumberMask},
                          .qkey = qkey != 0 ? qkey : kDatagramQkey};
  // Whoever has gone meanwhile has not heard it, as where a datagram is lost.
  if (!id.withdrawn) {
    const auto answered = host_.answer_inquiry(static_cast<std::uint32_t>(id.device), id.stream,
                                               answer_data(said, consumers_of(parameters)));
    if (!answered && answered.error() != StreamError::unknown) return ENOMEM;
  }
  end_inquiry(id);
  id.stream = {};
  id.user_pointer = user_pointer;
  id.state = IdState::connected;
  return 0;
}

int ConnectionManager::refuse_inquiry(Id& id, Bytes private_data) {
  if (private_data.size() > kAnswerDataMax) return EINVAL;
  if (!id.withdrawn) {
    const auto refused =
        host_.reject(static_cast<std::uint32_t>(id.device), id.stream,
                     refusal_data(Face::roce, wire::MarkRefusal::its_own_wish, private_data), Rejects::application);
    if (!refused && refused.error() != StreamError::unknown) return ENOMEM;
  }
  end_inquiry(id);
  id.stream = {};
  end(id);
  return 0;
}

// ---- who asks ------------------------------------------------------------------------------------

int ConnectionManager::inquire(Id& id, const rnic_cm_parameters& parameters) {
  if (parameters.valid == 0 || parameters.private_data_length > kInquiryDataMax) return EINVAL;
  if (id.destination.is_multicast()) return EINVAL;
  const auto index = static_cast<std::uint32_t>(id.device);
  Share share = streams_[index].take(channels_[id.channel].holder);
  if (!share) return ENOMEM;
  core::ConnectOptions options;
  options.local = id.source;
  options.remote = id.destination;
  options.remote_port = devices_[index].oob_port;
  options.cookie = id.cookie;
  options.traffic_class = id.traffic_class;
  options.private_data = inquiry_data({.port_space = static_cast<std::uint16_t>(id.port_space),
                                       .port = id.destination_port,
                                       .own_port = id.source_port},
                                      consumers_of(parameters));
  const auto stream = host_.greet(index, options);
  if (!stream) {
    switch (stream.error()) {
      case StreamError::no_ports:
      case StreamError::address_in_use:
        return EADDRNOTAVAIL;
      case StreamError::no_route:
        return ENETUNREACH;
      case StreamError::no_resources:
      case StreamError::unknown:
      case StreamError::wrong_state:
      case StreamError::another_shard:
        break;
    }
    return ENOMEM;
  }
  id.stream = *stream;
  id.stream_share = std::move(share);
  id.state = IdState::connecting;
  return 0;
}

void ConnectionManager::on_answer_event(Id& id, const StreamEvent& event) {
  if (id.state != IdState::connecting) return;
  const Bytes data = core::bytes_of(event.private_data);
  id.stream = {};
  id.stream_share = {};
  const auto unreachable = [&](int status) {
    id.state = IdState::ended;
    rnic_cm_get_event_reply& told = queue(id, RNIC_CM_UNREACHABLE, status).reply;
    told.datagrams = 1;
    fill_private_data(told.parameters, behind_mark(data), kAnswerDataMax);
  };
  switch (event.kind) {
    case StreamEvent::Kind::rejected: {
      const auto answer = answer_in(data);
      if (!answer) return unreachable(inquiry_status_in(data));
      // Of its own queue pairs alone.
      if (answer->gid != event.remote && !ip::is_host_loopback(event.remote))
        return unreachable(inquiry_status::kUnsupported);
      id.state = IdState::connected;
      rnic_cm_get_event_reply& told = queue(id, RNIC_CM_ESTABLISHED, 0).reply;
      told.datagrams = 1;
      fill_private_data(told.parameters, behind_mark(data), kAnswerDataMax);
      told.parameters.qp_number = answer->number.value;
      told.way = way_to(id, answer->gid, answer->qkey);
      break;
    }
    case StreamEvent::Kind::established:  // with a connection, which nobody has asked for
      host_.disconnect(event.device, event.stream, core::Disconnect::abrupt);
      unreachable(inquiry_status::kUnsupportedVersion);
      break;
    case StreamEvent::Kind::failed:
    case StreamEvent::Kind::disconnected:
    case StreamEvent::Kind::connect_request:
    case StreamEvent::Kind::ready:
    case StreamEvent::Kind::withdrawn:
      unreachable(status_of(event.failure));
      break;
  }
}

// ---- groups --------------------------------------------------------------------------------------

Result<std::uint32_t, int> ConnectionManager::join(const rnic_cm_join& wanted) {
  Id* id = find(wanted.id);
  const auto group = ip_of(wanted.group);
  if (id == nullptr || !id->has_datagrams() || id->device < 0 || !group || !group->is_multicast())
    return Failure{EINVAL};
  if ((wanted.flags & ~RNIC_CM_SEND_ONLY) != 0) return Failure{EINVAL};
  if (id->memberships.size() == kMembershipsMax) return Failure{ENOMEM};
  while (next_membership_ == 0 || memberships_.contains(next_membership_)) ++next_membership_;
  const std::uint32_t number = next_membership_++;
  memberships_.emplace(number, Membership{.id = id->number});
  id->memberships.push_back(number);

  // Out of an address of the group's version there must be a way.
  const CmDevice& device = devices_[static_cast<std::size_t>(id->device)];
  const bool can = id->source.is_v4() == group->is_v4() && gid_index(device, gid_for(device, id->source));
  Event& event = queue(*id, can ? RNIC_CM_MULTICAST_JOIN : RNIC_CM_MULTICAST_ERROR, can ? 0 : -EADDRNOTAVAIL);
  event.membership = number;
  event.reply.uid = wanted.uid;
  event.reply.datagrams = 1;
  if (!can) return number;
  event.reply.parameters.qp_number = wire::Datagram::kToGroup.value;
  event.reply.way = way_to(*id, *group, kDatagramQkey);
  return number;
}

std::optional<std::uint32_t> ConnectionManager::member(std::uint32_t membership) const {
  const auto found = memberships_.find(membership);
  return found == memberships_.end() ? std::nullopt : std::optional(found->second.id);
}

Result<rnic_cm_leave_reply, int> ConnectionManager::leave(std::uint32_t membership) {
  const auto found = memberships_.find(membership);
  if (found == memberships_.end()) return Failure{ENOENT};
  Id& id = *find(found->second.id);
  rnic_cm_leave_reply reply{};
  reply.id = id.number;
  reply.events_reported = found->second.events_reported;
  reply.purged = static_cast<std::uint32_t>(
      std::erase_if(channels_[id.channel].events, [&](const Event& event) { return event.membership == membership; }));
  id.events_waiting -= reply.purged;
  std::erase(id.memberships, membership);
  memberships_.erase(found);
  return reply;
}

void ConnectionManager::drop_memberships(Id& id) {
  for (const std::uint32_t each : id.memberships) memberships_.erase(each);
  id.memberships.clear();
}

}  // namespace rnic::control
