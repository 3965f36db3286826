// The port's MTU changes while a connection runs.
#include "kit/catch.hpp"
#include "kit/octet_streams.hpp"
#include "sim/plain_world.hpp"

namespace rnic {
namespace {

constexpr std::uint16_t kPort = 7;

// A sends to B, with an eye on the size of each frame.
struct Running {
  explicit Running(bool v6) {
    sim::PlainOptions options;
    if (v6) {
      options.a.address = sim::address_v6(1);
      options.b.address = sim::address_v6(2);
    }
    options.link.per_octet = nanoseconds(8);
    world.emplace(options, a, b);
    a.use(world->a.host);
    b.use(world->b.host);
    b.plan(kPort, {});
    world->a_to_b.watch(
        [this](Bytes frame, Instant, sim::Link::Fate) { largest = std::max(largest, frame.size() - 14); });
    REQUIRE(world->b.host.listen(kPort));
    host::Call wishes;
    wishes.remote = world->b.address;
    wishes.remote_port = kPort;
    const auto stream = world->a.host.call(wishes, world->clock.now);
    REQUIRE(stream);
    called = *stream;
    a.plan(called, {.send_bytes = 8'000'000, .close = test::Plan::Close::sent});
  }
  std::uint64_t received() const { return b.records().empty() ? 0 : b.records().begin()->second.received_bytes; }
  // The largest packet among those of the next megabyte.
  std::size_t largest_from_now() {
    largest = 0;
    const std::uint64_t until = received() + 1'000'000;
    REQUIRE(world->run_until([&] { return received() >= until; }));
    return largest;
  }

  test::OctetStreams a, b;
  std::optional<sim::PlainWorld> world;
  host::StreamId called;
  std::size_t largest = 0;
};

}  // namespace

// RFC 6438: of two paths of equal cost one dies, the one that the stream's label has chosen.
TEST_CASE("W-TCP-01: a stream over IPv6 leaves a path that has died by another flow label",
          "[host][W-TCP-01][rfc6438]") {
  Running run(true);
  std::optional<std::uint32_t> dead;  // the path
  std::uint32_t last = 0;
  run.world->a_to_b.edit([&](sim::Frame& frame) {
    const std::uint32_t label = load_be<std::uint32_t>(Bytes{frame}, 14) & 0xFFFFF;
    if (std::to_integer<unsigned>(frame[20]) == 6) last = label;
    if (dead && (label & 1) == *dead) frame[0] ^= std::byte{2};  // to nobody
  });
  REQUIRE(run.world->run_until([&] { return run.received() >= 1'000'000; }));
  const std::uint32_t before = last;
  run.world->run_for(milliseconds(1));
  CHECK(last == before);  // as long as it arrives, one path
  dead = before & 1;
  REQUIRE(run.world->run_until([&] { return run.received() == 8'000'000; }, seconds(60)));
  CHECK((last & 1) != *dead);
}

TEST_CASE("W-TCP-08: when the port's MTU changes, connections send no more than it, and as much again",
          "[host][W-TCP-08]") {
  const bool v6 = GENERATE(false, true);
  CAPTURE(v6);
  Running run(v6);
  CHECK(run.largest_from_now() == 1500);
  run.world->a.host.set_link_mtu(1300);
  CHECK(run.largest_from_now() == 1300);
  CHECK(run.world->a.host.mss_bytes(run.called) == (v6 ? 1240 : 1260));
  run.world->a.host.set_link_mtu(9000);  // the port's buffers are for 1500
  CHECK(run.largest_from_now() == 1500);
  REQUIRE(run.world->run_until([&] { return run.a.find(run.called)->ended; }));
  CHECK(run.received() == 8'000'000);
  CHECK(run.b.records().begin()->second.wrong_bytes == 0);
}

TEST_CASE("W-TCP-08: a connection that begins after the port's MTU has changed announces and sends no more",
          "[host][W-TCP-08]") {
  Running first(false);
  first.world->a.host.set_link_mtu(1000);
  host::Call wishes;
  wishes.remote = sim::kAddressB;
  wishes.remote_port = kPort;
  const auto stream = first.world->a.host.call(wishes, first.world->clock.now);
  REQUIRE(stream);
  first.a.plan(*stream, {.send_bytes = 10'000, .close = test::Plan::Close::sent});
  REQUIRE(first.world->run_until([&] { return first.a.find(*stream)->ended; }));
  CHECK(first.a.find(*stream)->mss_bytes == 960);
  CHECK(first.largest <= 1000);
}

}  // namespace rnic
