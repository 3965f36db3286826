// Many queue pairs whose peers have no receive (W-ACK-08): each asks for the peer's life, and all of them share a wire.
#include <algorithm>
#include <vector>

#include "kit/catch.hpp"
#include "sim/world.hpp"

using namespace rnic;
using sim::World;

namespace {

constexpr std::uint16_t kPairs = 300;

qp::Config patient() {
  qp::Config config;
  config.face = Face::roce;
  config.patience = {.timeout = 14, .retry_count = 7, .rnr_retry = 7, .min_rnr_timer = 12};  // 0.54 s
  return config;
}

std::vector<sim::Connected> all_waiting(World& world) {
  std::vector<sim::Connected> pairs;
  for (std::uint16_t i = 0; i < kPairs; ++i) {
    pairs.push_back(sim::connect(world, patient(), patient(), static_cast<std::uint16_t>(7471 + i)));
    REQUIRE(pairs.back().established);
  }
  qp::WorkRequest send;
  send.opcode = qp::Opcode::send;
  send.signaled = true;
  for (const sim::Connected& pair : pairs) world.a.post_send(*pair.a, send);
  world.run_for(seconds(1));
  return pairs;
}

std::size_t failed(const std::vector<sim::Connected>& pairs) {
  return static_cast<std::size_t>(std::count_if(pairs.begin(), pairs.end(), [](const sim::Connected& pair) {
    const auto sends = pair.a->host.of_sends();
    return sends.size() == 1 && sends.front().status == qp::Status::retry_exceeded;
  }));
}

}  // namespace

TEST_CASE("W-ACK-08: hundreds whose peers have no receive ask once in their time, and none is given up",
          "[core][acknowledged][W-ACK-08]") {
  sim::WorldOptions options;
  options.a.streams_max = options.b.streams_max = 2 * kPairs;
  World world(options);
  const auto pairs = all_waiting(world);
  const auto asked = world.a_to_b.frames(), answered = world.b_to_a.frames();
  world.run_for(seconds(20));
  CHECK(failed(pairs) == 0);
  // 20 s have 37 times 0.54 s.
  CHECK(world.a_to_b.frames() - asked > kPairs * 30);
  CHECK(world.a_to_b.frames() - asked < kPairs * 45);
  CHECK(world.b_to_a.frames() - answered > kPairs * 30);
  CHECK(world.b_to_a.frames() - answered < kPairs * 45);
  SECTION("and goes on where there is one") {
    for (const sim::Connected& pair : pairs) world.b.post_receive(*pair.b, {});
    world.run_for(seconds(1));
    for (const sim::Connected& pair : pairs) {
      REQUIRE(pair.a->host.of_sends().size() == 1);
      REQUIRE(pair.a->host.of_sends().front().status == qp::Status::success);
    }
  }
  SECTION("but where nobody is there all are, together") {
    world.b.port.set_link_up(false);
    world.run_for(milliseconds(400));
    CHECK(failed(pairs) == 0);
    world.run_for(milliseconds(1000));
    CHECK(failed(pairs) == kPairs);
  }
}
