// Two queue pairs of one device and one protection domain, each with a raw peer of its own: whose a window is, what
// it keeps busy, and when what one stream invalidates is gone for the other.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

namespace {

constexpr auto kLocalAndBind = tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::window_bind;
constexpr std::uint8_t kWindowKey = 5;

struct Device {
  explicit Device(Moves given = Moves::direct) : moves(given), one(queue_pair(1)), two(queue_pair(2)) {}

  std::unique_ptr<Raw> queue_pair(std::uint32_t number) {
    const auto change = [number](qp::Config& c) {
      c.number = {number};
      c.access = kAllAccess | tpt::Rights::window_bind;
    };
    return std::make_unique<Raw>(default_start(), change, moves, tcp::Options{}, 9216, &table);
  }
  Stag window() {
    const auto made = table.allocate_window(kPd, 0);
    REQUIRE(made);
    return *made;
  }

  Moves moves;
  tpt::Table table{256, 1};
  std::unique_ptr<Raw> one, two;
};

Stag keyed(Stag stag) { return {(stag.value & ~0xFFu) | kWindowKey}; }

// Of the whole region.
qp::WorkRequest bind(Stag window, const Region& region, tpt::Rights rights) {
  auto request = work(qp::Opcode::bind);
  request.remote_stag = keyed(window);
  request.invalidate = region.stag;
  request.remote_to = region.base;
  request.argument = region.memory.size();
  request.rights = rights;
  return request;
}

// The peer writes 8 octets there: whether they are placed and nobody complains.
bool writes(Raw& by, const Region& region, Stag through, std::size_t offset, std::uint32_t seed = 7) {
  by.say(tagged(0, true, through, region.at(offset), filled(8, seed)));
  return by.us->qp.state() == State::rts && std::memcmp(region.memory.data() + offset, filled(8, seed).data(), 8) == 0;
}

}  // namespace

TEST_CASE("V-MW-10: a window is its queue pair's: the other one that uses it ends, and that one alone",
          "[qp][V-MW-10][V-SEC-03][V-ACC-04][V-MWR-01]") {
  Device d;
  Region& region = d.one->us->region(64, 0, kLocalAndBind);  // no remote right: a window needs none of it
  const Stag window = d.window();
  d.one->us->post(bind(window, region, tpt::Rights::remote_write));
  d.one->run();
  REQUIRE(d.one->us->app.completions.size() == 1);
  CHECK(d.one->us->app.completions[0].status == qp::Status::success);
  CHECK(d.one->heard.empty());
  CHECK(writes(*d.one, region, keyed(window), 0));

  const auto before = region.memory;
  const Octets trespass = tagged(0, true, keyed(window), region.at(8), filled(8));
  d.two->say(trespass);
  REQUIRE(d.two->terminates().size() == 1);
  CHECK(d.two->terminates()[0].code.word() == 0x1102);
  CHECK(std::memcmp(d.two->terminates()[0].ddp_header.data(), trespass.data(), 14) == 0);
  CHECK(d.two->us->app.events == std::vector{qp::Event::invalid_pd});
  CHECK(d.two->us->qp.state() == State::terminate);
  CHECK(region.memory == before);

  CHECK(d.one->us->app.events.empty());
  CHECK(writes(*d.one, region, keyed(window), 56));
  // A right that the window has not, though nobody could write by the region either.
  SECTION("the window is not for reading") {
    d.one->say(read_request(1, {{1}, 0, 8, keyed(window), region.base}));
    REQUIRE(d.one->terminates().size() == 1);
    CHECK(d.one->terminates()[0].code.word() == 0x0102);
  }
  SECTION("the region's own STag is for no peer") {
    CHECK_FALSE(writes(*d.one, region, region.stag, 16));
    REQUIRE(d.one->terminates().size() == 1);
    CHECK(d.one->terminates()[0].code.word() == 0x1102);
  }
}

namespace {

// A window is bound; all that may not be done meanwhile is tried; a peer invalidates the window.
void bind_and_let_go(Device& d, Region& region, Region& receive, Stag window, std::uint32_t msn) {
  Raw& one = *d.one;
  one.us->app.completions.clear();
  one.us->post(bind(window, region, kAllAccess));
  one.us->post_receive({Side::sge(receive, 0, 8)});
  one.run();
  REQUIRE(one.us->app.completions.size() == 1);
  REQUIRE(one.us->app.completions[0].status == qp::Status::success);

  REQUIRE(d.table.deregister(region.stag).error() == tpt::Refusal::cannot_invalidate);
  const tpt::RegionOptions anew{.pd = kPd, .rights = kLocalAndBind, .base = region.base, .size = 64, .key = 9};
  REQUIRE(d.table.reregister(region.stag, anew).error() == tpt::RegisterError::busy);
  REQUIRE(d.table.window_bound_to({1}));  // what Destroy QP and Deallocate PD look at
  REQUIRE(writes(one, region, keyed(window), 0, msn));
  REQUIRE(writes(one, region, region.stag, 8, msn));

  // Another queue pair of the domain may invalidate the region, but for the window: an error of its own request.
  d.two = d.queue_pair(2);
  auto invalidate = work(qp::Opcode::local_invalidate);
  invalidate.remote_stag = region.stag;
  d.two->us->post(invalidate);
  d.two->run();
  REQUIRE(d.two->us->app.completions.size() == 1);
  REQUIRE(d.two->us->app.completions[0].status == qp::Status::access);
  REQUIRE(d.two->us->app.events.empty());
  REQUIRE(d.two->terminates() == std::vector{wire::TerminateMessage{}});
  REQUIRE(writes(one, region, keyed(window), 16, msn));

  one.say(untagged(4, true, 0, msn, 0, filled(8), keyed(window)));
  REQUIRE(one.us->app.completions.size() == 2);
  const qp::Completion& told = one.us->app.completions[1];
  REQUIRE(told.status == qp::Status::success);
  REQUIRE(told.invalidated);
  REQUIRE(told.word == keyed(window).value);
  REQUIRE_FALSE(d.table.window_bound_to({1}));
  REQUIRE(d.table.query(region.stag)->windows_bound == 0);
  REQUIRE(one.us->qp.state() == State::rts);
  one.heard.clear();
  one.us->mover.places.clear();
  one.wire.payload_sizes.clear();
}

void stays_busy_only_while_bound(std::uint32_t rounds) {
  Device d;
  Region& region = d.one->us->region(64, 0, kAllRights | tpt::Rights::window_bind);
  Region& receive = d.one->us->region(8);
  const Stag window = d.window();
  for (std::uint32_t round = 1; round <= rounds; ++round) bind_and_let_go(d, region, receive, window, round);
  CHECK(d.table.deregister(region.stag));
  CHECK(d.table.deallocate_window(window));
  CHECK(d.table.used() == 1);  // the receives' memory
}

}  // namespace

TEST_CASE("V-MW-14: what has a window is busy until a peer has invalidated it, and no count is left over",
          "[qp][V-MW-14][V-QP-15][V-PD-04][V-MR-06][V-INV-05][V-INV-07][V-INV-09]") {
  stays_busy_only_while_bound(30);
}
TEST_CASE("V-MW-14: a hundred thousand times", "[.whole][V-MW-14]") { stays_busy_only_while_bound(100'000); }

TEST_CASE("V-INV-10: a queue pair that waits for what others have submitted has turns, and as soon as it is done tells",
          "[qp][V-INV-10][V-SR-07]") {
  Device d;
  Raw& one = *d.one;
  Region& target = one.us->region(64);
  one.us->post_receive({});
  one.us->mover.pending = true;
  one.say(untagged(4, true, 0, 1, 0, {}, target.stag));
  CHECK(one.us->app.completions.empty());
  CHECK_FALSE(one.us->qp.idle());
  one.us->mover.stuck = true;  // one of them waits for a page: who has that wakes us
  CHECK(one.us->qp.idle());
  one.us->mover.stuck = false;
  CHECK_FALSE(writes(*d.two, target, target.stag, 0));
  const bool closes = GENERATE(false, true);
  if (closes) {
    REQUIRE(one.us->qp.modify_state(State::closing, one.wire.now));
    one.run();
    CHECK(one.us->app.completions.empty());
    CHECK_FALSE(one.us->qp.idle());
  }
  one.us->mover.pending = false;
  one.run();
  REQUIRE(one.us->app.completions.size() == 1);
  CHECK(one.us->app.completions[0].status == qp::Status::success);
  CHECK(one.us->app.completions[0].invalidated);
  CHECK((closes || one.us->qp.idle()));
}

TEST_CASE("V-SR-07: what a long Send invalidates takes another stream's Writes until its receive completes",
          "[qp][V-SR-07][V-SR-08][V-INV-04][V-INV-10][V-SEC-07]") {
  Device d(GENERATE(Moves::direct, Moves::at_flush, Moves::late));
  Raw& one = *d.one;
  Region& target = one.us->region(4096);
  Region& to = one.us->region(4000);
  const auto slot = one.us->post_receive({Side::sge(to, 0, 4000)});
  one.run();
  const auto say_part = [&](std::uint32_t number) {
    one.say(untagged(4, number == 3, 0, 1, 1000 * number, filled(1000, number + 1), target.stag));
  };
  for (std::uint32_t number = 0; number < 3; ++number) {
    say_part(number);
    CHECK(writes(*d.two, target, target.stag, 8 * number, number + 1));
  }
  one.us->mover.stalled = true;  // all has arrived, and is not in place
  say_part(3);
  CHECK(one.us->app.completions.empty());
  CHECK(writes(*d.two, target, target.stag, 24));
  one.us->mover.stalled = false;
  one.run();

  REQUIRE(one.us->app.completions.size() == 1);
  const qp::Completion& told = one.us->app.completions[0];
  CHECK(told.slot == slot);
  CHECK(told.status == qp::Status::success);
  CHECK(told.length == 4000);
  CHECK(told.invalidated);
  CHECK(told.word == target.stag.value);
  for (std::size_t number = 0; number < 4; ++number)
    CHECK(std::memcmp(to.memory.data() + 1000 * number, filled(1000, static_cast<std::uint32_t>(number) + 1).data(),
                      1000) == 0);

  const auto before = target.memory;
  CHECK_FALSE(writes(*d.two, target, target.stag, 32));
  CHECK(target.memory == before);
  CHECK(d.two->us->app.events == std::vector{qp::Event::invalid_stag});
  REQUIRE(d.two->terminates().size() == 1);
  CHECK(d.two->terminates()[0].code.word() == 0x1100);
  CHECK(one.us->qp.state() == State::rts);
}
