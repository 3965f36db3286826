// Which local port a call gets.
#include "host/ephemeral_ports.hpp"

#include <set>
#include <utility>
#include <vector>

#include "kit/catch.hpp"
#include "sim/plain_world.hpp"
#include "wire/rss.hpp"

using namespace rnic;
using rnic::host::EphemeralPorts;
using Use = EphemeralPorts::Use;

TEST_CASE("a call gets a free port of Linux's range, whatever chance says", "[host]") {
  std::set<std::uint16_t> seen;
  for (std::uint64_t chance = 0; chance < 200'000; ++chance) {
    const auto port = EphemeralPorts::choose(chance * 0x9E3779B97F4A7C15u, [](std::uint16_t) { return Use::free; });
    REQUIRE(port);
    REQUIRE(*port >= 32768);
    REQUIRE(*port <= 60999);
    seen.insert(*port);
  }
  CHECK(seen.size() > 28'000);
}

TEST_CASE("for a call some ports are looked at, none of them twice, and never all", "[host]") {
  for (std::uint64_t chance : {std::uint64_t{0}, std::uint64_t{3529} << 32, std::uint64_t{28231} << 32 | 28231,
                               ~std::uint64_t{0}, std::uint64_t{0x123456789ABCDEF0}}) {
    std::set<std::uint16_t> looked_at;
    unsigned looks = 0;
    const auto port = EphemeralPorts::choose(chance, [&](std::uint16_t each) {
      ++looks;
      looked_at.insert(each);
      return Use::taken;
    });
    CHECK_FALSE(port);
    CHECK(looks == EphemeralPorts::kTriesMax);
    CHECK(looked_at.size() == looks);
  }
}

TEST_CASE("what is looked at next is an odd number of ports on, as all the upper bits of chance say", "[host]") {
  for (const auto& [upper, stride] : {std::pair{10u, 11u}, {11u, 11u}, {12u, 13u}, {3528u, 3531u}}) {
    std::vector<std::uint16_t> looked_at;
    EphemeralPorts::choose(std::uint64_t{upper} << 32, [&](std::uint16_t each) {
      looked_at.push_back(each);
      return Use::taken;
    });
    const unsigned second = looked_at[1] - EphemeralPorts::kFirst, first = looked_at[0] - EphemeralPorts::kFirst;
    CHECK((second + EphemeralPorts::kCount - first) % EphemeralPorts::kCount == stride);
  }
}

TEST_CASE("a port in TIME-WAIT is taken only where none that was looked at is free", "[host]") {
  unsigned looks = 0;
  std::uint16_t first = 0;
  const auto waits_till = [&](unsigned free_at) {
    looks = 0;
    return EphemeralPorts::choose(77, [&](std::uint16_t port) {
      if (looks++ == 0) first = port;
      return looks == free_at ? Use::free : Use::may_begin_anew;
    });
  };
  CHECK(waits_till(200) != first);
  CHECK(looks == 200);
  CHECK(waits_till(0) == first);
}

TEST_CASE("of ports used lately so many are kept as were asked for, each once", "[host]") {
  rnic::host::PortsUsedLately lately(3);
  const std::uint16_t first = EphemeralPorts::kFirst, last = EphemeralPorts::kLast;
  CHECK_FALSE(lately.has(first));
  CHECK_FALSE(lately.has(80));
  for (const std::uint16_t port : {first, last, first, first}) lately.add(port);
  lately.add(40'000);
  CHECK((lately.has(first) && lately.has(last) && lately.has(40'000)));
  lately.add(50'000);
  CHECK_FALSE(lately.has(first));
  CHECK((lately.has(last) && lately.has(40'000) && lately.has(50'000)));
  for (const std::uint16_t port : std::initializer_list<std::uint16_t>{80, 32767, 61000, 65535}) {
    lately.add(port);
    CHECK_FALSE(lately.has(port));
  }
  CHECK(lately.has(last));
}

TEST_CASE("a port used lately is taken only where none that was looked at is free or in TIME-WAIT", "[host]") {
  unsigned looks = 0;
  std::uint16_t first = 0, second = 0;
  const auto choose = [&](Use later) {
    looks = 0;
    return EphemeralPorts::choose(77, [&](std::uint16_t port) {
      ++looks;
      if (looks == 1) first = port;
      if (looks == 2) second = port;
      return looks == 2 ? later : Use::lately;
    });
  };
  CHECK(choose(Use::free) == second);
  CHECK(looks == 2);
  CHECK(choose(Use::may_begin_anew) == second);
  CHECK(choose(Use::taken) == first);
  CHECK(looks == EphemeralPorts::kTriesMax);
}

namespace {

struct Nobody final : test::PlainStreams {
  void on_open(host::StreamId, const host::Flow&) override {}
  bool on_turn(host::StreamId, tcp::Connection&, Instant) override { return false; }
  void on_end(host::StreamId, const tcp::Connection&) override {}
};

}  // namespace

// Without it one call in 28,232 had the ports of the one before: where that had been reset, and timestamps are off,
// late segments of it came into the stream.
TEST_CASE("a port of a call that was reset is not taken again soon", "[host]") {
  Nobody nobody;
  const sim::PlainOptions options;
  sim::PlainWorld world(options, nobody, nobody);
  std::set<std::uint16_t> called;
  world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) {
    if (load_be<std::uint16_t>(frame, 12) != 0x0806) called.insert(load_be<std::uint16_t>(frame, 34));
  });
  host::Call call;
  call.remote = options.b.address;
  call.remote_port = 7;  // where nobody listens
  constexpr unsigned kCalls = 4000;
  for (unsigned i = 0; i < kCalls; ++i) {
    REQUIRE(world.a.host.call(call, world.clock.now));
    world.run_for(milliseconds(2));
  }
  CHECK(called.size() == kCalls);
}

TEST_CASE("a call of a shard gets a port whose connection is the shard's, of sixteen, too", "[host][shards]") {
  const unsigned count = GENERATE(2u, 3u, 16u);
  for (const bool v6 : {false, true}) {
    Nobody nobody;
    sim::PlainOptions options;
    if (v6) {
      options.a.address = sim::address_v6(1);
      options.b.address = sim::address_v6(2);
    }
    // The first has its addresses from nobody.
    options.a.host.shard = {.index = 0, .count = count};
    sim::PlainWorld world(options, nobody, nobody);
    host::Call call;
    call.remote = options.b.address;
    for (call.remote_port = 1; call.remote_port <= 100; ++call.remote_port)
      REQUIRE(world.a.host.call(call, world.clock.now));
    std::set<std::uint16_t> called;
    world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) {
      const std::size_t header = v6 ? 54 : 34;
      const std::uint8_t protocol = std::to_integer<std::uint8_t>(frame[v6 ? 20 : 23]);
      if (load_be<std::uint16_t>(frame, 12) == 0x0806 || protocol != wire::protocol::kTcp) return;
      const auto local = load_be<std::uint16_t>(frame, header), remote = load_be<std::uint16_t>(frame, header + 2);
      called.insert(remote);
      CHECK(wire::rss::shard_of(options.a.address, local, options.b.address, remote, count) == 0);
      CHECK(local >= EphemeralPorts::kFirst);
    });
    world.run_for(seconds(3));
    CHECK(called.size() == 100);
  }
}

TEST_CASE("a call of one of sixteen shards finds a port where nine of ten of the shard's are taken", "[host][shards]") {
  constexpr unsigned kShards = 16;
  Nobody nobody;
  sim::PlainOptions options;
  options.a.host.shard = {.index = 0, .count = kShards};
  options.a.host.streams_max = EphemeralPorts::kCount;
  sim::PlainWorld world(options, nobody, nobody);
  host::Call call;
  call.remote = options.b.address;
  call.remote_port = 7;
  unsigned own = 0;
  for (std::uint32_t port = EphemeralPorts::kFirst; port <= EphemeralPorts::kLast; ++port)
    own += wire::rss::shard_of(options.a.address, static_cast<std::uint16_t>(port), call.remote, call.remote_port,
                               kShards) == 0;
  CHECK(own > EphemeralPorts::kCount / kShards * 9 / 10);
  unsigned refused = 0;
  for (unsigned i = 0; i < own * 9 / 10; ++i) refused += !world.a.host.call(call, world.clock.now);
  CHECK(refused == 0);
}

TEST_CASE("a call from a port of another shard is refused, and one from a port of its own is not", "[host][shards]") {
  Nobody nobody;
  sim::PlainOptions options;
  options.a.host.shard = {.index = 0, .count = 4};
  sim::PlainWorld world(options, nobody, nobody);
  host::Call call;
  call.remote = options.b.address;
  call.remote_port = 7;
  unsigned own = 0;
  for (call.local_port = 1000; call.local_port < 1100; ++call.local_port) {
    const auto called = world.a.host.call(call, world.clock.now);
    const bool is_own = wire::rss::shard_of(options.a.address, call.local_port, call.remote, call.remote_port, 4) == 0;
    REQUIRE(called.has_value() == is_own);
    if (!is_own) CHECK(called.error() == host::StreamError::another_shard);
    own += is_own;
  }
  CHECK(own > 10);
  CHECK(own < 50);
}
