// The table under several threads: whoever reads finds the old state, the new one, or a refusal.
#include <atomic>
#include <thread>
#include <vector>

#include "kit/tpt_world.hpp"

namespace {
using namespace rnic;
using namespace rnic::test;
}  // namespace

TEST_CASE("V-MR-10: an access that races with reregistration never sees a mix", "[tpt][threads][V-MR-10]") {
  TptWorld w;
  // Two states of which each field tells whose it is.
  auto a = TptWorld::options();
  auto b = a;
  b.base = 0x100000;
  b.memory.address = 0x900000;
  b.memory.space = {4};
  b.key = kKey + 1;
  const Stag stag_a = w.region(a);
  const Stag stag_b = with_key(stag_a, kKey + 1);

  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> seen{0}, mixed{0};
  std::thread reader([&] {
    while (!stop.load()) {
      const auto in_a = w.write(stag_a, kBase + 8, 8);
      if (in_a && (in_a->address != 0x500008 || in_a->space != SpaceId{3})) ++mixed;
      if (!in_a && in_a.error() != Refusal::invalid_stag) ++mixed;
      const auto in_b = w.write(stag_b, 0x100008, 8);
      if (in_b && (in_b->address != 0x900008 || in_b->space != SpaceId{4})) ++mixed;
      if (!in_b && in_b.error() != Refusal::invalid_stag) ++mixed;
      ++seen;
    }
  });
  bool good = true;
  for (int i = 0; i < 20000 || seen.load() < 1000000; ++i) {
    good &= w.table.reregister(stag_a, b).has_value();
    good &= w.table.reregister(stag_a, a).has_value();
  }
  stop = true;
  reader.join();
  CHECK(good);
  CHECK(mixed == 0);
}

TEST_CASE("V-MW-14: binds, invalidations and deregistrations that race keep the count of windows right",
          "[tpt][threads][V-MW-14]") {
  TptWorld w;
  const Stag region = w.region();
  std::vector<Stag> windows;
  for (int i = 0; i < 2; ++i) windows.push_back(*w.table.allocate_window(kPd, 0));

  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> binds{0}, wrong{0};
  std::vector<std::thread> workers;
  for (const Stag window : windows) {
    workers.emplace_back([&, window] {
      while (!stop.load()) {
        if (w.table.bind(window, kKey, region, kPd, kQp, kReadWrite, kBase, kSize)) {
          ++binds;
          // With a window bound the region cannot go.
          if (!w.table.query(region)->valid) ++wrong;
          if (!w.write(with_key(window, kKey))) ++wrong;
          if (!w.table.invalidate_local(with_key(window, kKey), kPd, kQp)) ++wrong;
        }
      }
    });
  }
  for (int i = 0; i < 20000 || binds.load() < 1000; ++i) {
    const auto done = w.table.invalidate_local(region, kPd, kQp);
    if (!done && done.error() != Refusal::cannot_invalidate) ++wrong;
    if (done && !w.table.reregister(region, TptWorld::options())) ++wrong;
  }
  stop = true;
  for (auto& worker : workers) worker.join();
  CHECK(wrong == 0);
  CHECK(w.table.query(region)->windows_bound == 0);
  CHECK_FALSE(w.table.window_bound_to(kQp));
  CHECK(w.table.deregister(region));
}
