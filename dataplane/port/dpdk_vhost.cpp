#include "port/dpdk_vhost.hpp"

#include <linux/limits.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_pause.h>
#include <rte_vhost.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace rnic::port {
namespace {

// <linux/virtio_net.h> has them, which no C++ compiler takes.
constexpr unsigned kGuestChecksum = 1, kGuestTcp4 = 7, kGuestTcp6 = 8;
constexpr std::uint64_t kWanted =
    std::uint64_t{1} << kGuestChecksum | std::uint64_t{1} << kGuestTcp4 | std::uint64_t{1} << kGuestTcp6;

constexpr int kGuestsMax = 64;  // of a process; numbers are given from 0 on

// What the guest at a socket has agreed to; 0: there is none. In vhost's thread, which alone makes and ends guests.
std::uint64_t features_at(const std::string& socket) {
  // A number that nobody has is an error to it each time.
  constexpr const char* kLog = "lib.vhost.config";
  const int type = rte_log_register(kLog);
  const int level = type >= 0 ? rte_log_get_level(static_cast<std::uint32_t>(type)) : -1;
  rte_log_set_level_pattern(kLog, RTE_LOG_CRIT);
  std::uint64_t features = 0;
  for (int guest = 0; guest < kGuestsMax; ++guest) {
    char at[PATH_MAX];
    if (rte_vhost_get_ifname(guest, at, sizeof at) == 0 && socket == at) {
      if (rte_vhost_get_negotiated_features(guest, &features) != 0) features = 0;  // the last one is the driver's
    }
  }
  if (level >= 0) rte_log_set_level_pattern(kLog, static_cast<std::uint32_t>(level));
  return features;
}

}  // namespace

std::unique_ptr<VhostGuest> VhostGuest::follow(std::uint16_t ethdev, const std::string& arguments) {
  constexpr std::string_view kKey = "iface=";
  auto at = arguments.find(kKey);
  if (at == std::string::npos || (at != 0 && arguments[at - 1] != ',')) return nullptr;
  at += kKey.size();
  return std::unique_ptr<VhostGuest>(new VhostGuest(ethdev, arguments.substr(at, arguments.find(',', at) - at)));
}

VhostGuest::VhostGuest(std::uint16_t ethdev, std::string socket) : ethdev_(ethdev), socket_(std::move(socket)) {
  rte_eth_dev_callback_register(ethdev_, RTE_ETH_EVENT_INTR_LSC, on_link, this);
}

// While it is being called, it is not taken away.
VhostGuest::~VhostGuest() {
  while (rte_eth_dev_callback_unregister(ethdev_, RTE_ETH_EVENT_INTR_LSC, on_link, this) == -EAGAIN) rte_pause();
}

// A guest's queues are open before its link is said to be up, and closed before it is said to be down: between these
// runs are cut for it.
int VhostGuest::on_link(std::uint16_t ethdev, rte_eth_event_type, void* guest, void*) {
  auto* const self = static_cast<VhostGuest*>(guest);
  rte_eth_link link{};
  const bool up = rte_eth_link_get_nowait(ethdev, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
  self->takes_runs_.store(up && (features_at(self->socket_) & kWanted) == kWanted, std::memory_order_relaxed);
  return 0;
}

}  // namespace rnic::port
