// What a seed chooses: the wire, the two RNICs, the work, and how it ends.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sim/random.hpp"
#include "sim/workload.hpp"
#include "sim/world.hpp"

namespace rnic::sim {

enum class Ending : std::uint8_t {
  graceful,       // all work is done; one side disconnects
  destroy_early,  // one side destroys its QP right after its last completion
  abrupt,         // somebody kills, disconnects, resets or destroys in the middle of the work
  blackout,       // the wire goes dead in the middle of the work
};

// The memory that a side's Reads go to, and how its device takes it.
enum class ReadSinks : std::uint8_t { local, open, strict };

struct Choice {
  WorldOptions world;
  unsigned qp_count = 1;
  unsigned ops_max = 20;
  std::uint32_t size_max = 1;
  unsigned sq_depth = 4, rq_depth = 4;
  bool post_early = false;  // receives all at once, before connecting
  bool hold = true;
  Ending ending = Ending::graceful;
  Duration strike{};  // abrupt, blackout: after the first establishment
  unsigned short_ring = 0;
  std::array<ReadSinks, 2> read_sinks{};  // of a, of b
  bool acknowledged = false;              // the streams, as those of RoCE faces are (docs/wire.md s8.1)
};

// Draws all of it, always in the same order: a seed's story stays what it is.
Choice choose(Random& random, std::uint64_t seed);
// The same where there is an attacker, who has chance of his own.
Choice in_danger(Choice choice, Danger danger);
// The same over links of that MTU, if it is not 0.
Choice with_mtu(Choice choice, std::uint64_t seed, std::uint32_t mtu_bytes);
// The same by that way: a wire that goes dead ends nothing that does not use it.
Choice by(Way way, Choice choice);
// In a line.
std::string story_of(const Choice& c);

}  // namespace rnic::sim
