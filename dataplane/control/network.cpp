#include "control/network.hpp"

namespace rnic::control {

using ip::AddressState;

void refresh_network(ServedDevice& device) {
  device.worker->call([&](Instant) {
    device.own = device.device->addresses();
    device.routes = device.device->routes();
  });
}

std::string describe(const ip::OwnAddress& own) {
  std::string text = wire::to_string(own.address) + "/" + std::to_string(own.prefix_bits);
  if (own.state != AddressState::preferred) text += std::string(" ") + ip::name(own.state);
  return text;
}

std::vector<std::string> address_changes(const OwnList& before, const OwnList& after) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const ip::OwnAddress& was = before[i];
    const ip::OwnAddress& is = after[i];
    const bool same = was.state != AddressState::none && is.state != AddressState::none && was.address == is.address;
    if (!same && was.state != AddressState::none) lines.push_back(wire::to_string(was.address) + " is gone");
    if (is.state == AddressState::none) continue;
    const std::string text = wire::to_string(is.address);
    // Conflicts of addresses that were made up anew are told by the new one.
    if (is.conflicts != was.conflicts && is.conflicts != 0) {
      const std::string who = wire::to_string(is.conflict_with);
      if (is.state == AddressState::duplicate || !same)
        lines.push_back((same ? text : wire::to_string(was.address)) + " is taken by " + who + ": it is not used");
      else
        lines.push_back(text + " is ours, but " + who + " claims it too");
    }
    if (same && was.state == is.state) continue;
    switch (is.state) {
      case AddressState::none:
      case AddressState::duplicate:
        break;
      case AddressState::tentative:
        lines.push_back(text + " is being asked for");
        break;
      case AddressState::preferred:
        lines.push_back(text + " is in use");
        break;
      case AddressState::deprecated:
        lines.push_back(text + " is deprecated");
        break;
    }
  }
  return lines;
}

}  // namespace rnic::control
