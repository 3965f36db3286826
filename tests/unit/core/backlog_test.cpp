// Who waits in a listener's backlog, who waits for a place there, and who takes none.
#include <map>

#include "host/listeners.hpp"
#include "unit/core/segments.hpp"

using namespace rnic;
using namespace rnic::test::segments;

TEST_CASE("a full backlog keeps a finished handshake waiting, and takes it when there is room", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  Stranger stranger(world);
  const auto call = [&](std::uint16_t port, std::uint32_t sequence) {
    stranger.source_port = port;
    stranger.says(syn(sequence));
    return stranger.take().at(0).header;
  };
  const wire::TcpHeader first = call(3000, 100);
  CHECK(first.window == 65535);
  // Whoever may not fit is answered as well, and asked to say nothing yet.
  const wire::TcpHeader second = call(3001, 500), last = call(3002, 900);
  CHECK(second.window == 0);
  CHECK(last.window == 0);
  stranger.says(third(last, 901), kRequest);
  REQUIRE(world.b.events.size() == 1);
  REQUIRE(world.b.device.stream_count() == 1);
  // There was room: it hears so at once, or it would wait for ever.
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.window > 0);
  CHECK(stranger.take()[0].header.flags == flag::kAck);

  // The second before the first: in this order they wait.
  stranger.source_port = 3001;
  stranger.says(third(second, 501));
  stranger.source_port = 3000;
  stranger.says(third(first, 101), "abc");
  CHECK(world.b.device.stream_count() == 1);
  CHECK(world.b.device.half_open_count() == 2);
  CHECK(world.b.device.counters().backlog_waits == 2);
  CHECK(stranger.heard.empty());
  // One whose window is shut asks now and then, and must hear that somebody is there.
  stranger.source_port = 3001;
  stranger.says(third(second, 501), "a");
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.acknowledgement == 501);
  CHECK(stranger.take()[0].header.window == 0);
  CHECK(world.b.device.counters().backlog_waits == 2);

  const auto answered = [&](std::size_t event) {
    REQUIRE(world.b.events.size() == event + 1);
    REQUIRE(world.b.device.reject(world.b.events[event].stream, {}, world.clock.now));
    world.run_for(milliseconds(1));
  };
  answered(0);
  // Neither has asked, so neither has the place; the one whose window was shut hears that it is open.
  CHECK(world.b.device.half_open_count() == 0);
  CHECK(world.b.device.stream_count() == 3);
  std::vector<std::uint16_t> opened;
  for (const Stranger::Heard& each : stranger.take())
    if (each.header.destination_port != 3002 && each.header.window > 0) opened.push_back(each.header.destination_port);
  CHECK(opened == std::vector<std::uint16_t>{3001});
  // What was said was not kept, and comes again. Who asks first has the place.
  stranger.source_port = 3000;
  stranger.says(third(first, 101), kRequest);
  REQUIRE(world.b.events.size() == 2);
  CHECK(world.b.events[1].remote_port == 3000);
  stranger.source_port = 3001;
  stranger.says(third(second, 501), kRequest);
  CHECK(world.b.events.size() == 2);
  CHECK(world.b.device.counters().backlog_waits == 3);
  answered(1);
  REQUIRE(world.b.events.size() == 3);
  CHECK(world.b.events[2].remote_port == 3001);
  CHECK(world.b.device.counters().syns_dropped == 0);
}

TEST_CASE("who has asked and waits in line may give up, is let go after a minute, and ends with the listener",
          "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  Stranger stranger(world);
  const auto third_of = [&](std::uint16_t port) {
    stranger.source_port = port;
    stranger.says(syn(port));
    return third(stranger.take().back().header, port + 1u);
  };
  const wire::TcpHeader first = third_of(3000), second = third_of(3001);
  stranger.says(second);
  stranger.source_port = 3000;
  stranger.says(first, kRequest);
  stranger.source_port = 3001;
  stranger.says(second, kRequest);
  REQUIRE(world.b.events.size() == 1);
  REQUIRE(world.b.device.stream_count() == 2);
  REQUIRE(world.b.device.counters().backlog_waits == 1);
  stranger.heard.clear();
  SECTION("a RST") {
    stranger.says(plain(flag::kRst, 3002 + static_cast<std::uint32_t>(kRequest.size())));
    world.run_for(milliseconds(1));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("octets behind the Request") {
    stranger.says(plain(flag::kAck, 3002 + static_cast<std::uint32_t>(kRequest.size()), second.acknowledgement), "x");
    world.run_for(milliseconds(1));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("a minute") {
    world.run_for(seconds(59));
    CHECK(world.b.device.stream_count() == 2);
    world.run_for(seconds(40));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("the listener ends") {
    world.b.device.unlisten({}, kPort, world.clock.now);
    world.run_for(milliseconds(1));
    CHECK(world.b.device.stream_count() == 1);  // the one that was told of
    CHECK(std::any_of(stranger.heard.begin(), stranger.heard.end(), [](const Stranger::Heard& each) {
      return each.header.destination_port == 3001 && each.header.has(flag::kRst);
    }));
    return;
  }
  // Nobody is in line any more, and the place is free when the first has its answer.
  REQUIRE(world.b.device.reject(world.b.events[0].stream, {}, world.clock.now));
  world.run_for(milliseconds(1));
  CHECK(world.b.events.size() == 1);
  REQUIRE(connects(world));
}

TEST_CASE("who waits for a place in the backlog may give up, and is let go after a minute", "[core]") {
  WorldOptions patient;
  patient.a.device.reply_timeout = seconds(600);
  World world(patient);
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  sim::Endpoint& holder = world.a.make_qp(config());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.ird = options.ord = 4;
  world.b.events.clear();
  REQUIRE(world.a.device.connect(options, *holder.qp, world.clock.now));
  REQUIRE(world.run_until([&] { return world.b.events.size() == 1; }, seconds(1)));  // asked, and not answered
  const std::size_t streams = world.b.device.stream_count();
  Stranger stranger(world);
  stranger.says(syn(100));
  stranger.says(third(stranger.take()[0].header, 101));
  REQUIRE(world.b.device.counters().backlog_waits == 1);
  REQUIRE(world.b.device.half_open_count() == 1);
  SECTION("a RST") {
    stranger.says(plain(flag::kRst, 101));
    CHECK(world.b.device.half_open_count() == 0);
  }
  SECTION("the listener ends") {
    world.b.device.unlisten({}, kPort, world.clock.now);
    world.run_for(milliseconds(1));
    CHECK(world.b.device.half_open_count() == 0);
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.has(flag::kRst));
    CHECK(stranger.heard[0].header.acknowledgement == 101);
  }
  SECTION("a minute") {
    world.run_for(seconds(59));
    CHECK(world.b.device.half_open_count() == 1);
    world.run_for(seconds(2));
    CHECK(world.b.device.half_open_count() == 0);
    CHECK(world.b.device.stream_count() == streams);
    CHECK(world.b.device.counters().backlog_waits == 1);
  }
}

TEST_CASE("those who connect and do not ask take no place in the backlog, however small it is", "[core]") {
  const std::uint32_t backlog = GENERATE(1u, 3u, 128u);
  const bool half_a_request = GENERATE(false, true);
  CAPTURE(backlog, half_a_request);
  WorldOptions options;
  options.b.streams_max = 2048;
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, backlog, 77));
  Stranger stranger(world);
  for (std::uint16_t port = 3000; port < 3000 + 200; ++port) {
    stranger.source_port = port;
    stranger.says(syn(port));
    stranger.says(third(stranger.take().back().header, port + 1u), half_a_request ? "MPA ID" : "");
  }
  REQUIRE(world.b.device.stream_count() == 200);
  const Instant start = world.clock.now;
  for (int i = 0; i < 5; ++i) REQUIRE(connects(world));
  CHECK(world.clock.now - start < milliseconds(100));
  CHECK(world.b.device.counters().backlog_waits == 0);
  CHECK(world.b.device.stream_count() == 205);
}

TEST_CASE("of those who connect and do not ask so many are kept, and the oldest goes first", "[core]") {
  WorldOptions options;
  options.b.streams_max = 2048;
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 3, 77));
  Stranger stranger(world);
  constexpr std::uint16_t kFirst = 3000, kTooMany = 5;
  std::vector<std::uint16_t> reset;
  for (std::uint16_t i = 0; i < host::Listeners::kSilentMax + kTooMany; ++i) {
    stranger.source_port = static_cast<std::uint16_t>(kFirst + i);
    stranger.says(syn(i));
    wire::TcpHeader answer;
    for (const Stranger::Heard& each : stranger.take()) {
      if (each.header.has(flag::kRst)) reset.push_back(each.header.destination_port);
      if (each.header.has(flag::kSyn)) answer = each.header;
    }
    stranger.says(third(answer, i + 1u));
  }
  for (const Stranger::Heard& each : stranger.take())
    if (each.header.has(flag::kRst)) reset.push_back(each.header.destination_port);
  CHECK(world.b.device.stream_count() == host::Listeners::kSilentMax);
  CHECK(reset == std::vector<std::uint16_t>{3000, 3001, 3002, 3003, 3004});
  REQUIRE(connects(world));
}

TEST_CASE("the silent of all listeners together leave seven eighths of the streams", "[core]") {
  World world({});  // 256 streams
  constexpr std::uint16_t kListeners = 16, kEach = 32;
  REQUIRE(world.b.device.listen({}, kPort, 3, 77));
  for (std::uint16_t i = 1; i <= kListeners; ++i)
    REQUIRE(world.b.device.listen({}, static_cast<std::uint16_t>(kPort + i), 3, 77));
  Stranger stranger(world);
  const auto keeps_silent = [&](std::uint16_t port, std::uint16_t from) {
    stranger.source_port = from;
    stranger.destination_port = port;
    stranger.take();
    stranger.says(syn(from));
    for (const Stranger::Heard& each : stranger.take())
      if (each.header.has(flag::kSyn)) stranger.says(third(each.header, from + 1u));
  };
  keeps_silent(kPort, 2999);  // it was first, and its listener has few
  for (std::uint16_t i = 0; i < kListeners * kEach; ++i)
    keeps_silent(static_cast<std::uint16_t>(kPort + 1 + i % kListeners), static_cast<std::uint16_t>(3000 + i));
  CHECK(world.b.device.stream_count() == 32);
  for (std::uint16_t i = 0; i < 200; ++i) keeps_silent(kPort + 1, static_cast<std::uint16_t>(4000 + i));
  CHECK(world.b.device.stream_count() == 32);
  // Of one listener that has more than a few its own went: the other fifteen keep the rest.
  std::map<std::uint16_t, int> of;
  for (const auto& each : world.b.device.streams()) ++of[each.local_port];
  CHECK(of[kPort + 1] == 9);
  REQUIRE(connects(world));
}

TEST_CASE("W-TCP-01: a flood of SYNs takes no place in a small backlog", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 2, 77));
  Stranger stranger(world);
  Flood flood;
  flood.send(stranger, 40);
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 40);
  const Instant start = world.clock.now;
  REQUIRE(connects(world));  // told to wait, and then at once that there is a place
  CHECK(world.clock.now - start < milliseconds(100));
  CHECK(world.b.device.counters().backlog_waits == 0);
  CHECK(world.b.device.counters().syns_dropped == 0);
}

TEST_CASE("W-TCP-01: a cookie that comes back to a full backlog waits like others", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  stranger.says(third(stranger.take()[0].header, 101), kRequest);  // has the place
  stranger.heard.clear();
  Flood flood;
  flood.send(stranger, 64);
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 64);
  stranger.heard.clear();
  stranger.source_port = 3001;
  stranger.says(syn(500));
  const wire::TcpHeader cookie = stranger.take().at(0).header;
  REQUIRE(world.b.device.counters().cookies_sent == 1);
  stranger.says(third(cookie, 501));
  CHECK(world.b.device.counters().syns_dropped == 1);  // no entry to wait in
  world.run_for(seconds(64));                          // the flood is forgotten
  REQUIRE(world.b.device.half_open_count() == 0);
  stranger.says(third(cookie, 501));
  CHECK(world.b.device.counters().cookies_good == 1);
  CHECK(world.b.device.counters().backlog_waits == 1);
  REQUIRE(world.b.device.stream_count() == 1);
  REQUIRE(world.b.device.reject(world.b.events.at(0).stream, {}, world.clock.now));
  world.run_for(milliseconds(1));
  const auto streams = world.b.device.streams();
  CHECK(std::any_of(streams.begin(), streams.end(), [](const auto& each) { return each.remote_port == 3001; }));
}
