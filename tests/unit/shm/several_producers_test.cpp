// Completion queues of abi/rnic_shm.h of a device with several workers, where one of them pushes or all do.
#include <atomic>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "shm/queues.hpp"
#include "unit/shm/area.hpp"

namespace {

using namespace rnic;
using test::Area;

constexpr auto kSeveral = shm::CompletionQueue::Producers::several;

TEST_CASE("V-POLL-02: where one of several workers completes, all is there at once", "[shm][V-POLL-02]") {
  Area area{shm::CompletionQueue::area_bytes(4)};
  shm::CompletionQueue cq{area.bytes(), 4, 77, false, 2};
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(cq.push(rnic_cqe{}, 1));
    CHECK(area.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe)).phase == 1);
  }
  CHECK_FALSE(cq.has_room(1));
  CHECK_FALSE(cq.push(rnic_cqe{}, 1));
  CHECK(cq.overflowed());
}

TEST_CASE("V-POLL-02: of several workers each one's completions are in order, and all are there when it has published",
          "[shm][V-POLL-02]") {
  Area area{shm::CompletionQueue::area_bytes(64)};
  shm::CompletionQueue cq{area.bytes(), 64, 77, false, 2, kSeveral};
  const auto push = [&](std::uint32_t slot, std::uint32_t worker) {
    rnic_cqe made{};
    made.slot = slot;
    made.qp_number = worker;
    return cq.push(made, worker);
  };
  for (std::uint32_t i = 0; i < 20; ++i) {
    REQUIRE(push(i, 0));
    REQUIRE(push(i, 1));
  }
  REQUIRE(cq.publish(0));
  REQUIRE(cq.publish(1));
  REQUIRE(cq.publish(1));
  std::uint32_t next[2] = {};
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto& cqe = area.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe));
    REQUIRE(cqe.phase == 1);
    CHECK(cqe.slot == next[cqe.qp_number]++);
  }
  CHECK(next[0] == 20);
  CHECK(next[1] == 20);
  CHECK(cq.unpolled() == 40);
}

TEST_CASE("V-CQ-06: what a worker has held back is there as far as it fits", "[shm][V-CQ-06][V-AE-37]") {
  Area area{shm::CompletionQueue::area_bytes(4)};
  shm::CompletionQueue cq{area.bytes(), 4, 77, false, 2, kSeveral};
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(cq.has_room(0));
    REQUIRE(cq.push(rnic_cqe{}, 0));
  }
  CHECK(cq.has_room(0));
  REQUIRE(cq.push(rnic_cqe{}, 1));
  REQUIRE(cq.publish(1));
  CHECK_FALSE(cq.has_room(0));
  REQUIRE(cq.push(rnic_cqe{}, 0));  // one too many, and nobody knows yet
  CHECK_FALSE(cq.overflowed());
  CHECK_FALSE(cq.publish(0));
  CHECK(cq.overflowed());
  CHECK(cq.unpolled() == 4);
  for (std::uint32_t i = 0; i < 4; ++i)
    CHECK(area.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe)).phase == 1);
  CHECK_FALSE(cq.push(rnic_cqe{}, 1));
  CHECK(cq.publish(0));  // nothing is left of it
}

TEST_CASE("V-NTF-02: an arming fires for one of several workers that have pushed", "[shm][V-NTF-02][V-NTF-04]") {
  Area area{shm::CompletionQueue::area_bytes(64)};
  shm::CompletionQueue cq{area.bytes(), 64, 77, false, 2, kSeveral};
  const auto arm = [&](std::uint32_t kind) {
    auto& control = area.at<rnic_cq_control>(0);
    control.arm = ((control.arm >> 2) + 1) << 2 | kind;
  };
  const auto push = [&](std::uint32_t worker, std::uint8_t flags = 0) {
    rnic_cqe made{};
    made.flags = flags;
    REQUIRE(cq.push(made, worker));
    REQUIRE(cq.publish(worker));
  };
  arm(RNIC_ARM_NEXT);
  CHECK_FALSE(cq.take_notification(1));
  push(0);
  push(1);
  CHECK(cq.take_notification(1));
  CHECK_FALSE(cq.take_notification(0));
  arm(RNIC_ARM_SOLICITED);
  push(0);
  push(1, RNIC_CQE_SOLICITED);
  CHECK_FALSE(cq.take_notification(0));
  CHECK(cq.take_notification(1));
}

// A producer that was held up between its two looks, at the tail and at what was polled, finds more polled than it
// knows to be pushed.
TEST_CASE("V-CQ-06: a queue that has room has not overflowed, however many workers push and however fast it is polled",
          "[shm][V-CQ-06]") {
  constexpr std::uint32_t kSize = 16, kWorkers = 2, kEach = 5'000'000;
  Area area{shm::CompletionQueue::area_bytes(kSize)};
  shm::CompletionQueue cq{area.bytes(), kSize, 77, false, kWorkers, kSeveral};
  std::atomic<std::int32_t> room{kSize};
  std::atomic<bool> refused{false};
  // The application, whose turn it is on whichever thread: two are as many as may run at a time.
  std::atomic_flag polls;
  std::uint32_t polled = 0;
  const auto poll = [&] {
    if (polls.test_and_set(std::memory_order_acquire)) return;
    auto& next = area.at<rnic_cqe>(sizeof(rnic_cq_control) + (polled % kSize) * sizeof(rnic_cqe));
    if (std::atomic_ref(next.phase).load(std::memory_order_acquire) == polled / kSize + 1) {
      std::atomic_ref(area.at<rnic_cq_control>(0).consumed).store(++polled, std::memory_order_release);
      room.fetch_add(1, std::memory_order_relaxed);
    }
    polls.clear(std::memory_order_release);
  };
  std::vector<std::thread> workers;
  for (std::uint32_t worker = 0; worker < kWorkers; ++worker)
    workers.emplace_back([&, worker] {
      for (std::uint32_t i = 0; i < kEach && !refused; ++i) {
        while (room.fetch_sub(1, std::memory_order_relaxed) <= 0) {
          room.fetch_add(1, std::memory_order_relaxed);
          if (!cq.publish(worker)) refused = true;
          poll();
        }
        if (!cq.push(rnic_cqe{}, worker) || (i % 3 == 0 && !cq.publish(worker))) refused = true;
        poll();
      }
      if (!cq.publish(worker)) refused = true;
    });
  for (std::thread& worker : workers) worker.join();
  CHECK_FALSE(refused);
  CHECK_FALSE(cq.overflowed());
}

}  // namespace
