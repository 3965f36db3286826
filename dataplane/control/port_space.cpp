#include "control/port_space.hpp"

namespace rnic::control {
namespace {

bool overlap(const Binding& a, const Binding& b) {
  if ((a.devices & b.devices) == 0) return false;
  // IPv6 alone and IPv4 do not meet, not even where they are wildcards.
  if ((a.v6_only || b.v6_only) && a.address.is_v4() != b.address.is_v4()) return false;
  return a.address.is_unspecified() || b.address.is_unspecified() || a.address == b.address;
}

}  // namespace

bool PortSpace::conflicts(const Binding& binding, std::uint32_t owner, bool sharing) const {
  const auto [first, last] = by_port_.equal_range(binding.port);
  for (auto at = first; at != last; ++at) {
    const auto& [other, theirs] = at->second;
    if (other == owner || (sharing && binding.reuse && theirs.reuse)) continue;
    if (overlap(binding, theirs)) return true;
  }
  return false;
}

bool PortSpace::bind(std::uint32_t owner, Binding& binding) {
  if (binding.port == 0) return rebind(owner, binding);
  if (conflicts(binding, owner, true)) return false;
  release(owner);
  by_owner_[owner] = by_port_.emplace(binding.port, std::pair{owner, binding});
  return true;
}

bool PortSpace::rebind(std::uint32_t owner, Binding& binding) {
  for (std::uint32_t i = 0; i < kEphemeralCount; ++i) {
    rover_ = (rover_ + 1) % kEphemeralCount;
    const auto port = static_cast<std::uint16_t>(kEphemeralFirst + rover_);
    if (by_port_.contains(port)) continue;
    release(owner);
    binding.port = port;
    by_owner_[owner] = by_port_.emplace(port, std::pair{owner, binding});
    return true;
  }
  return false;
}

bool PortSpace::may_listen(std::uint32_t owner) const {
  const auto found = by_owner_.find(owner);
  if (found == by_owner_.end()) return false;
  return !conflicts(found->second->second.second, owner, false);
}

std::vector<std::uint32_t> PortSpace::owners(std::uint16_t port) const {
  std::vector<std::uint32_t> found;
  const auto [first, last] = by_port_.equal_range(port);
  for (auto at = first; at != last; ++at) found.push_back(at->second.first);
  return found;
}

void PortSpace::release(std::uint32_t owner) {
  const auto found = by_owner_.find(owner);
  if (found == by_owner_.end()) return;
  by_port_.erase(found->second);
  by_owner_.erase(found);
}

}  // namespace rnic::control
