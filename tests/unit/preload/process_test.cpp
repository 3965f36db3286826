// What the daemon hears of which process a connection is of.
#include "kit/catch.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <thread>

#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

using Token = std::array<std::uint8_t, RNIC_PROCESS_TOKEN>;

std::vector<Token> tokens() {
  std::vector<Token> found;
  for (const Asked& request : daemon_at_work().relay().all(RNIC_HELLO)) {
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
  TestDaemon& daemon = daemon_at_work();
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

TEST_CASE("fork does not wait for an answer of the daemon's", "[preload][process]") {
  TestDaemon& daemon = daemon_at_work();
  const int channel = open_cm();
  daemon.relay().hold(RNIC_CM_LISTEN);
  int error = -1;
  std::thread asking([&] { error = command(channel, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{1, 1}); });
  while (daemon.relay().held() == 0) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) _exit(open_cm() >= 0 ? 0 : 1);  // on a connection of its own
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  daemon.relay().release();
  asking.join();
  CHECK(error == 0);
  close(channel);
}

TEST_CASE("dup2 over every number leaves a channel alive", "[preload][others]") {
  const int channel = open_cm();
  const std::uint32_t id = create_id(channel, 1);
  const std::uint32_t number = channel_of_last_id();
  for (int i = 600; i < 1024; ++i) REQUIRE(dup2(STDIN_FILENO, i) == i);
  CHECK_FALSE(daemon_at_work().is_gone(number));
  CHECK(command(channel, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == 0);
  for (int i = 600; i < 1024; ++i) close(i);
  CHECK(command(channel, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == 0);
  close(channel);
}

namespace {

// As a program does that closes by ways of its own what it did not open: the range in which the stand-in hides.
void close_unseen() { REQUIRE(syscall(SYS_close_range, 600, 1023, 0) == 0); }

// A file of the program's at each of these numbers.
void fill_range() {
  for (int i = 600; i < 1024; ++i) REQUIRE(syscall(SYS_dup3, STDIN_FILENO, i, 0) == i);
}

}  // namespace

TEST_CASE("what was closed unseen is the program's to use and to close", "[preload][others]") {
  const int channel = open_cm();
  create_id(channel, 1);
  close_unseen();
  for (int i = 600; i < 1024; ++i) CHECK((close(i) == -1 && errno == EBADF));
  fill_range();
  for (int i = 600; i < 1024; ++i) CHECK(close(i) == 0);
  for (int i = 600; i < 1024; ++i) CHECK(fcntl(i, F_GETFD) == -1);
  close(channel);
  const int next = open_cm();  // and what is opened then is whole
  create_id(next, 1);
  CHECK(close(next) == 0);
}

TEST_CASE("a channel whose lifeline was closed unseen closes nothing of others' when it ends", "[preload][others]") {
  const int channel = open_cm();
  create_id(channel, 1);
  close_unseen();
  SECTION("a file of the program's") {
    fill_range();
    CHECK(close(channel) == 0);
    for (int i = 600; i < 1024; ++i) CHECK(fcntl(i, F_GETFD) >= 0);
    for (int i = 600; i < 1024; ++i) CHECK(close(i) == 0);
  }
  SECTION("the lifeline of the next channel") {
    const int next = open_cm();
    create_id(next, 1);
    const std::uint32_t number = channel_of_last_id();
    CHECK(close(channel) == 0);
    CHECK_FALSE(daemon_at_work().is_gone(number));
    CHECK(close(next) == 0);
  }
}
