// What the other side of a memif does to the descriptors that both have makes nobody wait here.
#include "port/wake_channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "kit/catch.hpp"
#include "unit/port/peer.hpp"

namespace rnic::port {
namespace {

// The client's half of the protocol, done by hand.
struct RudeClient {
  explicit RudeClient(const std::string& path) : connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~RudeClient() {
    for (const int fd : {connection, page, bell}) close(fd);
  }
  // The server's page, and where to ring it.
  void take_greeting() {
    std::byte octets[64];
    int fds[2] = {-1, -1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    iovec io{octets, sizeof octets};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    REQUIRE(got > 0);
    hello.assign(octets, octets + got);
    REQUIRE(CMSG_FIRSTHDR(&message) != nullptr);
    REQUIRE(CMSG_FIRSTHDR(&message)->cmsg_len == CMSG_LEN(sizeof fds));
    std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
    page = fds[0];
    bell = fds[1];
  }
  static void send_with(int to, const std::vector<std::byte>& octets, int fd) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    iovec io{const_cast<std::byte*>(octets.data()), octets.size()};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    REQUIRE(sendmsg(to, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(octets.size()));
  }
  // As an rnicd's: the same sizes as the server's, and where to ring.
  void greet(int mouth) const { send_with(connection, hello, mouth); }
  // Our word that we sleep.
  void sleep() const {
    void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    REQUIRE(at != MAP_FAILED);
    const std::uint32_t one = 1;
    std::memcpy(static_cast<std::byte*>(at) + 64, &one, sizeof one);
    munmap(at, 4096);
  }

  int connection, page = -1, bell = -1;
  std::vector<std::byte> hello;
};

struct World {
  World() {
    char pattern[] = "/tmp/rnic-wake-XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    directory = pattern;
    std::string error;
    const auto anybody = MemifPeer::find("", error);
    REQUIRE(anybody);
    server.emplace(path(), WakeChannel::Role::server, WakeChannel::Sizes{1500, 2048}, *anybody);
    REQUIRE(server->open(error));
    client.emplace(path());
    server->serve();
    client->take_greeting();
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    client->greet(ends[1]);
    server->serve();
    REQUIRE(server->joined());
    REQUIRE(server->quiet());
  }
  ~World() {
    client.reset();
    server.reset();
    for (const int fd : ends) close(fd);
    rmdir(directory.c_str());
  }
  std::string path() const { return directory + "/w"; }
  bool rung() const {
    pollfd waiting{.fd = server->bell(), .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, 0) == 1;
  }
  std::string directory;
  std::optional<WakeChannel> server;
  std::optional<RudeClient> client;
  int ends[2] = {-1, -1};
};

}  // namespace

TEST_CASE("a bell whose owner fills it does not make the other side wait", "[port][wake]") {
  World world;
  // Both flags are the peer's: it has the same open file.
  REQUIRE(fcntl(world.ends[1], F_SETFL, 0) == 0);
  const std::vector<char> octets(1 << 16);
  while (send(world.ends[1], octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  world.client->sleep();
  world.server->wake_peer();
  CHECK(world.server->joined());
}

TEST_CASE("a bell that is not rung, or rung a thousand times, is quiet at once", "[port][wake]") {
  World world;
  fcntl(world.client->bell, F_SETFL, 0);
  CHECK_FALSE(world.rung());
  CHECK(world.server->quiet());
  for (int i = 0; i < 50; ++i) CHECK(send(world.client->bell, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1);
  CHECK(world.rung());
  CHECK(world.server->quiet());
  CHECK_FALSE(world.rung());
  world.server->ring_own();
  CHECK(world.rung());
  CHECK(world.server->quiet());
  CHECK_FALSE(world.rung());
}

TEST_CASE("who sends anything but octets to a bell, or ends it, loses the channel, and keeps nobody awake",
          "[port][wake]") {
  World world;
  SECTION("a descriptor") { RudeClient::send_with(world.client->bell, {std::byte{1}}, world.client->connection); }
  SECTION("an end") { REQUIRE(shutdown(world.client->bell, SHUT_RDWR) == 0); }
  CHECK(world.rung());
  CHECK_FALSE(world.server->quiet());
  CHECK_FALSE(world.rung());
  world.server->serve();
  CHECK_FALSE(world.server->joined());
  CHECK_FALSE(world.rung());
  // The next one is welcome.
  RudeClient other(world.path());
  world.server->serve();
  other.take_greeting();
  other.greet(world.ends[1]);
  world.server->serve();
  CHECK(world.server->joined());
}

TEST_CASE("only a stream socket is taken for a peer's bell", "[port][wake]") {
  World world;
  RudeClient other(world.path());
  world.server->serve();
  other.take_greeting();
  int pipe_ends[2];
  REQUIRE(pipe2(pipe_ends, O_CLOEXEC) == 0);
  other.greet(pipe_ends[1]);
  world.server->serve();
  CHECK_FALSE(world.server->joined());
  for (const int fd : pipe_ends) close(fd);
}

}  // namespace rnic::port
