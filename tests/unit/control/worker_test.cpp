// A worker and its crew: a copy that waits for a page holds its own application and nobody else.
#include "core/worker.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/held_copier.hpp"
#include "kit/process.hpp"
#include "kit/tpt_move_owner.hpp"
#include "shm/context_memory.hpp"

namespace {

using namespace rnic;
using test::ForkedApplication;

struct Office {
  // Each of a user's own; or all but the last of one.
  enum class Users : std::uint8_t { each, one_but_for_the_last };
  explicit Office(unsigned applications, Users users = Users::each) : owners(applications) {
    core::WorkerOptions options;
    options.realtime = false;
    options.copier = &copier;
    worker = std::make_unique<core::Worker>(options);
    for (unsigned i = 0; i < applications; ++i) {
      processes.emplace_back(SpaceId{i});
      shm::SpaceReach reach = processes[i].with_pidfd();
      reach.user = users == Users::each || i + 1 == applications ? i : 0;
      worker->mover().add_space(SpaceId{i}, reach);
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
  // From now on it sleeps, as long as nobody wakes it: a call ran here.
  void await_sleep() {
    for (bool here = false; !here;)
      worker->call([&, me = std::this_thread::get_id()](Instant) { here = std::this_thread::get_id() == me; });
  }
  std::uint64_t wakes_by_timer() {
    std::uint64_t count = 0;
    worker->call([&](Instant) { count = worker->counters().wakes_by_timer; });
    return count;
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

// What stands behind `name` at the beginning of a line.
std::uint64_t number_in(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name)) return std::stoull(line.substr(name.size()));
  return 0;
}

using Told = std::vector<bool>;

std::ptrdiff_t count_of(const std::vector<Kind>& news, Kind kind) { return std::count(news.begin(), news.end(), kind); }

bool rings(int event_fd) {
  pollfd entry{event_fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a worker that stays awake leaves its core now and then to whom it goes before", "[worker]") {
  core::WorkerOptions options;
  options.sleep_delay = seconds(100'000'000);
  core::Worker worker(options);
  worker.start();
  int policy = 0;
  clockid_t clock{};
  std::string status;
  worker.call([&](Instant) {
    policy = sched_getscheduler(0);
    pthread_getcpuclockid(pthread_self(), &clock);
    status = "/proc/self/task/" + std::to_string(gettid()) + "/status";
  });
  if (policy != SCHED_FIFO) {
    std::printf("SKIPPED a worker that stays awake: SCHED_FIFO is not allowed here\n");
    return;
  }
  const auto left_by_itself = [&] { return number_in(status, "voluntary_ctxt_switches:"); };
  const auto worked = [&] {
    timespec time{};
    clock_gettime(clock, &time);
    return seconds(time.tv_sec) + Duration{time.tv_nsec};
  };
  const std::uint64_t before = left_by_itself();
  for (const Duration until = worked() + milliseconds(100); worked() < until;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(left_by_itself() - before >= 10);  // once in a millisecond
}

TEST_CASE("a worker that polls always sleeps while its core is another's, too", "[worker]") {
  core::WorkerOptions options;
  options.cpu = sched_getcpu();
  options.poll_always = true;
  options.sleep_delay = seconds(100'000'000);
  core::Worker worker(options);
  worker.start();
  std::jthread other([&](const std::stop_token& stop) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<std::size_t>(options.cpu), &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    while (!stop.stop_requested()) {
    }
  });
  const auto sleeps = [&] {
    std::uint64_t count = 0;
    worker.call([&](Instant) { count = worker.counters().sleeps; });
    return count;
  };
  // Each question is work, behind which it looks anew whether time is missing.
  for (int tries = 0; tries < 100 && sleeps() == 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(sleeps() != 0);
}

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

TEST_CASE("control acts in the place of a worker that sleeps, and news of it are told", "[worker]") {
  Office office(0);
  office.worker->call([&](Instant) { office.worker->tell_states(); });
  std::thread::id by;
  do {
    std::this_thread::yield();
    office.worker->call([&](Instant) {
      by = std::this_thread::get_id();
      office.worker->on_qp_state(1, {});
    });
  } while (by != std::this_thread::get_id());
  CHECK(rings(office.worker->event_fd()));
  CHECK(office.news().back() == Kind::qp_state);
  // What it asks of the worker itself is done within.
  bool within = false;
  office.worker->call([&](Instant) { office.worker->call([&](Instant) { within = true; }); });
  CHECK(within);
}

TEST_CASE("beside other workers a worker does itself what control asks for", "[worker]") {
  core::WorkerOptions options;
  options.realtime = false;
  options.acted_for = false;
  core::Worker worker(options);
  worker.start();
  for (int i = 0; i < 200; ++i) {
    std::thread::id by;
    worker.call([&](Instant) { by = std::this_thread::get_id(); });
    CHECK(by != std::this_thread::get_id());
    std::this_thread::yield();
  }
}

TEST_CASE("a worker is woken for what a call in its place leaves to do", "[worker][vacant place]") {
  // Its own timer would wake it, too: half a second later, or by chance sooner.
  constexpr unsigned kTimes = 8;
  unsigned by_timer = 0;
  Office office(1);
  for (unsigned i = 1; i <= kTimes; ++i) {
    office.octets[0] = std::byte{static_cast<unsigned char>(i + 1)};
    office.await_sleep();
    const std::uint64_t before = office.wakes_by_timer();
    office.submit(0);
    while (office.processes[0].octet(0) != office.octets[0]) std::this_thread::yield();
    by_timer += office.wakes_by_timer() != before ? 1 : 0;
  }
  CHECK(by_timer < kTimes);
}

TEST_CASE("what was rung before a call is answered before it, though the worker sleeps", "[worker][vacant place]") {
  const auto memory = shm::ContextMemory::create(1, 1);
  REQUIRE(memory);
  Office office(1);
  int error = -1;
  office.worker->call([&](Instant) { error = office.worker->add_context(**memory, SpaceId{0}); });
  REQUIRE(error == 0);
  office.await_sleep();
  rnic_doorbells& bells = (*memory)->doorbells(0);
  // As from a thread that has not come to its look at `asleep` yet.
  std::atomic_ref(bells.any).store(1);
  std::uint32_t seen = 1;
  office.worker->call([&](Instant) { seen = std::atomic_ref(bells.any).load(); });
  CHECK(seen == 0);
  office.worker->call([&](Instant) { office.worker->remove_context(**memory); });
}

TEST_CASE("whom a sleeping worker is given to serve, it serves", "[worker][vacant place]") {
  const auto memory = shm::ContextMemory::create(1, 1);
  REQUIRE(memory);
  Office office(1);
  office.await_sleep();
  int error = -1;
  office.worker->call([&](Instant) { error = office.worker->add_context(**memory, SpaceId{0}); });
  REQUIRE(error == 0);
  // Asleep, it says so to the new one, too: before that nobody would wake it.
  office.await_sleep();
  void* const mapped = mmap(nullptr, sizeof(rnic_status_page), PROT_READ, MAP_SHARED, (*memory)->status_fd(), 0);
  REQUIRE(mapped != MAP_FAILED);
  std::uint32_t asleep = 0;
  office.worker->call([&](Instant) { asleep = static_cast<const rnic_status_page*>(mapped)->worker[0].asleep; });
  CHECK(asleep == 1);
  munmap(mapped, sizeof(rnic_status_page));
  office.worker->call([&](Instant) { office.worker->remove_context(**memory); });
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

TEST_CASE("a user whose pages do not come leaves a worker, and others their threads", "[worker][stuck]") {
  constexpr unsigned kMost = shm::ApplicationMover::kStuckOfUserMax;
  constexpr unsigned kHeld = core::Crew::kStuckMax + 2;  // more than there are threads
  Office office(kHeld + 1, Office::Users::one_but_for_the_last);
  const unsigned others = kHeld, last = kHeld - 1;
  for (unsigned i = 0; i < kHeld; ++i) office.copier.hold(office.processes[i].pid());
  // All of them in one turn.
  office.worker->call([&](Instant) {
    for (unsigned i = 0; i < kHeld; ++i)
      (void)office.worker->mover().place(office.octets, office.processes[i].at(0, 8), tpt::Part::tail,
                                         {&office.owners[i], 0});
  });
  office.submit(others);
  office.await_told(others);
  CHECK(office.told(others) == std::vector{true});
  for (unsigned i = 0; i < kHeld; ++i) CHECK(office.told(i) == (i < kMost ? Told{} : Told{false}));
  std::uint64_t refused = 0;
  office.worker->call([&](Instant) { refused = office.worker->mover().counters().refused; });
  CHECK(refused == kHeld - kMost);
  CHECK(count_of(office.news(), Kind::copies_refused) == 1);
  office.copier.let_go(office.processes[0].pid());
  office.await_told(0);
  CHECK(office.told(0) == Told{true});
  office.copier.let_go(office.processes[last].pid());
  office.submit(last);
  while (office.told(last).size() == 1) std::this_thread::yield();
  CHECK(office.told(last) == Told{false, true});
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
