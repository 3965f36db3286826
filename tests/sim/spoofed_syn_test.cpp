// Found by the simulator's attacker off the path: a SYN from nowhere, with addresses and ports of a
// connection that is being opened, passed for the call of a peer that calls at the same time. The
// real peer's answer then lay outside of the window, or its RST was believed: the connection failed.
#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "sim/workload.hpp"
#include "sim/world.hpp"

using namespace rnic;

namespace {

// A calls B, and hears a SYN of somebody's as from B first. Whether B hears of A's first SYN or not.
bool connects_in_spite_of_it(bool first_syn_is_lost) {
  sim::WorldOptions options;
  options.link.delay = milliseconds(5);
  sim::World world(options);
  if (first_syn_is_lost) {
    // The first frame is A's announcement, or its question who has B's address; ARP is over then.
    world.run_for(milliseconds(50));
  }
  bool spoofed = false;
  world.a_to_b.tap([&](Bytes frame) {
    const auto ip = wire::parse_ipv4(frame.subspan(14));
    if (spoofed || !ip || ip->header.protocol != wire::protocol::kTcp) return;
    const auto tcp = wire::parse_tcp(frame.subspan(14 + ip->header_size));
    if (!tcp || !tcp->header.has(wire::tcp_flags::kSyn)) return;
    spoofed = true;
    const wire::TcpHeader header{.source_port = tcp->header.destination_port,
                                 .destination_port = tcp->header.source_port,
                                 .sequence = 0x12345678,
                                 .flags = wire::tcp_flags::kSyn,
                                 .window = 1000};
    const auto syn = test::frames::tcp(header, sim::kAddressB, sim::kAddressA);
    const wire::EthernetHeader link{.destination = world.a.port.facts().mac, .source = {{2, 0, 0, 0, 0, 0x99}}};
    world.b_to_a.send(test::frames::packet(link, wire::protocol::kTcp, sim::kAddressB, sim::kAddressA, syn),
                      world.clock.now - milliseconds(4));
    if (!first_syn_is_lost) return;
    sim::LinkOptions dead = options.link;
    dead.loss_per_1000 = 1000;
    world.a_to_b.set_options(dead);
  });
  qp::Config config;
  config.ird = config.ord = 4;
  world.application_deadline = [&] { return world.clock.now + microseconds(100); };
  world.application = [&] {
    // The loss is of the one frame.
    if (world.a_to_b.options().loss_per_1000 != 0) world.a_to_b.set_options(options.link);
    return false;
  };
  return sim::connect(world, config, config).established && spoofed;
}

}  // namespace

TEST_CASE("a SYN from nowhere does not keep the real peer's answer out", "[issue]") {
  CHECK(connects_in_spite_of_it(false));
}
TEST_CASE("the RST of a peer that has seen no SYN of ours does not end the call", "[issue]") {
  CHECK(connects_in_spite_of_it(true));
}
TEST_CASE("the seeds that found it", "[issue]") {
  for (const std::uint64_t seed : {48u, 63u, 611u, 1102u})
    CHECK(sim::run_workload(seed, false, sim::Danger::off_path).complaint == "");
}
