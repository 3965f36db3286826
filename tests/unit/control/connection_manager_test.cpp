// The connection manager: what each command does in each state, and what applications hear.
#include "control/connection_manager.hpp"

#include <cerrno>
#include <set>

#include "kit/catch.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;
using Kind = core::StreamEvent::Kind;
using core::StreamError;
using core::StreamFailure;

// ---- binding ----------------------------------------------------------------------------------

TEST_CASE("an id is bound to an address of a device, and says which", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv4(10, 0, 0, 1, 7174)) == 0);
  const auto q = w.cm.query(id);
  REQUIRE(q);
  CHECK(q->node_guid == 0xA2);
  CHECK(q->port_number == 1);
  CHECK(control::port_of(q->source) == 7174);
  CHECK(q->destination.family == 0);
}

TEST_CASE("an id bound to a wildcard has no device yet", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.cm.query(id)->node_guid == 0);
}

TEST_CASE("an address of no device cannot be bound", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.bind(w.id(), ipv4(10, 0, 0, 77, 7174)) == EADDRNOTAVAIL);
}

TEST_CASE("an address of a device that the application does not see cannot be bound", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.bind(w.id(1, 0x1), ipv4(127, 0, 1, 2, 7174)) == EADDRNOTAVAIL);
  CHECK(w.cm.bind(w.id(1, 0x1), ipv4(127, 0, 1, 1, 7174)) == 0);
}

TEST_CASE("a family that is none of IP's is refused", "[control][cm]") {
  CmWorld w;
  rnic_address ib{};
  ib.family = 27;
  CHECK(w.cm.bind(w.id(), ib) == EAFNOSUPPORT);
}

TEST_CASE("an id is bound once", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(id, ipv4(10, 0, 0, 1, 7175)) == EINVAL);
}

TEST_CASE("a port in use is in use, for the address and for the wildcard", "[control][cm]") {
  CmWorld w;
  REQUIRE(w.cm.bind(w.id(), ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(w.id(), ipv4(10, 0, 0, 1, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(), ipv4(127, 0, 1, 1, 7174)) == 0);
}

TEST_CASE("a port comes free with its id", "[control][cm]") {
  CmWorld w;
  const auto first = w.id();
  REQUIRE(w.cm.bind(first, ipv4(10, 0, 0, 1, 7174)) == 0);
  REQUIRE(w.cm.destroy_id(first));
  CHECK(w.cm.bind(w.id(), ipv4(10, 0, 0, 1, 7174)) == 0);
}

TEST_CASE("applications that see different devices do not meet in the port space", "[control][cm]") {
  CmWorld w;
  REQUIRE(w.cm.bind(w.id(1, 0x1), ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0x2), ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0x3), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
}

TEST_CASE("both with the reuse option share a port; one alone does not", "[control][cm]") {
  CmWorld w;
  const std::int32_t on = 1;
  const auto a = w.id(), b = w.id(), c = w.id();
  REQUIRE(w.cm.set_option(a, 0, 1, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.set_option(b, 0, 1, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(a, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(b, ipv4(10, 0, 0, 1, 7174)) == 0);
  CHECK(w.cm.bind(c, ipv4(10, 0, 0, 1, 7174)) == EADDRINUSE);
  CHECK(w.cm.listen(a, 1) == EADDRINUSE);
  REQUIRE(w.cm.destroy_id(b));
  CHECK(w.cm.listen(a, 1) == 0);
}

TEST_CASE("port 0 is an ephemeral port that nobody has", "[control][cm]") {
  CmWorld w;
  const auto a = w.id(), b = w.id();
  REQUIRE(w.cm.bind(a, ipv4(10, 0, 0, 1)) == 0);
  REQUIRE(w.cm.bind(b, ipv4(10, 0, 0, 1)) == 0);
  const auto port_a = control::port_of(w.cm.query(a)->source), port_b = control::port_of(w.cm.query(b)->source);
  CHECK(port_a >= control::PortSpace::kEphemeralFirst);
  CHECK(port_a <= control::PortSpace::kEphemeralLast);
  CHECK(port_a != port_b);
}

TEST_CASE("when all ephemeral ports are taken, there is none", "[control][cm]") {
  control::PortSpace ports(3);
  const std::uint32_t all = control::PortSpace::kEphemeralLast - control::PortSpace::kEphemeralFirst + 1u;
  control::Binding binding{wire::IpAddress::v4(10, 0, 0, 1), 0, 1};
  for (std::uint32_t owner = 1; owner <= all; ++owner) {
    binding.port = 0;
    REQUIRE(ports.bind(owner, binding));
  }
  binding.port = 0;
  CHECK_FALSE(ports.bind(all + 1, binding));
  ports.release(17);
  CHECK(ports.bind(all + 1, binding));
}

TEST_CASE("an IPv6 wildcard takes IPv4's port too, unless it is for IPv6 alone", "[control][cm]") {
  CmWorld w;
  const rnic_address any6 = control::to_abi(wire::IpAddress(), 7174);
  const auto both = w.id();
  REQUIRE(w.cm.bind(both, any6) == 0);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
  REQUIRE(w.cm.destroy_id(both));

  const std::int32_t on = 1;
  const auto alone = w.id();
  REQUIRE(w.cm.set_option(alone, 0, 2, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(alone, any6) == 0);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == 0);
}

// ---- resolving --------------------------------------------------------------------------------

TEST_CASE("an address is resolved, and the route after it", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(0xABC);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 7174)) == 0);
  CHECK(w.host.counts[w.channel] == 1);
  const auto resolved = w.event();
  CHECK(resolved.event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(resolved.status == 0);
  CHECK(resolved.id == id);
  CHECK(resolved.uid == 0xABC);
  const auto q = w.cm.query(id);
  CHECK(control::ip_of(q->source) == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(control::port_of(q->source) != 0);
  CHECK(control::port_of(q->destination) == 7174);
  REQUIRE(w.cm.resolve_route(id) == 0);
  CHECK(w.event().event == RNIC_CM_ROUTE_RESOLVED);
  CHECK(w.cm.resolve_route(id) == EINVAL);
}

TEST_CASE("commands in the wrong state are EINVAL", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  CHECK(w.cm.resolve_route(id) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.reject(id, {}) == EINVAL);
  CHECK(w.cm.disconnect(id) == EINVAL);
  w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1));
  CHECK(w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1)) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.listen(id, 1) == EINVAL);
  CHECK(w.cm.bind(999, ipv4(0, 0, 0, 0)) == EINVAL);
}

namespace {
// Which device, by its GUID, a destination is reached by.
std::uint64_t device_toward(CmWorld& w, const rnic_address& to, control::DeviceSet visible = CmWorld::kAll) {
  const auto id = w.id(1, visible);
  w.cm.resolve_address(id, {}, to);
  w.event();
  return w.cm.query(id)->node_guid;
}
}  // namespace

TEST_CASE("a pair's end is reached by its other end", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(127, 0, 1, 2, 1)) == 0xA0);
  CHECK(device_toward(w, ipv4(127, 0, 1, 1, 1)) == 0xA1);
  CHECK(device_toward(w, ipv4(127, 0, 1, 2, 1), 0x1) == 0xA0);
}

TEST_CASE("where its other end is not seen, a pair's end is reached by itself", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(127, 0, 1, 2, 1), 0x2) == 0xA1);
}

TEST_CASE("a device's own address is reached by that device", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(127, 0, 2, 1, 1)) == 0xA3);
  CHECK(device_toward(w, ipv4(10, 0, 0, 1, 1)) == 0xA2);
}

TEST_CASE("an address on a device's network is reached by it, from the address there", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  w.cm.resolve_address(id, {}, ipv4(10, 9, 44, 5, 1));
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->source) == wire::IpAddress::v4(10, 9, 0, 1));
}

TEST_CASE("any other address is reached by a gateway", "[control][cm]") {
  CmWorld w;
  CHECK(device_toward(w, ipv4(192, 0, 2, 1, 1)) == 0xA2);
}

TEST_CASE("an address that no device reaches is an ADDRESS_ERROR, and the id can try another", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(1, 0x9);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(192, 0, 2, 1, 1)) == 0);
  const auto failed = w.event();
  CHECK(failed.event == RNIC_CM_ADDRESS_ERROR);
  CHECK(failed.status == -ENODEV);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(127, 0, 2, 1, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
}

TEST_CASE("a source chooses the device; one that does not reach the destination says so", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, ipv4(127, 0, 2, 1), ipv4(10, 0, 0, 2, 1)) == 0);
  const auto failed = w.event();
  CHECK(failed.event == RNIC_CM_ADDRESS_ERROR);
  CHECK(failed.status == -ENETUNREACH);
  CHECK(w.cm.resolve_address(w.id(), ipv4(10, 0, 0, 9), ipv4(10, 0, 0, 2, 1)) == EADDRNOTAVAIL);
}

TEST_CASE("a wildcard destination is this host", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(1, 0x8);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(0, 0, 0, 0, 7174)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->destination) == wire::IpAddress::v4(127, 0, 2, 1));
}

// ---- listening --------------------------------------------------------------------------------

TEST_CASE("a wildcard listener listens on every device that its application sees", "[control][cm]") {
  CmWorld w;
  const auto id = w.id(1, 0x5);
  REQUIRE(w.cm.bind(id, ipv4(0, 0, 0, 0, 7174)) == 0);
  REQUIRE(w.cm.listen(id, 9) == 0);
  REQUIRE(w.host.listening.size() == 2);
  CHECK(w.host.listening[0].device == 0);
  CHECK(w.host.listening[1].device == 2);
  CHECK(w.host.listening[1].backlog == 9);
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.listening.empty());
}

TEST_CASE("a listener that is bound to an address listens there alone", "[control][cm]") {
  CmWorld w;
  w.listening(ipv4(127, 0, 1, 2, 7174));
  REQUIRE(w.host.listening.size() == 1);
  CHECK(w.host.listening[0].device == 1);
  CHECK(w.host.listening[0].address == wire::IpAddress::v4(127, 0, 1, 2));
}

TEST_CASE("an unbound id listens at an ephemeral port", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.listen(id, 1) == 0);
  CHECK(control::port_of(w.cm.query(id)->source) >= control::PortSpace::kEphemeralFirst);
}

TEST_CASE("a listener that cannot be on all of its devices is on none", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  w.cm.bind(id, ipv4(0, 0, 0, 0, 7174));
  w.host.listen_errors = {};
  REQUIRE(w.cm.listen(id, 1) == 0);
  REQUIRE(w.cm.destroy_id(id));
  const auto next = w.id();
  w.cm.bind(next, ipv4(0, 0, 0, 0, 7174));
  w.host.listen_errors = {StreamError::address_in_use};
  CHECK(w.cm.listen(next, 1) == EADDRINUSE);
  CHECK(w.host.listening.empty());
  CHECK(w.cm.listen(next, 1) == 0);
}

// ---- connecting -------------------------------------------------------------------------------

TEST_CASE("V-IRD-13: connect hands addresses, depths, private data and the QP to the device",
          "[control][cm][V-IRD-13]") {
  CmWorld w;
  const auto id = w.route_resolved();
  REQUIRE(w.cm.connect(id, CmWorld::parameters(0x123, "data")) == 0);
  REQUIRE(w.host.connects.size() == 1);
  const auto& asked = w.host.connects[0];
  CHECK(asked.device == 2);
  CHECK(asked.qp.number == 0x123);
  CHECK(asked.options.ird == 3);
  CHECK(asked.options.ord == 2);
  CHECK(asked.options.remote == wire::IpAddress::v4(10, 0, 0, 2));
  CHECK(asked.options.remote_port == 7174);
  CHECK(asked.options.local == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(asked.options.local_port == control::port_of(w.cm.query(id)->source));
  CHECK(asked.options.private_data.length == 4);
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
  CHECK(w.silent());
}

TEST_CASE("V-IRD-05: depths above the device's are refused", "[control][cm][V-IRD-05]") {
  CmWorld w;
  const auto id = w.route_resolved();
  auto p = CmWorld::parameters();
  p.responder_resources = 129;
  CHECK(w.cm.connect(id, p) == EINVAL);
  p.responder_resources = 128;
  p.initiator_depth = 129;
  CHECK(w.cm.connect(id, p) == EINVAL);
  p.initiator_depth = 128;
  CHECK(w.cm.connect(id, p) == 0);
}

TEST_CASE("private data is as long as MPA carries it beside its own block, and no longer", "[control][cm]") {
  CmWorld w;
  const auto id = w.route_resolved();
  CHECK(w.cm.connect(id, CmWorld::parameters(1, std::string(509, 'x'))) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters(1, std::string(508, 'x'))) == 0);
}

TEST_CASE("W-MPA-38: an established connection is told once, with the peer's private data and depths",
          "[control][cm][W-MPA-38]") {
  CmWorld w;
  const auto id = w.connecting();
  w.cm.on_stream_event(w.stream_event(Kind::established, id, "world"));
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  const auto e = w.event();
  CHECK(e.event == RNIC_CM_ESTABLISHED);
  CHECK(e.status == 0);
  CHECK(e.parameters.responder_resources == 4);
  CHECK(e.parameters.initiator_depth == 6);
  CHECK(e.parameters.private_data_length == 5);
  CHECK(std::memcmp(e.parameters.private_data, "world", 5) == 0);
  CHECK(w.silent());
}

TEST_CASE("W-MPA-38: a peer's rejection is REJECTED with its private data and depths", "[control][cm][W-MPA-38]") {
  CmWorld w;
  const auto id = w.connecting();
  w.cm.on_stream_event(w.stream_event(Kind::rejected, id, "no"));
  const auto e = w.event();
  CHECK(e.event == RNIC_CM_REJECTED);
  CHECK(e.status == -ECONNREFUSED);
  CHECK(e.parameters.private_data_length == 2);
  CHECK(e.parameters.responder_resources == 4);
  CHECK(e.parameters.initiator_depth == 6);
  CHECK(w.cm.disconnect(id) == 0);
}

TEST_CASE("each failure of a connection attempt has its event and status", "[control][cm]") {
  struct Row {
    StreamFailure failure;
    std::uint32_t event;
    int status;
  };
  const Row row = GENERATE(Row{StreamFailure::refused, RNIC_CM_REJECTED, -ECONNREFUSED},
                           Row{StreamFailure::reset, RNIC_CM_REJECTED, -ECONNRESET},
                           Row{StreamFailure::timed_out, RNIC_CM_UNREACHABLE, -ETIMEDOUT},
                           Row{StreamFailure::unreachable, RNIC_CM_UNREACHABLE, -EHOSTUNREACH},
                           Row{StreamFailure::protocol, RNIC_CM_CONNECT_ERROR, -EPROTO},
                           Row{StreamFailure::no_resources, RNIC_CM_CONNECT_ERROR, -ENOMEM});
  CmWorld w;
  const auto id = w.connecting();
  auto failed = w.stream_event(Kind::failed, id);
  failed.failure = row.failure;
  w.cm.on_stream_event(failed);
  const auto e = w.event();
  CHECK(e.event == row.event);
  CHECK(e.status == row.status);
  w.cm.on_stream_event(failed);
  CHECK(w.silent());
}

TEST_CASE("errors of a device's connect are errno values, and the id may try again", "[control][cm]") {
  CmWorld w;
  const auto id = w.route_resolved();
  w.host.connect_errors = {StreamError::wrong_state};
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EINVAL);
  w.host.connect_errors = {StreamError::no_route};
  CHECK(w.cm.connect(id, CmWorld::parameters()) == ENETUNREACH);
  w.host.connect_errors = {StreamError::no_resources};
  CHECK(w.cm.connect(id, CmWorld::parameters()) == ENOMEM);
  CHECK(w.cm.connect(id, CmWorld::parameters()) == 0);
}

TEST_CASE("an ephemeral port that is still in TIME-WAIT is changed for another", "[control][cm]") {
  CmWorld w;
  const auto id = w.route_resolved();
  w.host.connect_errors = {StreamError::address_in_use};
  REQUIRE(w.cm.connect(id, CmWorld::parameters()) == 0);
  REQUIRE(w.host.connects.size() == 2);
  CHECK(w.host.connects[0].options.local_port != w.host.connects[1].options.local_port);
  CHECK(control::port_of(w.cm.query(id)->source) == w.host.connects[1].options.local_port);
}

TEST_CASE("a port that the application chose is not changed", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  w.cm.bind(id, ipv4(10, 0, 0, 1, 5555));
  w.cm.resolve_address(id, {}, ipv4(10, 0, 0, 2, 1));
  w.cm.resolve_route(id);
  w.host.connect_errors = {StreamError::address_in_use};
  CHECK(w.cm.connect(id, CmWorld::parameters()) == EADDRINUSE);
}

// ---- requests ---------------------------------------------------------------------------------

TEST_CASE("W-MPA-38: a connect request makes a new id, told with the listener's user pointer and the peer's depths",
          "[control][cm][W-MPA-38]") {
  CmWorld w;
  const auto listener = w.listening();
  w.cm.on_stream_event(w.request_for(listener));
  const auto e = w.event();
  CHECK(e.event == RNIC_CM_CONNECT_REQUEST);
  CHECK(e.uid == 0x2000);
  CHECK(e.listener == listener);
  CHECK(e.id != listener);
  CHECK(e.parameters.responder_resources == 4);
  CHECK(e.parameters.initiator_depth == 6);
  CHECK(std::memcmp(e.parameters.private_data, "hello", 5) == 0);
  const auto q = w.cm.query(e.id);
  REQUIRE(q);
  CHECK(q->node_guid == 0xA2);
  CHECK(control::port_of(q->destination) == 40000);
}

TEST_CASE("an application cannot name a request that it has not been told of", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  w.cm.on_stream_event(w.request_for(listener));
  CHECK_FALSE(w.cm.channel_of(listener + 1));
  const auto e = w.event();
  CHECK(w.cm.channel_of(e.id) == w.channel);
}

TEST_CASE("accept binds a user pointer, and ESTABLISHED is told with it", "[control][cm]") {
  CmWorld w;
  const auto id = w.requested();
  REQUIRE(w.cm.accept(id, 0x3000, CmWorld::parameters(9, "yes")) == 0);
  REQUIRE(w.host.accepts.size() == 1);
  CHECK(w.host.accepts[0].device == 2);
  CHECK(w.host.accepts[0].stream.value == 77);
  CHECK(w.host.accepts[0].qp.number == 9);
  CHECK(w.cm.accept(id, 0x3000, CmWorld::parameters(9)) == EINVAL);
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  const auto e = w.event();
  CHECK(e.event == RNIC_CM_ESTABLISHED);
  CHECK(e.uid == 0x3000);
}

TEST_CASE("a request whose peer has gone is ECONNRESET to whoever accepts it", "[control][cm]") {
  CmWorld w;
  const auto id = w.requested();
  w.host.accept_errors = {StreamError::unknown};
  CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == ECONNRESET);
  CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == EINVAL);
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.rejects.empty());
}

TEST_CASE("accept with a wrong QP can be tried again with the right one", "[control][cm]") {
  CmWorld w;
  const auto id = w.requested();
  w.host.accept_errors = {StreamError::wrong_state};
  CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == EINVAL);
  CHECK(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
}

TEST_CASE("reject answers a request once, with private data", "[control][cm]") {
  CmWorld w;
  const auto id = w.requested();
  const char no[] = {'n', 'o'};
  REQUIRE(w.cm.reject(id, as_bytes(no, sizeof no)) == 0);
  REQUIRE(w.host.rejects.size() == 1);
  CHECK(w.host.rejects[0].second.length == 2);
  CHECK(w.cm.reject(id, {}) == EINVAL);
  REQUIRE(w.cm.destroy_id(id));
  CHECK(w.host.rejects.size() == 1);
}

TEST_CASE("a request that is destroyed unanswered is rejected", "[control][cm]") {
  CmWorld w;
  const auto id = w.requested();
  REQUIRE(w.cm.destroy_id(id));
  REQUIRE(w.host.rejects.size() == 1);
  CHECK(w.host.last_rejects == control::Rejects::application);
  CHECK(w.host.rejects[0].first.second.value == 77);
}

TEST_CASE("requests that nobody was told of are rejected with their listener", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  w.cm.on_stream_event(w.request_for(listener, {1}));
  const auto told = w.event().id;
  w.cm.on_stream_event(w.request_for(listener, {2}));
  w.cm.on_stream_event(w.request_for(listener, {3}));
  const auto gone = w.cm.destroy_id(listener);
  REQUIRE(gone);
  CHECK(gone->events_reported == 1);
  CHECK(gone->purged == 2);
  CHECK(w.host.rejects.size() == 2);
  CHECK(w.cm.query(told));
  CHECK(w.cm.id_count() == 1);
}

TEST_CASE("a request for a listener that has gone is rejected", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  REQUIRE(w.cm.destroy_id(listener));
  w.cm.on_stream_event(w.request_for(listener));
  CHECK(w.host.rejects.size() == 1);
  CHECK(w.host.last_rejects == control::Rejects::nobody_listens);
  CHECK(w.silent());
}

TEST_CASE("a request is rejected where there are as many ids as there may be", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  while (w.cm.id_count() < control::ConnectionManager::kIdsMax) w.id();
  w.cm.on_stream_event(w.request_for(listener));
  CHECK(w.host.rejects.size() == 1);
  CHECK(w.host.last_rejects == control::Rejects::too_many_ids);
  CHECK(w.silent());
}

// ---- the end of a connection ------------------------------------------------------------------

TEST_CASE("V-TDN-09: DISCONNECTED is told once, and a second disconnect is no error", "[control][cm][V-TDN-09]") {
  CmWorld w;
  const auto id = w.connecting();
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  w.event();
  REQUIRE(w.cm.disconnect(id) == 0);
  CHECK(w.host.disconnects.size() == 1);
  CHECK(w.host.abrupt == 0);
  w.cm.on_stream_event(w.stream_event(Kind::disconnected, id));
  w.cm.on_stream_event(w.stream_event(Kind::disconnected, id));
  const auto e = w.event();
  CHECK(e.event == RNIC_CM_DISCONNECTED);
  CHECK(e.status == 0);
  CHECK(w.silent());
  CHECK(w.cm.disconnect(id) == 0);
  CHECK(w.host.disconnects.size() == 1);
}

TEST_CASE("whoever disconnects while connecting is not left waiting", "[control][cm]") {
  CmWorld w;
  const auto id = w.connecting();
  REQUIRE(w.cm.disconnect(id) == 0);
  CHECK(w.event().event == RNIC_CM_CONNECT_ERROR);
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  CHECK(w.silent());
}

TEST_CASE("V-TDN-09: an id that is destroyed while connected ends its stream abruptly", "[control][cm][V-TDN-09]") {
  CmWorld w;
  const auto id = w.connecting();
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  REQUIRE(w.cm.destroy_id(id));
  REQUIRE(w.host.disconnects.size() == 1);
  CHECK(w.host.disconnects[0].first == 2);
  CHECK(w.host.abrupt == 1);
}

TEST_CASE("late news of an id that is gone find nobody", "[control][cm]") {
  CmWorld w;
  const auto id = w.connecting();
  REQUIRE(w.cm.destroy_id(id));
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  CHECK(w.silent());
  CHECK_FALSE(w.cm.destroy_id(id));
}

// ---- channels and counts ----------------------------------------------------------------------

TEST_CASE("destroying an id tells how many events were reported, and purges the others", "[control][cm]") {
  CmWorld w;
  const auto id = w.route_resolved();  // two reported
  w.cm.connect(id, CmWorld::parameters());
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  const auto gone = w.cm.destroy_id(id);
  REQUIRE(gone);
  CHECK(gone->events_reported == 2);
  CHECK(gone->purged == 1);
  CHECK(w.silent());
}

TEST_CASE("a channel without events answers EAGAIN", "[control][cm]") {
  CmWorld w;
  const auto none = w.cm.get_event(w.channel);
  REQUIRE_FALSE(none);
  CHECK(none.error() == EAGAIN);
  CHECK(w.cm.get_event(w.channel + 1).error() == EINVAL);
}

TEST_CASE("an id migrates with its waiting events, and their counts", "[control][cm]") {
  CmWorld w;
  const auto other = w.id();
  w.cm.resolve_address(other, {}, ipv4(10, 0, 0, 2, 1));
  const auto id = w.route_resolved();
  w.cm.connect(id, CmWorld::parameters());
  // route_resolved() took two events, of which the first was the other id's.
  const auto to = w.cm.open_channel();
  const auto moved = w.cm.migrate_id(id, to);
  REQUIRE(moved);
  CHECK(moved->old_channel == w.channel);
  CHECK(moved->events_reported == 1);
  CHECK(moved->purged == 1);
  CHECK(w.host.counts[to] == 1);
  CHECK(w.silent());
  CHECK(w.cm.get_event(to)->event == RNIC_CM_ROUTE_RESOLVED);
  CHECK(w.cm.channel_of(id) == to);
  CHECK(w.cm.migrate_id(id, to)->purged == 0);
}

TEST_CASE("a channel ends with its ids", "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  w.cm.on_stream_event(w.request_for(listener));
  const auto id = w.connecting();
  w.cm.on_stream_event(w.stream_event(Kind::established, id));
  w.cm.close_channel(w.channel);
  CHECK(w.cm.id_count() == 0);
  CHECK(w.host.listening.empty());
  CHECK(w.host.rejects.size() == 1);
  CHECK(w.host.disconnects.size() == 1);
  CHECK(w.host.abrupt == 1);
  CHECK_FALSE(w.cm.has_channel(w.channel));
}

TEST_CASE("a process has all ephemeral ports but an eighth, another finds some, and all come back", "[control][cm]") {
  CmWorld w;
  const auto other = w.cm.open_channel(9);
  std::uint32_t taken = 0;
  int error = 0;
  while ((error = w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 0))) == 0) ++taken;
  CHECK(error == ENOMEM);
  CHECK(taken == control::PortSpace::kEphemeralCount / 8 * 7);
  const auto late = *w.cm.create_id(other, 0x0106, 1, CmWorld::kAll);
  CHECK(w.cm.bind(late, ipv4(0, 0, 0, 0, 0)) == 0);
  // The same by number; and those below are counted by themselves.
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 40'000)) == ENOMEM);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == 0);
  w.cm.close_channel(w.channel);
  CHECK(w.cm.ports(0).used() == 1);
  CHECK(w.cm.ports(7174).used() == 0);
  REQUIRE(w.cm.destroy_id(late));
  CHECK(w.cm.ports(0).used() == 0);
}

TEST_CASE("a process has a share of a device's connections, whoever called", "[control][cm]") {
  auto devices = CmWorld::devices();
  for (auto& device : devices) device.streams_max = 64;
  CmWorld w(devices);  // 56 are shared out, and one alone may have 49
  const auto caller = w.route_resolved();
  const auto listener = w.listening();
  for (std::uint64_t i = 0; i < 60; ++i) w.cm.on_stream_event(w.request_for(listener, {1000 + i}));
  CHECK(w.host.rejects.size() == 11);
  CHECK(w.host.last_rejects == control::Rejects::too_many_streams);
  CHECK(w.cm.streams(2).used() == 49);
  // Its own call is one too many as well, until one has ended.
  CHECK(w.cm.connect(caller, w.parameters()) == ENOMEM);
  std::vector<std::uint32_t> requests;
  for (int i = 0; i < 49; ++i) requests.push_back(w.event().id);
  REQUIRE(w.cm.reject(requests[0], {}) == 0);
  CHECK(w.cm.connect(caller, w.parameters()) == 0);
  CHECK(w.cm.streams(2).used() == 49);
  // And another process finds some.
  const auto other = w.cm.open_channel(9);
  const auto theirs = *w.cm.create_id(other, 0x0106, 1, CmWorld::kAll);
  REQUIRE(w.cm.resolve_address(theirs, {}, ipv4(10, 0, 0, 2, 1)) == 0);
  REQUIRE(w.cm.resolve_route(theirs) == 0);
  CHECK(w.cm.connect(theirs, w.parameters()) == 0);
  w.cm.close_channel(w.channel);
  w.cm.close_channel(other);
  CHECK(w.cm.streams(2).used() == 0);
}

TEST_CASE("a channel with many listeners ends with one word to each device", "[control][cm]") {
  CmWorld w;
  constexpr int kMany = 2'000;
  for (int i = 0; i < kMany; ++i) w.listening();
  REQUIRE(w.host.listening.size() >= kMany);
  std::set<std::uint32_t> devices;
  for (const auto& each : w.host.listening) devices.insert(each.device);
  w.cm.close_channel(w.channel);
  CHECK(w.host.listening.empty());
  CHECK(w.host.unlistens == devices.size());
}

TEST_CASE("a channel with many ids ends in one go", "[control][cm]") {
  CmWorld w;
  const auto other = w.cm.open_channel();
  const auto stays = *w.cm.create_id(other, 0x0106, 1, CmWorld::kAll);
  const auto listener = w.listening();
  for (std::uint64_t i = 0; i < 100; ++i) w.cm.on_stream_event(w.request_for(listener, {1000 + i}));
  std::vector<std::uint32_t> resolved;
  for (int i = 0; i < 16'500; ++i) {
    resolved.push_back(w.id());
    w.cm.resolve_address(resolved.back(), {}, ipv4(10, 0, 0, 2, 1));
  }
  REQUIRE(w.cm.migrate_id(resolved.back(), other));
  w.cm.close_channel(w.channel);
  CHECK(w.cm.id_count() == 2);
  CHECK(w.host.rejects.size() == 100);
  CHECK(w.host.abandons == 1);
  CHECK(w.cm.channel_of(stays) == other);
  w.cm.close_channel(other);
  CHECK(w.cm.id_count() == 0);
  CHECK(w.cm.shares().used() == 0);
}

TEST_CASE("ids of one process leave some for another", "[control][cm]") {
  CmWorld w;
  const auto other = w.cm.open_channel(4711);
  while (w.cm.create_id(w.channel, 0x0106, 1, CmWorld::kAll)) {
  }
  CHECK(w.cm.id_count() == control::ConnectionManager::kIdsMax);
  CHECK(w.cm.create_id(other, 0x0106, 1, CmWorld::kAll));
}

// ---- small questions --------------------------------------------------------------------------

TEST_CASE("only the TCP port space is served", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.create_id(w.channel, 0x0111, 1, 1).error() == EINVAL);
  CHECK(w.cm.create_id(w.channel, 0x013f, 1, 1).error() == EINVAL);
  CHECK(w.cm.create_id(w.channel + 9, 0x0106, 1, 1).error() == EINVAL);
}

TEST_CASE("a QP goes to INIT and RTR with remote rights, and to RTS by its connection alone", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  const auto init = w.cm.init_qp_attributes(id, 1);
  REQUIRE(init);
  CHECK(init->mask == 2);
  CHECK(init->access == (RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC));
  CHECK(w.cm.init_qp_attributes(id, 2)->mask == 2);
  CHECK(w.cm.init_qp_attributes(id, 3)->mask == 0);
  CHECK(w.cm.init_qp_attributes(id, 6).error() == EINVAL);
}

TEST_CASE("options have their lengths; unknown ones are ENOSYS", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  const std::uint8_t tos = 0x20;
  const std::int32_t on = 1;
  CHECK(w.cm.set_option(id, 0, 0, as_bytes(&tos, 1)) == 0);
  CHECK(w.cm.set_option(id, 0, 0, as_bytes(&on, 4)) == EINVAL);
  CHECK(w.cm.set_option(id, 0, 1, as_bytes(&tos, 1)) == EINVAL);
  CHECK(w.cm.set_option(id, 0, 99, as_bytes(&on, 4)) == ENOSYS);
  CHECK(w.cm.set_option(id, 1, 1, as_bytes(&on, 4)) == ENOSYS);
}

TEST_CASE("the type of service goes with connect(), with accept(), and from a listener to its requests",
          "[control][cm]") {
  CmWorld w;
  const std::uint8_t low = 0x20, high = 0xB8;
  const auto caller = w.route_resolved();
  REQUIRE(w.cm.set_option(caller, 0, 0, as_bytes(&high, 1)) == 0);
  REQUIRE(w.cm.connect(caller, CmWorld::parameters()) == 0);
  CHECK(w.host.connects.at(0).options.traffic_class == 0xB8);
  const auto listener = w.listening();
  REQUIRE(w.cm.set_option(listener, 0, 0, as_bytes(&low, 1)) == 0);
  w.cm.on_stream_event(w.request_for(listener));
  const auto request = w.event().id;
  SECTION("the listener's") {
    REQUIRE(w.cm.accept(request, 1, CmWorld::parameters(9)) == 0);
    CHECK(w.host.accepts.at(0).options.traffic_class == 0x20);
  }
  SECTION("its own") {
    REQUIRE(w.cm.set_option(request, 0, 0, as_bytes(&high, 1)) == 0);
    REQUIRE(w.cm.accept(request, 1, CmWorld::parameters(9)) == 0);
    CHECK(w.host.accepts.at(0).options.traffic_class == 0xB8);
  }
}

// ---- IPv6 -------------------------------------------------------------------------------------

namespace {

rnic_address ipv6(const char* text, std::uint16_t port = 0, std::uint32_t scope = 0) {
  rnic_address address = control::to_abi(*wire::parse_ip(text), port);
  address.scope = scope;
  return address;
}
core::DeviceAddress cidr6(const char* text, std::uint8_t length = 64) { return {*wire::parse_ip(text), length}; }

// Two devices on links of their own, each with a link-local address; the second has a static route.
std::vector<control::CmDevice> two_links() {
  std::vector<control::CmDevice> list;
  list.push_back(CmWorld::device(0xB0, {cidr6("2001:db8:1::1"), cidr6("fe80::1"), cidr(10, 0, 0, 1, 24)}));
  list.push_back(CmWorld::device(0xB1, {cidr6("2001:db8:2::1"), cidr6("fe80::2")}));
  list[0].scope = 5;
  list[1].scope = 6;
  list[0].routes.set_gateway(*wire::parse_ip("fe80::fe"));
  list[1].routes.add(
      {.prefix = *wire::parse_ip("2001:db8:77::"), .bits = 48, .gateway = *wire::parse_ip("2001:db8:2::fe")});
  return list;
}

}  // namespace

TEST_CASE("an IPv6 destination is reached by the longest prefix of all devices, static routes among them",
          "[control][cm]") {
  CmWorld w(two_links());
  CHECK(device_toward(w, ipv6("2001:db8:2::9", 1)) == 0xB1);
  CHECK(device_toward(w, ipv6("2001:db8:77::9", 1)) == 0xB1);
  CHECK(device_toward(w, ipv6("2001:db8:78::9", 1)) == 0xB0);  // the default route
  const auto id = w.id();
  w.cm.resolve_address(id, {}, ipv6("2001:db8:2::9", 1));
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->source) == *wire::parse_ip("2001:db8:2::1"));
}

TEST_CASE("a link-local destination needs its scope where there is more than one link", "[control][cm]") {
  CmWorld w(two_links());
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, {}, ipv6("fe80::9", 1)) == 0);
  const auto failed = w.event();
  CHECK(failed.event == RNIC_CM_ADDRESS_ERROR);
  CHECK(failed.status == -EINVAL);
  for (const auto& [scope, guid] : {std::pair{5u, 0xB0u}, {6u, 0xB1u}}) {
    const auto scoped = w.id();
    REQUIRE(w.cm.resolve_address(scoped, {}, ipv6("fe80::9", 1, scope)) == 0);
    CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
    const auto q = w.cm.query(scoped);
    CHECK(q->node_guid == guid);
    CHECK(control::ip_of(q->source)->is_link_local());
    CHECK(q->source.scope == scope);
    CHECK(q->destination.scope == scope);
  }
  const auto nowhere = w.id();
  REQUIRE(w.cm.resolve_address(nowhere, {}, ipv6("fe80::9", 1, 7)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_ERROR);
  // With one link to see there is nothing to choose.
  CHECK(device_toward(w, ipv6("fe80::9", 1), 0x2) == 0xB1);
}

TEST_CASE("a link-local address is bound on the link that its scope names", "[control][cm]") {
  CmWorld w(two_links());
  CHECK(w.cm.bind(w.id(), ipv6("fe80::1", 0, 6)) == EADDRNOTAVAIL);
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, ipv6("fe80::1", 7174, 5)) == 0);
  CHECK(w.cm.query(id)->source.scope == 5);
}

TEST_CASE("a listener on :: is for both versions of IP, with the option for IPv6 alone", "[control][cm]") {
  CmWorld w(two_links());
  const auto both = w.id();
  REQUIRE(w.cm.bind(both, ipv6("::", 7174)) == 0);
  REQUIRE(w.cm.listen(both, 1) == 0);
  REQUIRE(w.host.listening.size() == 2);
  CHECK_FALSE(w.host.listening[0].v6_only);
  CHECK(w.host.listening[0].address == wire::IpAddress());
  REQUIRE(w.cm.destroy_id(both));
  const std::int32_t on = 1;
  const auto alone = w.id();
  REQUIRE(w.cm.set_option(alone, 0, 2, as_bytes(&on, sizeof on)) == 0);
  REQUIRE(w.cm.bind(alone, ipv6("::", 7174)) == 0);
  REQUIRE(w.cm.listen(alone, 1) == 0);
  CHECK(w.host.listening[0].v6_only);
}

TEST_CASE("a wildcard source of the other version of IP leaves the choice open, another address does not",
          "[control][cm]") {
  CmWorld w(two_links());
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, ipv6("::"), ipv4(10, 0, 0, 9, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->source) == wire::IpAddress::v4(10, 0, 0, 1));
  CHECK(w.cm.resolve_address(w.id(), ipv6("2001:db8:1::1"), ipv4(10, 0, 0, 9, 1)) == EINVAL);
}

TEST_CASE("an address that a device gets later can be bound, one that it loses cannot", "[control][cm]") {
  CmWorld w(two_links());
  CHECK(w.cm.bind(w.id(), ipv6("2001:db8:9::1")) == EADDRNOTAVAIL);
  w.cm.set_device(1, CmWorld::device(0xB1, {cidr6("2001:db8:9::1")}));
  CHECK(w.cm.bind(w.id(), ipv6("2001:db8:9::1")) == 0);
  CHECK(w.cm.bind(w.id(), ipv6("2001:db8:2::1")) == EADDRNOTAVAIL);
  CHECK(device_toward(w, ipv6("2001:db8:9::7", 1)) == 0xB1);
}

// ---- 127.0.0.1 and ::1 ------------------------------------------------------------------------

namespace {

const auto kLoop4 = wire::IpAddress::v4(127, 0, 0, 1);
const auto kLoop6 = *wire::parse_ip("::1");

rnic_address loop(const wire::IpAddress& address, std::uint16_t port = 0) { return control::to_abi(address, port); }

// Two devices of IPv4 only, of which the second has 127.0.0.1, and one of IPv6.
std::vector<control::CmDevice> one_owns_it() {
  return {CmWorld::device(0xC0, {cidr(10, 0, 0, 1, 24)}),
          CmWorld::device(0xC1, {cidr(127, 0, 0, 1, 8), cidr(127, 0, 3, 1, 24)}),
          CmWorld::device(0xC2, {cidr6("2001:db8::1")})};
}

// The place in the list of the device that an id is bound to; -1: none.
int bound_to(CmWorld& w, const rnic_address& address, control::DeviceSet visible = CmWorld::kAll) {
  const auto id = w.id(1, visible);
  if (w.cm.bind(id, address) != 0) return -1;
  for (const control::IdInfo& info : w.cm.ids())
    if (info.id == id) return info.device;
  return -1;
}

}  // namespace

TEST_CASE("127.0.0.1 and ::1 are the lowest-numbered device that the application sees, whatever its addresses",
          "[control][cm]") {
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    CmWorld w;
    for (const auto& [visible, device] : {std::pair{0xFu, 0}, {0xEu, 1}, {0xCu, 2}, {0x8u, 3}, {0u, -1}}) {
      INFO(visible);
      CHECK(bound_to(w, loop(address), visible) == device);
      CHECK(device_toward(w, loop(address, 1), visible) == (device < 0 ? 0u : 0xA0u + static_cast<unsigned>(device)));
    }
  }
}

TEST_CASE("127.0.0.1 is the visible device that has it for an address, before any lower one", "[control][cm]") {
  CmWorld w(one_owns_it());
  CHECK(bound_to(w, loop(kLoop4), 0x7) == 1);
  CHECK(device_toward(w, loop(kLoop4, 1), 0x7) == 0xC1);
  CHECK(bound_to(w, loop(kLoop4), 0x5) == 0);
  CHECK(device_toward(w, loop(kLoop4, 1), 0x4) == 0xC2);
  CHECK(bound_to(w, loop(kLoop6), 0x7) == 0);
}

TEST_CASE("an id at 127.0.0.1 or ::1 shows no device before it calls, as in the kernel, unless it is configured there",
          "[control][cm]") {
  CmWorld w(one_owns_it());
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    for (const std::uint64_t guid : {0xC0u, 0xC1u}) {
      const bool owner = guid == 0xC1 && address == kLoop4;
      const auto id = w.id(1, guid == 0xC0 ? 0x1 : 0x2);
      REQUIRE(w.cm.bind(id, loop(address, 7174)) == 0);
      CHECK(w.cm.query(id)->node_guid == (owner ? guid : 0));
      CHECK(w.cm.query(id)->port_number == (owner ? 1u : 0u));
      REQUIRE(w.cm.listen(id, 1) == 0);
      CHECK(w.cm.query(id)->node_guid == (owner ? guid : 0));
      const auto calls = w.id(1, guid == 0xC0 ? 0x1 : 0x2);
      REQUIRE(w.cm.bind(calls, loop(address)) == 0);
      REQUIRE(w.cm.resolve_address(calls, {}, loop(address, 7174)) == 0);
      CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
      CHECK(w.cm.query(calls)->node_guid == guid);
    }
  }
}

TEST_CASE("who is bound to 127.0.0.1 or ::1 is told so, and listens there alone", "[control][cm]") {
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    CmWorld w;
    const auto id = w.listening(loop(address, 7174));
    const auto q = w.cm.query(id);
    CHECK(control::ip_of(q->source) == address);
    CHECK(control::port_of(q->source) == 7174);
    CHECK(q->source.scope == 0);
    REQUIRE(w.host.listening.size() == 1);
    CHECK(w.host.listening[0].device == 0);
    CHECK(w.host.listening[0].address == address);
  }
}

TEST_CASE("a port of 127.0.0.1 is taken as one of any address of that device", "[control][cm]") {
  CmWorld w;
  REQUIRE(w.cm.bind(w.id(), loop(kLoop4, 7174)) == 0);
  CHECK(w.cm.bind(w.id(), loop(kLoop4, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(), ipv4(0, 0, 0, 0, 7174)) == EADDRINUSE);
  CHECK(w.cm.bind(w.id(1, 0x1), control::to_abi(wire::IpAddress(), 7174)) == EADDRINUSE);
  // Another address of the same device, another version of IP, another device.
  CHECK(w.cm.bind(w.id(), ipv4(127, 0, 1, 1, 7174)) == 0);
  CHECK(w.cm.bind(w.id(), loop(kLoop6, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0x2), loop(kLoop4, 7174)) == 0);
  CHECK(w.cm.bind(w.id(1, 0xC), ipv4(0, 0, 0, 0, 7174)) == 0);
}

TEST_CASE("who calls 127.0.0.1 or ::1 speaks from it, unless bound to another address of that device",
          "[control][cm]") {
  CmWorld w;
  for (const auto& address : {kLoop4, kLoop6}) {
    INFO(wire::to_string(address));
    const auto id = w.route_resolved(loop(address, 7174));
    REQUIRE(w.cm.connect(id, CmWorld::parameters()) == 0);
    const auto& made = w.host.connects.back();
    CHECK(made.device == 0);
    CHECK(made.options.local == address);
    CHECK(made.options.remote == address);
    CHECK(control::ip_of(w.cm.query(id)->source) == address);
    CHECK(control::ip_of(w.cm.query(id)->destination) == address);
  }
  for (const auto& [from, to] :
       {std::pair{wire::IpAddress::v4(127, 0, 1, 1), kLoop4}, {kLoop4, wire::IpAddress::v4(127, 0, 1, 1)}}) {
    const auto id = w.id();
    REQUIRE(w.cm.resolve_address(id, loop(from), loop(to, 1)) == 0);
    CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
    CHECK(w.cm.query(id)->node_guid == 0xA0);
    CHECK(control::ip_of(w.cm.query(id)->source) == from);
    CHECK(control::ip_of(w.cm.query(id)->destination) == to);
  }
}

TEST_CASE("from 127.0.0.1 nobody is reached beyond its device, and from elsewhere nobody at 127.0.0.1",
          "[control][cm]") {
  CmWorld w;
  const auto fails = [&](const rnic_address& from, const rnic_address& to) {
    const auto id = w.id();
    REQUIRE(w.cm.resolve_address(id, from, to) == 0);
    const auto told = w.event();
    CHECK(told.event == RNIC_CM_ADDRESS_ERROR);
    return -told.status;
  };
  CHECK(fails(loop(kLoop4), ipv4(127, 0, 1, 2, 1)) == EINVAL);  // the other end of the pair
  CHECK(fails(loop(kLoop4), ipv4(10, 0, 0, 2, 1)) == EINVAL);
  CHECK(fails(ipv4(127, 0, 1, 2), loop(kLoop4, 1)) == ENETUNREACH);
  CHECK(fails(ipv4(10, 0, 0, 1), loop(kLoop4, 1)) == ENETUNREACH);
  // A device with a default route.
  const auto id = w.id(1, 0x4);
  REQUIRE(w.cm.resolve_address(id, loop(kLoop4), ipv4(192, 0, 2, 1, 1)) == 0);
  CHECK(w.event().status == -EINVAL);
}

TEST_CASE("who has 127.0.0.1 for its only address reaches nobody else by it", "[control][cm]") {
  auto list = CmWorld::devices();
  list[0] = CmWorld::device(0xA0, {cidr(127, 0, 0, 1, 8)}, 1);
  CmWorld w(list);
  const auto id = w.id(1, 0x1);
  REQUIRE(w.cm.resolve_address(id, {}, ipv4(127, 0, 1, 2, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_ERROR);
  const auto bound = w.id(1, 0x1);
  REQUIRE(w.cm.resolve_address(bound, loop(kLoop4), ipv4(127, 0, 1, 2, 1)) == 0);
  CHECK(w.event().status == -EINVAL);
  CHECK(device_toward(w, ipv4(127, 0, 0, 1, 1)) == 0xA0);
}

TEST_CASE("127.0.0.1 and ::1 are of different versions of IP; ::ffff:127.0.0.1 is 127.0.0.1", "[control][cm]") {
  CmWorld w;
  CHECK(w.cm.resolve_address(w.id(), loop(kLoop4), loop(kLoop6, 1)) == EINVAL);
  CHECK(w.cm.resolve_address(w.id(), loop(kLoop6), ipv4(127, 0, 1, 1, 1)) == EINVAL);
  rnic_address mapped{};
  mapped.family = AF_INET6;
  std::memcpy(mapped.octets, kLoop4.octets().data(), 16);
  const auto id = w.id();
  REQUIRE(w.cm.bind(id, mapped) == 0);
  CHECK(control::ip_of(w.cm.query(id)->source) == kLoop4);
  REQUIRE(w.cm.resolve_address(id, {}, loop(kLoop4, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(w.cm.query(id)->node_guid == 0xA0);
  // A wildcard of the other version leaves the choice open.
  const auto open = w.id();
  REQUIRE(w.cm.resolve_address(open, control::to_abi(wire::IpAddress(), 0), loop(kLoop4, 1)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(open)->source) == kLoop4);
}

TEST_CASE("a wildcard destination is ::1 where no device has an address of IPv6", "[control][cm]") {
  CmWorld w;
  const auto id = w.id();
  REQUIRE(w.cm.resolve_address(id, {}, control::to_abi(wire::IpAddress(), 7174)) == 0);
  CHECK(w.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(control::ip_of(w.cm.query(id)->destination) == kLoop6);
  CHECK(w.cm.query(id)->node_guid == 0xA0);
}

TEST_CASE("a request to 127.0.0.1 is of the device that it came to, and told with the addresses that were called",
          "[control][cm]") {
  CmWorld w;
  const auto listener = w.listening();
  for (const std::uint32_t device : {0u, 3u}) {
    INFO(device);
    auto request = w.request_for(listener, {device + 1});
    request.device = device;
    request.local = request.remote = kLoop4;
    w.cm.on_stream_event(request);
    const auto id = w.event().id;
    const auto q = w.cm.query(id);
    CHECK(q->node_guid == 0xA0 + device);
    CHECK(control::ip_of(q->source) == kLoop4);
    CHECK(control::ip_of(q->destination) == kLoop4);
    REQUIRE(w.cm.accept(id, 1, CmWorld::parameters()) == 0);
    CHECK(w.host.accepts.back().device == device);
  }
}
