// Found by the simulator's attacker off the path: a SYN from nowhere, with addresses and ports of a
// connection that is being opened, passed for the call of a peer that calls at the same time. The
// real peer's answer then lay outside of the window, or its RST was believed: the connection failed.
#include "kit/catch.hpp"
#include "sim/workload.hpp"
#include "sim/world.hpp"
#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/tcp.hpp"

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
    wire::TcpHeader header;
    header.source_port = tcp->header.destination_port;
    header.destination_port = tcp->header.source_port;
    header.sequence = 0x12345678;
    header.flags = wire::tcp_flags::kSyn;
    header.window = 1000;
    std::vector<std::byte> segment(wire::header_size(header));
    wire::emit(header, segment);
    store_be(MutableBytes(segment), wire::TcpHeader::kChecksumOffset,
             wire::transport_checksum(sim::kAddressB, sim::kAddressA, wire::protocol::kTcp, segment));
    std::vector<std::byte> out(34);
    wire::emit(wire::EthernetHeader{.destination = world.a.port.facts().mac,
                                    .source = wire::Mac{{2, 0, 0, 0, 0, 0x99}},
                                    .type = wire::ether_type::kIpv4},
               out);
    wire::emit(wire::Ipv4Header{.total_length = static_cast<std::uint16_t>(20 + segment.size()),
                                .protocol = wire::protocol::kTcp,
                                .source = sim::kAddressB,
                                .destination = sim::kAddressA},
               MutableBytes(out).subspan(14));
    out.insert(out.end(), segment.begin(), segment.end());
    world.b_to_a.send(out, world.clock.now - milliseconds(4));
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
