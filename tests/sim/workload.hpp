// Random work over a random wire, from one seed, with checkers over all of it:
//
//  - octets in memory are the octets sent, and nothing else in memory has changed;
//  - every signalled work request completes exactly once, and completions are in post order;
//  - receives complete in order, with the right length, and behind every RDMA Write that was
//    posted before the Send (V-ORD-05);
//  - memory of a completed work request is not looked at again: the application scribbles over it;
//  - no poller sees a message's last octet before the rest (V-ORD-09);
//  - each stream is told established once, and disconnected once; nothing hangs; no buffer is lost.
//
// And, where it is wished, with an attacker (sim/attacker.hpp): off the path he changes nothing of all
// this; on the path he may end what he likes, and still nothing wrong is placed and nothing is lost.
#pragma once

#include <cstdint>
#include <string>

#include "sim/digest.hpp"

namespace rnic::sim {

struct Report {
  std::uint64_t seed = 0;
  std::string story;      // what the seed chose, in a line
  std::string complaint;  // empty: all is well
  std::uint64_t steps = 0;
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  std::int64_t simulated_us = 0;
  std::uint64_t direct = 0;  // messages that went without the wire
  // What applications saw, each by itself: completions of either queue in their order, events, memory.
  std::uint64_t seen = 0;
  bool in_peace = false;  // all work was done: `seen` is the seed's, by whatever way
};

// Whether both RNICs, as if they were of one worker, let messages go without the wire; then some memory is not mapped,
// and captures come and go.
enum class Way : std::uint8_t { wire, direct };

enum class Danger : std::uint8_t { none, off_path, on_path };

// `mtu_bytes`: in place of the one that the seed chooses; of large buffers there are few then, with every
// other seed.
// `digest`: of every frame, completion, event and change of state, and its time; then nothing is printed.
Report run_workload(std::uint64_t seed, bool verbose = false, Danger danger = Danger::none, std::uint32_t mtu_bytes = 0,
                    Digest* digest = nullptr, Way way = Way::wire);

}  // namespace rnic::sim
