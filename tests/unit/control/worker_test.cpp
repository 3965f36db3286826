// A worker and its crew: a copy that waits for a page holds its own application and nobody else.
#include "core/worker.hpp"

#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/held_copier.hpp"
#include "kit/process.hpp"
#include "kit/tpt_move_owner.hpp"

namespace {

using namespace rnic;
using test::ForkedApplication;

struct Office {
  explicit Office(unsigned applications) : owners(applications) {
    core::WorkerOptions options;
    options.realtime = false;
    options.copier = &copier;
    worker = std::make_unique<core::Worker>(options);
    for (unsigned i = 0; i < applications; ++i) {
      processes.emplace_back(SpaceId{i});
      worker->mover().add_space(SpaceId{i}, processes[i].with_pidfd());
    }
    worker->start();
  }
  ~Office() {
    for (const ForkedApplication& process : processes) copier.let_go(process.pid());
  }
  void submit(unsigned i) {
    worker->call([&](Instant) {
      (void)worker->mover().place(octets, processes[i].at(0, 8), tpt::Part::tail, {&owners[i], 0});
    });
  }
  // By the worker's word, or not at all.
  std::vector<bool> told(unsigned i) {
    std::vector<bool> now;
    worker->call([&](Instant) {
      for (const auto& [token, ok] : owners[i].told) now.push_back(ok);
    });
    return now;
  }
  void await_told(unsigned i) {
    while (told(i).empty()) std::this_thread::yield();
  }
  std::vector<core::WorkerEvent::Kind> news() {
    std::vector<core::WorkerEvent::Kind> all;
    for (core::WorkerEvent event; worker->pop_event(event);) all.push_back(event.kind);
    return all;
  }

  std::byte octets[8] = {};
  std::deque<ForkedApplication> processes;
  std::vector<test::Owner> owners;
  test::HeldCopier copier;
  std::unique_ptr<core::Worker> worker;
};

using Kind = core::WorkerEvent::Kind;

bool rings(int event_fd) {
  pollfd entry{event_fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

TEST_CASE("changes of state wake control only where somebody wants to know", "[worker]") {
  Office office(0);
  const auto change = [&](std::uint64_t cookie) {
    office.worker->call([&](Instant) { office.worker->on_qp_state(cookie, {}); });
    office.worker->call([](Instant) {});  // a turn later
  };
  change(1);
  CHECK(office.news().empty());
  CHECK_FALSE(rings(office.worker->event_fd()));
  office.worker->call([&](Instant) { office.worker->tell_states(); });
  change(2);
  CHECK(rings(office.worker->event_fd()));
  CHECK(office.news() == std::vector{Kind::qp_state});
}

TEST_CASE("while a copy waits for a page the worker goes on, and the copy's end is told", "[worker][stuck]") {
  Office office(2);
  office.copier.hold(office.processes[0].pid());
  office.submit(0);
  office.copier.await_held();
  office.submit(1);  // control is answered
  office.await_told(1);
  CHECK(office.told(1) == std::vector{true});
  CHECK(office.told(0).empty());
  CHECK(office.worker->counters().replaced == 1);
  CHECK(office.news() == std::vector{Kind::copy_stuck});
  office.copier.let_go(office.processes[0].pid());
  office.await_told(0);
  CHECK(office.told(0) == std::vector{true});
  CHECK(office.news() == std::vector{Kind::copy_back});
  // The thread that is back works again where it is wanted.
  for (int i = 0; i < 3; ++i) {
    office.owners[1].told.clear();
    office.copier.hold(office.processes[1].pid());
    office.submit(1);
    office.copier.await_held();
    CHECK(office.told(1).empty());
    office.copier.let_go(office.processes[1].pid());
    office.await_told(1);
    office.worker->call([&](Instant) { office.owners[1].told.clear(); });
  }
  CHECK(office.worker->counters().replaced == 4);
  CHECK(office.worker->stop());
}

TEST_CASE("a copy that comes after a long sleep is watched as well", "[worker][stuck]") {
  Office office(2);
  // The watcher sleeps once the worker has for this long.
  const Duration quiet = core::Crew::kLook * (core::Crew::kQuietLooksMax * 2);
  std::this_thread::sleep_for(std::chrono::nanoseconds(quiet.ns));
  office.copier.hold(office.processes[0].pid());
  office.submit(0);
  office.copier.await_held();
  office.submit(1);
  office.await_told(1);
  CHECK(office.worker->counters().replaced == 1);
}

TEST_CASE("a worker stops while a copy waits, and says that a thread is left", "[worker][stuck]") {
  Office office(1);
  office.copier.hold(office.processes[0].pid());
  office.submit(0);
  office.copier.await_held();
  CHECK_FALSE(office.worker->stop());
  CHECK(office.owners[0].told.empty());
  office.copier.let_go(office.processes[0].pid());
  office.worker.reset();  // waits for the thread
}

TEST_CASE("when every thread waits for a page the application that came last is ended", "[worker][stuck]") {
  constexpr unsigned kFirst = core::Crew::kStuckMax;
  Office office(kFirst + 2);
  for (unsigned i = 0; i < kFirst; ++i) {
    office.copier.hold(office.processes[i].pid());
    office.submit(i);
    CHECK(office.told(i).empty());
  }
  ForkedApplication& last = office.processes[kFirst];
  office.copier.hold(last.pid());
  office.submit(kFirst);
  const int status = last.await_end();
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  office.copier.let_go(last.pid());  // as the kernel does
  office.submit(kFirst + 1);
  office.await_told(kFirst + 1);
  CHECK(office.told(kFirst) == std::vector{false});
  CHECK(office.told(0).empty());
}
