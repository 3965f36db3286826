#include "fuzz/target.hpp"

#include <algorithm>
#include <array>

namespace rnic::fuzz {

namespace {
constexpr std::array kTargets{
    Target{"frames", "Ethernet frames into a device with a connection: ARP, IP, ICMP, TCP", run_frames, seeds_frames},
    Target{"tcp-options", "a TCP header with its options, and a connection that believes it", run_tcp_options,
           seeds_tcp_options},
    Target{"icmp", "ICMP messages, and errors about a connection", run_icmp, seeds_icmp},
    Target{"mpa-startup", "MPA Requests and Replies, in any pieces", run_startup, seeds_startup},
    Target{"fpdus", "a stream of FPDUs without markers, in any pieces", run_fpdus, seeds_fpdus},
    Target{"marked-fpdus", "a stream of FPDUs with markers, in any pieces", run_marked_fpdus, seeds_marked_fpdus},
    Target{"messages", "DDP segments and RDMAP messages into a queue pair that works", run_messages, seeds_messages},
    Target{"datagrams", "UDP and group management into a device with queue pairs of type UD", run_datagrams,
           seeds_datagrams},
    Target{"conversation", "a whole device through a program of peers', routers' and applications' acts",
           run_conversation, seeds_conversation},
};
}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find(std::string_view name) {
  const auto found = std::find_if(kTargets.begin(), kTargets.end(), [&](const Target& t) { return t.name == name; });
  return found == kTargets.end() ? nullptr : &*found;
}

// As an assertion, so that its hook is called.
void finding(const char* claim, const char* file, int line) { assertion_failed(claim, file, line); }

}  // namespace rnic::fuzz
