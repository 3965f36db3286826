// Two connections back to back over a wire that loses, repeats and reorders, both ways at once.
// What arrives is what was sent, whatever the wire did, and both ends close.
#include "kit/allocations.hpp"
#include "kit/catch.hpp"
#include "kit/tcp_torture.hpp"

using namespace rnic;
using Plan = test::TorturePlan;
using test::Torture;

namespace {

void survives(const Plan& plan, std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Torture torture(plan, seed);
    const std::string complaint = torture.run();
    INFO("seed " << seed);
    REQUIRE(complaint == "");
  }
}

}  // namespace

TEST_CASE("W-TCP-19: a good wire carries both streams without a retransmission", "[tcp][W-TCP-19]") {
  Torture torture(Plan{}, 1);
  CHECK(torture.run() == "");
  for (int side : {0, 1}) {
    CHECK(torture.end(side).counters().retransmitted == 0);
    CHECK(torture.end(side).counters().timeouts == 0);
  }
  // Every buffer that the connections held has come back.
  CHECK(torture.buffers_out() == torture.in_the_air());
}

TEST_CASE("W-TCP-19: loss of one in a hundred, with SACK", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire.loss_per_1000 = 10;
  survives(plan, 10);
}

TEST_CASE("W-TCP-19: loss, repetition and reordering together", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 50, .repeat_per_1000 = 50, .reorder_per_1000 = 300};
  survives(plan, 10);
}

TEST_CASE("W-TCP-19: one packet in ten lost, with timestamps and NewReno", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire.loss_per_1000 = 100;
  for (auto& options : plan.options) {
    options.timestamps = true;
    options.congestion = tcp::Options::Congestion::newreno;
  }
  survives(plan, 5);
}

TEST_CASE("W-TCP-19: loss without SACK", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire.loss_per_1000 = 30;
  plan.options[0].sack = false;
  survives(plan, 5);
}

TEST_CASE("W-TCP-27: windows smaller than a segment, slow readers and loss", "[tcp][W-TCP-27]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  for (auto& options : plan.options) options.receive_window_bytes = 1000;
  plan.bytes[0] = plan.bytes[1] = 100'000;
  plan.reads_per_1000 = 300;
  survives(plan, 5);
}

TEST_CASE("W-TCP-27: windows of a hundred octets", "[tcp][W-TCP-27]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 10, .repeat_per_1000 = 10, .reorder_per_1000 = 100};
  for (auto& options : plan.options) options.receive_window_bytes = 100;
  plan.bytes[0] = plan.bytes[1] = 20'000;
  plan.reads_per_1000 = 500;
  survives(plan, 3);
}

TEST_CASE("W-TCP-02: small segments, few slots and loss", "[tcp][W-TCP-02]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  for (auto& options : plan.options) {
    options.send_segments_max = 16;
    options.out_of_order_segments_max = 4;
    options.receive_segments_max = 8;
  }
  plan.bytes[0] = plan.bytes[1] = 100'000;
  plan.segment_max = 60;
  plan.reads_per_1000 = 300;
  survives(plan, 5);
}

TEST_CASE("W-TCP-07: the path's MTU shrinks and grows under way", "[tcp][W-TCP-07]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  plan.mss_changes = true;
  plan.bytes[0] = plan.bytes[1] = 300'000;
  survives(plan, 5);
}

// Rings take memory as they grow, each time twice as much, and else nothing does.
TEST_CASE("W-TCP-19: next to nothing is allocated while streams are carried", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  Torture torture(plan, 3);
  const std::uint64_t before = test::allocations();
  const std::string complaint = torture.run();
  const std::uint64_t after = test::allocations();
  CHECK(complaint == "");
  // Two ends, three rings and a list each, which double a few times.
  CHECK(after - before < 64);
}
