// Plain streams: a host's TCP with nothing on it, over the simulated wire.
#include "kit/catch.hpp"
#include "kit/octet_streams.hpp"
#include "sim/plain_world.hpp"
#include "unit/host/host_parts.hpp"
#include "wire/ethernet.hpp"

namespace rnic {
namespace {

constexpr std::uint16_t kPort = 7;

// A calls B, where somebody listens.
struct PlainPair {
  explicit PlainPair(const test::Plan& caller, const test::Plan& answerer, sim::PlainOptions options = {})
      : world(options, a, b) {
    a.use(world.a.host);
    b.use(world.b.host);
    b.plan(kPort, answerer);
    REQUIRE(world.b.host.listen(kPort));
    host::Call wishes;
    wishes.remote = sim::kAddressB;
    wishes.remote_port = kPort;
    const auto stream = world.a.host.call(wishes, world.clock.now);
    REQUIRE(stream);
    called = *stream;
    a.plan(called, caller);
  }
  const test::Record& near() { return *a.find(called); }
  const test::Record* far() const { return b.records().empty() ? nullptr : &b.records().begin()->second; }
  bool over() { return near().ended && far() != nullptr && far()->ended; }

  test::OctetStreams a, b;
  sim::PlainWorld world;
  host::StreamId called;
};

sim::PlainOptions lossy() {
  sim::PlainOptions options;
  options.seed = 11;
  options.link.loss_per_1000 = 20;
  options.link.repeat_per_1000 = 10;
  return options;
}

}  // namespace

TEST_CASE("W-TCP-01: a plain stream carries every octet both ways, with loss, and closes", "[host][W-TCP-01]") {
  PlainPair pair({.send_bytes = 700'000}, {.send_bytes = 500'000, .close = test::Plan::Close::sent}, lossy());
  REQUIRE(pair.world.run_until([&] { return pair.over(); }));
  CHECK(pair.near().received_bytes == 500'000);
  CHECK(pair.far()->received_bytes == 700'000);
  CHECK(pair.near().wrong_bytes + pair.far()->wrong_bytes == 0);
  CHECK(pair.near().how == tcp::Ended::gracefully);
  CHECK(pair.far()->how == tcp::Ended::gracefully);
  CHECK(pair.near().counters.retransmitted > 0);
}

TEST_CASE("frames that are moved for other workers are work, and as many in a turn as of our own", "[host]") {
  test::KeepingPort port;
  test::OctetStreams streams;
  test::PlainHost host({}, port, streams);
  while (host.turn(test::kNow)) continue;
  port.to_move = 1000;
  port.looks = 0;
  CHECK(host.turn(test::kNow));
  CHECK(port.looks == 4);
  CHECK(port.to_move == 1000 - 256);
  port.to_move = 1;
  port.looks = 0;
  CHECK(host.turn(test::kNow));
  CHECK(port.looks == 2);
  CHECK_FALSE(host.turn(test::kNow));
}

TEST_CASE("W-TCP-01: both ends of a plain stream may close at once", "[host][W-TCP-01]") {
  sim::PlainOptions options;
  options.link.delay = milliseconds(20);
  PlainPair pair({.close = test::Plan::Close::never}, {.close = test::Plan::Close::never}, options);
  REQUIRE(pair.world.run_until([&] { return pair.far() != nullptr; }));
  pair.a.find(pair.called)->close_now = true;
  pair.b.find(pair.far()->stream)->close_now = true;
  pair.world.a.host.wake(pair.called);
  pair.world.b.host.wake(pair.far()->stream);
  REQUIRE(pair.world.run_until([&] { return pair.over(); }));
  CHECK(pair.near().was_closing);
  CHECK(pair.far()->was_closing);
  CHECK(pair.near().how == tcp::Ended::gracefully);
}

TEST_CASE("a plain call that nobody answers ends: refused, or unreachable", "[host]") {
  sim::PlainOptions options;
  test::OctetStreams streams, nobody;
  sim::PlainWorld world(options, streams, nobody);
  streams.use(world.a.host);
  host::Call wishes;
  wishes.remote = sim::kAddressB;
  wishes.remote_port = 99;
  const auto refused = world.a.host.call(wishes, world.clock.now);
  wishes.remote = wire::IpAddress::v4(10, 0, 0, 77);
  const auto unreachable = world.a.host.call(wishes, world.clock.now);
  // On a bad wire three questions can be lost: it is asked for once more, by frames of Ethernet's least size.
  int questions = 0;
  world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) {
    const auto type = load_be<std::uint16_t>(frame, 12);
    if (type != wire::ether_type::kArp || load_be<std::uint32_t>(frame, 14 + 24) != 0x0A00004D) return;
    ++questions;
    CHECK(frame.size() == 60);
  });
  REQUIRE(refused);
  REQUIRE(unreachable);
  REQUIRE(world.run_until([&] {
    return streams.find(*refused) != nullptr && streams.find(*refused)->ended &&
           streams.find(*unreachable) != nullptr && streams.find(*unreachable)->ended;
  }));
  CHECK(streams.find(*refused)->how == tcp::Ended::refused);
  CHECK(streams.find(*unreachable)->how == tcp::Ended::no);
  CHECK(questions > 3);
  CHECK_FALSE(streams.find(*refused)->opened);
}

}  // namespace rnic
