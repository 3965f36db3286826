// Seeds of the random workload, every one with all checkers. A seed that fails here is replayed by
// `rnic-replay --seed N --verbose`.
#include "kit/catch.hpp"
#include "sim/workload.hpp"

namespace {
void run_seeds(std::uint64_t first, std::uint64_t count, std::uint32_t mtu = 0) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const rnic::sim::Report report = rnic::sim::run_workload(seed, false, rnic::sim::Danger::none, mtu);
    INFO("rnic-replay --seed " << seed << " --verbose" << (mtu != 0 ? " --mtu " + std::to_string(mtu) : ""));
    INFO(report.story);
    CHECK(report.complaint == "");
  }
}

// The same seeds once with and once without the wire between queue pairs that could do without it.
void run_both_ways(std::uint64_t first, std::uint64_t count) {
  std::uint64_t direct = 0, compared = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    using rnic::sim::Way;
    const auto run = [&](Way way) {
      return rnic::sim::run_workload(seed, false, rnic::sim::Danger::none, 0, nullptr, way);
    };
    const rnic::sim::Report wire = run(Way::wire), without = run(Way::direct);
    INFO("rnic-replay --local --seed " << seed << " --verbose");
    INFO(without.story);
    CHECK(without.complaint == "");
    direct += without.direct;
    if (!wire.in_peace || !without.in_peace) continue;
    ++compared;
    CHECK(wire.seen == without.seen);
  }
  CHECK(direct > count);
  CHECK(compared > count / 3);
}
}  // namespace

TEST_CASE("random work looks the same with and without the wire: seeds 1 to 500", "[sim][local][V-ORD-09][V-ORD-02]") {
  run_both_ways(1, 500);
}
TEST_CASE("random work looks the same with and without the wire: seeds 501 to 1000",
          "[sim][local][V-ORD-09][V-ORD-02]") {
  run_both_ways(501, 500);
}
TEST_CASE("random work over random wires: seeds 1 to 500", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") { run_seeds(1, 500); }
TEST_CASE("random work over random wires: seeds 501 to 1000", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(501, 500);
}
TEST_CASE("random work over random wires: seeds 1001 to 1500", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(1001, 500);
}
TEST_CASE("random work over random wires: seeds 1501 to 2000", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(1501, 500);
}
TEST_CASE("random work over random wires: seeds 2001 to 2500", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(2001, 500);
}
TEST_CASE("random work over random wires: seeds 2501 to 3000", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(2501, 500);
}
TEST_CASE("random work over random wires: seeds 3001 to 3500", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(3001, 500);
}
TEST_CASE("random work over random wires: seeds 3501 to 4000", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(3501, 500);
}
TEST_CASE("random work over random wires: seeds 4001 to 4500", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(4001, 500);
}
TEST_CASE("random work over random wires: seeds 4501 to 5000", "[sim][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(4501, 500);
}
TEST_CASE("random work over random wires of MTU 65535: seeds 1 to 500", "[sim][large][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(1, 500, 65'535);
}
TEST_CASE("random work over random wires of MTU 65535: seeds 501 to 1000",
          "[sim][large][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(501, 500, 65'535);
}
TEST_CASE("random work over random wires of MTU 65535: seeds 1001 to 1500",
          "[sim][large][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(1001, 500, 65'535);
}
TEST_CASE("random work over random wires of MTU 65535: seeds 1501 to 2000",
          "[sim][large][V-ORD-09][V-ORD-02][V-ORD-05]") {
  run_seeds(1501, 500, 65'535);
}
