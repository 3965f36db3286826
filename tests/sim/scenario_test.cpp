// Stories of bad networks and bad neighbours, each with its claim. Two whole RNICs.
#include <cstring>
#include <functional>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "sim/workload.hpp"
#include "sim/world.hpp"

using namespace rnic;
using sim::Danger;
using sim::World;
using sim::WorldOptions;

namespace {

// A writes to B, 64 KiB at a time, and then sends nothing, which B hears of.
struct Transfer {
  Transfer(World& world_of_it, std::uint32_t writes)
      : world(world_of_it), source(writes * kSize), target(writes * kSize), note(8) {
    qp::Config config;
    config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
    config.ird = config.ord = 4;
    config.send_depth = 1024;
    pair = sim::connect(world, config, config);
    REQUIRE(pair.established);
    sim::Random random(3);
    random.fill(source);
    random.fill(target);
    before = target;
    using tpt::Rights;
    const Stag from = world.a.register_memory(source, Rights::local_read);
    const Stag to = world.b.register_memory(target, Rights::local_read | Rights::local_write | Rights::remote_write);
    const Stag sink = world.b.register_memory(note, Rights::local_read | Rights::local_write);
    qp::ReceiveRequest receive;
    receive.sge_count = 1;
    receive.sges[0] = {reinterpret_cast<std::uintptr_t>(note.data()), 8, sink};
    world.b.post_receive(*pair.b, receive);
    for (std::uint32_t i = 0; i < writes; ++i) {
      qp::WorkRequest write;
      write.opcode = qp::Opcode::write;
      write.sge_count = 1;
      write.sges[0] = {reinterpret_cast<std::uintptr_t>(source.data()) + i * kSize, kSize, from};
      write.remote_stag = to;
      write.remote_to = reinterpret_cast<std::uintptr_t>(target.data()) + i * kSize;
      world.a.post_send(*pair.a, write);
    }
    world.a.post_send(*pair.a, qp::WorkRequest{});
  }
  bool told() const { return !pair.b->host.completions.empty(); }
  bool arrives(Duration limit = seconds(600)) {
    return world.run_until([this] { return told(); }, limit) &&
           pair.b->host.completions[0].status == qp::Status::success && target == source;
  }
  // Whatever is in B's memory is A's, or was there before.
  bool nothing_foreign() const {
    for (std::size_t i = 0; i < target.size(); ++i)
      if (target[i] != source[i] && target[i] != before[i]) return false;
    return true;
  }
  bool up() const { return pair.a->qp->state() == qp::State::rts && pair.b->qp->state() == qp::State::rts; }

  static constexpr std::uint32_t kSize = 65536;
  World& world;
  std::vector<std::byte> source, target, before, note;
  sim::Connected pair;
};

void set_both(World& world, const std::function<void(sim::LinkOptions&)>& change) {
  for (sim::Link* link : {&world.a_to_b, &world.b_to_a}) {
    sim::LinkOptions options = link->options();
    change(options);
    link->set_options(options);
  }
}

// The MTU of a wire, and that of ports in memory.
constexpr std::uint32_t kUsualMtu = 1500, kLargeMtu = 65'535;

WorldOptions short_wire(std::uint32_t mtu) {
  WorldOptions options;
  options.a.mtu_bytes = options.b.mtu_bytes = mtu;
  options.link.delay = microseconds(200);
  options.link.per_octet = nanoseconds(8);
  return options;
}

// A router in front of B from now on: packets for it of at most `mtu`, and it says so.
void narrow_the_path(World& world, std::uint32_t mtu) {
  sim::LinkOptions options = world.a_to_b.options();
  options.frame_max_bytes = 14 + mtu;
  world.a_to_b.set_options(options);
  world.a_to_b.on_too_large([&world, mtu](Bytes frame) {
    const auto complaint = test::frames::icmp(
        {.type = wire::icmp_type::kUnreachable, .code = wire::icmp_code::kFragmentationNeeded, .rest = mtu},
        frame.subspan(14, 28));
    const wire::EthernetHeader link{.destination = world.a.port.facts().mac, .source = world.b.port.facts().mac};
    world.b_to_a.send(
        test::frames::packet(link, wire::protocol::kIcmp, wire::IpAddress::v4(10, 0, 0, 99), sim::kAddressA, complaint),
        world.clock.now);
  });
}

}  // namespace

TEST_CASE("a wire that is dead for three minutes in the middle of the work costs no octet", "[sim][scenario]") {
  World world(short_wire(GENERATE(kUsualMtu, kLargeMtu)));
  Transfer transfer(world, 64);
  world.run_for(milliseconds(10));
  REQUIRE(!transfer.told());
  set_both(world, [](sim::LinkOptions& link) { link.loss_per_1000 = 1000; });
  world.run_for(seconds(180));
  CHECK(transfer.up());
  CHECK(!transfer.told());
  set_both(world, [](sim::LinkOptions& link) { link.loss_per_1000 = 0; });
  CHECK(transfer.arrives());
}

TEST_CASE("a wire that stays dead ends the connection, on the side that has something in flight", "[sim][scenario]") {
  World world(short_wire(GENERATE(kUsualMtu, kLargeMtu)));
  Transfer transfer(world, 64);
  world.run_for(milliseconds(10));
  set_both(world, [](sim::LinkOptions& link) { link.loss_per_1000 = 1000; });
  world.run_for(seconds(1500));
  CHECK(transfer.pair.a->qp->state() == qp::State::error);
  CHECK(transfer.nothing_foreign());
}

TEST_CASE("a wire that spoils one frame in ten delivers all octets, and none that is wrong",
          "[sim][scenario][V-ERR-05]") {
  const std::uint32_t mtu = GENERATE(kUsualMtu, kLargeMtu);
  WorldOptions options = short_wire(mtu);
  options.link.corrupt_per_1000 = 100;
  World world(options);
  Transfer transfer(world, mtu == kUsualMtu ? 32 : 320);  // so that there are frames enough
  CHECK(transfer.arrives());
  CHECK(world.b.device.counters().bad_checksums > 10);
}

TEST_CASE("where no checksum is looked at, the CRC keeps spoilt octets out of memory", "[sim][scenario]") {
  const std::uint32_t mtu = GENERATE(kUsualMtu, kLargeMtu);
  unsigned caught = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = short_wire(mtu);
    options.seed = seed;
    options.a.checksums = options.b.checksums = false;
    World world(options);
    Transfer transfer(world, 16);
    world.run_for(milliseconds(1));
    // Of large frames there are few.
    set_both(world, [&](sim::LinkOptions& link) { link.corrupt_per_1000 = mtu == kUsualMtu ? 10 : 200; });
    world.run_for(seconds(5));
    CHECK(transfer.nothing_foreign());
    if (transfer.told() && transfer.pair.b->host.completions[0].status == qp::Status::success)
      CHECK(transfer.target == transfer.source);
    for (const qp::Event event : transfer.pair.b->host.events) caught += event == qp::Event::crc_error ? 1 : 0;
  }
  CHECK(caught > 0);
}

TEST_CASE("every frame comes twice, and a third of them late: every octet is placed once", "[sim][scenario]") {
  WorldOptions options = short_wire(GENERATE(kUsualMtu, kLargeMtu));
  options.link.repeat_per_1000 = 1000;
  options.link.late_per_1000 = 330;
  options.link.late = milliseconds(1);
  World world(options);
  Transfer transfer(world, 16);
  CHECK(transfer.arrives());
  CHECK(transfer.pair.b->qp->counters().writes_in == 17);  // the first is the RTR (W-MPA-45)
  CHECK(transfer.pair.b->qp->counters().sends_in == 1);
}

TEST_CASE("W-MPA-59, W-TCP-07: a path that becomes narrower in the middle of the work, with word of it",
          "[sim][scenario][W-MPA-59][W-TCP-07]") {
  const std::uint32_t mtu = GENERATE(kUsualMtu, kLargeMtu);
  for (const std::uint32_t narrow : {1400u, 1006u, 576u}) {
    World world(short_wire(mtu));
    Transfer transfer(world, 32);
    world.run_for(milliseconds(3));
    REQUIRE(!transfer.told());
    narrow_the_path(world, narrow);
    CHECK(transfer.arrives(seconds(60)));
    CHECK(transfer.up());
  }
}

namespace {

void attacked(std::uint64_t seeds, Danger danger, const char* where, std::uint32_t mtu) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const sim::Report report = sim::run_workload(seed, false, danger, mtu);
    INFO("rnic-replay --attacker " << where << " --seed " << seed << " --verbose"
                                   << (mtu != 0 ? " --mtu " + std::to_string(mtu) : ""));
    INFO(report.story);
    CHECK(report.complaint == "");
  }
}

}  // namespace

TEST_CASE("an attacker off the path ends no connection and changes no octet", "[sim][attacker]") {
  attacked(150, Danger::off_path, "off-path", 0);
}

TEST_CASE("an attacker on the path may end what he sees; nothing wrong is placed, and nothing is lost",
          "[sim][attacker]") {
  attacked(300, Danger::on_path, "on-path", 0);
}

TEST_CASE("an attacker off the path ends no connection of MTU 65535 and changes no octet", "[sim][attacker][large]") {
  attacked(150, Danger::off_path, "off-path", kLargeMtu);
}

TEST_CASE("an attacker on the path of MTU 65535 may end what he sees; nothing wrong is placed, and nothing is lost",
          "[sim][attacker][large]") {
  attacked(300, Danger::on_path, "on-path", kLargeMtu);
}

// ---- completion, by the face ---------------------------------------------------------------------------

namespace {

// A writes numbers to B, each to its place of 64; who hears of a completion looks at once at what B would read.
struct Told {
  unsigned complete = 0, stale = 0;
};
Told write_and_look(Face face, std::uint64_t seed, std::uint32_t writes) {
  WorldOptions options = short_wire(kUsualMtu);
  options.seed = seed;
  options.link.delay = microseconds(20);
  options.link.jitter_max = microseconds(60);
  options.link.loss_per_1000 = 10;
  options.a.late_mover = options.b.late_mover = true;
  World world(options);
  constexpr std::uint32_t kPlaces = 64;
  std::vector<std::byte> source(kPlaces * 4), target(kPlaces * 4);
  qp::Config config;
  config.face = face;
  config.access = tpt::Rights::remote_write;
  config.send_depth = kPlaces;
  const auto pair = sim::connect(world, config, config);
  REQUIRE(pair.established);
  using tpt::Rights;
  const Stag from = world.a.register_memory(source, Rights::local_read);
  const Stag to = world.b.register_memory(target, Rights::local_write | Rights::remote_write);
  Told told;
  pair.a->host.on_completion = [&](const qp::Completion& completion) {
    std::uint32_t there = 0;
    std::memcpy(&there, target.data() + completion.slot % kPlaces * 4, 4);
    if (completion.status != qp::Status::success) return;
    ++told.complete;
    if (there != completion.slot + 1) ++told.stale;
  };
  for (std::uint32_t i = 0; i < writes; ++i) {
    if (!world.run_until([&] { return i - told.complete < kPlaces; }, seconds(600))) break;
    const std::uint32_t value = i + 1, at = i % kPlaces * 4;
    std::memcpy(source.data() + at, &value, 4);
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    write.signaled = true;
    write.slot = i;
    write.sge_count = 1;
    write.sges[0] = {reinterpret_cast<std::uintptr_t>(source.data()) + at, 4, from};
    write.remote_stag = to;
    write.remote_to = reinterpret_cast<std::uintptr_t>(target.data()) + at;
    world.a.post_send(*pair.a, write);
  }
  world.run_until([&] { return told.complete == writes; }, seconds(600));
  return told;
}

}  // namespace

TEST_CASE("W-ACK-02: with RoCE faces a Write's completion says that the octets are there, over a bad wire too",
          "[sim][scenario][W-ACK-02]") {
  const Told told = write_and_look(Face::roce, GENERATE(1u, 2u, 3u), 20'000);
  CHECK(told.complete == 20'000);
  CHECK(told.stale == 0);
}

TEST_CASE("with iWARP faces it does not, or nothing has been looked at above", "[sim][scenario]") {
  const Told told = write_and_look(Face::iwarp, 1, 2'000);
  CHECK(told.complete == 2'000);
  CHECK(told.stale > 100);
}
