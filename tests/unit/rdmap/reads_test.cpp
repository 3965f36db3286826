// The accounts of Reads and atomic operations, of both directions.

#include "rdmap/reads.hpp"

#include <set>
#include <vector>

#include "kit/catch.hpp"

using namespace rnic;

namespace {

rdmap::OutboundRead asked(std::uint32_t msn) {
  rdmap::OutboundRead read;
  read.msn = msn;
  read.work = 100 + msn;
  return read;
}

}  // namespace

TEST_CASE("V-ORD-07: a Read counts from its Request until its Response is delivered", "[rdmap][V-ORD-07]") {
  rdmap::Reads reads(1, 4, {});
  CHECK(reads.outstanding() == 0);
  for (std::uint32_t msn = 1; msn <= 3; ++msn) reads.ask(asked(msn));
  CHECK(reads.outstanding() == 3);
  CHECK(reads.due() == 3);
  CHECK(reads.due_at(0).msn == 1);
  CHECK(reads.due_at(2).msn == 3);

  // All of the first's Response is here, and not delivered.
  reads.came_in_full();
  CHECK(reads.outstanding() == 3);
  CHECK(reads.due() == 2);
  CHECK(reads.due_at(0).msn == 2);
  CHECK(reads.oldest().msn == 1);

  reads.delivered();
  CHECK(reads.outstanding() == 2);
  CHECK(reads.due() == 2);
  CHECK(reads.oldest().msn == 2);
}

TEST_CASE("those outstanding are looked at from the oldest on, until somebody has seen enough", "[rdmap][V-CS-05]") {
  rdmap::Reads reads(1, 4, {});
  for (std::uint32_t msn = 1; msn <= 4; ++msn) reads.ask(asked(msn));
  reads.came_in_full();
  std::vector<std::uint32_t> seen;
  reads.for_each_outstanding([&](const rdmap::OutboundRead& read) {
    seen.push_back(read.work);
    return read.msn != 3;
  });
  CHECK(seen == std::vector<std::uint32_t>{101, 102, 103});
}

TEST_CASE("V-IRD-10: a Request counts from its arrival until its Response is generated, and is served when delivered",
          "[rdmap][V-IRD-10][V-ORD-05]") {
  rdmap::Reads reads(2, 1, {});
  CHECK_FALSE(reads.ready());
  reads.owe().request.size_bytes = 1;
  reads.owe().request.size_bytes = 2;
  CHECK(reads.owed() == 2);
  CHECK_FALSE(reads.ready());
  reads.request_delivered();
  CHECK(reads.ready());
  CHECK(reads.first_owed().request.size_bytes == 1);
  reads.served();
  CHECK(reads.owed() == 1);
  CHECK_FALSE(reads.ready());
  reads.request_delivered();
  CHECK(reads.first_owed().request.size_bytes == 2);
}

TEST_CASE("a place that is owed again has nothing of whom it was before", "[rdmap]") {
  rdmap::Reads reads(1, 1, {});
  reads.owe().atomic = wire::AtomicRequestHeader{};
  reads.request_delivered();
  reads.served();
  CHECK_FALSE(reads.owe().atomic.has_value());
}

TEST_CASE("what is given up is gone, of one direction and not of the other", "[rdmap]") {
  rdmap::Reads reads(2, 2, {});
  reads.ask(asked(1));
  reads.owe();
  reads.request_delivered();
  SECTION("ours") {
    reads.give_up_ours();
    CHECK(reads.outstanding() == 0);
    CHECK(reads.due() == 0);
    CHECK(reads.owed() == 1);
    CHECK(reads.ready());
    reads.ask(asked(2));
    CHECK(reads.due_at(0).msn == 2);
  }
  SECTION("the peer's") {
    reads.give_up_theirs();
    CHECK(reads.owed() == 0);
    CHECK_FALSE(reads.ready());
    CHECK(reads.outstanding() == 1);
    CHECK(reads.due() == 1);
  }
}

TEST_CASE("W-MPA-49: with depths of 0 there is room for the one Read that needs none", "[rdmap][W-MPA-49]") {
  rdmap::Reads reads(0, 0, {});
  reads.ask(asked(1));
  reads.owe();
  CHECK(reads.outstanding() == 1);
  CHECK(reads.owed() == 1);
}

TEST_CASE("what comes of any Response is progress, and what is asked for is none", "[rdmap]") {
  rdmap::Reads reads(4, 4, {});
  reads.ask(asked(1));
  std::set<std::uint64_t> seen{reads.progress()};
  const auto is_new = [&] { return seen.insert(reads.progress()).second; };
  reads.ask(asked(2));
  CHECK_FALSE(is_new());
  for (int i = 0; i < 2; ++i) {
    --reads.due_at(0).left;
    CHECK(is_new());
    reads.came_in_full();
    CHECK(is_new());
  }
}
