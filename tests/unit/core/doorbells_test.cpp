// Whose doorbells a worker looks at, and when: of many applications.
#include "core/doorbells.hpp"

#include <sys/mman.h>

#include "kit/catch.hpp"

namespace {

using namespace rnic;
using core::Doorbells;

// Applications without a queue pair: a ring that was seen is taken back, and means nothing.
struct World {
  static constexpr std::size_t kContexts = 2 * Doorbells::kQuietLooks + 2;

  World() {
    for (std::uint32_t i = 0; i < kContexts; ++i) {
      auto made = shm::ContextMemory::create(1, 1);
      REQUIRE(made);
      memories.push_back(std::move(*made));
      doorbells.add(*memories.back(), SpaceId{i});
    }
  }
  void ring(std::size_t i) { memories[i]->doorbells(0).any = 1; }
  bool rings(std::size_t i) const { return memories[i]->doorbells(0).any != 0; }
  void turn(Duration later = {}) { (void)doorbells.answer(core, now = now + later); }
  // Turns until it is answered.
  std::size_t turns_for(std::size_t i) {
    ring(i);
    std::size_t turns = 0;
    while (rings(i) && turns < 100) turn(), ++turns;
    return turns;
  }

  bool sees_sleep(std::size_t i) const {
    void* const page = mmap(nullptr, sizeof(rnic_status_page), PROT_READ, MAP_SHARED, memories[i]->status_fd(), 0);
    REQUIRE(page != MAP_FAILED);
    const bool asleep = static_cast<rnic_status_page*>(page)->worker[0].asleep != 0;
    munmap(page, sizeof(rnic_status_page));
    return asleep;
  }

  core::OwnCore core{-1, false};
  Instant now{0};
  std::vector<std::unique_ptr<shm::ContextMemory>> memories;
  Doorbells doorbells{0};
};

}  // namespace

TEST_CASE("an application that has not rung lately is looked at in its turn, and from then on in each", "[doorbells]") {
  World w;
  const std::size_t last = World::kContexts - 1;
  CHECK(w.turns_for(last) == 3);  // 64, 64, and the last two
  for (int again = 0; again < 10; ++again) CHECK(w.turns_for(last) == 1);
  // For so long.
  w.turn(Doorbells::kActive);
  CHECK(w.turns_for(last) == 1);
  // Then it is one of many again, whose turn it is in one of two or three.
  std::size_t longest = 0;
  for (std::uint32_t more = 0; more < 3; ++more) {
    w.turn(Doorbells::kActive + nanoseconds(1));
    for (std::uint32_t turn = 0; turn < more; ++turn) w.turn();
    longest = std::max(longest, w.turns_for(last));
  }
  CHECK(longest > 1);
  CHECK(longest <= 3);
}

TEST_CASE("of few applications each is looked at in each turn", "[doorbells]") {
  World w;
  while (w.memories.size() > Doorbells::kQuietLooks) {
    w.doorbells.remove(*w.memories.back());
    w.memories.pop_back();
  }
  for (std::size_t i = 0; i < w.memories.size(); ++i) CHECK(w.turns_for(i) == 1);
}

TEST_CASE("whoever rang while the worker slept is answered in the next turn, and seen before the sleep",
          "[doorbells]") {
  World w;
  const std::size_t last = World::kContexts - 1;
  CHECK_FALSE(w.doorbells.any_waits());
  w.doorbells.set_asleep(true);
  w.ring(last);
  CHECK(w.doorbells.any_waits());
  w.doorbells.set_asleep(false);
  w.turn();
  CHECK_FALSE(w.rings(last));
  CHECK_FALSE(w.doorbells.any_waits());
}

TEST_CASE("an active application wakes a worker that sleeps, the others always ring as if it slept", "[doorbells]") {
  World w;
  CHECK(w.sees_sleep(0));
  CHECK(w.turns_for(0) == 1);
  CHECK_FALSE(w.sees_sleep(0));
  CHECK(w.sees_sleep(1));
  w.doorbells.set_asleep(true);
  CHECK(w.sees_sleep(0));
  w.ring(1);
  w.doorbells.set_asleep(false);
  CHECK_FALSE(w.sees_sleep(0));
  CHECK_FALSE(w.sees_sleep(1));
  CHECK(w.sees_sleep(2));
  w.turn(Doorbells::kActive);
  CHECK_FALSE(w.sees_sleep(0));
  w.turn(nanoseconds(1));
  CHECK(w.sees_sleep(0));
  CHECK_FALSE(w.sees_sleep(1));  // it rang in the turn before
}

TEST_CASE("an application that goes while it is active is not looked at any more", "[doorbells]") {
  World w;
  CHECK(w.turns_for(0) == 1);
  REQUIRE(w.doorbells.habit_of(*w.memories[0]) != nullptr);
  w.doorbells.remove(*w.memories[0]);
  CHECK(w.doorbells.habit_of(*w.memories[0]) == nullptr);
  w.ring(0);
  for (int turn = 0; turn < 4; ++turn) w.turn();
  CHECK(w.rings(0));
  CHECK(w.turns_for(World::kContexts - 1) <= 3);
}
