// Two RNICs and the wire between them (sim/basic_world.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/addresses.hpp"
#include "sim/basic_world.hpp"
#include "sim/rnic.hpp"

namespace rnic::sim {

struct WorldOptions {
  std::uint64_t seed = 1;
  LinkOptions link;  // both ways
  RnicOptions a, b;
  Duration turn_cost = microseconds(2);
  // In place of the links: the ends of a pair.
  port::Port* wire_a = nullptr;
  port::Port* wire_b = nullptr;
};

// The sides of a world: what `options` leave open is filled in.
RnicOptions options_of_a(const WorldOptions& options);
RnicOptions options_of_b(const WorldOptions& options);

class World : public BasicWorld<Rnic> {
 public:
  explicit World(const WorldOptions& options)
      : BasicWorld(options.link, options.seed, options.turn_cost, options_of_a(options), options.wire_a,
                   options_of_b(options), options.wire_b) {
    a.device.set_mate(b.device);
    b.device.set_mate(a.device);
  }

  // Prints frames as they are sent.
  void trace();

 private:
  Instant start_ = clock.now;
};

// A pair of queue pairs, A's connected to B's, as the initiator; checks nothing.
struct Connected {
  Endpoint* a = nullptr;
  Endpoint* b = nullptr;
  bool established = false;
};
// B listens on `port`, A connects, B accepts; with RoCE faces the stream is acknowledged. Until both are established or
// `limit` is over.
Connected connect(World& world, const qp::Config& a, const qp::Config& b, std::uint16_t port = 7471,
                  Duration limit = seconds(60));

}  // namespace rnic::sim
