// Many flows that begin at once and end in one queue: what congestion control makes of it, in simulated time.
// A part of docs/goodput.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "tcp/options.hpp"

namespace rnic::sim {

// A request to all, and each answers with a Write; when all are there, the next request. All flows are of one device
// on either side, whose own port is no bound; the queue in front of the wire is a switch's.
struct Incast {
  std::uint32_t flows = 32;
  std::uint32_t message_bytes = 65'536;
  unsigned rounds = 100;
  double line_mbps = 10'000;
  Duration round_trip = microseconds(100);
  Duration queue_max = microseconds(240);  // 200 frames of 1500
  Duration mark_above;                     // RFC 8257 s5: 80 us are 65 frames; 0: the switch marks nothing
  std::uint32_t mtu_bytes = 1500;
  tcp::Algorithm congestion = tcp::Algorithm::cubic;
  std::uint64_t seed = 1;
};
struct IncastFigures {
  double mbps = 0;                       // of messages; negative: not all came
  double median_us = 0, longest_us = 0;  // of rounds
  std::uint64_t dropped = 0;             // frames, by the queue
  std::uint64_t retransmitted = 0, timeouts = 0;
};
IncastFigures incast(const Incast& asked);

// Of the page.
std::string incast_page();

}  // namespace rnic::sim
