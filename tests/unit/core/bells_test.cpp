// The doorbells of one application: which are answered, how many in a turn, and whose turn is next.
#include "core/bells.hpp"

#include <memory>
#include <set>
#include <vector>

#include "kit/catch.hpp"

namespace {

using rnic::core::Bells;

struct World {
  std::unique_ptr<rnic_doorbells> area = std::make_unique<rnic_doorbells>();
  Bells bells;
  std::size_t count = RNIC_DOORBELLS_MAX;

  void ring(std::size_t index) {
    area->words[index / 64] |= std::uint64_t{1} << (index % 64);
    area->summary[index / 64 / 64] |= std::uint64_t{1} << (index / 64 % 64);
    area->any = 1;
  }
  // What a hostile application keeps doing.
  void ring_all() {
    for (std::uint64_t& word : area->words) word = ~std::uint64_t{0};
    for (std::uint64_t& word : area->summary) word = ~std::uint64_t{0};
    area->any = 1;
  }
  std::vector<std::size_t> turn() {
    std::vector<std::size_t> heard;
    int left = Bells::kTurnMax;
    some = bells.answer(*area, count, left, [&](std::size_t index) { heard.push_back(index); });
    return heard;
  }
  bool some = false;
};

TEST_CASE("Bells that were rung are heard once, in order", "[core][bells]") {
  World world;
  for (const std::size_t index : {0u, 63u, 64u, 4095u, 4096u, RNIC_DOORBELLS_MAX - 1}) world.ring(index);
  CHECK(world.turn() == std::vector<std::size_t>{0, 63, 64, 4095, 4096, RNIC_DOORBELLS_MAX - 1});
  CHECK(world.some);
  CHECK_FALSE(Bells::any_rung(*world.area));
  CHECK(world.turn().empty());
  CHECK_FALSE(world.some);
}

TEST_CASE("An application that rings all its bells is heard so often in a turn", "[core][bells]") {
  World world;
  world.ring_all();
  std::set<std::size_t> heard;
  for (int turn = 0; turn < 1000 && heard.size() < RNIC_DOORBELLS_MAX; ++turn) {
    const auto now = world.turn();
    REQUIRE(now.size() <= Bells::kTurnMax + 64u);
    REQUIRE(!now.empty());
    for (const std::size_t index : now) CHECK(heard.insert(index).second);
    if (heard.size() < RNIC_DOORBELLS_MAX) REQUIRE(Bells::any_rung(*world.area));
  }
  CHECK(heard.size() == RNIC_DOORBELLS_MAX);
  CHECK(world.turn().empty());
  CHECK_FALSE(Bells::any_rung(*world.area));
}

TEST_CASE("The first bells, rung all the time, leave turns to the others", "[core][bells]") {
  for (const std::size_t late : {2000u, 5000u, RNIC_DOORBELLS_MAX - 1}) {
    World world;
    world.ring(late);
    bool heard = false;
    for (int turn = 0; turn < 10 && !heard; ++turn) {
      for (std::size_t index = 0; index < 1024; ++index) world.ring(index);
      for (const std::size_t index : world.turn()) heard |= index == late;
    }
    CHECK(heard);
  }
}

TEST_CASE("A bell that rings while others wait for their turn is heard", "[core][bells]") {
  World world;
  world.ring_all();
  for (int turn = 0; turn < 20; ++turn) world.turn();
  world.ring(3);
  std::size_t times = 0;
  for (int turn = 0; turn < 1000 && Bells::any_rung(*world.area); ++turn)
    for (const std::size_t index : world.turn()) times += index == 3;
  CHECK(times == 1);
}

TEST_CASE("Bells that there are not cost nothing", "[core][bells]") {
  World world;
  world.count = 10;
  world.ring_all();
  CHECK(world.turn().size() == 64);  // its word
  CHECK_FALSE(Bells::any_rung(*world.area));
  CHECK(world.area->words[1] == ~std::uint64_t{0});  // not looked at
  CHECK(world.turn().empty());
  // And come to be, later.
  world.count = 200;
  world.ring(100);
  const auto heard = world.turn();
  CHECK(std::count(heard.begin(), heard.end(), 100u) == 1);
}

}  // namespace
