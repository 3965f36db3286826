// Completion queues of abi/rnic_shm.h, from the data plane's end, and their resizing.
#include <functional>

#include "control/limits.hpp"
#include "kit/catch.hpp"
#include "shm/queues.hpp"
#include "unit/shm/area.hpp"

namespace {

using namespace rnic;
using test::Area;

struct CqWorld {
  Area area{shm::CompletionQueue::area_bytes(4)};
  shm::CompletionQueue cq{area.bytes(), 4, 77};
  std::uint32_t consumed = 0;
  rnic_cq_control& control() { return area.at<rnic_cq_control>(0); }
  rnic_cqe& entry(std::uint32_t index) { return area.at<rnic_cqe>(sizeof(rnic_cq_control) + (index & 3) * 64); }
  bool push(std::uint32_t slot, std::uint8_t flags = 0, std::uint8_t status = RNIC_WC_SUCCESS) {
    rnic_cqe made{};
    made.slot = slot;
    made.flags = flags;
    made.status = status;
    return cq.push(made);
  }
  // As the provider polls.
  bool poll(rnic_cqe& out) {
    const rnic_cqe& at = entry(consumed);
    if (at.phase != consumed / 4 + 1) return false;
    out = at;
    control().consumed = ++consumed;
    return true;
  }
  void arm(std::uint32_t kind) { control().arm = ((control().arm >> 2) + 1) << 2 | kind; }
};

TEST_CASE("V-POLL-02: each completion is seen once and in order, round and round the ring",
          "[shm][V-POLL-01][V-POLL-02]") {
  CqWorld world;
  rnic_cqe out{};
  CHECK_FALSE(world.poll(out));
  for (std::uint32_t i = 0; i < 1000; ++i) {
    REQUIRE(world.push(i));
    if (i % 3 != 2) continue;
    for (std::uint32_t k = i - 2; k <= i; ++k) {
      REQUIRE(world.poll(out));
      CHECK(out.slot == k);
    }
    CHECK_FALSE(world.poll(out));
  }
}

TEST_CASE("V-CQ-06: a full queue refuses, keeps what it has, and stays refused", "[shm][V-CQ-06][V-AE-37]") {
  CqWorld world;
  for (std::uint32_t i = 0; i < 4; ++i) REQUIRE(world.push(i));
  CHECK_FALSE(world.cq.overflowed());
  CHECK_FALSE(world.push(4));
  CHECK(world.cq.overflowed());
  rnic_cqe out{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(world.poll(out));
    CHECK(out.slot == i);
  }
  CHECK_FALSE(world.push(5));
}

TEST_CASE("V-POLL-03: polling one completion makes room for one", "[shm][V-POLL-03]") {
  CqWorld world;
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(world.cq.has_room());
    REQUIRE(world.push(i));
  }
  CHECK_FALSE(world.cq.has_room());
  rnic_cqe out{};
  REQUIRE(world.poll(out));
  CHECK(world.cq.has_room());
  CHECK(world.push(4));
  CHECK_FALSE(world.push(5));
  REQUIRE(world.poll(out));
  CHECK_FALSE(world.cq.has_room());  // it has overflowed
}

TEST_CASE("V-NTF-05: an arming for the next completion fires on any, once", "[shm][V-NTF-01][V-NTF-02][V-NTF-05]") {
  CqWorld world;
  CHECK(world.push(0));
  CHECK_FALSE(world.cq.take_notification());  // never armed
  world.arm(RNIC_ARM_NEXT);
  world.arm(RNIC_ARM_NEXT);
  CHECK(world.push(1));
  CHECK(world.cq.take_notification());
  CHECK(world.push(2));
  CHECK_FALSE(world.cq.take_notification());
}

TEST_CASE("V-NTF-03: completions that were there before the arming do not fire", "[shm][V-NTF-03]") {
  CqWorld world;
  CHECK(world.push(0));
  CHECK_FALSE(world.cq.take_notification());
  world.arm(RNIC_ARM_NEXT);
  CHECK_FALSE(world.cq.take_notification());
  CHECK(world.push(1));
  CHECK(world.cq.take_notification());
}

TEST_CASE("V-NTF-04: a solicited arming fires on solicited receives and on errors, not on others", "[shm][V-NTF-04]") {
  CqWorld world;
  world.arm(RNIC_ARM_SOLICITED);
  CHECK(world.push(0));
  CHECK_FALSE(world.cq.take_notification());
  CHECK(world.push(1, RNIC_CQE_SOLICITED));
  CHECK(world.cq.take_notification());
  world.arm(RNIC_ARM_SOLICITED);
  CHECK(world.push(2, 0, RNIC_WC_FLUSHED));
  CHECK(world.cq.take_notification());
}

// Its three steps; `meanwhile` is what producers do during the second.
bool resize(shm::CompletionQueue& cq, MutableBytes area, std::uint32_t size,
            const std::function<void()>& meanwhile = {}) {
  const auto begun = cq.begin_resize(area, size);
  if (!begun) return false;
  cq.copy(*begun);
  if (meanwhile) meanwhile();
  return cq.finish_resize(*begun);
}

TEST_CASE("V-CQ-07: resize loses, repeats and reorders nothing", "[shm][V-CQ-07]") {
  CqWorld world;
  rnic_cqe out{};
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(world.push(i));
  REQUIRE(world.poll(out));
  Area larger{shm::CompletionQueue::area_bytes(8)};
  REQUIRE(resize(world.cq, larger.bytes(), 8));
  for (std::uint32_t i = 3; i < 9; ++i) REQUIRE(world.push(i));
  CHECK_FALSE(world.push(9));
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto& at = larger.at<rnic_cqe>(sizeof(rnic_cq_control) + i * 64);
    CHECK(at.phase == 1);
    CHECK(at.slot == i + 1);
  }
}

TEST_CASE("V-CQ-07: what completes while a queue is resized is behind what waited", "[shm][V-CQ-07][V-CQ-08]") {
  CqWorld world;  // of 4
  rnic_cqe out{};
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(world.push(i));
  REQUIRE(world.poll(out));
  Area smaller{shm::CompletionQueue::area_bytes(2)};
  CHECK_FALSE(resize(world.cq, smaller.bytes(), 2, [&] { REQUIRE(world.push(3)); }));
  Area other{shm::CompletionQueue::area_bytes(4)};
  REQUIRE(resize(world.cq, other.bytes(), 4, [&] { REQUIRE(world.push(4)); }));
  CHECK_FALSE(world.push(5));
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto& at = other.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe));
    CHECK(at.phase == 1);
    CHECK(at.slot == i + 1);
  }
}

TEST_CASE("V-CQ-07: a million completions are moved as they are", "[shm][V-CQ-07][V-CQ-08][V-CQ-06]") {
  constexpr std::uint32_t kMost = control::kCqesMax;
  Area area{shm::CompletionQueue::area_bytes(kMost)}, other{shm::CompletionQueue::area_bytes(kMost)};
  shm::CompletionQueue cq{area.bytes(), kMost, 77};
  rnic_cqe made{};
  for (made.slot = 0; made.slot < kMost; ++made.slot)
    if (!cq.push(made)) FAIL("refused at " << made.slot);
  CHECK_FALSE(resize(cq, other.bytes(), kMost / 2));
  CHECK(cq.unpolled() == kMost);
  REQUIRE(resize(cq, other.bytes(), kMost));
  for (std::uint32_t i = 0; i < kMost; ++i) {
    const auto& at = other.at<rnic_cqe>(sizeof(rnic_cq_control) + std::size_t{i} * sizeof(rnic_cqe));
    if (at.slot != i || at.phase != 1) FAIL("wrong at " << i);
  }
  CHECK_FALSE(cq.push(made));
  CHECK(cq.overflowed());
}

TEST_CASE("V-CQ-08: resize below what waits fails and changes nothing", "[shm][V-CQ-08]") {
  CqWorld world;
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(world.push(i));
  Area smaller{shm::CompletionQueue::area_bytes(2)};
  CHECK_FALSE(resize(world.cq, smaller.bytes(), 2));
  rnic_cqe out{};
  REQUIRE(world.poll(out));
  CHECK(out.slot == 0);
  REQUIRE(world.poll(out));
  CHECK(out.slot == 1);
}

}  // namespace
