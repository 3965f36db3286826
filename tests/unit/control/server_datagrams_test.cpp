// Ids for datagrams through the socket, and inquiries from end to end over a pair of RoCE faces.
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "unit/control/cm_app.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint16_t kPort = 7174;
constexpr const char* kTwoFaces =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\nface = \"roce\"\n";

rnic_address at(std::uint8_t last, std::uint16_t port) {
  return control::to_abi(wire::IpAddress::v4(127, 0, 9, last), port);
}

rnic_cm_connect said(std::uint32_t id, std::uint32_t qp, const std::string& data) {
  rnic_cm_connect body{};
  body.id = id;
  body.uid = 0x77;
  body.parameters.qp_number = qp;
  body.parameters.valid = 1;
  body.parameters.private_data_length = static_cast<std::uint16_t>(data.size());
  std::memcpy(body.parameters.private_data, data.data(), data.size());
  return body;
}

// One who listens, and one who has a route to it; each a process of its own.
struct Two {
  Daemon daemon{kTwoFaces};
  CmApp server{daemon, "rnic1", getuid(), 1}, client{daemon, "rnic0", getuid(), 2};
  std::uint32_t listener = datagram_id(server, 0x11), id = 0;

  Two() {
    REQUIRE(server.bind(listener, at(2, kPort)).status == 0);
    REQUIRE(server.ask(RNIC_CM_LISTEN, rnic_cm_listen{listener, 4}).status == 0);
    id = route(kPort);
  }
  static std::uint32_t datagram_id(CmApp& app, std::uint64_t user_pointer) {
    rnic_cm_create_id body{};
    body.channel = app.reply.channel;
    body.port_space = 0x0111;
    body.uid = user_pointer;
    const auto answer = app.ask(RNIC_CM_CREATE_ID, body);
    REQUIRE(answer.status == 0);
    return answer.as<rnic_handle_reply>().handle;
  }
  std::uint32_t route(std::uint16_t port) {
    const auto made = datagram_id(client, 0x22);
    rnic_cm_resolve_address resolve{};
    resolve.id = made;
    resolve.destination = at(2, port);
    REQUIRE(client.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
    REQUIRE(client.event().event == RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(client.ask(RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{made, 1000}).status == 0);
    REQUIRE(client.event().event == RNIC_CM_ROUTE_RESOLVED);
    return made;
  }
  std::uint32_t asked() {
    REQUIRE(client.ask(RNIC_CM_CONNECT, said(id, 5, "hello")).status == 0);
    const auto told = server.event();
    REQUIRE(told.event == RNIC_CM_CONNECT_REQUEST);
    CHECK(std::string(reinterpret_cast<const char*>(told.parameters.private_data)) == "hello");
    return told.id;
  }
  rnic_cm_join group(std::uint32_t of) const {
    rnic_cm_join body{};
    body.id = of;
    body.uid = 0x99;
    body.group = control::to_abi(wire::IpAddress::v4(239, 1, 1, 1), 0);
    return body;
  }
  static bool waits(const CmApp& app) {
    pollfd wait{app.events.get(), POLLIN, 0};
    return poll(&wait, 1, 0) == 1;
  }
};

}  // namespace

TEST_CASE("W-INQ-02: who asks is answered, and no stream stays", "[control][datagrams][W-INQ-01][W-INQ-02]") {
  Two two;
  const auto request = two.asked();
  REQUIRE(two.server.ask(RNIC_CM_ACCEPT, said(request, 0x123, "welcome")).status == 0);
  const auto told = two.client.event();
  CHECK(told.event == RNIC_CM_ESTABLISHED);
  CHECK(told.datagrams == 1);
  CHECK(told.parameters.qp_number == 0x123);
  CHECK(std::string(reinterpret_cast<const char*>(told.parameters.private_data)) == "welcome");
  CHECK(told.way.qkey == 0x01234567);
  const auto gid = wire::IpAddress::v4(127, 0, 9, 2).octets();
  CHECK(std::memcmp(told.way.gid, gid.data(), 16) == 0);
  const auto& cm = two.daemon.server->connection_manager();
  CHECK(cm.streams(0).used() == 0);
  CHECK(cm.streams(1).used() == 0);
  CHECK_FALSE(Two::waits(two.server));
}

TEST_CASE("W-INQ-03: who is not wanted, or finds nobody, hears it", "[control][datagrams][W-INQ-03]") {
  Two two;
  SECTION("not wanted") {
    rnic_cm_reject reject{};
    reject.id = two.asked();
    REQUIRE(two.server.ask(RNIC_CM_REJECT, reject).status == 0);
    const auto told = two.client.event();
    CHECK(told.event == RNIC_CM_UNREACHABLE);
    CHECK(told.status == 2);
  }
  SECTION("its listener ends") {
    REQUIRE(two.client.ask(RNIC_CM_CONNECT, said(two.id, 5, "")).status == 0);
    const auto request = two.server.event();
    two.server.lifeline.reset();
    two.daemon.settle();
    CHECK(two.client.event().status == 2);
    CHECK(two.daemon.server->connection_manager().channel_of(request.id) == std::nullopt);
  }
  SECTION("nobody") {
    const auto other = two.route(kPort + 1);
    REQUIRE(two.client.ask(RNIC_CM_CONNECT, said(other, 5, "")).status == 0);
    const auto told = two.client.event();
    CHECK(told.event == RNIC_CM_UNREACHABLE);
    CHECK(told.status == 1);
  }
}

TEST_CASE("W-INQ-05: who asked and went costs the one who answers nothing", "[control][datagrams][W-INQ-05]") {
  Two two;
  const auto request = two.asked();
  const auto& streams = two.daemon.server->connection_manager().streams(1);
  CHECK(streams.used() == 1);
  REQUIRE(two.client.by_handle(RNIC_CM_DESTROY_ID, two.id).status == 0);
  for (int tries = 0; tries < 5000 && streams.used() != 0; ++tries) {  // the workers have a part in it
    usleep(1000);
    two.daemon.settle();
  }
  CHECK(streams.used() == 0);
  CHECK(two.server.ask(RNIC_CM_ACCEPT, said(request, 0x123, "")).status == 0);
  CHECK(two.server.by_handle(RNIC_CM_DESTROY_ID, request).status == 0);
}

TEST_CASE("what is asked of one process is no other's, and neither are its groups", "[control][datagrams]") {
  Two two;
  const auto request = two.asked();
  CHECK(two.client.ask(RNIC_CM_ACCEPT, said(request, 0x123, "")).status == ENOENT);
  CHECK(two.client.by_handle(RNIC_CM_DESTROY_ID, request).status == ENOENT);
  CHECK(two.client.ask(RNIC_CM_JOIN, two.group(request)).status == ENOENT);
  const auto joined = two.server.ask(RNIC_CM_JOIN, two.group(two.listener));
  REQUIRE(joined.status == 0);
  const auto membership = joined.as<rnic_handle_reply>().handle;
  CHECK(two.client.by_handle(RNIC_CM_LEAVE, membership).status == ENOENT);
  CHECK(two.server.by_handle(RNIC_CM_LEAVE, membership + 1).status == ENOENT);
  CHECK(two.server.by_handle(RNIC_CM_LEAVE, membership).status == 0);
}

TEST_CASE("what nobody has heard of a group comes off the channel with the membership", "[control][datagrams]") {
  Two two;
  const auto joined = two.server.ask(RNIC_CM_JOIN, two.group(two.listener));
  REQUIRE(joined.status == 0);
  CHECK(Two::waits(two.server));
  const auto left =
      two.server.by_handle(RNIC_CM_LEAVE, joined.as<rnic_handle_reply>().handle).as<rnic_cm_leave_reply>();
  CHECK(left.id == two.listener);
  CHECK(left.events_reported == 0);
  CHECK(left.purged == 1);
  CHECK(two.server.by_handle(RNIC_CM_GET_EVENT, two.server.reply.channel).status == EAGAIN);
}

TEST_CASE("W-INQ-08: where there is no RoCE face there are no ids for datagrams", "[control][datagrams][W-INQ-08]") {
  Daemon daemon;
  CmApp app(daemon);
  rnic_cm_create_id body{};
  body.channel = app.reply.channel;
  body.port_space = 0x0111;
  CHECK(app.ask(RNIC_CM_CREATE_ID, body).status == EINVAL);
  CHECK(daemon.log.back().second.find("sees no device that has them") != std::string::npos);
  const std::size_t lines = daemon.log.size();
  body.port_space = 0x013f;  // what librdmacm asks for first, whatever it wants
  CHECK(app.ask(RNIC_CM_CREATE_ID, body).status == EINVAL);
  CHECK(daemon.log.size() == lines);
}
