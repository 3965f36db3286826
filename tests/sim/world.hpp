// Two RNICs and the wire between them, on one thread, from one seed.
//
// Time passes only here: while somebody has something to do, a turn costs a little of it; when
// nobody has, the clock jumps to the next thing that happens.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/rnic.hpp"

namespace rnic::sim {

struct WorldOptions {
  std::uint64_t seed = 1;
  LinkOptions link;  // both ways
  RnicOptions a, b;
  Duration turn_cost = microseconds(2);
  // In place of the links: the ends of a pair.
  port::Port* wire_a = nullptr;
  port::Port* wire_b = nullptr;
};

inline constexpr auto kAddressA = wire::IpAddress::v4(10, 0, 0, 1);
inline constexpr auto kAddressB = wire::IpAddress::v4(10, 0, 0, 2);
// The same in 2001:db8::/64, and as link-local addresses.
wire::IpAddress address_v6(std::uint8_t last);
wire::IpAddress address_link_local(std::uint8_t last);

class World {
 public:
  explicit World(const WorldOptions& options);

  // The applications' part of each step; says whether it did something.
  std::function<bool()> application;
  // When the applications want to be asked again, though nothing happened.
  std::function<Instant()> application_deadline;

  // One step of both sides; time moves on to the next thing that happens, or to `not_beyond`. False:
  // nothing is left that would ever happen.
  bool step(Instant not_beyond = kNever);
  // Until `done`; false when `limit` of simulated time has passed, or nothing happens any more.
  bool run_until(const std::function<bool()>& done, Duration limit = seconds(300));
  // Exactly so long, whatever happens or does not.
  void run_for(Duration time);

  // Prints frames as they are sent.
  void trace();

  Clock clock;
  Link a_to_b, b_to_a;
  Rnic a, b;
  std::uint64_t steps = 0;

 private:
  Duration turn_cost_;
  Instant start_;
};

// A pair of queue pairs, A's connected to B's, as the initiator; checks nothing.
struct Connected {
  Endpoint* a = nullptr;
  Endpoint* b = nullptr;
  bool established = false;
};
// B listens on `port`, A connects, B accepts. Until both are established or `limit` is over.
Connected connect(World& world, const qp::Config& a, const qp::Config& b, std::uint16_t port = 7471,
                  Duration limit = seconds(60));

}  // namespace rnic::sim
