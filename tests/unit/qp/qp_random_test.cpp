// Random work in both directions over two connections that lose segments, with memory that is
// reached late and out of turn. What must hold: every work request completes once, in order, with
// success; every octet is where it belongs; nobody is terminated.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// A ring of sends in each direction, its receives posted more or less in time; Writes and Reads in
// slots of their own, so that what is expected is known.
struct Traffic {
  Side& from;
  Side& to;
  std::mt19937_64& random;
  Region& source;
  Region& sink;       // of Writes, at `to`
  Region& received;   // of Sends, at `to`
  Region& read_back;  // of Reads, at `from`
  std::uint32_t posted = 0, receives = 0, signaled = 0;
  struct Expect {
    std::uint64_t at, source_at;
    std::uint32_t length;
  };
  std::vector<Expect> writes{}, reads{}, sends{};

  static constexpr std::uint32_t kSlot = 20'000;
  static constexpr std::uint32_t kSlots = 64;

  void post_one(std::uint32_t number) {
    const auto length = static_cast<std::uint32_t>(random() % 3 == 0 ? random() % kSlot : random() % 200);
    const auto at = static_cast<std::uint64_t>(number % kSlots) * kSlot;
    const std::uint64_t source_at = random() % kSlot;
    const auto cut = static_cast<std::uint32_t>(length == 0 ? 0 : random() % length);
    std::vector<qp::Sge> sges{Side::sge(source, source_at, cut), Side::sge(source, source_at + cut, length - cut)};
    qp::WorkRequest request;
    switch (random() % 3) {
      case 0:
        request = send(sges);
        request.fence = random() % 4 == 0;
        sends.push_back({at, source_at, length});
        break;
      case 1:
        request = write(sges, sink.stag, sink.at(at));
        writes.push_back({at, source_at, length});
        break;
      default:
        request = read({Side::sge(read_back, at, length)}, to_source->stag, to_source->at(source_at));
        reads.push_back({at, source_at, length});
    }
    request.signaled = random() % 4 != 0;
    signaled += request.signaled;
    from.post(request);
    ++posted;
  }
  void post_receive() {
    const std::uint64_t at = static_cast<std::uint64_t>(receives++) * kSlot;
    to.post_receive({Side::sge(received, at, kSlot / 2), Side::sge(received, at + kSlot / 2, kSlot / 2)});
  }
  Region* to_source = nullptr;

  void check() const {
    for (std::size_t i = 0; i < sends.size(); ++i)
      REQUIRE(std::memcmp(received.memory.data() + i * kSlot, source.memory.data() + sends[i].source_at,
                          sends[i].length) == 0);
    for (const auto& w : writes)
      REQUIRE(std::memcmp(sink.memory.data() + w.at, source.memory.data() + w.source_at, w.length) == 0);
    for (const auto& r : reads)
      REQUIRE(std::memcmp(read_back.memory.data() + r.at, to_source->memory.data() + r.source_at, r.length) == 0);
  }
};

Traffic traffic(Side& from, Side& to, std::mt19937_64& random) {
  constexpr std::size_t kSize = std::size_t{Traffic::kSlot} * Traffic::kSlots;
  return {from, to, random, from.region(Traffic::kSlot * 2, 3), to.region(kSize), to.region(kSize), from.region(kSize)};
}

void run_seed(std::uint64_t seed, Moves moves, unsigned loss_per_1000, bool markers) {
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Options options;
  options.moves = moves;
  options.seed = seed;
  options.start = default_start();
  options.start.ird = options.start.ord = 1 + static_cast<std::uint32_t>(random() % 4);
  options.start.markers_out = markers;
  options.tcp.receive_window_bytes = 65536u << (random() % 3);
  options.tcp.rto_min = milliseconds(10);
  options.budget_bytes = 1000 + static_cast<std::uint32_t>(random() % 100'000);
  options.a = options.b = [&](qp::Config& c) {
    c.send_depth = 4 + static_cast<std::uint32_t>(random() % 60);
    c.held_bytes_max = 40'000;
    c.rnr_timeout = seconds(3600);
  };
  Pair pair(options);
  Traffic t[2] = {traffic(*pair.a, *pair.b, random), traffic(*pair.b, *pair.a, random)};
  t[0].to_source = &t[1].source;
  t[1].to_source = &t[0].source;

  constexpr std::uint32_t kWork = 60;  // fewer than slots: no place is used twice
  int idle = 0;
  for (int turn = 0; turn < 200'000 && idle < 400; ++turn) {
    for (Traffic& one : t) {
      if (one.posted < kWork && random() % 3 == 0) one.post_one(one.posted);
      if (one.receives < kWork && random() % 5 == 0) one.post_receive();
    }
    pair.wire.cut_a = random() % 1000 < loss_per_1000;
    pair.wire.cut_b = random() % 1000 < loss_per_1000;
    const bool busy = pair.step();
    if (!busy || random() % 8 == 0) pair.wire.now = pair.wire.now + milliseconds(5);
    const bool done = t[0].posted == kWork && t[1].posted == kWork && t[0].receives == kWork && t[1].receives == kWork;
    idle = busy || !done ? 0 : idle + 1;
  }
  for (const Traffic& one : t) {
    REQUIRE(one.from.app.events.empty());
    REQUIRE(one.from.qp.state() == qp::State::rts);
    const auto completions = one.from.app.of_sends();
    REQUIRE(completions.size() == one.signaled);
    for (std::size_t i = 0; i < completions.size(); ++i) {
      REQUIRE(completions[i].status == qp::Status::success);
      if (i != 0) REQUIRE(completions[i].slot > completions[i - 1].slot);
    }
    const auto receives = one.to.app.of_receives();
    REQUIRE(receives.size() == one.sends.size());
    for (std::size_t i = 0; i < receives.size(); ++i) {
      REQUIRE(receives[i].slot == i);
      REQUIRE(receives[i].length == one.sends[i].length);
    }
    one.check();
  }
}

}  // namespace

TEST_CASE("V-ORD-02: random work completes once, in order, with every octet in its place",
          "[scenario][V-ORD-02][V-SR-10][W-DDP-13]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    run_seed(seed * 3 + static_cast<std::uint64_t>(moves), moves, 0, seed % 4 == 0);
}

TEST_CASE("V-ORD-02: the same holds when segments are lost", "[scenario][V-ORD-02][W-TCP-19]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    run_seed(seed * 5 + static_cast<std::uint64_t>(moves), moves, 30, seed % 4 == 0);
}
