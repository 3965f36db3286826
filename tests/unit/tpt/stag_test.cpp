// STags and regions as such: V-STAG, V-MR, V-STATE, and how indexes are given out.
#include <algorithm>
#include <set>
#include <vector>

#include "kit/tpt_world.hpp"

namespace {
using namespace rnic;
using namespace rnic::test;
}  // namespace

TEST_CASE("V-STAG-02: the key is the consumer's", "[tpt][V-STAG-01][V-STAG-02][V-MR-04]") {
  TptWorld w;
  auto options = TptWorld::options();
  for (const unsigned key : {0u, 1u, 255u}) {
    options.key = static_cast<std::uint8_t>(key);
    const Stag stag = w.region(options);
    CHECK(stag.key() == key);
    CHECK(w.write(stag));
  }
  CHECK(w.table.allocate_window(kPd, 0xAB)->key() == 0xAB);
}

TEST_CASE("V-STAG-05: an index that is not there is refused", "[tpt][V-STAG-05]") {
  TptWorld w;
  const Stag stag = w.region();
  // The same entry, were only the low bits of an index looked at; and one behind the last entry.
  check_refused(w.write({stag.value ^ 0x80000000}), Refusal::invalid_stag);
  for (std::uint32_t low = 0; low < 128; ++low) {
    const Stag guess{((stag.index() & ~127u) | low) << 8 | kKey};
    REQUIRE(w.write(guess).has_value() == (guess == stag));
  }
}

TEST_CASE("V-STAG-06: index 0 is never given out", "[tpt][V-STAG-06][W-RDMAP-22]") {
  for (const std::uint32_t entries : {1u, 2u, 3u, 255u, 1000u}) {
    tpt::Table table(entries, entries);
    for (std::uint32_t i = 0; i < 3 * entries; ++i) {
      const auto stag = i % 2 == 0 ? table.register_region(TptWorld::options()) : table.allocate_window(kPd, 0);
      REQUIRE(stag.has_value());
      REQUIRE(stag->index() != 0);
      REQUIRE((table.deregister(*stag).has_value() || table.deallocate_window(*stag).has_value()));
    }
  }
}

TEST_CASE("V-STAG-09, V-STAG-10, V-STAG-11: STag 0 is refused everywhere", "[tpt][V-STAG-09][V-STAG-10][V-STAG-11]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = *w.table.allocate_window(kPd, 0);
  check_refused(w.write({0}), Refusal::invalid_stag);
  check_refused(w.read({0}), Refusal::invalid_stag);
  check_refused(w.table.check_local({0}, kPd, Rights::local_read, 0, 1), Refusal::invalid_stag);
  check_refused(w.table.invalidate_local({0}, kPd, kQp), Refusal::invalid_stag);
  check_refused(w.table.invalidate_remote({0}, kPd, kQp, kReadWrite), Refusal::invalid_stag);
  check_refused(w.table.bind(window, kKey, {0}, kPd, kQp, kReadWrite, kBase, 1), Refusal::invalid_region);
  check_refused(w.table.bind({0}, kKey, region, kPd, kQp, kReadWrite, kBase, 1), Refusal::invalid_window);
  check_refused(w.table.deregister({0}), Refusal::invalid_stag);
  check_refused(w.table.deallocate_window({0}), Refusal::invalid_stag);
  CHECK_FALSE(w.table.query({0}));
  CHECK_FALSE(w.table.reregister({0}, TptWorld::options()));
  CHECK_FALSE(w.table.register_shared({0}, TptWorld::options()));
}

TEST_CASE("W-RDMAP-22: indexes are spread over 24 bits, in no order, and other for another seed",
          "[tpt][W-RDMAP-22][W-RDMAP-62]") {
  const auto indexes = [](std::uint64_t seed) {
    tpt::Table table(1000, seed);
    std::vector<std::uint32_t> all;
    for (int i = 0; i < 1000; ++i) all.push_back(table.register_region(TptWorld::options())->index());
    return all;
  };
  const auto all = indexes(1);
  CHECK(std::set(all.begin(), all.end()).size() == 1000);
  // Of a thousand numbers in no order about half are larger than the one before, and about a
  // sixteenth lie in each sixteenth of the range; a stride that repeats says how the next is made.
  std::size_t rising = 0;
  std::set<std::uint32_t> strides, sixteenths;
  for (std::size_t i = 1; i < all.size(); ++i) {
    rising += all[i] > all[i - 1];
    strides.insert((all[i] - all[i - 1]) & 0xFFFFFF);
    sixteenths.insert(all[i] >> 20);
  }
  CHECK(rising > 400);
  CHECK(rising < 600);
  CHECK(strides.size() > 990);
  CHECK(sixteenths.size() == 16);
  CHECK(indexes(1) == all);
  CHECK(indexes(2) != all);
}

TEST_CASE("V-SEC-26: an index is not used again soon", "[tpt][V-SEC-26][W-RDMAP-22][W-RDMAP-62]") {
  tpt::Table table(64, 1);
  const Stag first = *table.register_region(TptWorld::options());
  REQUIRE(table.deregister(first));
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 63; ++i) {
    const Stag stag = *table.register_region(TptWorld::options());
    REQUIRE(seen.insert(stag.index() & 127).second);
    REQUIRE((stag.index() & 127) != (first.index() & 127));
    REQUIRE(table.deregister(stag));
  }
}

TEST_CASE("V-SEC-26: what used an entry before has nothing in it any more", "[tpt][V-SEC-26][V-MR-19]") {
  tpt::Table table(1, 1);
  const Stag old = *table.register_region(TptWorld::options());
  REQUIRE(table.deregister(old));
  const Stag window = *table.allocate_window(kOtherPd, kKey);
  CHECK_FALSE(table.check_remote(with_key(window, kKey), kPd, kQp, Rights::remote_write, kBase, 1));
  CHECK_FALSE(table.check_remote(old, kPd, kQp, Rights::remote_write, kBase, 1));
  const auto info = table.query(window);
  REQUIRE(info);
  CHECK(info->rights == Rights::none);
  CHECK(info->base == 0);
  CHECK(info->size == 0);
  CHECK(info->windows_bound == 0);
  CHECK_FALSE(info->shared);
  CHECK_FALSE(info->memory.whole_pages);
  CHECK(info->memory.address == 0);
}

TEST_CASE("V-MR-02: when there is no entry left nothing is registered", "[tpt][V-MR-02]") {
  tpt::Table table(2, 1);
  const Stag a = *table.register_region(TptWorld::options());
  REQUIRE(table.allocate_window(kPd, 0));
  CHECK(table.used() == 2);
  const auto refused = table.register_region(TptWorld::options());
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == RegisterError::no_resources);
  CHECK_FALSE(table.allocate_window(kPd, 0));
  CHECK_FALSE(table.register_shared(a, TptWorld::options()));
  CHECK_FALSE(table.query(a)->shared);
  CHECK(table.used() == 2);
  REQUIRE(table.deregister(a));
  CHECK(table.used() == 1);
  CHECK(table.register_region(TptWorld::options()));
}

TEST_CASE("V-MR-02: a refused registration takes no entry", "[tpt][V-MR-02]") {
  TptWorld w;
  CHECK_FALSE(w.table.register_region(TptWorld::options(Rights::none)));
  CHECK(w.table.used() == 0);
}

TEST_CASE("V-MR-14: regions over the same memory do not influence each other", "[tpt][V-MR-14][V-STATE-05]") {
  TptWorld w;
  const Stag a = w.region();
  const Stag b = w.region(kLocal | Rights::remote_read);
  REQUIRE(w.table.invalidate_local(a, kPd, kQp));
  CHECK(w.read(b));
  REQUIRE(w.table.deregister(a));
  CHECK(w.read(b));
}

TEST_CASE("V-MR-19, V-MR-20: a region is deregistered Valid or Invalid, whatever the key", "[tpt][V-MR-19][V-MR-20]") {
  TptWorld w;
  const Stag valid = w.region();
  const Stag invalid = w.region();
  REQUIRE(w.table.invalidate_local(invalid, kPd, kQp));
  CHECK(w.table.deregister(with_key(valid, 0)));
  CHECK(w.table.deregister(invalid));
  check_refused(w.write(valid), Refusal::invalid_stag);
  check_refused(w.table.deregister(valid), Refusal::invalid_stag);
  CHECK(w.table.used() == 0);
}

TEST_CASE("V-MW-01: a window is no region, and a region no window", "[tpt][V-MW-01]") {
  TptWorld w;
  const Stag window = *w.table.allocate_window(kPd, 0);
  const Stag region = w.region();
  check_refused(w.table.deregister(window), Refusal::invalid_region);
  check_refused(w.table.deallocate_window(region), Refusal::invalid_window);
  const auto again = w.table.reregister(window, TptWorld::options());
  REQUIRE_FALSE(again);
  CHECK(again.error() == RegisterError::bad_stag);
  CHECK_FALSE(w.table.register_shared(window, TptWorld::options()));
  CHECK(w.write(region));
  CHECK(w.table.query(window)->window);
}

TEST_CASE("V-STATE-02, V-STATE-03: an Invalid region refuses all access and keeps index and PD",
          "[tpt][V-STATE-02][V-STATE-03]") {
  TptWorld w;
  const Stag stag = w.region();
  REQUIRE(w.table.invalidate_local(stag, kPd, kQp));
  check_refused(w.write(stag), Refusal::invalid_stag);
  check_refused(w.table.check_local(stag, kPd, Rights::local_read, kBase, 1), Refusal::invalid_stag);
  const auto info = w.table.query(stag);
  REQUIRE(info);
  CHECK_FALSE(info->valid);
  CHECK(info->pd == kPd);
}

TEST_CASE("V-MR-05: a region is reregistered from Valid and from Invalid", "[tpt][V-MR-05][V-MR-09]") {
  TptWorld w;
  const Stag stag = w.region();
  auto options = TptWorld::options(kLocal | Rights::remote_read);
  options.key = kKey + 1;
  options.pd = kOtherPd;
  options.base = 0;
  options.size = 8;
  const auto again = w.table.reregister(stag, options);
  REQUIRE(again);
  CHECK(again->index() == stag.index());
  CHECK(again->key() == kKey + 1);
  check_refused(w.read(stag), Refusal::invalid_stag);
  CHECK(w.read(*again, 0, 8, kOtherPd));
  check_refused(w.read(*again, 0, 8), Refusal::not_associated);
  REQUIRE(w.table.invalidate_local(*again, kOtherPd, kQp));
  CHECK(w.table.reregister(stag, TptWorld::options()));
  CHECK(w.write(stag));
}

TEST_CASE("V-MR-06: with a window bound a region is not reregistered, and stays", "[tpt][V-MR-06][V-MW-14]") {
  TptWorld w;
  const Stag stag = w.region();
  const Stag window = w.window(stag);
  const auto refused = w.table.reregister(stag, TptWorld::options());
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == RegisterError::busy);
  CHECK(w.write(stag));
  REQUIRE(w.table.deallocate_window(window));
  CHECK(w.table.reregister(stag, TptWorld::options()));
}

TEST_CASE("V-MR-07: a reregistration that fails for another reason leaves nothing", "[tpt][V-MR-07]") {
  TptWorld w;
  const Stag stag = w.region();
  auto options = TptWorld::options();
  auto error = RegisterError::bad_range;
  SECTION("rights that there are not") {
    options.rights = Rights::remote_write;
    error = RegisterError::bad_rights;
  }
  SECTION("a range past the last TO") { options.base = UINT64_MAX - kSize + 2; }
  SECTION("a range past the last address") { options.memory.address = UINT64_MAX - kSize + 2; }
  const auto refused = w.table.reregister(stag, options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == error);
  check_refused(w.write(stag), Refusal::invalid_stag);
  CHECK(w.table.used() == 0);
}

TEST_CASE("V-MR-11, V-MR-12: a shared region has its own index, PD and rights",
          "[tpt][V-MR-11][V-MR-12][V-MR-21][V-MRA-01]") {
  TptWorld w;
  const Stag stag = w.region();
  CHECK_FALSE(w.table.query(stag)->shared);
  auto options = TptWorld::options(kLocal | Rights::remote_read);
  options.pd = kOtherPd;
  options.base = 0x100;
  options.size = 1;
  CHECK_FALSE(w.table.register_shared(with_key(stag, 0), options));
  const auto shared = w.table.register_shared(stag, options);
  REQUIRE(shared);
  CHECK(shared->index() != stag.index());
  CHECK(w.read(*shared, 0x100, kSize, kOtherPd)->address == 0x500000);
  check_refused(w.write(*shared, 0x100, 1, kOtherPd), Refusal::access_rights);
  CHECK(w.write(stag));
  CHECK(w.table.query(stag)->shared);
  REQUIRE(w.table.deregister(stag));
  CHECK(w.read(*shared, 0x100, kSize, kOtherPd));
  // V-MRA-01: it was shared once, and nobody but its owner takes it away.
  CHECK(w.table.query(*shared)->shared);
  check_refused(w.table.invalidate_remote(*shared, kOtherPd, kQp, kReadWrite), Refusal::cannot_invalidate);
}

TEST_CASE("W-RDMAP-22: the next index is a word of SipHash-2-4, which nobody can tell without the seed",
          "[tpt][W-RDMAP-22][W-RDMAP-62][V-SEC-26]") {
  // Computed by a program of its own, which gives the vector of the paper too: key (seed, ~seed), message
  // the count in 8 octets. Each STag takes a word for which of the entries left, and one for the bits above.
  const auto indexes = [](std::uint32_t entries, std::uint64_t seed, std::size_t count) {
    tpt::Table table(entries, seed);
    std::vector<std::uint32_t> out;
    while (out.size() < count) out.push_back(table.register_region(TptWorld::options())->index());
    return out;
  };
  CHECK(indexes(8, 0x0706050403020100, 8) ==
        std::vector<std::uint32_t>{0x738AB5, 0x644DD4, 0xD589D3, 0x64E0E7, 0x4BBE72, 0x4E9F51, 0x4C34B8, 0x573236});
  CHECK(indexes(255, 1, 4) == std::vector<std::uint32_t>{0x4C0589, 0xABFD91, 0x2FDE84, 0x7E0BA1});
}

TEST_CASE("V-STAG-05: an index behind the last entry is refused by everything", "[tpt][V-STAG-05][V-STAG-11]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = *w.table.allocate_window(kPd, 0);
  // 64 entries and the one that is nobody's: 65 to 127 are not there.
  for (const std::uint32_t slot : {65u, 100u, 127u}) {
    const Stag none{slot << 8 | kKey};
    check_refused(w.read(none), Refusal::invalid_stag);
    check_refused(w.table.check_local(none, kPd, Rights::local_read, kBase, 1), Refusal::invalid_stag);
    check_refused(w.table.invalidate_local(none, kPd, kQp), Refusal::invalid_stag);
    check_refused(w.table.deregister(none), Refusal::invalid_stag);
    check_refused(w.table.deallocate_window(none), Refusal::invalid_stag);
    check_refused(w.table.bind(none, kKey, region, kPd, kQp, kReadWrite, kBase, 1), Refusal::invalid_window);
    check_refused(w.table.bind(window, kKey, none, kPd, kQp, kReadWrite, kBase, 1), Refusal::invalid_region);
    CHECK_FALSE(w.table.query(none));
    CHECK(w.table.reregister(none, TptWorld::options()).error() == RegisterError::bad_stag);
    CHECK(w.table.register_shared(none, TptWorld::options()).error() == RegisterError::bad_stag);
  }
  CHECK(w.write(region));
}

TEST_CASE("V-STAG-03: of an STag the index alone finds it again", "[tpt][V-STAG-03][V-MR-05]") {
  CHECK(tpt::Table::kEntriesMax == 0x800000);
  TptWorld w;
  const Stag stag = w.region(kLocal | Rights::remote_read);
  const auto info = w.table.query(with_key(stag, 1));
  REQUIRE(info);
  CHECK(info->stag == stag);
  CHECK(info->valid);
  CHECK_FALSE(info->window);
  CHECK_FALSE(info->shared);
  CHECK(info->pd == kPd);
  CHECK(info->rights == (kLocal | Rights::remote_read));
  CHECK(info->base == kBase);
  CHECK(info->size == kSize);
  CHECK(info->windows_bound == 0);
  CHECK(info->memory.space == SpaceId{3});
  CHECK(info->memory.address == 0x500000);
  CHECK(info->memory.direct == nullptr);
  CHECK_FALSE(info->memory.whole_pages);
  // The same index in bits that say nothing of the entry is another STag.
  CHECK_FALSE(w.table.query({stag.value ^ 0x80000000}));
  check_refused(w.table.deregister({stag.value ^ 0x80000000}), Refusal::invalid_stag);
  // A bound window is bound to an entry, but has no windows itself.
  const Stag window = w.window(w.region());
  CHECK(w.table.query(window)->windows_bound == 0);
  CHECK(w.table.query(window)->base == kBase);
  CHECK(w.table.query(window)->size == kSize);
}

TEST_CASE("V-MR-13: a shared region is not reregistered, and stays", "[tpt][V-MR-05][V-MR-13]") {
  TptWorld w;
  const Stag stag = w.region();
  const Stag other = *w.table.register_shared(stag, TptWorld::options());
  for (const Stag shared : {stag, other}) {
    CHECK(w.table.query(shared)->shared);
    CHECK(w.table.reregister(shared, TptWorld::options()).error() == RegisterError::bad_stag);
    CHECK(w.write(shared));
  }
  CHECK(w.table.used() == 2);
}

TEST_CASE("V-QP-15: a window is found whichever entry it has", "[tpt][V-QP-15]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    tpt::Table table(2, seed);
    const Stag region = *table.register_region(TptWorld::options());
    const Stag window = *table.allocate_window(kPd, 0);
    REQUIRE(table.bind(window, kKey, region, kPd, kQp, kReadWrite, kBase, kSize));
    CHECK(table.window_bound_to(kQp));
  }
}

TEST_CASE("a region of no octets has room for one page, as has one of a single octet", "[tpt][V-MR-03]") {
  TptWorld w;
  for (const std::uint64_t size : {0u, 1u}) {
    auto options = TptWorld::options();
    options.size = size;
    CHECK(w.table.query(w.region(options))->pages == 1);
  }
}

TEST_CASE("V-MR-11: who shares a region by copy does not reach what of it is mapped here", "[tpt][V-MR-11]") {
  TptWorld w;
  auto options = TptWorld::options();
  std::array<std::byte, kSize> here{};
  options.memory.direct = here.data();
  const Stag stag = w.region(options);
  const bool by_copy = GENERATE(true, false);
  const auto shared = w.table.register_shared(stag, TptWorld::options(),
                                              by_copy ? tpt::Table::Reach::by_copy : tpt::Table::Reach::same);
  REQUIRE(shared.has_value());
  CHECK((w.write(*shared)->direct == nullptr) == by_copy);
  CHECK(w.write(stag)->direct == here.data());
}

TEST_CASE("what is revoked is Invalid for good, with what is bound to it, and has to be given back still", "[tpt]") {
  TptWorld w;
  const Stag region = w.region(), window = w.window(region), other = w.region();
  w.table.revoke({});  // nobody's
  w.table.revoke({other.value ^ 0x80000000});
  CHECK(w.write(region).has_value());
  SECTION("a region") {
    w.table.revoke(region);
    check_refused(w.write(region), Refusal::invalid_stag);
    check_refused(w.table.deregister(region), Refusal::cannot_invalidate);  // the window is bound to it still
    w.table.revoke(window);
    CHECK(w.table.deregister(region).has_value());
  }
  SECTION("a window alone") {
    w.table.revoke(window);
    check_refused(w.write(window), Refusal::invalid_stag);
    CHECK(w.write(region).has_value());
    CHECK(w.table.deregister(region).has_value());
    CHECK(w.table.deallocate_window(window).has_value());
  }
  CHECK(w.write(other).has_value());
}
