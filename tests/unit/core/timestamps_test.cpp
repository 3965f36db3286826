// What timestamps are on for where others are on the wire, and what is missing where they are off, as they are
// within memory: old segments are known (PAWS, RFC 7323 s5), and a SYN cookie has room for SACK and window scale.
#include "sim/stranger.hpp"
#include "unit/core/network.hpp"

using namespace rnic;
using namespace rnic::test::network;

namespace {

constexpr std::size_t kTcpAt = wire::EthernetHeader::kSize + wire::Ipv4Header::kSize;

WorldOptions options(bool timestamps) {
  WorldOptions options;
  options.a.device.tcp.timestamps = options.b.device.tcp.timestamps = timestamps;
  return options;
}

struct TcpFrame {
  explicit TcpFrame(const sim::Frame& frame) {
    const auto ip = wire::parse_ipv4(Bytes(frame).subspan(wire::EthernetHeader::kSize));
    if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
    const Bytes segment = Bytes(frame).subspan(kTcpAt, ip->payload_size());
    const auto tcp = wire::parse_tcp(segment);
    if (!tcp) return;
    is = true;
    header = tcp->header;
    payload = segment.size() - tcp->data_offset;
  }
  bool is = false;
  wire::TcpHeader header;
  std::size_t payload = 0;
};

// The last of them with so many octets, or more.
sim::Frame last_with(std::size_t octets, const std::vector<sim::Frame>& frames) {
  sim::Frame found;
  for (const sim::Frame& frame : frames)
    if (TcpFrame(frame).payload >= octets) found = frame;
  REQUIRE_FALSE(found.empty());
  return found;
}

// The same segment where the sequence space has come round to `sequence`.
sim::Frame come_round(sim::Frame frame, std::uint32_t sequence) {
  store_be(MutableBytes(frame), kTcpAt + 4, sequence);
  test::frames::fix_checksums(frame);
  return frame;
}

}  // namespace

// The octets of the time between, 2^32 of them, are left out: what counts is that the old segment's sequence number
// is the next again, and that it is a whole FPDU with a good CRC.
TEST_CASE("W-TCP-12: a segment that comes 2^32 octets late is known by its timestamp, and writes nothing",
          "[core][W-TCP-12][W-TCP-26]") {
  const bool timestamps = GENERATE(true, false);
  World world(options(timestamps));
  sim::Connected pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  std::vector<std::byte> from(64, std::byte{1}), to(64);
  const Stag source = world.a.register_memory(from, tpt::Rights::local_read);
  const Stag target = world.b.register_memory(to, tpt::Rights::local_write | tpt::Rights::remote_write);
  const auto writes = [&] {
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    write.sge_count = 1;
    write.sges[0] = {reinterpret_cast<std::uintptr_t>(from.data()), static_cast<std::uint32_t>(from.size()), source};
    write.remote_to = reinterpret_cast<std::uintptr_t>(to.data());
    write.remote_stag = target;
    world.a.post_send(*pair.a, write);
    world.run_for(milliseconds(100));
    REQUIRE(to == from);
  };
  Watched sent(world.a_to_b);
  writes();
  const sim::Frame old = last_with(from.size(), sent.frames);
  CHECK(TcpFrame(old).header.timestamps.has_value() == timestamps);
  std::fill(from.begin(), from.end(), std::byte{2});
  writes();

  const TcpFrame newest(last_with(1, sent.frames));
  const auto next = newest.header.sequence + static_cast<std::uint32_t>(newest.payload);
  world.a_to_b.send(come_round(old, next), world.clock.now);
  world.run_for(milliseconds(1));
  const bool written = to != from;
  CHECK(written == !timestamps);
  if (!timestamps) return;
  // It took nothing from the stream either.
  std::fill(from.begin(), from.end(), std::byte{3});
  writes();
}

TEST_CASE("W-TCP-12: two devices that meet through a SYN cookie have SACK and window scale by timestamps",
          "[core][W-TCP-12][W-TCP-26]") {
  const bool timestamps = GENERATE(true, false);
  WorldOptions with = options(timestamps);
  with.link.delay = milliseconds(2);
  World world(with);
  REQUIRE(world.b.device.listen({}, kPort + 1, 8, 77));
  sim::Stranger stranger(world);
  for (std::uint16_t i = 0; i < 64; ++i) {
    wire::TcpHeader syn;
    syn.flags = wire::tcp_flags::kSyn;
    syn.source_port = static_cast<std::uint16_t>(2000 + i);
    syn.destination_port = kPort + 1;
    syn.window = 65535;
    stranger.sends(sim::Stranger::kAddress, syn);
  }
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 64);  // all there is room for

  sim::Connected pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  CHECK(world.b.device.counters().cookies_good == 1);
  const Written written(world, pair, 4'000'000);
  std::uint32_t in_flight_max = 0;
  std::size_t sacks = 0;
  world.b_to_a.watch([&](Bytes frame, Instant, sim::Link::Fate) {
    sacks += TcpFrame({frame.begin(), frame.end()}).header.sack_count != 0;
  });
  // On the way, whatever leaves in one step is lost.
  const sim::LinkOptions good = world.a_to_b.options();
  std::uint64_t before = 0;
  bool losing = false, lost = false;
  REQUIRE(world.run_until([&] {
    const std::uint32_t in_flight = world.a.device.streams().at(0).in_flight_bytes;
    in_flight_max = std::max(in_flight_max, in_flight);
    if (!losing && in_flight > 40'000) {
      losing = true;
      before = world.a_to_b.frames();
      sim::LinkOptions bad = good;
      bad.loss_per_1000 = 1000;
      world.a_to_b.set_options(bad);
    } else if (losing && !lost && world.a_to_b.frames() != before) {
      lost = true;
      world.a_to_b.set_options(good);
    }
    return written.arrived();
  }));
  world.b_to_a.watch(nullptr);
  CHECK(lost);
  CHECK((in_flight_max > 65'535) == timestamps);
  CHECK((sacks != 0) == timestamps);
}
