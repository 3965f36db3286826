// What a daemon may do that its ports do not need, laid down before anything of others is heard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "port/spec.hpp"

namespace rnic::control {

// The capabilities that stay effective with ports of these kinds, as bits by their numbers.
std::uint64_t needed_capabilities(const std::vector<port::PortSpec::Kind>& kinds);

// In this thread, and those that it starts: nothing but `needed` is effective, nothing can be inherited, and no exec
// gives more. What is not needed is not permitted either, but to root: the kernel lets a process be reached only by who
// is permitted all that this one is (ptrace(2)), and a root daemon serves root's. CAP_SYS_PTRACE, which reaches
// others', is effective in no case. Empty, or what went wrong.
std::string lay_down_privileges(std::uint64_t needed);

}  // namespace rnic::control
