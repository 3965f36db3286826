// What is af_xdp's alone, on a veth pair. Needs root.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "port/netdev.hpp"
#include "port/open.hpp"
#include "unit/port/peer.hpp"
#include "unit/port/skip.hpp"
#include "unit/port/veth.hpp"

namespace rnic::port {
namespace {

using rnic::test::Octets;
using test::Ends, test::obstacle, test::open, test::run;

// By af_packet to af_xdp, both of that MTU.
struct XdpEnds : Ends {
  explicit XdpEnds(std::uint32_t mtu = 1500) {
    for (const char* name : {"one", "two"})
      REQUIRE(run(std::string("ip link set ") + name + " mtu " + std::to_string(mtu)));
    std::string error;
    two = open("af_xdp:two", error);
    INFO(error);
    REQUIRE(two);
    one = open("af_packet:one", error);
    REQUIRE(one);
    REQUIRE(test::eventually([&] { return one->link_up() && two->link_up(); }));
  }
};

Octets frame_of(std::size_t octets, std::uint8_t seed = 1) {
  Octets frame(octets);
  for (std::size_t i = 0; i < octets; ++i) frame[i] = static_cast<std::byte>(i * 7 + seed);
  std::copy(Ends::kOurs.octets.begin(), Ends::kOurs.octets.end(), reinterpret_cast<std::uint8_t*>(frame.data()));
  frame[12] = std::byte{0x88}, frame[13] = std::byte{0xB5};
  return frame;
}

Octets octets_of(const BufferRef& frame) { return {frame->bytes().begin(), frame->bytes().end()}; }

// Frames of all lengths, both ways.
void cross(Ends& ends, std::uint32_t mtu) {
  for (std::uint32_t length = 60; length <= mtu + 14; length += 497)
    for (int way = 0; way < 2; ++way) {
      CAPTURE(length, way);
      ends.send({frame_of(length)});
      const auto got = ends.receive(length);
      REQUIRE(got.size() == 1);
      CHECK(octets_of(got[0]) == frame_of(length));
      std::swap(ends.one, ends.two);
    }
}

Octets segment(std::size_t payload, bool v6) {
  std::array<std::uint8_t, 16> from{0x20, 0x01, 0x0d, 0xb8, 1}, to{0x20, 0x01, 0x0d, 0xb8, 2};
  const wire::IpAddress source = v6 ? wire::IpAddress::from_octets(from) : wire::IpAddress::v4(10, 0, 0, 1);
  const wire::IpAddress destination = v6 ? wire::IpAddress::from_octets(to) : wire::IpAddress::v4(10, 0, 0, 2);
  wire::TcpHeader header;
  header.source_port = 1, header.destination_port = 2;
  header.flags = wire::tcp_flags::kAck;
  return rnic::test::frames::packet({.destination = Ends::kOurs, .source = {}, .type = 0}, wire::protocol::kTcp, source,
                                    destination, rnic::test::frames::tcp(header, source, destination, Octets(payload)),
                                    {});
}

}  // namespace

TEST_CASE("af_xdp hands over frames of any length up to its MTU as they are, and loses no buffer", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  const std::uint32_t mtu = GENERATE(1500u, 9000u, 16'000u);
  CAPTURE(mtu);
  XdpEnds ends(mtu);
  ends.receive(0);
  const std::uint32_t small = ends.two->pool().available(), large = ends.two->pool().large_available();
  // What fits a small buffer, a chunk, two and so on, and one octet more.
  std::vector<Octets> frames;
  for (const std::uint32_t length : {60u, 1513u, 1514u, 2688u, 2689u, 3392u, 3393u, 3584u, 3585u, 7168u, 7169u, 9014u,
                                     10'752u, 10'753u, 14'336u, 14'337u, 16'014u})
    if (length <= mtu + 14) frames.push_back(frame_of(length, static_cast<std::uint8_t>(length)));
  for (int round = 0; round < 150; ++round) {
    std::size_t octets = 0;
    for (const Octets& each : frames) octets += each.size();
    ends.send(frames);
    const auto got = ends.receive(octets);
    REQUIRE(got.size() == frames.size());
    for (std::size_t i = 0; i < frames.size(); ++i) {
      REQUIRE(octets_of(got[i]) == frames[i]);
      REQUIRE(got[i]->checksum_good == 0);
    }
  }
  CHECK(ends.two->pool().available() == small);
  CHECK(ends.two->pool().large_available() == large);
  CHECK(ends.two->frames_lost() == 0);
}

TEST_CASE("af_xdp sends frames of any length from where they lie, and has their buffers back", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  XdpEnds ends(16'000);
  ends.receive(0);
  std::swap(ends.one, ends.two);  // who sends is af_xdp
  BufferPool& pool = ends.one->pool();
  const std::uint32_t small = pool.available(), large = pool.large_available();
  for (std::uint32_t length = 60; length <= 16'014; length += 797) {
    CAPTURE(length);
    const Octets frame = frame_of(length);
    // One that its sender keeps is shared until it is sent.
    BufferRef kept = BufferRef::take(pool, length);
    REQUIRE(kept);
    std::memcpy(kept->append(length).data(), frame.data(), length);
    Buffer* const sent = kept.share().release();
    REQUIRE(ends.one->send_burst(&sent, 1) == 1);
    const auto got = ends.receive(length);
    REQUIRE(got.size() == 1);
    CHECK(octets_of(got[0]) == frame);
    CHECK(test::eventually([&] { return ends.one->arm() && !pool.shared(*kept); }));
    kept.reset();
    CHECK(pool.available() == small);
    CHECK(pool.large_available() == large);
  }
}

TEST_CASE("af_xdp sends more than its ring holds, bit by bit, and nothing is lost", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  constexpr std::uint32_t kFrames = 20'000;
  XdpEnds ends(9000);
  ends.receive(0);
  std::swap(ends.one, ends.two);
  std::uint32_t made = 0, received = 0;
  const auto length_of = [](std::uint32_t number) { return number % 5 == 0 ? 9014u : 60u + number % 1000; };
  std::vector<Buffer*> waiting;
  bool as_sent = true;
  CHECK(test::eventually([&] {
    for (int turn = 0; turn < 100; ++turn) {
      while (made < kFrames && waiting.size() < 64) {
        BufferRef frame = BufferRef::take(ends.one->pool(), length_of(made));
        if (!frame) break;
        const Octets octets = frame_of(length_of(made), static_cast<std::uint8_t>(made));
        std::memcpy(frame->append(length_of(made)).data(), octets.data(), octets.size());
        waiting.push_back(frame.release());
        ++made;
      }
      const unsigned sent = ends.one->send_burst(waiting.data(), static_cast<unsigned>(waiting.size()));
      waiting.erase(waiting.begin(), waiting.begin() + sent);
      (void)ends.one->arm();
      Buffer* got[64];
      const unsigned n = ends.two->receive_burst(got, 64);
      for (unsigned i = 0; i < n; ++i) {
        const BufferRef frame(got[i]);
        if (!(wire::load_mac(frame->bytes(), 0) == Ends::kOurs)) continue;
        as_sent &= octets_of(frame) == frame_of(length_of(received), static_cast<std::uint8_t>(received));
        ++received;
      }
    }
    return received == kFrames;
  }));
  for (Buffer* each : waiting) BufferRef left(each);
  CHECK(as_sent);
  CHECK(ends.one->frames_lost() == 0);
  CHECK(ends.two->frames_lost() == 0);
}

TEST_CASE("af_xdp loses what is sent while its interface is down, counts it, and goes on when it is up",
          "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  XdpEnds ends;
  ends.receive(0);
  std::swap(ends.one, ends.two);
  Port& port = *ends.one;
  const std::uint32_t all = port.pool().available();
  for (const char* how : {"ip link set two down", "ip link set one down"}) {
    CAPTURE(how);
    const std::uint64_t lost = port.frames_lost();
    REQUIRE(run(how));
    REQUIRE(test::eventually([&] { return !port.link_up(); }));
    for (int i = 0; i < 300; ++i) ends.send(std::vector<Octets>(10, frame_of(100)));
    CHECK(port.frames_lost() - lost > 2000);
    CHECK(test::eventually([&] { return port.arm(); }));
    REQUIRE((run("ip link set two up") && run("ip link set one up")));
    REQUIRE(test::eventually([&] { return port.link_up() && ends.two->link_up(); }));
    ends.send({frame_of(200)});
    const auto got = [&] {
      for (const BufferRef& each : ends.receive(200))
        if (each->length == 200) return true;
      return false;
    };
    CHECK(test::eventually(got));
    CHECK(test::eventually([&] { return port.arm() && port.pool().available() == all; }));
  }
}

TEST_CASE("af_xdp goes on when its interface went down with a ring full of what was to be sent", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  XdpEnds ends(9000);
  ends.receive(0);
  std::swap(ends.one, ends.two);
  REQUIRE(run("ip link set two down"));
  std::vector<Buffer*> frames;
  while (Buffer* const one = ends.one->pool().take_large()) {
    one->append(9000);
    frames.push_back(one);
  }
  REQUIRE(frames.size() > 1000);
  // The first find out, the rest are lost.
  unsigned sent = 0;
  CHECK(test::eventually([&] {
    sent += ends.one->send_burst(frames.data() + sent, static_cast<unsigned>(frames.size()) - sent);
    return sent == frames.size();
  }));
  REQUIRE(run("ip link set two up"));
  REQUIRE(test::eventually([&] { return ends.one->link_up() && ends.two->link_up(); }));
  ends.send({frame_of(200)});
  CHECK(test::eventually([&] {
    for (const BufferRef& each : ends.receive(200))
      if (each->length == 200) return true;
    return false;
  }));
  CHECK(test::eventually([&] { return ends.one->arm() && ends.one->pool().large_available() == frames.size(); }));
}

TEST_CASE("af_xdp refuses an interface with fewer queues to send by than to receive by", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  REQUIRE(run("ip link add one numtxqueues 2 numrxqueues 1 type veth peer name two numrxqueues 2 numtxqueues 1"));
  REQUIRE((run("ip link set one up") && run("ip link set two up")));
  CHECK(netdev_queues("two") == 2);
  CHECK(netdev_send_queues("two") == 1);
  const auto spec = parse_spec("af_xdp:two");
  std::string error;
  CHECK(PortFactory({*spec}).open_queues(*spec, {}, 2, error).empty());
  CHECK(error ==
        "port \"af_xdp:two\": the interface receives by 2 queues and sends by 1; first, with as many of both: "
        "ethtool -L two rx 1 tx 1");
}

TEST_CASE("af_xdp is closed with frames on their way, and with half a frame", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  for (int round = 0; round < 3; ++round) {
    XdpEnds ends(9000);
    ends.receive(0);
    ends.send(std::vector<Octets>(20, frame_of(9000)));
    // A piece each: the last one's frame is not whole.
    Buffer* raw = nullptr;
    for (int i = 0; i < 50 && round != 0; ++i)
      if (ends.two->receive_burst(&raw, 1) == 1) BufferRef whole(raw);
    std::swap(ends.one, ends.two);
    ends.send(std::vector<Octets>(50, frame_of(9000)));
    if (round == 2) REQUIRE(run("ip link del two"));
    ends.one.reset();
    ends.two.reset();
    run("ip link del one");
  }
}

TEST_CASE("af_xdp receives while the kernel is handing over, and has the ring filled again", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  constexpr std::uint32_t kFrames = 50'000, kAtOnce = 128;
  XdpEnds ends;
  ends.receive(0);
  std::atomic<std::uint32_t> received{0};
  std::thread sender([&] {
    for (std::uint32_t number = 0; number < kFrames; ++number) {
      while (number - received.load(std::memory_order_relaxed) >= kAtOnce) std::this_thread::yield();
      Buffer* frame = nullptr;
      if (ends.one->pool().take(&frame, 1) != 1) std::abort();
      const Octets octets = frame_of(60, static_cast<std::uint8_t>(number));
      std::memcpy(frame->append(60).data(), octets.data(), 60);
      while (ends.one->send_burst(&frame, 1) != 1) std::this_thread::yield();
    }
  });
  bool in_order = true;
  CHECK(test::eventually([&] {
    Buffer* got[64];
    const unsigned n = ends.two->receive_burst(got, 64);
    for (unsigned i = 0; i < n; ++i) {
      const BufferRef frame(got[i]);
      if (!(wire::load_mac(frame->bytes(), 0) == Ends::kOurs)) continue;
      in_order &= frame->bytes()[20] == static_cast<std::byte>(20 * 7 + received);
      received.fetch_add(1, std::memory_order_relaxed);
    }
    return received == kFrames;
  }));
  received = kFrames + kAtOnce;
  sender.join();
  CHECK(in_order);
}

TEST_CASE("af_xdp works in front of the kernel's stack where the interface has no driver's part", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  const std::uint32_t mtu = GENERATE(1500u, 9000u);
  CAPTURE(mtu);
  Ends ends;
  for (const char* name : {"one", "two"})
    REQUIRE(run(std::string("ip link set ") + name + " mtu " + std::to_string(mtu)));
  if (!run("ip link add link two name over address 02:00:00:00:00:09 type macvlan mode private"))
    SKIP_BECAUSE("this kernel has no macvlan");
  std::ofstream("/proc/sys/net/ipv6/conf/over/disable_ipv6") << 1;
  REQUIRE(run("ip link set over up"));
  std::string error;
  ends.two = open("af_xdp:over", error);
  INFO(error);
  REQUIRE(ends.two);
  CHECK(run("ip -d link show over | grep -q xdpgeneric"));
  ends.one = open("af_packet:one", error);
  REQUIRE(ends.one);
  REQUIRE(test::eventually([&] { return ends.one->link_up() && ends.two->link_up(); }));
  cross(ends, mtu);
}

// The driver of a veth takes frames of its other end's MTU in one chunk, or a program that knows pieces.
TEST_CASE("af_xdp works by the driver where the other end's frames may be longer than ours", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  Ends ends;
  REQUIRE(run("ip link set one mtu 9000"));
  std::string error;
  ends.two = open("af_xdp:two", error);
  INFO(error);
  REQUIRE(ends.two);
  CHECK(run("ip -d link show two | grep -q 'prog/xdp'"));
  CHECK_FALSE(run("ip -d link show two | grep -q xdpgeneric"));
  ends.one = open("af_packet:one", error);
  REQUIRE(ends.one);
  REQUIRE(test::eventually([&] { return ends.one->link_up() && ends.two->link_up(); }));
  cross(ends, 1500);
}

TEST_CASE("af_xdp counts what it has no buffer for, and goes on", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  XdpEnds ends(9000);
  ends.receive(0);
  std::vector<BufferRef> held;
  while (Buffer* const one = ends.two->pool().take_large()) held.emplace_back(one);
  ends.send({frame_of(9000), frame_of(100), frame_of(9000), frame_of(101)});
  CHECK(ends.receive(201).size() == 2);
  CHECK(ends.two->frames_lost() == 2);
  held.clear();
  ends.send({frame_of(9000)});
  CHECK(ends.receive(9000).size() == 1);
  // No small one for what the kernel is to receive into: that is counted there.
  Buffer* one = nullptr;
  while (ends.two->pool().take(&one, 1) == 1) held.emplace_back(one);
  std::vector<BufferRef> received;
  for (int i = 0; i < 3000; ++i) {
    ends.send({frame_of(100)});
    Buffer* raw = nullptr;
    while (ends.two->receive_burst(&raw, 1) == 1) received.emplace_back(raw);
  }
  ends.two->tend();
  CHECK(ends.two->frames_lost() > 2);
  held.clear();
  received.clear();
  ends.receive(0);
  ends.send({frame_of(300)});
  CHECK(ends.receive(300).size() == 1);
}

TEST_CASE("af_xdp takes a checksum for good that a sender on this machine has left undone, and no other",
          "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  CHECK(netdev_is_virtual("lo"));
  XdpEnds ends;
  CHECK(netdev_is_virtual("two"));
  ends.receive(0);
  for (const bool undone : {true, false}) {
    // What an af_packet port leaves to the interface, that leaves undone toward its other end, or does itself.
    if (!undone && !run("ethtool -K one tx off")) SKIP_BECAUSE("there is no `ethtool` command");
    for (const bool v6 : {false, true}) {
      CAPTURE(undone, v6);
      ends.send({segment(100, v6)});
      const auto got = ends.receive(1);
      REQUIRE(got.size() == 1);
      CHECK(got[0]->checksum_good == (undone ? 1 : 0));
    }
  }
}

TEST_CASE("an interface is af_xdp's no longer than the port lives, and can be had again at once", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("af_xdp: " + why);
  REQUIRE(run("ip link add one type veth peer name two"));
  REQUIRE((run("ip link set one up") && run("ip link set two up")));
  const auto has_program = [] { return run("ip -d link show two | grep -q xdp"); };
  for (int i = 0; i < 5; ++i) {
    std::string error;
    const auto port = open("af_xdp:two", error);
    INFO(error);
    REQUIRE(port);
    CHECK(has_program());
  }
  CHECK_FALSE(has_program());
}

}  // namespace rnic::port
