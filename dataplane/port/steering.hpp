// Which of a device's shards a received frame is for, where its TCP connections are divided among several
// (wire/rss.hpp says how).
//
//   segments of TCP                    their connection's shard
//   what may be about any connection   all: fragments, extension headers in front of what they carry, errors of ICMP,
//                                      and what tells of neighbours and routers
//   everything else                    shard 0, and so what makes no sense
//
// Pure.
#pragma once

#include "base/bytes.hpp"

namespace rnic::port {

struct Steered {
  unsigned shard = 0;
  bool to_all = false;  // to each shard; `shard` is 0
  bool operator==(const Steered&) const = default;
};

// Of a whole Ethernet frame, or a run of TCP segments, from its first octets: nothing behind the headers is looked at.
// Steps over one tag of 802.1Q. `shards`: at least 1.
Steered steer(Bytes frame, unsigned shards);

}  // namespace rnic::port
