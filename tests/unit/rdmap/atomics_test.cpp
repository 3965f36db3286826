// The peer's atomic operation that is executed.

#include "rdmap/atomics.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_ground.hpp"
#include "rdmap/early.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Fault;
using State = rdmap::Atomics::State;

namespace {

constexpr auto kAtomicRights = kAllRights | tpt::Rights::remote_atomic;

struct Executing : Ground {
  explicit Executing(Moves moves = Moves::direct)
      : Ground(with([](rdmap::Settings& s) { s.access = kAllAccess | tpt::Rights::remote_atomic; }), moves),
        region_(region(64, 0, kAtomicRights)) {}
  std::uint64_t& word(std::size_t n = 0) { return reinterpret_cast<std::uint64_t*>(region_.memory.data())[n]; }
  wire::AtomicRequestHeader request(wire::AtomicOpcode opcode, std::uint64_t offset = 0) const {
    wire::AtomicRequestHeader header;
    header.opcode = opcode;
    header.stag = region_.stag;
    header.tagged_offset = region_.at(offset);
    return header;
  }
  Region& region_;
  rdmap::Early early;
  rdmap::Atomics atomics{common, &early};
};

}  // namespace

TEST_CASE("W-EXT-08: each operation gives what was there before, and does its own", "[rdmap][W-EXT-08][W-EXT-09]") {
  Executing e;
  e.word() = 10;
  auto header = e.request(wire::AtomicOpcode::fetch_add);
  SECTION("a sum") {
    header.data = 5;
    CHECK_FALSE(e.atomics.execute(header));
    CHECK(e.word() == 15);
  }
  SECTION("a swap compares with nothing, and looks at no mask") {
    header = e.request(wire::AtomicOpcode::swap);
    header.data = 0x1122334455667788;
    header.compare = 99;
    CHECK_FALSE(e.atomics.execute(header));
    CHECK(e.word() == 0x1122334455667788);
  }
  SECTION("a compare that is equal") {
    header = e.request(wire::AtomicOpcode::compare_swap);
    header.compare = 0x0A;
    header.compare_mask = 0xFF;
    header.data = 0x77;
    header.data_mask = 0xFF;
    CHECK_FALSE(e.atomics.execute(header));
    CHECK(e.word() == 0x77);
  }
  SECTION("one that is not") {
    header = e.request(wire::AtomicOpcode::compare_swap);
    header.compare = 11;
    header.compare_mask = header.data_mask = UINT64_MAX;
    header.data = 0x77;
    CHECK_FALSE(e.atomics.execute(header));
    CHECK(e.word() == 10);
  }
  CHECK(e.atomics.state() == State::done);
  CHECK_FALSE(e.common.moves.atomic);
  CHECK(e.atomics.take_result() == 10u);
  CHECK(e.atomics.state() == State::nothing);
}

TEST_CASE("W-EXT-03: what is refused has touched nothing", "[rdmap][W-EXT-03][W-EXT-04][V-ACC-08]") {
  Executing e;
  auto header = e.request(wire::AtomicOpcode::fetch_add);
  header.data = 5;
  Fault expected{};
  SECTION("not aligned") {
    header.tagged_offset += GENERATE(1, 4, 7);
    expected = Fault::atomic_alignment;
  }
  SECTION("no such STag, whatever else is wrong") {
    header.stag = {0x1234500};
    header.tagged_offset += 1;
    e.settings.access = kAllAccess;
    expected = rdmap::atomic_fault(tpt::Refusal::invalid_stag);
  }
  SECTION("beyond the region") {
    header.tagged_offset = e.region_.at(57);
    expected = rdmap::atomic_fault(tpt::Refusal::base_or_bounds);
  }
  SECTION("a region without the right") {
    header.stag = e.region(8).stag;
    header.tagged_offset = e.regions.back().base;
    expected = rdmap::atomic_fault(tpt::Refusal::access_rights);
  }
  SECTION("a queue pair without it, even beyond the region") {
    e.settings.access = kAllAccess;
    header.tagged_offset = e.region_.at(GENERATE(0u, 60u));
    expected = Fault::atomic_access;
  }
  CHECK(e.atomics.execute(header) == expected);
  CHECK(e.atomics.state() == State::nothing);
  CHECK(e.word() == 0);
}

TEST_CASE("W-EXT-16: one that is done later is begun until then", "[rdmap][W-EXT-16]") {
  Executing e(Moves::at_flush);
  auto header = e.request(wire::AtomicOpcode::fetch_add, 8);
  header.data = 5;
  const bool fails = GENERATE(false, true);
  if (fails) e.mover.unreachable.insert(e.region_.stag.value);
  CHECK_FALSE(e.atomics.execute(header));
  CHECK(e.atomics.state() == State::begun);
  CHECK(e.common.moves.atomic);
  e.mover.flush();
  REQUIRE(e.moved == std::vector<std::pair<std::uint32_t, bool>>{{rdmap::token::kAtomic, !fails}});
  e.atomics.on_moved(!fails);
  CHECK_FALSE(e.common.moves.atomic);
  CHECK(e.atomics.state() == (fails ? State::failed : State::done));
  CHECK(e.atomics.take_result().has_value() == !fails);
  CHECK(e.atomics.state() == State::nothing);
}

TEST_CASE("memory that cannot be reached at once has no result", "[rdmap][W-EXT-16]") {
  Executing e;
  e.mover.unreachable.insert(e.region_.stag.value);
  CHECK_FALSE(e.atomics.execute(e.request(wire::AtomicOpcode::fetch_add)));
  CHECK(e.atomics.state() == State::failed);
  CHECK_FALSE(e.atomics.take_result());
}

TEST_CASE("forgotten, nothing is begun", "[rdmap]") {
  Executing e(Moves::at_flush);
  CHECK_FALSE(e.atomics.execute(e.request(wire::AtomicOpcode::fetch_add)));
  e.atomics.forget();
  CHECK(e.atomics.state() == State::nothing);
  CHECK_FALSE(e.common.moves.atomic);
}

TEST_CASE("W-TCP-09: what was placed early beneath an atomic operation is placed once more", "[rdmap][W-TCP-09]") {
  Executing e;
  tpt::Access to;
  to.address = e.region_.at(7);
  to.length = 1;
  e.early.add(1000, to);
  to.address = e.region_.at(8);
  e.early.add(2000, to);
  CHECK_FALSE(e.atomics.execute(e.request(wire::AtomicOpcode::fetch_add)));
  CHECK(e.early.find(1000)->again);
  CHECK_FALSE(e.early.find(2000)->again);
}
