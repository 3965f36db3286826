// af_packet and af_xdp on a veth pair between two network namespaces. Needs root.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "kit/catch.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/netdev.hpp"
#include "port/open.hpp"
#include "unit/port/peer.hpp"
#include "unit/port/skip.hpp"

namespace rnic::port {
namespace {

using test::Peer;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Empty if veth pairs and namespaces can be had here.
std::string obstacle() {
  if (geteuid() != 0) return "a veth pair between namespaces needs root";
  if (!run("ip -V")) return "there is no `ip` command (package iproute2)";
  if (unshare(CLONE_NEWNET) != 0) return "no network namespace may be made here";
  if (!run("ip link add probe0 type veth peer name probe1")) return "this kernel has no veth";
  run("ip link del probe0");
  return {};
}

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

std::unique_ptr<Port> open(const std::string& text, std::string& error) {
  const auto spec = parse_spec(text);
  REQUIRE(spec);
  PortFactory factory({*spec});
  auto port = factory.open(*spec, {.name = "rnic0", .mtu_bytes = 0, .mac = {}, .buffers = 8192}, error);
  dpdk_register_thread();
  return port;
}

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
TEST_CASE("an af_packet port carries frames of MTU 9000", "[port][veth]") { sleeps_and_wakes("af_packet", 9000); }
TEST_CASE("a sleeping af_xdp port wakes for a frame, loses no wake-up, and is silent when idle", "[port][veth]") {
  sleeps_and_wakes("af_xdp", 1500);
}
TEST_CASE("an af_xdp port carries frames of the largest MTU it admits", "[port][veth]") {
  sleeps_and_wakes("af_xdp", 3374);
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

TEST_CASE("a sleeping tap port wakes for what the kernel sends, and is another station than the kernel's end",
          "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE("tap: " + why);
  if (access("/dev/net/tun", R_OK | W_OK) != 0) SKIP_BECAUSE("tap: there is no /dev/net/tun");
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
  pollfd waiting{.fd = port->wake_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(poll(&waiting, 1, 10'000) == 1);
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

TEST_CASE("a port on a kernel interface says why it cannot be opened", "[port][veth]") {
  if (const std::string why = obstacle(); !why.empty()) SKIP_BECAUSE(why);
  std::string error;
  const auto refusal = [&](const std::string& text) {
    CHECK(open(text, error) == nullptr);
    return error;
  };
  CHECK(refusal("af_packet:nope0") == "port \"af_packet:nope0\": there is no network interface \"nope0\" here");
  CHECK(refusal("af_packet:lo") == "port \"af_packet:lo\": the interface is no Ethernet interface");
  REQUIRE(run("ip link add one mtu 9000 type veth peer name two mtu 9000"));
  CHECK(refusal("af_xdp:one") ==
        "port \"af_xdp:one\": af_xdp carries an MTU of at most 3374; give a smaller one, or take af_packet");
  REQUIRE((run("ip link set one mtu 1500") && run("ip link set two mtu 1500")));
  CHECK(refusal("af_xdp:one") == "port \"af_xdp:one\": the interface is down; first: ip link set one up");
  REQUIRE((run("ip link set one up") && run("ip link set two up")));
  const auto first = open("af_xdp:one", error);
  INFO(error);
  REQUIRE(first);
  CHECK(refusal("af_xdp:one").find("does another program have the interface's XDP or its queue 0?") !=
        std::string::npos);
}

}  // namespace rnic::port
