// What `rnic show` prints: the daemon's devices, objects and counters as JSON.
#pragma once

#include <string>
#include <vector>

#include "control/connection_manager.hpp"
#include "control/context.hpp"
#include "control/machine.hpp"

namespace rnic::control {

// `what`: dev, port, qp, cq, mr, conn (and cm), cm or stats; empty: all of them.
bool is_shown(const std::string& what);
std::string show_json(Machine& machine, const std::vector<Context*>& contexts, const ConnectionManager& cm,
                      const std::string& what);

}  // namespace rnic::control
