// What the kernel says of one of its network interfaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/address.hpp"

namespace rnic::port {

struct Netdev {
  int index = 0;
  wire::Mac mac;
  std::uint32_t mtu_bytes = 0;
  bool up = false;
  bool carrier = false;
  bool ethernet = true;
};
std::optional<Netdev> find_netdev(const std::string& interface);

// Is the interface of that index up, with carrier, and still of that name? Another that has the name since it was
// deleted is not it. Asks the kernel each time.
bool netdev_link_up(const std::string& interface, int index);

// An address that the kernel has, on whichever interface of this network namespace.
struct KernelAddress {
  std::string interface;
  wire::IpAddress address;
  unsigned prefix_bits = 0;
};
std::vector<KernelAddress> kernel_addresses();

// The interface, and those above it that hear what it hears: the bridge or bond that it is of, VLANs on it. As /sys
// shows them, which is of the network namespace in which it was mounted.
std::vector<std::string> netdev_and_uppers(const std::string& interface);

// How many queues share what it receives, and what it sends; 1 where it does not say.
unsigned netdev_queues(const std::string& interface);
unsigned netdev_send_queues(const std::string& interface);

// Is it made of software, or does a hypervisor make it? Then what comes there may not have been on any wire, and its
// sender may have left checksums to hardware that there is none of.
bool netdev_is_virtual(const std::string& interface);

// Frames must come as they were on the wire: merged ones (GRO, LRO) do not fit a buffer. Best
// effort; true if nothing merges now.
bool stop_merging(const std::string& interface);
// Tags of VLANs are to stay in the frames that had them. Best effort, as above.
bool keep_tags(const std::string& interface);

// A descriptor by which, while it is open, the interface hears all multicast; -1 where it is refused.
int hear_all_groups(const std::string& interface);

// A descriptor that is readable when the kernel has something new to say of its interfaces; -1 where it
// is refused. read_link_news() takes all of it: who wants to know what is new asks find_netdev().
int open_link_news();
void read_link_news(int descriptor);

// Descriptors of this process's sockets of one family. A driver opens its own and has no call to name them: the
// difference between two looks does.
std::vector<int> sockets_of_family(int family);

}  // namespace rnic::port
