#include "sim/world.hpp"

#include <algorithm>
#include <cstdio>

namespace rnic::sim {

namespace {
RnicOptions with(RnicOptions options, const wire::IpAddress& address, std::uint8_t last, std::uint64_t seed) {
  if (options.address.is_unspecified()) options.address = address;
  if (options.mac == wire::Mac{}) options.mac = wire::Mac{{2, 0, 0, 0, 0, last}};
  options.seed = seed;
  return options;
}
}  // namespace

RnicOptions options_of_a(const WorldOptions& options) { return with(options.a, kAddressA, 1, options.seed * 4 + 3); }
RnicOptions options_of_b(const WorldOptions& options) { return with(options.b, kAddressB, 2, options.seed * 4 + 4); }

void World::trace() {
  const auto print = [this](const char* way) {
    return [this, way](Bytes frame, Instant now, Link::Fate fate) {
      static constexpr const char* kFate[] = {"", " LOST", " REPEATED", " CORRUPTED"};
      std::printf("%12.3f us %s %s%s\n", static_cast<double>((now - start_).ns) / 1000, way, describe(frame).c_str(),
                  kFate[static_cast<int>(fate)]);
    };
  };
  a_to_b.watch(print("a->b"));
  b_to_a.watch(print("b->a"));
}

Connected connect(World& world, const qp::Config& config_a, const qp::Config& config_b, std::uint16_t port,
                  Duration limit) {
  Connected pair;
  pair.a = &world.a.make_qp(config_a);
  pair.b = &world.b.make_qp(config_b);
  const std::uint64_t cookie_a = 1000 + world.a.endpoints.size(), cookie_b = 2000 + world.b.endpoints.size();
  (void)world.b.device.listen({}, port, 16, cookie_b);
  world.b.on_event = [&](const core::StreamEvent& event) {
    if (event.kind != core::StreamEvent::Kind::connect_request || event.cookie != cookie_b) return;
    pair.b->stream = event.stream;
    (void)world.b.device.accept(event.stream,
                                {.ird = config_b.ird,
                                 .ord = config_b.ord,
                                 .private_data = {},
                                 .cookie = cookie_b,
                                 .acknowledged = config_b.face == Face::roce},
                                *pair.b->qp, world.clock.now);
  };
  core::ConnectOptions wishes;
  wishes.remote = world.b.device.options().addresses[0].address;
  wishes.remote_port = port;
  wishes.ird = config_a.ird;
  wishes.ord = config_a.ord;
  wishes.cookie = cookie_a;
  wishes.acknowledged = config_a.face == Face::roce;
  const auto stream = world.a.device.connect(wishes, *pair.a->qp, world.clock.now);
  if (stream) pair.a->stream = *stream;
  const auto heard = [](const Rnic& rnic, std::uint64_t cookie, core::StreamEvent::Kind kind) {
    return std::any_of(rnic.events.begin(), rnic.events.end(),
                       [&](const core::StreamEvent& e) { return e.cookie == cookie && e.kind == kind; });
  };
  const auto is_up = [&] {
    return heard(world.a, cookie_a, core::StreamEvent::Kind::established) &&
           heard(world.b, cookie_b, core::StreamEvent::Kind::established);
  };
  world.run_until(
      [&] {
        return is_up() || heard(world.a, cookie_a, core::StreamEvent::Kind::failed) ||
               heard(world.a, cookie_a, core::StreamEvent::Kind::rejected);
      },
      limit);
  pair.established = is_up();
  world.b.on_event = nullptr;
  world.b.device.unlisten({}, port, world.clock.now);
  return pair;
}

}  // namespace rnic::sim
