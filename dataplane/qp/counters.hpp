// What a queue pair counts: RDMAP's, and what its streams and states add.
#pragma once

#include <cstdint>

#include "rdmap/common.hpp"

namespace rnic::qp {

struct QpCounters : rdmap::Counters {
  std::uint64_t fpdus_out = 0, fpdus_in = 0, errors = 0;
  std::uint64_t fpdus_early = 0;  // of these, placed before their turn
  // Messages that went without the stream (qp/local_path.hpp), and octets of the ULPDUs that came so.
  std::uint64_t direct_out = 0, direct_in = 0;
  std::uint64_t direct_bytes_in = 0;
};

}  // namespace rnic::qp
