// All that a connection has at once, drawn by lot: every option, on a wire with a weather. What one
// part decides must not be what another cannot live with: a probe of the path's MTU that is lost in a
// recovery that was for nothing while the window is shut.
#include <random>

#include "kit/catch.hpp"
#include "kit/tcp_torture.hpp"

using namespace rnic;
using test::Torture;
using test::TorturePlan;

namespace {

class Lot {
 public:
  explicit Lot(std::uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15u + 1) {}
  bool chance(std::uint32_t in_100) { return random_() % 100 < in_100; }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[random_() % list.size()];
  }

 private:
  std::mt19937_64 random_;
};

tcp::Options options_by(Lot& lot) {
  tcp::Options options;
  options.congestion = lot.one_of({tcp::Algorithm::newreno, tcp::Algorithm::cubic, tcp::Algorithm::dctcp});
  options.ecn = lot.one_of({tcp::EcnUse::off, tcp::EcnUse::passive, tcp::EcnUse::on});
  options.sack = lot.chance(80);
  options.timestamps = lot.chance(50);
  options.window_scale = lot.chance(80);
  options.tail_loss_probe = lot.chance(80);
  options.nagle = lot.chance(25);
  options.mss_bytes = lot.one_of({536u, 1000u, 1460u});
  options.receive_window_bytes = lot.one_of({600u, 5'000u, 40'000u, 1u << 20});
  options.send_segments_max = lot.one_of({16u, 64u, 1024u});
  options.out_of_order_segments_max = lot.one_of({64u, 1024u});
  options.receive_segments_max = lot.one_of({64u, 1024u});
  if (lot.chance(30)) options.keepalive = seconds(90);
  if (lot.chance(30)) options.rto_min = milliseconds(5);
  return options;
}

TorturePlan plan_by(std::uint64_t seed) {
  Lot lot(seed);
  TorturePlan plan;
  for (auto& options : plan.options) options = options_by(lot);
  plan.bytes[0] = lot.one_of({0u, 100u, 20'000u, 150'000u});
  plan.bytes[1] = lot.one_of({0u, 100u, 20'000u, 150'000u});
  plan.segment_max = lot.one_of({50u, 700u, 1460u});
  plan.reads_per_1000 = lot.one_of({100u, 500u, 1000u});
  plan.holds_per_1000 = lot.one_of({0u, 0u, 300u});
  plan.both_call = lot.chance(20);
  auto& wire = plan.wire;
  wire.loss_per_1000 = lot.one_of({0u, 10u, 50u});
  wire.repeat_per_1000 = lot.one_of({0u, 0u, 50u});
  wire.reorder_per_1000 = lot.one_of({0u, 0u, 100u, 500u});
  wire.delay = lot.one_of({microseconds(5), microseconds(500), milliseconds(20)});
  wire.reorder_by = lot.one_of({microseconds(50), milliseconds(2), milliseconds(40)});
  wire.mark_per_1000 = lot.one_of({0u, 50u, 500u});
  if (lot.chance(50)) {
    wire.every = lot.one_of({milliseconds(500), seconds(5)});
    wire.silent_for = lot.one_of({Duration{}, milliseconds(20), milliseconds(200)});
    wire.late_by = lot.one_of({Duration{}, milliseconds(30), milliseconds(300)});
    if (lot.chance(50)) wire.path_sizes = {540, 1200, 1300, 1460};
    wire.routers_tell = lot.chance(50);
  }
  return plan;
}

}  // namespace

TEST_CASE("W-TCP-19: everything at once, by lot", "[tcp][mixture][W-TCP-19]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Torture torture(plan_by(seed), seed);
    const std::string complaint = torture.run();
    INFO("seed " << seed);
    REQUIRE(complaint == "");
    // Some are slow: windows of one segment that wait for a timer each time. None may take for ever.
    REQUIRE(torture.took() < seconds(24 * 3600));
  }
}

TEST_CASE("W-TCP-19: everything at once, and runs of segments", "[tcp][mixture][W-TCP-19]") {
  std::uint64_t runs = 0;
  for (std::uint64_t seed = 1000; seed < 1300; ++seed) {
    TorturePlan plan = plan_by(seed);
    for (auto& options : plan.options) options.run_bytes_max = 65'495;
    Torture torture(plan, seed);
    const std::string complaint = torture.run();
    INFO("seed " << seed);
    REQUIRE(complaint == "");
    REQUIRE(torture.took() < seconds(24 * 3600));
    runs += torture.runs_sent();
  }
  CHECK(runs > 1000);
}
