// What TCP gets through bad paths, in simulated time: a table, the same on every machine.
//
//   tcp-goodput                  every row, the mean of 10 seeds
//   tcp-goodput --seeds 3 WORD   rows whose name holds WORD
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kit/tcp_path.hpp"

using namespace rnic;
using test::PathOptions;
using test::TcpPath;

namespace {

struct Row {
  std::string name;
  PathOptions path;
  std::uint64_t bytes = 20'000'000;
  std::uint64_t message_bytes = 0;  // 0: one stream
};

std::vector<Row> rows() {
  std::vector<Row> all;
  struct Rate {
    const char* name;
    double gbit_per_s;
    Duration delay;
  };
  constexpr Rate kRates[] = {
      {"10G 100us", 10, microseconds(50)}, {"10G   1ms", 10, microseconds(500)}, {"1G   20ms", 1, milliseconds(10)}};
  for (const Rate& rate : kRates) {
    PathOptions clean{.gbit_per_s = rate.gbit_per_s, .delay = rate.delay};
    const auto add = [&](const std::string& name, auto&& change, std::uint64_t bytes = 20'000'000,
                         std::uint64_t message_bytes = 0) {
      PathOptions path = clean;
      change(path);
      all.push_back({std::string(rate.name) + " " + name, path, bytes, message_bytes});
    };
    const Duration rtt = rate.delay * 2;
    add("clean", [](PathOptions&) {});
    add("loss 0.1%", [](PathOptions& p) { p.loss_per_100000 = 100; });
    add("loss 1%", [](PathOptions& p) { p.loss_per_100000 = 1'000; });
    add(
        "loss 3%", [](PathOptions& p) { p.loss_per_100000 = 3'000; }, 5'000'000);
    add(
        "loss 10%", [](PathOptions& p) { p.loss_per_100000 = 10'000; }, 1'000'000);
    add("reorder 3% by RTT/8", [&](PathOptions& p) { p.late_per_1000 = 30, p.late_by = rtt / 8; });
    add("reorder 3% by RTT/2", [&](PathOptions& p) { p.late_per_1000 = 30, p.late_by = rtt / 2; });
    add("reorder 30% by RTT/2", [&](PathOptions& p) { p.late_per_1000 = 300, p.late_by = rtt / 2; });
    add("reorder 3% by RTT", [&](PathOptions& p) { p.late_per_1000 = 30, p.late_by = rtt; });
    add("loss 0.1% reorder 3% by RTT/4",
        [&](PathOptions& p) { p.loss_per_100000 = 100, p.late_per_1000 = 30, p.late_by = rtt / 4; });
    add("loss 1% reorder 3% by RTT/2",
        [&](PathOptions& p) { p.loss_per_100000 = 1'000, p.late_per_1000 = 30, p.late_by = rtt / 2; });
    add("repeat 5%", [](PathOptions& p) { p.repeat_per_1000 = 50; });
    add("short queue", [](PathOptions& p) { p.queue_bytes = 50'000; });
    add(
        "stalls of 300 ms", [](PathOptions& p) { p.stall_every = milliseconds(500), p.stall = milliseconds(300); },
        200'000'000);
    add(
        "64K messages, loss 1%", [](PathOptions& p) { p.loss_per_100000 = 1'000; }, 5'000'000, 65'536);
    add(
        "4K messages, loss 1%", [](PathOptions& p) { p.loss_per_100000 = 1'000; }, 1'000'000, 4'096);
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  unsigned seeds = 10;
  std::string word;
  auto congestion = tcp::Options::Congestion::cubic;
  tcp::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--seeds" && i + 1 < argc)
      seeds = static_cast<unsigned>(std::atoi(argv[++i]));
    else if (text == "--newreno")
      congestion = tcp::Options::Congestion::newreno;
    else if (text == "--no-sack")
      options.sack = false;
    else if (text == "--timestamps")
      options.timestamps = true;
    else
      word = text;
  }
  options.congestion = congestion;
  std::printf("%-42s %10s %8s %8s %8s %8s\n", "path", "Mbit/s", "again %", "useless", "timeouts", "probes");
  for (const Row& row : rows()) {
    if (row.name.find(word) == std::string::npos) continue;
    double goodput = 0, again = 0, useless = 0, timeouts = 0, probes = 0;
    for (unsigned seed = 1; seed <= seeds; ++seed) {
      PathOptions path = row.path;
      path.seed = seed;
      TcpPath run(path, options, options);
      if (!run.carry(row.bytes, row.message_bytes)) {
        std::printf("%-42s did not end, seed %u\n", row.name.c_str(), seed);
        return 1;
      }
      const auto report = run.report();
      goodput += report.goodput_mbit_per_s;
      const auto segments = static_cast<double>(row.bytes) / 1460;
      again += 100 * static_cast<double>(report.sender.retransmitted) / segments;
      useless += 100 * static_cast<double>(report.receiver.duplicates) / segments;
      timeouts += static_cast<double>(report.sender.timeouts);
      probes += static_cast<double>(report.sender.tail_probes);
    }
    std::printf("%-42s %10.1f %8.2f %8.2f %8.1f %8.1f\n", row.name.c_str(), goodput / seeds, again / seeds,
                useless / seeds, timeouts / seeds, probes / seeds);
    std::fflush(stdout);
  }
  return 0;
}
