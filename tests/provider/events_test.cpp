// Objects that go while more events are unread than their socket holds: the daemon has the rest, and fills
// whatever room there is. Nothing of the others is lost, and nobody waits for the application to read.
#include "support/catch.hpp"

#include <sys/syscall.h>

#include <functional>
#include <utility>

#include "provider/fake_daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// What a thread does as soon as it has read a socket empty, and how often it has waited.
thread_local std::function<void()> when_empty;
thread_local int waits = 0;

}  // namespace

// These stand before the C library's.
extern "C" ssize_t recv(int fd, void* to, size_t size, int flags) {
  const ssize_t got = syscall(SYS_recvfrom, fd, to, size, flags, nullptr, nullptr);
  const int error = errno;
  if (got < 0 && error == EAGAIN && when_empty) when_empty();
  errno = error;
  return got;
}

extern "C" int poll(pollfd* fds, nfds_t count, int timeout_ms) {
  ++waits;
  return static_cast<int>(syscall(SYS_poll, fds, count, timeout_ms));
}

namespace {

using Event = std::pair<std::uint64_t, std::uint64_t>;  // whom it is about, and which of its events

std::uint64_t value_of(const void* object) { return reinterpret_cast<std::uintptr_t>(object); }

std::size_t waiting(FakeDaemon& daemon, const FakeEvents& events) {
  const std::lock_guard lock(daemon.mutex);
  return events.waiting.size();
}

// What an application reads until nothing comes any more.
std::vector<Event> read_all(FakeDaemon& daemon, FakeEvents& events) {
  std::vector<Event> all;
  const std::lock_guard lock(daemon.mutex);
  for (;;) {
    std::uint64_t words[2] = {};
    if (recv(events.reader, words, sizeof words, MSG_DONTWAIT) > 0) {
      all.emplace_back(words[0], words[1]);
    } else if (events.waiting.empty()) {
      return all;
    } else {
      events.send_waiting();
    }
  }
}

// Has the daemon fill the room at the worst moment: when all has been taken out, and nothing put back.
template <typename Destroy>
void destroy_under_fire(FakeDaemon& daemon, FakeEvents& events, Destroy&& destroy) {
  when_empty = [&] {
    const std::lock_guard lock(daemon.mutex);
    events.send_waiting();
  };
  const int waited = waits;
  const int error = destroy();
  when_empty = nullptr;
  REQUIRE(error == 0);
  REQUIRE(waits == waited);
}

// Ten events for each of 100 QPs, in turns.
struct ManyQps {
  static constexpr std::size_t kQps = 100;
  static constexpr std::uint64_t kEvents = 10;

  ManyQps() : app(daemon) {
    daemon.async.make_small();
    cq = app.make_cq(16);
    for (std::size_t i = 0; i < kQps; ++i) qps.push_back(app.make_qp(cq, cq, 1));
    const std::lock_guard lock(daemon.mutex);
    for (std::uint64_t event = 0; event < kEvents; ++event) {
      for (const ibv_qp* qp : qps) {
        daemon.async.send_or_keep({{value_of(qp), event}, 2 * sizeof(std::uint64_t)});
        expected.emplace_back(value_of(qp), event);
      }
    }
  }

  void destroy(std::size_t at) {
    std::erase_if(expected, [&](const Event& event) { return event.first == value_of(qps[at]); });
    destroy_under_fire(daemon, daemon.async, [&] { return provider::destroy_qp(qps[at]); });
  }

  FakeDaemon daemon;
  Application app;
  ibv_cq* cq = nullptr;
  std::vector<ibv_qp*> qps;
  std::vector<Event> expected;
};

}  // namespace

TEST_CASE("with 1,000 async events unread a QP goes at once, and takes its own events alone", "[provider][events]") {
  ManyQps t;
  for (std::size_t i = 0; i < t.qps.size(); i += 2) t.destroy(i);
  // Nobody has read: whatever room was made has been filled again.
  CHECK(waiting(t.daemon, t.daemon.async) > 400);
  CHECK(read_all(t.daemon, t.daemon.async) == t.expected);
}

TEST_CASE("the last QP's events leave an empty socket", "[provider][events]") {
  ManyQps t;
  for (std::size_t i = 0; i < t.qps.size(); ++i) t.destroy(i);
  CHECK(t.expected.empty());
  CHECK(read_all(t.daemon, t.daemon.async).empty());
}

TEST_CASE("where nothing is unread a QP goes without a word about events", "[provider][events]") {
  OneQp t;
  REQUIRE(provider::destroy_qp(t.qp) == 0);
  CHECK(t.daemon.holds == 0);
}

TEST_CASE("with 1,000 completion events unread a CQ goes at once, and takes its own events alone",
          "[provider][events]") {
  FakeDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel{};
  channel.fd = daemon.make_channel();
  FakeEvents& events = daemon.channels.begin()->second;
  events.make_small();
  std::vector<ibv_cq*> cqs;
  for (int i = 0; i < 100; ++i) cqs.push_back(app.make_cq(4, &channel));
  std::vector<Event> expected;
  {
    const std::lock_guard lock(daemon.mutex);
    for (int event = 0; event < 10; ++event) {
      for (std::size_t i = 0; i < cqs.size(); ++i) {
        events.send_or_keep({{value_of(cqs[i]), 0}, sizeof(std::uint64_t)});
        if (i % 2 != 0) expected.emplace_back(value_of(cqs[i]), 0);
      }
    }
  }
  for (std::size_t i = 0; i < cqs.size(); i += 2)
    destroy_under_fire(daemon, events, [&] { return provider::destroy_cq(cqs[i]); });
  CHECK(waiting(daemon, events) > 400);
  CHECK(read_all(daemon, events) == expected);
}

TEST_CASE("the daemon's death in the midst of it loses nothing that was in the socket", "[provider][events][death]") {
  ManyQps t;
  const std::size_t in_socket = t.expected.size() - waiting(t.daemon, t.daemon.async);
  t.expected.resize(in_socket);
  {
    const std::lock_guard lock(t.daemon.mutex);
    t.daemon.dies_in_hold = true;
  }
  t.destroy(0);
  CHECK(t.daemon.holds == 1);
  CHECK(t.expected.size() == in_socket - 1);
  for (const Event& event : t.expected) {
    std::uint64_t words[2] = {};
    REQUIRE(recv(t.daemon.async.reader, words, sizeof words, MSG_DONTWAIT) > 0);
    CHECK(Event{words[0], words[1]} == event);
  }
}
