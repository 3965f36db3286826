// What was placed before its turn: notes, overlaps, what is kept for moves under way.

#include "rdmap/early.hpp"

#include <algorithm>

#include "kit/catch.hpp"

using namespace rnic;

namespace {

tpt::Access at(std::uint64_t address, std::uint32_t length, std::uint32_t space = 1) {
  tpt::Access access;
  access.space = {space};
  access.address = address;
  access.length = length;
  return access;
}

}  // namespace

TEST_CASE("a note is found by its position until it is dropped", "[rdmap][W-TCP-09]") {
  rdmap::Early early;
  CHECK(early.find(0) == nullptr);
  early.add(1000, at(0, 10));
  const std::uint32_t slot = early.add(2000, at(100, 20));
  REQUIRE(early.find(2000) == &early[slot]);
  CHECK(early.find(2000)->to.length == 20);
  CHECK(early.find(1500) == nullptr);
  early.drop(*early.find(2000));
  CHECK(early.find(2000) == nullptr);
  CHECK(early.find(1000) != nullptr);
}

TEST_CASE("256 are noted, and no more; a place that is free is used again", "[rdmap][W-TCP-09]") {
  rdmap::Early early;
  for (std::uint32_t i = 0; i < 256; ++i) {
    CHECK_FALSE(early.full());
    CHECK(early.add(i, at(i * 100, 10)) == i);
  }
  CHECK(early.full());
  early.drop(*early.find(77));
  CHECK_FALSE(early.full());
  CHECK(early.add(1000, at(77 * 100, 10)) == 77);
  CHECK(early.full());
  CHECK_FALSE(early.find(1000)->again);
}

TEST_CASE("of two that overlap the one that is later in the stream is placed once more", "[rdmap][W-TCP-09]") {
  rdmap::Early early;
  SECTION("the later one comes later") {
    early.add(1000, at(100, 10));
    early.add(2000, at(109, 10));
  }
  SECTION("the later one came first") {
    early.add(2000, at(100, 10));
    early.add(1000, at(91, 10));
  }
  CHECK_FALSE(early.find(1000)->again);
  CHECK(early.find(2000)->again);
}

TEST_CASE("those that only touch, or lie in another's memory, do not overlap", "[rdmap][W-TCP-09]") {
  rdmap::Early early;
  early.add(1000, at(100, 10));
  early.add(2000, at(110, 10));
  early.add(3000, at(90, 10));
  early.add(4000, at(100, 10, 2));
  for (const std::uint64_t position : {1000, 2000, 3000, 4000}) CHECK_FALSE(early.find(position)->again);
}

TEST_CASE("what is placed in its turn beneath one makes that be placed once more", "[rdmap][W-TCP-09]") {
  rdmap::Early early;
  early.add(1000, at(100, 10));
  early.add(2000, at(200, 10));
  early.placed_in_order(at(109, 100));
  CHECK(early.find(1000)->again);
  CHECK(early.find(2000)->again);
  early.drop(*early.find(1000));
  early.add(3000, at(100, 10));
  CHECK_FALSE(early.find(3000)->again);
  early.placed_in_order(at(110, 10));
  CHECK_FALSE(early.find(3000)->again);
}

TEST_CASE("what the stream has gone past is forgotten, but not while its moves are under way", "[rdmap][W-TCP-09]") {
  rdmap::Early early;
  early.add(1000, at(100, 10));
  const std::uint32_t moving = early.add(1500, at(200, 10));
  early.moves_later(moving, 1);
  early.add(2000, at(300, 10));
  early.forget_before(2000);
  CHECK(early.find(1000) == nullptr);
  CHECK(early.find(1500) != nullptr);
  CHECK(early.find(2000) != nullptr);
  early.on_moved(moving, true);
  early.forget_before(2000);
  CHECK(early.find(1500) == nullptr);
}

TEST_CASE("buffers are kept until the last move is done, and what failed is placed once more", "[rdmap][W-TCP-09]") {
  HeapPool pool(1024, 2048);
  const auto kept = [](const rdmap::Early& early) {
    std::vector<BufferRef> out;
    early.share_kept(out);
    return out.size();
  };
  rdmap::Early early;
  CHECK(early.has_room_for(512));
  CHECK_FALSE(early.has_room_for(513));
  const std::uint32_t first = early.add(1000, at(100, 10)), second = early.add(2000, at(200, 10));
  early.keep(BufferRef::take(pool));
  early.moves_later(first, 2);
  early.keep(BufferRef::take(pool));
  early.moves_later(second, 1);
  CHECK_FALSE(early.has_room_for(511));
  CHECK(early.has_room_for(510));
  early.on_moved(first, true);
  early.on_moved(second, false);
  CHECK(kept(early) == 2);
  CHECK(early.find(1000)->moves == 1);
  early.on_moved(first, true);
  CHECK(kept(early) == 0);
  CHECK_FALSE(early.find(1000)->again);
  CHECK(early.find(2000)->again);
  CHECK(early.has_room_for(512));
}

TEST_CASE("cleared, it is as new", "[rdmap][W-TCP-09]") {
  HeapPool pool(1024, 2048);
  rdmap::Early early;
  const std::uint32_t slot = early.add(1000, at(100, 10));
  early.keep(BufferRef::take(pool));
  early.moves_later(slot, 3);
  early.clear();
  CHECK(early.find(1000) == nullptr);
  CHECK(early.has_room_for(512));
  for (std::uint32_t i = 0; i < 256; ++i) early.add(i, at(i * 100, 10));
  CHECK(early.full());
  early.moves_later(0, 1);
  early.keep(BufferRef::take(pool));
  early.on_moved(0, true);
  CHECK(early.has_room_for(512));
}
