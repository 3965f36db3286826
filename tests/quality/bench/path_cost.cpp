// What a segment of a long Write, and a Write of eight octets, cost in all: two devices joined by a pair of
// MTU 1500 on one thread, timestamps off, memory reached directly. Instructions are counted by
// callgrind (tests/quality/bench/instructions), which looks at measured_turns() alone.
//
//   path-cost segments|writes [number of Writes]
//
// Prints how many of what were counted: "27000 segments".
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "port/pair_port.hpp"
#include "sim/world.hpp"

using namespace rnic;

namespace {

constexpr std::uint32_t kMtuBytes = 1500;
constexpr std::size_t kUnderWay = 32;  // Writes posted and not completed

port::PortOptions port_options(const char* name, std::uint8_t last) {
  port::PortOptions options;
  options.name = name;
  options.mtu_bytes = kMtuBytes;
  options.mac = wire::Mac{2, 0, 0, 0, 0, last};
  return options;
}

sim::WorldOptions world_options(port::Port& a, port::Port& b) {
  sim::WorldOptions options;
  options.wire_a = &a;
  options.wire_b = &b;
  options.a.address = sim::kAddressA;
  options.b.address = sim::kAddressB;
  options.a.mac = a.facts().mac;
  options.b.mac = b.facts().mac;
  options.a.mtu_bytes = options.b.mtu_bytes = kMtuBytes;
  options.a.device.tcp.timestamps = options.b.device.tcp.timestamps = false;
  return options;
}

qp::Config config() {
  qp::Config config;
  config.access = tpt::Rights::remote_write;
  config.ird = config.ord = 1;
  return config;
}

// `count` Writes like this one; both sides take turns, as their worker lets them.
void turns(sim::World& world, sim::Endpoint& a, const qp::WorkRequest& request, std::size_t count) {
  std::size_t posted = 0;
  const std::size_t before = a.host.completions.size();
  while (a.host.completions.size() - before < count) {
    for (; posted < count && posted - (a.host.completions.size() - before) < kUnderWay; ++posted)
      world.a.post_send(a, request);
    world.a.turn();
    world.b.turn();
    world.clock.now = world.clock.now + microseconds(2);
  }
}

}  // namespace

// By this name for callgrind.
[[gnu::noinline]] void measured_turns(sim::World& world, sim::Endpoint& a, const qp::WorkRequest& request,
                                      std::size_t count) {
  turns(world, a, request, count);
}

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what != "segments" && what != "writes") {
    std::fprintf(stderr, "usage: path-cost segments|writes [number of Writes]\n");
    return 2;
  }
  const bool segments = what == "segments";
  const std::size_t count = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : segments ? 400 : 20'000;

  auto wire = std::make_shared<port::PairWire>("path-cost", kMtuBytes, 16'384);
  port::PairPort one(wire, 0, port_options("one", 1));
  port::PairPort other(wire, 1, port_options("other", 2));
  sim::World world(world_options(one, other));
  const sim::Connected pair = sim::connect(world, config(), config());
  if (!pair.established) {
    std::fprintf(stderr, "path-cost: no connection\n");
    return 1;
  }
  std::vector<std::byte> from(64 * 1024), into(from.size());
  const Stag source = world.a.register_memory(from, tpt::Rights::local_read);
  const Stag sink = world.b.register_memory(into, tpt::Rights::local_write | tpt::Rights::remote_write);
  qp::WorkRequest request;
  request.opcode = qp::Opcode::write;
  request.signaled = true;
  request.remote_stag = sink;
  request.remote_to = reinterpret_cast<std::uintptr_t>(into.data());
  request.sge_count = 1;
  request.sges[0].lkey = source;
  request.sges[0].address = reinterpret_cast<std::uintptr_t>(from.data());
  request.sges[0].length = segments ? static_cast<std::uint32_t>(from.size()) : 8;
  pair.a->host.completions.reserve(2 * count + 1000);

  turns(world, *pair.a, request, count);  // the window opens, and everything has been touched once
  // A segment each: several of them can be a frame, where the port has no need to cut it.
  const std::uint64_t before = pair.a->qp->counters().fpdus_out;
  measured_turns(world, *pair.a, request, count);
  for (const qp::Completion& completion : pair.a->host.completions)
    if (completion.status != qp::Status::success) return 1;
  std::printf("%llu %s\n",
              static_cast<unsigned long long>(segments ? pair.a->qp->counters().fpdus_out - before : count),
              what.c_str());
  return 0;
}
