// Objects that go while more events are unread than their socket holds: the daemon has the rest, and fills
// whatever room there is. Nothing of the others is lost, and nobody waits for the application to read.
#include "kit/catch.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "unit/provider/daemon.hpp"

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

using Event = std::pair<std::uint64_t, std::uint64_t>;  // whom it is about, and its type

std::uint64_t value_of(const void* object) { return reinterpret_cast<std::uintptr_t>(object); }

// The smallest room that a socket can be given, so that a few messages fill it.
void make_small(int writer) {
  const int least = 1;
  REQUIRE(setsockopt(writer, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
}

// What an application reads until nothing comes any more.
std::vector<Event> read_all(TestDaemon& daemon, int reader) {
  std::vector<Event> all;
  for (;;) {
    std::uint64_t words[2] = {};
    if (recv(reader, words, sizeof words, MSG_DONTWAIT) > 0) {
      all.emplace_back(words[0], words[1]);
      continue;
    }
    daemon.settle();
    if (unread(reader) == 0) return all;
  }
}

// Gives the daemon its turn to fill the room at the worst moment: when all has been taken out, and nothing put back.
template <typename Destroy>
void destroy_under_fire(TestDaemon& daemon, Destroy&& destroy) {
  when_empty = [&] {
    const auto again = std::exchange(when_empty, nullptr);
    daemon.settle();
    when_empty = again;
  };
  const int waited = waits;
  const int error = destroy();
  when_empty = nullptr;
  REQUIRE(error == 0);
  REQUIRE(waits == waited);
}

// Ten events for each of 100 QPs, in turns, of three kinds.
struct ManyQps {
  static constexpr std::size_t kQps = 100;
  static constexpr std::size_t kEvents = 10;
  static constexpr qp::Event kKinds[] = {qp::Event::crc_error, qp::Event::queue_number, qp::Event::invalid_stag};
  static constexpr std::uint64_t kTypes[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR};

  ManyQps() : app(daemon) {
    make_small(app.context->async_writer);
    cq = app.make_cq(16);
    for (std::size_t i = 0; i < kQps; ++i) qps.push_back(app.make_qp(cq, cq, 1));
    for (std::size_t event = 0; event < kEvents; ++event) {
      for (const ibv_qp* qp : qps) {
        daemon.tell(qp, kKinds[event % 3]);
        expected.emplace_back(value_of(qp), kTypes[event % 3]);
      }
    }
  }

  int reader() const { return app.context->async_fd; }
  void destroy(std::size_t at) {
    std::erase_if(expected, [&](const Event& event) { return event.first == value_of(qps[at]); });
    destroy_under_fire(daemon, [&] { return provider::destroy_qp(qps[at]); });
  }

  TestDaemon daemon;
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
  CHECK(t.expected.size() - unread(t.reader()) > 400);
  CHECK(read_all(t.daemon, t.reader()) == t.expected);
}

TEST_CASE("the last QP's events leave an empty socket", "[provider][events]") {
  ManyQps t;
  for (std::size_t i = 0; i < t.qps.size(); ++i) t.destroy(i);
  CHECK(t.expected.empty());
  CHECK(read_all(t.daemon, t.reader()).empty());
}

TEST_CASE("where nothing is unread a QP goes without a word about events", "[provider][events]") {
  OneQp t;
  REQUIRE(provider::destroy_qp(t.qp) == 0);
  CHECK(t.daemon.holds() == 0);
}

TEST_CASE("with more completion events unread than their socket holds a CQ goes at once, and takes its own alone",
          "[provider][events]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  std::vector<ibv_cq*> cqs;
  for (int i = 0; i < 100; ++i) cqs.push_back(app.make_cq(4, &channel));
  make_small(provider::of(cqs[0]).channel_writer);
  std::vector<std::uint64_t> fired;
  for (int round = 0; round < 10; ++round) {
    for (const ibv_cq* cq : cqs) {
      daemon.fire(cq);
      fired.push_back(value_of(cq));
    }
  }
  // What fits is in the socket; behind that an event is waited with once for each CQ.
  const std::size_t in_socket = unread(channel.fd);
  std::vector<std::uint64_t> all(fired.begin(), fired.begin() + static_cast<std::ptrdiff_t>(in_socket));
  for (std::size_t i = in_socket; i < fired.size(); ++i)
    if (std::find(all.begin() + static_cast<std::ptrdiff_t>(in_socket), all.end(), fired[i]) == all.end())
      all.push_back(fired[i]);
  REQUIRE(all.size() == in_socket + 100);
  std::vector<Event> expected;
  for (const std::uint64_t each : all) {
    const auto index =
        std::find_if(cqs.begin(), cqs.end(), [&](ibv_cq* cq) { return value_of(cq) == each; }) - cqs.begin();
    if (index % 2 != 0) expected.emplace_back(each, 0);
  }
  for (std::size_t i = 0; i < cqs.size(); i += 2)
    destroy_under_fire(daemon, [&] { return provider::destroy_cq(cqs[i]); });
  CHECK(expected.size() - unread(channel.fd) > 40);
  CHECK(read_all(daemon, channel.fd) == expected);
}

TEST_CASE("the daemon's death in the midst of it loses nothing that was in the socket", "[provider][events][death]") {
  ManyQps t;
  const std::size_t in_socket = unread(t.reader());
  REQUIRE(in_socket < t.expected.size());
  t.expected.resize(in_socket);
  t.daemon.relay().harm(RNIC_HOLD_EVENTS, [](const Asked&, Passing& reply) { reply.dies = true; });
  t.destroy(0);
  CHECK(t.daemon.holds() == 1);
  CHECK(t.expected.size() == in_socket - 1);
  for (const Event& event : t.expected) {
    std::uint64_t words[2] = {};
    REQUIRE(recv(t.reader(), words, sizeof words, MSG_DONTWAIT) > 0);
    CHECK(Event{words[0], words[1]} == event);
  }
}
