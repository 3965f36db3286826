// Control is kept at long answers, one behind the other: whatever else it has to tell is late.
#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

int busy(const Options& options) {
  Bench bench(options.socket);
  const std::uint32_t most = options.count != 0 ? options.count : 2000;
  for (std::uint32_t made = 0; made < most; ++made)
    if (!bench.app.try_queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 1).good()) break;
  attacking();
  const Seconds start = now();
  std::uint64_t answers = 0;
  rnic_show request{};
  std::memcpy(request.what, "qp", 2);
  for (; now() - start < options.seconds; ++answers)
    if (!bench.app.control.ask(RNIC_SHOW, request).good()) return 0;  // the daemon is gone
  say(std::to_string(answers) + " answers");
  return 0;
}

}  // namespace rnic::hostile
