// Shared receive queues of abi/rnic_shm.h, from the data plane's end; and what an own one has in common with them.
#include "kit/catch.hpp"
#include "shm/queues.hpp"
#include "unit/shm/area.hpp"

namespace {

using namespace rnic;
using test::Area;

struct SharedWorld {
  Area area{shm::SharedReceiveQueue::area_bytes(8, 64)};
  shm::SharedReceiveQueue queue{area.bytes(), 8, 64, 2};
  void post(std::uint32_t id) { post_into(area, 8, id); }
  static void post_into(Area& area, std::uint32_t size, std::uint32_t id) {
    auto& control = area.at<rnic_ring_control>(0);
    area.at<rnic_rqe>(sizeof(rnic_ring_control) + (control.produced & (size - 1)) * 64).id = id;
    ++control.produced;
  }
};

bool resize(shm::SharedReceiveQueue& queue, MutableBytes area, std::uint32_t size) {
  const auto resize = queue.begin_resize(area, size);
  if (!resize) return false;
  queue.copy(*resize);
  return queue.finish_resize(*resize);
}

TEST_CASE("V-SRQ-08: shared receives are named by their ids, in the order of the ring", "[shm][V-SRQ-08]") {
  SharedWorld world;
  world.post(5);
  world.post(2);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  CHECK(out.slot == 5);
  CHECK(out.shared);
  REQUIRE(world.queue.take(out));
  CHECK(out.slot == 2);
  CHECK_FALSE(world.queue.take(out));
}

TEST_CASE("V-SEC-08: a shared receive with too many SGEs is malformed, and its id is its application's affair",
          "[shm][V-SEC-08]") {
  SharedWorld world;
  world.area.at<rnic_rqe>(sizeof(rnic_ring_control)).sge_count = 3;
  world.post(0xffffffff);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  CHECK(out.malformed);
  CHECK(out.slot == 0xffffffff);
}

TEST_CASE("V-SRZ-01: receives that are taken, or one that is given back, while a ring is copied are as they were",
          "[shm][V-SRZ-01]") {
  qp::ReceiveRequest out;
  Area first{shm::SharedReceiveQueue::area_bytes(8, 64)}, second{shm::SharedReceiveQueue::area_bytes(8, 64)};
  shm::SharedReceiveQueue queue{first.bytes(), 8, 64, 2};
  for (std::uint32_t i = 0; i < 8; ++i) SharedWorld::post_into(first, 8, 100 + i);
  for (int i = 0; i < 2; ++i) REQUIRE(queue.take(out));

  const auto back = queue.begin_resize(second.bytes(), 8);
  REQUIRE(back);
  queue.copy(*back);
  queue.give_back();
  REQUIRE(queue.finish_resize(*back));
  CHECK(queue.available() == 7);
  REQUIRE(queue.take(out));
  CHECK(out.slot == 101);

  Area third{shm::SharedReceiveQueue::area_bytes(16, 64)};
  const auto taken = queue.begin_resize(third.bytes(), 16);
  REQUIRE(taken);
  REQUIRE(queue.take(out));
  CHECK(out.slot == 102);
  queue.copy(*taken);
  REQUIRE(queue.take(out));
  CHECK(out.slot == 103);
  REQUIRE(queue.finish_resize(*taken));
  for (std::uint32_t i = 4; i < 8; ++i) {
    REQUIRE(queue.take(out));
    CHECK(out.slot == 100 + i);
  }
  CHECK_FALSE(queue.take(out));

  // One that comes back has no place where there is room for the others alone.
  for (std::uint32_t i = 0; i < 5; ++i) SharedWorld::post_into(third, 16, 200 + i);
  REQUIRE(queue.take(out));
  Area small{shm::SharedReceiveQueue::area_bytes(4, 64)};
  const auto full = queue.begin_resize(small.bytes(), 4);
  REQUIRE(full);
  queue.copy(*full);
  queue.give_back();
  CHECK_FALSE(queue.finish_resize(*full));
  for (std::uint32_t i = 0; i < 5; ++i) {
    REQUIRE(queue.take(out));
    CHECK(out.slot == 200 + i);
  }
}

TEST_CASE("V-SRZ-01: a shared queue goes to another ring with what is posted and not taken", "[shm][V-SRZ-01]") {
  qp::ReceiveRequest out;
  Area first{shm::SharedReceiveQueue::area_bytes(8, 64)};
  shm::SharedReceiveQueue queue{first.bytes(), 8, 64, 2};
  queue.set_worker(3);
  for (std::uint32_t i = 0; i < 6; ++i) SharedWorld::post_into(first, 8, 100 + i);
  REQUIRE(queue.take(out));
  REQUIRE(queue.take(out));
  for (std::uint32_t i = 6; i < 10; ++i) SharedWorld::post_into(first, 8, 100 + i);  // eight wait
  queue.arm_limit(2);
  Area small{shm::SharedReceiveQueue::area_bytes(4, 64)}, large{shm::SharedReceiveQueue::area_bytes(32, 64)};
  CHECK_FALSE(resize(queue, small.bytes(), 4));
  CHECK(queue.available() == 8);
  REQUIRE(resize(queue, large.bytes(), 32));
  CHECK(queue.available() == 8);
  CHECK(queue.limit() == 2);
  CHECK(large.at<rnic_ring_control>(0).worker == 3);
  SharedWorld::post_into(large, 32, 110);
  for (std::uint32_t i = 2; i < 8; ++i) {
    REQUIRE(queue.take(out));
    CHECK(out.slot == 100 + i);
  }
  REQUIRE(resize(queue, small.bytes(), 4));
  for (std::uint32_t i = 8; i < 11; ++i) {
    REQUIRE(queue.take(out));
    CHECK(out.slot == 100 + i);
  }
  CHECK_FALSE(queue.take(out));
  CHECK(queue.take_limit_event());
}

TEST_CASE("A receive queue that is watched asks for a doorbell when a receive is missing", "[shm]") {
  SharedWorld shared;
  Area area{shm::SendQueue::area_bytes(8, 64)};
  shm::ReceiveQueue own{area.bytes(), 8, 64, 2};
  const auto asks = [](auto& queue, Area& ring) {
    const std::uint32_t& watched = ring.at<rnic_ring_control>(0).watched;
    qp::ReceiveRequest out;
    CHECK(watched == 0);
    CHECK(queue.watch());
    CHECK(watched == 1);
    CHECK_FALSE(queue.watch());
    SharedWorld::post_into(ring, 8, 1);
    SharedWorld::post_into(ring, 8, 2);
    REQUIRE(queue.take(out));
    REQUIRE(queue.take(out));
    CHECK(watched == 1);
    CHECK_FALSE(queue.take(out));
    CHECK(watched == 0);
    CHECK_FALSE(queue.take(out));
    SharedWorld::post_into(ring, 8, 3);
    REQUIRE(queue.take(out));
    CHECK(watched == 0);  // until it has rung for one
    CHECK(queue.watch());
    CHECK(watched == 1);
  };
  asks(shared.queue, shared.area);
  asks(own, area);
}

TEST_CASE("A shared queue that goes to another ring is not watched there", "[shm]") {
  SharedWorld world;
  Area other{shm::SharedReceiveQueue::area_bytes(32, 64)};
  REQUIRE(world.queue.watch());
  REQUIRE(resize(world.queue, other.bytes(), 32));
  CHECK(other.at<rnic_ring_control>(0).watched == 0);
  CHECK(world.queue.watch());
  CHECK(other.at<rnic_ring_control>(0).watched == 1);
}

TEST_CASE("V-SEC-08: a shared queue with a scribbled producer index is not resized", "[shm][V-SEC-08]") {
  SharedWorld world;
  Area other{shm::SharedReceiveQueue::area_bytes(32, 64)};
  world.area.at<rnic_ring_control>(0).produced = 9;  // the ring holds eight
  CHECK_FALSE(resize(world.queue, other.bytes(), 32));
  world.area.at<rnic_ring_control>(0).produced = 8;
  CHECK(resize(world.queue, other.bytes(), 32));
}

TEST_CASE("V-LIM-02: the limit fires once when available receives fall below it, until armed again",
          "[shm][V-LIM-01][V-LIM-02]") {
  SharedWorld world;
  for (std::uint32_t i = 0; i < 6; ++i) world.post(i);
  world.queue.arm_limit(4);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());  // four are left: not below
  REQUIRE(world.queue.take(out));
  CHECK(world.queue.take_limit_event());
  CHECK(world.queue.limit() == 0);
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());
  world.queue.arm_limit(2);
  REQUIRE(world.queue.take(out));
  CHECK(world.queue.take_limit_event());
}

TEST_CASE("V-LIM-01: without a limit nothing fires, and what has fired and was not told goes with its limit",
          "[shm][V-LIM-01][V-LIM-03]") {
  SharedWorld world;
  CHECK(world.queue.limit() == 0);
  for (std::uint32_t i = 0; i < 6; ++i) world.post(i);
  qp::ReceiveRequest out;
  while (world.queue.available() > 2) REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());
  world.queue.arm_limit(2);
  REQUIRE(world.queue.take(out));
  SECTION("0: there is none") {
    world.queue.arm_limit(0);
    CHECK_FALSE(world.queue.take_limit_event());
  }
  SECTION("another does not unsay it") {
    world.queue.arm_limit(1);
    CHECK(world.queue.take_limit_event());
  }
  REQUIRE(world.queue.take(out));
  CHECK(world.queue.available() == 0);
}

TEST_CASE("V-SEC-08: a scribbled producer index of a shared receive queue is nothing to take", "[shm][V-SEC-08]") {
  SharedWorld world;
  auto& produced = world.area.at<rnic_ring_control>(0).produced;
  qp::ReceiveRequest out;
  produced = 9;  // the ring holds eight
  CHECK(world.queue.available() == 0);
  CHECK_FALSE(world.queue.take(out));
  produced = 8;
  CHECK(world.queue.available() == 8);
  CHECK(world.queue.take(out));
}

TEST_CASE("V-LIM-03: an armed limit can be armed again, to another value", "[shm][V-LIM-03]") {
  SharedWorld world;
  for (std::uint32_t i = 0; i < 6; ++i) world.post(i);
  world.queue.arm_limit(6);
  world.queue.arm_limit(3);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());
  CHECK(world.queue.limit() == 3);
}

}  // namespace
