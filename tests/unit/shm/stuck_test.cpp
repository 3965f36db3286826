// Copies that wait for a page: taken over, kept to themselves, and taken back in order.
#include <cstring>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/held_copier.hpp"
#include "kit/process.hpp"
#include "kit/tpt_move_owner.hpp"
#include "shm/mover.hpp"

namespace {

using namespace rnic;
using test::ForkedApplication;
using test::Owner;
using Told = std::vector<std::pair<std::uint32_t, bool>>;

struct Stage {
  Stage() {
    mover.add_space(slow.space(), slow.by_thread());
    mover.add_space(other.space(), other.by_thread());
  }
  // A thread flushes, is held, and we take its place.
  void get_stuck() {
    copier.hold(slow.pid());
    thread = std::thread([this] { replaced = !mover.carry_out(); });
    way = copier.await_held();
    REQUIRE(mover.watch().take_over(mover.watch().current()));
    mover.on_taken_over();
    REQUIRE(mover.carry_out());
  }
  void come_back() {
    copier.let_go(slow.pid());
    thread.join();
    CHECK(replaced);
  }
  ~Stage() {
    if (!thread.joinable()) return;
    copier.let_go(slow.pid());
    thread.join();
  }

  test::HeldCopier copier;
  ForkedApplication slow{SpaceId{1}}, other{SpaceId{2}};
  shm::ApplicationMover mover{copier};
  std::thread thread;
  bool replaced = false;
  shm::Way way{};
};

constexpr std::byte kNew{0x77};

}  // namespace

TEST_CASE("a copy that waits is left alone, and others' are carried out", "[shm][mover][stuck]") {
  Stage stage;
  Owner owner, bystander;
  std::vector<std::byte> octets(64, kNew);
  REQUIRE(stage.mover.place(octets, stage.slow.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  REQUIRE(stage.mover.place(octets, stage.other.at(0, 64), tpt::Part::body, {&bystander, 2}) == tpt::Moved::later);
  stage.get_stuck();
  CHECK(stage.mover.is_stuck(stage.slow.space()));
  CHECK_FALSE(stage.mover.is_stuck(stage.other.space()));
  CHECK(owner.told.empty());
  CHECK(bystander.told == Told{{2, true}});
  CHECK(stage.other.octet(0) == kNew);
  CHECK(owner.keeps == 1);
  CHECK(bystander.keeps == 0);
  CHECK(stage.mover.counters().stuck == 1);

  std::byte back[8];
  REQUIRE(stage.mover.gather(stage.other.at(0, 8), back, {&bystander, 3}) == tpt::Moved::later);
  REQUIRE(stage.mover.carry_out());
  CHECK(bystander.told == Told{{2, true}, {3, true}});

  stage.come_back();
  CHECK(owner.told.empty());  // the thread that is back tells nobody
  REQUIRE(stage.mover.carry_out());
  CHECK(owner.told == Told{{1, true}});
  CHECK(stage.slow.octet(0) == kNew);
  CHECK_FALSE(stage.mover.is_stuck(stage.slow.space()));
  shm::ApplicationMover::News news;
  REQUIRE(stage.mover.pop_news(news));
  CHECK(news.kind == shm::ApplicationMover::News::Kind::stuck);
  REQUIRE(stage.mover.pop_news(news));
  CHECK(news.kind == shm::ApplicationMover::News::Kind::back);
  CHECK(news.space == stage.slow.space());
  CHECK_FALSE(stage.mover.pop_news(news));
}

TEST_CASE("V-ORD-09: what is submitted behind a copy that waits comes behind it, mapped here or not",
          "[shm][mover][stuck][V-ORD-09]") {
  Stage stage;
  Owner owner;
  std::vector<std::byte> octets(64, kNew);
  REQUIRE(stage.mover.place(octets, stage.slow.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  stage.get_stuck();
  std::byte last{};
  tpt::Access mapped = stage.slow.at(200, 1);
  mapped.direct = &last;
  REQUIRE(stage.mover.place(Bytes(octets).first(8), stage.slow.at(64, 8), tpt::Part::tail, {&owner, 2}) ==
          tpt::Moved::later);
  REQUIRE(stage.mover.place(Bytes(octets).first(1), mapped, tpt::Part::tail, {&owner, 3}) == tpt::Moved::later);
  std::byte seen[8] = {};
  REQUIRE(stage.mover.gather(stage.slow.at(128, 8), seen, {&owner, 4}) == tpt::Moved::later);
  for (int i = 0; i < 3; ++i) REQUIRE(stage.mover.carry_out());
  CHECK(stage.slow.octet(64) == std::byte{1});
  CHECK(last == std::byte{0});
  CHECK(seen[0] == std::byte{0});
  CHECK(owner.told.empty());
  stage.come_back();
  REQUIRE(stage.mover.carry_out());
  CHECK(stage.slow.octet(0) == kNew);
  CHECK(stage.slow.octet(64) == kNew);
  CHECK(last == kNew);
  CHECK(seen[0] == std::byte{1});
  CHECK(owner.told.size() == 4);
}

TEST_CASE("V-INV-10: what was submitted is done after a flush, unless a copy waits; what comes later does not count",
          "[shm][mover][stuck][V-INV-10]") {
  Stage stage;
  Owner owner;
  std::vector<std::byte> octets(64, kNew);
  const SpaceId slow = stage.slow.space(), other = stage.other.space();
  const std::uint64_t first = stage.mover.flushes();
  CHECK(stage.mover.has_done(slow, first));
  REQUIRE(stage.mover.place(octets, stage.slow.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  REQUIRE(stage.mover.place(octets, stage.other.at(0, 64), tpt::Part::body, {&owner, 2}) == tpt::Moved::later);
  CHECK_FALSE(stage.mover.has_done(slow, first));
  stage.get_stuck();
  CHECK_FALSE(stage.mover.has_done(slow, first));
  CHECK(stage.mover.has_done(other, first));
  REQUIRE(stage.mover.place(octets, stage.other.at(0, 64), tpt::Part::body, {&owner, 3}) == tpt::Moved::later);
  CHECK(stage.mover.has_done(other, first));
  CHECK_FALSE(stage.mover.has_done(other, stage.mover.flushes()));
  stage.come_back();
  CHECK_FALSE(stage.mover.has_done(slow, first));
  REQUIRE(stage.mover.carry_out());
  CHECK(stage.mover.has_done(slow, first));
}

TEST_CASE("V-SEC-13: a copy that waited and then failed fails its own piece, and the rest is moved",
          "[shm][mover][stuck][V-SEC-13]") {
  Stage stage;
  Owner owner;
  std::vector<std::byte> octets(64, kNew);
  tpt::Access nowhere = stage.slow.at(0, 64);
  nowhere.address = 4096;
  REQUIRE(stage.mover.place(octets, stage.slow.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  REQUIRE(stage.mover.place(octets, nowhere, tpt::Part::body, {&owner, 2}) == tpt::Moved::later);
  REQUIRE(stage.mover.place(octets, stage.slow.at(128, 64), tpt::Part::tail, {&owner, 3}) == tpt::Moved::later);
  stage.get_stuck();
  REQUIRE(stage.mover.place(octets, stage.slow.at(256, 64), tpt::Part::tail, {&owner, 4}) == tpt::Moved::later);
  stage.come_back();
  REQUIRE(stage.mover.carry_out());
  CHECK(owner.told == Told{{1, true}, {2, false}, {3, true}, {4, true}});
  CHECK(stage.slow.octet(128) == kNew);
  CHECK(stage.slow.octet(256) == kNew);
}

TEST_CASE("V-MR-20: of what is cancelled only the copy that has begun goes on, and what it copies from is kept",
          "[shm][mover][stuck][V-MR-20]") {
  Stage stage;
  Owner owner, other;
  owner.memory = std::shared_ptr<std::byte[]>(new std::byte[64]);
  std::memset(owner.memory.get(), 0x77, 64);
  std::vector<std::byte> octets(64, kNew);
  REQUIRE(stage.mover.place({owner.memory.get(), 64}, stage.slow.at(0, 64), tpt::Part::body, {&owner, 1}) ==
          tpt::Moved::later);
  stage.get_stuck();
  REQUIRE(stage.mover.place(octets, stage.slow.at(64, 64), tpt::Part::body, {&owner, 2}) == tpt::Moved::later);
  REQUIRE(stage.mover.place(octets, stage.slow.at(128, 64), tpt::Part::body, {&other, 3}) == tpt::Moved::later);
  CHECK_FALSE(stage.mover.cancel(other));
  const std::weak_ptr<std::byte[]> memory = owner.memory;
  owner.memory.reset();
  SECTION("its owner hears when it is over") {
    CHECK(stage.mover.cancel(owner));
    CHECK_FALSE(memory.expired());
    stage.come_back();
    CHECK(owner.let_goes == 0);
    REQUIRE(stage.mover.carry_out());
    CHECK(owner.let_goes == 1);
  }
  SECTION("or not, if there is none") {
    stage.mover.forget(owner);
    CHECK_FALSE(memory.expired());
    stage.come_back();
    REQUIRE(stage.mover.carry_out());
    CHECK(owner.let_goes == 0);
  }
  CHECK(memory.expired());
  CHECK(owner.told.empty());
  CHECK(other.told.empty());
  CHECK(stage.slow.octet(64) == std::byte{1});
  CHECK(stage.slow.octet(128) == std::byte{1});
}

TEST_CASE("a space that is removed while it is stuck goes with its copy", "[shm][mover][stuck]") {
  Stage stage;
  Owner owner;
  std::vector<std::byte> octets(64, kNew);
  REQUIRE(stage.mover.place(octets, stage.slow.at(0, 64), tpt::Part::body, {&owner, 1}) == tpt::Moved::later);
  stage.get_stuck();
  stage.mover.forget(owner);
  CHECK_FALSE(stage.mover.remove_space(stage.slow.space()));
  CHECK(stage.mover.place(octets, stage.slow.at(0, 64), tpt::Part::body, {&owner, 2}) == tpt::Moved::failed);
  stage.come_back();
  REQUIRE(stage.mover.carry_out());
  CHECK(owner.told.empty());
  CHECK(stage.mover.remove_space(stage.slow.space()));
  shm::ApplicationMover::News news;
  REQUIRE(stage.mover.pop_news(news));
  REQUIRE(stage.mover.pop_news(news));
  CHECK(news.kind == shm::ApplicationMover::News::Kind::back);
  stage.mover.add_space(stage.slow.space(), stage.slow.by_thread());  // its number is free
  REQUIRE(stage.mover.place(octets, stage.slow.at(64, 64), tpt::Part::body, {&owner, 3}) == tpt::Moved::later);
  REQUIRE(stage.mover.carry_out());
  CHECK(owner.told == Told{{3, true}});
}

TEST_CASE("W-EXT-08: an atomic operation that waits for its page keeps no other waiting, and is done once",
          "[shm][mover][stuck][W-EXT-08]") {
  Stage stage;
  Owner owner, bystander;
  const std::uint64_t before = stage.slow.word(0);
  std::uint64_t original = 0, others = 0;
  REQUIRE(stage.mover.fetch_add(stage.slow.at(0, 8), 5, 0, original, {&owner, 1}) == tpt::Moved::later);
  stage.get_stuck();
  CHECK(stage.way == shm::Way::gather);
  REQUIRE(stage.mover.fetch_add(stage.other.at(0, 8), 1, 0, others, {&bystander, 2}) == tpt::Moved::later);
  REQUIRE(stage.mover.carry_out());
  CHECK(bystander.told == Told{{2, true}});
  CHECK(others == 0x0101'0101'0101'0101);
  CHECK(stage.other.word(0) == 0x0101'0101'0101'0102);
  // Another RNIC's worker is not kept waiting either.
  shm::ApplicationMover elsewhere;
  elsewhere.add_space(stage.other.space(), stage.other.by_thread());
  REQUIRE(elsewhere.fetch_add(stage.other.at(0, 8), 1, 0, others, {&bystander, 3}) == tpt::Moved::later);
  REQUIRE(elsewhere.carry_out());
  CHECK(stage.other.word(0) == 0x0101'0101'0101'0103);
  stage.come_back();
  CHECK(stage.slow.word(0) == before);
  CHECK(original == 0);
  REQUIRE(stage.mover.carry_out());
  CHECK(owner.told == Told{{1, true}});
  CHECK(original == before);
  CHECK(stage.slow.word(0) == before + 5);
}

TEST_CASE("W-EXT-08: atomic operations of two workers on one word lose nothing", "[shm][mover][W-EXT-08]") {
  constexpr std::uint32_t kTimes = 2000;
  ForkedApplication application;
  const std::uint64_t before = application.word(0);
  const auto add = [&] {
    shm::ApplicationMover mover;
    mover.add_space(application.space(), application.by_thread());
    Owner owner;
    std::uint64_t original = 0;
    for (std::uint32_t i = 0; i < kTimes; ++i) {
      (void)mover.fetch_add(application.at(0, 8), 1, 0, original, {&owner, i});
      (void)mover.carry_out();
    }
  };
  std::thread one(add), two(add);
  one.join();
  two.join();
  CHECK(application.word(0) == before + std::uint64_t{2} * kTimes);
}
