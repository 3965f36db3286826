#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "kit/catch.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"
#include "unit/port/peer.hpp"
#include "unit/port/skip.hpp"

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
    for (const char* name : {"/m", "/m.wake", "/m.q1", "/m.q1.wake"}) unlink((path + name).c_str());
    rmdir(path.c_str());
  }
  std::string server() const { return "memif:" + path + "/m,role=server"; }
  std::string client() const { return "memif:" + path + "/m,role=client"; }
  bool has(const char* name) const {
    struct stat status {};
    return stat((path + "/" + name).c_str(), &status) == 0;
  }
  mode_t mode(const char* name) const {
    struct stat status {};
    return stat((path + "/" + name).c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
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
  // Its link may come up later than ours, and it loses what it sends until then.
  REQUIRE(test::peer_answers(port));
  std::uint32_t answered = 0, damaged = 0;
  for (std::uint32_t i = 0; i < questions; ++i) {
    test::send_question(port, i, frame_bytes);
    auto answer = test::await_answer(port);
    while (answer && answer->number == test::kHello) answer = test::await_answer(port);  // late, of peer_answers()
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
    CHECK(port->facts().peer_comes_later);
    CHECK(port->facts().needs_wake);
    const Peer peer(directory.client(), 1500);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 20'000);
  }
}

namespace {

std::vector<std::unique_ptr<Port>> open_queues(const std::string& text, unsigned workers) {
  const auto spec = parse_spec(text);
  std::string error;
  PortFactory factory({*spec});
  auto queues =
      factory.open_queues(*spec, {.name = "rnic0", .mtu_bytes = 1500, .mac = {}, .buffers = 4096}, workers, error);
  INFO(error);
  REQUIRE(queues.size() == workers);
  dpdk_register_thread();
  return queues;
}

}  // namespace

TEST_CASE("a memif of two workers has a link for each", "[port][memif][links]") {
  const Directory directory;
  const auto server = open_queues(directory.server(), 2), client = open_queues(directory.client(), 2);
  CHECK((server[0]->facts().links_apart && server[1]->facts().links_apart));
  CHECK(server[0]->facts().mac == server[1]->facts().mac);
  CHECK(server[1]->facts().name == directory.server());
  CHECK(directory.mode("m.q1") == 0600);
  CHECK(directory.mode("m.q1.wake") == 0600);
  for (const auto* side : {&server, &client})
    for (const auto& queue : *side) REQUIRE(test::eventually([&] { return joined(*queue); }));
  for (std::size_t link : {0u, 1u, 1u, 0u}) {
    BufferRef frame = BufferRef::take(client[link]->pool());
    frame->append(64);
    Buffer* raw = frame.release();
    REQUIRE(client[link]->send_burst(&raw, 1) == 1);
    CHECK(test::eventually([&] { return server[link]->receive_burst(&raw, 1) == 1; }));
    BufferRef gone(raw);
    CHECK(server[1 - link]->receive_burst(&raw, 1) == 0);
  }
}

TEST_CASE("with a peer of one worker a memif of two has the first link alone", "[port][memif][links]") {
  const Directory directory;
  const bool is_server = GENERATE(true, false);
  const Peer peer(is_server ? directory.client() : directory.server(), 1500);
  const auto queues = open_queues(is_server ? directory.server() : directory.client(), 2);
  REQUIRE(test::eventually([&] { return joined(*queues[0]); }));
  converse(*queues[0], 100);
  CHECK_FALSE(queues[1]->link_up());
}

// Each look takes the lock of all ports, before which workers wait.
TEST_CASE("links that nobody serves are not looked for for ever, but again when the first has come up",
          "[port][memif][links]") {
  const Directory directory;
  const std::string second = directory.path + "/m.q1";
  sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
  second.copy(at.sun_path, sizeof at.sun_path - 1);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  REQUIRE(bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(listen(listener, 100) == 0);
  const auto asked_within = [&](int milliseconds) {
    pollfd waiting{.fd = listener, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, milliseconds) != 1) return false;
    close(accept(listener, nullptr, nullptr));
    return true;
  };
  const auto queues = open_queues(directory.client(), 2);
  for (int round = 0; round < 2; ++round) {
    if (round != 0) CHECK_FALSE(asked_within(1000));
    const Peer peer(directory.server(), 1500);
    REQUIRE(test::eventually([&] { return queues[0]->link_up(); }));
    CHECK(asked_within(10'000));
    CHECK(test::eventually([&] { return !asked_within(1000); }));
  }
  close(listener);
}

TEST_CASE("a memif of several workers has room in its socket's path for the names of their links",
          "[port][memif][links]") {
  const auto refused = [](std::size_t length, unsigned workers) {
    const auto spec = parse_spec("memif:/nowhere/" + std::string(length - 9, 'x') + ",role=client");
    REQUIRE(spec);
    std::string error;
    PortFactory factory({*spec});
    CHECK(factory.open_queues(*spec, {.name = "rnic0", .mtu_bytes = 1500, .mac = {}, .buffers = 4096}, workers, error)
              .empty());
    return error.find("no more than 98 characters") != std::string::npos;
  };
  CHECK(refused(99, 2));
  CHECK_FALSE(refused(98, 2));  // but there is no such directory
  CHECK_FALSE(refused(99, 1));
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

TEST_CASE("memif carries frames of its MTU whole: 1500, 9000, 40000, and 65535 by itself", "[port][memif]") {
  for (const std::uint32_t wanted : {1500u, 9000u, 40'000u, 0u}) {
    const std::uint32_t mtu = wanted != 0 ? wanted : 65'535;
    CAPTURE(mtu);
    const Directory directory;
    const Peer peer(directory.server(), wanted);
    const auto port = open(directory.client(), wanted);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    CHECK(port->link_mtu() == mtu);
    converse(*port, 50, mtu + 14);
    converse(*port, 50, mtu + 18);
    converse(*port, 50);
  }
}

TEST_CASE("two ends of a memif agree on the smaller of their MTUs, whoever allocates the slots", "[port][memif]") {
  const std::uint32_t ours = GENERATE(0u, 9000u, 1500u), theirs = GENERATE(0u, 9000u, 1500u);
  const bool as_client = GENERATE(false, true);
  if (ours == theirs) return;
  CAPTURE(ours, theirs, as_client);
  const Directory directory;
  std::optional<Peer> peer;
  if (as_client) peer.emplace(directory.server(), theirs);
  const auto port = open(as_client ? directory.client() : directory.server(), ours);
  if (!as_client) peer.emplace(directory.client(), theirs);
  REQUIRE(test::eventually([&] { return joined(*port); }));
  const std::uint32_t agreed = std::min(ours != 0 ? ours : 65'535, theirs != 0 ? theirs : 65'535);
  CHECK(port->link_mtu() == agreed);
  converse(*port, 50, agreed + 18);
}

TEST_CASE(
    "more long frames than a memif's ring holds pieces of: each arrives whole and in order, and no buffer is lost",
    "[port][memif]") {
  const Directory directory;
  const Peer peer(directory.server(), 0);
  const auto port = open(directory.client(), 0);
  REQUIRE(test::eventually([&] { return joined(*port); }));
  converse(*port, 1);
  const std::uint32_t all = port->pool().available(), all_large = port->pool().large_available();
  constexpr std::uint32_t kFrames = 500;
  std::uint32_t answered = 0, damaged = 0;
  for (std::uint32_t sent = 0; answered < kFrames;) {
    // Up to 45 on their way: fifteen hundred pieces, where a ring has a thousand slots.
    if (sent < kFrames && sent - answered < 45) {
      test::send_question(*port, sent, sent % 7 == 0 ? 64 : 65'000);
      ++sent;
      continue;
    }
    const auto answer = test::await_answer(*port);
    REQUIRE(answer);
    CHECK(answer->number == answered);
    damaged += answer->intact ? 0 : 1;
    ++answered;
  }
  CHECK(damaged == 0);
  CHECK(port->pool().available() == all);
  CHECK(port->pool().large_available() == all_large);
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
  CHECK_FALSE(port->facts().peer_comes_later);
  CHECK_FALSE(port->link_up());
  const std::uint32_t all = port->pool().available();
  test::send_question(*port, 1);
  CHECK(port->pool().available() == all);
  CHECK(port->frames_lost() == 1);
  CHECK(port->wake_descriptor() >= 0);  // nothing can come but the link itself, and that rings

  REQUIRE(test::eventually([&] { return port->arm(); }));
  pollfd waiting{.fd = port->wake_descriptor(), .events = POLLIN, .revents = 0};
  const Peer peer(directory.server(), 1500);
  CHECK(poll(&waiting, 1, 10'000) == 1);
  port->disarm();
  REQUIRE(test::eventually([&] { return joined(*port); }));
  converse(*port, 10);
}

TEST_CASE("a long frame whose peer dies in the middle of it is given up when the link goes down, and counted",
          "[port][memif]") {
  const Directory directory;
  const auto port = open(directory.server(), 0);
  Peer peer(directory.client(), 0);
  REQUIRE(test::eventually([&] { return joined(*port); }));
  REQUIRE(test::peer_answers(*port));  // its link may come up later than ours, and it loses what it sends until then
  const std::uint32_t all_large = port->pool().large_available();
  test::ask_for_torn_frame(*port);
  const auto receive = [&] {
    Buffer* raw = nullptr;
    while (port->receive_burst(&raw, 1) == 1) BufferRef gone(raw);
  };
  REQUIRE(test::eventually([&] {
    receive();
    return port->pool().large_available() == all_large - 1;
  }));
  CHECK(port->frames_lost() == 0);
  peer.kill_now();
  REQUIRE(test::eventually([&] { return !port->link_up(); }));
  // A worker that finds the device's gate shut takes nothing, and looks again.
  CHECK(test::eventually([&] {
    receive();
    return port->pool().large_available() == all_large;
  }));
  CHECK(port->frames_lost() == 1);
}

TEST_CASE("between two rnicd a memif's segments need no checksums, toward others they do", "[port][memif]") {
  const bool rnicd = GENERATE(true, false);
  CAPTURE(rnicd);
  const std::uint32_t mtu = rnicd ? 40'000 : 1500;  // in pieces, too
  const Directory directory;
  const auto port = open(directory.server(), mtu);
  CHECK_FALSE(port->fills_checksums());
  if (!rnicd) REQUIRE(unlink((directory.path + "/m.wake").c_str()) == 0);
  std::optional<Peer> peer(std::in_place, directory.client(), mtu);
  REQUIRE(test::eventually([&] { return port->link_up(); }));
  REQUIRE(test::peer_answers(*port));
  CHECK(port->fills_checksums() == rnicd);
  for (const std::uint32_t octets : {64u, mtu + 14}) {
    test::send_question(*port, 1, octets);
    BufferRef answer;
    REQUIRE(test::eventually([&] {
      Buffer* raw = nullptr;
      if (port->receive_burst(&raw, 1) == 1) answer = BufferRef(raw);
      return answer && answer->length == octets;
    }));
    CHECK(answer->checksum_good == (rnicd ? 1 : 0));
  }
  peer.reset();
  CHECK(test::eventually([&] {
    if (port->arm()) port->disarm();
    return !port->fills_checksums();
  }));
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
  REQUIRE(test::peer_answers(*port));  // its link may come up later than ours
  converse(*port, 20);
}

TEST_CASE("toward a memif peer that tells no MTU it is 1500, or what the user has said", "[port][memif]") {
  const std::uint32_t wanted = GENERATE(0u, 9000u);
  const Directory directory;
  const auto port = open(directory.server(), wanted);
  REQUIRE(unlink((directory.path + "/m.wake").c_str()) == 0);
  const Peer peer(directory.client(), wanted);
  REQUIRE(test::eventually([&] { return port->link_up(); }));
  CHECK(port->link_mtu() == (wanted != 0 ? wanted : 1500));
  // Where nothing is told our link says nothing of the peer's, which may come up later.
  REQUIRE(test::peer_answers(*port));
  converse(*port, 20, port->link_mtu() + 18);
}

TEST_CASE("a memif's sockets are for their owner only, whatever the umask", "[port][memif][users]") {
  const mode_t before = umask(0);
  const Directory directory;
  const auto port = open(directory.server());
  umask(before);
  CHECK(directory.mode("m") == 0600);
  CHECK(directory.mode("m.wake") == 0600);
}

TEST_CASE("a memif joins no other user's daemon, but the one that peer= names", "[port][memif][users]") {
  if (geteuid() != 0) SKIP_BECAUSE("a memif between two users: needs root");
  constexpr uid_t kOther = 61000;
  const std::string named = ",peer=" + std::to_string(kOther);
  const Directory directory;
  REQUIRE(chmod(directory.path.c_str(), 0777) == 0);
  SECTION("a server and a stranger") {
    const auto port = open(directory.server());
    const Peer peer(directory.client(), 1500, Peer::Network::same, kOther);
    // Somebody who may come does, after the stranger has tried.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK_FALSE(port->link_up());
    const Peer ours(directory.client(), 1500);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 100);
  }
  SECTION("a server and the one that it names") {
    const auto port = open(directory.server() + named);
    const Peer peer(directory.client(), 1500, Peer::Network::same, kOther);
    REQUIRE(test::eventually([&] { return joined(*port); }));
    converse(*port, 100);
  }
  SECTION("a server that names a user does not let in a third") {
    const auto port = open(directory.server() + named);
    const Peer third(directory.client(), 1500, Peer::Network::same, kOther + 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK_FALSE(port->link_up());
  }
  SECTION("a client and the one that it names, or not") {
    const bool is_named = GENERATE(false, true);
    const Peer peer(directory.server() + ",peer=0", 1500, Peer::Network::same, kOther);
    REQUIRE(test::eventually([&] { return directory.has("m.wake"); }));
    const auto port = open(directory.client() + (is_named ? named : ""));
    if (is_named) {
      REQUIRE(test::eventually([&] { return joined(*port); }));
      converse(*port, 100);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      CHECK_FALSE(port->link_up());
    }
  }
}

TEST_CASE("a memif that names a user who is not there says so", "[port][memif][users]") {
  const Directory directory;
  std::string error;
  CHECK(open(directory.server() + ",peer=nobody-of-this-name", error) == nullptr);
  CHECK(error.find("there is no such user") != std::string::npos);
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
