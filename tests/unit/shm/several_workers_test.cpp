// Queues that several workers share: of completions, which both push, and of receives, which both take. Step by step
// where order can be chosen, and by two threads where it cannot.
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/chance.hpp"
#include "kit/catch.hpp"
#include "shm/queues.hpp"

namespace {

using namespace rnic;

constexpr std::uint32_t kStride = 64;

template <typename Control>
struct Area {
  explicit Area(std::size_t bytes) : lines((bytes + 63) / 64) {}
  MutableBytes bytes() { return std::as_writable_bytes(std::span(lines)); }
  Control& control() { return *reinterpret_cast<Control*>(lines.data()); }
  std::byte* entries() { return reinterpret_cast<std::byte*>(lines.data()) + sizeof(Control); }
  struct alignas(64) Line {
    std::array<std::byte, 64> octets{};
  };
  std::vector<Line> lines;
};

// Until `done`; the machine may have fewer processors than the test has threads.
void wait_until(const std::function<bool()>& done) {
  while (!done()) sched_yield();
}

// Rounds end after so long on a machine that has no time for us; nothing else depends on it.
class Patience {
 public:
  bool over() const { return std::chrono::steady_clock::now() - begun_ > std::chrono::seconds(2); }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};
constexpr std::uint32_t kNoMore = 0xFFFFFFFF;  // rounds

// ---- completion queues ---------------------------------------------------------------------------

constexpr std::uint32_t kCqes = 64;

struct SharedCompletions {
  Area<rnic_cq_control> area{shm::CompletionQueue::area_bytes(kCqes)};
  shm::CompletionQueue queue{area.bytes(), kCqes, 77, false, 2, shm::CompletionQueue::Producers::several};
  std::uint32_t consumed = 0;

  // The application's side.
  std::uint32_t arm(std::uint32_t kind) {
    const std::uint32_t sequence = (area.control().arm >> 2) + 1;
    std::atomic_ref(area.control().arm).store(sequence << 2 | kind, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return sequence;
  }
  const rnic_cqe* poll() {
    auto& at = *reinterpret_cast<rnic_cqe*>(area.entries() + std::size_t{consumed % kCqes} * sizeof(rnic_cqe));
    if (std::atomic_ref(at.phase).load(std::memory_order_acquire) != consumed / kCqes + 1) return nullptr;
    seen = at;
    std::atomic_ref(area.control().consumed).store(++consumed, std::memory_order_release);
    return &seen;
  }
  rnic_cqe seen{};
};

rnic_cqe completion(std::uint32_t slot, bool solicited) {
  rnic_cqe made{};
  made.slot = slot;
  made.flags = solicited ? RNIC_CQE_SOLICITED : 0;
  return made;
}

// What else a worker does between what it completes and the end of its turn.
void rest_of_turn(Chance& chance) {
  for (std::uint64_t left = chance.below(200); left != 0; --left) std::atomic_signal_fence(std::memory_order_seq_cst);
}
// As a worker does at the end of a turn.
bool tells(shm::CompletionQueue& queue, std::uint32_t worker) {
  if (!queue.publish(worker)) std::abort();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return queue.take_notification(worker);
}

TEST_CASE("each worker tells of what it has pushed, and of each arming one does", "[shm][shards]") {
  SharedCompletions world;
  world.arm(RNIC_ARM_NEXT);
  REQUIRE(world.queue.push(completion(1, false), 0));
  REQUIRE(world.queue.push(completion(2, false), 1));
  CHECK(tells(world.queue, 0));
  CHECK_FALSE(tells(world.queue, 1));
  REQUIRE(world.queue.push(completion(3, false), 0));
  CHECK_FALSE(tells(world.queue, 0));
  world.arm(RNIC_ARM_SOLICITED);
  REQUIRE(world.queue.push(completion(4, true), 1));
  CHECK_FALSE(tells(world.queue, 0));
  CHECK(tells(world.queue, 1));
  CHECK_FALSE(tells(world.queue, 1));
}

TEST_CASE("who fills a gap tells of what is solicited behind it, which nobody could poll before", "[shm][shards]") {
  SharedCompletions world;
  // Another has the second place, has written it, and has looked at the arming already.
  auto& second = *reinterpret_cast<rnic_cqe*>(world.area.entries() + sizeof(rnic_cqe));
  second = completion(7, true);
  std::atomic_ref(second.phase).store(1, std::memory_order_release);
  world.arm(RNIC_ARM_SOLICITED);
  REQUIRE(world.queue.push(completion(1, false), 0));
  CHECK(tells(world.queue, 0));
}

TEST_CASE("each worker has a place for a queue in its own list", "[shm][shards]") {
  SharedCompletions world;
  List<shm::CompletionQueue::Pushed, shm::DirtyTag> first, second;
  first.push_back(world.queue.pushed_by(0));
  second.push_back(world.queue.pushed_by(1));
  CHECK(first.pop_front()->queue == &world.queue);
  CHECK(first.empty());
  CHECK(second.pop_front()->queue == &world.queue);
}

// Rounds in which two workers push and tell, and the application arms, polls, and arms again once it was told.
TEST_CASE("whoever arms a queue of two workers and then finds nothing is told of what comes, and no arming twice",
          "[shm][shards][threads]") {
  constexpr std::uint32_t kRounds = 15'000, kPushes = 12, kBurst = 3;
  SharedCompletions world;
  const std::uint32_t kind = GENERATE(RNIC_ARM_NEXT, RNIC_ARM_SOLICITED);
  alignas(64) std::atomic<std::uint32_t> round{0}, finished{0}, told{0};
  alignas(64) std::array<std::atomic<std::uint32_t>, 2> polled{};

  const auto work = [&](std::uint32_t worker) {
    Chance chance(worker + 1);
    std::uint32_t pushed = 0;
    for (std::uint32_t turn = 1;; ++turn) {
      wait_until([&] { return round.load(std::memory_order_acquire) >= turn; });
      if (round.load(std::memory_order_acquire) == kNoMore) break;
      for (std::uint32_t left = kPushes; left != 0;) {
        const std::uint32_t burst = std::min<std::uint32_t>(left, 1 + static_cast<std::uint32_t>(chance.below(kBurst)));
        wait_until([&] { return pushed - polled[worker].load(std::memory_order_acquire) <= kCqes / 2 - kBurst; });
        for (std::uint32_t i = 0; i < burst; ++i, ++pushed)
          if (!world.queue.push(completion(worker << 31 | pushed, chance.below(8) == 0), worker)) std::abort();
        left -= burst;
        rest_of_turn(chance);
        if (tells(world.queue, worker)) told.fetch_add(1, std::memory_order_seq_cst);
      }
      finished.fetch_add(1, std::memory_order_seq_cst);
    }
  };
  std::thread first(work, 0), second(work, 1);

  std::uint32_t armings = 0, lost = 0, twice = 0, disordered = 0, looks = 0;
  std::array<std::uint32_t, 2> next{};
  bool late = false;  // something that the arming asks for came after the queue was found empty
  const auto poll_all = [&](bool is_late) {
    while (const rnic_cqe* cqe = world.poll()) {
      const std::uint32_t worker = cqe->slot >> 31;
      disordered += (cqe->slot & 0x7FFFFFFF) != next[worker];
      polled[worker].store(++next[worker], std::memory_order_release);
      if (is_late && (kind == RNIC_ARM_NEXT || cqe->flags != 0)) late = true;
    }
  };
  const auto arm = [&] {
    world.arm(kind);
    ++armings;
    late = false;
    poll_all(false);
  };
  const Patience patience;
  std::uint32_t rounds = 0;
  while (rounds < kRounds && !patience.over()) {
    const std::uint32_t turn = ++rounds;
    round.store(turn, std::memory_order_release);
    if (armings == told.load()) arm();
    while (finished.load() != 2 * turn) {
      poll_all(true);
      const std::uint32_t now_told = told.load();
      twice += now_told > armings;
      if (now_told >= armings) arm();
      if (++looks % 64 == 0) sched_yield();
    }
    poll_all(true);
    twice += told.load() > armings;
    lost += late && told.load() < armings;
  }
  round.store(kNoMore, std::memory_order_release);
  first.join();
  second.join();
  CHECK(lost == 0);
  CHECK(twice == 0);
  CHECK(disordered == 0);
  CHECK(next == std::array<std::uint32_t, 2>{rounds * kPushes, rounds * kPushes});
  CHECK(told.load() > rounds / 8);
}

// ---- shared receive queues -----------------------------------------------------------------------

constexpr std::uint32_t kRqes = 8;

struct SharedReceives {
  Area<rnic_ring_control> area{shm::SharedReceiveQueue::area_bytes(kRqes, kStride)};
  shm::SharedReceiveQueue queue{area.bytes(), kRqes, kStride, 1, true};

  // The application's side. Whether it has to ring.
  bool post(std::uint32_t id) {
    rnic_ring_control& control = area.control();
    std::byte* const slot = area.entries() + std::size_t{control.produced % kRqes} * kStride;
    const rnic_rqe entry{.sge_count = 1, .id = id, .reserved = {}};
    const rnic_sge sge{.address = std::uint64_t{id} * 3, .length = id, .lkey = ~id};
    std::memcpy(slot, &entry, sizeof entry);
    std::memcpy(slot + sizeof entry, &sge, sizeof sge);
    std::atomic_ref(control.produced).store(control.produced + 1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::atomic_ref(control.watched).load(std::memory_order_relaxed) == 0;
  }
  static bool is_whole(const qp::ReceiveRequest& taken) {
    return !taken.malformed && taken.sge_count == 1 && taken.sges[0].address == std::uint64_t{taken.slot} * 3 &&
           taken.sges[0].length == taken.slot && taken.sges[0].lkey == Stag{~taken.slot};
  }
};

// Two workers as core/doorbells.cpp has them: the first one's bell rings, it watches again, and rings the other's.
struct Takers {
  explicit Takers(SharedReceives& its_world) : world(its_world) {}

  // False: it has found nothing, and waits until it is told.
  bool take(std::size_t worker, qp::ReceiveRequest& out) {
    if (waits[worker]) return false;
    waits[worker] = !world.queue.take(out);
    return !waits[worker];
  }
  void answer(std::size_t worker) {
    if (!bells[worker].exchange(false, std::memory_order_seq_cst)) return;
    if (worker == 0) {
      (void)world.queue.watch();
      bells[1].store(true, std::memory_order_seq_cst);
    }
    waits[worker] = false;
  }
  void post(std::uint32_t id) {
    if (world.post(id)) bells[0].store(true, std::memory_order_seq_cst);
  }

  SharedReceives& world;
  std::array<std::atomic<bool>, 2> bells{};
  std::array<bool, 2> waits{};  // each its worker's
};

TEST_CASE("V-SRQ-12: a worker that found no shared receive is told of the next, whoever else takes some",
          "[shm][shards][V-SRQ-12]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Chance chance(seed);
    SharedReceives world;
    Takers takers(world);
    std::uint32_t posted = 0, taken = 0;
    qp::ReceiveRequest out;
    for (int step = 0; step < 200; ++step) {
      switch (chance.below(5)) {
        case 0:
          if (posted - taken < kRqes) takers.post(posted++);
          break;
        case 1:
        case 2: {
          const std::size_t worker = chance.below(2);
          if (!takers.take(worker, out)) break;
          REQUIRE(out.slot == taken);
          ++taken;
          break;
        }
        default:
          takers.answer(chance.below(2));
      }
      if (chance.below(10) != 0) continue;
      takers.answer(0);
      takers.answer(1);
      INFO("seed " << seed << ", step " << step);
      if (world.queue.available() != 0) REQUIRE((!takers.waits[0] && !takers.waits[1]));
    }
  }
}

TEST_CASE("a queue of several takers is not watched where one found nothing, until the bell has rung",
          "[shm][shards]") {
  SharedReceives world;
  const std::uint32_t& watched = world.area.control().watched;
  qp::ReceiveRequest out;
  CHECK(world.queue.watch());
  CHECK(watched == 1);
  CHECK_FALSE(world.queue.take(out));
  CHECK(watched == 0);
  CHECK(world.post(1));
  CHECK(world.queue.watch());  // again, though it is watched for all that one taker knows
  CHECK(watched == 1);
  CHECK(world.queue.take(out));
  CHECK(watched == 1);
}

TEST_CASE("V-SRQ-13: of a shared queue two threads take each receive once, whole and in order, and none is stranded",
          "[shm][shards][threads][V-SRQ-13]") {
  constexpr std::uint32_t kAll = 200'000;
  SharedReceives world;
  Takers takers(world);
  alignas(64) std::atomic<std::uint32_t> all_taken{0}, all{kAll};
  std::vector<std::atomic<std::uint8_t>> times(kAll);
  std::array<std::uint32_t, 2> torn{}, disordered{}, of_each{};
  const auto work = [&](std::size_t worker) {
    std::uint32_t next = 0, looks = 0;
    qp::ReceiveRequest out;
    while (all_taken.load(std::memory_order_acquire) != all.load(std::memory_order_acquire)) {
      takers.answer(worker);
      if (!takers.take(worker, out)) {
        if (++looks % 64 == 0) sched_yield();
        continue;
      }
      torn[worker] += !SharedReceives::is_whole(out) || out.slot >= kAll;
      disordered[worker] += out.slot < next;
      next = out.slot + 1;
      ++of_each[worker];
      if (out.slot < kAll) times[out.slot].fetch_add(1, std::memory_order_relaxed);
      all_taken.fetch_add(1, std::memory_order_acq_rel);  // it is complete, and its slot is the application's again
    }
  };
  std::thread first(work, 0), second(work, 1);
  Chance chance(3);
  const Patience patience;
  std::uint32_t id = 0;
  while (id < kAll && !patience.over()) {  // now and then as many as there is room for, so that both find some
    const std::uint32_t room = chance.below(2) == 0 ? kRqes : 1;
    wait_until([&] { return id - all_taken.load(std::memory_order_acquire) <= kRqes - room; });
    for (std::uint32_t i = 0; i < room && id < kAll; ++i) takers.post(id++);
  }
  all.store(id, std::memory_order_release);
  first.join();
  second.join();
  CHECK(torn == std::array<std::uint32_t, 2>{});
  CHECK(disordered == std::array<std::uint32_t, 2>{});
  CHECK(of_each[0] + of_each[1] == id);
  CHECK(std::all_of(times.begin(), times.begin() + id, [](const auto& count) { return count.load() == 1; }));
  CHECK(world.queue.available() == 0);
}

TEST_CASE("V-LIM-02: two threads take below the limit, and it is told of once", "[shm][shards][threads][V-LIM-02]") {
  constexpr std::uint32_t kRounds = 5'000;
  SharedReceives world;
  alignas(64) std::atomic<std::uint32_t> round{0}, finished{0}, told{0};
  const auto work = [&] {
    qp::ReceiveRequest out;
    for (std::uint32_t turn = 1;; ++turn) {
      wait_until([&] { return round.load(std::memory_order_acquire) >= turn; });
      if (round.load(std::memory_order_acquire) == kNoMore) break;
      while (world.queue.take(out))
        if (world.queue.take_limit_event()) told.fetch_add(1, std::memory_order_relaxed);
      finished.fetch_add(1, std::memory_order_acq_rel);
    }
  };
  std::thread first(work), second(work);
  std::uint32_t wrong = 0;
  const Patience patience;
  for (std::uint32_t turn = 1; turn <= kRounds && !patience.over(); ++turn) {
    for (std::uint32_t i = 0; i < kRqes; ++i) (void)world.post(i);
    world.queue.arm_limit(1 + turn % (kRqes - 1));
    round.store(turn, std::memory_order_release);
    wait_until([&] { return finished.load(std::memory_order_acquire) == 2 * turn; });
    wrong += told.load() != turn || world.queue.limit() != 0;
  }
  round.store(kNoMore, std::memory_order_release);
  first.join();
  second.join();
  CHECK(wrong == 0);
}

}  // namespace
