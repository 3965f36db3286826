// The application's side of a queue pair that has a state.
#pragma once

#include "kit/rdmap_host.hpp"
#include "qp/work.hpp"

namespace rnic::test {

class QueueHost final : public AppOf<qp::Host> {
 public:
  std::vector<qp::Change> changes;
  std::function<void(const qp::Change&)> on_change;  // after it was noted

  void state_changed(const qp::Change& change) override {
    changes.push_back(change);
    if (on_change) on_change(change);
  }
};

}  // namespace rnic::test
