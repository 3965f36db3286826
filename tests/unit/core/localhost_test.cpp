// 127.0.0.1 and ::1: a device's connections with itself, of which nobody on its wire has a part.
#include <vector>

#include "port/tap.hpp"
#include "unit/core/network.hpp"

using namespace rnic;
using namespace rnic::test::network;
using core::StreamEvent;
using test::hex;

namespace {

const IpAddress kLoop4 = IpAddress::v4(127, 0, 0, 1), kLoop6 = *wire::parse_ip("::1");

// B calls itself, `from` to `to`, where it listens at `at`.
struct Inside {
  Inside(World& made, const IpAddress& from, const IpAddress& to, const IpAddress& at) : world(made), rnic(made.b) {
    REQUIRE(rnic.device.listen(at, kPort, 8, 77));
    rnic.on_event = [this](const StreamEvent& event) {
      if (event.kind == StreamEvent::Kind::established) ++established;
      if (event.kind != StreamEvent::Kind::connect_request) return;
      request = event;
      callee = &rnic.make_qp(plain());
      callee->stream = event.stream;
      REQUIRE(rnic.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *callee->qp,
                                 world.clock.now));
    };
    caller = &rnic.make_qp(plain());
    core::ConnectOptions options;
    options.local = from;
    options.remote = to;
    options.remote_port = kPort;
    options.ird = options.ord = 4;
    const auto stream = rnic.device.connect(options, *caller->qp, world.clock.now);
    REQUIRE(stream);
    caller->stream = *stream;
    REQUIRE(world.run_until([&] { return established == 2; }, seconds(1)));
  }
  bool write_arrives(std::size_t size) {
    const Written written(rnic, *caller, rnic, size);
    return world.run_until([&] { return written.arrived(); }, seconds(10));
  }

  World& world;
  sim::Rnic& rnic;
  sim::Endpoint *caller = nullptr, *callee = nullptr;
  unsigned established = 0;
  StreamEvent request;
};

// What a device said to itself.
struct Said final : port::Tap {
  void on_frame(port::FrameDirection direction, Bytes frame) override {
    if (direction == port::FrameDirection::sent) frames.emplace_back(frame.begin(), frame.end());
  }
  std::vector<sim::Frame> frames;
};

}  // namespace

TEST_CASE("127.0.0.1 and ::1 are the device itself: nothing of such a connection is on the wire", "[core]") {
  const IpAddress any4 = IpAddress::v4(0), any6;
  struct Way {
    IpAddress from, to, at;
  };
  const Way ways[] = {{kLoop4, kLoop4, kLoop4},         {kLoop4, kLoop4, any4},
                      {kLoop6, kLoop6, kLoop6},         {kLoop6, kLoop6, any6},
                      {kLoop4, kLoop4, any6},           {kLoop4, sim::kAddressB, any4},
                      {sim::kAddressB, kLoop4, kLoop4}, {kLoop4, sim::kAddressB, sim::kAddressB}};
  for (const Way& way : ways) {
    INFO(wire::to_string(way.from) << " to " << wire::to_string(way.to) << " at " << wire::to_string(way.at));
    for (const std::uint32_t mtu : {1500u, 576u, 9000u}) {
      INFO(mtu);
      WorldOptions options = over_ipv4();  // and no IPv6
      options.b.mtu_bytes = mtu;
      options.b.device.index = 3;
      options.b.device.routes.push_back({.prefix = any4, .bits = 0, .gateway = sim::kAddressA});
      World world(options);
      Watched wire(world.b_to_a);
      Inside inside(world, way.from, way.to, way.at);
      CHECK(inside.request.local == way.to);
      CHECK(inside.request.remote == way.from);
      CHECK(inside.request.device == 3);
      CHECK(inside.write_arrives(100'000));
      world.b.device.disconnect(inside.caller->stream, core::Disconnect::graceful, world.clock.now);
      CHECK(world.run_until([&] { return world.b.device.stream_count() == 0; }, seconds(60)));
      for (const sim::Frame& frame : wire.frames)
        CHECK(load_be<std::uint16_t>(frame, 12) == wire::ether_type::kArp);  // the device's own announcement
    }
  }
  World world(over_ipv6());
  Watched wire(world.b_to_a);
  Inside inside(world, kLoop4, kLoop4, kLoop4);
  CHECK(inside.write_arrives(1000));
}

TEST_CASE("from 127.0.0.1 or ::1 nobody is called beyond a wire, whoever has the address", "[core]") {
  for (const bool v6 : {false, true}) {
    for (const bool own : {false, true}) {
      INFO(v6 << own);
      WorldOptions options = v6 ? over_ipv6() : over_ipv4();
      const IpAddress loop = v6 ? kLoop6 : kLoop4;
      if (own) options.b.address = loop;
      World world(options);
      world.run_for(seconds(5));
      Watched wire(world.b_to_a);
      core::ConnectOptions call;
      call.local = loop;
      call.remote = v6 ? kA6 : sim::kAddressA;
      call.remote_port = kPort;
      const auto stream = world.b.device.connect(call, *world.b.make_qp(plain()).qp, world.clock.now);
      REQUIRE_FALSE(stream);
      CHECK(stream.error() == core::StreamError::no_route);
      world.run_for(seconds(5));
      CHECK(wire.frames.empty());
    }
  }
}

TEST_CASE("who comes by the wire as 127.0.0.1 or ::1, or calls us so, is dropped in silence and counted", "[core]") {
  const auto is_dropped = [](OneDevice& t, const sim::Frame& frame) {
    const auto before = t.counters().bad_frames;
    t.says(frame);
    CHECK(t.heard.frames.empty());
    CHECK(t.world.b.device.half_open_count() == 0);
    CHECK(t.counters().bad_frames == before + 1);
  };
  {
    OneDevice t(over_ipv4());
    REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
    for (const auto& [from, to] : {std::pair{sim::kAddressA, kLoop4}, {kLoop4, sim::kAddressB}, {kLoop4, kLoop4}}) {
      is_dropped(t, ipv4(wire::protocol::kTcp, syn(from, to), from, to));
      std::vector<std::byte> fragment(wire::Ipv4Header::kSize);
      wire::emit(wire::Ipv4Header{.total_length = static_cast<std::uint16_t>(wire::Ipv4Header::kSize + 8),
                                  .more_fragments = true,
                                  .protocol = wire::protocol::kTcp,
                                  .source = from,
                                  .destination = to},
                 fragment);
      test::append(fragment, Bytes(syn(from, to)).first(8));
      is_dropped(t, ethernet(wire::ether_type::kIpv4, fragment));
      is_dropped(t, ipv4(wire::protocol::kUdp, hex("c5ea0009000e0000"), from, to));
    }
    CHECK(t.counters().fragments_in == 0);
    // Nor does anybody learn who has it.
    std::vector<std::byte> packet(wire::ArpPacket::kSize);
    wire::emit(wire::ArpPacket{wire::ArpPacket::kRequest, kMacA, sim::kAddressA, {}, kLoop4}, packet);
    t.says(ethernet(wire::ether_type::kArp, packet));
    CHECK(t.heard.frames.empty());
  }
  OneDevice t;
  REQUIRE(t.world.b.device.listen({}, kPort, 8, 1));
  for (const auto& [from, to] : {std::pair{kA6, kLoop6}, {kLoop6, kB6}, {kLoop6, kLoop6}}) {
    is_dropped(t, ipv6(wire::protocol::kTcp, syn(from, to), from, to));
    is_dropped(t, ipv6(wire::protocol::kIcmpV6, echo_request6(from, to), from, to));
  }
}

TEST_CASE("nobody on the wire reaches a connection of 127.0.0.1, not even who knows all of its numbers", "[core]") {
  OneDevice t(over_ipv4());
  Said said;
  t.world.b.device.add_tap(said);
  Inside inside(t.world, kLoop4, kLoop4, kLoop4);
  CHECK(inside.write_arrives(100'000));
  REQUIRE_FALSE(said.frames.empty());
  const auto bad = t.counters().bad_frames;
  const auto mss = [&] {
    std::vector<std::uint32_t> all;
    for (const auto& stream : t.world.b.device.streams()) all.push_back(stream.mss_bytes);
    return all;
  };
  const auto before = mss();
  REQUIRE(before.size() == 2);
  // The last of its own segments, as a RST that is exactly next.
  const sim::Frame& whole = said.frames.back();
  const std::size_t tcp = 14 + wire::Ipv4Header::kSize;
  const auto last = wire::parse_tcp(Bytes(whole).subspan(tcp));
  REQUIRE(last);
  const auto next = last->header.sequence + static_cast<std::uint32_t>(whole.size() - tcp - last->data_offset);
  const wire::TcpHeader header{.source_port = last->header.source_port,
                               .destination_port = last->header.destination_port,
                               .sequence = next,
                               .flags = wire::tcp_flags::kRst};
  t.says(ipv4(wire::protocol::kTcp, frames::tcp(header, kLoop4, kLoop4), kLoop4, kLoop4));
  CHECK(t.counters().bad_frames == bad + 1);
  // A router that says, of what is in flight just now, that it passes 600 octets.
  for (const sim::Frame& frame : {said.frames.back(), said.frames[said.frames.size() - 2]}) {
    const Bytes segment = Bytes(frame).subspan(tcp);
    wire::TcpHeader quoted = wire::parse_tcp(segment)->header;
    quoted.sequence += static_cast<std::uint32_t>(segment.size() - wire::parse_tcp(segment)->data_offset);
    const auto packet = wire::parse_ipv4(Bytes(frame).subspan(14))->header;
    t.says(ipv4(wire::protocol::kIcmp, frames::icmp({.type = wire::icmp_type::kUnreachable, .code = 4, .rest = 600},
                                                    frames::quote(packet, quoted))));
  }
  CHECK(inside.write_arrives(100'000));
  CHECK(mss() == before);
  CHECK(t.world.b.device.stream_count() == 2);
}
