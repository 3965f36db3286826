// Where a Read's Response goes: the consumer's own STag, or one for this Read alone (V-RD-03).
#include <atomic>
#include <bit>
#include <set>
#include <thread>
#include <vector>

#include "kit/allocations.hpp"
#include "kit/tpt_world.hpp"

namespace {
using namespace rnic;
using namespace rnic::test;
using tpt::ReadSink;
using tpt::ReadStags;

struct World : TptWorld {
  ReadStags stags = table.read_stags();
  auto sink(Stag stag, std::uint64_t to = kBase, std::uint32_t length = 8, Rights enables = kReadWrite, PdId pd = kPd,
            QpNumber qp = kQp) {
    return table.check_read_sink(stag, pd, qp, enables, to, length, stags);
  }
};

}  // namespace

TEST_CASE("V-RD-03: a region with Local Write only takes a Read under an STag of the Read's own", "[tpt][V-RD-03]") {
  World w;
  const Stag stag = w.region(Rights::local_write);
  const auto sink = w.sink(stag, kBase + 8, 16);
  REQUIRE(sink);
  CHECK(sink->own_stag());
  CHECK(sink->consumers == stag);
  CHECK(sink->stag != stag);
  CHECK(sink->stag.index() != 0);
  const auto access = w.table.check_read(*sink, kBase + 12, 12);
  REQUIRE(access);
  CHECK(access->address == 0x50000C);
  CHECK(access->length == 12);
  CHECK(access->space == SpaceId{3});
  // Nor has the region's own more rights than before.
  check_refused(w.write(stag), Refusal::access_rights);
}

TEST_CASE("V-RD-03: a region with Remote Write takes it under its own STag, if the queue pair lets peers write",
          "[tpt][V-RD-03]") {
  World w;
  const Stag stag = w.region(kLocal | Rights::remote_write);
  const auto sink = w.sink(stag);
  REQUIRE(sink);
  CHECK_FALSE(sink->own_stag());
  CHECK(sink->stag == stag);
  CHECK(w.sink(stag, kBase, 8, Rights::remote_read)->own_stag());
  CHECK(w.sink(w.region(kLocal | Rights::remote_read))->own_stag());
}

TEST_CASE("V-RD-05: a window takes a Read as it takes its peer's Write", "[tpt][V-RD-05][V-MW-10]") {
  World w;
  const Stag region = w.region(kLocal | Rights::window_bind);
  const Stag window = w.window(region, Rights::remote_write);
  const auto sink = w.sink(window);
  REQUIRE(sink);
  CHECK_FALSE(sink->own_stag());
  CHECK(sink->stag == window);
  CHECK(w.sink(window, kBase, 8, kReadWrite, kOtherPd));  // it is a queue pair's, not a PD's
  check_refused(w.sink(window, kBase, 8, kReadWrite, kPd, kOtherQp), Refusal::not_associated);
  check_refused(w.sink(window, kBase + kSize), Refusal::base_or_bounds);
  const Stag to_read = w.window(region, Rights::remote_read);
  check_refused(w.sink(to_read), Refusal::access_rights);
  REQUIRE(w.table.invalidate_local(window, kPd, kQp));
  check_refused(w.sink(window), Refusal::invalid_stag);
}

TEST_CASE("V-ACC-08: a Read's sink is checked in the order of all accesses", "[tpt][V-ACC-08][V-ACC-06]") {
  World w;
  const Stag good = w.region(kLocal);
  const Stag bad = w.region(Rights::local_read | Rights::remote_read);
  check_refused(w.sink({good.value ^ 1}, ~0ull, 8, kReadWrite, kOtherPd), Refusal::invalid_stag);
  check_refused(w.sink({0}), Refusal::invalid_stag);
  check_refused(w.sink({65u << 8}), Refusal::invalid_stag);
  check_refused(w.sink(bad, ~0ull, 8, kReadWrite, kOtherPd), Refusal::not_associated);
  check_refused(w.sink(bad, ~0ull), Refusal::access_rights);
  check_refused(w.sink(good, ~0ull, 2), Refusal::to_wrap);
  check_refused(w.sink(good, kBase - 1), Refusal::base_or_bounds);
  check_refused(w.sink(good, kBase + kSize - 7), Refusal::base_or_bounds);
  CHECK(w.sink(good, kBase + kSize - 8));
  CHECK(w.sink(good, kBase, kSize));
  check_refused(w.sink(good, kBase, kSize + 1), Refusal::base_or_bounds);
  // None of those that were refused has used an STag up.
  CHECK(w.stags.count == 2);
}

TEST_CASE("V-RD-03: a Read's own STag is none to anybody else", "[tpt][V-RD-03][V-STAG-05][V-SEC-26]") {
  // With every size of table there is: whatever lies in its entries.
  for (const std::uint32_t entries : {1u, 2u, 3u, 7u, 64u, 100u, 255u, 4096u}) {
    tpt::Table table(entries, entries);
    std::vector<Stag> all;
    const bool windows = entries > 2;
    for (std::uint32_t i = 0; i < entries; ++i)
      all.push_back(windows && i % 3 == 1 ? *table.allocate_window(kPd, static_cast<std::uint8_t>(i))
                                          : *table.register_region(TptWorld::options(kLocal | Rights::window_bind)));
    // By the bits of an index that say which entry it is, none can ever come to have it.
    const std::uint32_t slot_bits = (1u << std::bit_width(entries)) - 1;
    std::set<std::uint32_t> slots;
    for (const Stag each : all) slots.insert(each.index() & slot_bits);
    REQUIRE(slots.size() == entries);
    ReadStags stags = table.read_stags();
    for (int i = 0; i < 2000; ++i) {
      const auto sink = table.check_read_sink(all[0], kPd, kQp, kReadWrite, kBase, 8, stags);
      REQUIRE(sink);
      const Stag own = sink->stag;
      REQUIRE(own.index() != 0);
      REQUIRE_FALSE(slots.contains(own.index() & slot_bits));
      REQUIRE_FALSE(table.query(own));
      check_refused(table.check_remote(own, kPd, kQp, Rights::remote_write, kBase, 1), Refusal::invalid_stag);
      check_refused(table.check_remote(own, kPd, kQp, Rights::remote_read, kBase, 1), Refusal::invalid_stag);
      check_refused(table.check_local(own, kPd, Rights::local_write, kBase, 1), Refusal::invalid_stag);
      check_refused(table.invalidate_remote(own, kPd, kQp, kReadWrite), Refusal::invalid_stag);
      check_refused(table.invalidate_local(own, kPd, kQp), Refusal::invalid_stag);
      check_refused(table.check_read_sink(own, kPd, kQp, kReadWrite, kBase, 8, stags), Refusal::invalid_stag);
      REQUIRE_FALSE(table.deregister(own));
      REQUIRE_FALSE(table.bind(own, 0, all[0], kPd, kQp, kReadWrite, kBase, 8));
      REQUIRE_FALSE(table.reregister(own, TptWorld::options()));
    }
  }
}

TEST_CASE("V-RD-03: Reads take no entry, and go on when there is none left", "[tpt][V-RD-03]") {
  tpt::Table table(2, 1);
  const Stag region = *table.register_region(TptWorld::options(kLocal));
  REQUIRE(table.allocate_window(kPd, 0));
  std::vector<ReadSink> sinks;
  ReadStags stags = table.read_stags();
  for (int i = 0; i < 1000; ++i) sinks.push_back(*table.check_read_sink(region, kPd, kQp, kReadWrite, kBase, 8, stags));
  CHECK(table.used() == 2);
  for (const ReadSink& sink : sinks) REQUIRE(table.check_read(sink, kBase, 8));
}

TEST_CASE("V-RD-03: a Read's STag is made without an allocation", "[tpt][V-RD-03]") {
  World w;
  const Stag region = w.region(kLocal);
  const auto before = allocations();
  bool good = true;
  for (int i = 0; i < 1000; ++i) good &= w.table.check_read(*w.sink(region), kBase, 8).has_value();
  CHECK(allocations() == before);
  CHECK(good);
}

TEST_CASE("W-RDMAP-22: a Read's own STag can be told no better than another",
          "[tpt][W-RDMAP-22][W-RDMAP-62][V-RD-03]") {
  const auto draw = [](tpt::Table& table, int count) {
    const Stag region = *table.register_region(TptWorld::options(kLocal));
    ReadStags stags = table.read_stags();
    std::vector<Stag> out;
    for (int i = 0; i < count; ++i)
      out.push_back(table.check_read_sink(region, kPd, kQp, kReadWrite, kBase, 8, stags)->stag);
    return out;
  };
  tpt::Table table(131'072, 1);
  const auto all = draw(table, 1000);
  std::size_t rising = 0;
  std::set<std::uint32_t> strides, sixteenths, slots;
  for (std::size_t i = 1; i < all.size(); ++i) {
    rising += all[i].index() > all[i - 1].index();
    strides.insert((all[i].index() - all[i - 1].index()) & 0xFFFFFF);
    sixteenths.insert(all[i].index() >> 20);
    slots.insert((all[i].index() & 0x3FFFF) >> 14);
  }
  CHECK(rising > 400);
  CHECK(rising < 600);
  CHECK(strides.size() > 990);
  CHECK(sixteenths.size() == 16);
  CHECK(slots == std::set<std::uint32_t>{8, 9, 10, 11, 12, 13, 14, 15});  // 131,073 to 262,143
  // Those that may be out at once are different ones.
  for (std::size_t i = 128; i <= all.size(); ++i) {
    const std::set<Stag> outstanding(all.begin() + static_cast<std::ptrdiff_t>(i - 128),
                                     all.begin() + static_cast<std::ptrdiff_t>(i));
    REQUIRE(outstanding.size() == 128);
  }
  // Another stream of the same device, and another device, has others.
  const auto next_stream = draw(table, 1000);
  CHECK(std::set(next_stream.begin(), next_stream.end()).size() > 990);
  CHECK(next_stream != all);
  tpt::Table same(131'072, 1), other(131'072, 2);
  CHECK(draw(same, 1000) == all);
  CHECK(draw(other, 1000) != all);
}

TEST_CASE("W-RDMAP-22: a Read's STag is a word of SipHash-2-4 of two, stream and count",
          "[tpt][W-RDMAP-22][V-SEC-26]") {
  // Computed by a program of its own, which gives the vector of the paper too: key (seed, ~seed).
  const auto draw = [](std::uint32_t entries, std::uint64_t stream, std::uint64_t count) {
    tpt::Table table(entries, 0x0706050403020100);
    const Stag region = *table.register_region(TptWorld::options(kLocal));
    ReadStags stags{stream, count};
    return table.check_read_sink(region, kPd, kQp, kReadWrite, kBase, 8, stags)->stag.value;
  };
  CHECK(draw(64, 0, 0) == 0xb3026800);
  CHECK(draw(64, 0, 1) == 0xe96af301);
  CHECK(draw(64, 1, 0) == 0xfaa55400);
  CHECK(draw(64, 1, 255) == 0x25b47aff);
  CHECK(draw(64, 1, 256) == 0x73a94c00);
  CHECK(draw(131'072, 0, 0) == 0xb33fac00);
  CHECK(draw(131'072, 1, 255) == 0x27c9a7ff);
}

TEST_CASE("V-MR-20: a Read ends with its region, whatever is registered in its place",
          "[tpt][V-MR-20][V-RD-03][V-INV-10]") {
  World w;
  const Stag stag = w.region(kLocal);
  const auto sink = w.sink(stag, kBase, kSize);
  REQUIRE(sink);
  REQUIRE(w.table.check_read(*sink, kBase, kSize));
  SECTION("invalidated") {
    REQUIRE(w.table.invalidate_local(stag, kPd, kQp));
    check_refused(w.table.check_read(*sink, kBase, 1), Refusal::invalid_stag);
  }
  SECTION("deregistered") {
    REQUIRE(w.table.deregister(stag));
    check_refused(w.table.check_read(*sink, kBase, 1), Refusal::invalid_stag);
  }
  SECTION("registered anew under the same STag") {
    auto next = TptWorld::options(kLocal);
    next.memory.address = 0x900000;
    REQUIRE(*w.table.reregister(stag, next) == stag);
    check_refused(w.table.check_read(*sink, kBase, 1), Refusal::invalid_stag);
    CHECK(w.table.check_read(*w.sink(stag), kBase, 1)->address == 0x900000);
  }
  SECTION("a second region over the same memory changes nothing") {
    REQUIRE(w.table.register_shared(stag, TptWorld::options()));
    CHECK(w.table.check_read(*sink, kBase, 1));
  }
  SECTION("nor does a window on it") {
    const Stag open = w.region(kLocal | Rights::window_bind);
    const auto other = w.sink(open);
    w.window(open);
    CHECK(w.table.check_read(*other, kBase, 1));
  }
}

TEST_CASE("V-MR-20: no two regions that follow one another in an entry are the same to a Read",
          "[tpt][V-MR-20][V-RD-03]") {
  // One entry; the bits above are drawn anew, so that the same STag comes back once in a while.
  tpt::Table table(1, 1);
  ReadStags stags = table.read_stags();
  std::set<std::uint32_t> registrations;
  for (int i = 0; i < 1000; ++i) {
    const Stag stag = *table.register_region(TptWorld::options(kLocal));
    registrations.insert(table.check_read_sink(stag, kPd, kQp, kReadWrite, kBase, 8, stags)->registration);
    CHECK(table.query(stag)->qp == QpNumber{});
    REQUIRE(table.deregister(stag));
  }
  CHECK(registrations.size() == 1000);
}

TEST_CASE("V-MR-20: a Read that races with its region's end finds its own memory or none", "[tpt][threads][V-MR-20]") {
  World w;
  auto a = TptWorld::options(kLocal), b = a;
  b.memory.address = 0x900000;
  const Stag stag = w.region(a);
  const ReadSink first = *w.sink(stag);
  std::atomic<std::uint32_t> current{first.registration};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> seen{0}, wrong{0};
  // The same STag all the time: a, b, a, ...
  std::thread reader([&] {
    while (!stop.load()) {
      ReadSink sink = first;
      sink.registration = current.load();
      const auto access = w.table.check_read(sink, kBase + 8, 8);
      const std::uint64_t own = (sink.registration - first.registration) % 2 == 0 ? 0x500008 : 0x900008;
      if (access ? access->address != own : access.error() != Refusal::invalid_stag) ++wrong;
      ++seen;
    }
  });
  bool good = true;
  for (int i = 0; i < 20000 || seen.load() < 200000; ++i) {
    good &= *w.table.reregister(stag, i % 2 == 0 ? b : a) == stag;
    if (i % 5 == 0) current = w.sink(stag)->registration;
  }
  stop = true;
  reader.join();
  CHECK(good);
  CHECK(wrong == 0);
}
