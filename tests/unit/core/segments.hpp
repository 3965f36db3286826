// What strangers say to a device, segment by segment: handshakes, floods; and a call that means it.
#pragma once

#include <algorithm>
#include <string>

#include "kit/catch.hpp"
#include "sim/stranger.hpp"

namespace rnic::test::segments {

using core::StreamEvent;
using sim::Stranger;
using sim::World;
using sim::WorldOptions;
namespace flag = wire::tcp_flags;

inline constexpr std::uint16_t kPort = 7471;

inline wire::TcpHeader syn(std::uint32_t sequence) {
  wire::TcpHeader header;
  header.flags = flag::kSyn;
  header.sequence = sequence;
  header.window = 65535;
  header.mss = 1460;
  header.sack_permitted = true;
  header.window_scale = 7;
  return header;
}

// A whole one, of Revision 1.
inline const std::string kRequest = std::string("MPA ID Req Frame") + std::string{0x40, 1, 0, 0};

// What the peer of `answer`, a SYN-ACK, says next.
inline wire::TcpHeader third(const wire::TcpHeader& answer, std::uint32_t sequence) {
  wire::TcpHeader header;
  header.flags = flag::kAck;
  header.sequence = sequence;
  header.acknowledgement = answer.sequence + 1;
  header.window = 65535;
  return header;
}

inline wire::TcpHeader plain(std::uint8_t flags, std::uint32_t sequence, std::uint32_t acknowledgement = 0) {
  wire::TcpHeader header;
  header.flags = flags;
  header.sequence = sequence;
  header.acknowledgement = acknowledgement;
  header.window = 65535;
  return header;
}

inline qp::Config config() {
  qp::Config config;
  config.ird = config.ord = 4;
  return config;
}

// A's QP dials; B accepts.
inline bool connects(World& world) {
  world.b.on_event = [&](const StreamEvent& event) {
    if (event.kind != StreamEvent::Kind::connect_request) return;
    sim::Endpoint& b = world.b.make_qp(config());
    REQUIRE(world.b.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *b.qp,
                                  world.clock.now));
  };
  world.a.events.clear();
  sim::Endpoint& a = world.a.make_qp(config());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.ird = options.ord = 4;
  if (!world.a.device.connect(options, *a.qp, world.clock.now)) return false;
  return world.run_until(
      [&] {
        return std::any_of(world.a.events.begin(), world.a.events.end(),
                           [](const StreamEvent& e) { return e.kind == StreamEvent::Kind::established; });
      },
      seconds(20));
}

// SYNs from as many different places as there are ports, of each of 200 addresses in turn.
struct Flood {
  std::uint32_t next = 0;
  void send(Stranger& stranger, unsigned count) {
    for (unsigned i = 0; i < count; ++i, ++next) {
      wire::TcpHeader header = syn(next * 77);
      header.source_port = static_cast<std::uint16_t>(1024 + next / 200);
      stranger.sends(wire::IpAddress::v4(0x0A000000 + 10 + next % 200), header);
    }
  }
};

}  // namespace rnic::test::segments
