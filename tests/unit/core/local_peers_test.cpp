// Which queue pairs of one worker go without the wire between them, and what that is to others there.
#include <algorithm>
#include <optional>
#include <vector>

#include "kit/catch.hpp"
#include "port/tap.hpp"
#include "sim/world.hpp"

using namespace rnic;
using sim::World;
using sim::WorldOptions;

namespace {

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  return config;
}

WorldOptions direct() {
  WorldOptions options;
  options.a.device.local_direct = options.b.device.local_direct = true;
  return options;
}

struct Memory {
  Memory(sim::Rnic& rnic, std::size_t size, std::byte octet = std::byte{0})
      : octets(size, octet),
        stag(rnic.register_memory(octets, tpt::Rights::local_read | tpt::Rights::local_write |
                                              tpt::Rights::remote_read | tpt::Rights::remote_write)) {}
  std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(octets.data()); }
  std::vector<std::byte> octets;
  Stag stag;
};

qp::WorkRequest request(qp::Opcode opcode, const Memory& own, const Memory& peers, std::uint32_t size) {
  qp::WorkRequest request;
  request.opcode = opcode;
  request.signaled = true;
  request.sge_count = 1;
  request.sges[0] = {own.at(), size, own.stag};
  request.remote_stag = peers.stag;
  request.remote_to = peers.at();
  return request;
}

struct Capture final : port::Tap {
  unsigned frames = 0;
  void on_frame(port::FrameDirection, Bytes) override { ++frames; }
};

std::uint64_t went(const sim::Endpoint& endpoint) { return endpoint.qp->counters().direct_out; }

// A Write arrives; whether it went without the wire.
bool goes_directly(World& world, sim::Connected& pair) {
  Memory from(world.a, 100, std::byte{0x5A}), to(world.b, 100);
  const std::uint64_t before = went(*pair.a);
  const std::size_t done = pair.a->host.completions.size();
  world.a.post_send(*pair.a, request(qp::Opcode::write, from, to, 100));
  REQUIRE(
      world.run_until([&] { return to.octets == from.octets && pair.a->host.completions.size() > done; }, seconds(10)));
  world.run_for(milliseconds(10));
  return went(*pair.a) != before;
}

}  // namespace

TEST_CASE("two ends of one worker go without the wire where both their devices are to", "[core][local]") {
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      WorldOptions options;
      options.a.device.local_direct = a;
      options.b.device.local_direct = b;
      World world(options);
      auto pair = sim::connect(world, plain(), plain());
      REQUIRE(pair.established);
      world.run_for(milliseconds(10));
      CHECK(goes_directly(world, pair) == (a && b));
    }
}

// The nudges of 10,000 connections would be 30,000 segments (qp/gate.hpp: kNudges).
TEST_CASE("who goes without the wire is not nudged by it", "[core][local]") {
  const bool local = GENERATE(false, true);
  World world(local ? direct() : WorldOptions{});
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.run_for(milliseconds(40));
  const std::uint64_t before = world.a_to_b.frames();
  world.run_for(seconds(2));
  CHECK(world.a_to_b.frames() - before == (local ? 0 : 3));
}

TEST_CASE("with markers, which are asked for to have them, there is no other way than the wire", "[core][local]") {
  WorldOptions options = direct();
  options.b.device.markers = mpa::MarkerUse::both;
  World world(options);
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.run_for(milliseconds(10));
  CHECK_FALSE(goes_directly(world, pair));
}

TEST_CASE("a capture at either end sees what is said while it is there", "[core][local][tap]") {
  World world(direct());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.run_for(milliseconds(10));
  CHECK(goes_directly(world, pair));
  for (core::Device* device : {&world.a.device, &world.b.device}) {
    Capture capture;
    device->add_tap(capture);
    CHECK_FALSE(goes_directly(world, pair));
    CHECK(capture.frames != 0);
    device->remove_tap(capture);
    CHECK(goes_directly(world, pair));
  }
}

TEST_CASE("Reads are answered by the other device, which nothing else has woken", "[core][local]") {
  World world(direct());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.run_for(milliseconds(10));
  REQUIRE(goes_directly(world, pair));
  Memory into(world.a, 1u << 20), from(world.b, 1u << 20, std::byte{0x5A});
  const std::uint64_t frames = world.a.device.counters().frames_out + world.b.device.counters().frames_out;
  for (int i = 0; i < 10; ++i) world.a.post_send(*pair.a, request(qp::Opcode::read, into, from, 1u << 20));
  const std::size_t done = pair.a->host.completions.size();
  REQUIRE(world.run_until([&] { return pair.a->host.completions.size() == done + 10; }, seconds(1)));
  CHECK(into.octets == from.octets);
  CHECK(went(*pair.b) == 10);
  CHECK(world.a.device.counters().frames_out + world.b.device.counters().frames_out == frames);
}

TEST_CASE("a device's connections with itself go without frames, and a queue pair with itself by them",
          "[core][local]") {
  World world(direct());
  sim::Rnic& rnic = world.a;
  sim::Endpoint& caller = rnic.make_qp(plain());
  sim::Endpoint& callee = rnic.make_qp(plain());
  REQUIRE(rnic.device.listen({}, 7, 8, 77));
  unsigned established = 0;
  rnic.on_event = [&](const core::StreamEvent& event) {
    if (event.kind == core::StreamEvent::Kind::established) ++established;
    if (event.kind != core::StreamEvent::Kind::connect_request) return;
    REQUIRE(rnic.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *callee.qp,
                               world.clock.now));
  };
  core::ConnectOptions options;
  options.remote = sim::kAddressA;
  options.remote_port = 7;
  options.ird = options.ord = 4;
  REQUIRE(rnic.device.connect(options, *caller.qp, world.clock.now));
  REQUIRE(world.run_until([&] { return established == 2; }, seconds(1)));
  world.run_for(milliseconds(10));
  Memory from(rnic, 100, std::byte{0x5A}), to(rnic, 100);
  rnic.post_send(caller, request(qp::Opcode::write, from, to, 100));
  REQUIRE(world.run_until([&] { return to.octets == from.octets; }, seconds(1)));
  CHECK(went(caller) == 1);

  sim::Endpoint& alone = rnic.make_qp(plain());
  options.itself = true;
  options.local_port = options.remote_port = 9;
  const auto stream = rnic.device.connect(options, *alone.qp, world.clock.now);
  REQUIRE(stream);
  REQUIRE(world.run_until([&] { return alone.qp->gate_open(); }, seconds(1)));
  Memory own(rnic, 100);
  for (int i = 0; i < 3; ++i) rnic.post_send(alone, request(qp::Opcode::write, from, own, 100));
  REQUIRE(world.run_until([&] { return alone.host.completions.size() == 3; }, seconds(1)));
  world.run_for(milliseconds(10));
  CHECK(own.octets == from.octets);
  CHECK(went(alone) == 0);
}

TEST_CASE("one that has more to say than fits a turn leaves the others their share of it", "[core][local]") {
  World world(direct());
  auto greedy = sim::connect(world, plain(), plain(), 7471);
  auto modest = sim::connect(world, plain(), plain(), 7472);
  REQUIRE(greedy.established);
  REQUIRE(modest.established);
  world.run_for(milliseconds(10));
  REQUIRE(goes_directly(world, greedy));
  REQUIRE(goes_directly(world, modest));
  constexpr std::uint32_t kLong = 8u << 20;
  Memory from(world.a, kLong, std::byte{0x5A}), to(world.b, kLong), small(world.a, 100, std::byte{1}),
      other(world.b, 100);
  const std::uint64_t before = greedy.a->qp->counters().bytes_out;
  for (int i = 0; i < 4; ++i) world.a.post_send(*greedy.a, request(qp::Opcode::write, from, to, kLong));
  world.a.turn();
  const std::uint64_t in_a_turn = greedy.a->qp->counters().bytes_out - before;
  CHECK(in_a_turn != 0);
  CHECK(in_a_turn <= 4 * qp::kLocalSegmentMax);  // it was alone
  world.a.post_send(*modest.a, request(qp::Opcode::write, small, other, 100));
  const std::size_t done = modest.a->host.completions.size();
  world.a.turn();
  CHECK(modest.a->host.completions.size() == done + 1);
  CHECK(greedy.a->qp->counters().bytes_out - before - in_a_turn <= 2 * qp::kLocalSegmentMax);
  CHECK(world.run_until([&] { return to.octets == from.octets; }, seconds(10)));
}

TEST_CASE("one that takes the wire, as a capture is there, has its share of a burst and no more",
          "[core][local][tap]") {
  World world(direct());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.run_for(milliseconds(10));
  REQUIRE(goes_directly(world, pair));
  constexpr std::uint32_t kLong = 8u << 20;
  Memory from(world.a, kLong, std::byte{0x5A}), to(world.b, kLong);
  Capture capture;
  world.b.device.add_tap(capture);
  std::uint64_t before = pair.a->qp->counters().bytes_out;
  world.a.post_send(*pair.a, request(qp::Opcode::write, from, to, kLong));
  std::uint64_t most = 0;
  for (int turn = 0; turn < 200; ++turn) {
    world.a.turn();
    const std::uint64_t now = pair.a->qp->counters().bytes_out;
    most = std::max(most, now - before);
    before = now;
    world.run_for(microseconds(100));
    before = pair.a->qp->counters().bytes_out;
  }
  CHECK(most != 0);
  CHECK(most <= 64 * 1024);
  world.b.device.remove_tap(capture);
}

TEST_CASE("a queue pair that is destroyed in the middle is its peer's Terminate, as ever", "[core][local]") {
  World world(direct());
  auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.run_for(milliseconds(10));
  REQUIRE(goes_directly(world, pair));
  const bool of_sender = GENERATE(false, true);
  constexpr std::uint32_t kLong = 1u << 20;
  Memory from(world.a, kLong, std::byte{0x5A}), to(world.b, kLong);
  for (int i = 0; i < 4; ++i) world.a.post_send(*pair.a, request(qp::Opcode::write, from, to, kLong));
  world.a.turn();
  sim::Endpoint& gone = of_sender ? *pair.a : *pair.b;
  sim::Endpoint& left = of_sender ? *pair.b : *pair.a;
  (of_sender ? world.a : world.b).destroy_qp(gone);
  REQUIRE(world.run_until([&] { return left.qp->state() == qp::State::error; }, seconds(10)));
  CHECK(std::ranges::count(left.host.events, qp::Event::terminate_received) == 1);
}
