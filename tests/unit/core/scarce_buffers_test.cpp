// What one stream, or very many, may do to the buffers that all of a device share. A bystander's octets, delivered in
// simulated time, are the verdict; and at the end none is lost.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "host/dynamic_threshold.hpp"
#include "kit/catch.hpp"
#include "sim/stranger.hpp"
#include "sim/world.hpp"
#include "wire/ipv4.hpp"
#include "wire/tcp.hpp"

using namespace rnic;
using sim::Stranger;
using sim::World;
using sim::WorldOptions;
namespace flag = wire::tcp_flags;

namespace {

constexpr std::uint16_t kPort = 7471;
constexpr std::uint32_t kLargest = 65'535;

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  config.hold_without_receive = true;
  return config;
}

struct Memory {
  Memory(sim::Rnic& rnic, std::size_t size) : octets(size, std::byte{7}) {
    stag = rnic.register_memory(octets, tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read |
                                            tpt::Rights::remote_write);
  }
  std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(octets.data()); }
  qp::Sge all() const { return {at(), static_cast<std::uint32_t>(octets.size()), stag}; }
  std::vector<std::byte> octets;
  Stag stag;
};

qp::WorkRequest write(const Memory& from, const Memory& to) {
  qp::WorkRequest request;
  request.opcode = qp::Opcode::write;
  request.signaled = true;
  request.sge_count = 1;
  request.sges[0] = from.all();
  request.remote_stag = to.stag;
  request.remote_to = to.at();
  return request;
}

// Always has some Writes to do; what is delivered is counted.
struct Writer {
  Writer(sim::Rnic& writer, sim::Endpoint& endpoint, sim::Rnic& peer, std::size_t size = 256 * 1024)
      : rnic(writer), by(endpoint), from(writer, size), to(peer, size) {}
  void post() {
    for (; posted < by.host.completions.size() + 8; ++posted) {
      rnic.post_send(by, write(from, to));
    }
  }
  sim::Rnic& rnic;
  sim::Endpoint& by;
  Memory from, to;
  std::size_t posted = 0;
};

WorldOptions wire_of_ten_gigabits(std::uint32_t mtu = 1500) {
  WorldOptions options;
  options.a.mtu_bytes = options.b.mtu_bytes = mtu;
  options.a.buffers = options.b.buffers = 16'384;
  options.a.streams_max = options.b.streams_max = 4096;
  options.link.delay = microseconds(50);
  options.link.per_octet = nanoseconds(1);  // and a queue without end
  return options;
}

// Octets that `stream`'s peer has acknowledged by now.
std::uint64_t delivered(const sim::Rnic& rnic, core::StreamId stream) {
  for (const core::StreamInfo& info : rnic.device.streams())
    if (info.stream == stream) return info.tcp.bytes_out - info.in_flight_bytes;
  return 0;
}

// Runs so long, and says how much of it the longest silence of the bystander's was.
struct Observed {
  std::uint64_t octets = 0;
  Duration silence{};
};
Observed observe(World& world, Writer& writer, Duration time) {
  Observed seen;
  const std::uint64_t before = delivered(writer.rnic, writer.by.stream);
  std::uint64_t last = before;
  Instant since = world.clock.now;
  const Instant end = world.clock.now + time;
  while (world.clock.now < end) {
    writer.post();
    world.run_for(microseconds(200));
    const std::uint64_t now = delivered(writer.rnic, writer.by.stream);
    if (now == last) {
      seen.silence = std::max(seen.silence, world.clock.now - since);
    } else {
      last = now;
      since = world.clock.now;
    }
  }
  seen.octets = last - before;
  return seen;
}

// Frames of these of A's ports get lost, both ways: whoever had them is gone. Or, where they trickle, one segment with
// octets gets there now and then, and its acknowledgement back.
struct Vanished {
  explicit Vanished(World& world) : world_(world) {
    const auto edit = [this](bool from_a) {
      return [this, from_a](sim::Frame& frame) {
        const Bytes packet = Bytes(frame).subspan(14);
        const auto ip = wire::parse_ipv4(packet);
        if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
        const auto port = load_be<std::uint16_t>(packet, ip->header_size + (from_a ? 0 : 2));
        if (!ports.contains(port)) return;
        if (trickles.ns > 0) {
          if (!from_a) return;
          Instant& last = passed[port];
          if (ip->payload_size() > 100 && world_.clock.now - last >= trickles) {
            last = world_.clock.now;
            return;
          }
        }
        frame[5] = std::byte{0x77};  // the MAC of nobody
      };
    };
    world.a_to_b.edit(edit(true));
    world.b_to_a.edit(edit(false));
  }
  ~Vanished() {
    world_.a_to_b.edit(nullptr);
    world_.b_to_a.edit(nullptr);
  }
  std::set<std::uint16_t> ports;
  Duration trickles{};
  std::map<std::uint16_t, Instant> passed;

 private:
  World& world_;
};

std::uint16_t local_port(const sim::Rnic& rnic, core::StreamId stream) {
  for (const core::StreamInfo& info : rnic.device.streams())
    if (info.stream == stream) return info.local_port;
  return 0;
}

void end_all(World& world) {
  for (sim::Rnic* rnic : {&world.a, &world.b})
    for (auto& endpoint : rnic->endpoints) rnic->destroy_qp(*endpoint);
  world.run_until([&] { return world.a.device.stream_count() + world.b.device.stream_count() == 0; }, seconds(600));
  world.run_for(seconds(1));
}

// All buffers are there again, but for those at hand for acknowledgements.
void check_none_is_lost(World& world, const WorldOptions& options) {
  for (sim::Rnic* rnic : {&world.a, &world.b}) {
    const PoolSize all = sim::buffers_of(rnic == &world.a ? options.a : options.b);
    CHECK(rnic->device.stream_count() == 0);
    CHECK(rnic->port.pool().available() + 32 >= all.count);
    if (all.large_count != 0) CHECK(rnic->port.pool().large_available() == all.large_count);
  }
}

}  // namespace

TEST_CASE("14 strangers and 14,000 tiny segments out of order leave a device's queue pairs alone", "[core][scarce]") {
  const WorldOptions options = wire_of_ten_gigabits();
  World world(options);
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  REQUIRE(world.b.device.listen({}, kPort, 128, 77));
  Stranger stranger(world);
  std::vector<std::pair<std::uint16_t, std::uint32_t>> connected;
  for (std::uint16_t i = 0; i < 14; ++i) {
    wire::TcpHeader header;
    header.source_port = static_cast<std::uint16_t>(3000 + i);
    header.flags = flag::kSyn;
    header.sequence = 100;
    header.window = 65535;
    header.mss = 1460;
    header.sack_permitted = true;
    stranger.says(header);
    const std::uint32_t theirs = stranger.take().back().header.sequence + 1;
    header.flags = flag::kAck;
    header.sequence = 101;
    header.acknowledgement = theirs;
    header.mss = std::nullopt;
    header.sack_permitted = false;
    stranger.says(header);
    connected.emplace_back(header.source_port, theirs);
  }
  Writer bystander(world.b, *pair.b, world.a);
  (void)observe(world, bystander, milliseconds(50));
  const Observed before = observe(world, bystander, milliseconds(50));
  const std::uint32_t free_before = world.b.port.pool().available();
  for (std::uint32_t i = 0; i < 1024; ++i)
    for (const auto& [port, theirs] : connected) {
      wire::TcpHeader header;
      header.source_port = port;
      header.flags = flag::kAck;
      header.sequence = 103 + 2 * i;
      header.acknowledgement = theirs;
      header.window = 65535;
      stranger.sends(Stranger::kAddress, header, "x");
    }
  world.run_for(milliseconds(20));
  const Observed after = observe(world, bystander, milliseconds(50));
  INFO("bystander: " << before.octets << " octets before, " << after.octets << " after; longest silence "
                     << after.silence.ns / 1000 << " us");
  CHECK(after.octets > before.octets * 9 / 10);
  CHECK(after.silence < milliseconds(5));
  CHECK(world.b.port.pool().available() + 14 * 9 + 1024 > free_before);
  end_all(world);
  world.run_until([&] { return world.b.device.stream_count() == 0; }, seconds(60));
  check_none_is_lost(world, options);
}

TEST_CASE("24 of 25 busy peers vanish, and the 25th has what it had and more", "[core][scarce]") {
  const WorldOptions options = wire_of_ten_gigabits();
  World world(options);
  std::vector<sim::Connected> pairs;
  std::vector<std::unique_ptr<Writer>> writers;
  for (std::uint16_t i = 0; i < 25; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i)));
    REQUIRE(pairs.back().established);
    writers.push_back(std::make_unique<Writer>(world.a, *pairs.back().a, world.b));
  }
  world.application = [&] {
    for (auto& writer : writers) writer->post();
    return false;
  };
  world.run_for(milliseconds(300));
  const Observed with_all = observe(world, *writers[24], milliseconds(200));
  Vanished vanished(world);
  for (std::size_t i = 0; i < 24; ++i) vanished.ports.insert(local_port(world.a, pairs[i].a->stream));
  (void)observe(world, *writers[24], milliseconds(100));
  const Observed alone = observe(world, *writers[24], seconds(1));
  INFO("of 25: " << with_all.octets * 5 << " octets/s; the others gone: " << alone.octets << ", longest silence "
                 << alone.silence.ns / 1000 << " us");
  CHECK(alone.octets > 10 * with_all.octets * 5);  // nearly all of the wire
  CHECK(alone.silence < milliseconds(5));
  world.application = nullptr;
  end_all(world);
  check_none_is_lost(world, options);
}

TEST_CASE("queue pairs whose Sends of 64 KiB find no receive leave those of others alone", "[core][scarce][large]") {
  const std::uint16_t stuck = GENERATE(std::uint16_t{120}, std::uint16_t{600});
  CAPTURE(stuck);
  const WorldOptions options = wire_of_ten_gigabits(kLargest);
  World world(options);
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  Writer there(world.a, *pair.a, world.b), back(world.b, *pair.b, world.a);
  const Observed before = observe(world, there, milliseconds(50)), before_back = observe(world, back, milliseconds(50));
  Memory message(world.a, 64 * 1024);
  std::vector<sim::Connected> pairs;
  for (std::uint16_t i = 1; i <= stuck; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i)));
    REQUIRE(pairs.back().established);
    for (int j = 0; j < 64; ++j) {
      qp::WorkRequest request;
      request.opcode = qp::Opcode::send;
      request.sge_count = 1;
      request.sges[0] = message.all();
      world.a.post_send(*pairs.back().a, request);
    }
  }
  world.run_for(seconds(2));
  const Observed after = observe(world, there, milliseconds(50)), after_back = observe(world, back, milliseconds(50));
  INFO(stuck << " stuck: there " << before.octets << " octets before, " << after.octets << " after, longest silence "
             << after.silence.ns / 1000 << " us; back " << before_back.octets << ", " << after_back.octets << ", "
             << after_back.silence.ns / 1000 << " us; large free " << world.a.port.pool().large_available() << ", "
             << world.b.port.pool().large_available());
  // Hundreds may take the large ones, and all of the small ones but the reserve: far more than one's part is left.
  const std::uint64_t least = stuck == 120 ? before.octets * 2 / 5 : before.octets / 50;
  CHECK(after.octets > least);
  CHECK(after_back.octets > least);
  CHECK(after.silence < milliseconds(5));
  CHECK(after_back.silence < milliseconds(5));
  CHECK(world.a.port.pool().large_available() > 0);
  CHECK(world.b.port.pool().large_available() > 0);
  // Those who hold most and get nowhere end, where the reserve goes.
  world.run_for(seconds(8));
  CHECK(observe(world, there, milliseconds(50)).octets > before.octets / 3);
  CHECK(observe(world, back, milliseconds(50)).octets > before_back.octets / 3);
  end_all(world);
  check_none_is_lost(world, options);
}

// Each comes in a frame of its own, too long for a small buffer, and fills little of a large one. So do those which a
// kernel has merged of a few segments.
TEST_CASE("queue pairs whose Sends of 3 KB find no receive do not use up the large buffers", "[core][scarce][large]") {
  constexpr std::uint16_t kStuck = 40;
  constexpr int kSends = 340;  // of all, a window
  const WorldOptions options = wire_of_ten_gigabits(kLargest);
  World world(options);
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  Writer there(world.a, *pair.a, world.b);
  const Observed before = observe(world, there, milliseconds(50));
  const std::uint32_t large_before = world.b.port.pool().large_available();
  Memory message(world.a, 3000);
  std::vector<sim::Connected> pairs;
  for (std::uint16_t i = 1; i <= kStuck; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i)));
    REQUIRE(pairs.back().established);
  }
  qp::WorkRequest request;
  request.opcode = qp::Opcode::send;
  request.sge_count = 1;
  request.sges[0] = message.all();
  for (int j = 0; j < kSends; ++j) {
    for (auto& each : pairs) world.a.post_send(*each.a, request);
    world.run_for(microseconds(200));
  }
  const Observed after = observe(world, there, milliseconds(50));
  INFO(before.octets << " octets before, " << after.octets << " after, longest silence " << after.silence.ns / 1000
                     << " us; large free " << large_before << ", " << world.b.port.pool().large_available()
                     << ", refused " << world.b.device.counters().no_buffer);
  CHECK(after.octets > before.octets * 9 / 10);
  CHECK(world.b.device.counters().no_buffer == 0);
  // 22 of each came before its user was known to be late, and what came then fits 12. Else they hold all but the
  // reserve, 37 each.
  CHECK(large_before - world.b.port.pool().large_available() < kStuck * 35u);
  end_all(world);
  check_none_is_lost(world, options);
}

TEST_CASE("where so many hold buffers for nothing that the reserve goes, the greediest end, and the others go on",
          "[core][scarce]") {
  const Duration trickles = GENERATE(seconds(0), seconds(2));
  CAPTURE(trickles.ns);
  constexpr std::size_t kVanished = 600;
  WorldOptions options = wire_of_ten_gigabits();
  options.a.buffers = options.b.buffers = 512;
  World world(options);
  Memory from(world.a, 64 * 1024), to(world.b, 64 * 1024);
  std::vector<sim::Connected> pairs;
  for (std::uint16_t i = 0; i <= kVanished; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i)));
    REQUIRE(pairs.back().established);
  }
  Vanished vanished(world);
  vanished.trickles = trickles;
  for (std::size_t i = 0; i < kVanished; ++i) {
    vanished.ports.insert(local_port(world.a, pairs[i].a->stream));
    world.a.post_send(*pairs[i].a, write(from, to));
  }
  Writer bystander(world.a, *pairs[kVanished].a, world.b, 64 * 1024);
  (void)observe(world, bystander, seconds(20));
  const Observed after = observe(world, bystander, milliseconds(100));
  INFO("ended " << world.a.device.counters().ended_for_buffers << ", bystander " << after.octets
                << " octets in 100 ms, longest silence " << after.silence.ns / 1000 << " us");
  CHECK(world.a.device.counters().ended_for_buffers > 0);
  CHECK(world.a.device.counters().ended_for_buffers < kVanished);
  CHECK(world.a.told_of_ended.size() >= 1);
  CHECK(world.a.told_of_ended.size() <= 3);  // a line in the log each ten seconds at most, however many follow
  CHECK(pairs[kVanished].a->qp->state() == qp::State::rts);
  CHECK(after.octets > 1'000'000);
  end_all(world);
  check_none_is_lost(world, options);
}

TEST_CASE("peers that vanish and leave gaps leave others what they receive, and end", "[core][scarce]") {
  constexpr std::uint16_t kGone = 60;
  WorldOptions options = wire_of_ten_gigabits();
  options.b.buffers = 2048;     // the shares of so many are more than next to nothing: none of them needs the reserve
  options.link.per_octet = {};  // what was sent in one turn arrives in one burst
  World world(options);
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  Writer bystander(world.a, *pair.a, world.b);
  (void)observe(world, bystander, milliseconds(50));
  const Observed before = observe(world, bystander, milliseconds(50));

  Memory from(world.a, 64 * 1024), to(world.b, 64 * 1024);
  std::set<std::uint16_t> gone;
  // Of each the first segment with octets is lost, and all that is sent for it; then everything, both ways.
  std::map<std::uint16_t, std::uint32_t> first;
  bool all = false;
  world.a_to_b.edit([&](sim::Frame& frame) {
    const Bytes packet = Bytes(frame).subspan(14);
    const auto ip = wire::parse_ipv4(packet);
    if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
    const auto port = load_be<std::uint16_t>(packet, ip->header_size);
    if (!gone.contains(port)) return;
    const auto sequence = load_be<std::uint32_t>(packet, ip->header_size + 4);
    const bool has_octets = ip->payload_size() > 100;
    if (has_octets && !first.contains(port)) first[port] = sequence;
    if (all || (has_octets && first[port] == sequence)) frame[5] = std::byte{0x77};  // the MAC of nobody
  });
  for (std::uint16_t i = 1; i <= kGone; ++i) {
    const auto other = sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i));
    REQUIRE(other.established);
    gone.insert(local_port(world.a, other.a->stream));
    world.a.post_send(*other.a, write(from, to));
  }
  world.run_for(milliseconds(500));
  all = true;
  const std::uint32_t held =
      static_cast<std::uint32_t>(sim::buffers_of(options.b).count - world.b.port.pool().available());
  (void)observe(world, bystander, milliseconds(100));
  const Observed beside = observe(world, bystander, milliseconds(50));
  INFO("the others hold " << held << "; bystander: " << before.octets << " octets before, " << beside.octets
                          << " beside");
  CHECK(held > 1300);
  CHECK(beside.octets > before.octets * 3 / 4);
  CHECK(beside.silence < milliseconds(5));
  // So many end that there is something to spare again.
  (void)observe(world, bystander, seconds(5));
  CHECK(world.b.device.counters().ended_for_buffers > 0);
  CHECK(world.b.device.counters().ended_for_buffers < kGone);
  CHECK(world.b.told_of_ended.size() == 1);
  CHECK(world.b.port.pool().available() >= 2048 / 4 + 64);  // no longer tight
  CHECK(pair.b->qp->state() == qp::State::rts);
  world.a_to_b.edit(nullptr);
  end_all(world);
  check_none_is_lost(world, options);
}

// ---- the share itself -----------------------------------------------------------------------------------------------

TEST_CASE("share of buffers among streams: as many as are free, and nobody all of them", "[core][scarce]") {
  host::DynamicThreshold shares(16'000);
  CHECK(shares.spare() == 12'000);
  // One alone.
  CHECK(shares.allowance(0) == 6000);
  shares.refresh(10'000);
  CHECK(shares.allowance(6000) == 0);
  CHECK(shares.allowance(5999) == 1);
  // 24 that do not give back what they hold.
  std::uint32_t available = 16'000;
  std::vector<std::uint32_t> held(24, 0);
  for (int round = 0; round < 100; ++round)
    for (std::uint32_t& each : held) {
      shares.refresh(available);
      const std::uint32_t more = std::min(shares.allowance(each), 64u);
      each += more;
      available -= more;
    }
  shares.refresh(available);
  const auto [least, most] = std::minmax_element(held.begin(), held.end());
  CHECK(*most - *least <= 64);
  CHECK(shares.spare() >= 440);
  CHECK(shares.allowance(0) > 200);
  CHECK_FALSE(shares.pressed());
}

TEST_CASE("share of buffers among streams: of the reserve one half is for those with next to nothing",
          "[core][scarce]") {
  host::DynamicThreshold shares(1000, 8);
  shares.refresh(251);
  CHECK(shares.allowance(0) == 8);
  CHECK(shares.allowance(7) == 1);
  CHECK(shares.allowance(8) == 0);
  shares.refresh(250);
  CHECK(shares.allowance(0) == 8);
  CHECK(shares.allowance(8) == 0);
  shares.refresh(127);
  CHECK(shares.allowance(0) == 1);
  CHECK(shares.allowance(1) == 0);
  CHECK_FALSE(shares.pressed());
  shares.refresh(125 + 63);
  CHECK(shares.allowance(0) == 5);
  CHECK(shares.allowance(5) == 0);
  shares.refresh(126);
  CHECK(shares.allowance(0) == 1);
  shares.on_taken(1);
  CHECK(shares.allowance(0) == 0);
  CHECK(shares.pressed());
  shares.refresh(125);
  CHECK(shares.pressed());
  CHECK(shares.allowance(0) == 0);
}
