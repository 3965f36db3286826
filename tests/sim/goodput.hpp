// What a connection makes of a wire, in simulated time: exact, and the same on every machine.
// docs/goodput.md is made of it by tools/goodput.
#pragma once

#include <string>
#include <vector>

#include "sim/world.hpp"

namespace rnic::sim {

struct GoodputCell {
  Duration delay;  // one way
  std::uint32_t loss_per_1000 = 0;
  std::uint32_t late_per_1000 = 0;  // frames overtaken, by half a millisecond
  std::uint32_t mtu_bytes = 1500;
  std::uint32_t message_bytes = 65536;
  bool cubic = true;
  std::uint64_t seed = 7;
};

inline constexpr double kGoodputLineMbps = 1000;  // the wire's rate, headers and all
inline constexpr std::uint64_t kGoodputBytes = 8 << 20;

// RDMA Writes, 16 at a time, until all octets are at the peer and it has been told. Mbit/s of
// messages; negative: they did not all arrive, or not as they were.
double goodput_mbps(const GoodputCell& cell);

// One flow of RDMA Writes of 1 MiB over a path that is long for its rate, nothing lost but by a full queue, which holds
// a tenth of what the path does.
struct LongPath {
  double line_mbps = 10'000;
  Duration round_trip = milliseconds(50);
  std::uint32_t mtu_bytes = 1500;
  Duration start = seconds(2);
  Duration measured = seconds(10);
  std::uint64_t seed = 1;
};
struct LongPathFigures {
  double start_mbps = 0;  // of messages, in the first part, and in the rest
  double mbps = 0;
  std::uint64_t retransmitted = 0;
};
LongPathFigures long_path(const LongPath& path);

// The median of five seeds.
double goodput_median(GoodputCell cell);

// A path that is long as lateness goes (1 ms one way and more) carries nearly as much where frames overtake each other
// as where none does: who takes late for lost gets half and less.
inline constexpr std::int64_t kJudgedFromUs = 1000;
inline constexpr double kOvertakenShare = 0.8;

// The page; `broken` gets a line for each figure that breaks this rule.
std::string goodput_page(std::vector<std::string>& broken);

}  // namespace rnic::sim
