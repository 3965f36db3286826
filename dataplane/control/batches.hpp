// Work of control's that a worker does for many objects, in pieces: between them it serves others.
#pragma once

#include <cstddef>

#include "core/worker.hpp"

namespace rnic::control {

inline constexpr std::size_t kBatch = 64;

// Calls step(element, now) on the worker for each of `all`.
template <typename All, typename Step>
void in_batches(core::Worker& worker, All& all, Step&& step) {
  for (auto at = all.begin(); at != all.end();)
    worker.call([&](Instant now) {
      for (std::size_t i = 0; i < kBatch && at != all.end(); ++i, ++at) step(*at, now);
    });
}

}  // namespace rnic::control
