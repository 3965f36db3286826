#include "control/link_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "port/netdev.hpp"

namespace rnic::control {

LinkWatch::LinkWatch(Machine& machine, Loop& loop, std::function<void(const std::string& line)> log)
    : machine_(machine), loop_(loop), log_(std::move(log)) {
  for (const auto& device : machine.devices) mtus_.push_back(device->port_facts().mtu_bytes);
  const bool any = std::any_of(machine.devices.begin(), machine.devices.end(),
                               [](const auto& device) { return !device->port_facts().netdev.empty(); });
  if (!any) return;
  news_ = Descriptor(port::open_link_news());
  if (!news_) return;
  watch_ = loop.add(news_.get(), EPOLLIN, [this](std::uint32_t) {
    port::read_link_news(news_.get());
    look();
  });
}

LinkWatch::~LinkWatch() { loop_.remove(watch_); }

void LinkWatch::look() {
  for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
    ServedDevice& device = *machine_.devices[i];
    const port::PortFacts& facts = device.port_facts();
    if (facts.netdev.empty()) continue;
    const auto netdev = port::find_netdev(facts.netdev);
    if (!netdev) continue;
    // Buffers and rings were made for the MTU at the start.
    const std::uint32_t mtu = std::min(netdev->mtu_bytes, facts.mtu_bytes);
    if (mtu == mtus_[i]) continue;
    mtus_[i] = mtu;
    log_(fmt::format("{}: the MTU of {} is {} now{}", device.name, facts.netdev, netdev->mtu_bytes,
                     mtu < netdev->mtu_bytes ? fmt::format("; {} are used, as at the start", mtu) : ""));
    device.on_each([&](Shard& shard, Instant) { shard.device->set_link_mtu(mtu); });
  }
}

}  // namespace rnic::control
