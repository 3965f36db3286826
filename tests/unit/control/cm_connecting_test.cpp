// The connection manager: calls, requests, and the end of a connection.
#include "control/connection_manager.hpp"

#include <cerrno>

#include "kit/catch.hpp"
#include "unit/control/fake_cm_host.hpp"

using namespace rnic;
using namespace rnic::test;
using Kind = core::StreamEvent::Kind;
using core::StreamError;
using core::StreamFailure;

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

TEST_CASE("W-MPA-14: private data is as long as what is sent of it, and no longer", "[control][cm][W-MPA-14]") {
  CmWorld w;
  const auto id = w.route_resolved();
  CHECK(w.cm.connect(id, CmWorld::parameters(1, std::string(253, 'x'))) == EINVAL);
  CHECK(w.cm.connect(id, CmWorld::parameters(1, std::string(252, 'x'))) == 0);
}

TEST_CASE("who calls by rdma_cm speaks for no queue pair: private data that begins with rnic's mark is refused",
          "[control][cm][oob]") {
  CmWorld w;
  const auto id = w.route_resolved();
  const std::string mark = std::string("rnic-mpa") + std::string(60, '\1');
  CHECK(w.cm.connect(id, CmWorld::parameters(1, mark)) == EACCES);
  CHECK(w.cm.connect(id, CmWorld::parameters(1, "x" + mark)) == 0);
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
