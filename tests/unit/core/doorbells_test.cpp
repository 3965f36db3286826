// Whose doorbells a worker looks at, and when: of many applications.
#include "core/doorbells.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "kit/catch.hpp"
#include "sim/world.hpp"

namespace {

using namespace rnic;
using core::Doorbells;

// Applications without a queue pair: a ring that was seen is taken back, and means nothing.
struct World {
  static constexpr std::size_t kContexts = 2 * Doorbells::kQuietLooks + 2;

  explicit World(std::size_t contexts = kContexts) {
    for (std::uint32_t i = 0; i < contexts; ++i) {
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

TEST_CASE("however long turns are, a first ring is seen within a round of the looks", "[doorbells]") {
  World w;
  const std::size_t last = World::kContexts - 1;
  w.ring(last);
  w.turn(Doorbells::kQuietRound);
  CHECK_FALSE(w.rings(last));
  // And no more of them than that: half of a round is half of them, where that is more than there are in each turn.
  World half;
  for (std::size_t i = 0; i < World::kContexts; ++i) half.ring(i);
  half.turn(Duration{Doorbells::kQuietRound.ns / 2 + Doorbells::kQuietRound.ns / 20});
  std::size_t seen = 0;
  for (std::size_t i = 0; i < World::kContexts; ++i) seen += half.sees_sleep(i) ? 0 : 1;
  CHECK(seen > Doorbells::kQuietLooks);
  CHECK(seen < World::kContexts);
}

TEST_CASE("the more applications are active, the sooner a silent one is so no longer", "[doorbells]") {
  World w;
  for (std::size_t i = 0; i < World::kContexts; ++i) w.ring(i);
  w.turn(Doorbells::kQuietRound);
  const auto active = [&] {
    std::size_t count = 0;
    for (std::size_t i = 0; i < World::kContexts; ++i) count += w.sees_sleep(i) ? 0 : 1;
    return count;
  };
  REQUIRE(active() == World::kContexts);
  while (w.doorbells.any_waits()) w.turn();
  w.turn(Duration{Doorbells::kActive.ns / 2 - 1'000'000});
  CHECK(active() == World::kContexts);
  w.turn(milliseconds(1));
  CHECK(active() == 0);
}

TEST_CASE("where more ring than a turn has room for, all are answered one after the other", "[doorbells]") {
  constexpr std::size_t kMany = Doorbells::kActiveMax + 100;
  World w(kMany);
  for (std::size_t i = 0; i < kMany; ++i) w.ring(i);
  w.turn(Doorbells::kQuietRound);
  std::size_t answered = 0, active = 0;
  for (std::size_t i = 0; i < kMany; ++i) {
    answered += w.rings(i) ? 0 : 1;
    active += w.sees_sleep(i) ? 0 : 1;
  }
  CHECK(answered >= kMany / 2);
  CHECK(answered < kMany);
  CHECK(active == Doorbells::kActiveMax);
  // Whoever has been answered rings again at once, and is not before those that wait.
  for (std::size_t i = 0; i < kMany; ++i)
    if (!w.rings(i)) w.ring(i);
  w.turn();
  for (std::size_t i = answered; i < kMany; ++i) CHECK_FALSE(w.rings(i));  // they were looked at in that order
  // One that goes while it waits is nobody any more.
  for (std::size_t i = 0; i < kMany; ++i) w.ring(i);
  w.turn(Doorbells::kQuietRound);
  while (w.memories.size() > 10) {
    w.doorbells.remove(*w.memories.back());
    w.memories.pop_back();
  }
  for (int turn = 0; turn < 3; ++turn) w.turn();
  CHECK_FALSE(w.doorbells.any_waits());
}

TEST_CASE("who has rung much is answered in parts, and waits in line for each of them", "[doorbells]") {
  constexpr std::size_t kMany = Doorbells::kActiveMax + 4;
  constexpr std::uint32_t kBells = 150;
  World w(kMany);
  const std::size_t loud = kMany - 1;
  w.doorbells.unbind(*w.memories[loud], kBells);  // bells that mean nothing, but are taken back one by one
  rnic_doorbells& bells = w.memories[loud]->doorbells(0);
  for (std::uint32_t i = 0; i < kBells; ++i) bells.words[i / 64] |= std::uint64_t{1} << (i % 64);
  bells.summary[0] = 7;
  for (std::size_t i = 0; i < kMany; ++i) w.ring(i);
  w.turn(Doorbells::kQuietRound);
  // All that are active have been answered, and it is not one of them.
  CHECK(w.rings(loud));
  CHECK(w.sees_sleep(loud));
  std::size_t turns = 0;
  for (; w.rings(loud) && turns < 100; ++turns) w.turn();
  CHECK(turns >= 2);
  CHECK(turns <= 4);
}

TEST_CASE("an active application that waits for its answer stays active, however long it waits", "[doorbells]") {
  constexpr std::uint32_t kBells = 200;
  World w;
  for (std::size_t i = 0; i < World::kContexts; ++i) w.doorbells.unbind(*w.memories[i], kBells);
  const auto ring_all = [&] {
    for (std::size_t i = 0; i < World::kContexts; ++i) {
      rnic_doorbells& bells = w.memories[i]->doorbells(0);
      for (std::uint32_t bell = 0; bell < kBells; ++bell) bells.words[bell / 64] |= std::uint64_t{1} << (bell % 64);
      bells.summary[0] = 15;
      w.ring(i);
    }
  };
  ring_all();
  w.turn(Doorbells::kQuietRound);
  const std::size_t last = World::kContexts - 1;
  REQUIRE(w.rings(last));
  CHECK_FALSE(w.sees_sleep(last));
  w.turn(Doorbells::kActive + nanoseconds(1));
  REQUIRE(w.rings(last));
  CHECK_FALSE(w.sees_sleep(last));
}

TEST_CASE("from where an application rings is heard behind a sleep alone: what it said before is of another time",
          "[doorbells]") {
  World w;
  const auto says = [&](std::uint32_t from) { w.memories[0]->doorbells(0).rung_from = from; };
  const auto said = [&] { return w.memories[0]->doorbells(0).rung_from; };
  w.ring(0);
  says(3);
  w.turn();
  CHECK_FALSE(w.rings(0));
  CHECK(said() == 3);
  w.doorbells.set_asleep(true);
  CHECK(said() == 0);
  w.ring(0);
  says(4);
  w.doorbells.set_asleep(false);
  w.turn();
  CHECK(said() == 0);
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

// A shared receive queue of two workers' queue pairs, whose doorbell rings at the first.
struct Shared {
  Shared() {
    for (Doorbells* each : {&first, &second}) each->add(*memory, SpaceId{1});
    first.bind_shared(*memory, kBell, queue);
    first.bind_shared_receive(*memory, kBell, world.a.device, *pair.a->qp);
    second.bind_shared_receive(*memory, kBell, world.b.device, *pair.b->qp);
    for (const unsigned worker : {1u, 0u, 1u}) first.relay_shared(*memory, kBell, worker);
    world.run_for(milliseconds(10));
    REQUIRE((world.a.device.idle() && world.b.device.idle()));
  }
  void ring() { memory->ring(0, kBell); }
  static void answer(Doorbells& at) {
    core::OwnCore core{-1, false};
    (void)at.answer(core, Instant{0});
  }
  bool is_woken(unsigned worker) {
    std::uint64_t times = 0;
    pollfd asked{.fd = wakes.fd(worker), .events = POLLIN, .revents = 0};
    return poll(&asked, 1, 0) == 1 && read(wakes.fd(worker), &times, sizeof times) == sizeof times;
  }
  std::uint32_t watched() const { return reinterpret_cast<const rnic_ring_control*>(area.data())->watched; }
  static qp::Config config() {
    qp::Config config;
    config.access = tpt::Rights::none;
    return config;
  }

  static constexpr std::uint32_t kBell = 70;
  sim::World world{{}};
  sim::Connected pair = sim::connect(world, config(), config());
  alignas(64) std::array<std::byte, sizeof(rnic_ring_control) + 8 * 64> area{};
  shm::SharedReceiveQueue queue{area, 8, 64, 2, true};
  std::unique_ptr<shm::ContextMemory> memory = std::move(*shm::ContextMemory::create(2, 1));
  core::Wakes wakes{2};
  Doorbells first{0, &wakes}, second{1, &wakes};
};

TEST_CASE("a ring for a shared queue reaches the queue pairs of another worker, by the first one",
          "[doorbells][shards]") {
  Shared t;
  t.ring();
  Shared::answer(t.second);
  CHECK(t.world.b.device.idle());  // not its bell
  CHECK(t.watched() == 0);
  Shared::answer(t.first);
  CHECK(t.watched() == 1);
  CHECK_FALSE(t.world.a.device.idle());
  CHECK(t.world.b.device.idle());
  CHECK(t.second.any_waits());
  Shared::answer(t.second);
  CHECK_FALSE(t.world.b.device.idle());
  CHECK_FALSE(t.first.any_waits());
  CHECK_FALSE(t.second.any_waits());
}

TEST_CASE("a worker that sleeps is woken for what rang at the first, and one that looks by itself is not",
          "[doorbells][shards]") {
  Shared t;
  t.ring();
  Shared::answer(t.first);
  Shared::answer(t.second);  // from now on it looks in each turn
  (void)t.is_woken(1);
  t.ring();
  Shared::answer(t.first);
  CHECK_FALSE(t.is_woken(1));
  Shared::answer(t.second);
  t.second.set_asleep(true);
  CHECK_FALSE(t.second.any_waits());
  t.ring();
  Shared::answer(t.first);
  CHECK(t.is_woken(1));
  CHECK(t.second.any_waits());
}

TEST_CASE("a shared queue's bell that is unbound is told to nobody, and one without takers is watched all the same",
          "[doorbells][shards]") {
  Shared t;
  SECTION("at the first") {
    t.ring();
    Shared::answer(t.first);
    Shared::answer(t.second);
    REQUIRE(t.watched() == 1);
    t.first.unbind(*t.memory, Shared::kBell);
    CHECK(t.watched() == 0);
    t.world.run_for(milliseconds(10));
    t.ring();
    Shared::answer(t.first);
    CHECK(t.watched() == 0);
    CHECK_FALSE(t.second.any_waits());
  }
  SECTION("both queue pairs") {
    t.first.unbind_shared_receive(*t.memory, Shared::kBell, *t.pair.a->qp);
    t.second.unbind_shared_receive(*t.memory, Shared::kBell, *t.pair.b->qp);
    t.ring();
    Shared::answer(t.first);
    Shared::answer(t.second);
    CHECK(t.watched() == 1);
    CHECK_FALSE(t.first.any_waits());
    CHECK_FALSE(t.second.any_waits());
  }
  CHECK(t.world.a.device.idle());
  CHECK(t.world.b.device.idle());
}
