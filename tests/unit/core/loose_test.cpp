// Queue pairs without a stream whose doorbells ring: in Error what is posted late is flushed, and whoever
// does that with thousands of them takes no more of a turn than another.
#include "kit/catch.hpp"
#include "sim/world.hpp"

using namespace rnic;

namespace {

qp::Config plain() {
  qp::Config config;
  config.send_depth = 4;
  return config;
}

struct Loose {
  sim::World world{sim::WorldOptions{}};
  std::vector<sim::Endpoint*> all;

  explicit Loose(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(&world.a.make_qp(plain()));
      REQUIRE(all.back()->qp->modify_state(qp::State::error, world.clock.now));
    }
  }
  std::size_t flushed() const {
    std::size_t count = 0;
    for (const sim::Endpoint* each : all) count += each->host.completions.size();
    return count;
  }
};

}  // namespace

TEST_CASE("V-ERRST-06: what is posted late to many queue pairs in Error is flushed, so many in a turn",
          "[core][V-ERRST-06]") {
  constexpr std::size_t kCount = 1000;
  Loose loose(kCount);
  for (sim::Endpoint* each : loose.all) loose.world.a.post_receive(*each, {});
  std::size_t before = 0;
  unsigned turns = 0;
  for (; loose.flushed() < kCount && turns < 1000; ++turns) {
    loose.world.a.turn();
    const std::size_t now = loose.flushed();
    REQUIRE(now > before);
    CHECK(now - before <= 64);
    before = now;
  }
  CHECK(loose.flushed() == kCount);
  while (loose.world.a.turn()) {
  }
  CHECK(loose.world.a.device.idle());
}

TEST_CASE("One that is rung all the time leaves turns to the others", "[core]") {
  Loose loose(200);
  loose.world.a.post_receive(*loose.all.back(), {});
  for (int turn = 0; turn < 10 && loose.all.back()->host.completions.empty(); ++turn) {
    for (std::size_t i = 0; i + 1 < loose.all.size(); ++i) loose.world.a.post_receive(*loose.all[i], {});
    loose.world.a.turn();
  }
  CHECK(loose.all.back()->host.completions.size() == 1);
}

TEST_CASE("A flood of late receives is flushed in pieces", "[core][V-ERRST-06]") {
  Loose loose(1);
  constexpr std::size_t kCount = 10'000;
  for (std::size_t i = 0; i < kCount; ++i) loose.world.a.post_receive(*loose.all[0], {});
  std::size_t before = 0;
  for (int turn = 0; turn < 1000 && loose.flushed() < kCount; ++turn) {
    loose.world.a.turn();
    CHECK(loose.flushed() - before <= 256);
    before = loose.flushed();
  }
  CHECK(loose.flushed() == kCount);
}

TEST_CASE("A queue pair that is destroyed while its doorbell waits is gone from the line", "[core]") {
  Loose loose(100);
  for (sim::Endpoint* each : loose.all) loose.world.a.post_receive(*each, {});
  loose.world.a.turn();
  for (sim::Endpoint* each : loose.all) loose.world.a.destroy_qp(*each);
  while (loose.world.a.turn()) {
  }
  CHECK(loose.world.a.device.idle());
}
