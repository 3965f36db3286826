// Queue pairs of one worker that are each other's peers: what goes without the stream between them, what does not, and
// that nobody can tell which it was.
#include <random>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "qp/local_path.hpp"

namespace {
using namespace rnic;
using namespace rnic::test;
using qp::Opcode;
using qp::Status;

constexpr auto kEverything = kAllRights | tpt::Rights::remote_atomic;

class TestSide final : public qp::LocalSide {
 public:
  bool allowed = true;
  unsigned activated = 0;
  std::uint64_t octets = 0;
  bool is_allowed() const override { return allowed; }
  void activate() override { ++activated; }
  void count(std::uint32_t more) override { octets += more; }
};

// A Write of no octets.
qp::WorkRequest nothing() { return test::write({}, Stag{}, 0); }

enum class Way : std::uint8_t { wire, direct };
// What goes from memory that is mapped to memory that is not, or the other way, goes by packet buffers.
enum class Memory : std::uint8_t { mapped, source_is_not, sink_is_not, none_is };

Options with_extensions(Options options = {}) {
  const auto change = [](qp::Config& config) {
    config.extensions = true;
    config.access = kAllAccess | tpt::Rights::remote_atomic;
  };
  options.a = options.b = change;
  return options;
}

// Both have heard each other, and the stream is quiet.
struct Joined : Pair {
  explicit Joined(Way way = Way::direct, Options given = with_extensions()) : Pair(std::move(given)) {
    if (way == Way::direct) a->qp.join(b->qp, side_a, side_b);
    speak();
  }
  void speak() {
    a->post(nothing());
    run();
    b->post(nothing());
    run();
    a->app.completions.clear();
    b->app.completions.clear();
    wire.payload_sizes.clear();
    direct_before = direct();
    side_a.activated = side_b.activated = 0;
  }
  std::uint64_t direct() const { return a->qp.counters().direct_out + b->qp.counters().direct_out; }
  std::uint64_t went_directly() const { return direct() - direct_before; }
  bool wire_is_silent() const { return wire.payload_sizes.empty(); }
  // Of regions that come next.
  void set(Memory memory) {
    a->maps = memory == Memory::mapped || memory == Memory::sink_is_not;
    b->maps = memory == Memory::mapped || memory == Memory::source_is_not;
  }

  TestSide side_a, side_b;
  std::uint64_t direct_before = 0;
};

// Memory that the daemon has not mapped.
Region& unmapped(Side& side, std::size_t size, std::uint32_t fill = 0) {
  const bool before = std::exchange(side.maps, false);
  Region& region = side.region(size, fill, kEverything);
  side.maps = before;
  return region;
}

qp::WorkRequest atomic(Opcode opcode, qp::Sge sink, const Region& target, std::uint64_t argument,
                       std::uint64_t swap = 0) {
  auto request = test::write({sink}, target.stag, target.at(0));
  request.opcode = opcode;
  request.argument = argument;
  request.swap = swap;
  return request;
}

bool operator==(const qp::Completion& x, const qp::Completion& y) {
  const auto all = [](const qp::Completion& c) {
    return std::make_tuple(c.opcode, c.status, c.of_send_queue, c.shared, c.solicited, c.invalidated, c.immediate,
                           c.slot, c.length, c.word, c.detail);
  };
  return all(x) == all(y);
}

// All that an application can tell, and its administrator.
struct Seen {
  std::vector<qp::Completion> sends, receives;
  std::vector<qp::Event> events;
  std::string state, terminate;
  std::vector<Octets> memory;
  bool operator==(const Seen& other) const {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() &&
             std::equal(x.begin(), x.end(), y.begin(), [](const auto& p, const auto& q) { return p == q; });
    };
    return same(sends, other.sends) && same(receives, other.receives) && events == other.events &&
           state == other.state && terminate == other.terminate && memory == other.memory;
  }
};
std::ostream& operator<<(std::ostream& out, const Seen& all) {
  for (const auto* queue : {&all.sends, &all.receives})
    for (const qp::Completion& c : *queue)
      out << (c.of_send_queue ? "send " : "receive ") << c.slot << ": opcode " << static_cast<int>(c.opcode)
          << " status " << static_cast<int>(c.status) << " length " << c.length << " detail " << c.detail << "; ";
  for (const qp::Event event : all.events) out << "event " << static_cast<int>(event) << ' ';
  return out << all.state << ", " << all.terminate;
}
Seen seen(const Side& side) {
  Seen all{.sends = side.app.of_sends(),
           .receives = side.app.of_receives(),
           .events = side.app.events,
           .state = qp::name(side.qp.state()),
           .terminate = qp::describe(side.qp.terminate_record()),
           .memory = {}};
  for (const Region& region : side.regions) all.memory.push_back(region.memory);
  return all;
}
}  // namespace

TEST_CASE("a first message opens the gate of its receiver, and the next go without the stream", "[qp][local]") {
  Pair pair;
  TestSide side_a, side_b;
  pair.a->qp.join(pair.b->qp, side_a, side_b);
  Region& from = pair.a->region(100, 5);
  Region& to = pair.b->region(100);
  pair.a->post(test::write({Side::sge(from, 0, 50)}, to.stag, to.at(0)));
  pair.run();
  CHECK(pair.a->qp.counters().direct_out == 0);
  const std::size_t frames = pair.wire.payload_sizes.size();
  CHECK(frames != 0);
  pair.a->post(test::write({Side::sge(from, 50, 50)}, to.stag, to.at(50)));
  pair.run();
  CHECK(pair.a->qp.counters().direct_out == 1);
  CHECK(pair.b->qp.counters().direct_in == 1);
  CHECK(pair.wire.payload_sizes.size() == frames);
  CHECK(to.memory == from.memory);
  CHECK(pair.a->app.completions.size() == 2);
  CHECK(pair.b->qp.counters().writes_in == 2);
  CHECK(pair.b->qp.counters().bytes_in == 100);
}

TEST_CASE("V-ORD-02: every operation goes without the stream, and does what it does on it", "[qp][local]") {
  const Moves moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  const std::uint32_t size = GENERATE(0u, 1u, 8u, 1000u, 200'000u);
  const Memory memory = GENERATE(Memory::mapped, Memory::source_is_not, Memory::sink_is_not, Memory::none_is);
  CAPTURE(static_cast<int>(moves), size, static_cast<int>(memory));
  const auto run = [&](Way way) {
    Options options = with_extensions();
    options.moves = moves;
    options.seed = size + 3;
    Joined pair(way, options);
    pair.set(memory);
    Region& from = pair.a->region(size + 8, 5, kEverything);
    Region& to = pair.b->region(size + 8, 0, kEverything);
    Region& beside = pair.b->region(size + 8, 0, kEverything);
    Region& into = pair.a->region(size + 8, 0, kEverything);
    Region& word = pair.b->region(8, 9, kEverything);
    Region& received = pair.b->region(3 * size + 1, 0, kEverything);
    Region& gone = pair.b->region(16, 0, kEverything);
    for (std::uint32_t i = 0; i < 3; ++i)
      pair.b->post_receive(
          {Side::sge(received, i * size, size / 2), Side::sge(received, i * size + size / 2, size - size / 2)});
    pair.b->post_receive({});
    pair.a->post(test::write({Side::sge(from, 0, size)}, to.stag, to.at(0)));
    pair.a->post(test::send(
        {Side::sge(from, 0, size / 3), Side::sge(from, size / 3, 0), Side::sge(from, size / 3, size - size / 3)}));
    auto solicited = test::send({Side::sge(from, 0, size)});
    solicited.solicited = true;
    pair.a->post(solicited);
    auto invalidates = test::send({Side::sge(from, 0, size)});
    invalidates.opcode = Opcode::send_invalidate;
    invalidates.invalidate = gone.stag;
    pair.a->post(invalidates);
    auto immediate = test::write({Side::sge(from, 0, size)}, beside.stag, beside.at(8));
    immediate.opcode = Opcode::write_immediate;
    immediate.immediate = 0x12345678;
    pair.a->post(immediate);
    pair.a->post(test::read({Side::sge(into, 8, size)}, beside.stag, beside.at(8)));
    pair.a->post(atomic(Opcode::fetch_add, Side::sge(into, 0, 8), word, 7));
    pair.run();
    std::uint64_t expected;
    std::memcpy(&expected, word.memory.data(), 8);
    auto swap = atomic(Opcode::compare_swap, Side::sge(into, 0, 8), word, expected, 77);
    swap.fence = true;
    pair.a->post(swap);
    pair.run();
    const bool silent = pair.wire_is_silent();
    CHECK(silent == (way == Way::direct));
    // A Write with Immediate is two messages; three requests have their answers.
    CHECK(pair.went_directly() == (way == Way::direct ? 12u : 0u));
    CHECK(pair.a->mover.complaint() == "");
    CHECK(pair.b->mover.complaint() == "");
    return std::pair(seen(*pair.a), seen(*pair.b));
  };
  const auto wire = run(Way::wire), direct = run(Way::direct);
  CHECK(wire.first == direct.first);
  CHECK(wire.second == direct.second);
  CHECK(direct.first.sends.size() == 8);
  CHECK(direct.second.receives.size() == 4);
}

TEST_CASE("W-EXT-02: an atomic operation has its masks without the stream, too", "[qp][local][W-EXT-02]") {
  const Moves moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  const Way way = GENERATE(Way::wire, Way::direct);
  Options options = with_extensions();
  options.moves = moves;
  Joined pair(way, options);
  Region& word = pair.b->region(8, 0, kEverything);
  Region& into = pair.a->region(16, 0, kEverything);
  const auto value = [](const Region& region, std::size_t at) {
    std::uint64_t octets;
    std::memcpy(&octets, region.memory.data() + at, sizeof octets);
    return octets;
  };
  const std::uint64_t first = 0xFFFF'0001'8000'FFFF;
  std::memcpy(word.memory.data(), &first, sizeof first);
  auto add = atomic(Opcode::fetch_add, Side::sge(into, 0, 8), word, 0x0001'0001'8000'0001);
  add.add_mask = 0x8000'8000'8000'8000;
  pair.a->post(add);
  pair.run();
  CHECK(value(into, 0) == first);
  CHECK(value(word, 0) == 0x0000'0002'0000'0000);
  auto swap = atomic(Opcode::compare_swap, Side::sge(into, 8, 8), word, 0xAAAA'0002'AAAA'AAAA, 0x5555'5555'5555'5555);
  swap.compare_mask = 0x0000'FFFF'0000'0000;
  swap.swap_mask = 0xFF00'0000'0000'00FF;
  pair.a->post(swap);
  pair.run();
  CHECK(value(into, 8) == 0x0000'0002'0000'0000);
  CHECK(value(word, 0) == 0x5500'0002'0000'0055);
  CHECK(pair.wire_is_silent() == (way == Way::direct));
  CHECK(pair.went_directly() == (way == Way::direct ? 4u : 0u));
}

TEST_CASE("inline data is copied once, from where it was posted", "[qp][local]") {
  Joined pair;
  const Octets data = filled(40);
  Region& to = pair.b->region(40);
  auto request = test::write({}, to.stag, to.at(0));
  request.has_data = true;
  request.data = data;
  pair.a->post(request);
  pair.run();
  CHECK(pair.wire_is_silent());
  CHECK(to.memory == data);
}

TEST_CASE("V-ORD-01: memory that is not mapped here goes by packet buffers, and nothing overtakes it",
          "[qp][local][V-ORD-01]") {
  const bool of_source = GENERATE(false, true);
  Options options = with_extensions();
  options.moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Joined pair(Way::direct, options);
  Region& away = unmapped(of_source ? *pair.a : *pair.b, 100, of_source ? 5 : 0);
  Region& near = (of_source ? *pair.b : *pair.a).region(100, of_source ? 0 : 5);
  Region& from = of_source ? away : near;
  Region& to = of_source ? near : away;
  Region& mapped = pair.a->region(100, 9);
  Region& target = pair.b->region(100);
  std::vector<bool> there;  // when the second is, is the first?
  pair.b->post_receive({Side::sge(target, 0, 100)});
  pair.b->app.on_completion = [&](const qp::Completion&) { there.push_back(to.memory == from.memory); };
  pair.a->post(test::write({Side::sge(from, 0, 100)}, to.stag, to.at(0)));
  pair.a->post(test::send({Side::sge(mapped, 0, 100)}));
  pair.run();
  CHECK(to.memory == from.memory);
  CHECK(target.memory == mapped.memory);
  CHECK(there == std::vector<bool>{true});
  CHECK(pair.wire_is_silent());
  CHECK(pair.went_directly() == 2);
  pair.a->post(test::write({Side::sge(mapped, 0, 50)}, target.stag, target.at(0)));
  pair.run();
  CHECK(pair.wire_is_silent());
}

TEST_CASE("what would be refused takes the stream, and looks as if it were never joined", "[qp][local][V-STOP-03]") {
  const int fault = GENERATE(range(0, 16));
  const bool before = GENERATE(false, true);  // something goes well before it
  const Memory memory = GENERATE(Memory::mapped, Memory::source_is_not, Memory::sink_is_not, Memory::none_is);
  CAPTURE(fault, before, static_cast<int>(memory));
  constexpr std::uint32_t kLength = 5000;  // some segments, and no more than a congestion window begins with
  const auto run = [&](Way way) {
    Options options = with_extensions();
    if (fault == 10 || fault == 11)
      options.b = [&](qp::Config& config) {
        config.extensions = true;
        config.access = fault == 10 ? tpt::Rights::remote_write : tpt::Rights::remote_read;
      };
    if (fault == 6)
      options.b = [](qp::Config& config) {
        config.extensions = true;
        config.access = kAllAccess;
        config.hold_without_receive = false;
      };
    Joined pair(way, options);
    pair.set(memory);
    Region& from = pair.a->region(kLength, 5, kEverything);
    Region& to = pair.b->region(kLength, 0, kEverything);
    Region& into = pair.b->region(kLength / 2, 0, kEverything);
    Region& locked = pair.b->region(kLength, 0, tpt::Rights::local_write);
    const auto sge = Side::sge(from, 0, kLength);
    if (before) pair.a->post(test::write({sge}, to.stag, to.at(0)));
    if (before) pair.run();
    if (before && fault != 11) CHECK(pair.went_directly() == (way == Way::direct ? 1u : 0u));
    pair.a->app.on_event = pair.b->app.on_event = nullptr;
    qp::WorkRequest bad = test::write({sge}, to.stag, to.at(0));
    switch (fault) {
      case 0:
        bad.remote_stag = {to.stag.value ^ 0x100000};
        break;
      case 1:
        bad.remote_to += 1;
        break;
      case 2:
        bad.remote_stag = locked.stag;
        bad.remote_to = locked.at(0);
        break;
      case 3:  // too long for its receive
        pair.b->post_receive({Side::sge(into, 0, kLength / 2)});
        bad = test::send({sge});
        break;
      case 4:  // its receive's memory is gone
        pair.b->post_receive({Side::sge(to, 0, kLength)});
        (void)pair.b->table.deregister(to.stag);
        bad = test::send({sge});
        break;
      case 5: {  // a malformed receive
        pair.b->post_receive({Side::sge(to, 0, kLength)});
        pair.b->app.receives.back().malformed = true;
        bad = test::send({sge});
        break;
      }
      case 6:  // none
        bad = test::send({sge});
        break;
      case 7:  // no room for its completion
        pair.b->post_receive({Side::sge(to, 0, kLength)});
        pair.b->app.room = pair.b->app.completions.size();
        bad = test::send({sge});
        break;
      case 8:  // what it invalidates is nothing
        pair.b->post_receive({Side::sge(to, 0, kLength)});
        bad = test::send({sge});
        bad.opcode = Opcode::send_invalidate;
        bad.invalidate = {0x777700};
        break;
      case 9:  // what it invalidates is not for the peer
        pair.b->post_receive({Side::sge(to, 0, kLength)});
        bad = test::send({sge});
        bad.opcode = Opcode::send_invalidate;
        bad.invalidate = locked.stag;
        break;
      case 10:
      case 12:
        bad = test::read({sge}, fault == 10 ? to.stag : locked.stag, fault == 10 ? to.at(0) : locked.at(0));
        break;
      case 11:
        break;  // no Write is let
      case 13:
        bad = atomic(Opcode::fetch_add, Side::sge(from, 0, 8), to, 1);
        bad.remote_to += 4;
        break;
      case 14:
        bad = atomic(Opcode::fetch_add, Side::sge(from, 0, 8), locked, 1);
        break;
      case 15:  // its own memory
        bad.sges[0].lkey = {0x777700};
        break;
    }
    pair.a->post(bad);
    pair.a->post(test::write({sge}, to.stag, to.at(0)));
    pair.b->post(nothing());
    pair.run();
    pair.pass(seconds(6));
    return std::pair(seen(*pair.a), seen(*pair.b));
  };
  const auto wire = run(Way::wire), direct = run(Way::direct);
  CHECK(wire.first == direct.first);
  CHECK(wire.second == direct.second);
  CHECK(direct.first.state == "Error");
}

TEST_CASE("V-SR-06: a Send that finds no receive is held as ever, and what comes behind it goes behind it",
          "[qp][local][V-SR-06]") {
  const Memory memory = GENERATE(Memory::mapped, Memory::none_is);
  const auto run = [&](Way way) {
    Joined pair(way);
    pair.set(memory);
    Region& from = pair.a->region(3000, 5);
    Region& to = pair.b->region(3000);
    Region& target = pair.b->region(3000);
    pair.a->post(test::send({Side::sge(from, 0, 1000)}));
    pair.a->post(test::write({Side::sge(from, 0, 3000)}, target.stag, target.at(0)));
    pair.a->post(test::send({Side::sge(from, 1000, 2000)}));
    pair.run();
    CHECK(pair.b->app.of_receives().empty());
    CHECK(target.memory == from.memory);  // Writes go on
    CHECK(pair.went_directly() == 0);
    pair.b->post_receive({Side::sge(to, 0, 1000)});
    pair.run();
    CHECK(pair.b->app.of_receives().size() == 1);
    pair.b->post_receive({Side::sge(to, 1000, 2000)});
    pair.b->post_receive({Side::sge(to, 0, 1000)});
    pair.run();
    CHECK(to.memory == from.memory);
    // Nothing is held any more.
    pair.a->post(test::send({Side::sge(from, 0, 10)}));
    pair.run();
    CHECK(pair.went_directly() == (way == Way::direct ? 1u : 0u));
    return std::pair(seen(*pair.a), seen(*pair.b));
  };
  const auto wire = run(Way::wire), direct = run(Way::direct);
  CHECK(wire.first == direct.first);
  CHECK(wire.second == direct.second);
}

TEST_CASE("a long message goes in pieces, as far as the turn's share reaches", "[qp][local]") {
  Options options = with_extensions();
  options.budget_bytes = 4096;
  Joined pair(Way::direct, options);
  constexpr std::uint32_t kLong = 10 * qp::kLocalSegmentMax + 5;
  Region& from = pair.a->region(kLong, 5);
  Region& to = pair.b->region(kLong);
  pair.a->post(test::write({Side::sge(from, 0, kLong)}, to.stag, to.at(0)));
  std::uint64_t before = 0;
  for (int i = 0; i < 11; ++i) {
    pair.turn(*pair.a);
    const std::uint64_t now = pair.a->qp.counters().bytes_out;
    CHECK(now - before <= qp::kLocalSegmentMax);
    before = now;
  }
  CHECK(before == kLong);
  CHECK(to.memory == from.memory);
  CHECK(pair.wire_is_silent());
  CHECK(pair.went_directly() == 1);
}

TEST_CASE("what watches the wire sees every message that begins from then on", "[qp][local]") {
  Options options = with_extensions();
  options.budget_bytes = 1;
  Joined pair(Way::direct, options);
  constexpr std::uint32_t kLong = 3 * qp::kLocalSegmentMax;
  Region& from = pair.a->region(kLong, 5);
  Region& to = pair.b->region(kLong);
  pair.a->post(test::write({Side::sge(from, 0, kLong)}, to.stag, to.at(0)));
  pair.turn(*pair.a);
  pair.side_a.allowed = false;
  pair.run();
  CHECK(to.memory == from.memory);
  CHECK(pair.wire_is_silent());
  pair.a->post(test::write({Side::sge(from, 0, 10)}, to.stag, to.at(0)));
  pair.run();
  CHECK_FALSE(pair.wire_is_silent());
  pair.wire.payload_sizes.clear();
  pair.side_a.allowed = true;
  pair.a->post(test::write({Side::sge(from, 0, 10)}, to.stag, to.at(0)));
  pair.run();
  CHECK(pair.wire_is_silent());
}

// The end of the one and all of the other are in one segment.
TEST_CASE("V-ORD-01: what need not take the stream any more stays behind what began while somebody watched",
          "[qp][local][V-ORD-01]") {
  Options options = with_extensions();
  options.budget_bytes = 1000;
  Joined pair(Way::direct, options);
  const std::uint32_t two_fpdus = pair.a->tcp.emss();
  REQUIRE(two_fpdus > options.budget_bytes);
  Region& from = pair.a->region(two_fpdus, 5);
  Region& then = pair.a->region(10, 9);
  Region& to = pair.b->region(two_fpdus);
  pair.side_a.allowed = false;
  pair.a->post(test::write({Side::sge(from, 0, two_fpdus)}, to.stag, to.at(0)));
  pair.turn(*pair.a);
  pair.side_a.allowed = true;
  pair.turn(*pair.b);
  pair.a->post(test::write({Side::sge(then, 0, 10)}, to.stag, to.at(two_fpdus - 10)));
  pair.run();
  std::memcpy(from.memory.data() + two_fpdus - 10, then.memory.data(), 10);
  CHECK(to.memory == from.memory);
  CHECK(pair.went_directly() == 0);
  CHECK(pair.a->app.of_sends().size() == 2);
}

TEST_CASE("a region that goes in the middle of a message is found gone by the stream", "[qp][local][V-INV-10]") {
  Options options = with_extensions();
  options.budget_bytes = 1;
  const bool of_sender = GENERATE(false, true);
  Joined pair(Way::direct, options);
  constexpr std::uint32_t kLong = 3 * qp::kLocalSegmentMax;
  Region& from = pair.a->region(kLong, 5);
  Region& to = pair.b->region(kLong);
  pair.b->post_receive({Side::sge(to, 0, kLong)});
  pair.a->post(test::send({Side::sge(from, 0, kLong)}));
  pair.turn(*pair.a);
  (void)(of_sender ? pair.a->table.deregister(from.stag) : pair.b->table.deregister(to.stag));
  pair.run();
  pair.pass(seconds(6));
  CHECK(std::equal(to.memory.begin(), to.memory.begin() + qp::kLocalSegmentMax, from.memory.begin()));
  CHECK(std::all_of(to.memory.begin() + qp::kLocalSegmentMax, to.memory.end(),
                    [](std::byte octet) { return octet == std::byte{0}; }));
  CHECK(pair.a->qp.state() == qp::State::error);
  CHECK(pair.b->qp.state() == qp::State::error);
  REQUIRE(pair.a->app.of_sends().size() == 1);
  REQUIRE(pair.b->app.of_receives().size() == 1);
  CHECK(pair.b->app.of_receives()[0].status != Status::success);
}

TEST_CASE("ORD and IRD: as many Reads are under way as were agreed on", "[qp][local][V-ORD-07]") {
  Options options = with_extensions();
  options.start = default_start();
  options.start.ord = 2;
  Joined pair(Way::direct, options);
  Region& from = pair.b->region(1000, 5);
  Region& into = pair.a->region(1000);
  for (std::uint32_t i = 0; i < 10; ++i)
    pair.a->post(test::read({Side::sge(into, i * 100, 100)}, from.stag, from.at(i * 100)));
  pair.turn(*pair.a);
  CHECK(pair.b->qp.counters().reads_in == 2);
  CHECK(pair.side_b.activated != 0);
  CHECK(pair.a->app.completions.empty());
  pair.run();
  CHECK(into.memory == from.memory);
  CHECK(pair.a->app.completions.size() == 10);
  CHECK(pair.wire_is_silent());
}

TEST_CASE("who has nothing to do for what came is not woken", "[qp][local]") {
  Joined pair;
  Region& from = pair.a->region(100, 5);
  Region& to = pair.b->region(100);
  pair.a->post(test::write({Side::sge(from, 0, 100)}, to.stag, to.at(0)));
  pair.turn(*pair.a);
  CHECK(to.memory == from.memory);
  CHECK(pair.side_b.activated == 0);
  CHECK(pair.a->app.completions.size() == 1);
}

TEST_CASE("when one of the two leaves the stream both go on without the other", "[qp][local]") {
  const int how = GENERATE(range(0, 5));
  CAPTURE(how);
  const auto run = [&](Way way) {
    Joined pair(way);
    Region& from = pair.a->region(100, 5);
    Region& to = pair.b->region(100);
    pair.b->post_receive({Side::sge(to, 0, 100)});
    switch (how) {
      case 0:
        (void)pair.b->qp.modify_state(qp::State::error, pair.wire.now);
        break;
      case 1:
        (void)pair.b->qp.modify_state(qp::State::closing, pair.wire.now);
        break;
      case 2:
        (void)pair.b->qp.modify_state(qp::State::terminate, pair.wire.now);
        break;
      case 3:
        (void)pair.a->qp.modify_state(qp::State::error, pair.wire.now);
        break;
      case 4:
        pair.b->qp.detach(pair.wire.now, BufferRef::take(pair.b->pool));
        break;
    }
    pair.a->post(test::write({Side::sge(from, 0, 100)}, to.stag, to.at(0)));
    pair.a->post(test::send({Side::sge(from, 0, 100)}));
    pair.run();
    pair.pass(seconds(6));
    CHECK(pair.went_directly() == 0);
    return std::pair(seen(*pair.a), seen(*pair.b));
  };
  const auto wire = run(Way::wire), direct = run(Way::direct);
  CHECK(wire.first == direct.first);
  CHECK(wire.second == direct.second);
}

TEST_CASE("a stream of a joined pair's next life is joined anew, or is not", "[qp][local]") {
  Joined pair;
  (void)pair.a->qp.modify_state(qp::State::closing, pair.wire.now);
  pair.run();
  pair.pass(seconds(6));
  REQUIRE(pair.a->qp.state() == qp::State::idle);
  REQUIRE(pair.b->qp.state() == qp::State::idle);
  pair.connect_again();
  pair.speak();
  pair.a->post(nothing());
  pair.run();
  CHECK(pair.went_directly() == 0);
  pair.a->qp.join(pair.b->qp, pair.side_a, pair.side_b);
  pair.a->post(nothing());
  pair.run();
  CHECK(pair.went_directly() == 1);
}

TEST_CASE("acknowledged streams go without the stream with their acknowledgements", "[qp][local]") {
  Options options = with_extensions();
  options.start = default_start();
  options.start.acknowledged = true;
  Joined pair(Way::direct, options);
  pair.set(GENERATE(Memory::mapped, Memory::none_is));
  Region& from = pair.a->region(300'000, 5);
  Region& to = pair.b->region(300'000);
  pair.b->post_receive({Side::sge(to, 0, 100)});
  pair.a->post(test::write({Side::sge(from, 0, 300'000)}, to.stag, to.at(0)));
  pair.a->post(test::send({Side::sge(from, 0, 100)}));
  pair.turn(*pair.a);
  CHECK(pair.a->app.completions.empty());
  CHECK(pair.side_b.activated != 0);
  pair.run();
  CHECK(pair.a->app.completions.size() == 2);
  CHECK(to.memory == from.memory);
  CHECK(pair.wire_is_silent());
}

TEST_CASE("what waits for the stream to drain does not wait for long, nor again and again", "[qp][local]") {
  struct Nobody final : qp::LocalPeer {
    bool is_open() const override { return true; }
    bool has_taken(std::uint64_t) const override { return false; }
    bool would_take(const ddp::Ulpdu&, std::uint32_t) override { return true; }
    void take(const ddp::Ulpdu&, bool, const BufferRef*, Instant) override {}
  } nobody;
  TestSide side;
  qp::LocalPath path(nobody, side);
  for (std::uint32_t i = 0; i < qp::LocalPath::kTurns; ++i) CHECK(path.may_wait());
  for (std::uint32_t i = 0; i < qp::LocalPath::kOnStream; ++i) CHECK_FALSE(path.may_wait());
  CHECK(path.may_wait());
  path.has_to_take_stream();
  for (std::uint32_t i = 0; i < qp::LocalPath::kOnStream; ++i) CHECK_FALSE(path.may_wait());
  CHECK(path.may_wait());
  path.has_to_take_stream();
  path.went();
  CHECK(path.may_wait());
}

// Random work of both sides, a message at a time or all at once.
TEST_CASE("random work looks the same by either way", "[qp][local][V-ORD-02][V-ORD-05]") {
  const std::uint64_t seed = GENERATE(range(1, 121));
  const auto run = [&](Way way) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    Options options = with_extensions();
    options.moves = static_cast<Moves>(below(3));
    options.seed = seed;
    options.budget_bytes = below(2) != 0 ? 1u << 20 : 3000;
    options.start = default_start();
    options.start.ord = options.start.ird = 1 + static_cast<std::uint32_t>(below(4));
    options.start.acknowledged = below(3) == 0;
    const bool step_by_step = below(2) != 0;
    Joined pair(way, options);
    constexpr std::uint32_t kArea = 400'000;
    for (Side* side : {pair.a.get(), pair.b.get()}) {
      side->region(kArea, 5 + static_cast<std::uint32_t>(side == pair.b.get()), kEverything);  // sources
      side->region(kArea, 0, kEverything);                                                     // sinks
      side->region(kArea, 0, kEverything);                                                     // receives
      unmapped(*side, kArea, 8);
    }
    std::uint32_t used_sink[2] = {}, used_receive[2] = {}, used_own[2] = {};
    const unsigned count = 1 + static_cast<unsigned>(below(30));
    for (unsigned i = 0; i < count; ++i) {
      const int which = static_cast<int>(below(2));
      Side& self = which == 0 ? *pair.a : *pair.b;
      Side& peer = which == 0 ? *pair.b : *pair.a;
      constexpr std::uint32_t kSizes[] = {0, 1, 7, 8, 9, 64, 1000, 5000, 70'000};
      const std::uint32_t size = kSizes[below(9)];
      Region& source = self.regions[below(4) == 0 ? 3 : 0];
      const qp::Sge from = Side::sge(source, below(100'000), size);
      const auto into_peer = [&] {
        const std::uint32_t at = used_sink[1 - which] + 8;
        used_sink[1 - which] = (at + size + 7) / 8 * 8;
        return at;
      };
      if (used_sink[1 - which] > 250'000 || used_receive[1 - which] > 250'000 || used_own[which] > 250'000) break;
      const auto op = below(6);
      const bool late = below(4) == 0;
      const auto receive = [&] {
        peer.post_receive({Side::sge(peer.regions[2], used_receive[1 - which], size + 3)});
        used_receive[1 - which] += size + 3;
      };
      if ((op == 1 || op == 2) && !late) receive();
      switch (op) {
        case 0:
          self.post(test::write({from}, peer.regions[1].stag, peer.regions[1].at(into_peer())));
          break;
        case 1: {
          auto request = test::send({from});
          request.solicited = below(2) != 0;
          self.post(request);
          break;
        }
        case 2: {
          auto request = test::write({from}, peer.regions[1].stag, peer.regions[1].at(into_peer()));
          request.opcode = Opcode::write_immediate;
          request.immediate = i;
          self.post(request);
          break;
        }
        case 3: {
          // From what nobody writes to.
          auto request = test::read({Side::sge(self.regions[2], 300'000 + used_own[which], std::min(size, 1000u))},
                                    peer.regions[below(4) == 0 ? 3 : 0].stag, 0);
          request.remote_to = (request.remote_stag == peer.regions[3].stag ? peer.regions[3] : peer.regions[0]).at(64);
          request.fence = below(2) != 0;
          used_own[which] += 1000;
          if (used_own[which] >= 100'000) break;
          self.post(request);
          break;
        }
        case 4:
        case 5: {
          auto request = atomic(op == 4 ? Opcode::fetch_add : Opcode::compare_swap,
                                Side::sge(self.regions[1], 390'000 + 8 * below(100), 8), peer.regions[1], below(5), i);
          request.remote_to = peer.regions[1].at(399'992);
          request.fence = true;
          self.post(request);
          break;
        }
      }
      if ((op == 1 || op == 2) && late) {
        if (step_by_step) pair.run();
        receive();
      }
      if (step_by_step) pair.run();
    }
    pair.run();
    CHECK(pair.a->mover.complaint() == "");
    CHECK(pair.b->mover.complaint() == "");
    CHECK(pair.a->app.sends_taken == pair.a->app.of_sends().size() + 1);
    return std::pair(seen(*pair.a), seen(*pair.b));
  };
  CAPTURE(seed);
  const auto wire = run(Way::wire), direct = run(Way::direct);
  CHECK(wire.first.sends.size() == direct.first.sends.size());
  CHECK(wire.first == direct.first);
  CHECK(wire.second == direct.second);
}

// Both are FPDUs of one segment: the first is the peer's until it is placed, and what goes to TCP gets a header in
// front.
TEST_CASE("what the peer would not take waits until it has let go of what it took from the same buffer",
          "[qp][local]") {
  Options options = with_extensions();
  options.moves = Moves::at_flush;
  Joined pair(Way::direct, options);
  pair.set(Memory::none_is);
  Region& from = pair.a->region(100, 5);
  Region& to = pair.b->region(100);
  pair.b->mover.stalled = true;
  pair.a->post(test::write({Side::sge(from, 0, 100)}, to.stag, to.at(0)));
  pair.a->post(test::write({Side::sge(from, 0, 100)}, {to.stag.value ^ 0x100000}, to.at(0)));
  for (int i = 0; i < 5; ++i) pair.turn(*pair.a);
  CHECK(pair.went_directly() == 1);
  CHECK(pair.wire_is_silent());
  CHECK(pair.a->qp.idle());
  CHECK(pair.side_a.activated == 0);
  SECTION("it lets go") {
    pair.b->mover.stalled = false;
    pair.turn(*pair.b);
    CHECK(pair.side_a.activated == 1);
    CHECK_FALSE(pair.a->qp.idle());
    pair.run();
    pair.pass(seconds(6));
    CHECK(to.memory == from.memory);
    CHECK(qp::describe(pair.b->qp.terminate_record()).find("STag") != std::string::npos);
  }
  SECTION("it ends") {
    (void)pair.b->qp.modify_state(qp::State::error, pair.wire.now);
    CHECK(pair.side_a.activated == 1);
    pair.run();
    pair.pass(seconds(6));
  }
  CHECK(pair.a->qp.state() == qp::State::error);
  CHECK(pair.b->qp.state() == qp::State::error);
  CHECK(pair.a->app.of_sends().size() == 2);
}
