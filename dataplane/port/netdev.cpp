#include "port/netdev.hpp"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>

namespace rnic::port {
namespace {

// A socket to ask by, closed when done.
class Asker {
 public:
  explicit Asker(const std::string& interface) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    std::memset(&request_, 0, sizeof request_);
    interface.copy(request_.ifr_name, sizeof request_.ifr_name - 1);
  }
  ~Asker() {
    if (fd_ >= 0) close(fd_);
  }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  bool ask(unsigned long what) { return fd_ >= 0 && ioctl(fd_, what, &request_) == 0; }
  bool ethtool(void* command) {
    request_.ifr_data = static_cast<char*>(command);
    return ask(SIOCETHTOOL);
  }
  const ifreq& answer() const { return request_; }

 private:
  int fd_;
  ifreq request_;
};

bool switch_off(const std::string& interface, std::uint32_t get, std::uint32_t set, std::uint32_t mask) {
  Asker asker(interface);
  ethtool_value value{get, 0};
  if (!asker.ethtool(&value)) return true;  // it has no such thing
  if ((value.data & mask) == 0) return true;
  value.cmd = set;
  value.data &= ~mask;
  return asker.ethtool(&value);
}

unsigned count_queues(const std::string& interface, __u32 ethtool_channels::*apart) {
  Asker asker(interface);
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  if (!asker.ethtool(&channels)) return 1;
  return std::max(channels.combined_count + channels.*apart, 1u);
}

}  // namespace

std::optional<Netdev> find_netdev(const std::string& interface) {
  Asker asker(interface);
  Netdev found;
  if (!asker.ask(SIOCGIFINDEX)) return std::nullopt;
  found.index = asker.answer().ifr_ifindex;
  if (asker.ask(SIOCGIFHWADDR)) {
    std::memcpy(found.mac.octets.data(), asker.answer().ifr_hwaddr.sa_data, wire::Mac::kSize);
    found.ethernet = asker.answer().ifr_hwaddr.sa_family == ARPHRD_ETHER;
  }
  if (asker.ask(SIOCGIFMTU)) found.mtu_bytes = static_cast<std::uint32_t>(asker.answer().ifr_mtu);
  if (asker.ask(SIOCGIFFLAGS)) {
    found.up = (asker.answer().ifr_flags & IFF_UP) != 0;
    found.carrier = (asker.answer().ifr_flags & IFF_RUNNING) != 0;
  }
  return found;
}

std::vector<KernelAddress> kernel_addresses() {
  std::vector<KernelAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    KernelAddress kernel;
    kernel.interface = each->ifa_name;
    kernel.interface.resize(std::min(kernel.interface.find(':'), kernel.interface.size()));  // a label, eth1:0
    const auto count_bits = [&](const void* octets, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i)
        kernel.prefix_bits += static_cast<unsigned>(std::popcount(static_cast<const std::uint8_t*>(octets)[i]));
    };
    if (each->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address, mask{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      if (each->ifa_netmask != nullptr) std::memcpy(&mask, each->ifa_netmask, sizeof mask);
      kernel.address = wire::IpAddress::v4(ntohl(address.sin_addr.s_addr));
      count_bits(&mask.sin_addr, sizeof mask.sin_addr);
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address, mask{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      if (each->ifa_netmask != nullptr) std::memcpy(&mask, each->ifa_netmask, sizeof mask);
      std::array<std::uint8_t, 16> octets;
      std::memcpy(octets.data(), &address.sin6_addr, sizeof octets);
      kernel.address = wire::IpAddress::from_octets(octets);
      count_bits(&mask.sin6_addr, sizeof mask.sin6_addr);
    } else {
      continue;
    }
    found.push_back(std::move(kernel));
  }
  freeifaddrs(list);
  return found;
}

std::vector<std::string> netdev_and_uppers(const std::string& interface) {
  constexpr std::string_view kUpper = "upper_";
  std::vector<std::string> found{interface};
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::error_code gone;  // an interface that goes meanwhile
    std::filesystem::directory_iterator entry("/sys/class/net/" + found[i], gone);
    for (; !gone && entry != std::filesystem::directory_iterator(); entry.increment(gone)) {
      const std::string name = entry->path().filename();
      if (!name.starts_with(kUpper)) continue;
      const std::string upper = name.substr(kUpper.size());
      if (std::find(found.begin(), found.end(), upper) == found.end()) found.push_back(upper);
    }
  }
  return found;
}

bool netdev_link_up(const std::string& interface, int index) {
  Asker asker(interface);
  if (!asker.ask(SIOCGIFINDEX) || asker.answer().ifr_ifindex != index) return false;
  if (!asker.ask(SIOCGIFFLAGS)) return false;
  constexpr int kBoth = IFF_UP | IFF_RUNNING;
  return (asker.answer().ifr_flags & kBoth) == kBoth;
}

unsigned netdev_queues(const std::string& interface) { return count_queues(interface, &ethtool_channels::rx_count); }
unsigned netdev_send_queues(const std::string& interface) {
  return count_queues(interface, &ethtool_channels::tx_count);
}

bool netdev_is_virtual(const std::string& interface) {
  Asker asker(interface);
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  if (!asker.ethtool(&info) || info.bus_info[0] == '\0') return true;  // no device of any bus
  constexpr std::string_view kGuests[] = {"tun", "virtio_net", "vif", "hv_netvsc", "vmxnet3"};
  return std::find(std::begin(kGuests), std::end(kGuests), std::string_view(info.driver)) != std::end(kGuests);
}

bool stop_merging(const std::string& interface) {
  const bool gro = switch_off(interface, ETHTOOL_GGRO, ETHTOOL_SGRO, ~0u);
  const bool lro = switch_off(interface, ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_LRO);
  return gro && lro;
}

bool keep_tags(const std::string& interface) {
  return switch_off(interface, ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_RXVLAN);
}

int hear_all_groups(const std::string& interface) {
  const int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);  // of no protocol: it receives nothing itself
  if (fd < 0) return -1;
  packet_mreq request{};
  request.mr_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  request.mr_type = PACKET_MR_ALLMULTI;
  if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) == 0) return fd;
  close(fd);
  return -1;
}

int open_link_news() {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -1;
  sockaddr_nl self{};
  self.nl_family = AF_NETLINK;
  self.nl_groups = RTMGRP_LINK;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&self), sizeof self) == 0) return fd;
  close(fd);
  return -1;
}

void read_link_news(int descriptor) {
  char news[8192];
  // ENOBUFS: some were lost; there was news all the same.
  while (recv(descriptor, news, sizeof news, 0) > 0 || errno == EINTR || errno == ENOBUFS) {
  }
}

std::vector<int> sockets_of_family(int family) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == family) found.push_back(fd);
  }
  return found;
}

}  // namespace rnic::port
