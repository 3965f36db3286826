// Half-open connections: a SYN makes no stream, the third segment does. A stranger speaks to B segment by segment.
#include "unit/core/segments.hpp"

using namespace rnic;
using namespace rnic::test::segments;

TEST_CASE("W-TCP-01: a SYN alone makes no stream, and its answer is sent five times again, then forgotten",
          "[core][W-TCP-01][V-SEC-23]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  const Instant start = world.clock.now;
  stranger.says(syn(100));
  CHECK(world.b.device.half_open_count() == 1);
  world.run_for(seconds(200));
  CHECK(world.b.device.half_open_count() == 0);
  CHECK(world.b.device.stream_count() == 0);
  std::vector<std::int64_t> at_seconds;
  for (const auto& each : stranger.heard) {
    CHECK(each.header.flags == (flag::kSyn | flag::kAck));
    CHECK(each.header.acknowledgement == 101);
    CHECK(each.header.sequence == stranger.heard[0].header.sequence);
    at_seconds.push_back((each.at - start).ns / 1'000'000'000);
  }
  CHECK(at_seconds == std::vector<std::int64_t>{0, 1, 3, 7, 15, 31});
  CHECK(world.b.device.next_deadline() == kNever);
}

TEST_CASE("W-TCP-01: the third segment, or data in its place, makes the stream; a RST in its place ends it",
          "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  CHECK(answer.window_scale);
  CHECK(answer.sack_permitted);
  SECTION("the third segment") { stranger.says(third(answer, 101)); }
  SECTION("data") { stranger.says(third(answer, 101), "MPA"); }
  SECTION("a RST") {
    stranger.says(plain(flag::kRst, 101));
    CHECK(world.b.device.half_open_count() == 0);
    CHECK(world.b.device.stream_count() == 0);
    CHECK(stranger.heard.empty());
    return;
  }
  CHECK(world.b.device.half_open_count() == 0);
  REQUIRE(world.b.device.stream_count() == 1);
  CHECK(world.b.device.streams()[0].tcp_state == std::string("ESTABLISHED"));
}

TEST_CASE("W-TCP-16: a Request on the handshake's third ACK is heard, through a cookie too", "[core][W-TCP-16]") {
  const bool through_cookie = GENERATE(false, true);
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  if (through_cookie) {
    Flood{}.send(stranger, 64);
    world.run_for(milliseconds(10));
    stranger.heard.clear();
  }
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take().at(0).header;
  std::string request = "MPA ID Req Frame";
  request += {0x40, 1, 0, 3};  // CRC, Revision 1, three octets of private data
  stranger.says(third(answer, 101), request + "abc");
  CHECK(world.b.device.counters().cookies_good == (through_cookie ? 1 : 0));
  REQUIRE(world.b.events.size() == 1);
  CHECK(world.b.events[0].kind == StreamEvent::Kind::connect_request);
  CHECK(world.b.events[0].private_data.length == 3);
  CHECK(world.b.device.streams().at(0).tcp.bytes_in == request.size() + 3);
}

TEST_CASE("a flood at a port whose listener has just closed makes nothing, and the next listener hears its callers",
          "[core][V-SEC-23]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  world.b.device.unlisten({}, kPort, world.clock.now);
  Stranger stranger(world);
  Flood flood;
  for (int i = 0; i < 100; ++i) {
    flood.send(stranger, 200);
    world.run_for(milliseconds(1));
  }
  CHECK(stranger.heard.empty());
  CHECK(world.b.device.half_open_count() == 0);
  CHECK(world.b.device.stream_count() == 0);
  REQUIRE(world.b.device.listen({}, kPort, 8, 78));
  stranger.says(syn(100));
  REQUIRE(stranger.heard.size() == 1);
  stranger.says(third(stranger.take()[0].header, 101));
  CHECK(world.b.device.stream_count() == 1);
  // When it is nobody's, each is told so.
  world.b.device.unlisten({}, kPort, world.clock.now);
  world.run_for(host::Listeners::kAfterlifeServing);
  stranger.heard.clear();
  flood.send(stranger, 10);
  world.run_for(milliseconds(1));
  CHECK(std::count_if(stranger.heard.begin(), stranger.heard.end(),
                      [](const Stranger::Heard& heard) { return heard.header.has(flag::kRst); }) == 10);
}

TEST_CASE("a listener's port is nobody's while no more than orphans are left of whom it served", "[core]") {
  World world({});
  const auto first = sim::connect(world, {}, {});  // and its listener is closed
  REQUIRE(first.established);
  Stranger stranger(world);
  sim::LinkOptions lost = world.b_to_a.options();
  lost.loss_per_1000 = 1000;  // A never hears of the end; the stranger still does of all
  world.b_to_a.set_options(lost);
  world.run_for(host::Listeners::kAfterlife);
  stranger.says(syn(100));
  CHECK(stranger.take().empty());
  world.b.device.release(*first.b->qp, world.clock.now);
  REQUIRE(world.b.device.stream_count() == 1);
  stranger.says(syn(100));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.has(flag::kRst));
}

TEST_CASE("a listener that is closed resets connections whose Request has not come", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  stranger.says(third(stranger.take()[0].header, 101));
  REQUIRE(world.b.device.stream_count() == 1);
  world.b.device.unlisten({}, kPort, world.clock.now);
  world.run_for(milliseconds(1));
  CHECK(world.b.device.stream_count() == 0);
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.has(flag::kRst));
}

TEST_CASE("W-TCP-01: a SYN repeated is answered with the same numbers; another one is challenged", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  stranger.says(syn(100));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.take()[0].header.sequence == answer.sequence);
  stranger.says(syn(5000));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kAck);
  CHECK(stranger.heard[0].header.acknowledgement == 101);
  CHECK(world.b.device.half_open_count() == 1);
  // A peer that has forgotten its first SYN answers that with a RST, and its next SYN is heard.
  stranger.says(plain(flag::kRst, 101));
  stranger.says(syn(5000));
  CHECK(stranger.heard.back().header.flags == (flag::kSyn | flag::kAck));
  CHECK(stranger.heard.back().header.acknowledgement == 5001);
}

TEST_CASE("W-TCP-01: a third segment with a wrong acknowledgement is refused, and the SYN still stands",
          "[core][W-TCP-01][V-SEC-23]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  stranger.says(plain(flag::kAck, 101, answer.sequence + 2));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kRst);
  CHECK(stranger.heard[0].header.sequence == answer.sequence + 2);
  stranger.says(third(answer, 101));
  CHECK(world.b.device.stream_count() == 1);
}

TEST_CASE("W-TCP-01: octets for nobody are thrown away for a while, then refused (SHLD-3)", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  stranger.says(third(answer, 101), "no Request of MPA's");
  const wire::TcpHeader fin = stranger.take().back().header;
  REQUIRE(fin.has(flag::kFin));
  const std::string octets(1024, 'x');
  std::uint32_t sequence = fin.acknowledgement;
  const auto resets = [&] {
    return std::count_if(stranger.heard.begin(), stranger.heard.end(),
                         [](const Stranger::Heard& heard) { return heard.header.has(flag::kRst); });
  };
  for (int i = 0; i < 1024; ++i, sequence += 1024) stranger.says(plain(flag::kAck, sequence, fin.sequence + 1), octets);
  CHECK(resets() == 0);
  CHECK(stranger.take().back().header.acknowledgement == sequence);
  for (int i = 0; i < 2; ++i, sequence += 1024) stranger.says(plain(flag::kAck, sequence, fin.sequence + 1), octets);
  CHECK(resets() > 0);
  CHECK(world.b.device.stream_count() == 0);
}

TEST_CASE("where only memory is between, a SYN-ACK comes again after 10 ms, doubling up to a second, and then as ever",
          "[core][W-TCP-01]") {
  WorldOptions options;
  options.b.device.tcp.syn_wait_first = milliseconds(10);
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  const Instant start = world.clock.now;
  stranger.says(syn(100));
  world.run_for(seconds(200));
  std::vector<std::int64_t> at_ms;
  for (const auto& each : stranger.heard) at_ms.push_back((each.at - start).ns / 1'000'000);
  CHECK(at_ms == std::vector<std::int64_t>{0, 10, 30, 70, 150, 310, 630, 1270, 2270, 4270, 8270, 16270, 32270});
  CHECK(world.b.device.half_open_count() == 0);
}

TEST_CASE("W-TCP-01: odd segments to a listener: with ACK a RST, without one silence", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  for (const int flags :
       {0, int{flag::kFin}, flag::kFin | flag::kPsh | flag::kUrg, int{flag::kPsh}, flag::kSyn | flag::kFin}) {
    stranger.says(plain(static_cast<std::uint8_t>(flags), 1), "x");
    CHECK(stranger.heard.empty());
  }
  for (const int flags : {int{flag::kAck}, flag::kSyn | flag::kAck, flag::kAck | flag::kFin}) {
    stranger.says(plain(static_cast<std::uint8_t>(flags), 1, 77));
    REQUIRE(stranger.heard.size() == 1);
    const auto answer = stranger.take()[0].header;
    CHECK(answer.flags == flag::kRst);
    CHECK(answer.sequence == 77);
  }
}

TEST_CASE("W-TCP-01: no round trip is measured on a SYN-ACK that was sent twice", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const bool twice = GENERATE(false, true);
  if (twice) stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  world.run_for(milliseconds(5));
  stranger.says(third(answer, 101));
  REQUIRE(world.b.device.stream_count() == 1);
  CHECK((world.b.device.streams()[0].rtt_us == 0) == twice);
}
