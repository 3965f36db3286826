// Who acts in a sleeping worker's place, and who does not. Two threads, so it is worth a build with -fsanitize=thread
// (docs/testing.md).
#include "core/vacant_place.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "kit/catch.hpp"

using rnic::core::Acted;
using rnic::core::VacantPlace;

namespace {

Acted wholly() { return Acted::wholly; }

// Of a thread of ours: whether it waits in the kernel.
bool is_blocked(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0;
}

}  // namespace

TEST_CASE("nobody acts in the place of a worker that is in", "[vacant]") {
  VacantPlace place;
  bool begun = false;
  const auto act = [&] {
    begun = true;
    return Acted::wholly;
  };
  CHECK(place.act(act) == Acted::not_now);
  place.leave();
  place.enter();
  CHECK(place.act(act) == Acted::not_now);
  CHECK_FALSE(begun);
  place.leave();
  CHECK(place.act(act) == Acted::wholly);
  CHECK(begun);
}

TEST_CASE("while a worker sleeps others act as often as they leave it nothing to do", "[vacant]") {
  VacantPlace place;
  place.leave();
  for (int i = 0; i < 3; ++i) CHECK(place.act(wholly) == Acted::wholly);
  CHECK(place.act([] { return Acted::not_now; }) == Acted::not_now);
  CHECK(place.act(wholly) == Acted::wholly);
}

TEST_CASE("behind who leaves a worker something to do nobody acts until it has been in", "[vacant]") {
  VacantPlace place;
  place.leave();
  CHECK(place.act([] { return Acted::leaves_work; }) == Acted::leaves_work);
  CHECK(place.act(wholly) == Acted::not_now);
  place.enter();
  CHECK(place.act(wholly) == Acted::not_now);
  place.leave();
  CHECK(place.act(wholly) == Acted::wholly);
}

TEST_CASE("a worker that wants in is next, however soon somebody would act again", "[vacant]") {
  for (int round = 0; round < 20; ++round) {
    VacantPlace place;
    place.leave();
    std::atomic<pid_t> thread{0};
    std::thread worker;
    CHECK(place.act([&] {
      worker = std::thread([&] {
        thread = static_cast<pid_t>(syscall(SYS_gettid));
        place.enter();
      });
      while (thread == 0 || !is_blocked(thread)) std::this_thread::yield();
      return Acted::wholly;
    }) == Acted::wholly);
    CHECK(place.act(wholly) == Acted::not_now);
    worker.join();
  }
}

// The count is nobody's but the place's: no atomic, no lock.
TEST_CASE("what is the worker's is one thread's at a time", "[vacant]") {
  constexpr unsigned kEach = 20'000;
  VacantPlace place;
  unsigned count = 0;
  std::atomic<bool> over{false};
  std::thread worker([&] {
    for (unsigned i = 0; i < kEach; ++i) {
      ++count;
      place.leave();
      if (i % 16 == 0) std::this_thread::yield();
      place.enter();
    }
    place.leave();
    over = true;
  });
  unsigned acts = 0, after = 0;
  while (after < 3) {
    const bool was_over = over;
    const Acted acted = place.act([&] {
      ++count;
      return Acted::wholly;
    });
    if (acted == Acted::wholly) ++acts;
    if (was_over) ++after;
  }
  worker.join();
  CHECK(acts >= 3);
  CHECK(count == kEach + acts);
}
