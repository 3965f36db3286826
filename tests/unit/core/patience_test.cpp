#include "core/patience.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using core::Patience;
using core::SourceHabit;

namespace {

constexpr Instant kStart{1'000'000'000};

// A sleep that work ended soon: what comes next is worth waiting for.
void work_and_short_sleep(Patience& patience, SourceHabit& source, Instant at) {
  patience.on_slept(Patience::kShortSleep - nanoseconds(1));
  patience.on_work(at, &source);
}

// Waits to the end of the patience, and sleeps briefly.
void wait_in_vain(Patience& patience, SourceHabit& source, Instant at) {
  work_and_short_sleep(patience, source, at);
  REQUIRE(patience.waits(at));
  REQUIRE_FALSE(patience.waits(at + Patience::kAwaitNext));
}

}  // namespace

TEST_CASE("A worker sleeps at once until a sleep was short") {
  Patience patience;
  SourceHabit source;
  patience.on_work(kStart, &source);
  CHECK_FALSE(patience.waits(kStart));
  patience.on_slept(Patience::kShortSleep);
  patience.on_work(kStart, &source);
  CHECK_FALSE(patience.waits(kStart));
  patience.on_slept(Patience::kShortSleep - nanoseconds(1));
  patience.on_work(kStart, &source);
  CHECK(patience.waits(kStart));
}

TEST_CASE("A worker waits awake for the next work so long and no longer") {
  Patience patience;
  SourceHabit source;
  work_and_short_sleep(patience, source, kStart);
  CHECK(patience.waits(kStart + Patience::kAwaitNext - nanoseconds(1)));
  CHECK_FALSE(patience.waits(kStart + Patience::kAwaitNext));
}

TEST_CASE("A source that was awaited in vain is not waited for, for a while") {
  Patience patience;
  SourceHabit source;
  for (unsigned i = 0; i < Patience::kVainWaitsMax; ++i) wait_in_vain(patience, source, kStart);
  const Instant since = kStart + Patience::kAwaitNext;
  work_and_short_sleep(patience, source, since + Patience::kVainPause - nanoseconds(1));
  CHECK_FALSE(patience.waits(since + Patience::kVainPause - nanoseconds(1)));
  work_and_short_sleep(patience, source, since + Patience::kVainPause);
  CHECK(patience.waits(since + Patience::kVainPause));
}

TEST_CASE("A wait that was rewarded wipes out those in vain") {
  Patience patience;
  SourceHabit source;
  for (unsigned i = 0; i + 1 < Patience::kVainWaitsMax; ++i) wait_in_vain(patience, source, kStart);
  work_and_short_sleep(patience, source, kStart);
  REQUIRE(patience.waits(kStart));
  patience.on_work(kStart + nanoseconds(500), &source);
  wait_in_vain(patience, source, kStart);
  work_and_short_sleep(patience, source, kStart);
  CHECK(patience.waits(kStart));
}

TEST_CASE("What is learned of one source says nothing of another") {
  Patience patience;
  SourceHabit here, there;
  for (unsigned i = 0; i < Patience::kVainWaitsMax; ++i) wait_in_vain(patience, here, kStart);
  work_and_short_sleep(patience, here, kStart + Patience::kAwaitNext);
  CHECK_FALSE(patience.waits(kStart + Patience::kAwaitNext));
  work_and_short_sleep(patience, there, kStart + Patience::kAwaitNext);
  CHECK(patience.waits(kStart + Patience::kAwaitNext));
}

TEST_CASE("A source that went away is not remembered") {
  Patience patience;
  SourceHabit source;
  work_and_short_sleep(patience, source, kStart);
  patience.forget(source);
  CHECK_FALSE(patience.waits(kStart));
  CHECK(source.vain_waits == 0);
}
