// libfabric, and MPI over it, look in getifaddrs() for the addresses that RDMA devices have, and
// not on "lo". The daemon's addresses belong to no interface of the kernel's, so they are added
// here, asked for anew each time.
#include "ifaddrs.hpp"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.hpp"
#include "client.hpp"
#include "libc.hpp"
#include "lock.hpp"
#include "sysfs.hpp"

namespace rnic::preload {
namespace {

struct Entry {
  ifaddrs head;  // first, so that the list can be followed
  sockaddr_storage address;
  sockaddr_storage netmask;
  char name[RNIC_NAME_MAX];
};

// One answer of append_device_addresses. Found again by its first entry: nothing in an ifaddrs
// could carry a mark.
struct Block {
  Block* next;
  std::size_t count;
  Entry* entries;  // behind the block, in the same allocation
};

Mutex g_mutex;
Block* g_blocks = nullptr;

constexpr std::size_t kDevicesMax = RNIC_MSG_MAX / sizeof(rnic_device_info);
constexpr std::size_t kAddressesMax = sizeof(rnic_device_info::addresses) / sizeof(rnic_address);

// rnic_list_devices_reply, with room.
struct DeviceList {
  std::uint32_t count;
  std::uint32_t reserved;
  rnic_device_info devices[kDevicesMax];
};
constexpr std::size_t kListHead = offsetof(rnic_list_devices_reply, devices);
static_assert(offsetof(DeviceList, devices) == kListHead);

bool list_devices(DeviceList& list) {
  const Connected made = connect_to_daemon(RNIC_CLIENT_CM, settings().device);
  if (made.error != 0) return false;
  Call call{.type = RNIC_LIST_DEVICES, .reply = &list, .reply_room = sizeof list};
  const int error = exchange(made.fd, call);
  libc().close(made.fd);
  if (error != 0) return false;
  const std::size_t whole = (call.reply_size - kListHead) / sizeof(rnic_device_info);
  if (list.count > whole) list.count = static_cast<std::uint32_t>(whole);
  return true;
}

// A device in mode `shared` has the address of a kernel interface, which is listed already.
bool is_listed(const ifaddrs* list, const rnic_address& address) {
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr == nullptr || (list->ifa_flags & IFF_LOOPBACK) != 0) continue;
    rnic_address other{};
    if (!to_daemon(list->ifa_addr, other)) continue;
    if (other.family == address.family && memcmp(other.octets, address.octets, 16) == 0) {
      return true;
    }
  }
  return false;
}

rnic_address netmask_of(const rnic_address& address, unsigned prefix_length) {
  rnic_address mask{};
  mask.family = address.family;
  for (unsigned bit = 0; bit < prefix_length && bit < 128; ++bit) {
    mask.octets[bit / 8] = static_cast<std::uint8_t>(mask.octets[bit / 8] | 0x80u >> bit % 8);
  }
  return mask;
}

void fill(Entry& entry, const rnic_device_info& device, std::size_t index) {
  rnic_address address = device.addresses[index];
  address.port = 0;
  const rnic_address mask = netmask_of(address, device.prefix_lengths[index]);
  from_daemon(address, &entry.address, sizeof entry.address);
  from_daemon(mask, &entry.netmask, sizeof entry.netmask);
  memcpy(entry.name, device.name, sizeof entry.name - 1);
  entry.head.ifa_name = entry.name;
  entry.head.ifa_flags = IFF_UP | IFF_RUNNING;
  entry.head.ifa_addr = reinterpret_cast<sockaddr*>(&entry.address);
  entry.head.ifa_netmask = reinterpret_cast<sockaddr*>(&entry.netmask);
}

}  // namespace

void append_device_addresses(ifaddrs*& list) {
  const NoCancel no_cancel;
  DeviceList devices{};
  if (!settings().active || !list_devices(devices)) return;
  const std::size_t room = devices.count * kAddressesMax;
  auto* const block = static_cast<Block*>(calloc(1, sizeof(Block) + room * sizeof(Entry)));
  if (block == nullptr) return;
  block->entries = reinterpret_cast<Entry*>(block + 1);

  for (std::size_t d = 0; d < devices.count; ++d) {
    const rnic_device_info& device = devices.devices[d];
    for (std::size_t a = 0; a < device.address_count && a < kAddressesMax; ++a) {
      if (sockaddr_size(device.addresses[a].family) == 0) continue;
      if (is_listed(list, device.addresses[a])) continue;
      Entry& entry = block->entries[block->count];
      fill(entry, device, a);
      if (block->count > 0) block->entries[block->count - 1].head.ifa_next = &entry.head;
      ++block->count;
    }
  }
  if (block->count == 0) {
    free(block);
    return;
  }
  ifaddrs** end = &list;
  while (*end != nullptr) end = &(*end)->ifa_next;
  *end = &block->entries[0].head;
  const Locked locked(g_mutex);
  block->next = g_blocks;
  g_blocks = block;
}

ifaddrs* remove_device_addresses(ifaddrs* list) {
  const Locked locked(g_mutex);
  if (g_blocks == nullptr) return list;
  for (ifaddrs** place = &list; *place != nullptr; place = &(*place)->ifa_next) {
    for (Block** block = &g_blocks; *block != nullptr; block = &(*block)->next) {
      Block* const found = *block;
      if (*place != &found->entries[0].head) continue;
      *place = nullptr;
      *block = found->next;
      free(found);
      return list;
    }
  }
  return list;
}

}  // namespace rnic::preload
