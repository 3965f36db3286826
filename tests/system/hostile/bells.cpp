// Doorbells: of all queues at once, for ever; and of many queue pairs in Error, whose queues have work.
#include <algorithm>
#include <atomic>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

// All words of the context's area, as an application may set them, whether there are such queues or not.
void ring_all(bare::Application& app) {
  for (std::uint32_t worker = 0; worker < app.opened.worker_count; ++worker) {
    rnic_doorbells& area = app.doorbells[worker];
    for (std::uint64_t& word : area.words) std::atomic_ref(word).store(~std::uint64_t{0}, std::memory_order_relaxed);
    for (std::uint64_t& word : area.summary) std::atomic_ref(word).store(~std::uint64_t{0}, std::memory_order_relaxed);
    std::atomic_ref(area.any).store(1);
  }
}

}  // namespace

int bells(const Options& options) {
  Bench bench(options.socket);
  // Some are queues' bells, most are nobody's.
  for (int i = 0; i < 16; ++i) bench.app.queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 16);
  attacking();
  const Seconds start = now();
  std::uint64_t rounds = 0;
  for (; now() - start < options.seconds; ++rounds) {
    ring_all(bench.app);
    bench.app.ring(0, 0);
  }
  say("all bells rung " + std::to_string(rounds) + " times");
  return 0;
}

int loose(const Options& options) {
  Bench bench(options.socket);
  std::vector<bare::QueuePair> qps;
  const std::uint32_t most = options.count != 0 ? options.count : 5000;
  std::string why = "never refused";
  while (qps.size() < most) {
    bare::Answer made = bench.app.try_queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 1);
    if (!made.good()) {
      why = made.words();
      break;
    }
    qps.push_back(bench.app.adopt(std::move(made)));
    if (!bench.app.to_error(qps.back().number).good()) bare::fail("MODIFY_QP to Error");
  }
  attacking();
  const Seconds start = now();
  std::uint64_t rounds = 0;
  for (; now() - start < options.seconds; ++rounds)
    for (bare::QueuePair& qp : qps) {
      bench.app.write_entry(qp, rnic_sqe{}, {});  // flushed each
      bench.app.publish(qp.send);
    }
  say(std::to_string(qps.size()) + " queue pairs (" + why + "), rung " + std::to_string(rounds) + " times each");
  return 0;
}

}  // namespace rnic::hostile
