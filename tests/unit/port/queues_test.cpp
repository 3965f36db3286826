// Ports with a queue for each of several workers: af_packet, af_xdp, tap. Needs root.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "port/netdev.hpp"
#include "port/open.hpp"
#include "port/steered_ports.hpp"
#include "port/steering.hpp"
#include "unit/port/peer.hpp"
#include "unit/port/skip.hpp"
#include "unit/port/veth.hpp"
#include "wire/rss.hpp"

namespace rnic::port {
namespace {

using test::Ends, test::obstacle, test::open, test::run, test::tap_obstacle;

constexpr unsigned kQueues = 3;
const wire::IpAddress kNear4 = wire::IpAddress::v4(192, 0, 2, 1), kNear6 = *wire::parse_ip("2001:db8::1");

rnic::test::Octets segment_from(const wire::IpAddress& far, std::uint16_t port, std::span<const std::uint16_t> tags) {
  const wire::IpAddress& near = far.is_v4() ? kNear4 : kNear6;
  wire::TcpHeader header;
  header.source_port = port;
  header.destination_port = 4420;
  return rnic::test::frames::packet({.destination = Ends::kOurs, .source = {}, .type = 0}, wire::protocol::kTcp, far,
                                    near, rnic::test::frames::tcp(header, far, near, rnic::test::Octets(100)), tags);
}

BufferRef buffer_of(Port& port, const rnic::test::Octets& octets) {
  BufferRef frame = BufferRef::take(port.pool(), static_cast<std::uint32_t>(octets.size()));
  REQUIRE(frame);
  std::memcpy(frame->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
  return frame;
}

// A port on one end of a veth, and so many queues of one on the other.
struct DividedEnds : Ends {
  using Ends::Ends;
  void open_queues(unsigned count, const std::string& kind = "af_packet") {
    std::string error;
    one = open("af_packet:one", error);
    INFO(error);
    REQUIRE(one);
    const auto spec = parse_spec(kind + ":two");
    PortFactory factory({*spec});
    queues = factory.open_queues(*spec, {.name = "rnic0", .mtu_bytes = 0, .mac = {}, .buffers = 8192}, count, error);
    INFO(error);
    REQUIRE(queues.size() == count);
    dpdk_register_thread();
    REQUIRE(test::eventually([&] { return one->link_up() && queues[0]->link_up(); }));
  }
  // What comes to each until so many have come to all, and some time after.
  std::vector<std::vector<rnic::test::Octets>> receive_by(const std::vector<Port*>& ports, std::size_t frames) {
    std::vector<std::vector<rnic::test::Octets>> got(ports.size());
    std::size_t all = 0;
    const auto look = [&] {
      for (std::size_t i = 0; i < ports.size(); ++i) {
        Buffer* burst[64];
        const unsigned count = ports[i]->receive_burst(burst, 64);
        for (unsigned k = 0; k < count; ++k) {
          const BufferRef frame(burst[k]);
          if (!(wire::load_mac(frame->bytes(), 0) == kOurs)) continue;
          got[i].emplace_back(frame->bytes().begin(), frame->bytes().end());
          ++all;
        }
      }
      return all >= frames;
    };
    CHECK(test::eventually(look));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    look();
    CHECK(all == frames);
    return got;
  }
  std::vector<Port*> all_queues() const {
    std::vector<Port*> all;
    for (const auto& each : queues) all.push_back(each.get());
    return all;
  }
  std::vector<std::unique_ptr<Port>> queues;
};

// Of many connections, and three frames besides that are of none.
std::vector<rnic::test::Octets> frames_of_many(std::uint32_t connections) {
  constexpr std::uint16_t kTag[] = {5};
  std::vector<rnic::test::Octets> all;
  std::mt19937 chance(1);
  for (std::uint32_t i = 0; i < connections; ++i) {
    std::array<std::uint8_t, 16> octets{0x20, 0x01, 0x0d, 0xb8, 9};
    octets[15] = static_cast<std::uint8_t>(i);
    const wire::IpAddress far =
        i % 2 == 0 ? wire::IpAddress::v4(198, 51, 100, octets[15]) : wire::IpAddress::from_octets(octets);
    all.push_back(segment_from(far, static_cast<std::uint16_t>(chance()), {kTag, i % 3 == 0 ? 1u : 0u}));
  }
  const wire::EthernetHeader link{.destination = Ends::kOurs, .source = {}, .type = wire::ether_type::kIpv4};
  const wire::IpAddress far = wire::IpAddress::v4(198, 51, 100, 7);
  wire::ArpPacket answer;
  answer.operation = wire::ArpPacket::kReply;
  all.push_back(rnic::test::frames::arp(link, answer));
  all.push_back(rnic::test::frames::packet(link, wire::protocol::kUdp, far, kNear4, rnic::test::Octets(50)));
  wire::Ipv4Header fragment;
  fragment.more_fragments = true;
  fragment.protocol = wire::protocol::kTcp;
  fragment.source = far;
  fragment.destination = kNear4;
  all.push_back(
      rnic::test::frames::ethernet(link, rnic::test::frames::ipv4(fragment, rnic::test::Octets(64, std::byte{1}))));
  return all;
}

}  // namespace

TEST_CASE("the kernel gives each queue of an af_packet port its shard's connections, and the first one all else",
          "[port][veth][steering]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  DividedEnds ends;
  ends.open_queues(kQueues);
  const auto frames = frames_of_many(90);
  // Also when the interface comes up anew.
  for (int round = 0; round < 2; ++round) {
    ends.send(frames);
    const auto got = ends.receive_by(ends.all_queues(), frames.size());
    std::vector<rnic::test::Octets> all;
    for (unsigned i = 0; i < kQueues; ++i) {
      CHECK(got[i].size() >= 20);
      for (const rnic::test::Octets& each : got[i]) {
        CHECK(steer(each, kQueues).shard == i);
        all.push_back(each);
      }
    }
    for (const rnic::test::Octets& each : frames)
      CHECK(std::count_if(all.begin(), all.end(), [&](const rnic::test::Octets& other) {
              return std::equal(each.begin(), each.begin() + 42, other.begin(), other.begin() + 42);
            }) == 1);
    REQUIRE((run("ip link set two down") && run("ip link set two up")));
    REQUIRE(test::eventually([&] { return ends.one->link_up() && ends.queues[0]->link_up(); }));
    ends.receive_by(ends.all_queues(), 0);
  }
}

TEST_CASE("each queue of an af_packet port sends, hears nothing of what leaves by the interface, and wakes by itself",
          "[port][veth][steering]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  DividedEnds ends;
  ends.open_queues(kQueues);
  std::swap(ends.two, ends.one);  // what Ends receives by
  // Whoever sends it: the queues, and another port on the interface.
  std::string error;
  ends.queues.push_back(open("af_packet:two", error));
  for (const auto& queue : ends.queues) {
    const auto octets = segment_from(wire::IpAddress::v4(1), 1, {});
    Buffer* raw = buffer_of(*queue, octets).release();
    REQUIRE(queue->send_burst(&raw, 1) == 1);
    CHECK(ends.receive(octets.size()).size() == 1);
  }
  ends.receive_by(ends.all_queues(), 0);
  ends.queues.pop_back();
  std::swap(ends.two, ends.one);
  for (const auto& queue : ends.queues) REQUIRE(queue->arm());
  std::uint16_t port = 1;
  const wire::IpAddress far = wire::IpAddress::v4(198, 51, 100, 9);
  while (wire::rss::shard_of(far, port, kNear4, 4420, kQueues) != 2) ++port;
  ends.send({segment_from(far, port, {})});
  for (unsigned i = kQueues; i-- > 0;) {
    pollfd waiting{.fd = ends.queues[i]->wake_descriptor(), .events = POLLIN, .revents = 0};
    CHECK(poll(&waiting, 1, i == 2 ? 10'000 : 0) == (i == 2 ? 1 : 0));
  }
}

TEST_CASE("an af_packet port's queues serve as many workers and more: each frame comes to its shard's, or to all",
          "[port][veth][steering]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  DividedEnds ends;
  const unsigned queues = GENERATE(1u, 2u), shards = 3;
  ends.open_queues(queues);
  SteeredPorts port(std::move(ends.queues), shards);
  std::vector<Port*> all;
  for (unsigned i = 0; i < shards; ++i) all.push_back(&port.of(i));
  const auto frames = frames_of_many(60);
  ends.send(frames);
  const auto got = ends.receive_by(all, frames.size() + 2 * 2);
  for (unsigned i = 0; i < shards; ++i)
    for (const rnic::test::Octets& each : got[i]) {
      const Steered where = steer(each, shards);
      CHECK((where.to_all || where.shard == i));
    }
  std::swap(ends.two, ends.one);
  for (unsigned i = 0; i < shards; ++i) {
    const auto octets = segment_from(wire::IpAddress::v4(1), 1, {});
    Buffer* raw = buffer_of(port.of(i), octets).release();
    REQUIRE(port.of(i).send_burst(&raw, 1) == 1);
    ends.receive_by(all, 0);
    CHECK(ends.receive(octets.size()).size() == 1);
  }
}

TEST_CASE("queues of one af_packet port share its buffers, and each has enough", "[port][veth][steering]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  DividedEnds ends;
  const unsigned count = GENERATE(2u, 16u);
  ends.open_queues(count);
  for (const auto& queue : ends.queues) {
    CHECK(queue->pool().available() == std::max(8192u / count, 512u));
    CHECK(queue->pool().large_available() == std::max(ends.one->pool().large_available() / count, 512u));
  }
}

TEST_CASE("af_xdp has all queues of its interface: each frame comes to its shard, and each shard sends and wakes",
          "[port][veth][steering]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  DividedEnds ends("numrxqueues 2 numtxqueues 2");
  const unsigned shards = GENERATE(2u, 3u);
  const auto spec = parse_spec("af_xdp:two");
  std::string error;
  CHECK(PortFactory({*spec}).open_queues(*spec, {}, 1, error).empty());
  CHECK(error ==
        "port \"af_xdp:two\": the interface spreads what it receives over 2 queues and the device has one worker, with "
        "a queue each; first: ethtool -L two combined 1 (or rx and tx, where it has them apart)");
  ends.open_queues(2, "af_xdp");
  for (const auto& queue : ends.queues) CHECK(queue->pool().available() <= 8192 / 2);
  for (const auto& queue : ends.queues) REQUIRE(queue->wake_descriptor() >= 0);
  CHECK(ends.queues[0]->wake_descriptor() != ends.queues[1]->wake_descriptor());
  SteeredPorts port(std::move(ends.queues), shards);
  std::vector<Port*> all;
  for (unsigned i = 0; i < shards; ++i) all.push_back(&port.of(i));
  ends.receive_by(all, 0);
  const auto frames = frames_of_many(60);
  ends.send(frames);
  const auto got = ends.receive_by(all, frames.size() + (shards - 1) * 2);
  for (unsigned i = 0; i < shards; ++i)
    for (const rnic::test::Octets& each : got[i]) {
      const Steered where = steer(each, shards);
      CHECK((where.to_all || where.shard == i));
    }
  std::swap(ends.two, ends.one);
  for (Port* const each : all) {
    const auto octets = segment_from(wire::IpAddress::v4(1), 1, {});
    Buffer* raw = buffer_of(*each, octets).release();
    REQUIRE(each->send_burst(&raw, 1) == 1);
    ends.receive_by(all, 0);
    CHECK(ends.receive(octets.size()).size() == 1);
  }
  std::swap(ends.two, ends.one);
  // By whichever queue the kernel sends it: whose it is wakes, once those who hand over have done so.
  for (unsigned shard = 0; shard < shards; ++shard) {
    for (Port* const each : all) REQUIRE(test::eventually([&] { return each->arm(); }));
    std::uint16_t from = 1;
    const wire::IpAddress far = wire::IpAddress::v4(198, 51, 100, 9);
    while (wire::rss::shard_of(far, from, kNear4, 4420, shards) != shard) ++from;
    ends.send({segment_from(far, from, {})});
    bool received = false;
    CHECK(test::eventually([&] {
      for (unsigned i = 0; i < shards && !received; ++i) {
        pollfd waiting{.fd = all[i]->wake_descriptor(), .events = POLLIN, .revents = 0};
        if (poll(&waiting, 1, 0) != 1) continue;
        all[i]->disarm();
        Buffer* raw = nullptr;
        if (all[i]->receive_burst(&raw, 1) != 1) continue;
        const BufferRef frame(raw);
        received = wire::load_mac(frame->bytes(), 0) == Ends::kOurs;
        CHECK((!received || i == shard));
      }
      return received;
    }));
    for (Port* const each : all) each->disarm();
  }
}

TEST_CASE("af_xdp says how many buffers its queues want where there are fewer, and has some left with as many",
          "[port][veth][steering]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  const unsigned count = GENERATE(1u, 2u);
  const std::string each = std::to_string(count);
  DividedEnds ends("numrxqueues " + each + " numtxqueues " + each);
  const auto spec = parse_spec("af_xdp:two");
  std::string error;
  PortFactory factory({*spec});
  const auto open_with = [&](std::uint32_t buffers) {
    return factory.open_queues(*spec, {.name = "rnic0", .mtu_bytes = 0, .mac = {}, .buffers = buffers}, count, error);
  };
  CHECK(open_with(768 * count - 1).empty());
  CHECK(error == (count == 1 ? "port \"af_xdp:two\": a queue wants buffers = 768 at least"
                             : "port \"af_xdp:two\": 2 queues want buffers = 1536 at least"));
  const auto queues = open_with(768 * count);
  INFO(error);
  REQUIRE(queues.size() == count);
  dpdk_register_thread();
  for (const auto& queue : queues) CHECK(queue->pool().available() >= 256);
}

TEST_CASE("a tap has a queue for each worker, to which the kernel sends what answers it", "[port][veth][steering]") {
  if (const std::string why = tap_obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  const auto spec = parse_spec("tap:rnictap1");
  std::string error;
  PortFactory factory({*spec});
  auto queues =
      factory.open_queues(*spec, {.name = "rnic0", .mtu_bytes = 0, .mac = {}, .buffers = 16384}, kQueues, error);
  INFO(error);
  REQUIRE(queues.size() == kQueues);
  dpdk_register_thread();
  REQUIRE(run("ip addr add 192.0.2.1/24 dev rnictap1"));
  REQUIRE(run("ip link set rnictap1 up"));
  REQUIRE(run("ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev rnictap1"));
  const auto kernels = find_netdev("rnictap1");
  REQUIRE(kernels);
  const wire::IpAddress far = wire::IpAddress::v4(192, 0, 2, 9);
  for (unsigned i = 0; i < kQueues; ++i) {
    CHECK(queues[i]->facts().mac == queues[0]->facts().mac);
    CHECK(queues[i]->pool().available() <= 16384 / kQueues);
    REQUIRE(queues[i]->wake_descriptor() >= 0);
    // Nobody listens there: the kernel resets. Of the first one it learns the queue.
    std::uint16_t port = 1000;
    while (wire::rss::shard_of(far, port, kNear4, 4420, kQueues) != i) ++port;
    const auto comes_to = [&](bool learned) {
      wire::TcpHeader header;
      header.source_port = port;
      header.destination_port = 4420;
      header.flags = wire::tcp_flags::kSyn;
      Buffer* raw = buffer_of(*queues[i],
                              rnic::test::frames::packet(
                                  {.destination = kernels->mac, .source = Ends::kOurs, .type = 0}, wire::protocol::kTcp,
                                  far, kNear4, rnic::test::frames::tcp(header, far, kNear4, {})))
                        .release();
      REQUIRE(queues[i]->send_burst(&raw, 1) == 1);
      if (learned) {
        CHECK(test::becomes_readable(queues[i]->wake_descriptor()));
        queues[i]->disarm();
      }
      unsigned queue = kQueues;
      CHECK(test::eventually([&] {
        for (unsigned k = 0; k < kQueues && queue == kQueues; ++k)
          while (queues[k]->receive_burst(&raw, 1) == 1) {
            const BufferRef frame(raw);
            if (wire::load_mac(frame->bytes(), 0) == Ends::kOurs) queue = k;
          }
        return queue != kQueues;
      }));
      return queue;
    };
    comes_to(false);
    for (Buffer* raw = nullptr; !queues[i]->arm();)
      while (queues[i]->receive_burst(&raw, 1) == 1) BufferRef gone(raw);
    CHECK(comes_to(true) == i);
  }
}

TEST_CASE("a port of DPDK's with too few buffers for several rings has one queue for all its workers",
          "[port][veth][steering]") {
  if (const std::string why = tap_obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  const auto spec = parse_spec("tap:rnictap2");
  std::string error;
  PortFactory factory({*spec});
  auto queues = factory.open_queues(*spec, {.name = "rnic0", .mtu_bytes = 0, .mac = {}, .buffers = 2048}, 3, error);
  INFO(error);
  REQUIRE(queues.size() == 1);
  dpdk_register_thread();
  SteeredPorts port(std::move(queues), 3);
  for (unsigned i = 0; i < 3; ++i) {
    CHECK(port.of(i).wake_descriptor() >= 0);
    Buffer* none[64];
    for (unsigned n = port.of(i).receive_burst(none, 64); n-- > 0;) BufferRef gone(none[n]);
  }
  CHECK(port.of(2).pool().room_bytes() == port.of(0).pool().room_bytes());
  CHECK(port.of(2).facts().mac == port.of(0).facts().mac);
}

}  // namespace rnic::port
