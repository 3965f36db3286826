// What the daemon hears of which process a connection is of.
#include "support/catch.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <array>

#include "preload/commands.hpp"

using namespace rnic::test;

namespace {

using Token = std::array<std::uint8_t, RNIC_PROCESS_TOKEN>;

std::vector<Token> tokens() {
  std::vector<Token> found;
  for (const Request& request : daemon_at_work().all(RNIC_HELLO)) {
    const auto hello = request.as<rnic_hello>();
    Token token;
    std::copy(std::begin(hello.process), std::end(hello.process), token.begin());
    found.push_back(token);
  }
  return found;
}

int open_device() { return open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC); }

}  // namespace

TEST_CASE("all connections of a process bring one token, those of its children others", "[preload][process]") {
  FakeDaemon& daemon = daemon_at_work();
  daemon.die();  // and with it the connection for connection management, and what was said before
  daemon.start();
  const int device = open_device();
  const int second = open_device();
  const int channel = open_cm();
  const auto own = tokens();
  REQUIRE(own.size() == 3);
  CHECK(own[0] != Token{});
  CHECK(own[1] == own[0]);
  CHECK(own[2] == own[0]);

  const pid_t child = fork();
  if (child == 0) {
    const int mine = open_device();
    const int events = open_cm();
    _exit(mine >= 0 && events >= 0 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  const auto all = tokens();
  REQUIRE(all.size() == 5);
  CHECK(all[3] != own[0]);
  CHECK(all[3] != Token{});
  CHECK(all[4] == all[3]);
  close(device);
  close(second);
  close(channel);
}
