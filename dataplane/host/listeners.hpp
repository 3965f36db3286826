// The listeners of a device: address, port, backlog, and how many of their connections await an answer, or have not
// asked for one yet.
//
// Found by address and port, however many there are: an application may have as many as there are ports, and they
// must cost nobody else's callers anything.
//
// Owned by one worker; looked at once per SYN.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::host {

struct Listener {
  wire::IpAddress address;  // 0.0.0.0: all of IPv4; ::, all of the device, or of IPv6
  bool v6_only = false;
  std::uint16_t port = 0;
  std::uint32_t backlog = 0;
  std::uint32_t pending = 0;       // have asked, and are neither accepted nor rejected yet
  std::uint32_t not_admitted = 0;  // connected, and have not asked, or asked when the backlog was full
  std::uint32_t half_open = 0;     // may become pending
  std::uint64_t cookie = 0;
  bool open = false;
  Instant closed_at = kNever;

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
  // Who connects and asks nothing costs no place in the backlog, but memory: so many of a listener, and the oldest
  // goes; and of all listeners an eighth of the streams, where one that has more than a few ends its own.
  static constexpr std::uint32_t kSilentMax = 256;
  static constexpr std::uint32_t kSilentFew = 32;
  // As the kernel's rdma_cm has it: 0 and what is more mean this.
  static constexpr std::uint32_t kBacklogMax = 1024;
  // So long after its end a listener's port is not said to be nobody's: a server that closes one and
  // opens the next at once (perftest does, for its second connection) loses no caller in between. The
  // caller's SYN comes again.
  static constexpr Duration kAfterlife = milliseconds(250);
  // And so long while connections to the port are served: that server is at work for its first callers.
  static constexpr Duration kAfterlifeServing = seconds(3);

  // kNone: somebody listens there already. `v6_only`: of ::, not IPv4 too.
  std::uint32_t open(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog, std::uint64_t cookie,
                     bool v6_only = false) {
    if (taken(address, port, v6_only)) return kNone;
    std::uint32_t index = size();
    if (unused_.empty()) {
      listeners_.emplace_back();
    } else {
      index = unused_.front();
      unused_.pop_front();
      const auto old = closed_.find(name_of(listeners_[index]));
      if (old != closed_.end() && old->second == index) closed_.erase(old);
    }
    listeners_[index] = {.address = address,
                         .v6_only = v6_only,
                         .port = port,
                         .backlog = backlog > 0 && backlog < kBacklogMax ? backlog : kBacklogMax,
                         .cookie = cookie,
                         .open = true};
    open_.emplace(Name{port, address}, index);
    ++(address.is_v4() ? ports_[port].v4 : ports_[port].v6);
    return index;
  }

  std::uint32_t find(const wire::IpAddress& address, std::uint16_t port) const {
    std::uint32_t found = kNone;
    any_that_covers(open_, address, port, [&](std::uint32_t index) {
      found = index;
      return true;
    });
    return found;
  }
  // As it was opened.
  std::uint32_t find_exactly(const wire::IpAddress& address, std::uint16_t port) const {
    const auto found = open_.find({port, address});
    return found == open_.end() ? kNone : found->second;
  }
  bool port_taken(std::uint16_t port) const { return ports_.contains(port); }

  Listener& at(std::uint32_t index) { return listeners_[index]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(listeners_.size()); }
  void close(std::uint32_t index, Instant now) {
    Listener& it = listeners_[index];
    it.open = false;
    it.closed_at = now;
    const auto count = ports_.find(it.port);
    --(it.address.is_v4() ? count->second.v4 : count->second.v6);
    if (count->second.v4 + count->second.v6 == 0) ports_.erase(count);
    auto named = open_.extract(name_of(it));
    closed_.erase(named.key());  // one before it at this place
    closed_.insert(std::move(named));
    on_connection_gone(index);
  }
  // It has one pending or not admitted less. A closed one that has none left is used again.
  void on_connection_gone(std::uint32_t index) {
    const Listener& it = listeners_[index];
    if (!it.open && it.pending + it.not_admitted == 0) unused_.push_back(index);
  }
  // May a listener at this port come again? `served`: whether connections to the port are served.
  bool closed_just_now(const wire::IpAddress& address, std::uint16_t port, Instant now, bool served) const {
    return any_that_covers(closed_, address, port, [&](std::uint32_t index) {
      return now - listeners_[index].closed_at < (served ? kAfterlifeServing : kAfterlife);
    });
  }

 private:
  struct Name {
    std::uint16_t port = 0;
    wire::IpAddress address;
    auto operator<=>(const Name&) const = default;
  };
  // A tree: nobody who chooses addresses and ports can make it slow.
  using ByName = std::map<Name, std::uint32_t>;
  struct AtPort {
    std::uint32_t v4 = 0, v6 = 0;
  };

  static Name name_of(const Listener& listener) { return {listener.port, listener.address}; }

  // The address itself, and what it may be meant by: 0.0.0.0 or ::.
  template <typename Is>
  bool any_that_covers(const ByName& among, const wire::IpAddress& address, std::uint16_t port, Is&& is) const {
    const auto named = [&](const wire::IpAddress& by) {
      const auto found = among.find({port, by});
      return found != among.end() && listeners_[found->second].covers(address) && is(found->second);
    };
    const wire::IpAddress any_v4 = wire::IpAddress::v4(0), any;
    return named(address) || (address != any_v4 && address.is_v4() && named(any_v4)) || (address != any && named(any));
  }
  bool taken(const wire::IpAddress& address, std::uint16_t port, bool v6_only) const {
    const auto at_port = ports_.find(port);
    if (at_port == ports_.end()) return false;
    if (find(address, port) != kNone) return true;
    if (!address.is_unspecified()) return false;
    if (address.is_v4()) return at_port->second.v4 > 0;
    return at_port->second.v6 > 0 || (!v6_only && at_port->second.v4 > 0);
  }

  std::vector<Listener> listeners_;
  ByName open_, closed_;                   // closed: the last at its place, until it is used again
  std::map<std::uint16_t, AtPort> ports_;  // where any is open
  std::deque<std::uint32_t> unused_;       // closed, without connections: the longest closed first
};

}  // namespace rnic::host
