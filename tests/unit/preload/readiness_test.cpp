// The descriptor of an event channel is a real one: it is readable exactly when an event waits,
// by every way of asking, through copies and in a child of fork.
#include "kit/catch.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <thread>

#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

struct OneId {
  explicit OneId(int flags = O_RDWR | O_CLOEXEC) : fd(open_cm(flags)) {
    id = create_id(fd, 0x1234);
    channel = channel_of_last_id();
  }
  ~OneId() { close(fd); }
  void post(std::uint32_t kind = RNIC_CM_ESTABLISHED) { daemon_at_work().post(channel, event_of(id, 0x1234, kind)); }
  int fd = -1;
  std::uint32_t id = 0;
  std::uint32_t channel = 0;
};

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

// A thread in GET_EVENT; the number is the caller's while it starts.
pthread_t start_get_event(int& fd) {
  const auto wait = [](void* at) -> void* {
    rdma_ucm_event_resp event{};
    get_event(*static_cast<int*>(at), event);
    return nullptr;
  };
  pthread_t thread;
  REQUIRE(pthread_create(&thread, nullptr, wait, &fd) == 0);
  return thread;
}

// It ends the thread, too.
bool still_waits(pthread_t thread) {
  pthread_cancel(thread);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  return result == PTHREAD_CANCELED;
}

template <class Address>
void put_ipv4(Address& place, std::uint32_t address) {
  sockaddr_in octets{};
  octets.sin_family = AF_INET;
  octets.sin_port = htons(7174);
  octets.sin_addr.s_addr = htonl(address);
  std::memcpy(&place, &octets, sizeof octets);
}

int status_of_child(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

TEST_CASE("an event channel is a character device to fstat", "[preload][ucma]") {
  OneId one;
  struct stat info {};
  REQUIRE(fstat(one.fd, &info) == 0);
  CHECK(S_ISCHR(info.st_mode));
  CHECK(major(info.st_rdev) == 10);
}

TEST_CASE("an event channel has the flags that open was given", "[preload][ucma]") {
  OneId plain(O_RDWR);
  CHECK((fcntl(plain.fd, F_GETFD) & FD_CLOEXEC) == 0);
  CHECK((fcntl(plain.fd, F_GETFL) & O_NONBLOCK) == 0);
  OneId other(O_RDWR | O_CLOEXEC | O_NONBLOCK);
  CHECK((fcntl(other.fd, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(other.fd, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("poll says readable from the event's coming until it has been taken", "[preload][ucma]") {
  OneId one;
  CHECK_FALSE(readable(one.fd));
  one.post();
  one.post();
  CHECK(readable(one.fd));
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK(readable(one.fd));
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK_FALSE(readable(one.fd));
}

TEST_CASE("edge-triggered epoll tells of each event that comes", "[preload][ucma]") {
  OneId one;
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event wanted{EPOLLIN | EPOLLET, {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, one.fd, &wanted) == 0);
  epoll_event got{};
  CHECK(epoll_wait(set, &got, 1, 0) == 0);
  one.post();
  CHECK(epoll_wait(set, &got, 1, 1000) == 1);
  CHECK(epoll_wait(set, &got, 1, 0) == 0);
  one.post();
  CHECK(epoll_wait(set, &got, 1, 1000) == 1);
  close(set);
}

TEST_CASE("a non-blocking channel without events answers EAGAIN", "[preload][ucma]") {
  OneId one;
  REQUIRE(fcntl(one.fd, F_SETFL, fcntl(one.fd, F_GETFL) | O_NONBLOCK) == 0);
  rdma_ucm_event_resp event{};
  CHECK(get_event(one.fd, event) == EAGAIN);
  one.post();
  CHECK(get_event(one.fd, event) == 0);
  CHECK(get_event(one.fd, event) == EAGAIN);
}

TEST_CASE("a blocked GET_EVENT leaves the channel to others, and wakes with the event", "[preload][ucma]") {
  OneId one;
  const std::uint32_t listener = create_id(one.fd, 0x5678);
  rdma_ucm_event_resp event{};
  int error = -1;
  std::thread waiter([&] { error = get_event(one.fd, event); });
  // Commands go on while it waits.
  CHECK(command(one.fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{listener, 1}) == 0);
  one.post(RNIC_CM_DISCONNECTED);
  waiter.join();
  CHECK(error == 0);
  CHECK(event.event == RNIC_CM_DISCONNECTED);
}

TEST_CASE("a thread that waits for an event can be cancelled, and nothing stays locked", "[preload][ucma]") {
  OneId one;
  pthread_t waiter;
  REQUIRE(pthread_create(
              &waiter, nullptr,
              [](void* fd) -> void* {
                rdma_ucm_event_resp event{};
                get_event(*static_cast<int*>(fd), event);
                return nullptr;
              },
              &one.fd) == 0);
  REQUIRE(pthread_cancel(waiter) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(waiter, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(command(one.fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{one.id, 1}) == 0);
}

TEST_CASE("copies of a channel's descriptor take commands, and the last close ends it", "[preload][ucma]") {
  const std::size_t closed_before = daemon_at_work().count(RNIC_CM_CLOSE);
  int first = -1;
  int copies[3] = {-1, -1, -1};
  std::uint32_t id = 0, other = 0;
  std::uint32_t channel = 0;
  {
    first = open_cm();
    id = create_id(first, 1);
    other = create_id(first, 1);
    channel = channel_of_last_id();
    copies[0] = dup(first);
    copies[1] = fcntl(first, F_DUPFD_CLOEXEC, 300);
    copies[2] = dup2(first, 310);
  }
  close(first);
  for (const int copy : copies) {
    CHECK(command(copy, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == 0);
  }
  daemon_at_work().post(channel, event_of(other, 1, RNIC_CM_ESTABLISHED));
  CHECK(readable(copies[2]));
  rdma_ucm_event_resp event{};
  CHECK(get_event(copies[1], event) == 0);
  close(copies[0]);
  close(copies[1]);
  CHECK(daemon_at_work().count(RNIC_CM_CLOSE) == closed_before);
  close(copies[2]);
  CHECK(daemon_at_work().count(RNIC_CM_CLOSE) == closed_before + 1);
  CHECK(daemon_at_work().last(RNIC_CM_CLOSE).as<rnic_handle>().handle == channel);
  CHECK(daemon_at_work().is_gone(channel));
}

TEST_CASE("events of a destroyed id leave the channel unreadable", "[preload][ucma]") {
  OneId one;
  one.post();
  one.post();
  one.post();
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  std::uint32_t reported = 0;
  REQUIRE(destroy_id(one.fd, one.id, reported) == 0);
  CHECK(reported == 1);
  CHECK_FALSE(readable(one.fd));
}

TEST_CASE("events that wait are fetched together, and told one by one", "[preload][ucma]") {
  OneId one;
  constexpr std::size_t kEvents = 2 * RNIC_CM_TOLD_MAX + 1;
  for (std::size_t i = 0; i < kEvents; ++i)
    daemon_at_work().post(one.channel, event_of(one.id, 0x1234 + i, RNIC_CM_ESTABLISHED));
  const std::size_t before = daemon_at_work().count(RNIC_CM_GET_EVENT);
  for (std::size_t i = 0; i < kEvents; ++i) {
    REQUIRE(readable(one.fd));
    rdma_ucm_event_resp event{};
    REQUIRE(get_event(one.fd, event) == 0);
    CHECK(event.uid == 0x1234 + i);
  }
  CHECK_FALSE(readable(one.fd));
  CHECK(daemon_at_work().count(RNIC_CM_GET_EVENT) == before + 3);
}

TEST_CASE("what an id that goes leaves of the events that were fetched with its own is told in order",
          "[preload][ucma]") {
  OneId one;
  const std::uint32_t other = create_id(one.fd, 0x5678);
  for (const std::uint32_t id : {one.id, other, one.id, other}) {
    rdma_ucm_resolve_ip nowhere{};
    nowhere.id = id;
    put_ipv4(nowhere.dst_addr, 0xC6336401);  // which cannot be resolved
    REQUIRE(command(one.fd, RDMA_USER_CM_CMD_RESOLVE_IP, nowhere) == 0);
  }
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK(event.id == one.id);
  std::uint32_t reported = 9;
  REQUIRE(destroy_id(one.fd, one.id, reported) == 0);
  CHECK(reported == 1);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(readable(one.fd));
    REQUIRE(get_event(one.fd, event) == 0);
    CHECK(event.id == other);
    CHECK(event.uid == 0x5678);
  }
  CHECK_FALSE(readable(one.fd));
  REQUIRE(destroy_id(one.fd, other, reported) == 0);
  CHECK(reported == 2);
}

TEST_CASE("while a child of fork may come for events, each process fetches them one by one", "[preload][ucma]") {
  OneId one;
  for (int i = 0; i < 4; ++i) one.post();
  const pid_t child = fork();
  if (child == 0) {
    rdma_ucm_event_resp event{};
    _exit(get_event(one.fd, event) == 0 && get_event(one.fd, event) == 0 ? 0 : 1);
  }
  REQUIRE(status_of_child(child) == 0);
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK(daemon_at_work().last(RNIC_CM_GET_EVENT).as<rnic_handle>().reserved == 1);
  CHECK(readable(one.fd));
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK_FALSE(readable(one.fd));
}

TEST_CASE("what was fetched and not told before a fork is told to whoever comes for it", "[preload][ucma]") {
  OneId one;
  for (std::uint64_t i = 0; i < 5; ++i)
    daemon_at_work().post(one.channel, event_of(one.id, 0x1234 + i, RNIC_CM_ESTABLISHED));
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK(event.uid == 0x1234);
  const pid_t child = fork();
  if (child == 0) {
    const bool first = get_event(one.fd, event) == 0 && event.uid == 0x1235;
    _exit(first && get_event(one.fd, event) == 0 && event.uid == 0x1236 ? 0 : 1);
  }
  REQUIRE(status_of_child(child) == 0);
  for (const std::uint64_t uid : {0x1237u, 0x1238u}) {
    REQUIRE(readable(one.fd));
    REQUIRE(get_event(one.fd, event) == 0);
    CHECK(event.uid == uid);
  }
  CHECK_FALSE(readable(one.fd));
}

TEST_CASE("a daemon that tells one event at a time is understood", "[preload][ucma]") {
  OneId one;
  daemon_at_work().tells_one_event = true;
  one.post();
  rdma_ucm_event_resp event{};
  const int error = get_event(one.fd, event);
  daemon_at_work().tells_one_event = false;
  REQUIRE(error == 0);
  CHECK(event.id == one.id);
}

TEST_CASE("what is asked behind an event is known by it, once", "[preload][ucma]") {
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 0x1234);
  rdma_ucm_resolve_ip resolve{};
  resolve.id = id;
  resolve.timeout_ms = 1000;
  put_ipv4(resolve.dst_addr, 0x7f000101);
  REQUIRE(command(fd, RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == 0);
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(fd, event) == 0);
  REQUIRE(event.event == RNIC_CM_ADDRESS_RESOLVED);
  const std::size_t before = daemon_at_work().count(RNIC_CM_QUERY);
  rdma_ucm_query query{};
  query.id = id;
  rdma_ucm_query_route_resp known{}, asked{};
  REQUIRE(command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, query, known) == 0);
  CHECK(daemon_at_work().count(RNIC_CM_QUERY) == before);
  CHECK(known.node_guid != 0);
  REQUIRE(command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, query, asked) == 0);
  CHECK(daemon_at_work().count(RNIC_CM_QUERY) == before + 1);
  CHECK(std::memcmp(&known, &asked, sizeof known) == 0);
  // Not after something else was asked of the id.
  resolve.id = query.id = create_id(fd, 0x1234);
  REQUIRE(command(fd, RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == 0);
  REQUIRE(get_event(fd, event) == 0);
  REQUIRE(command(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{query.id, 1000}) == 0);
  REQUIRE(command(fd, RDMA_USER_CM_CMD_QUERY_ROUTE, query, asked) == 0);
  CHECK(daemon_at_work().count(RNIC_CM_QUERY) == before + 2);
  close(fd);
}

TEST_CASE("an id that was just told something is destroyed when that is fetched, or nobody comes for it",
          "[preload][ucma]") {
  Relay& relay = daemon_at_work().relay();
  const bool fetched = GENERATE(true, false);
  OneId one;
  relay.refuse_if(RNIC_CM_DESTROY_ID, EAGAIN, fetched ? 3 : 16,
                  [](const Asked& asked) { return asked.as<rnic_handle>().reserved == RNIC_CM_UNLESS_JUST_TOLD; });
  std::uint32_t reported = 9;
  CHECK(destroy_id(one.fd, one.id, reported) == 0);
  CHECK((relay.last(RNIC_CM_DESTROY_ID).as<rnic_handle>().reserved == RNIC_CM_UNLESS_JUST_TOLD) == fetched);
}

TEST_CASE("destroying an id does not wait for counts that another thread has taken", "[preload][ucma]") {
  OneId one;
  one.post();
  char taken = 0;
  REQUIRE(read(one.fd, &taken, sizeof taken) == sizeof taken);
  std::uint32_t reported = 7;
  CHECK(destroy_id(one.fd, one.id, reported) == 0);
  CHECK(reported == 0);
}

TEST_CASE("GET_EVENT passes over a count whose event was withdrawn", "[preload][ucma]") {
  OneId one;
  daemon_at_work().post_count_only(one.channel, one.id);
  one.post(RNIC_CM_DISCONNECTED);
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  CHECK(event.event == RNIC_CM_DISCONNECTED);
  REQUIRE(fcntl(one.fd, F_SETFL, O_NONBLOCK) == 0);
  CHECK(get_event(one.fd, event) == EAGAIN);
}

TEST_CASE("MIGRATE_ID moves an id and its events to the channel that it is written to", "[preload][ucma]") {
  OneId one;
  const int other = open_cm(O_RDWR | O_CLOEXEC | O_NONBLOCK);
  one.post();
  one.post();
  rdma_ucm_event_resp event{};
  REQUIRE(get_event(one.fd, event) == 0);
  rdma_ucm_migrate_id body{};
  body.id = one.id;
  body.fd = static_cast<__u32>(one.fd);
  rdma_ucm_migrate_resp response{};
  REQUIRE(command(other, RDMA_USER_CM_CMD_MIGRATE_ID, body, response) == 0);
  CHECK(response.events_reported == 1);
  CHECK_FALSE(readable(one.fd));
  CHECK(readable(other));
  REQUIRE(get_event(other, event) == 0);
  CHECK(event.id == one.id);
  CHECK(get_event(other, event) == EAGAIN);

  body.fd = 0;
  CHECK(command(other, RDMA_USER_CM_CMD_MIGRATE_ID, body, response) == EINVAL);
  close(other);
}

TEST_CASE("a child of fork uses its parent's channel over a connection of its own", "[preload][ucma]") {
  OneId one;
  const std::uint64_t parent = daemon_at_work().last(RNIC_CM_CREATE_ID).connection;
  const std::size_t closed_before = daemon_at_work().count(RNIC_CM_CLOSE);
  one.post();
  const pid_t child = fork();
  if (child == 0) {
    rdma_ucm_event_resp event{};
    if (!readable(one.fd) || get_event(one.fd, event) != 0) _exit(1);
    if (event.id != one.id) _exit(2);
    if (command(one.fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{one.id, 1}) != 0) _exit(3);
    if (close(one.fd) != 0) _exit(4);
    _exit(0);
  }
  REQUIRE(status_of_child(child) == 0);
  CHECK(daemon_at_work().last(RNIC_CM_LISTEN).connection != parent);
  // The event was taken for both; the channel is still the parent's.
  CHECK_FALSE(readable(one.fd));
  CHECK(daemon_at_work().count(RNIC_CM_CLOSE) == closed_before);
  CHECK_FALSE(daemon_at_work().is_gone(one.channel));
  CHECK(command(one.fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{one.id, 1}) == 0);
  CHECK(daemon_at_work().last(RNIC_CM_LISTEN).connection == parent);
}

TEST_CASE("closing a channel that a child of fork still has does not end it", "[preload][ucma]") {
  const std::size_t closed_before = daemon_at_work().count(RNIC_CM_CLOSE);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 1);
  const std::uint32_t channel = channel_of_last_id();
  const pid_t child = fork();
  if (child == 0) {
    char go = 0;
    close(ends[1]);
    if (read(ends[0], &go, 1) != 1) _exit(1);
    if (command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) != 0) _exit(2);
    _exit(0);
  }
  close(fd);
  CHECK(daemon_at_work().count(RNIC_CM_CLOSE) == closed_before);
  CHECK_FALSE(daemon_at_work().is_gone(channel));
  REQUIRE(write(ends[1], "g", 1) == 1);
  CHECK(status_of_child(child) == 0);
  CHECK(daemon_at_work().is_gone(channel));
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("closing a channel leaves a thread waiting that waits in GET_EVENT, as the kernel does", "[preload][ucma]") {
  int fd = open_cm();
  const pthread_t thread = start_get_event(fd);
  usleep(50'000);  // so that it waits
  REQUIRE(close(fd) == 0);
  usleep(50'000);  // so that it would come back
  CHECK(still_waits(thread));
}

TEST_CASE("a thread that finds its event withdrawn and then the channel closed goes on waiting", "[preload][ucma]") {
  int fd = open_cm();
  const std::uint32_t id = create_id(fd, 1);
  const std::uint32_t channel = channel_of_last_id();
  Relay& relay = daemon_at_work().relay();
  relay.harm(RNIC_CM_GET_EVENT, harm::status(EINVAL));  // what the daemon says where CLOSE came first
  relay.hold(RNIC_CM_GET_EVENT);
  const pthread_t thread = start_get_event(fd);
  daemon_at_work().post(channel, event_of(id, 1, RNIC_CM_ESTABLISHED));
  while (relay.held() == 0) usleep(1000);
  std::thread closer([&] { close(fd); });
  while (fcntl(fd, F_GETFD) >= 0) usleep(1000);
  relay.release();
  closer.join();
  daemon_at_work().agree_no_more();
  usleep(50'000);  // so that it would come back
  CHECK(still_waits(thread));
}

TEST_CASE("a write to a channel that another thread is closing fails with EBADF", "[preload][ucma]") {
  const int fd = open_cm();
  daemon_at_work().relay().hold(RNIC_CM_CLOSE);
  std::thread closer([&] { close(fd); });
  while (daemon_at_work().relay().held() == 0) usleep(1000);
  rdma_ucm_event_resp event{};
  CHECK(get_event(fd, event) == EBADF);
  daemon_at_work().relay().release();
  closer.join();
}
