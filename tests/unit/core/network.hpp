// What the tests of a device on its network share: frames by hand, one device that hears them, Writes between
// RNICs of the simulator.
#pragma once

#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "sim/world.hpp"
#include "wire/neighbour_discovery.hpp"

namespace rnic::test::network {

using sim::World;
using sim::WorldOptions;
using wire::IpAddress;
namespace frames = test::frames;

inline constexpr std::uint16_t kPort = 7471;
inline constexpr wire::Mac kMacA{{2, 0, 0, 0, 0, 1}}, kMacB{{2, 0, 0, 0, 0, 2}};
inline const IpAddress kA6 = sim::address_v6(1), kB6 = sim::address_v6(2);

inline qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  return config;
}

inline WorldOptions over_ipv6() {
  WorldOptions options;
  options.a.address = kA6;
  options.b.address = kB6;
  return options;
}

// Writes so many octets of one RNIC's memory into another's, or its own.
struct Written {
  Written(sim::Rnic& writer, sim::Endpoint& by, sim::Rnic& owner, std::size_t size)
      : from(test::pattern(size)), to(size) {
    const Stag source = writer.register_memory(from, tpt::Rights::local_read);
    const Stag target = owner.register_memory(to, tpt::Rights::local_write | tpt::Rights::remote_write);
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    write.signaled = true;
    write.sge_count = 1;
    write.sges[0] = {reinterpret_cast<std::uintptr_t>(from.data()), static_cast<std::uint32_t>(size), source};
    write.remote_to = reinterpret_cast<std::uintptr_t>(to.data());
    write.remote_stag = target;
    writer.post_send(by, write);
  }
  // A into B's.
  Written(World& world, sim::Connected& pair, std::size_t size) : Written(world.a, *pair.a, world.b, size) {}
  bool arrived() const { return to == from; }
  std::vector<std::byte> from, to;
};

inline bool write_arrives(World& world, sim::Connected& pair, std::size_t size) {
  const Written written(world, pair, size);
  return world.run_until([&] { return written.arrived(); }, seconds(300));
}

// Frames that a link carries from now on.
struct Watched {
  explicit Watched(sim::Link& link) : link_(link) {
    link.watch([this](Bytes frame, Instant, sim::Link::Fate) { frames.emplace_back(frame.begin(), frame.end()); });
  }
  ~Watched() { link_.watch(nullptr); }
  std::vector<sim::Frame> frames;

 private:
  sim::Link& link_;
};

inline sim::Frame ethernet(std::uint16_t type, Bytes payload, const wire::Mac& to = kMacB) {
  return frames::ethernet({.destination = to, .source = kMacA, .type = type}, payload);
}
inline sim::Frame ipv4(std::uint8_t protocol, Bytes payload, const IpAddress& from = sim::kAddressA,
                       const IpAddress& to = sim::kAddressB) {
  return ethernet(wire::ether_type::kIpv4,
                  frames::ipv4({.protocol = protocol, .source = from, .destination = to}, payload));
}
inline sim::Frame ipv6(std::uint8_t next, Bytes payload, const IpAddress& from = kA6, const IpAddress& to = kB6,
                       std::uint8_t hop_limit = 64) {
  return ethernet(
      wire::ether_type::kIpv6,
      frames::ipv6({.next_header = next, .hop_limit = hop_limit, .source = from, .destination = to}, payload),
      to.is_multicast() ? wire::multicast_mac(to) : kMacB);
}
inline std::vector<std::byte> echo_request6(const IpAddress& from, const IpAddress& to) {
  return frames::icmp6({.type = wire::icmp6_type::kEchoRequest, .rest = 0x10002},
                       std::vector<std::byte>(8, std::byte{3}), from, to);
}
inline std::vector<std::byte> syn(const IpAddress& from, const IpAddress& to) {
  return frames::tcp({.source_port = 50000,
                      .destination_port = kPort,
                      .sequence = 1000,
                      .flags = wire::tcp_flags::kSyn,
                      .window = 60000},
                     from, to);
}
// What a router says of a packet of B's to A, over IPv6, that it does not pass on; A hears it.
inline sim::Frame too_big(std::uint32_t mtu, Bytes packet) {
  const auto message =
      frames::icmp6({.type = wire::icmp6_type::kPacketTooBig, .rest = mtu}, packet.first(60), kB6, kA6);
  return frames::packet({.destination = kMacA, .source = kMacB}, wire::protocol::kIcmpV6, kB6, kA6, message);
}
// What a router says of its network: `options` as octets.
inline sim::Frame advertisement(Bytes options) {
  static const IpAddress kRouter = *wire::parse_ip("fe80::99");
  std::vector<std::byte> body(8);  // no lifetimes, no timers
  test::append(body, options);
  const auto message = frames::icmp6({.type = wire::icmp6_type::kRouterAdvertisement}, body, kRouter, wire::kAllNodes);
  return ipv6(wire::protocol::kIcmpV6, message, kRouter, wire::kAllNodes, 255);
}

// B alone, whom we send frames by hand and hear. Who we are it knows already.
struct OneDevice {
  explicit OneDevice(const WorldOptions& options = over_ipv6()) : world(options) {
    world.a.port.set_link_up(false);
    world.run_for(seconds(1));
    const bool v6 = world.b.device.options().addresses[0].address.is_v6();
    if (v6) {
      std::vector<std::byte> message(wire::NeighbourMessage::kSizeMax);
      message.resize(wire::emit(wire::NeighbourMessage{.target = kB6, .link_address = kMacA}, message));
      wire::icmp6_set_checksum(message, kA6, kB6);
      says(ipv6(wire::protocol::kIcmpV6, message, kA6, kB6, 255));
    } else {
      std::vector<std::byte> packet(wire::ArpPacket::kSize);
      wire::emit(wire::ArpPacket{wire::ArpPacket::kRequest, kMacA, sim::kAddressA, {}, sim::kAddressB}, packet);
      says(ethernet(wire::ether_type::kArp, packet));
    }
    heard.frames.clear();
  }
  void says(const sim::Frame& frame) {
    world.a_to_b.send(frame, world.clock.now);
    world.run_for(milliseconds(1));
  }
  // The only thing that it answered, from the IP header on.
  Bytes answer() {
    REQUIRE(heard.frames.size() == 1);
    return Bytes(heard.frames[0]).subspan(wire::EthernetHeader::kSize);
  }
  const core::DeviceCounters& counters() const { return world.b.device.counters(); }

  World world;
  Watched heard{world.b_to_a};
};

inline WorldOptions over_ipv4() { return {}; }

}  // namespace rnic::test::network
