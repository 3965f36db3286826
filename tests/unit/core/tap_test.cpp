// A tap sees what a device sends and receives, whole and as it is on the wire, and nothing of it changes.
#include <algorithm>
#include <vector>

#include "kit/catch.hpp"
#include "port/tap.hpp"
#include "sim/world.hpp"

using namespace rnic;
using port::FrameDirection;
using sim::World;
using sim::WorldOptions;

namespace {

struct Recorder final : port::Tap {
  void on_frame(FrameDirection direction, Bytes frame) override {
    (direction == FrameDirection::sent ? sent : received).emplace_back(frame.begin(), frame.end());
  }
  std::vector<std::vector<std::byte>> sent, received;
};

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  return config;
}

}  // namespace

TEST_CASE("a tap of one device has sent what the tap of the other has received", "[core][tap]") {
  World world({});
  Recorder a, b;
  world.a.device.add_tap(a);
  world.b.device.add_tap(b);
  REQUIRE(sim::connect(world, plain(), plain()).established);
  world.run_for(seconds(1));
  CHECK(a.sent.size() >= 5);
  CHECK(b.sent.size() >= 3);
  CHECK(a.sent == b.received);
  CHECK(b.sent == a.received);
  CHECK(a.sent.size() == world.a.device.counters().frames_out);
  CHECK(a.received.size() == world.a.device.counters().frames_in);
}

TEST_CASE("several taps see the same, and one that is removed sees no more", "[core][tap]") {
  World world({});
  Recorder first, second, third;
  for (Recorder* tap : {&first, &second, &third}) world.a.device.add_tap(*tap);
  REQUIRE(sim::connect(world, plain(), plain()).established);
  CHECK(first.sent == third.sent);
  CHECK(first.received == second.received);
  const std::size_t before = second.sent.size();
  CHECK(before > 0);
  world.a.device.remove_tap(second);
  world.a.device.remove_tap(second);  // again: nothing happens
  REQUIRE(sim::connect(world, plain(), plain(), 7472).established);
  CHECK(second.sent.size() == before);
  CHECK(first.sent.size() > before);
  CHECK(first.sent == third.sent);
  world.a.device.remove_tap(third);
  world.a.device.remove_tap(first);
  const std::size_t last = first.sent.size();
  REQUIRE(sim::connect(world, plain(), plain(), 7473).established);
  CHECK(first.sent.size() == last);
}

TEST_CASE("a tap sees a frame from a device to itself once, as sent", "[core][tap]") {
  World world({});
  Recorder tap;
  world.a.device.add_tap(tap);
  sim::Endpoint& from = world.a.make_qp(plain());
  core::ConnectOptions options;
  options.remote = sim::kAddressA;
  options.remote_port = 7;
  REQUIRE(world.a.device.connect(options, *from.qp, world.clock.now));
  world.run_for(seconds(1));
  REQUIRE(world.a.device.counters().no_listener == 1);
  const auto tcp = [](const std::vector<std::vector<std::byte>>& frames) {  // ARP besides
    return std::count_if(frames.begin(), frames.end(), [](const auto& frame) { return frame[13] == std::byte{0}; });
  };
  CHECK(tcp(tap.sent) == 2);  // SYN and RST
  CHECK(tcp(tap.received) == 0);
}

TEST_CASE("a tap sees the segments of a run, as the other side receives them", "[core][tap][runs]") {
  WorldOptions options;
  options.a.runs = true;
  World world(options);
  Recorder a, b;
  world.a.device.add_tap(a);
  world.b.device.add_tap(b);
  const sim::Connected pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  std::vector<std::byte> from(20'000, std::byte{7}), into(from.size());
  qp::WorkRequest write;
  write.opcode = qp::Opcode::write;
  write.signaled = true;
  write.remote_stag = world.b.register_memory(into, tpt::Rights::local_write | tpt::Rights::remote_write);
  write.remote_to = reinterpret_cast<std::uintptr_t>(into.data());
  write.sge_count = 1;
  write.sges[0] = {reinterpret_cast<std::uintptr_t>(from.data()), static_cast<std::uint32_t>(from.size()),
                   world.a.register_memory(from, tpt::Rights::local_read)};
  world.a.post_send(*pair.a, write);
  world.run_for(seconds(1));
  CHECK(into == from);
  CHECK(world.a.port.runs() > 0);
  CHECK(world.a.device.counters().frames_out == a.sent.size());
  for (const auto& frame : a.sent) CHECK(frame.size() <= 1514);
  CHECK(a.sent == b.received);
}
