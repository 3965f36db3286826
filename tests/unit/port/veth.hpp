// A veth pair between namespaces, or within one. Needs root.
#pragma once

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"
#include "unit/port/peer.hpp"

namespace rnic::port::test {

inline bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Empty if veth pairs and namespaces can be had here.
inline std::string obstacle() {
  if (geteuid() != 0) return "a veth pair between namespaces needs root";
  if (!run("ip -V")) return "there is no `ip` command (package iproute2)";
  if (unshare(CLONE_NEWNET) != 0) return "no network namespace may be made here";
  if (!run("ip link add probe0 type veth peer name probe1")) return "this kernel has no veth";
  run("ip link del probe0");
  return {};
}

// Of a tap.
inline std::string tap_obstacle() {
  if (const std::string why = obstacle(); !why.empty()) return why;
  return access("/dev/net/tun", R_OK | W_OK) == 0 ? std::string() : "there is no /dev/net/tun";
}

// Within ten seconds. Signals that come meanwhile, as those of a tap do, are no answer.
inline bool becomes_readable(int descriptor) {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  int ready = 0;
  do ready = poll(&waiting, 1, 10'000);
  while (ready < 0 && errno == EINTR);
  return ready == 1;
}

inline std::unique_ptr<Port> open(const std::string& text, std::string& error, std::uint32_t mtu_bytes = 0) {
  const auto spec = parse_spec(text);
  REQUIRE(spec);
  PortFactory factory({*spec});
  auto port = factory.open(*spec, {.name = "rnic0", .mtu_bytes = mtu_bytes, .mac = {}, .buffers = 8192}, error);
  dpdk_register_thread();
  return port;
}

// A veth in this namespace, and a port on each of its ends.
struct Ends {
  explicit Ends(const std::string& queues = {}) {
    REQUIRE(run("ip link add one " + queues + " type veth peer name two " + queues));
    for (const char* name : {"one", "two"}) {
      std::ofstream(std::string("/proc/sys/net/ipv6/conf/") + name + "/disable_ipv6") << 1;
      REQUIRE(run(std::string("ip link set ") + name + " up"));
    }
  }
  void open_both() {
    std::string error;
    one = open("af_packet:one", error);
    two = open("af_packet:two", error);
    INFO(error);
    REQUIRE(one);
    REQUIRE(two);
    REQUIRE(eventually([&] { return one->link_up() && two->link_up(); }));
  }
  void send(const std::vector<rnic::test::Octets>& frames) {
    for (const rnic::test::Octets& each : frames) {
      BufferRef frame = BufferRef::take(one->pool(), static_cast<std::uint32_t>(each.size()));
      std::memcpy(frame->append(static_cast<std::uint32_t>(each.size())).data(), each.data(), each.size());
      sent.push_back(frame.release());
    }
    REQUIRE(one->send_burst(sent.data(), static_cast<unsigned>(sent.size())) == sent.size());
    sent.clear();
  }
  // What comes until so many octets have; frames of the kernel's own are none of ours.
  std::vector<BufferRef> receive(std::size_t octets) {
    std::vector<BufferRef> frames;
    std::size_t so_far = 0;
    CHECK(eventually([&] {
      Buffer* raw = nullptr;
      while (two->receive_burst(&raw, 1) == 1) {
        BufferRef frame(raw);
        if (!(wire::load_mac(frame->bytes(), 0) == kOurs)) continue;
        so_far += frame->length;
        frames.push_back(std::move(frame));
      }
      return so_far >= octets;
    }));
    return frames;
  }

  static constexpr wire::Mac kOurs{{2, 0, 0, 0, 0, 9}};
  std::unique_ptr<Port> one, two;
  std::vector<Buffer*> sent;
};

}  // namespace rnic::port::test
