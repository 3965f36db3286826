// Memory of rings that follows what is in them.
#include <memory>

#include "base/ring_slots.hpp"
#include "kit/catch.hpp"

using namespace rnic;

TEST_CASE("ring slots: none at first, twice as many when they are full, and what is in them stays", "[ring]") {
  RingSlots<std::unique_ptr<std::uint32_t>> slots;
  CHECK(slots.size() == 0);
  const std::uint32_t first = 0xFFFFFFFA;  // positions wrap
  for (std::uint32_t count = 0; count < 40; ++count) {
    slots.need(first, first + count, 64);
    slots[first + count] = std::make_unique<std::uint32_t>(count);
    CHECK(slots.size() == (count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : 64));
    for (std::uint32_t i = 0; i <= count; ++i) CHECK(*slots[first + i] == i);
  }
}

TEST_CASE("ring slots: there are never more than are allowed, be these fewer than the first", "[ring]") {
  RingSlots<int> slots;
  slots.need(5, 5, 2);
  CHECK(slots.size() == 2);
  slots.need(5, 6, 2);
  CHECK(slots.size() == 2);
}

TEST_CASE("ring slots: given back, they begin anew", "[ring]") {
  RingSlots<int> slots;
  for (std::uint32_t i = 0; i < 9; ++i) slots.need(0, i, 16);
  CHECK(slots.size() == 16);
  slots.give_back();
  CHECK(slots.size() == 0);
  slots.need(100, 100, 16);
  slots[100] = 7;
  CHECK(slots.size() == 8);
  CHECK(slots[100] == 7);
}
