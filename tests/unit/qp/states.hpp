// What the tests of a queue pair's states and ends begin with.
#pragma once

#include <algorithm>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "qp/state.hpp"

namespace rnic::test {

using Events = std::vector<qp::Event>;

inline std::vector<qp::Status> statuses(const std::vector<qp::Completion>& completions) {
  std::vector<qp::Status> out;
  for (const auto& c : completions) out.push_back(c.status);
  return out;
}

inline void every_modify_is_refused(qp::QueuePair& qp, Instant now, std::vector<qp::State> but = {}) {
  for (const qp::State wanted :
       {qp::State::idle, qp::State::rts, qp::State::closing, qp::State::terminate, qp::State::error}) {
    if (std::find(but.begin(), but.end(), wanted) != but.end()) continue;
    const qp::State before = qp.state();
    const auto done = qp.modify_state(wanted, now);
    REQUIRE_FALSE(done);
    CHECK(done.error() == qp::ModifyError::invalid_state);
    CHECK(qp.state() == before);
  }
}

}  // namespace rnic::test
