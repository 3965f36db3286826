// What a process made is its own: sessions are of one process by what they know, not by a number.
#include "unit/control/cm_app.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint8_t kOurs = 1, kOther = 2, kUntold = 0;

std::uint64_t cookie_of_channel(Client& client) {
  return client.ask(RNIC_CREATE_CHANNEL).as<rnic_create_channel_reply>().cookie;
}

// An id that may connect to the other device.
std::uint32_t routed(CmApp& app) {
  const auto id = app.id();
  rnic_cm_resolve_address resolve{};
  resolve.id = id;
  resolve.destination = control::to_abi(wire::IpAddress::v4(127, 0, 9, 2), 7000);
  REQUIRE(app.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
  REQUIRE(app.event().event == RNIC_CM_ADDRESS_RESOLVED);
  REQUIRE(app.ask(RNIC_CM_RESOLVE_ROUTE, rnic_cm_resolve_route{id, 1000}).status == 0);
  REQUIRE(app.event().event == RNIC_CM_ROUTE_RESOLVED);
  return id;
}

rnic_cm_connect connect_by(std::uint32_t id, std::uint32_t qp) {
  rnic_cm_connect body{};
  body.id = id;
  body.parameters.qp_number = qp;
  body.parameters.valid = 1;
  return body;
}

}  // namespace

TEST_CASE("V-SEC-10: a completion channel is found within its process only", "[control][process][V-SEC-10]") {
  Daemon daemon;
  Client ours(daemon, RNIC_CLIENT_CM, "");
  const auto cookie = cookie_of_channel(ours);
  App other(daemon, "rnic0", getuid(), kOther), untold(daemon, "rnic0", getuid(), kUntold);
  for (App* stranger : {&other, &untold}) {
    CHECK(stranger->try_cq(16, cookie).status == EINVAL);
    CHECK(stranger->ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie}).status == EINVAL);
  }
  App own(daemon);
  CHECK(own.try_cq(16, cookie).status == 0);
  CHECK(own.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie}).status == 0);
}

TEST_CASE("connections that do not say of which process they are share nothing", "[control][process][V-SEC-10]") {
  Daemon daemon;
  Client one(daemon, RNIC_CLIENT_CM, "", getuid(), kUntold);
  App two(daemon, "rnic0", getuid(), kUntold);
  CHECK(two.try_cq(16, cookie_of_channel(one)).status == EINVAL);
}

TEST_CASE("V-SEC-11: another process's queue pair is neither connected nor accepted with",
          "[control][process][V-SEC-11][V-RNIC-01]") {
  Daemon daemon;
  App victim(daemon, "rnic0", getuid(), kOther);
  const auto theirs = victim.qp(victim.pd(), victim.cq());
  CmApp cm(daemon);
  const auto id = routed(cm);
  CHECK(cm.ask(RNIC_CM_CONNECT, connect_by(id, theirs)).status == EINVAL);
  App own(daemon);
  CHECK(cm.ask(RNIC_CM_CONNECT, connect_by(id, own.qp(own.pd(), own.cq()))).status == 0);

  App far(daemon, "rnic1", getuid(), kOther), near(daemon, "rnic1");
  const auto not_ours = far.qp(far.pd(), far.cq());
  const auto ours = near.qp(near.pd(), near.cq());
  CmApp server(daemon), client(daemon);
  const auto listener = server.id();
  REQUIRE(server.bind(listener, control::to_abi(wire::IpAddress::v4(127, 0, 9, 2), 7000)).status == 0);
  REQUIRE(server.ask(RNIC_CM_LISTEN, rnic_cm_listen{listener, 4}).status == 0);
  const auto again = routed(client);
  REQUIRE(client.ask(RNIC_CM_CONNECT, connect_by(again, own.qp(own.pd(), own.cq()))).status == 0);
  const auto child = server.event().id;
  CHECK(server.ask(RNIC_CM_ACCEPT, connect_by(child, not_ours)).status == EINVAL);
  CHECK(server.ask(RNIC_CM_ACCEPT, connect_by(child, ours)).status == 0);
}

TEST_CASE("a child of fork connects its own queue pair on its parent's event channel, and not its parent's",
          "[control][process]") {
  Daemon daemon;
  CmApp parent(daemon);
  App parents(daemon);
  const auto id = routed(parent);

  // What the child's stand-in does: a connection and a context of its own, and the channel by its token.
  Client child(daemon, RNIC_CLIENT_CM, "", getuid(), kOther);
  App context(daemon, "rnic0", getuid(), kOther);
  rnic_cm_open attach{};
  std::memcpy(attach.token, parent.reply.token, sizeof attach.token);
  REQUIRE(child.ask(RNIC_CM_OPEN, attach).status == 0);
  CHECK(child.ask(RNIC_CM_CONNECT, connect_by(id, parents.qp(parents.pd(), parents.cq()))).status == EINVAL);
  CHECK(child.ask(RNIC_CM_CONNECT, connect_by(id, context.qp(context.pd(), context.cq()))).status == 0);
}

TEST_CASE("V-SEC-11: an event channel is had by its whole token, and by its user", "[control][process][V-SEC-11]") {
  Daemon daemon;
  CmApp owner(daemon);
  rnic_cm_open attach{};
  std::memcpy(attach.token, owner.reply.token, sizeof attach.token);
  Client other(daemon, RNIC_CLIENT_CM, "", getuid(), kOther);
  for (std::size_t i = 0; i < sizeof attach.token; ++i) {
    rnic_cm_open guess = attach;
    guess.token[i] ^= 1;
    CHECK(other.ask(RNIC_CM_OPEN, guess).status == ENOENT);
  }
  Client stranger(daemon, RNIC_CLIENT_CM, "", getuid() + 1, kOther);
  CHECK(stranger.ask(RNIC_CM_OPEN, attach).status == ENOENT);
  CHECK(other.ask(RNIC_CM_OPEN, attach).status == 0);
}

TEST_CASE("V-SEC-11: what is shown of a region does not tell its key", "[control][process][V-SEC-11]") {
  Daemon daemon;
  App owner(daemon, "rnic0", getuid(), kOther);
  std::vector<std::byte> memory(4096);
  rnic_reg_mr body{};
  body.pd = owner.pd();
  body.access = RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_REMOTE_READ;
  body.start = body.iova = reinterpret_cast<std::uintptr_t>(memory.data());
  body.length = memory.size();
  body.key = 0x5A;
  const auto stag = owner.ask(RNIC_REG_MR, body).as<rnic_reg_mr_reply>().stag;
  Client anybody(daemon, RNIC_CLIENT_ADMIN, "");
  const Answer answer = anybody.ask(RNIC_SHOW, rnic_show{"mr"});
  std::string text(answer.as<rnic_handle_reply>().handle, '\0');
  REQUIRE(pread(answer.fds.at(0).get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  char whole[16], index[16];
  std::snprintf(whole, sizeof whole, "%x", stag);
  std::snprintf(index, sizeof index, "%x", stag >> 8);
  CHECK(text.find(std::string("0x") + whole) == std::string::npos);
  CHECK(text.find(std::string("0x") + index + "\"") != std::string::npos);
}
