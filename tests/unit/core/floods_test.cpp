// What floods of SYNs and scans of ports take: nothing, and who means it gets through.
#include "kit/allocations.hpp"
#include "unit/core/segments.hpp"

using namespace rnic;
using namespace rnic::test::segments;

TEST_CASE("W-TCP-01: 100,000 SYNs take no memory and no buffers, and who means it gets through", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  const std::uint32_t buffers = world.b.port.pool().available();
  Flood flood;
  flood.send(stranger, 2'000);  // ARP entries and the like
  world.run_for(milliseconds(10));
  std::uint64_t allocated = 0;
  for (int i = 0; i < 490; ++i) {
    flood.send(stranger, 200);
    world.clock.now = world.clock.now + microseconds(100);
    const std::uint64_t before = test::allocations();
    world.b.device.receive(world.clock.now);
    allocated += test::allocations() - before;
    world.run_for(microseconds(100));
    stranger.heard.clear();
  }
  CHECK(flood.next == 100'000);
  CHECK(allocated == 0);
  CHECK(world.b.device.stream_count() == 0);
  CHECK(world.b.device.half_open_count() == 64);  // a quarter of the 256 streams of a simulated device
  CHECK(world.b.device.counters().cookies_sent > 10'000);
  SECTION("through a cookie, in the middle of it") {
    CHECK(connects(world));
    CHECK(world.b.device.counters().cookies_good == 1);
  }
  SECTION("as ever, when it is over") {
    world.run_for(seconds(64));
    CHECK(world.b.device.half_open_count() == 0);
    CHECK(connects(world));
    CHECK(world.b.device.counters().cookies_good == 0);
  }
  world.run_for(seconds(1));
  CHECK(world.b.port.pool().available() + 32 >= buffers);  // 32: the device's own stock for control
}

TEST_CASE("W-TCP-12: under a flood scale and SACK are kept in timestamps, or not agreed on", "[core][W-TCP-12]") {
  WorldOptions options;
  options.a.device.tcp.timestamps = options.b.device.tcp.timestamps = true;
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  Flood{}.send(stranger, 64);
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 64);
  stranger.heard.clear();
  SECTION("without") {
    stranger.says(syn(100));
    CHECK_FALSE(stranger.heard.at(0).header.window_scale);
    CHECK_FALSE(stranger.heard[0].header.sack_permitted);
    CHECK_FALSE(stranger.heard[0].header.timestamps);
    CHECK(stranger.heard[0].header.mss == 1460);
  }
  SECTION("with") {
    auto header = syn(100);
    header.timestamps = {9000, 0};
    stranger.says(header);
    const wire::TcpHeader answer = stranger.take().at(0).header;
    CHECK(answer.window_scale);
    CHECK(answer.sack_permitted);
    REQUIRE(answer.timestamps);
    CHECK(answer.timestamps->echo == 9000);
    // The same SYN with other options, at the same moment.
    header.window_scale.reset();
    header.sack_permitted = false;
    stranger.sends(Stranger::kAddress, header);
    header.window_scale = 7;
    stranger.sends(Stranger::kAddress, header);
    world.run_for(microseconds(100));
    REQUIRE(stranger.heard.size() == 2);
    CHECK(stranger.heard[0].header.timestamps->value != stranger.heard[1].header.timestamps->value);
    stranger.heard.clear();
    auto next = third(answer, 101);
    next.timestamps = {9001, answer.timestamps->value};
    stranger.says(next);
    REQUIRE(world.b.device.stream_count() == 1);
    CHECK(world.b.device.streams()[0].mss_bytes == 1448);
    // And the clock goes on from there.
    auto fin = plain(flag::kAck | flag::kFin, 101, answer.sequence + 1);
    fin.timestamps = next.timestamps;
    stranger.says(fin);
    REQUIRE(stranger.heard.at(0).header.timestamps);
    CHECK(stranger.heard[0].header.timestamps->value - answer.timestamps->value < 64);
    CHECK(stranger.heard[0].header.window == ((1u << 20) - 1) >> 12);
  }
}

TEST_CASE("W-TCP-01: an acknowledgement of no cookie of ours is refused, flood or not", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(plain(flag::kAck, 1, 5555));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kRst);
  Flood{}.send(stranger, 65);
  world.run_for(milliseconds(10));
  CHECK(world.b.device.counters().cookies_sent == 1);
  stranger.heard.clear();
  stranger.says(plain(flag::kAck, 1, 5555));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kRst);
  CHECK(world.b.device.stream_count() == 0);
}

TEST_CASE("W-TCP-01: a scan of every port is refused, a share in each turn, and leaves nothing behind",
          "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(plain(flag::kRst, 1));  // nobody answers a RST
  CHECK(stranger.heard.empty());
  std::size_t answers = 0;
  for (std::uint32_t port = 1; port <= 65535; port += 255) {
    for (std::uint32_t each = port; each < std::min(port + 255, 65536u); ++each) {
      if (each == kPort) continue;
      auto header = syn(each);
      header.destination_port = static_cast<std::uint16_t>(each);
      stranger.sends(Stranger::kAddress, header);
    }
    world.clock.now = world.clock.now + microseconds(10);
    const std::size_t before = stranger.heard.size();
    world.b.device.receive(world.clock.now);
    world.b.device.send(world.clock.now);
    CHECK(stranger.heard.size() - before <= 64);
    world.run_for(microseconds(100));
    for (const auto& each : stranger.take()) {
      CHECK(each.header.flags == (flag::kRst | flag::kAck));
      ++answers;
    }
  }
  CHECK(answers > 10'000);
  CHECK(world.b.device.counters().no_listener == 65534);
  CHECK(world.b.device.stream_count() == 0);
  CHECK(world.b.device.half_open_count() == 0);
}
