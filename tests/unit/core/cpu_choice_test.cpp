#include "core/cpu_choice.hpp"

#include <array>

#include "kit/catch.hpp"

using namespace rnic;
using core::CpuChoice;

namespace {

constexpr Instant kStart{5'000'000'000};
constexpr Duration kOut{-1};

Instant at_ms(std::int64_t ms) { return kStart + milliseconds(ms); }

// Looks at `ms`, where each core has been idle for so many milliseconds.
template <std::size_t N>
int look(CpuChoice& choice, std::int64_t ms, const std::array<std::int64_t, N>& idle_ms) {
  REQUIRE(choice.wants_look(at_ms(ms)));
  std::array<Duration, N> idle;
  for (std::size_t i = 0; i < N; ++i) idle[i] = idle_ms[i] < 0 ? kOut : milliseconds(idle_ms[i]);
  return choice.choose(idle, at_ms(ms));
}

using Two = std::array<std::int64_t, 2>;
using Four = std::array<std::int64_t, 4>;

}  // namespace

TEST_CASE("a worker that shares its ringer's core moves to one that has been idle, after two looks") {
  CpuChoice choice;
  CHECK(look(choice, 0, Two{-1, 1000}) == -1);
  CHECK_FALSE(choice.wants_look(at_ms(99)));
  SECTION("idle all the time") { CHECK(look(choice, 100, Two{-1, 1100}) == 1); }
  SECTION("idle for three quarters of it") { CHECK(look(choice, 100, Two{-1, 1075}) == 1); }
  SECTION("idle for a little less") { CHECK(look(choice, 100, Two{-1, 1074}) == -1); }
  SECTION("busy") { CHECK(look(choice, 100, Two{-1, 1000}) == -1); }
  SECTION("as many looks as the kernel's count allows") { CHECK(look(choice, 400, Two{-1, 1400}) == 1); }
}

TEST_CASE("of several idle cores the most idle is taken, of those on which the worker may run") {
  CpuChoice choice;
  CHECK(look(choice, 0, Four{0, -1, 0, 0}) == -1);
  SECTION("all may be") { CHECK(look(choice, 100, Four{80, -1, 99, 90}) == 2); }
  SECTION("it may not any more") { CHECK(look(choice, 100, Four{80, -1, -1, 90}) == 3); }
  SECTION("it may not, whatever it was") { CHECK(look(choice, 100, Four{-1, 100, -1, -1}) == -1); }
}

TEST_CASE("a machine of one core, or a worker that may run on one only, moves nowhere") {
  CpuChoice choice;
  for (int i = 0; i < 3; ++i) {
    CHECK(look(choice, i * 100'000, std::array<std::int64_t, 1>{-1}) == -1);
    CHECK(look(choice, i * 100'000 + 100, std::array<std::int64_t, 1>{-1}) == -1);
  }
}

TEST_CASE("a look that is old is not compared with") {
  CpuChoice choice;
  CHECK(look(choice, 0, Two{-1, 0}) == -1);
  CHECK(look(choice, 401, Two{-1, 401}) == -1);
  CHECK(look(choice, 501, Two{-1, 501}) == 1);
}

TEST_CASE("where no core is idle it is looked ever more rarely, every three seconds at last") {
  CpuChoice choice;
  std::int64_t ms = 0;
  std::vector<std::int64_t> pauses;
  for (int i = 0; i < 8; ++i) {
    CHECK(look(choice, ms, Two{-1, 0}) == -1);
    ms += 100;
    CHECK(look(choice, ms, Two{-1, 0}) == -1);
    std::int64_t pause = 1;
    while (!choice.wants_look(at_ms(ms + pause))) ++pause;
    pauses.push_back(pause);
    ms += pause;
  }
  CHECK(pauses == std::vector<std::int64_t>{200, 400, 800, 1600, 3000, 3000, 3000, 3000});
}

TEST_CASE("ringers on every core do not chase a worker: a move that does not last makes the next come later") {
  CpuChoice choice;
  std::int64_t ms = 0;
  int moves = 0;
  // Both cores idle whenever looked at, and it shares a core again at once.
  for (; ms < 30'000; ++ms)
    if (choice.wants_look(at_ms(ms))) {
      const std::array<Duration, 2> idle{milliseconds(ms), kOut};
      if (choice.choose(idle, at_ms(ms)) >= 0) ++moves;
    }
  CHECK(moves >= 2);
  CHECK(moves <= 16);
  // One that lasted for long begins anew.
  CHECK(look(choice, ms + 10'000, Two{-1, 0}) == -1);
  CHECK(look(choice, ms + 10'100, Two{-1, 100}) == 1);
  CHECK(choice.wants_look(at_ms(ms + 10'200)));
}

namespace {

constexpr std::array<bool, 4> kOpen{true, false, true, true};  // the worker sits on core 1

// No core was idle at two looks, the second at 100 ms.
CpuChoice crowded() {
  CpuChoice choice;
  CHECK(look(choice, 0, Four{0, -1, 0, 0}) == -1);
  CHECK(look(choice, 100, Four{0, -1, 0, 0}) == -1);
  return choice;
}

void ring_here(CpuChoice& choice, unsigned times, std::int64_t ms) {
  for (unsigned i = 0; i < times; ++i) choice.on_ring(1, true, at_ms(ms));
}

}  // namespace

TEST_CASE("where no core is idle, a worker moves to one from which nobody rings, if it is rung from its own often") {
  CpuChoice choice = crowded();
  CHECK(choice.choose_without_ringer(kOpen, at_ms(100)) == -1);  // begins to count; long ago is no answer
  ring_here(choice, CpuChoice::kCrowdRings - 1, 105);
  CHECK_FALSE(choice.is_crowded(at_ms(120)));
  ring_here(choice, 1, 110);
  CHECK_FALSE(choice.is_crowded(at_ms(119)));
  CHECK(choice.is_crowded(at_ms(120)));
  SECTION("the first of them") { CHECK(choice.choose_without_ringer(kOpen, at_ms(120)) == 0); }
  SECTION("not one from which somebody rang") {
    choice.on_ring(0, false, at_ms(115));
    CHECK(choice.choose_without_ringer(kOpen, at_ms(120)) == 2);
  }
  SECTION("nowhere, where each has a ringer") {
    for (const std::uint32_t cpu : {0u, 2u, 3u}) choice.on_ring(cpu, false, at_ms(115));
    CHECK(choice.choose_without_ringer(kOpen, at_ms(120)) == -1);
  }
  SECTION("who rang before the count began does not matter any more") {
    choice.on_ring(0, false, at_ms(115));
    CHECK(choice.choose_without_ringer(kOpen, at_ms(120)) == 2);
    ring_here(choice, CpuChoice::kCrowdRings, 130);
    CHECK(choice.choose_without_ringer(kOpen, at_ms(140)) == 0);
  }
  SECTION("numbers of cores that no machine has are nobody's") {
    for (const std::uint32_t cpu : {1024u, 0xFFFFFFFFu}) choice.on_ring(cpu, false, at_ms(115));
    CHECK(choice.choose_without_ringer(kOpen, at_ms(120)) == 0);
  }
  SECTION("not for rings that took long to come") { CHECK(choice.choose_without_ringer(kOpen, at_ms(501)) == -1); }
}

TEST_CASE("rings from a worker's own core are no crowd before no other core was found idle, nor long after") {
  CpuChoice fresh;
  ring_here(fresh, CpuChoice::kCrowdRings, 0);
  CHECK_FALSE(fresh.is_crowded(at_ms(50)));
  CpuChoice choice = crowded();
  ring_here(choice, CpuChoice::kCrowdRings, 100);
  CHECK(choice.is_crowded(at_ms(699)));
  CHECK_FALSE(choice.is_crowded(at_ms(700)));
}

TEST_CASE("idle times are read as the kernel writes them, waits for disks and the time of the nice counted") {
  const std::string_view stat =
      "cpu  10 0 10 900 50 0 0 0 0 0\n"
      "cpu0 5 0 5 100 20 0 1 2 0 0\n"
      "cpu2 5 1 5 800 30 0 0 0 0 0\n"
      "intr 12345 0 0\nctxt 99\n";
  std::array<Duration, 4> idle;
  core::read_idle_times(stat, milliseconds(10), idle);
  CHECK(idle == std::array<Duration, 4>{milliseconds(1200), kOut, milliseconds(8310), kOut});
}

TEST_CASE("of lines that make no sense no idle time is read, and none beyond the cores that are asked for") {
  std::array<Duration, 3> three{kOut, kOut, seconds(7)};
  const std::span<Duration> idle = std::span(three).first(2);
  for (const std::string_view stat :
       {"", "cpu", "cpu0", "cpu0 1 2 3", "cpu0 1 2 3 4", "cpux 1 2 3 4 5", "cpu2 1 2 3 4 5", "cpu0 1 2 3 x 5",
        "cpu0 1 2 3 99999999999999999999999999 5", "cpu0 1 2 3 9000000000000000000 5", "cpu0 1 2 3 90000000000000000 5",
        "cpu-1 1 2 3 4 5"}) {
    INFO(stat);
    core::read_idle_times(stat, milliseconds(10), idle);
    CHECK(three == std::array<Duration, 3>{kOut, kOut, seconds(7)});
  }
  core::read_idle_times("cpu1 1 2 3 4 5", milliseconds(10), idle);  // the last line without an end
  CHECK(idle[1] == milliseconds(110));
}
