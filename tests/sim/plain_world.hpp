// Two hosts of TCP/IP with nothing on them, and the wire between them.
#pragma once

#include "kit/plain_host.hpp"
#include "sim/addresses.hpp"
#include "sim/basic_world.hpp"

namespace rnic::sim {

struct PlainNodeOptions {
  wire::IpAddress address;
  std::uint32_t mtu_bytes = 1500;
  std::uint32_t buffers = 2048;
  host::Options host;  // but for addresses and seed
};

struct PlainNode {
  PlainNode(const PlainNodeOptions& options, Clock& its_clock, Link& out, Link& in, test::PlainStreams* streams)
      : address(options.address),
        clock(its_clock),
        port(facts_of(options), pool_size_for(options.buffers, options.mtu_bytes + 64), its_clock, out, in),
        host(options.host, port, *streams) {}

  bool turn() { return host.turn(clock.now); }
  Instant next_deadline() const { return std::min(host.next_deadline(), port.next_arrival()); }
  bool idle() const { return host.idle(); }

  static port::PortFacts facts_of(const PlainNodeOptions& options) {
    port::PortFacts facts;
    facts.kind = facts.name = "sim";
    facts.mac = wire::Mac{{2, 0, 0, 0, 0, static_cast<std::uint8_t>(options.address.octets()[15])}};
    facts.mtu_bytes = options.mtu_bytes;
    return facts;
  }

  wire::IpAddress address;
  Clock& clock;
  SimPort port;
  test::PlainHost host;
};

struct PlainOptions {
  std::uint64_t seed = 1;
  LinkOptions link;  // both ways
  PlainNodeOptions a{.address = kAddressA, .host = {.streams_max = 256}};
  PlainNodeOptions b{.address = kAddressB, .host = {.streams_max = 256}};
};

class PlainWorld : public BasicWorld<PlainNode> {
 public:
  PlainWorld(const PlainOptions& options, test::PlainStreams& a, test::PlainStreams& b)
      : BasicWorld(options.link, options.seed, microseconds(2), with(options.a, options.seed * 4 + 3), &a,
                   with(options.b, options.seed * 4 + 4), &b) {}

 private:
  static PlainNodeOptions with(PlainNodeOptions options, std::uint64_t seed) {
    const bool v4 = options.address.is_v4();
    options.host.addresses = {{options.address, v4 ? std::uint8_t{24} : std::uint8_t{64}}};
    options.host.link_local = !v4;
    options.host.seed = seed;
    return options;
  }
};

}  // namespace rnic::sim
