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

// What was sent is then beyond an edge that is behind it, in both directions, and the ACKs of both stand there.
TEST_CASE("W-TCP-01: somebody on the path takes windows back in both directions", "[tcp][W-TCP-01]") {
  Plan plan;
  plan.wire = {.delay = milliseconds(1), .every = milliseconds(5), .takes_windows_back = true};
  for (auto& options : plan.options) options.receive_window_bytes = 60'000;
  SECTION("often") { plan.wire.every = milliseconds(2); }
  SECTION("with loss, and slow readers") {
    plan.wire.loss_per_1000 = 20;
    plan.reads_per_1000 = 300;
  }
  SECTION("of runs") {
    for (auto& options : plan.options) options.run_bytes_max = 65'495;
  }
  SECTION("without SACK") { plan.options[0].sack = false; }
  survives(plan, 60);
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

// ---- runs of segments ----

namespace {

Plan with_runs() {
  Plan plan;
  for (auto& options : plan.options) options.run_bytes_max = 65'495;
  return plan;
}

}  // namespace

TEST_CASE("W-TCP-19: runs over a good wire, without a retransmission", "[tcp][W-TCP-19]") {
  Torture torture(with_runs(), 1);
  CHECK(torture.run() == "");
  for (int side : {0, 1}) CHECK(torture.end(side).counters().retransmitted == 0);
  CHECK(torture.runs_sent() > 50);
  CHECK(torture.buffers_out() == torture.in_the_air());
}

TEST_CASE("W-TCP-19: runs over wires that lose, repeat, reorder and mark", "[tcp][W-TCP-19]") {
  Plan plan = with_runs();
  SECTION("some loss") { plan.wire.loss_per_1000 = 10; }
  SECTION("all of it") { plan.wire = {.loss_per_1000 = 50, .repeat_per_1000 = 50, .reorder_per_1000 = 300}; }
  SECTION("with timestamps, NewReno and Nagle") {
    plan.wire.loss_per_1000 = 50;
    for (auto& options : plan.options) {
      options.timestamps = options.nagle = true;
      options.congestion = tcp::Options::Congestion::newreno;
    }
  }
  SECTION("with ECN") {
    plan.wire = {.loss_per_1000 = 10, .mark_per_1000 = 30};
    for (auto& options : plan.options) options.ecn = tcp::EcnUse::on;
  }
  SECTION("with silence and lateness") {
    plan.wire = {
        .loss_per_1000 = 5, .every = milliseconds(500), .silent_for = milliseconds(200), .late_by = milliseconds(300)};
  }
  SECTION("over paths that become narrow, which routers tell") {
    plan.wire = {.loss_per_1000 = 10, .every = milliseconds(20), .path_sizes = {1460, 1000, 600}, .routers_tell = true};
  }
  SECTION("over paths that become narrow without a word") {
    plan.wire = {.loss_per_1000 = 10, .every = seconds(30), .path_sizes = {1460, 1300}};
  }
  SECTION("from ports whose MTU changes") {
    plan.wire.loss_per_1000 = 10;
    plan.mss_changes = true;
  }
  SECTION("to slow readers with small windows") {
    plan.wire = {.loss_per_1000 = 20, .reorder_per_1000 = 100};
    for (auto& options : plan.options) options.receive_window_bytes = 5000;
    plan.bytes[0] = plan.bytes[1] = 200'000;
    plan.reads_per_1000 = 300;
  }
  SECTION("on a long path, with windows that grow") {
    plan.wire = {.loss_per_1000 = 1, .delay = milliseconds(5)};
    for (auto& options : plan.options) options.window_max_bytes = 8 << 20;
    plan.bytes[0] = plan.bytes[1] = 8'000'000;
  }
  survives(plan, 6);
}
