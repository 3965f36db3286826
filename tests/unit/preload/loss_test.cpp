// The daemon's end: nobody hangs, each id is told of it once, and a new daemon serves a new
// channel of the same process.
#include "kit/catch.hpp"

#include <poll.h>

#include <set>
#include <thread>

#include "kit/alarms.hpp"
#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

// The daemon is there again when the test is over.
struct Mortal {
  TestDaemon& daemon = daemon_at_work();
  ~Mortal() { daemon.start(); }
};

}  // namespace

TEST_CASE("the daemon's death wakes a blocked GET_EVENT with one removal for each id", "[preload][loss]") {
  Mortal mortal;
  const int fd = open_cm();
  const std::uint32_t first = create_id(fd, 0x10);
  const std::uint32_t second = create_id(fd, 0x20);
  rdma_ucm_event_resp event{};
  int error = -1;
  std::thread waiter([&] { error = get_event(fd, event); });
  mortal.daemon.die();
  waiter.join();
  REQUIRE(error == 0);
  CHECK(event.event == RNIC_CM_DEVICE_REMOVAL);
  std::set<std::uint32_t> told{event.id};
  CHECK(event.uid == (event.id == first ? 0x10u : 0x20u));

  REQUIRE(get_event(fd, event) == 0);
  CHECK(event.event == RNIC_CM_DEVICE_REMOVAL);
  told.insert(event.id);
  CHECK(told == std::set<std::uint32_t>{first, second});
  CHECK(get_event(fd, event) == EIO);
  CHECK(get_event(fd, event) == EIO);
  close(fd);
}

TEST_CASE("the daemon's death wakes who polls, even on a channel without ids", "[preload][loss]") {
  Mortal mortal;
  const int fd = open_cm();
  pollfd entry{fd, POLLIN, 0};
  CHECK(poll(&entry, 1, 0) == 0);
  mortal.daemon.die();
  CHECK(poll(&entry, 1, 10'000) == 1);
  rdma_ucm_event_resp event{};
  CHECK(get_event(fd, event) == EIO);
  close(fd);
}

TEST_CASE("after the daemon's death ids can be destroyed, with the events that were reported", "[preload][loss]") {
  Mortal mortal;
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 0x10);
  const std::uint32_t silent = create_id(fd, 0x20);
  mortal.daemon.post(channel_of_last_id(), event_of(id, 0x10, RNIC_CM_ESTABLISHED));
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(fd, event) == 0);
  mortal.daemon.die();
  std::uint32_t reported = 7;
  CHECK(destroy_id(fd, silent, reported) == 0);
  CHECK(reported == 0);
  // The removal of the destroyed one is not told any more.
  REQUIRE(get_event(fd, event) == 0);
  CHECK(event.id == id);
  CHECK(get_event(fd, event) == EIO);
  CHECK(destroy_id(fd, id, reported) == 0);
  CHECK(reported == 2);
  close(fd);
}

TEST_CASE("a connect request that nobody accepted has no removal", "[preload][loss]") {
  Mortal mortal;
  const int fd = open_cm();
  const std::uint32_t listener = create_id(fd, 0x10);
  rnic_cm_get_event_reply request = event_of(900, 0x10, RNIC_CM_CONNECT_REQUEST);
  request.listener = listener;
  const std::uint32_t channel = channel_of_last_id();
  mortal.daemon.post(channel, request);
  request.id = 901;
  mortal.daemon.post(channel, request);
  mortal.daemon.agree();  // to an ACCEPT of what nobody asked for
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(fd, event) == 0);
  REQUIRE(get_event(fd, event) == 0);
  rdma_ucm_accept accept{};
  accept.id = 901;
  accept.uid = 0x30;
  accept.conn_param.valid = 1;
  REQUIRE(command(fd, RDMA_USER_CM_CMD_ACCEPT, accept) == 0);
  mortal.daemon.die();
  std::set<std::uint32_t> told;
  while (get_event(fd, event) == 0) told.insert(event.id);
  CHECK(told == std::set<std::uint32_t>{listener, 901});
  close(fd);
}

TEST_CASE("commands of a channel whose daemon has gone fail with EIO", "[preload][loss]") {
  Mortal mortal;
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 0x10);
  mortal.daemon.die();
  CHECK(command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == EIO);
  CHECK(command(fd, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}) == EIO);
  close(fd);
}

TEST_CASE("a new daemon serves a new channel, and not the old one", "[preload][loss]") {
  Mortal mortal;
  const int old_channel = open_cm();
  const std::uint32_t old_id = create_id(old_channel, 0x10);
  mortal.daemon.die();
  mortal.daemon.start();
  const int new_channel = open_cm(O_RDWR | O_CLOEXEC | O_NONBLOCK);
  REQUIRE(new_channel >= 0);
  const std::uint32_t new_id = create_id(new_channel, 0x20);
  CHECK(new_id != 0);
  rdma_ucm_event_resp event{};
  CHECK(get_event(new_channel, event) == EAGAIN);
  CHECK(command(old_channel, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{old_id, 1}) == EIO);
  CHECK(command(new_channel, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{new_id, 1}) == 0);
  close(old_channel);
  close(new_channel);
}

TEST_CASE("where no daemon is, there is no device and no channel", "[preload][loss]") {
  Mortal mortal;
  mortal.daemon.die();
  errno = 0;
  CHECK(open_cm() == -1);
  CHECK(errno == ENOENT);
  errno = 0;
  CHECK(open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) == -1);
  CHECK(errno == ENXIO);
}

TEST_CASE("an answer to another question is the connection's end; a new channel has a new one", "[preload][loss]") {
  for (const auto harm : {harm::wrong_id, harm::wrong_type, harm::cut_in_half, harm::close}) {
    const int fd = open_cm();
    const std::uint32_t id = create_id(fd, 0x10);
    daemon_at_work().relay().harm(RNIC_CM_LISTEN, harm);
    CHECK(command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == EIO);
    CHECK(command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == EIO);
    const int other = open_cm();
    REQUIRE(other >= 0);
    CHECK(create_id(other, 0x20) != 0);
    close(fd);
    close(other);
  }
  daemon_at_work().agree_no_more();
}

TEST_CASE("a signal does not keep a command from its answer", "[preload][loss]") {
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 0x10);
  daemon_at_work().relay().harm(RNIC_CM_LISTEN, harm::delay(60));
  const Alarms alarms;
  CHECK(command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == 0);
  close(fd);
  daemon_at_work().agree_no_more();
}

TEST_CASE("a daemon of another version is none that serves", "[preload][loss]") {
  daemon_at_work().relay().harm(RNIC_HELLO, harm::status(EPROTONOSUPPORT));
  errno = 0;
  CHECK(open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) == -1);
  CHECK(errno == EPROTONOSUPPORT);
}
