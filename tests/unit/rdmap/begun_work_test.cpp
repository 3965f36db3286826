// Work begun, until it completes.

#include "rdmap/begun_work.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_ground.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Status;

namespace {

using Slots = std::vector<std::uint32_t>;

struct Working : Ground {
  explicit Working(rdmap::Settings given = default_settings()) : Ground(given) { work.begin_stream(); }
  std::uint32_t begin(bool signaled = true) {
    rdmap::WorkRequest request = send();
    request.signaled = signaled;
    request.slot = next_slot++;
    return work.begin(request);
  }
  bool complete() {
    verdict = {};
    return work.complete(verdict);
  }
  Slots completed() const {
    Slots slots;
    for (const auto& completion : app.of_sends()) slots.push_back(completion.slot);
    return slots;
  }
  rdmap::BegunWork work{common};
  rdmap::Verdict verdict;
  std::uint32_t next_slot = 10;
};

}  // namespace

TEST_CASE("V-ORD-02: what is done behind what is not waits for it", "[rdmap][V-ORD-02]") {
  Working w;
  CHECK(w.work.empty());
  const std::uint32_t read = w.begin(), second = w.begin();
  w.work.until_read(read);
  w.work.done(second);
  CHECK_FALSE(w.complete());
  w.work.done(read);
  CHECK(w.complete());
  CHECK(w.completed() == Slots{10, 11});
  CHECK(w.work.empty());
  CHECK_FALSE(w.complete());
}

TEST_CASE("V-ORD-08: what is built is done when its carrier is on its way", "[rdmap][V-ORD-08]") {
  Working w;
  const std::uint32_t index = w.begin();
  w.work.carried_up_to(100);
  CHECK_FALSE(w.complete());
  w.work.until_carried(index, 100);
  CHECK_FALSE(w.complete());
  w.work.carried_up_to(101);
  CHECK(w.complete());
}

TEST_CASE("V-INV-10: what ends a binding is done when nothing moves under it", "[rdmap][V-INV-10]") {
  Working w;
  w.common.moves.places = 1;
  const std::uint32_t index = w.begin();
  w.work.until_moved(index);
  CHECK_FALSE(w.complete());
  w.common.moves.places = 0;
  CHECK(w.complete());
  w.work.until_moved(w.begin());
  w.common.moves.gathers = 1;  // begun later
  CHECK(w.complete());
}

TEST_CASE("V-INV-10: nor while octets of whatever queue pair wait for a page of the application's",
          "[rdmap][V-INV-10]") {
  Working w;
  w.work.until_moved(w.begin());
  w.work.done(w.begin());
  w.mover.stuck = true;
  CHECK_FALSE(w.complete());
  w.mover.stuck = false;
  CHECK(w.complete());
  CHECK(w.completed() == Slots{10, 11});
}

TEST_CASE("V-INV-10: what others had submitted is waited for, what they submit later is not", "[rdmap][V-INV-10]") {
  Working w;
  w.mover.pending = true;
  w.work.until_moved(w.begin());
  CHECK_FALSE(w.complete());
  ++w.mover.flushed;  // and they have submitted more
  w.work.until_moved(w.begin());
  CHECK(w.complete());
  CHECK(w.completed() == Slots{10});
  w.mover.stuck = true;
  ++w.mover.flushed;
  CHECK_FALSE(w.complete());
  w.mover.stuck = w.mover.pending = false;
  CHECK(w.complete());
  CHECK(w.completed() == Slots{10, 11});
}

TEST_CASE("V-WR-15: successes are told only if asked for", "[rdmap][V-WR-15]") {
  Working w;
  w.work.done(w.begin(false));
  w.work.done(w.begin());
  CHECK(w.complete());
  CHECK(w.completed() == Slots{11});
}

TEST_CASE("V-CQ-06: a full CQ ends it, with what was told before", "[rdmap][V-CQ-06]") {
  Working w;
  w.app.room = 1;
  for (int i = 0; i < 3; ++i) w.work.done(w.begin());
  CHECK(w.complete());
  CHECK(w.verdict.fault == rdmap::Fault::cq_of_sends);
  CHECK(w.completed() == Slots{10});
  w.app.overflowed = false;
  w.app.room = 10;
  w.work.flush();
  CHECK(w.completed() == Slots{10, 12});
}

TEST_CASE("V-WR-14: what failed is told by the flush, behind those before it", "[rdmap][V-WR-14][V-ERRST-03]") {
  Working w;
  w.work.until_read(w.begin());
  const std::uint32_t bad = w.begin(false);
  w.begin(false);
  w.work.fail(bad, Status::base_bounds);
  w.work.done(bad);
  CHECK_FALSE(w.complete());
  w.work.flush();
  REQUIRE(w.completed() == Slots{10, 11, 12});
  CHECK(w.app.completions[0].status == Status::flushed);
  CHECK(w.app.completions[1].status == Status::base_bounds);
  CHECK(w.app.completions[2].status == Status::flushed);
  CHECK(w.common.flushed_sends == 2);
  CHECK(w.work.empty());
}

TEST_CASE("a request that was never begun is flushed too", "[rdmap][V-ERRST-03]") {
  Working w;
  rdmap::WorkRequest request = write({}, {9}, 0);
  request.slot = 5;
  w.work.flush(request);
  REQUIRE(w.app.completions.size() == 1);
  CHECK(w.app.completions[0].opcode == rdmap::Opcode::write);
  CHECK(w.app.completions[0].slot == 5);
  CHECK(w.app.completions[0].status == Status::flushed);
  CHECK(w.common.flushed_sends == 1);
}

TEST_CASE("V-CS-05: the peer's blame is a Read's whose Response is not here", "[rdmap][V-CS-05]") {
  Working w;
  const std::uint32_t read = w.begin();
  const bool answered = GENERATE(false, true);
  w.work.until_read(read);
  if (answered) w.work.done(read);
  w.work.blame(read, 0x1234);
  w.work.flush();
  REQUIRE(w.app.completions.size() == 1);
  CHECK(w.app.completions[0].status == (answered ? Status::flushed : Status::remote_termination));
  CHECK(w.app.completions[0].detail == (answered ? 0 : 0x1234));
}

TEST_CASE("a gather that failed is known by the last bits of its work's number", "[rdmap]") {
  Working w;
  // Numbers go beyond 15 bits.
  for (std::uint32_t i = 0; i < 0x8002; ++i) {
    w.work.done(w.begin(false));
    w.complete();
  }
  w.begin();
  const std::uint32_t bad = w.begin();
  w.begin();
  CHECK(bad == 0x8003);
  w.work.fail_low(3, Status::access);
  w.work.flush();
  REQUIRE(w.app.completions.size() == 3);
  CHECK(w.app.completions[0].status == Status::flushed);
  CHECK(w.app.completions[1].status == Status::access);
  CHECK(w.app.completions[2].status == Status::flushed);
}

TEST_CASE("as many are begun as the send queue has entries, 4,096 at most", "[rdmap]") {
  const std::uint32_t depth = GENERATE(0u, 1u, 8u, 4096u, 8192u);
  rdmap::Settings settings = default_settings();
  settings.send_depth = depth;
  Working w(settings);
  std::uint32_t count = 0;
  while (!w.work.full()) w.begin(), ++count;
  CHECK(count == (depth == 0 ? 1 : depth == 8192 ? 4096 : depth));
}
