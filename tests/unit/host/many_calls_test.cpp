// Calls to one address and port, more of them within TIME-WAIT than it has places.
#include <optional>
#include <set>

#include "kit/catch.hpp"
#include "kit/octet_streams.hpp"
#include "sim/plain_world.hpp"
#include "wire/ipv4.hpp"
#include "wire/tcp.hpp"

using namespace rnic;
using sim::PlainOptions;

namespace {

constexpr std::uint16_t kPort = 7471;

// A calls B, and closes first: TIME-WAIT is A's.
struct Caller {
  explicit Caller(bool timestamps) {
    sim::PlainOptions options;
    for (sim::PlainNodeOptions* side : {&options.a, &options.b}) {
      side->host.streams_max = 16384;
      side->host.tcp.timestamps = timestamps;
    }
    world.emplace(options, a, b);
    a.use(world->a.host);
    b.use(world->b.host);
    b.plan(kPort, {});
    REQUIRE(world->b.host.listen(kPort));
    world->a_to_b.watch([this](Bytes frame, Instant, sim::Link::Fate) {
      const auto ip = wire::parse_ipv4(frame.subspan(14));
      if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
      const auto tcp = wire::parse_tcp(frame.subspan(14 + ip->header_size));
      if (!tcp) return;
      if (tcp->header.has(wire::tcp_flags::kSyn)) syn = tcp->header;
    });
  }
  ~Caller() { world->a_to_b.watch(nullptr); }
  Result<host::StreamId, host::StreamError> call(std::uint16_t local_port = 0) {
    host::Call wishes;
    wishes.remote = sim::kAddressB;
    wishes.remote_port = kPort;
    wishes.local_port = local_port;
    const auto stream = world->a.host.call(wishes, world->clock.now);
    if (stream) a.plan(*stream, {.send_bytes = 100, .close = test::Plan::Close::sent});
    return stream;
  }
  bool all_end() {
    return world->run_until([&] { return world->a.host.stream_count() + world->b.host.stream_count() == 0; },
                            seconds(10));
  }

  test::OctetStreams a, b;
  std::optional<sim::PlainWorld> world;
  wire::TcpHeader syn;
};

}  // namespace

TEST_CASE("many thousand calls to one address and port within a TIME-WAIT: each has its port, and its octets arrive",
          "[host]") {
  Caller caller(GENERATE(false, true));
  const Instant begun = caller.world->clock.now;
  constexpr unsigned kCalls = 30'000, kAtATime = 30;
  for (unsigned i = 0; i < kCalls; i += kAtATime) {
    for (unsigned j = 0; j < kAtATime; ++j) REQUIRE(caller.call());
    REQUIRE(caller.all_end());
  }
  REQUIRE(caller.world->clock.now - begun < seconds(60));
  std::size_t whole = 0;
  for (const auto& [id, record] : caller.b.records()) whole += record.received_bytes == 100 && record.peer_closed;
  CHECK(whole == kCalls);
}

TEST_CASE(
    "W-TCP-12: with timestamps a call takes the place of one in TIME-WAIT after a second, with numbers behind its",
    "[host][W-TCP-12]") {
  const bool timestamps = GENERATE(true, false);
  CAPTURE(timestamps);
  Caller caller(timestamps);
  REQUIRE(caller.call(40000));
  caller.world->run_for(milliseconds(10));
  REQUIRE(caller.world->a.host.stream_count() == 0);
  const wire::TcpHeader first = caller.syn;
  const auto refused = [&] {
    const auto again = caller.call(40000);
    return !again && again.error() == host::StreamError::address_in_use;
  };
  CHECK(refused());
  caller.world->run_for(milliseconds(500));
  CHECK(refused());
  caller.world->run_for(milliseconds(600));
  if (!timestamps) {
    CHECK(refused());
    return;
  }
  const auto second = caller.call(40000);
  REQUIRE(second);
  REQUIRE(caller.all_end());
  CHECK(static_cast<std::int32_t>(caller.syn.sequence - (first.sequence + 102)) > 0);
  REQUIRE(caller.syn.timestamps);
  CHECK(static_cast<std::int32_t>(caller.syn.timestamps->value - first.timestamps->value) > 0);
  CHECK(caller.b.records().size() == 2);
  for (const auto& [id, record] : caller.b.records()) CHECK(record.received_bytes == 100);
}

TEST_CASE("W-TCP-12: a call in the place of one that sent much begins behind all of that", "[host][W-TCP-12]") {
  Caller caller(true);
  host::Call wishes;
  wishes.remote = sim::kAddressB;
  wishes.remote_port = kPort;
  wishes.local_port = 40000;
  const auto stream = caller.world->a.host.call(wishes, caller.world->clock.now);
  REQUIRE(stream);
  // More than its numbers move on by in the meantime: 250,000 in a second.
  constexpr std::uint64_t kMuch = 3'000'000;
  caller.a.plan(*stream, {.send_bytes = kMuch, .close = test::Plan::Close::sent});
  REQUIRE(caller.all_end());
  const std::uint32_t first = caller.syn.sequence;
  caller.world->run_for(milliseconds(1100));
  REQUIRE(caller.call(40000));
  REQUIRE(caller.all_end());
  CHECK(static_cast<std::int32_t>(caller.syn.sequence - (first + static_cast<std::uint32_t>(kMuch))) > 0);
  CHECK(caller.b.records().size() == 2);
}

TEST_CASE(
    "W-TCP-12: a call from a port whose last connection the peer has in TIME-WAIT, with numbers far ahead, is taken",
    "[host][W-TCP-12]") {
  Caller caller(false);
  host::Call wishes;
  wishes.remote = sim::kAddressB;
  wishes.remote_port = kPort;
  wishes.local_port = 40000;
  // B closes first, so that A has nothing that says where its numbers ended.
  caller.b.plan(kPort, {.close = test::Plan::Close::sent});
  constexpr unsigned kCalls = 20;
  constexpr std::uint64_t kMuch = 200'000;
  for (unsigned i = 0; i < kCalls; ++i) {
    const auto stream = caller.world->a.host.call(wishes, caller.world->clock.now);
    REQUIRE(stream);
    caller.a.plan(*stream, {.send_bytes = kMuch, .close = test::Plan::Close::sent});
    REQUIRE(caller.all_end());
  }
  CHECK(caller.b.records().size() == kCalls);
  for (const auto& [id, record] : caller.b.records()) CHECK(record.received_bytes == kMuch);
}
