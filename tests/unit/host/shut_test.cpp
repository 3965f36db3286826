// Time passes while one direction's window is shut and the other is busy, in each state that a connection can be in;
// and the buffers of it all come back.
#include "kit/catch.hpp"
#include "kit/octet_streams.hpp"
#include "sim/plain_world.hpp"

namespace rnic {
namespace {

using Close = test::Plan::Close;

constexpr std::uint16_t kPort = 7;
constexpr std::uint64_t kInto = 4'000'000;  // towards the side that does not read
constexpr std::uint64_t kBusy = 6'000'000;  // the other way

// A calls B. A does not read, so that its window shuts; what it sends goes on.
struct Shut {
  explicit Shut(Close of_a = Close::never, Close of_b = Close::never, std::size_t streams = 1) {
    sim::PlainOptions options;
    options.link.per_octet = nanoseconds(1);
    world.emplace(options, a, b);
    a.use(world->a.host);
    b.use(world->b.host);
    free_a = world->a.port.pool().available();
    free_b = world->b.port.pool().available();
    b.plan(kPort, {.send_bytes = kInto, .close = of_b});
    REQUIRE(world->b.host.listen(kPort, 128));
    for (std::size_t i = 0; i < streams; ++i) {
      host::Call wishes;
      wishes.remote = world->b.address;
      wishes.remote_port = kPort;
      const auto stream = world->a.host.call(wishes, world->clock.now);
      REQUIRE(stream);
      called.push_back(*stream);
      a.plan(*stream, {.send_bytes = streams == 1 ? kBusy : kBusy / streams, .read = false, .close = of_a});
    }
  }
  test::Record& at_a() { return *a.find(called[0]); }
  test::Record& at_b() { return *b.find(b.records().begin()->first); }
  void wake() {
    world->a.host.wake(at_a().stream);
    world->b.host.wake(at_b().stream);
  }
  // The window is shut, a probe of it is out, and all of the other direction has come.
  void stand_still(Duration time) {
    REQUIRE(world->run_until([&] { return !b.records().empty() && at_b().counters.window_probes > 0; }, seconds(20)));
    world->run_for(time);
    REQUIRE(at_a().received_bytes == 0);
    REQUIRE(at_b().received_bytes == kBusy);
    CHECK(at_b().wrong_bytes == 0);
    CHECK_FALSE(at_a().ended);
    CHECK_FALSE(at_b().ended);
  }
  void resume() {
    at_a().plan.read = true;
    wake();
    REQUIRE(world->run_until([&] { return at_a().received_bytes == kInto; }, seconds(200)));
    CHECK(at_a().wrong_bytes == 0);
  }
  bool all_back() {
    // What is cached for control segments stays.
    return world->a.host.stream_count() == 0 && world->b.host.stream_count() == 0 &&
           world->a.port.pool().available() + 64 >= free_a && world->b.port.pool().available() + 64 >= free_b;
  }

  test::OctetStreams a, b;
  std::optional<sim::PlainWorld> world;
  std::vector<host::StreamId> called;
  std::uint32_t free_a = 0, free_b = 0;
};

}  // namespace

TEST_CASE("W-TCP-01: one direction is shut for long, and the other arrives: ESTABLISHED", "[host][shut][W-TCP-01]") {
  Shut run;
  run.stand_still(seconds(100));
  CHECK(run.at_a().state == tcp::State::established);
  run.resume();
  run.at_a().close_now = run.at_b().close_now = true;
  run.wake();
  CHECK(run.world->run_until([&] { return run.all_back(); }, seconds(100)));
}

TEST_CASE("W-TCP-01: one direction is shut for long, and the other arrives and ends: FIN-WAIT, CLOSE-WAIT",
          "[host][shut][W-TCP-01]") {
  Shut run(Close::sent, Close::sent);
  run.stand_still(seconds(100));
  CHECK(run.at_a().state == tcp::State::fin_wait_2);
  CHECK(run.at_b().state == tcp::State::close_wait);
  CHECK(run.at_b().peer_closed);
  run.resume();
  CHECK(run.world->run_until([&] { return run.all_back(); }, seconds(100)));
  CHECK(run.at_a().how == tcp::Ended::gracefully);
  CHECK(run.at_b().how == tcp::Ended::gracefully);
}

TEST_CASE("MUST-66: behind a window that is shut for long a reset is heard", "[host][shut][W-TCP-01]") {
  Shut run;
  run.stand_still(seconds(30));
  const bool by_reader = GENERATE(true, false);
  (by_reader ? run.at_a() : run.at_b()).abort_now = true;
  run.wake();
  CHECK(run.world->run_until([&] { return run.at_a().ended && run.at_b().ended; }, seconds(1)));
  CHECK((by_reader ? run.at_b() : run.at_a()).how == tcp::Ended::reset);
  CHECK(run.world->run_until([&] { return run.all_back(); }, seconds(100)));
}

TEST_CASE("peers that vanish by the dozen, in whatever state, are given up, and their buffers come back",
          "[host][shut][W-TCP-01]") {
  constexpr std::size_t kDozens = 36;
  const auto of_a = GENERATE(Close::never, Close::sent);
  Shut run(of_a, Close::peer, kDozens);
  const auto after = GENERATE(milliseconds(0), milliseconds(3), milliseconds(500), seconds(20));
  run.world->run_for(after);
  sim::LinkOptions dead = run.world->a_to_b.options();
  dead.loss_per_1000 = 1000;
  run.world->a_to_b.set_options(dead);
  run.world->b_to_a.set_options(dead);
  run.world->run_for(seconds(30));
  // Who has nothing to send would never know: that is what keepalive is for.
  for (const host::StreamId stream : run.called)
    if (test::Record* record = run.a.find(stream)) record->abort_now = true, run.world->a.host.wake(stream);
  for (const auto& [stream, record] : run.b.records())
    if (record.received_bytes == kBusy / kDozens && record.sent_bytes == kInto)
      run.b.find(stream)->abort_now = true, run.world->b.host.wake(stream);
  CHECK(run.world->run_until([&] { return run.all_back(); }, seconds(2000)));
}

}  // namespace rnic
