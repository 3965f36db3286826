// Sends, Writes and Reads between two queue pairs, over every kind of memory reach.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

Options with(Moves moves, std::uint64_t seed = 1) {
  Options options;
  options.moves = moves;
  options.seed = seed;
  return options;
}

bool same(const Region& x, const Region& y) { return x.memory == y.memory; }

constexpr std::uint32_t kSizes[] = {0, 1, 7, 8, 9, 1439, 1440, 1441, 1454, 65536, 300'001};

}  // namespace

TEST_CASE("V-SR-01: a Send consumes one receive and is told with its length", "[qp][V-SR-01][V-SR-03][W-DDP-14]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  for (const std::uint32_t size : kSizes) {
    Pair pair(with(moves, size + 1));
    Region& from = pair.a->region(size + 1, 3);
    Region& to = pair.b->region(size + 100);
    pair.b->post_receive({Side::sge(to, 0, size + 50)});
    pair.b->post_receive({Side::sge(to, 0, size + 50)});
    const auto slot = pair.a->post(send({Side::sge(from, 0, size)}));
    pair.run();
    REQUIRE(pair.a->app.completions.size() == 1);
    CHECK(pair.a->app.completions[0].status == qp::Status::success);
    CHECK(pair.a->app.completions[0].slot == slot);
    REQUIRE(pair.b->app.completions.size() == 1);
    CHECK(pair.b->app.completions[0].length == size);
    CHECK(pair.b->app.completions[0].opcode == qp::Opcode::receive);
    CHECK(std::memcmp(to.memory.data(), from.memory.data(), size) == 0);
    CHECK(to.memory[size] == std::byte{0});
    CHECK(pair.b->app.receives.size() == 1);
  }
}

TEST_CASE("V-SGL-02: a Send is gathered from several SGEs and scattered to others", "[qp][V-SGL-02][V-SGL-07]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Pair pair(with(moves));
  Region& from = pair.a->region(20000, 5);
  Region& to = pair.b->region(20000);
  pair.b->post_receive({Side::sge(to, 0, 3), Side::sge(to, 3, 0), Side::sge(to, 3, 5000), Side::sge(to, 5003, 14997)});
  pair.a->post(send(
      {Side::sge(from, 0, 1), Side::sge(from, 1, 9999), Side::sge(from, 10000, 0), Side::sge(from, 10000, 10000)}));
  pair.run();
  REQUIRE(pair.b->app.completions.size() == 1);
  CHECK(pair.b->app.completions[0].length == 20000);
  CHECK(same(from, to));
}

TEST_CASE("V-SR-04: a Write goes to its place and tells the target nothing", "[qp][V-SR-04][W-RDMAP-08][V-SR-01]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  for (const std::uint32_t size : kSizes) {
    Pair pair(with(moves, size + 1));
    Region& from = pair.a->region(size + 1, 3);
    Region& to = pair.b->region(size + 100);
    pair.b->post_receive({Side::sge(to, 0, 1)});
    pair.a->post(write({Side::sge(from, 0, size)}, to.stag, to.at(40)));
    pair.run();
    REQUIRE(pair.a->app.completions.size() == 1);
    CHECK(pair.a->app.completions[0].status == qp::Status::success);
    CHECK(pair.b->app.completions.empty());
    CHECK(std::memcmp(to.memory.data() + 40, from.memory.data(), size) == 0);
    CHECK(to.memory[39] == std::byte{0});
    CHECK(to.memory[40 + size] == std::byte{0});
  }
}

TEST_CASE("V-RD-07: a Read brings what is there, of any length", "[qp][V-RD-07][V-RD-08][W-RDMAP-13]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  for (const std::uint32_t size : kSizes) {
    Pair pair(with(moves, size + 1));
    Region& to = pair.a->region(size + 100);
    Region& from = pair.b->region(size + 100, 9);
    pair.a->post(read({Side::sge(to, 8, size)}, from.stag, from.at(3)));
    // The responder may speak only once it was spoken to; a is the initiator here.
    pair.run();
    REQUIRE(pair.a->app.completions.size() == 1);
    CHECK(pair.a->app.completions[0].status == qp::Status::success);
    CHECK(pair.a->app.completions[0].opcode == qp::Opcode::read);
    CHECK(pair.a->app.completions[0].length == size);
    CHECK(std::memcmp(to.memory.data() + 8, from.memory.data() + 3, size) == 0);
    CHECK(to.memory[7] == std::byte{0});
    CHECK(to.memory[8 + size] == std::byte{0});
  }
}

TEST_CASE("V-ACC-07: accesses of no octets look at no STag",
          "[qp][V-ACC-07][V-SGL-03][V-RD-07][W-DDP-09][W-RDMAP-12]") {
  Pair pair;
  const Stag garbage{0xdeadbe00};
  pair.b->post_receive({{1, 0, garbage}});
  pair.a->post(write({{1, 0, garbage}}, garbage, 5));
  pair.a->post(read({{1, 0, garbage}}, garbage, 5));
  pair.a->post(send({{1, 0, garbage}}));
  pair.run();
  REQUIRE(pair.a->app.completions.size() == 3);
  for (const auto& c : pair.a->app.completions) CHECK(c.status == qp::Status::success);
  REQUIRE(pair.b->app.completions.size() == 1);
  CHECK(pair.b->app.completions[0].length == 0);
}

TEST_CASE("V-RD-07: when a Read of no octets completes, the Writes and Sends before it have been done",
          "[qp][V-RD-07][V-FEN-03][V-ACC-07]") {
  Pair pair(with(Moves::late, static_cast<std::uint64_t>(GENERATE(1, 2, 3, 4, 5, 6, 7, 8))));
  const Stag garbage{0xdeadbe00};
  Region& from = pair.a->region(30'000, 3);
  Region& there = pair.b->region(30'000);
  pair.b->post_receive({Side::sge(there, 0, 0)});
  pair.a->post(write({Side::sge(from, 0, 30'000)}, there.stag, there.base));
  pair.a->post(send());
  const auto slot = pair.a->post(read({{1, 0, garbage}}, garbage, 5));
  for (int i = 0; i < 2000 && pair.a->app.completions.size() < 3; ++i) pair.step();
  REQUIRE(pair.a->app.completions.size() == 3);
  CHECK(pair.a->app.completions[2].slot == slot);
  CHECK(pair.a->app.completions[2].status == qp::Status::success);
  CHECK(same(from, there));
  CHECK(pair.b->app.of_receives().size() == 1);
}

TEST_CASE("W-RDMAP-12: a Read of no octets is answered by a Response of none, to the sink it names",
          "[qp][W-RDMAP-12][W-RDMAP-09]") {
  Raw raw;
  const wire::ReadRequestHeader request{.sink_stag = {0x1234ab},
                                        .sink_to = 0x7000'0000'0005,
                                        .size_bytes = 0,
                                        .source_stag = {0xdeadbe00},
                                        .source_to = ~std::uint64_t{0}};
  raw.say(read_request(1, request));
  CHECK(raw.heard == std::vector<Octets>{tagged(2, true, request.sink_stag, request.sink_to)});
  CHECK(raw.us->app.events.empty());
  CHECK(raw.us->qp.state() == qp::State::rts);
}

TEST_CASE("V-WR-16: inline data is sent as it was posted", "[qp][V-WR-16]") {
  Pair pair;
  Region& to = pair.b->region(100);
  const auto data = filled(50);
  pair.b->post_receive({Side::sge(to, 0, 100)});
  auto request = send();
  request.has_data = true;
  request.data = data;
  pair.a->post(request);
  pair.run();
  REQUIRE(pair.b->app.completions.size() == 1);
  CHECK(std::memcmp(to.memory.data(), data.data(), 50) == 0);
}

TEST_CASE("V-SEC-08: the SGEs of data gathered at post are checked all the same", "[qp][V-SEC-08]") {
  Pair pair;
  Region& from = pair.a->region(50, 1);
  Region& to = pair.b->region(100);
  pair.b->post_receive({Side::sge(to, 0, 100)});
  const auto data = filled(50);
  auto request = send({{from.at(1), 50, from.stag}});
  request.has_data = true;
  request.data = data;
  pair.a->post(request);
  pair.run();
  REQUIRE(pair.a->app.of_sends().size() == 1);
  CHECK(pair.a->app.of_sends()[0].status == qp::Status::base_bounds);
  CHECK(to.memory[0] == std::byte{0});
}

TEST_CASE("V-SR-09: Send with SE is told as solicited, with Invalidate with its STag",
          "[qp][V-SR-09][V-SR-08][V-SR-07]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Pair pair(with(moves));
  Region& to = pair.b->region(9000);
  Region& dies = pair.b->region(64);
  Region& from = pair.a->region(9000, 4);
  for (int i = 0; i < 3; ++i) pair.b->post_receive({Side::sge(to, 0, 9000)});
  auto plain = send({Side::sge(from, 0, 10)});
  auto solicited = plain;
  solicited.solicited = true;
  auto invalidates = work(qp::Opcode::send_invalidate, {Side::sge(from, 0, 9000)});
  invalidates.solicited = true;
  invalidates.invalidate = dies.stag;
  pair.a->post(plain);
  pair.a->post(solicited);
  pair.a->post(invalidates);
  pair.run();
  const auto& got = pair.b->app.completions;
  REQUIRE(got.size() == 3);
  CHECK_FALSE(got[0].solicited);
  CHECK(got[1].solicited);
  CHECK_FALSE(got[1].invalidated);
  CHECK(got[2].solicited);
  CHECK(got[2].invalidated);
  CHECK(got[2].word == dies.stag.value);
  CHECK_FALSE(pair.b->table.check_local(dies.stag, kPd, tpt::Rights::local_read, dies.base, 1));
}

TEST_CASE("W-TCP-02: small messages share a segment, and no FPDU lies in two", "[qp][W-TCP-02][W-TCP-13][W-TCP-24]") {
  Pair pair;
  pair.run();
  pair.wire.payload_sizes.clear();
  Region& from = pair.a->region(64, 4);
  Region& to = pair.b->region(4096);
  // 64 octets: ULPDU 78, FPDU 84; 17 of them are 1428, and 18 would be 1512.
  for (std::uint32_t i = 0; i < 34; ++i) pair.a->post(write({Side::sge(from, 0, 64)}, to.stag, to.at(64 * i)));
  pair.run();
  std::vector<std::uint32_t> sizes;
  for (const auto& [is_a, size] : pair.wire.payload_sizes)
    if (is_a) sizes.push_back(size);
  CHECK(sizes == std::vector<std::uint32_t>{1428, 1428});
  CHECK(pair.a->app.completions.size() == 34);
}

TEST_CASE("W-MPA-05: both directions work with markers", "[qp][W-MPA-05]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Options options = with(moves);
  options.start = default_start();
  options.start.markers_out = true;
  options.start.markers_in = mpa::Markers::expected;
  Pair pair(options);
  Region& a = pair.a->region(50000, 4);
  Region& b = pair.b->region(50000);
  Region& c = pair.a->region(50000);
  pair.a->post(write({Side::sge(a, 0, 20000), Side::sge(a, 20000, 30000)}, b.stag, b.base));
  pair.a->post(read({Side::sge(c, 0, 50000)}, b.stag, b.base));
  pair.run();
  CHECK(pair.a->app.completions.size() == 2);
  CHECK(same(a, b));
  CHECK(same(a, c));
}

TEST_CASE("V-ORD-09: the last 1..8 octets of a message are a place of their own, behind the rest", "[qp][V-ORD-09]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  for (const std::uint32_t size : {1u, 8u, 9u, 64u, 5000u}) {
    Pair pair(with(moves));
    Region& from = pair.a->region(size, 4);
    Region& to = pair.b->region(size);
    pair.a->post(write({Side::sge(from, 0, size)}, to.stag, to.base));
    pair.run();
    CHECK(pair.b->mover.tails() == std::vector<std::uint32_t>{std::min(size, 8u)});
    CHECK(pair.b->mover.places.back().part == tpt::Part::tail);
    CHECK(same(from, to));
  }
}
