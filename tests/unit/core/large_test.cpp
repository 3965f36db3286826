// Frames as long as IP allows: everything that has a length, a budget or a number of buffers.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "kit/octet_streams.hpp"
#include "port/open.hpp"
#include "sim/plain_world.hpp"
#include "sim/world.hpp"

using namespace rnic;
using sim::World;
using sim::WorldOptions;
namespace frames = test::frames;

namespace {

constexpr std::uint32_t kLargest = 65'535;
constexpr std::uint16_t kPort = 7471;

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  config.hold_without_receive = true;
  return config;
}

struct Memory {
  Memory(sim::Rnic& rnic, std::size_t size, unsigned seed = 0) : octets(size) {
    for (std::size_t i = 0; i < size && seed != 0; ++i)
      octets[i] = static_cast<std::byte>((i * 131 + (i >> 8) * 17 + seed * 29) & 0xFF);
    stag = rnic.register_memory(octets, tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read |
                                            tpt::Rights::remote_write);
  }
  std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(octets.data()); }
  qp::Sge all() const { return {at(), static_cast<std::uint32_t>(octets.size()), stag}; }
  std::vector<std::byte> octets;
  Stag stag;
};

qp::WorkRequest work(qp::Opcode opcode, const Memory& local, const Memory* remote = nullptr) {
  qp::WorkRequest request;
  request.opcode = opcode;
  request.signaled = true;
  request.sge_count = 1;
  request.sges[0] = local.all();
  if (remote != nullptr) {
    request.remote_stag = remote->stag;
    request.remote_to = remote->at();
  }
  return request;
}

qp::ReceiveRequest receive_into(const Memory& memory) {
  qp::ReceiveRequest request;
  request.sge_count = 1;
  request.sges[0] = memory.all();
  return request;
}

bool all_well(const sim::Endpoint& endpoint, std::size_t count) {
  return endpoint.host.completions.size() == count &&
         std::all_of(endpoint.host.completions.begin(), endpoint.host.completions.end(),
                     [](const qp::Completion& each) { return each.status == qp::Status::success; });
}

WorldOptions with_mtu(std::uint32_t mtu) {
  WorldOptions options;
  options.a.mtu_bytes = options.b.mtu_bytes = mtu;
  return options;
}

// Two devices over a pair, of which each end has its own MTU.
struct OverPair {
  OverPair(std::uint32_t mtu_a, std::uint32_t mtu_b, std::uint32_t buffers) {
    const port::PortSpec spec{
        .kind = port::PortSpec::Kind::pair, .target = "w", .role = port::PortSpec::Role::none, .peer = {}};
    port::PortFactory factory({spec, spec});
    std::string error;
    a = factory.open(spec, {.name = "a", .mtu_bytes = mtu_a, .mac = {}, .buffers = buffers}, error);
    b = factory.open(spec, {.name = "b", .mtu_bytes = mtu_b, .mac = {}, .buffers = buffers}, error);
    WorldOptions options;
    options.wire_a = a.get();
    options.wire_b = b.get();
    all = a->pool().available();
    all_large = a->pool().large_available();
    world.emplace(options);
  }
  std::unique_ptr<port::Port> a, b;
  std::uint32_t all = 0, all_large = 0;
  std::optional<World> world;
};

}  // namespace

TEST_CASE("all kinds of work cross in frames of 65535 octets of IP, with IPv6, a VLAN, timestamps and markers",
          "[core][large][W-MPA-54][W-MPA-57]") {
  const bool v6 = GENERATE(false, true), vlan = GENERATE(false, true), timestamps = GENERATE(false, true),
             markers = GENERATE(false, true);
  CAPTURE(v6, vlan, timestamps, markers);
  WorldOptions options = with_mtu(kLargest);
  for (sim::RnicOptions* side : {&options.a, &options.b}) {
    if (v6) side->address = sim::address_v6(side == &options.a ? 1 : 2);
    if (vlan) side->device.vlan = 100;
    side->device.tcp.timestamps = timestamps;
    if (markers) side->device.markers = mpa::MarkerUse::both;
  }
  World world(options);
  const std::size_t link = vlan ? 18 : 14;
  std::size_t longest = 0;
  bool lengths_true = true;
  const auto watcher = [&](Bytes frame, Instant, sim::Link::Fate) {
    longest = std::max(longest, frame.size() - link);
    if (const Bytes packet = frame.subspan(link); v6) {
      const auto ip = wire::parse_ipv6(packet);
      lengths_true &= !ip || ip->payload_length + 40u == packet.size();
    } else if (const auto ip = wire::parse_ipv4(packet)) {
      lengths_true &= ip->header.total_length == packet.size();
    }
  };
  world.a_to_b.watch(watcher);
  world.b_to_a.watch(watcher);
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  Memory written(world.a, 1'000'003, 1), sent(world.a, 300'001, 2), read(world.a, 700'000);
  Memory write_sink(world.b, 1'000'003), send_sink(world.b, 300'001), source(world.b, 700'000, 3);
  world.b.post_receive(*pair.b, receive_into(send_sink));
  world.a.post_send(*pair.a, work(qp::Opcode::write, written, &write_sink));
  world.a.post_send(*pair.a, work(qp::Opcode::read, read, &source));
  world.a.post_send(*pair.a, work(qp::Opcode::send, sent));
  REQUIRE(world.run_until([&] { return all_well(*pair.a, 3) && all_well(*pair.b, 1); }, seconds(60)));
  CHECK(write_sink.octets == written.octets);
  CHECK(send_sink.octets == sent.octets);
  CHECK(read.octets == source.octets);
  CHECK(longest <= kLargest);
  CHECK(longest > 64'000);
  CHECK(lengths_true);
  for (const core::Device* device : {&world.a.device, &world.b.device}) {
    CHECK(device->counters().bad_frames + device->counters().bad_checksums == 0);
    CHECK(device->counters().no_buffer == 0);
    CHECK(device->streams().at(0).tcp.retransmitted == 0);
  }
}

TEST_CASE("a full segment makes a packet of 65535 octets in IPv4 and in IPv6, and arrives", "[core][large]") {
  const bool v6 = GENERATE(false, true), timestamps = GENERATE(false, true);
  CAPTURE(v6, timestamps);
  test::OctetStreams a, b;
  sim::PlainOptions options;
  for (sim::PlainNodeOptions* side : {&options.a, &options.b}) {
    if (v6) side->address = sim::address_v6(side == &options.a ? 1 : 2);
    side->mtu_bytes = kLargest;
    side->host.tcp.timestamps = timestamps;
  }
  sim::PlainWorld world(options, a, b);
  a.use(world.a.host);
  b.use(world.b.host);
  b.plan(kPort, {});
  std::size_t longest = 0;
  world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) { longest = std::max(longest, frame.size() - 14); });
  REQUIRE(world.b.host.listen(kPort));
  host::Call wishes;
  wishes.remote = world.b.address;
  wishes.remote_port = kPort;
  const auto stream = world.a.host.call(wishes, world.clock.now);
  REQUIRE(stream);
  a.plan(*stream, {.send_bytes = 3'000'000, .close = test::Plan::Close::sent});
  REQUIRE(world.run_until([&] { return a.find(*stream)->ended; }));
  CHECK(longest == kLargest);
  CHECK(b.records().begin()->second.received_bytes == 3'000'000);
  CHECK(b.records().begin()->second.wrong_bytes == 0);
}

TEST_CASE("a ping of 65535 octets is answered", "[core][large]") {
  // In fragments, as the kernel sends it: tests/system/e2e/veth has that. Here the frame holds it whole.
  World world(with_mtu(kLargest));
  (void)sim::connect(world, plain(), plain());  // the neighbour is known
  std::vector<std::byte> body(kLargest - wire::Ipv4Header::kSize - wire::IcmpHeader::kSize);
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i * 7);
  const auto frame = frames::packet({.destination = world.b.port.facts().mac, .source = world.a.port.facts().mac},
                                    wire::protocol::kIcmp, sim::kAddressA, sim::kAddressB,
                                    frames::icmp({.type = wire::icmp_type::kEchoRequest}, body));
  std::vector<std::byte> answer;
  world.b_to_a.watch([&](Bytes each, Instant, sim::Link::Fate) {
    if (each.size() > 1000) answer.assign(each.begin(), each.end());
  });
  world.a_to_b.send(frame, world.clock.now);
  world.run_for(milliseconds(1));
  REQUIRE(answer.size() == frame.size());
  CHECK(std::equal(answer.begin() + 42, answer.end(), frame.begin() + 42));
}

TEST_CASE("ends of a pair with unequal MTU: both ways, what goes is no longer than the smaller one", "[core][large]") {
  const bool small_first = GENERATE(false, true);
  OverPair over(small_first ? 1500 : kLargest, small_first ? kLargest : 1500, 1024);
  World& world = *over.world;
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  Memory there(world.a, 500'000, 1), there_sink(world.b, 500'000), back(world.b, 500'000, 2),
      back_sink(world.a, 500'000);
  world.a.post_send(*pair.a, work(qp::Opcode::write, there, &there_sink));
  world.b.post_send(*pair.b, work(qp::Opcode::write, back, &back_sink));
  REQUIRE(world.run_until([&] { return all_well(*pair.a, 1) && all_well(*pair.b, 1); }, seconds(60)));
  world.run_for(milliseconds(100));
  CHECK(there_sink.octets == there.octets);
  CHECK(back_sink.octets == back.octets);
  for (const core::Device* device : {&world.a.device, &world.b.device}) {
    CHECK(device->streams().at(0).mss_bytes == 1460);
    CHECK(device->streams().at(0).tcp.retransmitted == 0);
  }
}

TEST_CASE("where large buffers run out FPDUs become smaller, and the work of many queue pairs is done",
          "[core][large][W-MPA-57]") {
  constexpr std::size_t kPairs = 30;
  WorldOptions options = with_mtu(kLargest);
  options.a.large_buffers = options.b.large_buffers = 6;
  options.link.loss_per_1000 = GENERATE(0u, 10u);
  options.link.per_octet = nanoseconds(1);
  CAPTURE(options.link.loss_per_1000);
  World world(options);
  std::size_t long_frames = 0, usual_frames = 0;
  world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) {
    long_frames += frame.size() > 60'000;
    usual_frames += frame.size() > 1400 && frame.size() < 1600;
  });
  std::vector<sim::Connected> pairs;
  std::vector<std::unique_ptr<Memory>> from, to;
  for (std::size_t i = 0; i < kPairs; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i)));
    REQUIRE(pairs.back().established);
    from.push_back(std::make_unique<Memory>(world.a, 400'000, static_cast<unsigned>(i + 1)));
    to.push_back(std::make_unique<Memory>(world.b, 400'000));
  }
  for (std::size_t i = 0; i < kPairs; ++i)
    world.a.post_send(*pairs[i].a, work(qp::Opcode::write, *from[i], to[i].get()));
  const auto landed = [&] {
    for (std::size_t i = 0; i < kPairs; ++i)
      if (!all_well(*pairs[i].a, 1) || to[i]->octets != from[i]->octets) return false;
    return true;
  };
  REQUIRE(world.run_until(landed, seconds(300)));
  CHECK(long_frames > 0);
  CHECK(usual_frames > 1000);
}

TEST_CASE("queue pairs whose peers do not receive use up both classes of buffers, and when they do all goes on",
          "[core][large]") {
  constexpr std::size_t kPairs = 16;
  OverPair over(0, 0, 128);
  World& world = *over.world;
  std::vector<sim::Connected> pairs;
  std::vector<std::unique_ptr<Memory>> from, to;
  for (std::size_t i = 0; i < kPairs; ++i) {
    pairs.push_back(sim::connect(world, plain(), plain(), static_cast<std::uint16_t>(kPort + i)));
    REQUIRE(pairs.back().established);
    from.push_back(std::make_unique<Memory>(world.a, 1'500'000, static_cast<unsigned>(i + 1)));
    to.push_back(std::make_unique<Memory>(world.b, 1'500'000));
  }
  for (std::size_t i = 0; i < kPairs; ++i) world.a.post_send(*pairs[i].a, work(qp::Opcode::send, *from[i]));
  world.run_for(milliseconds(50));
  BufferPool& data = world.a.device.data_pool();
  // Nearly: what is free is what one more stream could have.
  CHECK(data.large_available() <= 96 / kPairs);
  CHECK(data.available() <= 96 / kPairs);
  // Acknowledgements and what goes with them still have buffers.
  CHECK(over.a->pool().available() > 0);
  CHECK(over.a->pool().large_available() > 0);
  for (std::size_t i = 0; i < kPairs; ++i) {
    CHECK(pairs[i].b->host.completions.empty());
    world.b.post_receive(*pairs[i].b, receive_into(*to[i]));
  }
  const auto received = [&] {
    for (std::size_t i = 0; i < kPairs; ++i)
      if (!all_well(*pairs[i].b, 1) || to[i]->octets != from[i]->octets) return false;
    return true;
  };
  REQUIRE(world.run_until(received, seconds(120)));
  for (const auto& each : pairs) {
    world.a.destroy_qp(*each.a);
    world.b.destroy_qp(*each.b);
  }
  REQUIRE(world.run_until([&] { return world.a.device.stream_count() + world.b.device.stream_count() == 0; }));
  CHECK(over.a->pool().available() + 2 * 32 >= over.all);  // some are at the devices' hands
  CHECK(over.a->pool().large_available() == over.all_large);
}

TEST_CASE("short messages do not take large buffers, and go on where there are no more of these", "[core][large]") {
  OverPair over(0, 0, 1024);  // of the small ones a stream may hold half
  World& world = *over.world;
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  std::vector<BufferRef> taken;
  const bool none_left = GENERATE(false, true);
  while (none_left && over.a->pool().large_available() > 0) taken.push_back(BufferRef(over.a->pool().take_large()));
  Memory from(world.a, 1000, 1), to(world.b, 1000), longer(world.a, 300'000, 2), longer_sink(world.b, 300'000);
  std::uint32_t least = over.a->pool().large_available();
  const std::uint32_t before = least;
  for (int i = 0; i < 200; ++i) world.a.post_send(*pair.a, work(qp::Opcode::write, from, &to));
  world.application = [&] {
    least = std::min(least, over.a->pool().large_available());
    return false;
  };
  REQUIRE(world.run_until([&] { return all_well(*pair.a, 200); }, seconds(10)));
  CHECK(least == before);
  world.a.post_send(*pair.a, work(qp::Opcode::write, longer, &longer_sink));
  REQUIRE(world.run_until([&] { return all_well(*pair.a, 201); }, seconds(10)));
  world.run_for(milliseconds(10));
  CHECK(longer_sink.octets == longer.octets);
  CHECK((least < before) == !none_left);
}
