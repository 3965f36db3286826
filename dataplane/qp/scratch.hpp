// Room for what lasts no longer than a call of a queue pair's: one for all queue pairs of a worker, handed to each.
#pragma once

#include <array>
#include <cstddef>

#include "base/bytes.hpp"
#include "mpa/framer.hpp"

namespace rnic::qp {

struct Scratch {
  // Spans looked at in one call. An FPDU lies in fewer, unless its sender cuts it into segments of a
  // few octets.
  static constexpr std::size_t kReadableMax = 4096;
  static constexpr std::size_t kRunMax = 1024;

  std::array<Bytes, kReadableMax> readable;
  std::array<Bytes, kRunMax> run;  // of one run of octets beyond a gap
  mpa::SpanList ahead;             // an FPDU's ULPDU, out of its turn
};

}  // namespace rnic::qp
