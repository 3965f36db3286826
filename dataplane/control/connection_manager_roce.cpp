// The connection manager's calls on a RoCE face: who may call whom, what they tell each other, and their events.
#include <algorithm>
#include <cstring>

#include "control/connection_manager.hpp"
#include "control/greetings.hpp"
#include "ip/host_loopback.hpp"
#include "wire/mark.hpp"

namespace rnic::control {

using core::StreamEvent;
using core::StreamFailure;

const CmDevice* ConnectionManager::roce_device(const Id& id) const {
  if (id.device < 0) return nullptr;
  const CmDevice& device = devices_[static_cast<std::size_t>(id.device)];
  return device.face == Face::roce ? &device : nullptr;
}

// Whether the two are of one face, and the Request one that its own end can have said.
std::optional<wire::MarkRefusal> ConnectionManager::unfit(const StreamEvent& request) {
  const Bytes data = core::bytes_of(request.private_data);
  const auto greeting = greeting_in(data);
  if (devices_[request.device].face == Face::iwarp) {
    if (!wire::has_mark(data)) return std::nullopt;
    host_.tell_unfit(request.device, request.remote, "calls as a RoCE face, and this is an iWARP face: refused");
    return wire::MarkRefusal::other_face;
  }
  if (!greeting) {
    host_.tell_unfit(request.device, request.remote,
                     "calls as an iWARP device, and this is a RoCE face, which has to do with rnics of its face alone: "
                     "refused");
    return wire::MarkRefusal::other_face;
  }
  if (greeting->gid != request.remote && !ip::is_host_loopback(request.remote)) return wire::MarkRefusal::not_the_peer;
  return std::nullopt;
}

// 127.0.0.1 and ::1 are no GIDs: there a queue pair is met by another address of its device.
wire::IpAddress ConnectionManager::gid_for(const CmDevice& device, const wire::IpAddress& address) {
  const auto first = [&](auto&& suits) -> std::optional<wire::IpAddress> {
    const auto found = std::find_if(device.gids.begin(), device.gids.end(),
                                    [&](const std::optional<wire::IpAddress>& gid) { return gid && suits(*gid); });
    return found == device.gids.end() ? std::nullopt : *found;
  };
  if (!ip::is_host_loopback(address) || first([&](const auto& gid) { return gid == address; })) return address;
  if (const auto gid = first([&](const auto& each) { return each.is_v4() == address.is_v4(); })) return *gid;
  return first([](const auto&) { return true; }).value_or(address);
}

// As a device shows them: what is at 0 is there once more.
std::optional<std::uint32_t> ConnectionManager::gid_index(const CmDevice& device, const wire::IpAddress& gid) {
  const auto place = std::find(device.gids.begin() + !device.gids.empty(), device.gids.end(), gid);
  if (place == device.gids.end()) return std::nullopt;
  return static_cast<std::uint32_t>(place - device.gids.begin());
}

// What is the id's own, whatever its application says later.
void ConnectionManager::introduce(Id& id, const rnic_cm_parameters& parameters) {
  const CmDevice& device = devices_[static_cast<std::size_t>(id.device)];
  if (id.own.path_mtu == 0) id.own.psn = draw_psn();
  fill(id.own, parameters);
  id.own.path_mtu = device.path_mtu;
  id.own.gid = gid_for(device, id.source);
}

std::uint32_t ConnectionManager::draw_psn() {
  return static_cast<std::uint32_t>(psns_.next()) & wire::Meeting::kNumberMask;
}

void ConnectionManager::describe_path(const Id& id, rnic_cm_query_reply& reply) const {
  const CmDevice* device = roce_device(id);
  const bool on_the_way = id.state != IdState::idle && id.state != IdState::bound &&
                          id.state != IdState::address_resolved && id.state != IdState::listening;
  if (device == nullptr || !on_the_way) return;
  reply.path_count = 1;
  reply.path_mtu = device->path_mtu;
  reply.path_life_time = kPathLifeTime;
  reply.traffic_class = id.traffic_class;
  reply.hop_limit = kHopLimit;
  const wire::IpAddress source = gid_for(*device, id.source), destination = gid_for(*device, id.destination);
  std::memcpy(reply.source_gid, source.octets().data(), sizeof reply.source_gid);
  std::memcpy(reply.destination_gid, destination.octets().data(), sizeof reply.destination_gid);
}

void ConnectionManager::on_welcome(Id& id, const StreamEvent& event) {
  const Bytes data = core::bytes_of(event.private_data);
  const auto greeting = greeting_in(data);
  if (!greeting || (greeting->gid != event.remote && !ip::is_host_loopback(event.remote))) {
    host_.disconnect(event.device, event.stream, core::Disconnect::abrupt);
    end(id);
    queue(id, RNIC_CM_REJECTED, greeting ? reject_reason::kInvalidGid : reject_reason::kOtherTransport);
    return;
  }
  id.peer = *greeting;
  id.state = IdState::answered;
  fill(queue(id, RNIC_CM_CONNECT_RESPONSE, 0).reply.parameters, id.peer, behind_mark(data), kReplyDataMax);
}

void ConnectionManager::on_refusal(Id& id, const StreamEvent& event) {
  const Bytes data = core::bytes_of(event.private_data);
  const int reason = reject_reason_in(data);
  if (reason == reject_reason::kOtherTransport)
    host_.tell_unfit(event.device, event.remote, "refuses a RoCE face's call: it is none");
  end(id);
  fill_private_data(queue(id, RNIC_CM_REJECTED, reason).reply.parameters, behind_mark(data), kRejectDataMax);
}

void ConnectionManager::on_failed_call(Id& id, const StreamEvent& event) {
  const bool called = id.state == IdState::connecting;
  end(id);
  switch (event.failure) {
    case StreamFailure::refused:
      queue(id, RNIC_CM_REJECTED, reject_reason::kNobodyListens);
      break;
    case StreamFailure::protocol:
      if (called)
        host_.tell_unfit(event.device, event.remote, "answers a RoCE face's call as an iWARP device: given up");
      queue(id, RNIC_CM_REJECTED, reject_reason::kOtherTransport);
      break;
    case StreamFailure::reset:
      queue(id, RNIC_CM_REJECTED, reject_reason::kConsumer);
      break;
    case StreamFailure::none:
    case StreamFailure::unreachable:
    case StreamFailure::timed_out:
    case StreamFailure::no_resources:
      queue_failure(id, event.failure);
      break;
  }
}

void ConnectionManager::on_greeting_event(Id& id, const StreamEvent& event, Instant now) {
  switch (event.kind) {
    case StreamEvent::Kind::established:
      if (id.state == IdState::connecting) return on_welcome(id, event);
      if (id.state != IdState::accepting) return;
      id.state = IdState::connected;
      queue(id, RNIC_CM_ESTABLISHED, 0);
      break;
    case StreamEvent::Kind::rejected:
      if (id.state == IdState::connecting) on_refusal(id, event);
      break;
    case StreamEvent::Kind::failed:
      if (id.state == IdState::connecting || id.state == IdState::accepting) on_failed_call(id, event);
      break;
    case StreamEvent::Kind::disconnected:
      if (id.state != IdState::answered && id.state != IdState::connected) return;
      end(id);
      queue(id, RNIC_CM_DISCONNECTED, 0);
      time_waits_.push_back({now + kTimeWait, id.cookie});
      break;
    case StreamEvent::Kind::connect_request:
    case StreamEvent::Kind::ready:
    case StreamEvent::Kind::withdrawn:
      break;
  }
}

void ConnectionManager::on_time(Instant now) {
  refuse_early(now);
  while (!time_waits_.empty() && time_waits_.front().until <= now) {
    const std::uint64_t cookie = time_waits_.front().cookie;
    time_waits_.pop_front();
    Id* id = find(static_cast<std::uint32_t>(cookie));
    if (id != nullptr && id->cookie == cookie) queue(*id, RNIC_CM_TIMEWAIT_EXIT, 0);
  }
}

}  // namespace rnic::control
