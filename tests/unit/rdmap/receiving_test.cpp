// The receive that a message is placed in.

#include "rdmap/receiving.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_ground.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Status;

namespace {

struct Taking : Ground {
  using Ground::Ground;
  bool take(std::vector<rdmap::Sge> sges, std::uint32_t slot = 3) {
    rdmap::ReceiveRequest request;
    request.slot = slot;
    request.sge_count = static_cast<std::uint8_t>(sges.size());
    std::copy(sges.begin(),
              sges.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(sges.size(), rdmap::kSgesMax)),
              request.sges.begin());
    app.receives.push_back(request);
    return receiving.take();
  }
  ddp::Placement place(const Octets& payload, bool last) {
    const Octets ulpdu = Octets(18) + payload;
    const std::array<Bytes, 1> spans{Bytes(ulpdu)};
    return receiving.place({spans, static_cast<std::uint32_t>(ulpdu.size())}, 18,
                           static_cast<std::uint32_t>(payload.size()), last, {this, 7}, nullptr);
  }
  rdmap::Receiving receiving{common};
};

}  // namespace

TEST_CASE("a receive is the next that is posted, and has room for all of its SGEs", "[rdmap][V-SR-04]") {
  Taking t;
  CHECK_FALSE(t.receiving.take());
  CHECK_FALSE(t.receiving.active());
  Region& memory = t.region(64);
  CHECK(t.take({Ground::sge(memory, 0, 10), Ground::sge(memory, 20, 5)}));
  CHECK(t.receiving.active());
  CHECK(t.receiving.capacity() == 15);
  CHECK(t.receiving.slot() == 3);
  t.receiving.done();
  CHECK_FALSE(t.receiving.active());
  CHECK(t.take({}, 4));
  CHECK(t.receiving.capacity() == 0);
  CHECK(t.receiving.slot() == 4);
}

TEST_CASE("one of too many SGEs is malformed, and none of them is counted", "[rdmap]") {
  Taking t;
  Region& memory = t.region(64);
  const std::size_t count = GENERATE(rdmap::kSgesMax, rdmap::kSgesMax + 1);
  CHECK(t.take(std::vector<rdmap::Sge>(count, Ground::sge(memory, 0, 4))));
  CHECK(t.receiving.malformed() == (count > rdmap::kSgesMax));
  CHECK(t.receiving.capacity() == (count > rdmap::kSgesMax ? 0 : 4 * count));
}

TEST_CASE("octets go on where the last ended, over SGEs and over those of no octets", "[rdmap][V-SR-04][V-ORD-09]") {
  Taking t;
  Region& memory = t.region(64);
  t.take({Ground::sge(memory, 0, 10), Ground::sge(memory, 15, 0), Ground::sge(memory, 20, 20)});
  REQUIRE(t.receiving.check() == Status::success);
  const Octets payload = filled(26);
  CHECK_FALSE(t.place({payload.begin(), payload.begin() + 6}, false).failed);
  CHECK(t.mover.tails().empty());
  CHECK(t.place({payload.begin() + 6, payload.end()}, true).later == 0);
  CHECK(std::equal(payload.begin(), payload.begin() + 10, memory.memory.begin()));
  CHECK(std::equal(payload.begin() + 10, payload.end(), memory.memory.begin() + 20));
  CHECK(memory.memory[15] == std::byte{0});
  // Only the message's last octets are its tail.
  CHECK(t.mover.parts() == std::vector<std::pair<tpt::Part, std::uint32_t>>{
                               {tpt::Part::body, 6}, {tpt::Part::body, 4}, {tpt::Part::body, 8}, {tpt::Part::tail, 8}});
}

TEST_CASE("V-INV-10: SGEs are checked whole, once in a turn", "[rdmap][V-INV-10][V-SGL-04]") {
  Taking t;
  Region& memory = t.region(64);
  Region& reading = t.region(64, 0, tpt::Rights::local_read);
  SECTION("what the table permitted may be gone in the next") {
    t.take({Ground::sge(memory, 0, 10)});
    CHECK(t.receiving.check() == Status::success);
    REQUIRE(t.table.deregister(memory.stag));
    CHECK(t.receiving.check() == Status::success);
    ++t.common.turn;
    CHECK(t.receiving.check() == Status::invalid_stag);
  }
  SECTION("another receive is checked by itself") {
    t.take({Ground::sge(memory, 0, 10)});
    CHECK(t.receiving.check() == Status::success);
    t.take({Ground::sge(reading, 0, 10)});
    CHECK(t.receiving.check() == Status::access);
  }
  SECTION("against the receive queue's PD") {
    t.settings.receive_pd = kOtherPd;
    t.take({Ground::sge(memory, 0, 10)});
    CHECK(t.receiving.check() == Status::invalid_pd);
  }
  SECTION("the second of two") {
    t.take({Ground::sge(memory, 0, 10), Ground::sge(memory, 60, 5)});
    CHECK(t.receiving.check() == Status::base_bounds);
  }
}

TEST_CASE("what stands behind a receive's SGEs is not looked at", "[rdmap][V-SGL-04]") {
  Taking t;
  Region& memory = t.region(64);
  rdmap::ReceiveRequest request;
  request.sge_count = 1;
  request.sges[0] = Ground::sge(memory, 0, 8);
  request.sges[1] = {0x1000, 8, {0xdeadbe00}};
  t.app.receives.push_back(request);
  REQUIRE(t.receiving.take());
  CHECK(t.receiving.capacity() == 8);
  CHECK(t.receiving.check() == Status::success);
}

TEST_CASE("V-ERRST-03: one that is active goes down as failed, or as flushed", "[rdmap][V-ERRST-03]") {
  Taking t;
  t.receiving.flush();
  CHECK(t.app.completions.empty());
  t.take({});
  const bool failed = GENERATE(true, false);
  if (failed) t.receiving.fails(Status::message_too_long);
  t.receiving.flush();
  REQUIRE(t.app.completions.size() == 1);
  CHECK(t.app.completions[0].status == (failed ? Status::message_too_long : Status::flushed));
  CHECK(t.app.completions[0].slot == 3);
  CHECK_FALSE(t.app.completions[0].of_send_queue);
  CHECK(t.common.flushed_receives == (failed ? 0 : 1));
  CHECK_FALSE(t.receiving.active());
  // The next has nothing of it.
  t.take({});
  t.receiving.flush();
  CHECK(t.app.completions[1].status == Status::flushed);
}
