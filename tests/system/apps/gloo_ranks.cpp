// A rank of a run of gloo's over its ibverbs transport: allreduce in two ways and broadcast, each number checked.
//
//   gloo_ranks RANK RANKS DIRECTORY DEVICE [ROUNDS]
//
// Ranks find each other by files in DIRECTORY, and connect queue pairs of DEVICE. Ends with `rank R: sent at least N
// octets`.
#include <gloo/algorithm.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<std::int64_t>;

// What an algorithm has sent last may not have completed when it has run, and gloo aborts where it is destroyed before
// that: so all of them stay to the end.
struct Step {
  Numbers numbers;
  std::unique_ptr<gloo::Algorithm> algorithm;
  std::function<std::int64_t(std::size_t)> before, after;
  const char* name;

  void run() {
    for (std::size_t at = 0; at < numbers.size(); ++at) numbers[at] = before(at);
    algorithm->run();
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      if (numbers[at] == after(at)) continue;
      std::printf("%s of %zu: not what it is to be\n", name, numbers.size());
      std::exit(1);
    }
  }
};

// A new one tells its peers of its memory, in a queue of eight, without a look at how full that is: so each is run
// before the next is made.
class Steps {
 public:
  explicit Steps(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  // Each gives (rank + 1) times the place.
  template <typename Algorithm>
  void add_sum(std::size_t count, const char* name) {
    const std::int64_t mine = context_->rank + 1, all = context_->size * (context_->size + 1) / 2;
    Step& step = add(count, name);
    step.algorithm = std::make_unique<Algorithm>(context_, std::vector{step.numbers.data()}, static_cast<int>(count));
    step.before = [mine](std::size_t at) { return mine * static_cast<std::int64_t>(at + 1); };
    step.after = [all](std::size_t at) { return all * static_cast<std::int64_t>(at + 1); };
    step.run();
  }
  void add_broadcast(std::size_t count, int root) {
    Step& step = add(count, "broadcast");
    step.algorithm = std::make_unique<gloo::BroadcastOneToAll<std::int64_t>>(context_, std::vector{step.numbers.data()},
                                                                             static_cast<int>(count), root);
    step.after = [root](std::size_t at) { return static_cast<std::int64_t>(at) * 3 + root; };
    step.before = [has = context_->rank == root, value = step.after](std::size_t at) { return has ? value(at) : -1; };
    step.run();
  }
  void run() {
    for (Step& step : steps_) step.run();
  }

 private:
  Step& add(std::size_t count, const char* name) {
    Step& step = steps_.emplace_back();
    step.numbers.resize(count);
    step.name = name;
    return step;
  }

  std::shared_ptr<gloo::Context> context_;
  std::list<Step> steps_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]), rounds = argc > 5 ? std::atoi(argv[5]) : 3;
  gloo::rendezvous::FileStore store(argv[3]);
  std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::ibverbs::CreateDevice({.name = argv[4], .port = 1, .index = 1});
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  Steps steps(context);
  constexpr std::size_t kLargest = 100'000;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, kLargest}) {
    steps.add_sum<gloo::AllreduceRingChunked<std::int64_t>>(count, "allreduce, ring");
    steps.add_sum<gloo::AllreduceHalvingDoubling<std::int64_t>>(count, "allreduce, halving and doubling");
    for (int root = 0; root < size; ++root) steps.add_broadcast(count, root);
  }
  for (int round = 1; round < rounds; ++round) steps.run();
  // Who has all that it waits for may have peers who have not.
  std::vector<std::string> all;
  for (int peer = 0; peer < size; ++peer) all.push_back("done" + std::to_string(peer));
  store.set(all[static_cast<std::size_t>(rank)], {'y'});
  store.wait(all);
  // Of each allreduce a rank sends half of the numbers at least.
  std::printf("rank %d: sent at least %zu octets\n", rank,
              static_cast<std::size_t>(rounds) * kLargest * sizeof(std::int64_t));
  std::fflush(stdout);
  std::_Exit(0);  // and what is left of gloo has no say in how it ends
}
