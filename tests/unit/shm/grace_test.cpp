// When every worker has passed between two turns.
#include "shm/grace.hpp"

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/chance.hpp"
#include "kit/catch.hpp"

namespace {

using namespace rnic;
using shm::Grace;

constexpr SpaceId kSpace{5}, kOther{6};

TEST_CASE("what was made invalid is over when each worker has passed since", "[shm][shards]") {
  Grace grace(3);
  for (unsigned worker = 0; worker < 3; ++worker) grace.pass(worker, {});
  const std::uint64_t mark = grace.begin();
  CHECK_FALSE(grace.passed(mark, kSpace));
  grace.pass(0, {});
  grace.pass(2, {});
  CHECK_FALSE(grace.passed(mark, kSpace));
  grace.pass(1, {});
  CHECK(grace.passed(mark, kSpace));
  CHECK(grace.passed(mark, kSpace));
  // The next is another matter, and ends it for the one before as well.
  const std::uint64_t next = grace.begin();
  CHECK(grace.passed(mark, kSpace));
  CHECK_FALSE(grace.passed(next, kSpace));
}

TEST_CASE("a worker that rests is not waited for, and one that has woken is", "[shm][shards]") {
  Grace grace(2);
  CHECK(grace.passed(grace.begin(), kSpace));  // none has begun
  grace.pass(0, {});
  grace.wake(1);
  const std::uint64_t mark = grace.begin();
  grace.pass(0, {});
  CHECK_FALSE(grace.passed(mark, kSpace));
  grace.rest(1);
  CHECK(grace.passed(mark, kSpace));
  // It has seen the table as it is now.
  grace.wake(1);
  CHECK(grace.passed(mark, kSpace));
  const std::uint64_t next = grace.begin();
  grace.pass(0, {});
  CHECK_FALSE(grace.passed(next, kSpace));
}

TEST_CASE("copies that wait for a page are waited for, in their space alone", "[shm][shards]") {
  Grace grace(2);
  grace.pass(0, {});
  const std::uint64_t mark = grace.begin();
  grace.pass(0, {});
  grace.pass(1, std::array{kSpace});
  CHECK_FALSE(grace.passed(mark, kSpace));
  CHECK(grace.passed(mark, kOther));
  grace.rest(1);
  CHECK_FALSE(grace.passed(mark, kSpace));
  grace.wake(1);
  grace.pass(1, {});
  CHECK(grace.passed(mark, kSpace));
}

TEST_CASE("a copy that waits is waited for by its own space alone, as often as another begins to wait",
          "[shm][shards]") {
  Grace grace(2);
  const SpaceId alike{kSpace.value + 64}, alike_too{kSpace.value + 128};
  const std::uint64_t mark = grace.begin();
  grace.pass(0, {});
  for (const SpaceId each : {alike, alike_too, alike}) {
    grace.pass(1, std::array{each});
    CHECK(grace.passed(mark, kSpace));
    CHECK_FALSE(grace.passed(mark, each));
  }
  // All that a worker can tell of; a place that is free again is another's.
  std::vector<SpaceId> all;
  for (std::uint32_t i = 0; i < Grace::kStuckMax; ++i) all.push_back(SpaceId{1000 + i});
  grace.pass(1, all);
  for (const SpaceId each : all) CHECK_FALSE(grace.passed(mark, each));
  CHECK(grace.passed(mark, alike));
  all[7] = kSpace;
  grace.pass(1, all);
  CHECK_FALSE(grace.passed(mark, kSpace));
  CHECK(grace.passed(mark, SpaceId{1007}));
  // And more: nobody knows which.
  all.push_back(alike);
  grace.pass(1, all);
  CHECK_FALSE(grace.passed(mark, alike_too));
  grace.pass(1, {});
  for (const SpaceId each : {kSpace, alike, alike_too, SpaceId{1000}}) CHECK(grace.passed(mark, each));
}

// Regions that one thread makes invalid and, when they are over, gives to somebody else; the other thread looks into
// the table, and copies by what it has found there until its turn ends.
TEST_CASE("after the grace no worker copies by what it had found before, in turns or behind a rest",
          "[shm][shards][threads]") {
  constexpr std::size_t kRegions = 20'000;
  Grace grace(2);
  struct Region {
    std::atomic<bool> valid{true}, over{false};
  };
  std::vector<Region> regions(kRegions);
  alignas(64) std::atomic<std::size_t> current{0};
  std::atomic<bool> begun{false};
  std::uint64_t wrong = 0, looks = 0;
  std::thread worker([&] {
    Chance chance(7);
    grace.wake(1);
    begun.store(true, std::memory_order_release);
    while (current.load(std::memory_order_acquire) < kRegions) {
      if (chance.below(2) == 0) {
        grace.rest(1);
        grace.wake(1);
      } else {
        grace.pass(1, {});
      }
      const std::size_t at = current.load(std::memory_order_relaxed);
      if (at == kRegions) break;
      Region& region = regions[at];
      if (!region.valid.load(std::memory_order_relaxed)) continue;
      ++looks;
      for (int octet = 0; octet < 20; ++octet) wrong += region.over.load(std::memory_order_relaxed);
    }
    grace.rest(1);
  });
  while (!begun.load(std::memory_order_acquire)) sched_yield();
  const auto begun_at = std::chrono::steady_clock::now();
  for (std::size_t at = 0; at < kRegions; ++at) {
    // A machine that has no time for us is not waited for; nothing else depends on it.
    if (std::chrono::steady_clock::now() - begun_at > std::chrono::seconds(2)) break;
    Region& region = regions[at];
    region.valid.store(false, std::memory_order_relaxed);
    const std::uint64_t mark = grace.begin();
    for (int turn = 0; !grace.passed(mark, kSpace); ++turn) {
      grace.pass(0, {});
      if (turn % 64 == 63) sched_yield();
    }
    region.over.store(true, std::memory_order_relaxed);
    current.store(at + 1, std::memory_order_release);
  }
  current.store(kRegions, std::memory_order_release);
  worker.join();
  CHECK(wrong == 0);
  CHECK(looks > 0);
}

}  // namespace
