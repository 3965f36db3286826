// Runs seeds of the simulator's random workload and says what went wrong, or prints all that
// happened under one of them.
//
//   rnic-replay --seed N [--verbose]
//   rnic-replay --from N --count M [--every K]
//   rnic-replay --digest FIRST LAST
//
// --digest: a line for each seed with one number for all its frames, completions, events and changes of state, and
// their times. Two builds whose lines are the same do the same.
//
// --attacker off-path|on-path: with somebody who wants it to fail. --mtu N: in place of the one it chooses. --local:
// the two RNICs are of one worker, and queue pairs that are each other's peers use the wire for what they have to
// alone.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim/workload.hpp"

int main(int argc, char** argv) {
  std::uint64_t first = 1, count = 1, every = 1;
  auto danger = rnic::sim::Danger::none;
  std::uint32_t mtu = 0;
  auto way = rnic::sim::Way::wire;
  bool verbose = false, digests = false, help = argc < 2;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--seed") == 0 && more) {
      first = std::strtoull(argv[++i], nullptr, 0);
    } else if (std::strcmp(argv[i], "--from") == 0 && more) {
      first = std::strtoull(argv[++i], nullptr, 0);
    } else if (std::strcmp(argv[i], "--count") == 0 && more) {
      count = std::strtoull(argv[++i], nullptr, 0);
    } else if (std::strcmp(argv[i], "--every") == 0 && more) {
      every = std::max<std::uint64_t>(std::strtoull(argv[++i], nullptr, 0), 1);
    } else if (std::strcmp(argv[i], "--attacker") == 0 && more && std::strcmp(argv[i + 1], "off-path") == 0) {
      danger = rnic::sim::Danger::off_path;
      ++i;
    } else if (std::strcmp(argv[i], "--attacker") == 0 && more && std::strcmp(argv[i + 1], "on-path") == 0) {
      danger = rnic::sim::Danger::on_path;
      ++i;
    } else if (std::strcmp(argv[i], "--mtu") == 0 && more) {
      mtu = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 0));
    } else if (std::strcmp(argv[i], "--digest") == 0 && i + 2 < argc) {
      digests = true;
      first = std::strtoull(argv[++i], nullptr, 0);
      const std::uint64_t last = std::strtoull(argv[++i], nullptr, 0);
      count = last >= first ? last - first + 1 : 0;
    } else if (std::strcmp(argv[i], "--local") == 0) {
      way = rnic::sim::Way::direct;
    } else if (std::strcmp(argv[i], "--verbose") == 0) {
      verbose = true;
    } else {
      help = true;
    }
  }
  if (help) {
    std::fprintf(
        stderr,
        "usage: rnic-replay --seed N [--verbose] | --from N --count M [--every K] | --digest FIRST LAST\n"
        "       with --attacker off-path|on-path: somebody wants it to fail; --mtu N: over links of that MTU;\n"
        "       --local: the two are of one worker, and use the wire for what they have to\n");
    return 2;
  }
  std::uint64_t bad = 0;
  std::uint64_t ran = 0;
  for (std::uint64_t seed = first; seed < first + count; seed += every) {
    ++ran;
    rnic::sim::Digest digest;
    const rnic::sim::Report report =
        rnic::sim::run_workload(seed, verbose, danger, mtu, digests ? &digest : nullptr, way);
    if (digests) {
      bad += report.complaint.empty() ? 0 : 1;
      std::printf("%llu %016llx%s%s\n", static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(digest.value()), report.complaint.empty() ? "" : " ",
                  report.complaint.c_str());
      continue;
    }
    if (report.complaint.empty() && count > 1) continue;
    bad += report.complaint.empty() ? 0 : 1;
    std::printf("seed %llu: %s\n  %s\n  %llu steps, %llu frames, %llu bytes, %lld us of simulated time\n",
                static_cast<unsigned long long>(seed), report.complaint.empty() ? "well" : report.complaint.c_str(),
                report.story.c_str(), static_cast<unsigned long long>(report.steps),
                static_cast<unsigned long long>(report.frames), static_cast<unsigned long long>(report.bytes),
                static_cast<long long>(report.simulated_us));
    std::fflush(stdout);
  }
  if (count > 1 && !digests)
    std::printf("%llu seeds, %llu bad\n", static_cast<unsigned long long>(ran), static_cast<unsigned long long>(bad));
  return bad == 0 ? 0 : 1;
}
