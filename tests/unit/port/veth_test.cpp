// af_packet and af_xdp on a veth pair between two network namespaces. Needs root.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
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

using test::becomes_readable, test::Ends, test::obstacle, test::open, test::Peer, test::run, test::tap_obstacle;

// This thread is in a fresh namespace with `near`; the peer in another with `far`, on `kind`.
struct Veth {
  Veth(const std::string& kind, std::uint32_t mtu) : peer(kind + ":far", 0, Peer::Network::own) {
    const std::string pid = std::to_string(peer.pid());
    REQUIRE(run("ip link add near mtu " + std::to_string(mtu) + " type veth peer name far mtu " + std::to_string(mtu) +
                " netns " + pid));
    // Without IPv6 the kernel has nothing to say there by itself.
    std::ofstream("/proc/sys/net/ipv6/conf/near/disable_ipv6") << 1;
    REQUIRE(run("ip link set near up"));
    REQUIRE(run("nsenter -t " + pid + " -n ip link set far up"));
    peer.go();
  }
  Peer peer;
};

void converse(Port& port, std::uint32_t questions, std::uint32_t frame_bytes) {
  std::uint32_t answered = 0, damaged = 0;
  for (std::uint32_t i = 0; i < questions; ++i) {
    test::send_question(port, i, frame_bytes);
    std::optional<test::Answer> answer;
    do answer = test::await_answer(port);
    while (answer && answer->number == test::kHello);
    if (!answer || answer->number != i) break;
    ++answered;
    if (!answer->intact) ++damaged;
  }
  CHECK(answered == questions);
  CHECK(damaged == 0);
}

void sleeps_and_wakes(const std::string& kind, std::uint32_t mtu) {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(kind + ": " + why);
  const Veth veth(kind, mtu);
  std::string error;
  const auto port = open(kind + ":near", error);
  INFO(error);
  REQUIRE(port);
  CHECK(port->facts().mtu_bytes == mtu);
  CHECK(port->facts().mac == find_netdev("near")->mac);
  REQUIRE(port->wake_descriptor() >= 0);
  REQUIRE(test::peer_answers(*port));
  // Not sooner: a veth is without carrier for a moment while its other end comes up.
  CHECK(port->link_up());

  // No wake-up is lost, on either side, however the frames fall between looking and sleeping.
  converse(*port, 10'000, 64);
  converse(*port, 100, mtu + 14);

  // Nothing waits: the descriptor says nothing, so sleep costs nothing.
  REQUIRE(port->arm());
  pollfd waiting{.fd = port->wake_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(poll(&waiting, 1, 0) == 0);
  // A frame comes: it wakes, until it is received.
  test::send_question(*port, 7);
  CHECK(poll(&waiting, 1, 10'000) == 1);
  CHECK(poll(&waiting, 1, 0) == 1);
  CHECK_FALSE(port->arm());
  const auto answer = test::await_answer(*port);
  REQUIRE(answer);
  CHECK(answer->number == 7);
  CHECK(answer->sleeps > 0);
  CHECK(poll(&waiting, 1, 0) == 0);

  run("ip link set near down");
  CHECK_FALSE(port->link_up());
}

}  // namespace

TEST_CASE("a sleeping af_packet port wakes for a frame, loses no wake-up, and is silent when idle", "[port][veth]") {
  sleeps_and_wakes("af_packet", 1500);
}
TEST_CASE("a port whose interface is gone is down, also when another has its name", "[port][veth]") {
  const std::string kind = GENERATE("af_packet", "af_xdp");
  CAPTURE(kind);
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  const auto make = [] {
    return run("ip link add here type veth peer name there") && run("ip link set here up") &&
           run("ip link set there up");
  };
  REQUIRE(make());
  std::string error;
  const auto port = open(kind + ":here", error);
  INFO(error);
  REQUIRE(port);
  REQUIRE(test::eventually([&] { return port->link_up(); }));
  REQUIRE(run("ip link del here"));
  CHECK_FALSE(port->link_up());
  REQUIRE(make());
  REQUIRE(test::eventually([] {
    const auto now = find_netdev("here");
    return now && netdev_link_up("here", now->index);
  }));
  CHECK_FALSE(port->link_up());
  run("ip link del here");
}

TEST_CASE("an af_packet port carries frames of MTU 9000", "[port][veth]") { sleeps_and_wakes("af_packet", 9000); }
TEST_CASE("a sleeping af_xdp port wakes for a frame, loses no wake-up, and is silent when idle", "[port][veth]") {
  sleeps_and_wakes("af_xdp", 1500);
}
TEST_CASE("an af_xdp port carries frames of a chunk, of several, and of the largest MTU", "[port][veth]") {
  sleeps_and_wakes("af_xdp", GENERATE(3374u, 3375u, 9000u, 16'000u));
}

TEST_CASE("two af_packet ports of one process wake each by itself", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  REQUIRE(run("ip link add one type veth peer name two"));
  REQUIRE((run("ip link set one up") && run("ip link set two up")));
  for (const char* name : {"one", "two"})
    std::ofstream(std::string("/proc/sys/net/ipv6/conf/") + name + "/disable_ipv6") << 1;
  std::string error;
  const auto one = open("af_packet:one", error);
  const auto two = open("af_packet:two", error);
  INFO(error);
  REQUIRE(one);
  REQUIRE(two);
  // Before, what is sent is lost.
  REQUIRE(test::eventually([&] { return one->link_up() && two->link_up(); }));
  Buffer* frame = nullptr;
  const auto drain = [&](Port& port) {
    while (port.receive_burst(&frame, 1) == 1) BufferRef gone(frame);
  };
  drain(*one);
  drain(*two);
  REQUIRE(one->wake_descriptor() != two->wake_descriptor());
  REQUIRE(one->arm());
  REQUIRE(two->arm());
  test::send_question(*one, 1);
  pollfd both[2] = {{.fd = one->wake_descriptor(), .events = POLLIN, .revents = 0},
                    {.fd = two->wake_descriptor(), .events = POLLIN, .revents = 0}};
  CHECK(poll(&both[1], 1, 10'000) == 1);
  CHECK(poll(&both[0], 1, 0) == 0);  // what it sent does not come back to it
  drain(*two);
  CHECK(poll(&both[1], 1, 0) == 0);
}

namespace {

constexpr std::uint32_t kPayload = 1400, kSegments = 20;

// Segments of a stream, one behind the other.
std::vector<rnic::test::Octets> stream_of(std::span<const std::uint16_t> tags = {}) {
  const wire::IpAddress from = wire::IpAddress::v4(0x0A000001), to = wire::IpAddress::v4(0x0A000002);
  std::vector<rnic::test::Octets> frames;
  for (std::uint32_t i = 0; i < kSegments; ++i) {
    wire::TcpHeader header;
    header.source_port = 1, header.destination_port = 2;
    header.sequence = i * kPayload;
    header.flags = wire::tcp_flags::kAck;
    const rnic::test::Octets payload(kPayload, static_cast<std::byte>(i));
    frames.push_back(rnic::test::frames::packet({.destination = Ends::kOurs, .source = {}, .type = 0},
                                                wire::protocol::kTcp, from, to,
                                                rnic::test::frames::tcp(header, from, to, payload), tags));
  }
  return frames;
}

rnic::test::Octets octets_of(const BufferRef& frame) { return {frame->bytes().begin(), frame->bytes().end()}; }

}  // namespace

TEST_CASE("segments of a stream cross a veth as one frame of an af_packet port's", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  Ends ends;
  ends.open_both();
  const auto segments = stream_of();
  ends.send(segments);
  const auto frames = ends.receive(54 + kSegments * kPayload);
  REQUIRE(frames.size() == 1);
  CHECK(frames[0]->checksum_good == 1);
  rnic::test::Octets all(segments[0].begin() + 54, segments[0].end());
  for (std::uint32_t i = 1; i < kSegments; ++i) all.insert(all.end(), segments[i].begin() + 54, segments[i].end());
  const Bytes payload = frames[0]->bytes().subspan(54);
  CHECK(std::equal(payload.begin(), payload.end(), all.begin(), all.end()));
}

TEST_CASE("W-TCP-24: where an interface cuts nothing the kernel does, and the segments are ours, with good checksums",
          "[port][veth][W-TCP-24]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  if (!run("ethtool --version")) SKIP_BECAUSE("there is no `ethtool` command");
  Ends ends;
  REQUIRE(run("ethtool -K one tx off tso off gso off"));
  REQUIRE(run("ethtool -K two gro off"));
  ends.open_both();
  auto segments = stream_of();
  ends.send(segments);
  const auto frames = ends.receive(kSegments * segments[0].size());
  REQUIRE(frames.size() == kSegments);
  for (std::uint32_t i = 0; i < kSegments; ++i) {
    rnic::test::Octets got = octets_of(frames[i]);
    store_be(MutableBytes(got), 18, load_be<std::uint16_t>(segments[i], 18));  // IPv4's identification counts up
    store_be(MutableBytes(got), 24, load_be<std::uint16_t>(segments[i], 24));  // and so is its checksum another
    CHECK(got == segments[i]);
    CHECK(wire::checksum_of(frames[i]->bytes().subspan(14, 20)) == 0);
  }
}

TEST_CASE("an interface is known with the bridge that it is of", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  REQUIRE(run("ip link add here type veth peer name there"));
  CHECK(netdev_and_uppers("here") == std::vector<std::string>{"here"});
  CHECK(netdev_and_uppers("nowhere") == std::vector<std::string>{"nowhere"});
  if (!run("ip link add over type bridge")) SKIP_BECAUSE("this kernel has no bridges");
  REQUIRE(run("ip link set here master over"));
  // /sys shows the network namespace in which it was mounted.
  const pid_t child = fork();
  if (child == 0) {
    const bool mounted = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
    const bool found = netdev_and_uppers("here") == std::vector<std::string>{"here", "over"} &&
                       netdev_and_uppers("there") == std::vector<std::string>{"there"};
    _exit(!mounted ? 2 : found ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  run("ip link del over");
  run("ip link del here");
}

TEST_CASE("a VLAN's tag crosses af_packet ports where it was", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  Ends ends;
  ends.open_both();
  constexpr std::uint16_t kTag[] = {5};
  const auto segments = stream_of(kTag);
  ends.send(segments);
  const auto frames = ends.receive(kSegments * segments[0].size());
  REQUIRE(frames.size() == kSegments);
  for (std::uint32_t i = 0; i < kSegments; ++i) {
    rnic::test::Octets got = octets_of(frames[i]);
    CHECK(got.size() == segments[i].size());
    CHECK(std::equal(got.begin(), got.begin() + 54, segments[i].begin(), segments[i].begin() + 54));
    CHECK(std::equal(got.begin() + 60, got.end(), segments[i].begin() + 60, segments[i].end()));
    CHECK(frames[i]->checksum_good == 1);
  }
}

TEST_CASE("frames that find no large buffer, or that have no name, are lost and counted", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  Ends ends;
  ends.open_both();
  std::vector<BufferRef> held;
  Buffer* large = nullptr;
  while ((large = ends.two->pool().take_large()) != nullptr) held.emplace_back(large);
  // Those that were laid out before.
  const auto segments = stream_of();
  std::size_t came = 0;
  const std::uint64_t lost = ends.two->frames_lost();
  CHECK(test::eventually([&] {
    ends.send(segments);
    Buffer* raw = nullptr;
    while (ends.two->receive_burst(&raw, 1) == 1) {
      ++came;
      held.emplace_back(raw);
    }
    return ends.two->frames_lost() > lost;
  }));
  CHECK(came <= 64);
  held.clear();
  ends.send(segments);
  CHECK(ends.receive(54 + kSegments * kPayload).size() == 1);
}

TEST_CASE("what the kernel drops while nobody looks is counted, and an af_packet port goes on", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  Ends ends;
  ends.open_both();
  const auto segments = stream_of();
  // Several times what a socket lets wait.
  for (int i = 0; i < 5000; ++i) ends.send(segments);
  CHECK(ends.two->frames_lost() == 0);
  ends.two->tend();
  CHECK(ends.two->frames_lost() > 0);
  Buffer* raw = nullptr;
  while (ends.two->receive_burst(&raw, 1) == 1) BufferRef gone(raw);
  ends.send(segments);
  CHECK(ends.receive(54 + kSegments * kPayload).size() == 1);
}

TEST_CASE("an af_packet port whose buffers others hold receives with those that it has laid out", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  Ends ends;
  ends.open_both();
  auto segments = stream_of();
  segments.resize(1);
  ends.send(segments);
  CHECK(ends.receive(segments[0].size()).size() == 1);
  std::vector<BufferRef> held;
  Buffer* one = nullptr;
  while (ends.two->pool().take(&one, 1) == 1) held.emplace_back(one);
  std::vector<BufferRef> frames;
  for (int i = 0; i < 20; ++i) {
    ends.send(segments);
    for (BufferRef& each : ends.receive(segments[0].size())) frames.push_back(std::move(each));
  }
  CHECK(frames.size() == 20);
}

TEST_CASE("a sleeping tap port wakes for what the kernel sends, and is another station than the kernel's end",
          "[port][veth]") {
  if (const std::string why = tap_obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  std::string error;
  const auto port = open("tap:rnictap0", error);
  INFO(error);
  REQUIRE(port);
  std::ofstream("/proc/sys/net/ipv6/conf/rnictap0/disable_ipv6") << 1;
  CHECK(port->facts().mac != find_netdev("rnictap0")->mac);
  REQUIRE(port->wake_descriptor() >= 0);
  Buffer* raw = nullptr;
  while (!port->arm())
    while (port->receive_burst(&raw, 1) == 1) BufferRef gone(raw);

  // The kernel looks for a neighbour.
  REQUIRE(run("ip addr add 192.0.2.1/24 dev rnictap0"));
  run("bash -c 'echo > /dev/udp/192.0.2.2/9'");
  CHECK(becomes_readable(port->wake_descriptor()));
  port->disarm();
  bool asked = false;
  CHECK(test::eventually([&] {
    while (port->receive_burst(&raw, 1) == 1) {
      const BufferRef frame(raw);
      asked = asked || load_be<std::uint16_t>(frame->bytes(), 12) == 0x0806;
    }
    return asked;
  }));
}

TEST_CASE("a tap whose interface is deleted lets its worker sleep", "[port][veth]") {
  if (const std::string why = tap_obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  std::string error;
  const auto port = open("tap:rnictap4", error);
  INFO(error);
  REQUIRE(port);
  REQUIRE(run("ip link del rnictap4"));
  CHECK(becomes_readable(port->wake_descriptor()));
  port->tend();
  REQUIRE(port->wake_descriptor() >= 0);
  pollfd waiting{.fd = port->wake_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(poll(&waiting, 1, 50) == 0);
  Buffer* raw = nullptr;
  CHECK(port->receive_burst(&raw, 1) == 0);
  CHECK(port->arm());
  port->tend();
}

TEST_CASE("a tap's MTU is what its driver takes at most, and more is refused with that", "[port][veth]") {
  if (const std::string why = tap_obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  std::string error;
  CHECK(open("tap:rnictap5", error, 3000) == nullptr);
  CHECK(error.find("an MTU of 1504 at most, not 3000") != std::string::npos);
  CHECK(open("tap:rnictap5", error, 1504) != nullptr);
}

// DPDK's tap hands out nothing before a signal has come, to whichever thread: one of which the worker would have to
// wait until it has run.
TEST_CASE("a tap's signals come to the thread that sleeps on it, before it wakes", "[port][veth]") {
  if (const std::string why = tap_obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  std::string error;
  const auto port = open("tap:rnictap3", error);
  INFO(error);
  REQUIRE(port);
  std::ofstream("/proc/sys/net/ipv6/conf/rnictap3/disable_ipv6") << 1;
  REQUIRE(run("ip addr add 192.0.2.1/24 dev rnictap3"));
  const auto sleeps = [&] {
    dpdk_register_thread();
    Buffer* raw = nullptr;
    while (!port->arm())
      while (port->receive_burst(&raw, 1) == 1) BufferRef gone(raw);
    f_owner_ex owner{};
    CHECK(fcntl(port->wake_descriptor(), F_GETOWN_EX, &owner) == 0);
    CHECK((owner.type == F_OWNER_TID && owner.pid == gettid()));
    run("bash -c 'echo > /dev/udp/192.0.2.2/9'");
    CHECK(becomes_readable(port->wake_descriptor()));
    port->disarm();
    Buffer* all[64];
    unsigned count = port->receive_burst(all, 64);
    CHECK(count != 0);
    for (; count != 0; count = port->receive_burst(all, 64))
      for (unsigned i = 0; i < count; ++i) BufferRef gone(all[i]);
  };
  std::thread(sleeps).join();
  std::thread(sleeps).join();  // another one
  // The signal of what comes now has nobody to go to. Who looks next has it all the same.
  run("bash -c 'echo > /dev/udp/192.0.2.3/9'");
  CHECK(becomes_readable(port->wake_descriptor()));
  Buffer* raw = nullptr;
  CHECK(port->receive_burst(&raw, 1) == 1);
  BufferRef gone(raw);
}

TEST_CASE("a port on a kernel interface says why it cannot be opened", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  std::string error;
  const auto refusal = [&](const std::string& text) {
    CHECK(open(text, error) == nullptr);
    return error;
  };
  CHECK(refusal("af_packet:nope0") == "port \"af_packet:nope0\": there is no network interface \"nope0\" here");
  const auto spec = parse_spec("af_packet:lo");
  CHECK(PortFactory({}).open_queues(*spec, {}, 2, error).empty());
  CHECK(error == "port \"af_packet:lo\": the interface is no Ethernet interface");
  CHECK(refusal("af_packet:lo") == "port \"af_packet:lo\": the interface is no Ethernet interface");
  REQUIRE(run("ip link add one type veth peer name two"));
  CHECK(refusal("af_xdp:one") == "port \"af_xdp:one\": the interface is down; first: ip link set one up");
  REQUIRE((run("ip link set one up") && run("ip link set two up")));
  const auto first = open("af_xdp:one", error);
  INFO(error);
  REQUIRE(first);
  CHECK(refusal("af_xdp:one").find("does another program have the interface's XDP or one of its queues?") !=
        std::string::npos);
}

}  // namespace rnic::port
