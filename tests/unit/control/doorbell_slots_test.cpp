// The doorbells of a context: who has which, and who has it next.
#include "control/doorbell_slots.hpp"

#include <utility>
#include <vector>

#include "kit/catch.hpp"

namespace {

using rnic::control::DoorbellSlots;

TEST_CASE("a doorbell has one owner, and is given back when he ends", "[control][doorbells]") {
  DoorbellSlots slots;
  std::vector<DoorbellSlots::Slot> taken;
  for (std::uint32_t i = 0; i < RNIC_DOORBELLS_MAX; ++i) {
    taken.push_back(slots.take());
    REQUIRE(taken.back());
    REQUIRE(taken.back().number() == i);
  }
  CHECK_FALSE(slots.take());
  taken[7] = {};
  const auto again = slots.take();
  REQUIRE(again);
  CHECK(again.number() == 7);
  CHECK_FALSE(slots.take());
}

TEST_CASE("a doorbell that was used is used again as late as may be", "[control][doorbells]") {
  DoorbellSlots slots;
  auto first = slots.take();
  auto second = slots.take();
  first = {};
  second = {};
  std::vector<DoorbellSlots::Slot> taken;
  for (std::uint32_t i = 2; i < RNIC_DOORBELLS_MAX; ++i) taken.push_back(slots.take());
  CHECK(taken.front().number() == 2);
  taken.push_back(slots.take());
  CHECK(taken.back().number() == 0);
  taken.push_back(slots.take());
  CHECK(taken.back().number() == 1);
}

TEST_CASE("a doorbell that has moved is given back once", "[control][doorbells]") {
  DoorbellSlots slots;
  {
    auto first = slots.take();
    auto moved = std::move(first);
    CHECK(moved.number() == 0);
    CHECK(moved);
    CHECK_FALSE(first);
  }
  std::vector<DoorbellSlots::Slot> taken;
  for (std::uint32_t i = 0; i < RNIC_DOORBELLS_MAX; ++i) taken.push_back(slots.take());
  CHECK(taken.back().number() == 0);
  CHECK_FALSE(slots.take());
}

}  // namespace
