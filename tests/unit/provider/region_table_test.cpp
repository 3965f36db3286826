// The table that posting looks into: what is entered is found, by no other index, whatever comes and goes.
#include "region_table.hpp"

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "kit/catch.hpp"

using namespace rnic::provider;

namespace {

// As in a context: zeroed memory.
struct World {
  World() { std::memset(static_cast<void*>(&table), 0, sizeof table); }
  ~World() { table.clear(); }
  RegionTable table;
};

// Spread over 24 bits, no two the same.
std::uint32_t index_of(std::uint32_t i) { return (i * 0x9E3779u + 1) & 0xFFFFFF; }

}  // namespace

TEST_CASE("regions are found by their index, through every doubling, and those that went are not", "[provider]") {
  World world;
  constexpr std::uint32_t kMany = 100'000;
  CHECK(world.table.find(1) == nullptr);
  CHECK(world.table.take(1) == nullptr);
  std::vector<Region*> regions;
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    wrong += world.table.find(index_of(i)) != nullptr;
    regions.push_back(world.table.make(index_of(i)));
    regions.back()->stag = index_of(i) << 8 | 7;
    wrong += world.table.make(index_of(i)) != regions.back();
  }
  for (std::uint32_t i = 0; i < kMany; ++i) wrong += world.table.find(index_of(i)) != regions[i];
  CHECK(wrong == 0);
  for (std::uint32_t i = 0; i < kMany; i += 2) {
    wrong += world.table.take(index_of(i)) != regions[i];
    world.table.forget(regions[i]);
  }
  for (std::uint32_t i = 0; i < kMany; ++i)
    wrong += world.table.find(index_of(i)) != (i % 2 == 0 ? nullptr : regions[i]);
  CHECK(wrong == 0);
  // Their memory serves again.
  const std::set<Region*> known(regions.begin(), regions.end());
  for (std::uint32_t i = 0; i < kMany; i += 2) {
    Region* again = world.table.make(index_of(kMany + i));
    wrong += !known.contains(again) || world.table.find(index_of(kMany + i)) != again;
  }
  CHECK(wrong == 0);
}

TEST_CASE("one that was taken out can be put in again, as it was", "[provider]") {
  World world;
  Region* one = world.table.make(5);
  Region* other = world.table.make(5 + 64);  // in the same list
  one->stag = 5 << 8;
  one->length = 77;
  CHECK(world.table.take(5) == one);
  CHECK(world.table.find(5) == nullptr);
  CHECK(world.table.find(5 + 64) == other);
  world.table.put(one);
  CHECK(world.table.find(5) == one);
  CHECK(one->length == 77);
}

TEST_CASE("a look beside changes finds the region that it looks for, or none", "[provider]") {
  World world;
  Region* mine = world.table.make(3);
  mine->stag = 3 << 8;
  std::atomic<bool> done = false;
  std::atomic<std::size_t> wrong = 0, found = 0;
  std::thread looker([&] {
    while (!done) {
      const Region* region = world.table.find(3);
      if (region == mine)
        ++found;
      else if (region != nullptr)
        ++wrong;
    }
  });
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    Region* region = world.table.make(index_of(i + 10));
    if (i % 3 == 0) {
      world.table.take(region->index);
      world.table.forget(region);
    }
  }
  while (found == 0) std::this_thread::yield();
  done = true;
  looker.join();
  CHECK(wrong == 0);
  CHECK(world.table.find(3) == mine);
}
