// The clock that workers and control go by. What decides takes an Instant and never asks.
#pragma once

#include <time.h>

#include <cstdint>

#include "base/time.hpp"

namespace rnic::core {

inline Instant clock_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return {std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

}  // namespace rnic::core
