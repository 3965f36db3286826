// Streams that share a device: what one of them takes, asks for or suffers is its own affair, and can be
// seen.
#include <algorithm>
#include <vector>

#include "kit/catch.hpp"
#include "sim/world.hpp"

using namespace rnic;
using sim::World;

namespace {

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  return config;
}

struct Memory {
  Memory(sim::Rnic& rnic, std::size_t size)
      : octets(size, std::byte{0x5A}),
        stag(rnic.register_memory(octets, tpt::Rights::local_read | tpt::Rights::local_write |
                                              tpt::Rights::remote_read | tpt::Rights::remote_write)) {}
  std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(octets.data()); }
  qp::WorkRequest read(const Memory& from, std::uint32_t size) const {
    qp::WorkRequest request;
    request.opcode = qp::Opcode::read;
    request.signaled = true;
    request.sge_count = 1;
    request.sges[0] = {at(), size, stag};
    request.remote_stag = from.stag;
    request.remote_to = from.at();
    return request;
  }
  std::vector<std::byte> octets;
  Stag stag;
};

core::StreamInfo info_of(const World& world, core::StreamId id) {
  for (const core::StreamInfo& info : world.a.device.streams())
    if (info.stream == id) return info;
  FAIL("no such stream");
  return {};
}

}  // namespace

TEST_CASE("messages without octets have their share of a turn and no more, however many streams have them",
          "[core][local]") {
  sim::WorldOptions options;
  const bool direct = GENERATE(false, true);
  CAPTURE(direct);
  options.a.device.local_direct = options.b.device.local_direct = direct;
  World world(options);
  std::vector<sim::Connected> pairs;
  qp::Config deep = plain();
  deep.send_depth = 4096;
  for (std::uint16_t i = 0; i < 20; ++i) {
    pairs.push_back(sim::connect(world, deep, plain(), static_cast<std::uint16_t>(7471 + i)));
    REQUIRE(pairs.back().established);
  }
  world.run_for(milliseconds(10));
  qp::WorkRequest empty;
  empty.opcode = qp::Opcode::write;
  for (const sim::Connected& pair : pairs)
    for (int i = 0; i < 4000; ++i) world.a.post_send(*pair.a, empty);
  const auto begun = [&] {
    std::uint64_t all = 0;
    for (const sim::Connected& pair : pairs)
      all += pair.a->qp->counters().fpdus_out + pair.a->qp->counters().direct_out;
    return all;
  };
  std::uint64_t before = begun();
  for (int turn = 0; turn < 10; ++turn) {
    world.a.turn();
    const std::uint64_t now = begun();
    CHECK(now - before <= 1024 + pairs.size());
    before = now;
  }
  CHECK(before != 0);
}

namespace {

// Streams of device A that write to B, all of them more than they can for a long time.
struct Writers {
  static sim::WorldOptions options(bool direct) {
    sim::WorldOptions options;
    options.a.mtu_bytes = options.b.mtu_bytes = 65'535;
    options.a.device.local_direct = options.b.device.local_direct = direct;
    return options;
  }
  Writers(bool direct, std::size_t count) : world(options(direct)) {
    qp::Config deep = plain();
    deep.send_depth = 1024;
    for (std::size_t i = 0; i < count; ++i) {
      pairs.push_back(sim::connect(world, deep, plain(), static_cast<std::uint16_t>(7471 + i)));
      REQUIRE(pairs.back().established);
    }
    world.run_for(milliseconds(10));
  }
  void write(std::size_t stream, std::uint32_t size, int times) {
    qp::WorkRequest request = from.read(to, size);
    request.opcode = qp::Opcode::write;
    request.signaled = false;
    for (int i = 0; i < times; ++i) world.a.post_send(*pairs[stream].a, request);
  }
  std::uint64_t written(std::size_t stream) const { return pairs[stream].a->qp->counters().bytes_out; }

  World world;
  Memory from{world.a, 1u << 16}, to{world.b, 1u << 16};
  std::vector<sim::Connected> pairs;
};

}  // namespace

TEST_CASE("a turn sends so many octets, however many streams have long messages", "[core][local]") {
  constexpr std::size_t kStreams = 64;
  constexpr int kTurns = 32;
  const bool direct = GENERATE(false, true);
  CAPTURE(direct);
  Writers w(direct, kStreams);
  for (std::size_t i = 0; i < kStreams; ++i) w.write(i, 1u << 16, 100);
  const auto written = [&] {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < kStreams; ++i) all += w.written(i);
    return all;
  };
  const std::uint64_t before = written();
  for (int turn = 0; turn < kTurns; ++turn) w.world.a.turn();
  const std::uint64_t a_turn = (written() - before) / kTurns;
  // Of so many streams what goes from memory to memory costs a quarter.
  CHECK(a_turn <= (direct ? 4u * 256 + 64 : 256u + 64) * 1024);
  CHECK(a_turn >= (direct ? 4u * 64 : 64u) * 1024);
}

TEST_CASE("streams with long messages and streams with short ones get the same octets", "[core][local]") {
  constexpr std::size_t kStreams = 16;
  const bool direct = GENERATE(false, true);
  CAPTURE(direct);
  Writers w(direct, kStreams);
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (i % 2 == 0)
      w.write(i, 1u << 16, 60);
    else
      w.write(i, 1u << 12, 960);
  }
  std::uint64_t before[2]{}, written[2]{};
  for (std::size_t i = 0; i < kStreams; ++i) before[i % 2] += w.written(i);
  w.world.run_until(
      [&] {
        written[0] = written[1] = 0;
        for (std::size_t i = 0; i < kStreams; ++i) written[i % 2] += w.written(i);
        return written[0] + written[1] >= before[0] + before[1] + 16u * 1024 * 1024;
      },
      seconds(10));
  const std::uint64_t longs = written[0] - before[0], shorts = written[1] - before[1];
  CAPTURE(longs, shorts);
  CHECK(longs + shorts >= 16u * 1024 * 1024);
  CHECK(longs * 4 >= shorts * 3);
  CHECK(shorts * 4 >= longs * 3);
}

TEST_CASE("W-RDMAP-55: a stream's places for inbound Reads are its own: another's peer cannot use them up",
          "[core][W-RDMAP-55][V-SEC-01]") {
  World world({});
  const auto greedy = sim::connect(world, plain(), plain(), 7471);
  const auto modest = sim::connect(world, plain(), plain(), 7472);
  REQUIRE(greedy.established);
  REQUIRE(modest.established);
  Memory source(world.b, 1u << 20), sink(world.a, 1u << 20);
  // All that one may have, and answered slowly: they are large.
  for (int i = 0; i < 40; ++i) world.a.post_send(*greedy.a, sink.read(source, 1u << 20));
  world.run_for(microseconds(20));
  for (const qp::Completion& each : greedy.a->host.completions) CHECK(each.status == qp::Status::success);
  REQUIRE(greedy.a->host.completions.size() < 10);  // its Reads are waiting, more of them than it has places
  for (int i = 0; i < 4; ++i) world.a.post_send(*modest.a, sink.read(source, 100));
  REQUIRE(world.run_until([&] { return modest.a->host.completions.size() == 4; }, seconds(1)));
  CHECK(greedy.a->host.completions.size() < 20);
  CHECK(modest.b->qp->state() == qp::State::rts);
  CHECK(world.run_until([&] { return greedy.a->host.completions.size() == 40; }, seconds(60)));
}

TEST_CASE("W-RDMAP-57: of streams that share a receive queue it is seen who takes how much",
          "[core][W-RDMAP-57][V-SEC-16]") {
  World world({});
  qp::Config shared = plain();
  shared.shared_receive = true;
  const auto greedy = sim::connect(world, plain(), shared, 7471);
  const auto modest = sim::connect(world, plain(), shared, 7472);
  REQUIRE(greedy.established);
  REQUIRE(modest.established);
  std::deque<qp::ReceiveRequest> receives(30);
  greedy.b->host.shared_receives = modest.b->host.shared_receives = &receives;
  qp::WorkRequest send;
  send.signaled = true;
  for (int i = 0; i < 25; ++i) world.a.post_send(*greedy.a, send);
  for (int i = 0; i < 3; ++i) world.a.post_send(*modest.a, send);
  REQUIRE(world.run_until([&] { return receives.size() == 2; }, seconds(1)));
  CHECK(greedy.b->qp->counters().sends_in == 25);
  CHECK(modest.b->qp->counters().sends_in == 3);
  CHECK(greedy.b->host.receives_taken == 25);
}

TEST_CASE("W-RDMAP-56: of what a turn can send each stream has its share, however much another one posts",
          "[core][W-RDMAP-56]") {
  World world({});
  std::vector<sim::Connected> greedy;
  for (std::uint16_t port = 7471; port < 7475; ++port) greedy.push_back(sim::connect(world, plain(), plain(), port));
  const auto modest = sim::connect(world, plain(), plain(), 7480);
  Memory source(world.a, 1u << 20), sink(world.b, 1u << 20);
  const auto write = [&](std::uint32_t size) {
    qp::WorkRequest request = source.read(sink, size);
    request.opcode = qp::Opcode::write;
    return request;
  };
  for (const auto& pair : greedy) {
    REQUIRE(pair.established);
    for (int i = 0; i < 100; ++i) world.a.post_send(*pair.a, write(1u << 20));
  }
  world.run_for(milliseconds(1));
  const auto done = [&] {
    std::size_t all = 0;
    for (const auto& pair : greedy) all += pair.a->host.completions.size();
    return all;
  };
  const std::size_t before = done();
  world.a.post_send(*modest.a, write(64 * 1024));
  REQUIRE(world.run_until([&] { return !modest.a->host.completions.empty(); }, seconds(1)));
  CHECK(done() - before < 20);  // of 400 that stood before it
}

TEST_CASE("W-RDMAP-63: a stream that has to go slow ways is seen, and an administrator can end it",
          "[core][W-RDMAP-63][V-SEC-19][V-SEC-20]") {
  World world({});
  const auto slow = sim::connect(world, plain(), plain(), 7471);
  const auto well = sim::connect(world, plain(), plain(), 7472);
  REQUIRE(slow.established);
  REQUIRE(well.established);
  Memory source(world.b, 1u << 20), sink(world.a, 1u << 20);
  sim::LinkOptions bad;
  bad.loss_per_1000 = 100;
  world.b_to_a.set_options(bad);
  world.a.post_send(*slow.a, sink.read(source, 500'000));
  REQUIRE(world.run_until([&] { return !slow.a->host.completions.empty(); }, seconds(60)));
  world.b_to_a.set_options({});
  const auto of_slow = info_of(world, slow.a->stream), of_well = info_of(world, well.a->stream);
  CHECK(of_slow.tcp.out_of_order > 5);
  CHECK(of_well.tcp.out_of_order == 0);
  CHECK(of_slow.qp_number == slow.a->qp->config().number.value);
  REQUIRE(world.a.device.kill(slow.a->stream, world.clock.now));
  world.run_for(milliseconds(10));
  CHECK(slow.a->qp->state() == qp::State::error);
  CHECK(slow.b->qp->state() == qp::State::error);
  CHECK(well.a->qp->state() == qp::State::rts);
}
