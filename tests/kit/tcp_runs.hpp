// What a port makes of a run of segments: each by itself, as a wire has it.
#pragma once

#include <algorithm>

#include "tcp/segment.hpp"

namespace rnic::test {

// take(segment) for each, in order; for what is no run, once. They hold no buffer.
template <typename F>
void each_segment(const tcp::SegmentOut& out, F&& take) {
  const std::size_t unit = out.unit_bytes != 0 ? out.unit_bytes : out.payload.size();
  std::size_t at = 0;
  do {
    tcp::SegmentOut one;
    one.header = out.header;
    one.header.sequence += static_cast<std::uint32_t>(at);
    one.may_be_marked = out.may_be_marked;
    one.payload = out.payload.subspan(at, std::min(unit, out.payload.size() - at));
    at += one.payload.size();
    take(one);
  } while (at < out.payload.size());
}

}  // namespace rnic::test
