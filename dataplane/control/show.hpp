// What `rnic show` prints: the daemon's devices, objects and counters as JSON.
#pragma once

#include <string>
#include <vector>

#include "control/connection_manager.hpp"
#include "control/context.hpp"
#include "control/machine.hpp"
#include "wire/address.hpp"

namespace rnic::control {

// "10.0.0.1:7471", "[2001:db8::1]:7471".
std::string endpoint(const wire::IpAddress& address, std::uint16_t port);
// `what`: dev, port, qp, cq, mr, conn (and cm), cm or stats; empty: all of them.
bool is_shown(const std::string& what);
std::string show_json(Machine& machine, const std::vector<Context*>& contexts, const ConnectionManager& cm,
                      const std::string& what);

}  // namespace rnic::control
