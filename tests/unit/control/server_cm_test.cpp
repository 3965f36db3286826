// Connection management through the socket: channels and their descriptors, who may name what, and
// a connection from end to end over a pair.
#include <endian.h>

#include "unit/control/cm_app.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

rnic_address at(std::uint8_t last, std::uint16_t port) {
  return control::to_abi(wire::IpAddress::v4(127, 0, 9, last), port);
}

rnic_cm_connect connect_request(std::uint32_t id, std::uint32_t qp) {
  rnic_cm_connect body{};
  body.id = id;
  body.uid = 0x77;
  body.parameters.qp_number = qp;
  body.parameters.valid = 1;
  body.parameters.responder_resources = 1;
  body.parameters.initiator_depth = 1;
  body.parameters.private_data_length = 3;
  std::memcpy(body.parameters.private_data, "abc", 3);
  return body;
}

// A server that listens and a client with a route to it, each with its QP.
struct Pair {
  Daemon daemon;
  App server_app{daemon, "rnic1"}, client_app{daemon, "rnic0"};
  CmApp server{daemon}, client{daemon};
  std::uint32_t server_qp, client_qp, listener, id;

  Pair() {
    server_qp = server_app.qp(server_app.pd(), server_app.cq());
    client_qp = client_app.qp(client_app.pd(), client_app.cq());
    listener = server.id(0x11);
    REQUIRE(server.bind(listener, at(2, 7000)).status == 0);
    REQUIRE(server.ask(RNIC_CM_LISTEN, rnic_cm_listen{listener, 4}).status == 0);
    route();
  }
  // An id of the client's that may connect.
  void route() {
    id = client.id(0x22);
    rnic_cm_resolve_address resolve{};
    resolve.id = id;
    resolve.destination = at(2, 7000);
    REQUIRE(client.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
    REQUIRE(client.event().event == RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(client.ask(RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{id, 1000}).status == 0);
    REQUIRE(client.event().event == RNIC_CM_ROUTE_RESOLVED);
  }
  std::uint32_t request() {
    REQUIRE(client.ask(RNIC_CM_CONNECT, connect_request(id, client_qp)).status == 0);
    const auto event = server.event();
    REQUIRE(event.event == RNIC_CM_CONNECT_REQUEST);
    CHECK(event.uid == 0x11);
    CHECK(event.listener == listener);
    CHECK(event.parameters.private_data_length == 3);
    return event.id;
  }
  std::uint32_t connect() {
    const auto child = request();
    REQUIRE(server.ask(RNIC_CM_ACCEPT, connect_request(child, server_qp)).status == 0);
    const auto there = server.event();
    CHECK(there.event == RNIC_CM_ESTABLISHED);
    CHECK(there.uid == 0x77);
    const auto here = client.event();
    CHECK(here.event == RNIC_CM_ESTABLISHED);
    CHECK(here.uid == 0x22);
    CHECK(here.parameters.private_data_length == 3);
    return child;
  }
  std::uint32_t state(App& app, std::uint32_t qp) {
    return app.by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>().state;
  }
};

}  // namespace

// ---- channels ---------------------------------------------------------------------------------

TEST_CASE("a channel's descriptor counts the events that wait", "[control][server_cm]") {
  Daemon daemon;
  CmApp app(daemon);
  const auto id = app.id();
  rnic_cm_resolve_address resolve{};
  resolve.id = id;
  resolve.destination = at(1, 1);
  REQUIRE(app.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
  pollfd wait{app.events.get(), POLLIN, 0};
  REQUIRE(poll(&wait, 1, 0) == 1);
  CHECK(app.event().event == RNIC_CM_ADDRESS_RESOLVED);
  CHECK(poll(&wait, 1, 0) == 0);
  CHECK(app.by_handle(RNIC_CM_GET_EVENT, app.reply.channel).status == EAGAIN);
}

TEST_CASE("an id of which something was told a moment ago is not destroyed yet, if that is asked for",
          "[control][server_cm]") {
  Daemon daemon;
  CmApp app(daemon);
  const auto told = [&] {
    const auto id = app.id();
    rnic_cm_resolve_address resolve{};
    resolve.id = id;
    resolve.destination = at(1, 1);
    REQUIRE(app.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
    return id;
  };
  const auto destroy = [&](std::uint32_t id, std::uint32_t how) {
    return app.ask(RNIC_CM_DESTROY_ID, rnic_handle{id, how}).status;
  };
  CHECK(destroy(app.id(), RNIC_CM_UNLESS_JUST_TOLD) == 0);  // nothing was
  CHECK(destroy(told(), 0) == 0);
  std::uint32_t id = 0;
  int status = 0;
  for (int i = 0; i < 1000 && status == 0; ++i) status = destroy(id = told(), RNIC_CM_UNLESS_JUST_TOLD);
  REQUIRE(status == EAGAIN);  // where we were quick enough, once
  const auto other = app.id();
  CHECK(destroy(other, RNIC_CM_UNLESS_JUST_TOLD) == 0);  // it was not told of that one
  SECTION("until a moment has passed") {
    for (int i = 0; i < 1000 && status == EAGAIN; ++i) {
      usleep(1000);
      status = destroy(id, RNIC_CM_UNLESS_JUST_TOLD);
    }
    CHECK(status == 0);
  }
  SECTION("or it has been fetched") {
    while (app.event().id != id) {
    }
    CHECK(destroy(id, RNIC_CM_UNLESS_JUST_TOLD) == 0);
  }
}

TEST_CASE("a channel ends when its lifeline does, and so do its ids", "[control][server_cm]") {
  Daemon daemon;
  CmApp app(daemon);
  const auto id = app.id();
  REQUIRE(app.bind(id, at(1, 7000)).status == 0);
  app.lifeline.reset();
  daemon.settle();
  CHECK(daemon.server->connection_manager().channel_count() == 0);
  CHECK(daemon.server->connection_manager().id_count() == 0);
  CHECK(app.bind(id, at(1, 7000)).status == ENOENT);
  CHECK(app.by_handle(RNIC_CM_GET_EVENT, app.reply.channel).status == EINVAL);
}

TEST_CASE("a channel outlives the connection that made it as long as its lifeline is held", "[control][server_cm]") {
  Daemon daemon;
  control::Descriptor lifeline;
  {
    CmApp app(daemon);
    app.id();
    lifeline = std::move(app.lifeline);
  }
  daemon.settle();
  CHECK(daemon.server->session_count() == 0);
  CHECK(daemon.server->connection_manager().id_count() == 1);
  lifeline.reset();
  daemon.settle();
  CHECK(daemon.server->connection_manager().id_count() == 0);
}

TEST_CASE("a channel is usable on another connection of the same user by its token", "[control][server_cm]") {
  Daemon daemon;
  CmApp app(daemon);
  const auto id = app.id();
  rnic_cm_open attach{};
  std::memcpy(attach.token, app.reply.token, sizeof attach.token);

  CmApp child(daemon);
  CHECK(child.bind(id, at(1, 7000)).status == ENOENT);
  CHECK(child.ask(RNIC_CM_OPEN, attach).as<rnic_cm_open_reply>().channel == app.reply.channel);
  CHECK(child.bind(id, at(1, 7000)).status == 0);

  CmApp stranger(daemon, "", getuid() + 1);
  CHECK(stranger.ask(RNIC_CM_OPEN, attach).status == ENOENT);
  attach.token[3] ^= 1;
  CHECK(child.ask(RNIC_CM_OPEN, attach).status == ENOENT);
}

TEST_CASE("ids and channels of others cannot be named", "[control][server_cm]") {
  Daemon daemon;
  CmApp one(daemon), other(daemon);
  const auto id = one.id();
  CHECK(other.bind(id, at(1, 7000)).status == ENOENT);
  CHECK(other.by_handle(RNIC_CM_DESTROY_ID, id).status == ENOENT);
  CHECK(other.by_handle(RNIC_CM_GET_EVENT, one.reply.channel).status == EINVAL);
  CHECK(other.by_handle(RNIC_CM_CLOSE, one.reply.channel).status == EINVAL);
  rnic_cm_create_id create{};
  create.channel = one.reply.channel;
  create.port_space = 0x0106;
  CHECK(other.ask(RNIC_CM_CREATE_ID, create).status == EINVAL);
  CHECK(one.ask(RNIC_CM_MIGRATE_ID, rnic_cm_migrate_id{id, other.reply.channel}).status == EINVAL);
}

TEST_CASE("lengths inside a request that are longer than it are refused", "[control][server_cm]") {
  Daemon daemon;
  CmApp app(daemon);
  rnic_cm_reject reject{};
  reject.id = app.id();
  reject.private_data_length = RNIC_PRIVATE_DATA_MAX + 1;
  CHECK(app.ask(RNIC_CM_REJECT, reject).status == EINVAL);
  rnic_cm_set_option option{};
  option.id = reject.id;
  option.length = 65;
  CHECK(app.ask(RNIC_CM_SET_OPTION, option).status == EINVAL);
  Pair pair;
  auto connect = connect_request(pair.id, pair.client_qp);
  connect.parameters.private_data_length = 0xFFFF;
  CHECK(pair.client.ask(RNIC_CM_CONNECT, connect).status == EINVAL);
}

TEST_CASE("no descriptor stays when applications come and go", "[control][server_cm]") {
  Daemon daemon;
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 5; ++i) {
    CmApp app(daemon);
    app.bind(app.id(), at(1, 7000));
    Client(daemon, RNIC_CLIENT_CM, "").ask(RNIC_CREATE_CHANNEL);
  }
  daemon.settle();
  CHECK(open_descriptors() == before);
}

// ---- connections ------------------------------------------------------------------------------

TEST_CASE("V-CONN-02: two applications connect over a pair; both QPs are in RTS, and know their ends",
          "[control][server_cm][V-CONN-02]") {
  Pair pair;
  pair.connect();
  CHECK(pair.state(pair.server_app, pair.server_qp) == RNIC_QP_RTS);
  const auto q = pair.client_app.by_handle(RNIC_QUERY_QP, pair.client_qp).as<rnic_query_qp_reply>();
  CHECK(q.state == RNIC_QP_RTS);
  CHECK(control::port_of(q.remote) == 7000);
  CHECK(control::ip_of(q.local) == wire::IpAddress::v4(127, 0, 9, 1));
}

TEST_CASE("V-TDN-01: disconnect is told to both sides, once; the QPs end in Idle",
          "[control][server_cm][V-TDN-01][V-TDN-09]") {
  Pair pair;
  const auto child = pair.connect();
  REQUIRE(pair.client.by_handle(RNIC_CM_DISCONNECT, pair.id).status == 0);
  CHECK(pair.client.event().event == RNIC_CM_DISCONNECTED);
  CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
  CHECK(pair.server.by_handle(RNIC_CM_DISCONNECT, child).status == 0);
  CHECK(pair.client.by_handle(RNIC_CM_DESTROY_ID, pair.id).as<rnic_cm_destroy_id_reply>().purged == 0);
  CHECK(pair.server.by_handle(RNIC_CM_DESTROY_ID, child).as<rnic_cm_destroy_id_reply>().purged == 0);
  for (int i = 0; i < 500 && pair.state(pair.client_app, pair.client_qp) == RNIC_QP_CLOSING; ++i) usleep(1000);
  CHECK(pair.state(pair.client_app, pair.client_qp) == RNIC_QP_IDLE);
}

TEST_CASE("V-CONN-02: a QP that a close has brought back to Idle is RESET, and connects again without a Modify",
          "[control][server_cm][V-CONN-02][V-CLS-07]") {
  Pair pair;
  const auto named = [&] { return pair.client_app.by_handle(RNIC_QUERY_QP, pair.client_qp).as<rnic_query_qp_reply>(); };
  rnic_modify_qp init{};
  init.qp_number = pair.client_qp;
  init.mask = RNIC_MODIFY_STATE;
  init.idle_name = RNIC_IDLE_INIT;
  REQUIRE(pair.client_app.ask(RNIC_MODIFY_QP, init).status == 0);
  CHECK(named().idle_name == RNIC_IDLE_INIT);
  for (int round = 0; round < 2; ++round) {
    const auto child = pair.connect();
    CHECK(named().state == RNIC_QP_RTS);
    REQUIRE(pair.client.by_handle(RNIC_CM_DISCONNECT, pair.id).status == 0);
    CHECK(pair.client.event().event == RNIC_CM_DISCONNECTED);
    CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
    CHECK(pair.server.by_handle(RNIC_CM_DESTROY_ID, child).status == 0);
    for (const auto& [app, qp] : {std::pair{&pair.client_app, pair.client_qp}, {&pair.server_app, pair.server_qp}})
      for (int i = 0; i < 500 && pair.state(*app, qp) == RNIC_QP_CLOSING; ++i) usleep(1000);
    CHECK(named().state == RNIC_QP_IDLE);
    CHECK(named().idle_name == RNIC_IDLE_RESET);
    CHECK(pair.client.by_handle(RNIC_CM_DESTROY_ID, pair.id).status == 0);
    pair.route();
  }
}

TEST_CASE("a rejected request is REJECTED with the listener's private data", "[control][server_cm]") {
  Pair pair;
  const auto child = pair.request();
  rnic_cm_reject reject{};
  reject.id = child;
  reject.private_data_length = 2;
  std::memcpy(reject.private_data, "no", 2);
  REQUIRE(pair.server.ask(RNIC_CM_REJECT, reject).status == 0);
  const auto event = pair.client.event();
  CHECK(event.event == RNIC_CM_REJECTED);
  CHECK(event.status == -ECONNREFUSED);
  CHECK(event.parameters.private_data_length == 2);
  CHECK(pair.state(pair.client_app, pair.client_qp) == RNIC_QP_IDLE);
}

TEST_CASE("where nobody listens, connect is REJECTED with ECONNREFUSED", "[control][server_cm]") {
  Pair pair;
  REQUIRE(pair.server.by_handle(RNIC_CM_DESTROY_ID, pair.listener).status == 0);
  REQUIRE(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, pair.client_qp)).status == 0);
  const auto event = pair.client.event();
  CHECK(event.event == RNIC_CM_REJECTED);
  CHECK(event.status == -ECONNREFUSED);
}

TEST_CASE("a QP that does not exist, is another device's or another user's cannot be connected",
          "[control][server_cm]") {
  Pair pair;
  CHECK(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, 0xFFFFFF)).status == EINVAL);
  CHECK(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, pair.server_qp)).status == EINVAL);
  App stranger(pair.daemon, "rnic0", getuid() + 1);
  const auto theirs = stranger.qp(stranger.pd(), stranger.cq());
  CHECK(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, theirs)).status == EINVAL);
  CHECK(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, pair.client_qp)).status == 0);
}

TEST_CASE("V-QP-16: a QP can be destroyed while connected; the peer is told",
          "[control][server_cm][V-QP-16][V-QP-14]") {
  Pair pair;
  pair.connect();
  REQUIRE(pair.client_app.by_handle(RNIC_DESTROY_QP, pair.client_qp).status == 0);
  CHECK(pair.client.event().event == RNIC_CM_DISCONNECTED);
  CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
}

TEST_CASE("an application that dies connected is told to its peer, and leaves nothing behind",
          "[control][server_cm][V-SEC-25]") {
  Pair pair;
  pair.connect();
  pair.client_app.socket.reset();
  pair.client.socket.reset();
  pair.client.lifeline.reset();
  CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
  pair.daemon.settle();
  CHECK(pair.daemon.server->context_count() == 1);
  CHECK(pair.daemon.server->connection_manager().channel_count() == 1);
}

// ---- the log -----------------------------------------------------------------------------------

namespace {

// How many lines of a level hold all of these words.
std::size_t lines(const Daemon& daemon, control::LogLevel level, const std::vector<std::string>& words) {
  return static_cast<std::size_t>(std::count_if(daemon.log.begin(), daemon.log.end(), [&](const auto& line) {
    return line.first == level && std::all_of(words.begin(), words.end(), [&](const std::string& word) {
             return line.second.find(word) != std::string::npos;
           });
  }));
}

// Once the workers' news are in.
bool told(Daemon& daemon, control::LogLevel level, const std::vector<std::string>& words) {
  for (int i = 0; i < 2000 && lines(daemon, level, words) == 0; ++i) {
    daemon.settle();
    pollfd wait{daemon.machine.workers[0]->event_fd(), POLLIN, 0};
    poll(&wait, 1, 1);
  }
  if (lines(daemon, level, words) == 1) return true;
  for (const auto& [at, line] : daemon.log) UNSCOPED_INFO(line);
  return false;
}

// The words of a queue pair whose connection is known. Its client's port is chosen by chance.
std::string words_of(std::uint32_t qp) {
  return "queue pair " + std::to_string(qp) + " of process " + std::to_string(getpid()) + ", 127.0.9.";
}

}  // namespace

TEST_CASE("V-ERRST-07: a query of a QP says its connection and the Terminate that was sent or came",
          "[control][server_cm][V-ERRST-07][V-QQP-10][V-QQP-11][V-RTS-08]") {
  Pair pair;
  pair.connect();
  const auto query = [](App& app, std::uint32_t qp) {
    return app.by_handle(RNIC_QUERY_QP, qp).as<rnic_query_qp_reply>();
  };
  const auto same = [](const rnic_address& a, const rnic_address& b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  const auto before = query(pair.client_app, pair.client_qp);
  CHECK((before.terminate_length == 0 && before.terminate_origin == 0));
  CHECK(same(before.remote, at(2, 7000)));
  CHECK(same(before.local, at(1, be16toh(before.local.port))));
  const auto other = query(pair.server_app, pair.server_qp);
  CHECK((same(other.local, before.remote) && same(other.remote, before.local)));

  rnic_modify_qp body{};
  body.qp_number = pair.client_qp;
  body.mask = RNIC_MODIFY_STATE;
  body.state = RNIC_QP_TERMINATE;
  REQUIRE(pair.client_app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
  const std::uint8_t none[64] = {};  // layer, type and code 0x0000, and no header
  for (int i = 0; i < 2000 && query(pair.client_app, pair.client_qp).state != RNIC_QP_ERROR; ++i) pair.daemon.settle();
  const auto sent = query(pair.client_app, pair.client_qp);
  CHECK((sent.terminate_length == 4 && sent.terminate_origin == 1));
  CHECK(std::memcmp(sent.terminate, none, sizeof none) == 0);
  const auto came = query(pair.server_app, pair.server_qp);
  CHECK((came.terminate_length == 4 && came.terminate_origin == 2));
  CHECK(std::memcmp(came.terminate, none, sizeof none) == 0);
}

TEST_CASE("at debug the log tells of a connection's life: who began what, and why", "[control][server_cm][journal]") {
  using enum control::LogLevel;
  Pair pair;
  const auto child = pair.connect();
  const std::string client = words_of(pair.client_qp), server = words_of(pair.server_qp);
  const std::string process = "process " + std::to_string(getpid());
  CHECK(
      told(pair.daemon, debug, {client, " - 127.0.9.2:7000: " + process + " connects, id " + std::to_string(pair.id)}));
  CHECK(told(
      pair.daemon, debug,
      {"127.0.9.2:7000 - 127.0.9.1:", ": the peer asks to connect, for listener " + std::to_string(pair.listener)}));
  CHECK(told(pair.daemon, debug, {server, "2:7000 - 127.0.9.1:", process + " accepts, id " + std::to_string(child)}));
  CHECK(told(pair.daemon, debug, {"queue pair " + std::to_string(pair.client_qp) + ": established"}));
  CHECK(told(pair.daemon, debug, {client, "Idle to RTS: connected"}));
  CHECK(told(pair.daemon, debug, {server, "Idle to RTS: connected"}));
  SECTION("a close") {
    REQUIRE(pair.client.by_handle(RNIC_CM_DISCONNECT, pair.id).status == 0);
    CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
    CHECK(told(pair.daemon, debug, {" - 127.0.9.2:7000, id ", ": " + process + " disconnects"}));
    CHECK(told(pair.daemon, debug, {client, "RTS to Closing: its application's wish"}));
    CHECK(told(pair.daemon, debug, {server, "RTS to Closing: the peer's FIN"}));
    CHECK(told(pair.daemon, debug, {server, "Closing to Idle", "flushed: 0 of the send queue, 0 receives"}));
  }
  SECTION("an application that dies") {
    pair.client_app.socket.reset();
    CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
    CHECK(told(pair.daemon, debug, {client, "destroyed in RTS", process + " has let go of its context"}));
    CHECK(told(pair.daemon, debug, {server, "RTS to Terminate: the peer's Terminate 0/0/00"}));
    CHECK(told(pair.daemon, debug, {server, "Terminate to Error"}));
  }
  SECTION("an id that is given up") {
    REQUIRE(pair.client.by_handle(RNIC_CM_DESTROY_ID, pair.id).status == 0);
    CHECK(told(pair.daemon, debug, {", id ", process + " gives the id up without a disconnect"}));
    CHECK(told(pair.daemon, debug, {client, "RTS to Terminate: its application's wish: Terminate sent 0/0/00"}));
  }
  SECTION("a queue pair that is destroyed") {
    REQUIRE(pair.client_app.by_handle(RNIC_DESTROY_QP, pair.client_qp).status == 0);
    CHECK(told(pair.daemon, debug, {client, "destroyed in RTS, its application's wish"}));
  }
}

TEST_CASE("at debug the log tells of calls that fail: who said no", "[control][server_cm][journal]") {
  using enum control::LogLevel;
  Pair pair;
  SECTION("the other application") {
    const auto child = pair.request();
    rnic_cm_reject reject{};
    reject.id = child;
    reject.private_data_length = 2;
    REQUIRE(pair.server.ask(RNIC_CM_REJECT, reject).status == 0);
    CHECK(told(pair.daemon, debug,
               {"127.0.9.2:7000 - 127.0.9.1:", ", id " + std::to_string(child),
                std::to_string(getpid()) + " rejects, with 2 octets of private data"}));
    CHECK(told(pair.daemon, debug,
               {" - 127.0.9.2:7000, queue pair " + std::to_string(pair.client_qp),
                "the peer rejects id " + std::to_string(pair.id) + ", with 2 octets"}));
  }
  SECTION("nobody is there") {
    REQUIRE(pair.server.by_handle(RNIC_CM_DESTROY_ID, pair.listener).status == 0);
    REQUIRE(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, pair.client_qp)).status == 0);
    CHECK(pair.client.event().event == RNIC_CM_REJECTED);
    CHECK(told(pair.daemon, debug,
               {"queue pair " + std::to_string(pair.client_qp), "not connected", "nobody listens there"}));
  }
}

TEST_CASE("a call that finds its listener gone is rejected by rnicd, and the log blames no application",
          "[control][server_cm][journal]") {
  using enum control::LogLevel;
  Pair pair;
  core::Worker& worker = *pair.daemon.machine.workers[0];
  core::StreamEvent request{};
  request.kind = core::StreamEvent::Kind::connect_request;
  request.device = 1;
  request.cookie = pair.listener + 1000;
  worker.call([&](Instant) { worker.on_stream_event(request); });
  CHECK(told(pair.daemon, debug, {"rnicd rejects, as nobody listens any more"}));
  CHECK(lines(pair.daemon, debug, {"application that is gone"}) == 0);
}

TEST_CASE("V-QP-15: with a window bound neither queue pair nor region goes, and the log does not say that one went",
          "[control][server_cm][journal][V-QP-15][V-MW-14][V-PD-04]") {
  using enum control::LogLevel;
  Pair pair;
  pair.connect();
  std::uint64_t word = 0;
  const auto pd = pair.client_app.pd();
  const auto made = pair.client_app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_WINDOW_BIND)
                        .as<rnic_reg_mr_reply>();
  const Stag region{made.stag};
  const auto window =
      pair.client_app.ask(RNIC_ALLOC_MW, rnic_alloc_mw{pd, 0, RNIC_WINDOW_OF_QP, 0}).as<rnic_alloc_mw_reply>();
  tpt::Table& table = *pair.daemon.machine.devices[0]->table;
  REQUIRE(table.bind(Stag{window.stag}, 1, region, table.query(region)->pd, QpNumber{pair.client_qp},
                     tpt::Rights::remote_read, reinterpret_cast<std::uintptr_t>(&word), sizeof word));
  CHECK(pair.client_app.by_handle(RNIC_DESTROY_QP, pair.client_qp).status == EBUSY);
  CHECK(pair.client_app.by_handle(RNIC_DEREG_MR, made.mr).status == EBUSY);
  CHECK(pair.client_app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  CHECK(table.query(region)->valid);
  pair.daemon.settle();
  CHECK(lines(pair.daemon, debug, {"destroyed in"}) == 0);
  REQUIRE(pair.client_app.by_handle(RNIC_DEALLOC_MW, window.mw).status == 0);
  CHECK(pair.client_app.by_handle(RNIC_DEREG_MR, made.mr).status == 0);
  CHECK(pair.client_app.by_handle(RNIC_DEALLOC_PD, pd).status == 0);
  CHECK(pair.client_app.by_handle(RNIC_DESTROY_QP, pair.client_qp).status == 0);
  CHECK(told(pair.daemon, debug, {words_of(pair.client_qp), "destroyed in RTS, its application's wish"}));
}

TEST_CASE("V-AE-02: a peer that merely goes is a line of information, and no event of the device",
          "[control][server_cm][V-AE-02]") {
  using enum control::LogLevel;
  Pair pair;
  const control::Descriptor& async = pair.server_app.opened.fds.at(2);
  pair.connect();
  pair.client_app.socket.reset();
  CHECK(pair.server.event().event == RNIC_CM_DISCONNECTED);
  CHECK(told(pair.daemon, info, {words_of(pair.server_qp), "its peer is gone"}));
  for (int i = 0; i < 500 && pair.state(pair.server_app, pair.server_qp) != RNIC_QP_ERROR; ++i) usleep(1000);
  CHECK(pair.state(pair.server_app, pair.server_qp) == RNIC_QP_ERROR);
  CHECK(lines(pair.daemon, error, {}) == 0);
  char octet = 0;
  CHECK(recv(async.get(), &octet, 1, MSG_DONTWAIT) < 0);
}

TEST_CASE("a stranger's Terminates fill no log", "[control][server_cm][journal]") {
  using enum control::LogLevel;
  Pair pair;
  core::Worker& worker = *pair.daemon.machine.workers[0];
  const auto cookie = pair.daemon.machine.qps.at(pair.server_qp)->cookie;
  constexpr std::uint32_t kMany = 3 * control::LineLimit::kAtOnce;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    worker.call([&](Instant) { worker.on_qp_event(cookie, qp::Event::peer_gone); });
    pair.daemon.settle();
  }
  // Waits for all of them.
  for (int i = 0; i < 50; ++i) pair.daemon.settle();
  const std::size_t written = lines(pair.daemon, info, {"its peer is gone"});
  CHECK(written >= control::LineLimit::kAtOnce);
  CHECK(written < kMany);
}

TEST_CASE("a stranger's Terminates that are not logged cost the worker nothing", "[control][server_cm][journal]") {
  Pair pair;
  core::Worker& worker = *pair.daemon.machine.workers[0];
  const auto cookie = pair.daemon.machine.qps.at(pair.server_qp)->cookie;
  const auto served = [&] {
    std::uint64_t calls = 0;
    worker.call([&](Instant) { calls = worker.counters().calls; });
    return calls;
  };
  const std::uint64_t before = served();
  constexpr std::uint32_t kMany = 10 * control::LineLimit::kAtOnce;
  worker.call([&](Instant) {
    for (std::uint32_t i = 0; i < kMany; ++i) worker.on_qp_event(cookie, qp::Event::terminate_received);
  });
  for (int i = 0; i < 50; ++i) pair.daemon.settle();
  CHECK(served() - before <= control::LineLimit::kAtOnce + 10);
}

TEST_CASE("lines that strangers can cause: some at once, then one now and then, and how many were left out",
          "[control][journal]") {
  using control::LineLimit;
  LineLimit limit;
  Instant now{seconds(1000).ns};
  std::uint64_t left_out = 7;
  for (std::uint32_t i = 0; i < LineLimit::kAtOnce; ++i) {
    REQUIRE(limit.take(now, left_out));
    CHECK(left_out == 0);
  }
  CHECK_FALSE(limit.take(now, left_out));
  now = now + LineLimit::kPace - nanoseconds(1);
  CHECK_FALSE(limit.take(now, left_out));
  now = now + nanoseconds(1);
  REQUIRE(limit.take(now, left_out));
  CHECK(left_out == 2);
  CHECK_FALSE(limit.take(now, left_out));
  now = now + LineLimit::kPace * 2;
  REQUIRE(limit.take(now, left_out));
  CHECK(left_out == 1);
  REQUIRE(limit.take(now, left_out));
  CHECK(left_out == 0);
  CHECK_FALSE(limit.take(now, left_out));
  // However long it was quiet, no more than at first.
  now = now + LineLimit::kPace * 1'000'000;
  std::uint32_t written = 0;
  while (limit.take(now, left_out)) ++written;
  CHECK(written == LineLimit::kAtOnce);
}

TEST_CASE("a listener's application that dies leaves its port free, and refuses what waits", "[control][server_cm]") {
  Pair pair;
  REQUIRE(pair.client.ask(RNIC_CM_CONNECT, connect_request(pair.id, pair.client_qp)).status == 0);
  REQUIRE(pair.server.event().event == RNIC_CM_CONNECT_REQUEST);
  pair.server.socket.reset();
  pair.server.lifeline.reset();
  CHECK(pair.client.event().event == RNIC_CM_REJECTED);
  CmApp next(pair.daemon);
  const auto id = next.id();
  CHECK(next.bind(id, at(2, 7000)).status == 0);
  CHECK(next.ask(RNIC_CM_LISTEN, rnic_cm_listen{id, 1}).status == 0);
}

TEST_CASE("many listeners of an application that dies are ended in pieces, and not one by one",
          "[control][server_cm]") {
  Daemon daemon;
  const auto& counters = daemon.machine.workers[0]->counters();
  std::uint64_t before = 0;
  {
    CmApp server(daemon, "rnic1");
    for (std::uint16_t i = 0; i < 640; ++i) {
      const auto listener = server.id(i);
      REQUIRE(server.bind(listener, at(2, static_cast<std::uint16_t>(10'000 + i))).status == 0);
      REQUIRE(server.ask(RNIC_CM_LISTEN, rnic_cm_listen{listener, 4}).status == 0);
    }
    before = counters.calls;
  }
  daemon.settle();
  CHECK(daemon.server->connection_manager().id_count() == 0);
  CHECK(counters.calls - before >= 10);
  CHECK(counters.calls - before < 64);
  CmApp next(daemon, "rnic1");
  const auto listener = next.id(1);
  REQUIRE(next.bind(listener, at(2, 10'300)).status == 0);
  CHECK(next.ask(RNIC_CM_LISTEN, rnic_cm_listen{listener, 4}).status == 0);
}

TEST_CASE("an application that sees one device listens on that one alone", "[control][server_cm]") {
  Daemon daemon;
  CmApp one(daemon, "rnic0"), other(daemon, "rnic1");
  const rnic_address any = control::to_abi(wire::IpAddress::v4(0), 7000);
  const auto a = one.id(), b = other.id();
  REQUIRE(one.bind(a, any).status == 0);
  REQUIRE(other.bind(b, any).status == 0);
  CHECK(one.ask(RNIC_CM_LISTEN, rnic_cm_listen{a, 1}).status == 0);
  CHECK(other.ask(RNIC_CM_LISTEN, rnic_cm_listen{b, 1}).status == 0);
  CHECK(one.bind(one.id(), at(2, 1)).status == EADDRNOTAVAIL);
}

TEST_CASE("two processes meet at ::1 or 127.0.0.1 of the first device that both see, and are told these addresses",
          "[control][server_cm]") {
  for (const char* text : {"::1", "127.0.0.1"}) {
    for (const std::string device : {"", "rnic1"}) {
      INFO(text << " seen: " << device);
      Daemon daemon;  // which has no address of IPv6
      const std::string meant = device.empty() ? "rnic0" : device;
      App server_app(daemon, meant), client_app(daemon, meant);
      CmApp server(daemon, device), client(daemon, device);
      const auto server_qp = server_app.qp(server_app.pd(), server_app.cq());
      const auto client_qp = client_app.qp(client_app.pd(), client_app.cq());
      const wire::IpAddress loop = *wire::parse_ip(text);
      const auto said = [&](CmApp& app, std::uint32_t id) {
        return app.by_handle(RNIC_CM_QUERY, id).as<rnic_cm_query_reply>();
      };
      const auto listener = server.id(0x11);
      REQUIRE(server.bind(listener, control::to_abi(loop, 7000)).status == 0);
      REQUIRE(server.ask(RNIC_CM_LISTEN, rnic_cm_listen{listener, 4}).status == 0);
      const auto id = client.id(0x22);
      rnic_cm_resolve_address resolve{};
      resolve.id = id;
      resolve.destination = control::to_abi(loop, 7000);
      REQUIRE(client.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
      REQUIRE(client.event().event == RNIC_CM_ADDRESS_RESOLVED);
      REQUIRE(client.ask(RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{id, 1000}).status == 0);
      REQUIRE(client.event().event == RNIC_CM_ROUTE_RESOLVED);
      REQUIRE(client.ask(RNIC_CM_CONNECT, connect_request(id, client_qp)).status == 0);
      const auto request = server.event();
      REQUIRE(request.event == RNIC_CM_CONNECT_REQUEST);
      REQUIRE(server.ask(RNIC_CM_ACCEPT, connect_request(request.id, server_qp)).status == 0);
      REQUIRE(server.event().event == RNIC_CM_ESTABLISHED);
      REQUIRE(client.event().event == RNIC_CM_ESTABLISHED);
      const auto mine = said(client, id), theirs = said(server, request.id);
      const auto guid = daemon.machine.devices[meant == "rnic0" ? 0 : 1]->node_guid;
      CHECK(mine.node_guid == guid);
      CHECK(theirs.node_guid == guid);
      for (const rnic_address& address : {mine.source, mine.destination, theirs.source, theirs.destination})
        CHECK(control::ip_of(address) == loop);
      CHECK(mine.source.port == theirs.destination.port);
      CHECK(control::port_of(theirs.source) == 7000);
    }
  }
}
