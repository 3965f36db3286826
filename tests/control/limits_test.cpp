// What there is only so much of: numbers, watches, descriptors, places; and who gets what is left.
#include "control/limits.hpp"

#include <set>

#include "control/server_world.hpp"
#include "support/watches.hpp"

using namespace rnic;
using namespace rnic::test;

// ---- watches ----------------------------------------------------------------------------------

TEST_CASE("V-SEC-11: whatever is refused for want of watches, the daemon goes on", "[control][limits][V-SEC-11]") {
  Daemon daemon;
  App before(daemon);
  const std::size_t descriptors = open_descriptors();
  rnic_open_context body{};
  std::memcpy(body.device, "rnic0", 5);
  // One after the other of those that opening a context takes.
  int opened_with = -1;
  for (int watches = 0; watches < 8 && opened_with < 0; ++watches) {
    Client client(daemon, RNIC_CLIENT_VERBS, "");
    const control::Descriptor memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    const WatchesLeft limit(watches);
    const int status = client.ask(RNIC_OPEN_CONTEXT, body, {memory.get()}).status;
    if (status == 0)
      opened_with = watches;
    else
      CHECK(status == ENOSPC);
  }
  CHECK(opened_with == 2);
  daemon.settle();
  CHECK(open_descriptors() == descriptors);
  CHECK(daemon.machine.devices[0]->counts.contexts == 1);

  Client manager(daemon, RNIC_CLIENT_CM, "");
  {
    const WatchesLeft limit(0);
    CHECK(before.ask(RNIC_CREATE_CHANNEL).status == ENOSPC);
    CHECK(manager.ask(RNIC_CM_OPEN).status == ENOSPC);
  }
  CHECK(daemon.server->connection_manager().channel_count() == 0);
  CHECK(before.try_cq(16).status == 0);
  CHECK(manager.ask(RNIC_CM_OPEN).status == 0);
  CHECK(App(daemon).try_cq(16).status == 0);
}

TEST_CASE("An event that waits for its reader needs no watch that may not be there any more", "[control][limits]") {
  control::Loop loop;
  const auto socket = control::EventSocket::create(loop);
  REQUIRE(socket != nullptr);
  const control::Descriptor reader = socket->take_reader();
  const WatchesLeft limit(0);
  CHECK(control::EventSocket::create(loop) == nullptr);
  CHECK(errno == ENOSPC);
  control::EventSocket::Subject subject;
  constexpr std::uint32_t kEvents = 2000;  // more than a socket holds
  for (std::uint32_t i = 0; i < kEvents; ++i) socket->send_async(subject, i, 0);
  CHECK(subject.waiting > 0);
  std::uint32_t read_so_far = 0;
  std::uint64_t event[2];
  for (bool some = true; some;) {
    some = false;
    while (recv(reader.get(), event, sizeof event, MSG_DONTWAIT) > 0) {
      CHECK(event[0] == read_so_far);
      ++read_so_far;
      some = true;
    }
    while (loop.turn(0)) some = true;
  }
  CHECK(read_so_far == kEvents);
}

TEST_CASE("A reader that hangs up is heard of once", "[control][limits]") {
  control::Loop loop;
  const auto socket = control::EventSocket::create(loop);
  REQUIRE(socket != nullptr);
  control::EventSocket::Subject subject;
  for (int i = 0; i < 2000; ++i) socket->send_async(subject, 1, 0);
  socket->take_reader();
  int turns = 0;
  while (turns < 10 && loop.turn(0)) ++turns;
  CHECK(turns < 10);
  socket->send_async(subject, 1, 0);
  CHECK(socket->waiting() == 0);
  turns = 0;
  while (turns < 10 && loop.turn(0)) ++turns;
  CHECK(turns < 10);
}

// ---- numbers ----------------------------------------------------------------------------------

TEST_CASE("V-SEC-11: when all numbers have been given, those that are in use are left out",
          "[control][limits][V-SEC-11][V-PD-03]") {
  Daemon daemon;
  auto& table = *daemon.machine.devices[0]->table;
  std::uint64_t word = 0;
  const auto stag_of = [&](App& app, std::uint32_t pd) {
    return Stag{app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().stag};
  };

  SECTION("of protection domains, of whatever application") {
    App victim(daemon), other(daemon);
    const auto taken = table.query(stag_of(victim, victim.pd()))->pd;
    daemon.machine.pds.continue_at(~0u);
    for (int i = 0; i < 5; ++i) {
      const auto pd = other.pd();
      const auto id = table.query(stag_of(other, pd))->pd;
      CHECK(id != taken);
      CHECK(id.value != 0);
    }
    CHECK(daemon.machine.pds.used() == 6);
  }
  SECTION("of an application's own objects") {
    daemon.machine.first_handles = control::Numbers(2, 7);
    App app(daemon);
    const auto pd = app.pd();
    const auto region = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>();
    const auto cq = app.cq();
    const auto srq = app.try_srq(pd, 4).as<rnic_create_srq_reply>().srq;
    rnic_alloc_mw window{};
    window.pd = pd;
    const auto mw = app.ask(RNIC_ALLOC_MW, window).as<rnic_alloc_mw_reply>().mw;
    CHECK(std::set<std::uint32_t>{pd, region.mr, cq, srq, mw, 0}.size() == 6);
    for (int i = 0; i < 3; ++i) {  // the same over and over: the others are in use
      const auto again = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
      CHECK(std::set<std::uint32_t>{pd, region.mr, cq, srq, mw}.count(again) == 0);
      CHECK(app.by_handle(RNIC_DEREG_MR, again).status == 0);
    }
    CHECK(table.used() == 2);
    CHECK(app.by_handle(RNIC_DEREG_MR, region.mr).status == 0);
    CHECK(app.by_handle(RNIC_DEALLOC_MW, mw).status == 0);
    CHECK(table.used() == 0);
  }
  SECTION("whoever goes gives its numbers back") {
    {
      App gone(daemon), other(daemon);
      gone.pd();
      other.by_handle(RNIC_DEALLOC_PD, other.pd());
    }
    daemon.settle();
    CHECK(daemon.machine.pds.used() == 0);
  }
}

TEST_CASE("Numbers go round, and leave out what is in use", "[control][limits]") {
  control::Numbers numbers(~0u - 1);
  const std::set<std::uint32_t> used{~0u, 1, 2};
  const auto next = [&] { return numbers.next([&](std::uint32_t n) { return used.contains(n); }); };
  CHECK(next() == ~0u - 1);
  CHECK(next() == 3);
  CHECK(next() == 4);
}
