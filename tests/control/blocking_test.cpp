// Nothing that an application does to what it shares with the control thread makes that wait.
#include <csignal>

#include "control/cm_app.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

rnic_address first_device(std::uint16_t port) { return control::to_abi(wire::IpAddress::v4(127, 0, 9, 1), port); }

// One event in the channel.
void cause_event(CmApp& app) {
  rnic_cm_resolve_address resolve{};
  resolve.id = app.id();
  resolve.destination = first_device(1);
  REQUIRE(app.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
}

}  // namespace

TEST_CASE("an application that fills its channel's descriptor does not make the control thread wait",
          "[control][blocking]") {
  signal(SIGPIPE, SIG_IGN);
  Daemon daemon;
  CmApp app(daemon);
  fcntl(app.events.get(), F_SETFL, O_NONBLOCK);
  const std::uint64_t most = ~std::uint64_t{1};
  while (write(app.events.get(), &most, sizeof most) == sizeof most) {
  }
  fcntl(app.events.get(), F_SETFL, 0);
  cause_event(app);
  CHECK(app.by_handle(RNIC_CM_GET_EVENT, app.reply.channel).status == 0);
}

TEST_CASE("events of a channel that nobody reads wait, and each is counted once", "[control][blocking]") {
  Daemon daemon;
  auto count = control::EventCount::create(daemon.loop);
  REQUIRE(count != nullptr);
  const control::Descriptor reader = count->take_reader();
  constexpr std::uint32_t kEvents = 100'000;
  for (std::uint32_t i = 0; i < kEvents; ++i) count->add(1);
  const std::uint32_t to_read = count->withdraw(kEvents - 10);
  CHECK(to_read < kEvents - 10);
  std::uint32_t seen = 0;
  char octets[64];
  ssize_t got;
  while (daemon.settle(), (got = recv(reader.get(), octets, sizeof octets, MSG_DONTWAIT)) > 0)
    seen += static_cast<std::uint32_t>(got);
  CHECK(seen == to_read + 10);
}

TEST_CASE("an application cannot leave anything in the control thread's end of what it was given",
          "[control][blocking]") {
  Daemon daemon;
  CmApp app(daemon);
  App verbs(daemon);
  Answer channel = app.ask(RNIC_CREATE_CHANNEL);
  const int async = verbs.opened.fds.at(2).get();
  for (const int fd : {app.events.get(), app.lifeline.get(), channel.fds.at(0).get(), async})
    CHECK((send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 && errno == EPIPE));
}
