// A completed request's memory is the application's again: whatever it does with it, the peer gets what was sent.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint32_t kBytes = 5000;  // several segments of TCP
constexpr std::uint32_t kDepth = 8;
constexpr std::byte kPoison{0xEE};

// Sends and Writes in turn over a bad wire. Each buffer is a region of its own, overwritten, deregistered and given
// back as soon as its completion is there.
struct Story {
  explicit Story(Options given) : pair(std::move(given)), random(pair.options.seed) {
    pair.wire.loses = [this](bool is_a, const tcp::SegmentOut& out) {
      const bool loses = random() % 8 == 0;
      lost += loses && is_a && !out.payload.empty();
      return loses;
    };
  }
  void post() {
    const std::uint32_t i = posted++;
    Region& from = pair.a->region(kBytes, i + 1);
    Region& to = pair.b->region(kBytes);
    sources.push_back(&from);
    targets.push_back(&to);
    if (i % 2 == 0) {
      pair.b->post_receive({Side::sge(to, 0, kBytes)});
      pair.a->post(send({Side::sge(from, 0, 1000), Side::sge(from, 1000, kBytes - 1000)}));
    } else {
      pair.a->post(write({Side::sge(from, 0, kBytes)}, to.stag, to.base));
    }
  }
  void take_completions() {
    for (; completed < pair.a->app.completions.size(); ++completed) {
      REQUIRE(pair.a->app.completions[completed].status == qp::Status::success);
      REQUIRE(pair.a->app.completions[completed].slot == completed);
      Region& from = *sources[completed];
      std::fill(from.memory.begin(), from.memory.end(), kPoison);
      REQUIRE(pair.a->table.deregister(from.stag));
      std::vector<std::byte>().swap(from.memory);
    }
  }
  bool arrived() const {
    if (pair.b->app.completions.size() != (posted + 1) / 2) return false;
    for (std::uint32_t i = 0; i < posted; ++i)
      if (targets[i]->memory != filled(kBytes, i + 1)) return false;
    return true;
  }
  void run(std::uint32_t count) {
    for (std::uint32_t turns = 0; completed < count || !arrived(); ++turns) {
      REQUIRE(turns < 100'000);
      while (posted < count && posted - completed < kDepth) post();
      if (!pair.step()) pair.wire.now = pair.wire.now + milliseconds(1);
      take_completions();
    }
  }

  Pair pair;
  std::mt19937 random;
  std::vector<Region*> sources, targets;
  std::uint32_t posted = 0, completed = 0, lost = 0;
};

}  // namespace

TEST_CASE("V-POLL-06: buffers that are overwritten and gone at their completion arrive as they were, with losses",
          "[qp][V-POLL-06][V-ORD-08][V-WR-12]") {
  Options options;
  options.moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  options.seed = static_cast<std::uint64_t>(GENERATE(1, 2, 3));
  Story story(options);
  story.run(40);
  CHECK(story.lost > 10);
  CHECK(story.pair.b->app.events.empty());
}
