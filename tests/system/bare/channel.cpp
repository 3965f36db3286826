#include "system/bare/channel.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace rnic::bare {
namespace {

constexpr std::uint32_t kReliable = 2, kDatagrams = 4;  // IBV_QPT_RC, IBV_QPT_UD
constexpr std::uint32_t kResolveMs = 2000;

void must(const Answer& answer, const char* what) {
  if (!answer.good()) fail(std::string(what) + ": " + answer.words());
}

rnic_cm_connect call_with(std::uint32_t id, std::uint32_t qp_number, Channel::Depths depths) {
  rnic_cm_connect request{};
  request.id = id;
  request.parameters.qp_number = qp_number;
  request.parameters.responder_resources = depths.responder_resources;
  request.parameters.initiator_depth = depths.initiator_depth;
  request.parameters.valid = 1;
  return request;
}

}  // namespace

Channel::Channel(const std::string& socket) : Channel(Connection(socket, RNIC_CLIENT_CM)) {}

Channel::Channel(Connection connection) : control(std::move(connection)) {
  Answer answer = control.ask(RNIC_CM_OPEN);
  const auto reply = answer.as<rnic_cm_open_reply>("CM_OPEN");
  number = reply.channel;
  std::memcpy(token.data(), reply.token, token.size());
  events = answer.take(0);
  lifeline = answer.take(1);
}

std::uint32_t Channel::create_id(std::uint64_t uid, std::uint32_t port_space) {
  return try_id(uid, port_space).as<rnic_handle_reply>("CM_CREATE_ID").handle;
}

Answer Channel::try_id(std::uint64_t uid, std::uint32_t port_space) {
  const std::uint32_t type = port_space == kTcp ? kReliable : kDatagrams;
  return control.ask(RNIC_CM_CREATE_ID, rnic_cm_create_id{number, port_space, type, 0, uid});
}

Answer Channel::bind(std::uint32_t id, const rnic_address& address) {
  return control.ask(RNIC_CM_BIND, rnic_cm_bind{id, 0, address});
}
Answer Channel::listen(std::uint32_t id, std::uint32_t backlog) {
  return control.ask(RNIC_CM_LISTEN, rnic_cm_listen{id, backlog});
}
Answer Channel::resolve_address(std::uint32_t id, const rnic_address& destination) {
  return control.ask(RNIC_CM_RESOLVE_ADDRESS, rnic_cm_resolve_address{id, kResolveMs, {}, destination});
}
Answer Channel::resolve_route(std::uint32_t id) {
  return control.ask(RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{id, kResolveMs});
}
Answer Channel::connect(std::uint32_t id, std::uint32_t qp_number, Depths depths) {
  return control.ask(RNIC_CM_CONNECT, call_with(id, qp_number, depths));
}
Answer Channel::accept(std::uint32_t id, std::uint32_t qp_number, Depths depths) {
  return control.ask(RNIC_CM_ACCEPT, call_with(id, qp_number, depths));
}
Answer Channel::confirm(std::uint32_t id) {
  rnic_cm_connect request{};
  request.id = id;
  return control.ask(RNIC_CM_ACCEPT, request);
}
Answer Channel::join(std::uint32_t id, const rnic_address& group) {
  return control.ask(RNIC_CM_JOIN, rnic_cm_join{id, 0, 0, group});
}
rnic_cm_query_reply Channel::query(std::uint32_t id) {
  return control.by_handle(RNIC_CM_QUERY, id).as<rnic_cm_query_reply>("CM_QUERY");
}

std::optional<rnic_cm_get_event_reply> Channel::event(int limit_ms) {
  for (;;) {
    pollfd one{events.get(), POLLIN, 0};
    if (poll(&one, 1, limit_ms) != 1) return std::nullopt;
    // One count: of an eventfd 8 octets, of a socket one.
    struct stat what {};
    fstat(events.get(), &what);
    std::uint64_t count = 0;
    if (read(events.get(), &count, S_ISSOCK(what.st_mode) ? 1 : sizeof count) <= 0) return std::nullopt;
    const Answer answer = control.by_handle(RNIC_CM_GET_EVENT, number);
    // An event that went with its id had been counted.
    if (answer.status != EAGAIN) return answer.as<rnic_cm_get_event_reply>("CM_GET_EVENT");
  }
}

rnic_cm_get_event_reply Channel::expect(rnic_cm_event wanted, int limit_ms) {
  const auto got = event(limit_ms);
  if (!got) fail("no event " + std::to_string(wanted) + " came");
  if (got->event != static_cast<std::uint32_t>(wanted))
    fail("event " + std::to_string(got->event) + " (" + std::to_string(got->status) + ") came instead of " +
         std::to_string(wanted));
  return *got;
}

rnic_address address_of(const rnic_device_info& device, std::uint16_t port) {
  rnic_address address = device.addresses[0];
  address.port = htons(port);
  return address;
}

std::uint32_t listening(Channel& channel, const rnic_address& at, std::uint32_t backlog, std::uint32_t port_space) {
  const std::uint32_t id = channel.create_id(0, port_space);
  must(channel.bind(id, at), "CM_BIND");
  must(channel.listen(id, backlog), "CM_LISTEN");
  return id;
}

std::uint32_t resolved(Channel& channel, const rnic_address& to, std::uint32_t port_space) {
  const std::uint32_t id = channel.create_id(0, port_space);
  must(channel.resolve_address(id, to), "CM_RESOLVE_ADDRESS");
  channel.expect(RNIC_CM_ADDRESS_RESOLVED);
  must(channel.resolve_route(id), "CM_RESOLVE_ROUTE");
  channel.expect(RNIC_CM_ROUTE_RESOLVED);
  return id;
}

Joined join(Channel& channel, std::uint32_t listener, const QueuePair& caller, const QueuePair& called) {
  Joined joined;
  joined.caller_id = resolved(channel, channel.query(listener).source);
  must(channel.connect(joined.caller_id, caller.number), "CM_CONNECT");
  joined.called_id = channel.expect(RNIC_CM_CONNECT_REQUEST).id;
  must(channel.accept(joined.called_id, called.number), "CM_ACCEPT");
  channel.expect(RNIC_CM_ESTABLISHED);
  channel.expect(RNIC_CM_ESTABLISHED);
  return joined;
}

}  // namespace rnic::bare
