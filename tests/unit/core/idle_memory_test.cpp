// What a connection holds while nothing comes or goes.
#include "kit/allocations.hpp"
#include "kit/catch.hpp"
#include "sim/world.hpp"

using namespace rnic;
using sim::World;
using sim::WorldOptions;

namespace {

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  config.send_depth = 16;
  return config;
}

// Writes of many segments, and a few that stay unfinished: every queue has been long.
void talk(World& world, sim::Endpoint& from, std::uint64_t at, Stag local, std::uint64_t to, Stag remote) {
  const std::size_t before = from.host.completions.size();
  for (int i = 0; i < 16; ++i) {
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    write.signaled = true;
    write.sge_count = 1;
    write.sges[0] = {at, 64 * 1024, local};
    write.remote_stag = remote;
    write.remote_to = to;
    world.a.post_send(from, write);
  }
  REQUIRE(world.run_until([&] { return from.host.completions.size() == before + 16; }));
}

}  // namespace

TEST_CASE("a connection that is silent for a second holds little, and what it held comes back when it speaks",
          "[core][idle]") {
  WorldOptions options;
  options.link.delay = microseconds(500);
  options.link.loss_per_1000 = 20;  // what comes beyond gaps has a queue, too
  World world(options);
  std::vector<std::byte> source(64 * 1024, std::byte{7}), target(64 * 1024);
  const Stag from = world.a.register_memory(source, tpt::Rights::local_read);
  const Stag to = world.b.register_memory(target, tpt::Rights::local_write | tpt::Rights::remote_write);
  const auto address = [](const std::vector<std::byte>& v) { return reinterpret_cast<std::uintptr_t>(v.data()); };
  constexpr int kPairs = 20;
  std::vector<sim::Connected> pairs;
  const std::uint64_t before = test::allocated_bytes();
  for (int i = 0; i < kPairs; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain()));
    REQUIRE(pairs.back().established);
    talk(world, *pairs.back().a, address(source), from, address(target), to);
  }
  const std::uint64_t busy = test::allocated_bytes();
  world.run_for(seconds(10));
  const std::uint64_t idle = test::allocated_bytes();
  const std::uint64_t each = (idle - before) / (2 * kPairs);
  CAPTURE(each, (busy - before) / (2 * kPairs));
  CHECK(idle < busy);
  // Stream, TCP and queue pair, with what the simulator's application keeps.
  CHECK(each < 16 * 1024);

  std::fill(target.begin(), target.end(), std::byte{0});
  for (const sim::Connected& pair : pairs) talk(world, *pair.a, address(source), from, address(target), to);
  world.run_for(seconds(1));
  CHECK(target == source);
}

TEST_CASE("so does one whose messages go without the wire, after each time that it spoke", "[core][idle][local]") {
  WorldOptions options;
  options.a.device.local_direct = options.b.device.local_direct = true;
  World world(options);
  std::vector<std::byte> source(100, std::byte{7}), target(100);
  const Stag from = world.a.register_memory(source, tpt::Rights::local_read, PdId{1}, 7, 0, false);
  const Stag to =
      world.b.register_memory(target, tpt::Rights::local_write | tpt::Rights::remote_write, PdId{1}, 7, 0, false);
  qp::Config deep = plain();
  deep.send_depth = 1024;
  const sim::Connected pair = sim::connect(world, deep, plain());
  REQUIRE(pair.established);
  auto& completions = pair.a->host.completions;
  completions.reserve(10'000);
  for (int round = 0; round < 3; ++round) {
    world.run_for(seconds(2));
    const std::uint64_t before = test::allocated_bytes();
    const std::size_t done = completions.size();
    for (int i = 0; i < 1000; ++i) {
      qp::WorkRequest write;
      write.opcode = qp::Opcode::write;
      write.signaled = true;
      write.sge_count = 1;
      write.sges[0] = {reinterpret_cast<std::uintptr_t>(source.data()), 100, from};
      write.remote_stag = to;
      write.remote_to = reinterpret_cast<std::uintptr_t>(target.data());
      world.a.post_send(*pair.a, write);
    }
    REQUIRE(world.run_until([&] { return completions.size() == done + 1000; }));
    REQUIRE(pair.a->qp->counters().direct_out >= 900);
    const std::uint64_t spoken = test::allocated_bytes();
    world.run_for(seconds(2));
    const std::uint64_t silent = test::allocated_bytes();
    if (round == 0) continue;  // the simulator's application keeps some
    CAPTURE(round, before, spoken, silent);
    CHECK(spoken > before + 4096);
    CHECK(silent < before + 1024);
  }
}

TEST_CASE("what is queued while a direction is shut stays, however long nothing comes or goes", "[core][idle]") {
  const bool towards_peer = GENERATE(true, false);
  CAPTURE(towards_peer);
  World world(WorldOptions{});
  std::vector<std::byte> source(64 * 1024, std::byte{7}), target(64 * 1024);
  const Stag from = world.a.register_memory(source, tpt::Rights::local_read);
  const Stag to = world.b.register_memory(target, tpt::Rights::local_write | tpt::Rights::remote_write);
  const sim::Connected pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  sim::Link& shut = towards_peer ? world.a_to_b : world.b_to_a;
  sim::LinkOptions nothing = shut.options();
  nothing.loss_per_1000 = 1000;
  const sim::LinkOptions open = shut.options();
  shut.set_options(nothing);
  qp::WorkRequest write;
  write.opcode = qp::Opcode::write;
  write.signaled = true;
  write.sge_count = 1;
  write.sges[0] = {reinterpret_cast<std::uintptr_t>(source.data()), 64 * 1024, from};
  write.remote_stag = to;
  write.remote_to = reinterpret_cast<std::uintptr_t>(target.data());
  world.a.post_send(*pair.a, write);
  world.run_for(seconds(20));
  shut.set_options(open);
  CHECK(world.run_until([&] { return target == source && !pair.a->host.completions.empty(); }, seconds(60)));
  CHECK(pair.a->host.completions.size() == 1);
  CHECK(pair.a->host.completions[0].status == qp::Status::success);
}
