// Remote copies into and out of a real other process.
#include "shm/mover.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kit/catch.hpp"
#include "kit/process.hpp"
#include "kit/tpt_move_owner.hpp"

namespace {

using namespace rnic;
using test::Owner;

// Of seven times the offset.
struct Application : test::ForkedApplication {
  Application() : ForkedApplication({1}, [](std::size_t i) { return static_cast<std::byte>(i * 7); }) {}
};

shm::SpaceReach reach(const Application& application, bool by_thread) {
  return by_thread ? application.by_thread() : application.by_descriptor();
}

TEST_CASE("a burst of gathers and placements reaches the application, each told once", "[shm][mover]") {
  for (const bool by_thread : {true, false}) {
    Application application;
    shm::ApplicationMover mover;
    mover.add_space(SpaceId{1}, reach(application, by_thread));
    Owner owner;
    std::vector<std::byte> in(3000);
    std::byte out[2][1428];
    std::memset(out, 0x5a, sizeof out);
    CHECK(mover.gather(application.at(10, 3000), in, {&owner, 1}) == tpt::Moved::later);
    CHECK(mover.place(out[0], application.at(8192, 1428), tpt::Part::body, {&owner, 2}) == tpt::Moved::later);
    CHECK(mover.place(out[1], application.at(8192 + 1428, 1428), tpt::Part::body, {&owner, 3}) == tpt::Moved::later);
    CHECK(owner.told.empty());
    mover.flush();
    REQUIRE(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, true}, {3, true}});
    for (std::size_t i = 0; i < in.size(); ++i) REQUIRE(in[i] == static_cast<std::byte>((i + 10) * 7));
    for (const std::byte octet : application.look(8192, 2 * 1428)) REQUIRE(octet == std::byte{0x5a});
    constexpr std::size_t kNext = 8192 + 2 * 1428;
    CHECK(application.look(kNext, 1)[0] == static_cast<std::byte>(kNext * 7 % 256));
    // What follows one another in the application is one call.
    CHECK(mover.counters().calls == 2);
    CHECK(mover.counters().pieces == 3);
    CHECK(mover.counters().bytes == 3000 + 2 * 1428);
    CHECK(mover.counters().failures == 0);
    CHECK(mover.counters().stuck == 0);
  }
}

TEST_CASE("pieces that follow one another are copied as one, up to so many octets, and none of an earlier burst",
          "[shm][mover]") {
  Application application;
  shm::ApplicationMover mover;
  mover.add_space(SpaceId{1}, application.by_descriptor());
  Owner owner;
  const auto place = [&](Bytes octets, std::size_t offset) {
    REQUIRE(mover.place(octets, application.at(offset, static_cast<std::uint32_t>(octets.size())), tpt::Part::body,
                        {&owner, 0}) == tpt::Moved::later);
  };
  SECTION("behind two there are no three") {
    const std::vector<std::byte> first(64, std::byte{0xA1}), second(64, std::byte{0xA2});
    for (std::size_t i = 0; i < 3; ++i) place(first, i * 64);
    mover.flush();
    for (std::size_t i = 0; i < 2; ++i) place(second, i * 64);
    mover.flush();
    CHECK(owner.told.size() == 5);
    CHECK(mover.counters().calls == 2);
    CHECK(application.look(64, 64) == second);
    CHECK(application.look(128, 64) == first);
  }
  SECTION("what comes before is not what follows") {
    const std::vector<std::byte> first(64, std::byte{0xA1}), second(64, std::byte{0xA2});
    place(first, 128);
    place(second, 64);
    mover.flush();
    CHECK(mover.counters().calls == 2);
    CHECK(application.look(64, 64) == second);
    CHECK(application.look(128, 64) == first);
  }
  SECTION("all the room there is, and nothing behind it") {
    std::vector<std::vector<std::byte>> quarters;
    for (int i = 0; i < 4; ++i) quarters.emplace_back(64 * 1024, static_cast<std::byte>(0xB0 + i));
    const std::vector<std::byte> more(256 * 1024, std::byte{0xC0});
    for (std::size_t i = 0; i < 4; ++i) place(quarters[i], i * 64 * 1024);
    place(more, 256 * 1024);
    mover.flush();
    CHECK(mover.counters().calls == 2);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(quarters[i] == std::vector<std::byte>(64 * 1024, static_cast<std::byte>(0xB0 + i)));
      CHECK(application.look(i * 64 * 1024, 64 * 1024) == quarters[i]);
    }
    CHECK(application.look(256 * 1024, 256 * 1024) == more);
  }
}

TEST_CASE("V-ORD-09: between two mappings octets are copied at once, and a last one waits for what is on its way",
          "[shm][mover][V-ORD-09]") {
  Application application;
  shm::ApplicationMover mover;
  mover.add_space(SpaceId{1}, application.by_thread());
  Owner owner;
  std::vector<std::byte> from(64, std::byte{0xA1}), to(64);
  const auto at = [](std::vector<std::byte>& memory, std::size_t offset, std::uint32_t length) {
    return tpt::Access{.space = {1}, .address = 0, .direct = memory.data() + offset, .length = length, .stag = {}};
  };
  SECTION("at once") {
    const std::uint32_t size = GENERATE(1u, 3u, 8u);
    CHECK(mover.transfer(at(from, 0, 56), at(to, 0, 56), tpt::Part::body, {&owner, 1}) == tpt::Moved::done);
    CHECK(mover.transfer(at(from, 56, size), at(to, 56, size), tpt::Part::tail, {&owner, 1}) == tpt::Moved::done);
    CHECK(std::equal(to.begin(), to.begin() + 56 + size, from.begin()));
    CHECK(mover.transfer(at(from, 0, 0), at(to, 0, 0), tpt::Part::tail, {&owner, 1}) == tpt::Moved::done);
    CHECK_FALSE(mover.has_moves());
  }
  SECTION("behind a remote copy of the same application, as the source was then") {
    const std::vector<std::byte> before(16, std::byte{0xB1});
    REQUIRE(mover.place(before, application.at(8192, 16), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
    CHECK(mover.transfer(at(from, 0, 8), at(to, 0, 8), tpt::Part::tail, {&owner, 2}) == tpt::Moved::later);
    from.assign(64, std::byte{0xC1});
    CHECK(to[0] == std::byte{0});
    mover.flush();
    CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, true}});
    CHECK(std::equal(to.begin(), to.begin() + 8, std::vector<std::byte>(8, std::byte{0xA1}).begin()));
  }
  SECTION("it fails where one of them is not mapped") {
    CHECK(mover.transfer(application.at(0, 8), at(to, 0, 8), tpt::Part::body, {&owner, 1}) == tpt::Moved::failed);
    CHECK(mover.transfer(at(from, 0, 8), application.at(0, 8), tpt::Part::tail, {&owner, 1}) == tpt::Moved::failed);
  }
}

struct RefusingThreads final : shm::Copier {
  void copy(shm::CopyCall& call) override {
    if (!call.by_thread) return Copier::copy(call);
    ++refused;
    call.moved = -1;
    call.error = error;
  }
  int error = EPERM, refused = 0;
};

TEST_CASE("what is copied at once is copied by who wants to, and what comes later is not", "[shm][mover]") {
  struct Noting final : tpt::Copying {
    void copy(Bytes from, MutableBytes into) override {
      std::memcpy(into.data(), from.data(), from.size());
      copied += from.size();
    }
    std::size_t copied = 0;
  };
  Application application;
  shm::ApplicationMover mover;
  mover.add_space(SpaceId{1}, application.by_thread());
  Owner owner;
  const std::vector<std::byte> here(3000, std::byte{0xA1});
  std::vector<std::byte> into(6000);
  Noting noting;
  const tpt::Access mapped{.space = {1}, .address = 0, .direct = const_cast<std::byte*>(here.data()), .length = 3000};
  CHECK(mover.gather(mapped, MutableBytes{into}.first(3000), {&owner, 1}, noting) == tpt::Moved::done);
  CHECK(noting.copied == 3000);
  CHECK(mover.gather(application.at(10, 3000), MutableBytes{into}.last(3000), {&owner, 2}, noting) ==
        tpt::Moved::later);
  mover.flush();
  CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{2, true}});
  CHECK(std::equal(here.begin(), here.end(), into.begin()));
  CHECK(into[3000] == static_cast<std::byte>(70));
  CHECK(noting.copied == 3000);
}

TEST_CASE("where copies by thread are refused the descriptor is used, for atomics too", "[shm][mover]") {
  RefusingThreads copier;
  Application application;
  shm::ApplicationMover mover(copier);
  Owner owner;
  std::byte octets[8];
  std::memset(octets, 0x5a, sizeof octets);
  shm::SpaceReach reach = application.by_descriptor();
  reach.helper_tid = application.by_thread().helper_tid;
  SECTION("octets") {
    copier.error = ENOSYS;
    mover.add_space(SpaceId{1}, reach);
    REQUIRE(mover.place(octets, application.at(8, 8), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
    mover.flush();
    CHECK(application.look(8, 1)[0] == std::byte{0x5a});
  }
  SECTION("a word") {
    mover.add_space(SpaceId{1}, reach);
    std::uint64_t original = 0, before = 0;
    std::memcpy(&before, application.look(8, 8).data(), sizeof before);
    REQUIRE(mover.fetch_add(application.at(8, 8), 1, 0, original, {&owner, 1}) == tpt::Moved::later);
    mover.flush();
    CHECK(original == before);
    CHECK(application.look(8, 1)[0] == static_cast<std::byte>((before + 1) & 0xff));
  }
  CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}});
  CHECK(copier.refused == 1);
  REQUIRE(mover.place(octets, application.at(16, 8), tpt::Part::body, {&owner, 2}) == tpt::Moved::later);
  mover.flush();
  CHECK(copier.refused == 1);  // it is not tried again
}

TEST_CASE("a descriptor that is used instead may be 0", "[shm][mover]") {
  RefusingThreads copier;
  const Application application;
  const int kept = dup(STDIN_FILENO);
  REQUIRE(dup2(application.by_descriptor().mem_fd, STDIN_FILENO) == STDIN_FILENO);
  shm::ApplicationMover mover(copier);
  mover.add_space(SpaceId{1}, {application.by_thread().helper_tid, STDIN_FILENO});
  mover.add_space(SpaceId{2}, {application.by_thread().helper_tid, STDIN_FILENO});
  Owner owner;
  const std::vector<std::byte> octets(8, std::byte{0x5a});
  std::uint64_t original = 0;
  tpt::Access word = application.at(8, 8);
  word.space = SpaceId{2};
  REQUIRE(mover.place(octets, application.at(16, 8), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  REQUIRE(mover.fetch_add(word, 1, 0, original, {&owner, 2}) == tpt::Moved::later);
  mover.flush();
  CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, true}});
  CHECK(application.look(16, 8) == octets);
  CHECK(application.word(8) == original + 1);
  close(STDIN_FILENO);
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  }
}

TEST_CASE("W-EXT-08: compare and swap by copies puts a word there where it compares equal, else tells what is there",
          "[shm][mover][W-EXT-08]") {
  for (const bool by_thread : {true, false}) {
    Application application;
    shm::ApplicationMover mover;
    mover.add_space(SpaceId{1}, reach(application, by_thread));
    Owner owner;
    const std::uint64_t before = application.word(8);
    std::uint64_t original = 0;
    REQUIRE(mover.compare_swap(application.at(8, 8), before + 1, ~std::uint64_t{0}, 77, ~std::uint64_t{0}, original,
                               {&owner, 1}) == tpt::Moved::later);
    mover.flush();
    CHECK(original == before);
    CHECK(application.word(8) == before);
    original = 0;
    REQUIRE(mover.compare_swap(application.at(8, 8), before, ~std::uint64_t{0}, 77, ~std::uint64_t{0}, original,
                               {&owner, 2}) == tpt::Moved::later);
    mover.flush();
    CHECK(original == before);
    CHECK(application.word(8) == 77);
    CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, true}});
  }
}

TEST_CASE("where copies are refused and there is no descriptor they fail", "[shm][mover]") {
  struct Refusing final : shm::Copier {
    void copy(shm::CopyCall& call) override {
      call.moved = -1;
      call.error = EPERM;
    }
  } copier;
  Application application;
  shm::ApplicationMover mover(copier);
  mover.add_space(SpaceId{1}, application.by_thread());
  Owner owner;
  std::byte octets[8] = {};
  REQUIRE(mover.place(octets, application.at(8, 8), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  mover.flush();
  CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, false}});
  CHECK(mover.counters().failures == 1);
  CHECK(mover.counters().bytes == 0);
}

TEST_CASE("V-ORD-09: more pieces than a burst may have are moved all the same, in order", "[shm][mover][V-ORD-09]") {
  for (const bool by_thread : {true, false}) {
    Application application;
    shm::ApplicationMover mover;
    mover.add_space(SpaceId{1}, reach(application, by_thread));
    Owner owner;
    std::byte octets[2] = {std::byte{0x21}, std::byte{0x22}};
    std::uint32_t later = 0;
    for (std::uint32_t i = 0; i < 20'000; ++i) {
      const auto moved =
          mover.place(Bytes(octets).subspan(i % 2, 1), application.at(100, 1), tpt::Part::tail, {&owner, i});
      REQUIRE(moved != tpt::Moved::failed);
      later += moved == tpt::Moved::later ? 1 : 0;
    }
    mover.flush();
    CHECK(later == 20'000);
    CHECK(owner.told.size() == later);
    CHECK(application.look(100, 1)[0] == std::byte{0x22});  // the last of all
  }
}

TEST_CASE("V-SEC-13: memory that is not there fails its own piece and no other", "[shm][mover][V-SEC-13][W-RDMAP-58]") {
  for (const bool by_thread : {true, false}) {
    Application application;
    shm::ApplicationMover mover;
    mover.add_space(SpaceId{1}, reach(application, by_thread));
    Owner owner;
    std::byte octets[64] = {};
    tpt::Access nowhere = application.at(0, 64);
    nowhere.address = 4096;
    CHECK(mover.place(octets, application.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
    CHECK(mover.place(octets, nowhere, tpt::Part::body, {&owner, 2}) == tpt::Moved::later);
    CHECK(mover.place(octets, application.at(128, 64), tpt::Part::body, {&owner, 3}) == tpt::Moved::later);
    mover.flush();
    REQUIRE(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, false}, {3, true}});
    CHECK(application.look(128, 1)[0] == std::byte{0});
  }
}

TEST_CASE("V-RNIC-12: a process that is gone fails what was meant for it", "[shm][mover][V-RNIC-12]") {
  for (const bool by_thread : {true, false}) {
    Application application;
    shm::ApplicationMover mover;
    mover.add_space(SpaceId{1}, reach(application, by_thread));
    application.end();
    Owner owner;
    std::byte octets[64] = {};
    for (std::uint32_t i = 1; i <= 3; ++i)
      CHECK(mover.place(octets, application.at(0, 64), tpt::Part::body, {&owner, i}) == tpt::Moved::later);
    mover.flush();
    REQUIRE(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, false}, {2, false}, {3, false}});
    CHECK(mover.counters().bytes == 0);
  }
}

TEST_CASE("V-MR-20: what was cancelled is neither moved nor told", "[shm][mover][V-MR-20]") {
  Application application;
  shm::ApplicationMover mover;
  mover.add_space(SpaceId{1}, application.by_thread());
  Owner owner, other;
  std::byte octets[64];
  std::memset(octets, 0xee, sizeof octets);
  CHECK(mover.place(octets, application.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  CHECK(mover.place(octets, application.at(64, 64), tpt::Part::body, {&other, 2}) == tpt::Moved::later);
  mover.cancel(owner);
  mover.flush();
  CHECK(owner.told.empty());
  CHECK(other.told.size() == 1);
  CHECK(application.look(0, 1)[0] == std::byte{0});
  CHECK(application.look(64, 1)[0] == std::byte{0xee});
}

TEST_CASE("memory that is mapped here is moved at once", "[shm][mover]") {
  shm::ApplicationMover mover;
  Owner owner;
  alignas(8) std::byte here[16] = {};
  std::byte octets[8];
  std::memset(octets, 0x11, sizeof octets);
  tpt::Access access{SpaceId{9}, 0, here + 8, 8, Stag{}};
  CHECK(mover.place(octets, access, tpt::Part::tail, {&owner, 1}) == tpt::Moved::done);
  CHECK(here[8] == std::byte{0x11});
  CHECK(here[7] == std::byte{0});
  std::byte back[8] = {};
  CHECK(mover.gather(access, back, {&owner, 2}) == tpt::Moved::done);
  CHECK(back[0] == std::byte{0x11});
  // The end of a message: no octet beside it, whatever its length and place.
  for (std::uint32_t at = 0; at < 8; ++at) {
    for (std::uint32_t length = 1; length <= 8; ++length) {
      std::memset(here, 0, sizeof here);
      access = {SpaceId{9}, 0, here + at, length, Stag{}};
      CHECK(mover.place(Bytes(octets).first(length), access, tpt::Part::tail, {&owner, 3}) == tpt::Moved::done);
      for (std::uint32_t i = 0; i < 16; ++i) REQUIRE((here[i] == std::byte{0x11}) == (i >= at && i < at + length));
    }
  }
  CHECK(owner.told.empty());
}

TEST_CASE("V-ORD-09: a last octet that is mapped here comes behind a rest that is not", "[shm][mover][V-ORD-09]") {
  Application application;
  shm::ApplicationMover mover;
  mover.add_space(SpaceId{1}, application.by_thread());
  Owner owner;
  const std::vector<std::byte> body(32, std::byte{0xB0});
  REQUIRE(mover.place(body, application.at(4096, 32), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  std::byte last{};
  tpt::Access mapped = application.at(8192, 1);
  mapped.direct = &last;
  REQUIRE(mover.place(Bytes(body).first(1), mapped, tpt::Part::tail, {&owner, 2}) == tpt::Moved::later);
  CHECK(last == std::byte{0});
  std::byte middle{};
  mapped.direct = &middle;
  CHECK(mover.place(Bytes(body).first(1), mapped, tpt::Part::body, {&owner, 3}) == tpt::Moved::done);
  CHECK(middle == std::byte{0xB0});
  CHECK(owner.told.empty());
  mover.flush();
  CHECK(last == std::byte{0xB0});
  CHECK(application.look(4096, 32) == body);
  CHECK(owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, true}});
}

TEST_CASE("W-EXT-02: fetch and add honours its mask, compare and swap both of its",
          "[shm][mover][W-EXT-02][W-EXT-08]") {
  shm::ApplicationMover mover;
  alignas(8) std::uint64_t word = 0xffff'ffff;
  tpt::Access access{SpaceId{9}, 0, reinterpret_cast<std::byte*>(&word), 8, Stag{}};
  std::uint64_t original = 0;
  REQUIRE(mover.fetch_add(access, 1, 0x8000'0000, original, {}) == tpt::Moved::done);
  CHECK(original == 0xffff'ffff);
  CHECK(word == 0);  // the carry out of bit 31 was dropped
  REQUIRE(mover.fetch_add(access, 5, 0, original, {}) == tpt::Moved::done);
  CHECK(word == 5);
  REQUIRE(mover.compare_swap(access, 0x0504, 0xff, 0xabcd, 0xff00, original, {}) == tpt::Moved::done);
  CHECK(original == 5);
  CHECK(word == 5);  // 4 is not 5
  REQUIRE(mover.compare_swap(access, 0x0605, 0xff, 0xabcd, 0xff00, original, {}) == tpt::Moved::done);
  CHECK(word == 0xab05);
}

}  // namespace
