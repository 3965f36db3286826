// What was accepted, until it is delivered.

#include "rdmap/deliveries.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_ground.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

struct Accepting : Ground {
  Accepting() { deliveries.begin_stream(); }
  // One whose places are `later`. True: it is delivered at once. Gives its token too.
  bool accept(std::uint64_t end, std::uint32_t later = 0, bool stored = false) {
    rdmap::Delivery& delivery = deliveries.start();
    delivery.end = end;
    delivery.stored = stored;
    token = deliveries.ticket().token;
    if (later != 0) deliveries.note_places({.later = later, .failed = false});
    return deliveries.accept();
  }
  rdmap::Deliveries deliveries{common};
  std::uint32_t token = 0;
};

}  // namespace

TEST_CASE("W-DDP-13: what is placed, with nothing before it, is delivered at once", "[rdmap][W-DDP-13]") {
  Accepting a;
  CHECK(a.accept(100));
  CHECK_FALSE(a.deliveries.open());
  CHECK(a.deliveries.delivered_up_to() == 100);
  CHECK(a.deliveries.next().end == 100);
}

TEST_CASE("W-DDP-13: behind one that is not placed all wait, in their order", "[rdmap][W-DDP-13]") {
  Accepting a;
  CHECK_FALSE(a.accept(100, 2));
  const std::uint32_t first = a.token;
  CHECK_FALSE(a.accept(200));
  CHECK_FALSE(a.accept(300, 1));
  const std::uint32_t third = a.token;
  CHECK(first != third);
  CHECK(a.common.moves.places == 3);
  CHECK(a.deliveries.open());
  CHECK_FALSE(a.deliveries.deliverable());

  a.deliveries.on_moved(third, true);
  a.deliveries.on_moved(first, true);
  CHECK_FALSE(a.deliveries.deliverable());
  a.deliveries.on_moved(first, false);
  REQUIRE(a.deliveries.deliverable());
  const rdmap::Delivery one = a.deliveries.take();
  CHECK(one.failed);
  CHECK(one.end == 100);
  CHECK(a.deliveries.delivered_up_to() == 100);
  CHECK_FALSE(a.deliveries.take().failed);
  CHECK(a.deliveries.take().end == 300);
  CHECK_FALSE(a.deliveries.deliverable());
  CHECK_FALSE(a.deliveries.open());
}

TEST_CASE("one that was set aside says nothing about the stream", "[rdmap][V-SR-06]") {
  Accepting a;
  CHECK(a.accept(100));
  CHECK(a.accept(0));
  CHECK(a.deliveries.delivered_up_to() == 100);
}

TEST_CASE("the carrier's store is its own again once, when what lay in it is delivered", "[rdmap]") {
  Accepting a;
  CHECK_FALSE(a.accept(100, 1, true));
  CHECK_FALSE(a.deliveries.take_stored_done());
  a.deliveries.on_moved(a.token, true);
  CHECK_FALSE(a.deliveries.take_stored_done());
  a.deliveries.take();
  CHECK(a.deliveries.take_stored_done());
  CHECK_FALSE(a.deliveries.take_stored_done());
  CHECK(a.accept(200, 0, true));
  CHECK(a.deliveries.take_stored_done());
}

TEST_CASE("a place is used again as new, and 1,024 wait at most", "[rdmap]") {
  Accepting a;
  for (std::uint64_t i = 0; i < 1024; ++i) {
    CHECK_FALSE(a.deliveries.full());
    CHECK_FALSE(a.accept(i, 1, true));
  }
  CHECK(a.deliveries.full());
  a.deliveries.on_moved(0, false);
  a.deliveries.take();
  CHECK_FALSE(a.deliveries.full());
  const rdmap::Delivery& again = a.deliveries.start();
  CHECK_FALSE(again.failed);
  CHECK_FALSE(again.stored);
  CHECK(again.end == 0);
}

TEST_CASE("what is given up is told of, oldest first, and moves nothing", "[rdmap]") {
  Accepting a;
  a.accept(100, 1);
  a.accept(200, 1);
  std::vector<std::uint64_t> ends;
  a.deliveries.give_up([&](const rdmap::Delivery& delivery) { ends.push_back(delivery.end); });
  CHECK(ends == std::vector<std::uint64_t>{100, 200});
  CHECK_FALSE(a.deliveries.open());
  CHECK(a.deliveries.delivered_up_to() == 0);
}
