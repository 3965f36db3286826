#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"
#include "port/peer.hpp"
#include "support/catch.hpp"

namespace rnic::port {
namespace {

using test::Peer;

struct Directory {
  Directory() {
    char pattern[] = "/tmp/rnic-port-XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    path = pattern;
  }
  ~Directory() {
    unlink((path + "/m").c_str());
    unlink((path + "/m.wake").c_str());
    rmdir(path.c_str());
  }
  std::string server() const { return "memif:" + path + "/m,role=server"; }
  std::string client() const { return "memif:" + path + "/m,role=client"; }
  bool has(const char* name) const {
    struct stat status {};
    return stat((path + "/" + name).c_str(), &status) == 0;
  }
  std::string path;
};

std::unique_ptr<Port> open(const std::string& text, std::string& error, std::uint32_t mtu = 1500) {
  const auto spec = parse_spec(text);
  REQUIRE(spec);
  PortFactory factory({*spec});
  auto port = factory.open(*spec, {.name = "rnic0", .mtu_bytes = mtu, .mac = {}, .buffers = 4096}, error);
  dpdk_register_thread();
  return port;
}
std::unique_ptr<Port> open(const std::string& text, std::uint32_t mtu = 1500) {
  std::string error;
  auto port = open(text, error, mtu);
  INFO(error);
  REQUIRE(port);
  return port;
}

// The link is up, and the two sides can wake each other.
bool joined(Port& port) {
  if (port.arm()) port.disarm();
  return port.link_up() && port.wake_descriptor() >= 0;
}

void converse(Port& port, std::uint32_t questions, std::uint32_t frame_bytes = 64) {
  std::uint32_t answered = 0, damaged = 0;
  for (std::uint32_t i = 0; i < questions; ++i) {
    test::send_question(port, i, frame_bytes);
    const auto answer = test::await_answer(port);
    if (!answer || answer->number != i) break;
    ++answered;
    if (!answer->intact) ++damaged;
  }
  CHECK(answered == questions);
  CHECK(damaged == 0);
}

}  // namespace

TEST_CASE("two processes over memif wake each other out of untimed sleep, and lose no wake-up", "[port][memif]") {
  const Directory directory;
  SECTION("as the client") {
    const Peer peer(directory.server(), 1500);
    const auto port = open(directory.client());
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 20'000);
  }
  SECTION("as the server") {
    const auto port = open(directory.server());
    const Peer peer(directory.client(), 1500);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 20'000);
  }
}

TEST_CASE("a memif worker that is armed sleeps until a frame comes, and the frame is there", "[port][memif]") {
  const Directory directory;
  const Peer peer(directory.server(), 1500);
  const auto port = open(directory.client());
  REQUIRE(test::eventually([&] { return joined(*port); }));
  converse(*port, 1);

  REQUIRE(test::eventually([&] { return port->arm(); }));
  pollfd waiting{.fd = port->wake_descriptor(), .events = POLLIN, .revents = 0};
  CHECK(poll(&waiting, 1, 0) == 0);
  test::send_question(*port, 7);
  CHECK(poll(&waiting, 1, 10'000) == 1);
  port->disarm();
  const auto answer = test::await_answer(*port);
  REQUIRE(answer);
  CHECK(answer->number == 7);
  CHECK(answer->sleeps > 0);
}

TEST_CASE("memif carries frames of its MTU whole, 1500 and 9000", "[port][memif]") {
  for (const std::uint32_t mtu : {1500u, 9000u}) {
    const Directory directory;
    const Peer peer(directory.server(), mtu);
    const auto port = open(directory.client(), mtu);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 50, mtu + 14);
    converse(*port, 50, mtu + 18);
  }
}

TEST_CASE("a memif link comes back when the server is killed and started again", "[port][memif]") {
  const Directory directory;
  Peer first(directory.server(), 1500);
  const auto port = open(directory.client());
  REQUIRE(test::eventually([&] { return joined(*port); }));
  converse(*port, 10);
  for (int i = 0; i < 3; ++i) {
    first.kill_now();
    REQUIRE(test::eventually([&] { return !port->link_up(); }));
    CHECK(directory.has("m"));  // left by the dead one
    Peer next(directory.server(), 1500);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 100);
    next.kill_now();
  }
}

TEST_CASE("a memif link comes back when the client is killed and started again, also in the middle of a burst",
          "[port][memif]") {
  const Directory directory;
  const auto port = open(directory.server());
  for (int i = 0; i < 5; ++i) {
    Peer peer(directory.client(), 1500);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 100);
    // Bursts until after the link is down: the rings go away under them.
    const auto burst = [&] {
      Buffer* frames[64];
      const unsigned taken = port->pool().take(frames, 64);
      for (unsigned k = 0; k < taken; ++k) std::memset(frames[k]->append(1514).data(), 0xff, 1514);
      const unsigned sent = port->send_burst(frames, taken);
      for (unsigned k = sent; k < taken; ++k) BufferRef refused(frames[k]);
      const unsigned received = port->receive_burst(frames, 64);
      for (unsigned k = 0; k < received; ++k) BufferRef gone(frames[k]);
    };
    for (int k = 0; k < 50; ++k) burst();
    kill(peer.pid(), SIGKILL);
    CHECK(test::eventually([&] {
      for (int k = 0; k < 20; ++k) burst();
      return !port->link_up();
    }));
    peer.kill_now();
  }
}

TEST_CASE("a memif client that is there first waits for its server, and frames sent meanwhile are lost",
          "[port][memif]") {
  const Directory directory;
  const auto port = open(directory.client());
  CHECK_FALSE(port->link_up());
  const std::uint32_t all = port->pool().available();
  test::send_question(*port, 1);
  CHECK(port->pool().available() == all);
  CHECK(port->wake_descriptor() >= 0);  // nothing can come but the link itself, and that rings

  REQUIRE(test::eventually([&] { return port->arm(); }));
  pollfd waiting{.fd = port->wake_descriptor(), .events = POLLIN, .revents = 0};
  const Peer peer(directory.server(), 1500);
  CHECK(poll(&waiting, 1, 10'000) == 1);
  port->disarm();
  REQUIRE(test::eventually([&] { return joined(*port); }));
  converse(*port, 10);
}

TEST_CASE("a memif peer without a wake channel is served by timed sleeps", "[port][memif]") {
  const Directory directory;
  const auto port = open(directory.server());
  // Nobody finds the way in: as if this were not an rnicd.
  REQUIRE(unlink((directory.path + "/m.wake").c_str()) == 0);
  const Peer peer(directory.client(), 1500);
  REQUIRE(test::eventually([&] { return port->link_up(); }));
  if (port->arm()) port->disarm();
  CHECK(port->wake_descriptor() == -1);
  converse(*port, 20);
}

TEST_CASE("a memif server says why it cannot have its socket", "[port][memif]") {
  const Directory directory;
  std::string error;
  SECTION("another process serves it") {
    const Peer peer(directory.server(), 1500);
    REQUIRE(test::eventually([&] { return directory.has("m"); }));
    // Bound and not yet listening looks dead, for a moment.
    const auto client = open(directory.client());
    REQUIRE(test::eventually([&] { return client->link_up(); }));
    CHECK(open(directory.server(), error) == nullptr);
    CHECK(error.find("another process already serves " + directory.path + "/m") != std::string::npos);
    converse(*client, 100);  // and that one took no harm from being asked
  }
  SECTION("a file of that name is no socket") {
    std::ofstream(directory.path + "/m") << "precious";
    CHECK(open(directory.server(), error) == nullptr);
    CHECK(error.find("exists and is no socket") != std::string::npos);
    CHECK(directory.has("m"));
  }
  SECTION("the directory is not there") {
    CHECK(open("memif:/nonexistent/m,role=server", error) == nullptr);
    CHECK(error.find("the directory /nonexistent cannot be used: No such file or directory") != std::string::npos);
  }
}

TEST_CASE("a memif server that ends takes its sockets with it", "[port][memif]") {
  const Directory directory;
  {
    const auto port = open(directory.server());
    CHECK(directory.has("m"));
    CHECK(directory.has("m.wake"));
  }
  CHECK_FALSE(directory.has("m"));
  CHECK_FALSE(directory.has("m.wake"));
}

}  // namespace rnic::port
