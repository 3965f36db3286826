// The listeners of a device: address, port, backlog, and how many of their connections await an answer, or have not
// asked for one yet.
//
// Owned by one worker; looked at once per SYN.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::core {

struct Listener {
  wire::IpAddress address;  // 0.0.0.0: all of IPv4; ::, all of the device, or of IPv6
  bool v6_only = false;
  std::uint16_t port = 0;
  std::uint32_t backlog = 0;
  std::uint32_t pending = 0;    // have asked, and are neither accepted nor rejected yet
  std::uint32_t silent = 0;     // connected, and have not asked, or asked when the backlog was full
  std::uint32_t half_open = 0;  // may become pending
  std::uint64_t cookie = 0;
  bool open = false;
  Instant closed_at = kNever;
  bool serving = false;  // closed: connections to its port still lived at looked_at
  Instant looked_at = kNever;

  bool has_room() const { return pending < backlog; }

  bool covers(const wire::IpAddress& other) const {
    if (address == other) return true;
    if (!address.is_unspecified()) return false;
    return address.is_v4() ? other.is_v4() : !v6_only || other.is_v6();
  }
};

class Listeners {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  // Who connects and asks nothing costs no place in the backlog, but memory: so many of a listener, and the oldest goes.
  static constexpr std::uint32_t kSilentMax = 256;
  // As the kernel's rdma_cm has it: 0 and what is more mean this.
  static constexpr std::uint32_t kBacklogMax = 1024;
  // So long after its end a listener's port is not said to be nobody's: a server that closes one and
  // opens the next at once (perftest does, for its second connection) loses no caller in between. The
  // caller's SYN comes again.
  static constexpr Duration kAfterlife = milliseconds(250);
  // And so long while connections to the port live: that server is at work for its first callers.
  static constexpr Duration kAfterlifeServing = seconds(3);
  static constexpr Duration kLookAgain = milliseconds(10);

  // kNone: somebody listens there already. `v6_only`: of ::, not IPv4 too.
  std::uint32_t open(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog, std::uint64_t cookie,
                     bool v6_only = false) {
    const Listener wanted{.address = address, .v6_only = v6_only};
    for (const Listener& other : listeners_)
      if (other.open && other.port == port && (other.covers(address) || wanted.covers(other.address))) return kNone;
    std::uint32_t index = 0;
    // A closed one is used again when none of its connections is left.
    while (index < listeners_.size() && (listeners_[index].open || listeners_[index].pending + listeners_[index].silent > 0)) ++index;
    if (index == listeners_.size()) listeners_.emplace_back();
    listeners_[index] = {.address = address,
                         .v6_only = v6_only,
                         .port = port,
                         .backlog = backlog > 0 && backlog < kBacklogMax ? backlog : kBacklogMax,
                         .cookie = cookie,
                         .open = true};
    return index;
  }

  std::uint32_t find(const wire::IpAddress& address, std::uint16_t port) const {
    for (std::uint32_t i = 0; i < listeners_.size(); ++i)
      if (const Listener& it = listeners_[i]; it.open && it.port == port && it.covers(address)) return i;
    return kNone;
  }
  // As it was opened.
  std::uint32_t find_exactly(const wire::IpAddress& address, std::uint16_t port) const {
    for (std::uint32_t i = 0; i < listeners_.size(); ++i)
      if (const Listener& it = listeners_[i]; it.open && it.port == port && it.address == address) return i;
    return kNone;
  }
  bool port_taken(std::uint16_t port) const {
    for (const Listener& it : listeners_)
      if (it.open && it.port == port) return true;
    return false;
  }

  Listener& at(std::uint32_t index) { return listeners_[index]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(listeners_.size()); }
  void close(std::uint32_t index, Instant now) {
    listeners_[index].open = false;
    listeners_[index].closed_at = now;
  }
  // May a listener at this port come again? `serves()`: whether connections to the port live; asked for
  // now and then only, whoever sends SYNs.
  template <typename Serves>
  bool closed_just_now(const wire::IpAddress& address, std::uint16_t port, Instant now, Serves&& serves) {
    for (Listener& it : listeners_) {
      if (it.open || it.port != port || it.closed_at == kNever || !it.covers(address)) continue;
      const Duration since = now - it.closed_at;
      if (since < kAfterlife) return true;
      if (since >= kAfterlifeServing) continue;
      if (it.looked_at == kNever || now - it.looked_at >= kLookAgain) {
        it.looked_at = now;
        it.serving = serves();
      }
      if (it.serving) return true;
    }
    return false;
  }

 private:
  std::vector<Listener> listeners_;
};

}  // namespace rnic::core
