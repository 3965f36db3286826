// From a configuration to devices on workers.
#pragma once

#include <functional>
#include <string>

#include "control/configuration.hpp"
#include "control/machine.hpp"

namespace rnic::control {

// Opens ports, makes tables, devices and workers, and starts none. Empty, or why it cannot be: one
// sentence for the user. `log` may be called from any thread.
std::string build_machine(const Configuration& configuration, const std::function<void(const std::string&)>& log,
                          Machine& machine);
void start_workers(Machine& machine);
// Waits, for a fifth of a second at most, until the streams of applications that have gone are closed, and
// resets those whose peers have not answered by then; then stops the workers and lets go of devices and ports.
// False: a thread is in a copy that waits for a page of an application's. Then nothing is taken apart,
// and nothing may be: the kernel may still copy into it. The process can end.
bool stop_machine(Machine& machine);

}  // namespace rnic::control
