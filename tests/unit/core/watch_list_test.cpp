// Send queues that a worker looks at in place of their doorbells.
#include "core/watch_list.hpp"

#include <array>
#include <map>
#include <vector>

#include "kit/catch.hpp"

namespace {

using namespace rnic;
using core::WatchList;

// Queues of one entry, as an application sees them; a bell is 100 and the queue's number.
struct World {
  struct alignas(64) Area {
    rnic_ring_control control{};
    std::array<std::byte, 64> slot{};
  };
  static constexpr std::size_t kQueues = WatchList::kMax + 1;

  World() {
    for (Area& area : areas)
      queues.emplace_back(MutableBytes(reinterpret_cast<std::byte*>(&area), sizeof area), 1, 64, 1);
  }
  bool add(std::uint32_t i) { return list.add(queues[i], 100 + i); }
  bool watched(std::uint32_t i) const { return areas[i].control.watched != 0; }
  void post(std::uint32_t i, std::uint32_t count = 1) { areas[i].control.produced += count; }
  // Bells that were told, with their posts.
  using Told = std::map<std::uint32_t, std::uint32_t>;
  Told look() {
    Told told;
    list.look([&](std::uint32_t bell, std::uint32_t posts) { CHECK(told.emplace(bell, posts).second); });
    return told;
  }
  Told clear() {
    Told told;
    list.clear([&](std::uint32_t bell, std::uint32_t posts) { CHECK(told.emplace(bell, posts).second); });
    return told;
  }

  std::array<Area, kQueues> areas{};
  std::vector<shm::SendQueue> queues;
  WatchList list;
};

TEST_CASE("Of a queue that is watched each post is found once, and the application sees that it need not ring",
          "[core][watch]") {
  World world;
  world.post(0);  // for which it has rung
  REQUIRE(world.add(0));
  CHECK(world.watched(0));
  CHECK_FALSE(world.watched(1));
  CHECK(world.look().empty());
  world.post(0, 3);
  CHECK(world.look() == World::Told{{100, 3}});
  CHECK(world.look().empty());
}

TEST_CASE("A queue that is watched and rings all the same is watched once", "[core][watch]") {
  World world;
  REQUIRE(world.add(0));
  CHECK_FALSE(world.add(0));
  CHECK(world.list.size() == 1);
}

TEST_CASE("Where all places are taken a queue goes on ringing", "[core][watch]") {
  World world;
  for (std::uint32_t i = 0; i < WatchList::kMax; ++i) REQUIRE(world.add(i));
  CHECK_FALSE(world.add(WatchList::kMax));
  CHECK_FALSE(world.watched(WatchList::kMax));
  world.list.remove(103);
  CHECK(world.add(WatchList::kMax));
  world.post(WatchList::kMax);
  world.post(3);
  CHECK(world.look() == World::Told{{100 + WatchList::kMax, 1}});
}

TEST_CASE("A queue that is not used gives its place back and rings again", "[core][watch]") {
  World world;
  REQUIRE(world.add(0));
  REQUIRE(world.add(1));
  for (std::uint32_t turn = 0; turn < WatchList::kTurnsInVain; ++turn) {
    world.post(1);
    CHECK(world.look() == World::Told{{101, 1}});
  }
  CHECK(world.watched(0));
  CHECK(world.look().empty());
  CHECK_FALSE(world.watched(0));
  CHECK(world.watched(1));
  CHECK(world.list.size() == 1);
  CHECK(world.add(0));
}

TEST_CASE("Before a sleep all ring again, and what was posted until then is not slept through", "[core][watch]") {
  World world;
  REQUIRE(world.add(0));
  REQUIRE(world.add(1));
  SECTION("nothing was posted") {
    world.list.unwatch();
    CHECK_FALSE(world.list.any_posted());
    CHECK(world.clear().empty());
  }
  SECTION("just before") {
    world.post(1, 2);
    world.list.unwatch();
    CHECK(world.list.any_posted());
    CHECK(world.clear() == World::Told{{101, 2}});
  }
  CHECK_FALSE(world.watched(0));
  CHECK_FALSE(world.watched(1));
  CHECK(world.list.size() == 0);
  CHECK(world.add(0));
  CHECK(world.watched(0));
}

}  // namespace
