// RDMA Reads into memory that peers may not write to: the STag that is made for one such Read, what it
// is good for, and when it ends (V-RD-03). The memory's own rights are looked at before the Request leaves.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "unit/qp/extended.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr auto kLocal = tpt::Rights::local_read | tpt::Rights::local_write;

std::vector<wire::ReadRequestHeader> asked(const Raw& raw) {
  std::vector<wire::ReadRequestHeader> out;
  for (const Octets& ulpdu : raw.heard_opcode(wire::RdmapOpcode::read_request))
    out.push_back(*wire::parse_read_request(Bytes(ulpdu).subspan(wire::UntaggedHeader::kSize)));
  return out;
}

Octets part(const Octets& all, std::size_t at, std::size_t size) {
  return {all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(at + size)};
}

// A queue pair that has asked its peer for 2,000 octets, to go to octet 1,000 of a region of 4,096.
struct Scene {
  explicit Scene(std::function<void(qp::Config&)> change = {}, Moves moves = Moves::direct,
                 const qp::Start& start = default_start(), tpt::Table* shared = nullptr)
      : raw(start, std::move(change), moves, {}, 9216, shared),
        sink(raw.us->region(4096, 2, kLocal)),
        before(sink.memory) {
    ask();
  }
  Scene(std::function<void(qp::Config&)> change, tpt::Table& shared)
      : Scene(std::move(change), Moves::direct, default_start(), &shared) {}
  void ask(qp::Opcode opcode = qp::Opcode::read) {
    auto request = read({Side::sge(sink, 1000, 2000)}, {5}, 0);
    request.opcode = opcode;
    raw.us->post(request);
    raw.run();
    requests = asked(raw);
    REQUIRE_FALSE(requests.empty());
    stag = requests.back().sink_stag;
  }
  Octets response(std::size_t at, std::size_t size, bool last) const { return response(stag, at, size, last); }
  Octets response(Stag named, std::size_t at, std::size_t size, bool last) const {
    return tagged(2, last, named, sink.at(1000 + at), part(payload, at, size));
  }
  bool untouched() const { return sink.memory == before; }
  bool holds(std::size_t at, std::size_t size) const {
    return std::equal(payload.begin() + static_cast<std::ptrdiff_t>(at),
                      payload.begin() + static_cast<std::ptrdiff_t>(at + size),
                      sink.memory.begin() + static_cast<std::ptrdiff_t>(1000 + at));
  }
  // The peer says it, is answered by this Terminate, and nothing is placed.
  void is_refused(const Octets& ulpdu, unsigned code, std::optional<qp::Event> event) {
    const Octets now = sink.memory;
    raw.say(ulpdu);
    const auto terminates = raw.terminates();
    REQUIRE(terminates.size() == 1);
    CHECK(terminates[0].code.word() == code);
    CHECK(raw.us->app.events == (event ? std::vector{*event} : std::vector<qp::Event>{}));
    CHECK(sink.memory == now);
  }
  Raw raw;
  Region& sink;
  Octets before;
  Octets payload = filled(2000, 9);
  std::vector<wire::ReadRequestHeader> requests;
  Stag stag;
};

}  // namespace

TEST_CASE("V-RD-03: a Read into memory with Local Write only brings its octets, under an STag of its own",
          "[qp][V-RD-03]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Scene s({}, moves);
  REQUIRE(s.requests.size() == 1);
  CHECK(s.stag != s.sink.stag);
  CHECK(s.requests[0].sink_to == s.sink.at(1000));
  CHECK(s.requests[0].size_bytes == 2000);
  CHECK(s.raw.us->table.used() == 1);
  s.raw.say(s.response(0, 1200, false));
  CHECK(s.raw.us->app.completions.empty());
  s.raw.say(s.response(1200, 800, true));
  CHECK(s.holds(0, 2000));
  CHECK(part(s.sink.memory, 0, 1000) == part(s.before, 0, 1000));
  CHECK(part(s.sink.memory, 3000, 1096) == part(s.before, 3000, 1096));
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::success);
  CHECK(s.raw.terminates().empty());
}

TEST_CASE("V-RD-03: both ends of ours read into memory with Local Write only", "[qp][V-RD-03][V-RD-07]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  const bool enabled = GENERATE(true, false);
  Options options;
  options.moves = moves;
  // What a peer may begin is of no account.
  if (!enabled) options.a = [](qp::Config& c) { c.access = tpt::Rights::none; };
  Pair pair(options);
  Region& to = pair.a->region(50'000, 0, tpt::Rights::local_write);
  Region& from = pair.b->region(50'000, 3);
  for (std::uint32_t i = 0; i < 50; ++i)
    pair.a->post(read({Side::sge(to, i * 1000, 1000)}, from.stag, from.at(i * 1000)));
  pair.run();
  CHECK(to.memory == from.memory);
  CHECK(pair.a->app.completions.size() == 50);
  for (const qp::Completion& each : pair.a->app.completions) CHECK(each.status == qp::Status::success);
}

TEST_CASE("V-RD-03: memory with Remote Write goes on under its own STag", "[qp][V-RD-03]") {
  const bool may_write = GENERATE(true, false);
  Raw raw(default_start(), [&](qp::Config& c) { c.access = may_write ? kAllAccess : tpt::Rights::remote_read; });
  Region& sink = raw.us->region(64);
  raw.us->post(read({Side::sge(sink, 8, 16)}, {5}, 0));
  raw.run();
  REQUIRE(asked(raw).size() == 1);
  if (may_write) {
    CHECK(asked(raw)[0].sink_stag == sink.stag);
  } else {
    // The Read has one of its own, for which that does not matter.
    CHECK(asked(raw)[0].sink_stag != sink.stag);
    raw.say(tagged(2, true, asked(raw)[0].sink_stag, sink.at(8), filled(16)));
    REQUIRE(raw.us->app.completions.size() == 1);
    CHECK(raw.us->app.completions[0].status == qp::Status::success);
    CHECK(part(sink.memory, 8, 16) == filled(16));
  }
}

TEST_CASE("V-RD-05: a Read into a window names the window", "[qp][V-RD-05]") {
  Raw raw;
  Region& region = raw.us->region(4096, 0, kLocal | tpt::Rights::window_bind);
  const std::uint32_t bound_to = GENERATE(1u, 2u);
  const Stag window = *raw.us->table.allocate_window(kPd, 0);
  REQUIRE(raw.us->table.bind(window, 3, region.stag, kPd, {bound_to}, tpt::Rights::remote_write, region.at(64), 64));
  const Stag bound{window.index() << 8 | 3};
  raw.us->post(read({{region.at(64), 16, bound}}, {5}, 0));
  raw.run();
  if (bound_to == 1) {
    REQUIRE(asked(raw).size() == 1);
    CHECK(asked(raw)[0].sink_stag == bound);
    raw.say(tagged(2, true, bound, region.at(64), filled(16)));
    CHECK(part(region.memory, 64, 16) == filled(16));
  } else {
    CHECK(asked(raw).empty());
  }
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == (bound_to == 1 ? qp::Status::success : qp::Status::invalid_pd));
}

TEST_CASE("V-RD-03: a sink that may not be written to is told before the Request leaves",
          "[qp][V-RD-03][V-CS-06][V-CS-07][V-CS-08][V-CS-09][V-CS-10]") {
  Raw raw;
  const auto rights = GENERATE(kLocal, kAllRights);
  const auto opcode = GENERATE(qp::Opcode::read, qp::Opcode::read_invalidate);
  Region& good = raw.us->region(64, 0, rights);
  qp::Sge sink;
  qp::Status status{};
  SECTION("no Local Write") {
    sink = Side::sge(raw.us->region(64, 0, tpt::Rights::local_read | tpt::Rights::remote_read), 0, 8);
    status = qp::Status::access;
  }
  SECTION("another PD") {
    sink = Side::sge(raw.us->region(64, 0, rights, kOtherPd), 0, 8);
    status = qp::Status::invalid_pd;
  }
  SECTION("one octet before it") {
    sink = {good.base - 1, 8, good.stag};
    status = qp::Status::base_bounds;
  }
  SECTION("one octet past it") {
    sink = Side::sge(good, 57, 8);
    status = qp::Status::base_bounds;
  }
  SECTION("a wrap") {
    sink = {~0ull, 2, good.stag};
    status = qp::Status::wrap;
  }
  SECTION("another key") {
    sink = {good.base, 8, {good.stag.value ^ 1}};
    status = qp::Status::invalid_stag;
  }
  SECTION("STag 0") {
    sink = {good.base, 8, {0}};
    status = qp::Status::invalid_stag;
  }
  SECTION("invalidated") {
    REQUIRE(raw.us->table.invalidate_local(good.stag, kPd, {1}));
    sink = Side::sge(good, 0, 8);
    status = qp::Status::invalid_stag;
  }
  auto request = read({sink}, {5}, 0);
  request.opcode = opcode;
  raw.us->post(request);
  raw.us->post(send());
  raw.run();
  CHECK(raw.heard_opcode(wire::RdmapOpcode::read_request).empty());
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[0].status == status);
  CHECK(raw.us->app.completions[1].status == qp::Status::flushed);
  CHECK(raw.us->app.events.empty());
  CHECK(raw.us->qp.state() == qp::State::terminate);
}

TEST_CASE("V-RD-03: the last octet of the sink is not past it", "[qp][V-RD-03][V-ACC-05]") {
  Raw raw;
  Region& sink = raw.us->region(64, 0, kLocal);
  raw.us->post(read({Side::sge(sink, 56, 8)}, {5}, 0));
  raw.us->post(read({Side::sge(sink, 0, 64)}, {5}, 0));
  raw.run();
  REQUIRE(asked(raw).size() == 2);
  raw.say(tagged(2, true, asked(raw)[0].sink_stag, sink.at(56), filled(8)));
  CHECK(sink.memory[63] == filled(8)[7]);
  CHECK(raw.us->app.completions.size() == 1);
}

TEST_CASE("V-RD-03: a Read's own STag is good for its Response alone", "[qp][V-RD-03][W-RDMAP-14]") {
  Scene s([](qp::Config& c) {
    c.extensions = true;
    c.access = c.access | tpt::Rights::remote_atomic;
  });
  const std::uint64_t to = s.sink.at(1000);
  SECTION("a Write") { s.is_refused(tagged(0, true, s.stag, to, filled(8)), 0x1100, qp::Event::invalid_stag); }
  SECTION("a Write to the consumer's STag, which has no more rights than before") {
    s.is_refused(tagged(0, true, s.sink.stag, to, filled(8)), 0x1102, qp::Event::access_rights);
  }
  SECTION("a Response to the consumer's STag") {
    s.is_refused(s.response(s.sink.stag, 0, 2000, true), 0x1100, qp::Event::invalid_stag);
  }
  SECTION("a Send with Invalidate") {
    s.raw.us->post_receive({Side::sge(s.raw.us->region(64), 0, 64)});
    s.is_refused(untagged(4, true, 0, 1, 0, {}, s.stag), 0x0100, std::nullopt);
    REQUIRE(s.raw.us->app.of_receives().size() == 1);
    CHECK(s.raw.us->app.of_receives()[0].status == qp::Status::invalidate_pd_access);
  }
  SECTION("a Read of the peer's") {
    s.is_refused(read_request(1, {.sink_stag = {9}, .size_bytes = 8, .source_stag = s.stag, .source_to = to}), 0x0100,
                 qp::Event::irrq_invalid_stag);
    CHECK(s.raw.heard_opcode(wire::RdmapOpcode::read_response).empty());
  }
  SECTION("an atomic operation of the peer's") {
    wire::AtomicRequestHeader add;
    add.stag = s.stag;
    add.tagged_offset = to;
    add.data = 1;
    Octets body(wire::AtomicRequestHeader::kSize);
    wire::emit(add, body);
    s.raw.say(untagged(10, true, 1, 1, 0, body));
    REQUIRE(s.raw.terminates().size() == 1);
    CHECK(s.raw.terminates()[0].code.word() == 0x0100);
    CHECK(s.untouched());
  }
  SECTION("work of our own") {
    const auto bad = GENERATE(qp::Opcode::send, qp::Opcode::read, qp::Opcode::local_invalidate);
    auto request = work(bad, {{to, 8, s.stag}});
    request.remote_stag = s.stag;
    if (bad == qp::Opcode::local_invalidate) request.sge_count = 0;
    s.raw.us->post(request);
    s.raw.run();
    REQUIRE(s.raw.us->app.completions.size() == 2);
    CHECK(s.raw.us->app.completions[0].status == qp::Status::flushed);
    CHECK(s.raw.us->app.completions[1].status == qp::Status::invalid_stag);
  }
}

TEST_CASE("V-RD-03: a Read's own STag reaches its range and no octet else", "[qp][V-RD-03][V-ACC-05][W-RDMAP-14]") {
  Scene s;
  const auto at = [&](std::uint64_t to, std::size_t size, bool last) {
    return tagged(2, last, s.stag, to, filled(size));
  };
  SECTION("before it") { s.is_refused(at(s.sink.at(999), 8, false), 0x1101, qp::Event::base_bounds); }
  SECTION("not where it goes on") { s.is_refused(at(s.sink.at(1001), 8, false), 0x1101, qp::Event::base_bounds); }
  SECTION("behind it") { s.is_refused(at(s.sink.at(3000), 8, false), 0x1101, qp::Event::base_bounds); }
  SECTION("out of the region") { s.is_refused(at(s.sink.at(4096), 8, false), 0x1101, qp::Event::base_bounds); }
  SECTION("a wrap") { s.is_refused(at(~0ull, 8, false), 0x1103, qp::Event::wrap); }
  SECTION("more than was asked for") { s.is_refused(at(s.sink.at(1000), 2001, true), 0x1101, qp::Event::base_bounds); }
  SECTION("less") { s.is_refused(at(s.sink.at(1000), 1999, true), 0x1101, qp::Event::base_bounds); }
  SECTION("the same octets twice") {
    s.raw.say(s.response(0, 1000, false));
    s.is_refused(s.response(0, 1000, true), 0x1101, qp::Event::base_bounds);
  }
}

TEST_CASE("V-RNIC-11: a Read's own STag is nobody's to use, while it lasts", "[qp][V-RNIC-11][V-RD-03]") {
  Raw raw;
  Region& sink = raw.us->region(64, 0, kLocal);
  raw.us->post(read({Side::sge(sink, 0, 16)}, {5}, 0));
  raw.run();
  REQUIRE(asked(raw).size() == 1);
  const Stag own = asked(raw)[0].sink_stag;
  REQUIRE(own != sink.stag);
  const std::size_t heard = raw.heard.size();
  SECTION("as the source of a Send") { raw.us->post(send({{sink.at(0), 8, own}})); }
  SECTION("as the source of a Write") { raw.us->post(write({{sink.at(0), 8, own}}, {9}, 0)); }
  SECTION("as another Read's sink") { raw.us->post(read({{sink.at(0), 8, own}}, {5}, 0)); }
  SECTION("to be invalidated") {
    auto request = work(qp::Opcode::local_invalidate);
    request.remote_stag = own;
    raw.us->post(request);
  }
  raw.run();
  // A Terminate in its place, and nothing else.
  REQUIRE(raw.heard.size() == heard + 1);
  CHECK(raw.terminates().size() == 1);
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[1].status == qp::Status::invalid_stag);
}

TEST_CASE("V-RD-03: a Read's own STag is gone with its Response", "[qp][V-RD-03][W-RDMAP-14]") {
  Scene s;
  const Stag old = s.stag;
  s.raw.say(s.response(0, 2000, true));
  REQUIRE(s.raw.us->app.completions.size() == 1);
  std::fill(s.sink.memory.begin(), s.sink.memory.end(), std::byte{0});
  SECTION("and nothing is outstanding") {
    s.is_refused(s.response(old, 0, 2000, true), 0x0206, qp::Event::unexpected_opcode);
  }
  SECTION("a second Read of the same has another") {
    s.ask();
    CHECK(s.stag != old);
    s.is_refused(s.response(old, 0, 2000, true), 0x1100, qp::Event::invalid_stag);
  }
}

TEST_CASE("V-RD-03: while a Response's last octets are on their way its STag is gone already",
          "[qp][V-RD-03][W-DDP-13]") {
  Scene s({}, Moves::at_flush);
  s.ask();
  const Stag first = s.requests[0].sink_stag;
  s.raw.us->mover.stalled = true;
  s.raw.say(s.response(first, 0, 2000, true));
  CHECK(s.raw.us->app.completions.empty());
  s.raw.say(s.response(first, 0, 2000, true));
  s.raw.us->mover.stalled = false;
  s.raw.run();
  REQUIRE(s.raw.terminates().size() == 1);
  CHECK(s.raw.terminates()[0].code.word() == 0x1100);
}

TEST_CASE("V-RD-03: a Read's own STag is its queue pair's", "[qp][V-RD-03]") {
  tpt::Table table(16, 5);
  Scene one([](qp::Config& c) { c.number = {1}; }, table);
  Scene two([](qp::Config& c) { c.number = {2}; }, table);
  CHECK(one.stag != two.stag);
  SECTION("for a Response") { two.is_refused(two.response(one.stag, 0, 2000, true), 0x1100, qp::Event::invalid_stag); }
  SECTION("for a Response to where the other's goes") {
    two.is_refused(one.response(0, 2000, true), 0x1100, qp::Event::invalid_stag);
  }
  SECTION("for a Write") {
    two.is_refused(tagged(0, true, one.stag, one.sink.at(1000), filled(8)), 0x1100, qp::Event::invalid_stag);
  }
  CHECK(one.untouched());
  one.raw.say(one.response(0, 2000, true));
  CHECK(one.holds(0, 2000));
}

TEST_CASE("V-MR-20: the end of the region ends its Reads", "[qp][V-MR-20][V-INV-10][V-RD-03]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush);
  Scene s({}, moves);
  s.raw.say(s.response(0, 1000, false));
  REQUIRE(s.holds(0, 1000));
  tpt::Table& table = s.raw.us->table;
  SECTION("deregistered") { REQUIRE(table.deregister(s.sink.stag)); }
  SECTION("invalidated by control") { REQUIRE(table.invalidate_local(s.sink.stag, kPd, {1})); }
  SECTION("invalidated by work of ours") {
    auto invalidate = work(qp::Opcode::local_invalidate);
    invalidate.remote_stag = s.sink.stag;
    s.raw.us->post(invalidate);
    s.raw.run();
    REQUIRE_FALSE(table.check_local(s.sink.stag, kPd, tpt::Rights::local_write, s.sink.base, 1));
  }
  SECTION("registered anew under the same STag, for the same or other memory") {
    Octets other(4096);
    REQUIRE(*table.reregister(s.sink.stag, {.pd = kPd,
                                            .rights = kLocal,
                                            .base = s.sink.base,
                                            .size = 4096,
                                            .key = s.sink.stag.key(),
                                            .memory = {.address = reinterpret_cast<std::uint64_t>(other.data())}}) ==
            s.sink.stag);
    s.is_refused(s.response(1000, 1000, true), 0x1100, qp::Event::invalid_stag);
    CHECK(other == Octets(4096));
    return;
  }
  s.is_refused(s.response(1000, 1000, true), 0x1100, qp::Event::invalid_stag);
  CHECK(s.raw.us->app.completions.front().status == qp::Status::flushed);
}

TEST_CASE("V-INV-10: what was on its way when its region was invalidated is placed, what comes then is not",
          "[qp][V-INV-10][V-MR-20][V-RD-03]") {
  Scene s({}, Moves::at_flush);
  s.raw.us->mover.stalled = true;
  s.raw.say(s.response(0, 1000, false));
  auto invalidate = work(qp::Opcode::local_invalidate);
  invalidate.remote_stag = s.sink.stag;
  s.raw.us->post(invalidate);
  s.raw.run();
  CHECK(s.untouched());
  s.raw.us->mover.stalled = false;
  s.raw.say(s.response(1000, 1000, true));
  REQUIRE(s.raw.terminates().size() == 1);
  CHECK(s.raw.terminates()[0].code.word() == 0x1100);
  CHECK(s.holds(0, 1000));
  CHECK(part(s.sink.memory, 2000, 2096) == part(s.before, 2000, 2096));
}

TEST_CASE("V-RD-03: flush, Error and Terminate end a Read's own STag before they return",
          "[qp][V-RD-03][V-MR-20][V-ERRST-03][V-TERM-07]") {
  Scene s({}, Moves::at_flush);
  SECTION("Error, with the placement on its way") {
    s.raw.us->mover.stalled = true;
    s.raw.say(s.response(0, 2000, true));
    REQUIRE(s.raw.us->qp.modify_state(qp::State::error, s.raw.wire.now));
    REQUIRE(s.raw.us->app.completions.size() == 1);
    CHECK(s.raw.us->app.completions[0].status == qp::Status::flushed);
    s.raw.us->mover.stalled = false;
  }
  SECTION("Terminate of ours") {
    REQUIRE(s.raw.us->qp.modify_state(qp::State::terminate, s.raw.wire.now));
    s.raw.say_octets(s.raw.fpdu(s.response(0, 2000, true)));
  }
  SECTION("an error of another message's") {
    s.raw.say_octets(s.raw.fpdu(tagged(0, true, {0x7FFFFF00}, 0, filled(8))) + s.raw.fpdu(s.response(0, 2000, true)));
  }
  SECTION("Terminate of the peer's") {
    s.raw.say_octets(
        s.raw.fpdu(untagged(7, true, 2, 1, 0, {std::byte{0x02}, std::byte{0x06}, std::byte{0}, std::byte{0}})) +
        s.raw.fpdu(s.response(0, 2000, true)));
  }
  SECTION("destruction, with the placement on its way") {
    s.raw.us->mover.stalled = true;
    s.raw.say(s.response(0, 2000, true));
    (void)s.raw.us->qp.detach(s.raw.wire.now);
    s.raw.us->mover.stalled = false;
    s.raw.us->mover.flush();
    CHECK(s.untouched());
    return;
  }
  s.raw.run();
  CHECK(s.untouched());
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::flushed);
}

TEST_CASE("V-CONN-02: the next stream of a queue pair has other STags for its Reads", "[qp][V-CONN-02][V-RD-03]") {
  tpt::Table table(16, 5);
  std::set<Stag> seen;
  for (int i = 0; i < 20; ++i) {
    Scene s([](qp::Config& c) { c.number = {1}; }, table);
    CHECK(seen.insert(s.stag).second);
    REQUIRE(table.deregister(s.sink.stag));
  }
}

TEST_CASE("V-RD-06: a Read with Invalidate takes the consumer's STag away, not the Read's own",
          "[qp][V-RD-06][V-RD-03][V-INV-06]") {
  Scene s;
  s.raw.say(s.response(0, 2000, true));
  s.ask(qp::Opcode::read_invalidate);
  tpt::Table& table = s.raw.us->table;
  const auto valid = [&] {
    return table.check_local(s.sink.stag, kPd, tpt::Rights::local_read, s.sink.base, 1).has_value();
  };
  SECTION("when all is there") {
    s.raw.say(s.response(0, 1000, false));
    CHECK(valid());
    s.raw.say(s.response(1000, 1000, true));
    CHECK_FALSE(valid());
    CHECK(s.holds(0, 2000));
    REQUIRE(s.raw.us->app.completions.size() == 2);
    CHECK(s.raw.us->app.completions[1].status == qp::Status::success);
    CHECK(s.raw.us->qp.state() == qp::State::rts);
  }
  SECTION("V-INV-06: of a shared region not, after the octets have come") {
    REQUIRE(table.register_shared(s.sink.stag, {.pd = kPd, .rights = kLocal, .base = s.sink.base}));
    std::fill(s.sink.memory.begin(), s.sink.memory.end(), std::byte{0});
    s.raw.say(s.response(0, 2000, true));
    CHECK(valid());
    CHECK(s.holds(0, 2000));
    REQUIRE(s.raw.us->app.completions.size() == 2);
    CHECK(s.raw.us->app.completions[1].status == qp::Status::access);
  }
}

TEST_CASE("V-RD-07: a Read of no octets has no STag made, and needs none", "[qp][V-RD-07][V-RD-03][V-ACC-07]") {
  Raw raw;
  Region& sink = raw.us->region(64, 0, kLocal);
  raw.us->post(read({Side::sge(sink, 0, 0)}, {5}, 0));
  raw.us->post(read({{77, 0, {0xDEADBE00}}}, {5}, 0));
  raw.us->post(read({}, {5}, 0));
  raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
  raw.run();
  const auto requests = asked(raw);
  REQUIRE(requests.size() == 4);
  CHECK(requests[0].sink_stag == sink.stag);
  CHECK(requests[1].sink_stag == Stag{0xDEADBE00});
  CHECK(requests[3].sink_stag.key() == 0);  // the first of this stream
  for (int i = 0; i < 3; ++i) raw.say(tagged(2, true, requests[static_cast<std::size_t>(i)].sink_stag, 0));
  CHECK(raw.us->app.completions.size() == 3);
  for (const qp::Completion& each : raw.us->app.completions) CHECK(each.status == qp::Status::success);
}

TEST_CASE("V-ORD-07: 128 Reads outstanding have 128 STags, and are answered in order",
          "[qp][V-ORD-07][V-IRD-06][V-RD-03]") {
  qp::Start start = default_start();
  start.ord = 128;
  Raw raw(start);
  Region& sink = raw.us->region(130 * 64, 0, kLocal);
  for (std::uint32_t i = 0; i < 130; ++i) raw.us->post(read({Side::sge(sink, i * 64, 64)}, {5}, i * 64));
  raw.run();
  auto requests = asked(raw);
  REQUIRE(requests.size() == 128);
  std::set<Stag> stags;
  for (const auto& each : requests) stags.insert(each.sink_stag);
  CHECK(stags.size() == 128);
  CHECK(raw.us->table.used() == 1);
  const Octets all = filled(130 * 64, 4);
  const auto answer = [&](std::size_t i, Stag named) {
    raw.say(tagged(2, true, named, sink.at(i * 64), part(all, i * 64, 64)));
  };
  SECTION("each by its own") {
    for (std::size_t i = 0; i < 130; ++i) {
      answer(i, asked(raw)[i].sink_stag);
      REQUIRE(raw.us->app.completions.size() == i + 1);
    }
    CHECK(sink.memory == all);
    CHECK(raw.terminates().empty());
  }
  SECTION("none by the next one's, nor out of turn") {
    const bool to_the_next = GENERATE(true, false);
    answer(0, requests[0].sink_stag);
    answer(to_the_next ? 2 : 1, requests[2].sink_stag);
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0x1100);
    CHECK(part(sink.memory, 64, 129 * 64) == Octets(129 * 64));
  }
}

TEST_CASE("V-RD-04: strictly a Read leaves whatever its sink is, and is judged by its Response",
          "[qp][V-RD-04][V-RD-03]") {
  Raw raw(default_start(), [](qp::Config& c) { c.strict_read_sink = true; });
  Region& sink = raw.us->region(64, 0, kLocal);
  SECTION("an own STag is never made") {
    raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
    raw.run();
    REQUIRE(asked(raw).size() == 1);
    CHECK(asked(raw)[0].sink_stag == sink.stag);
    CHECK(raw.us->app.completions.empty());
    raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
    CHECK(raw.us->app.events == std::vector{qp::Event::access_rights});
    REQUIRE(raw.us->app.completions.size() == 1);
    CHECK(raw.us->app.completions[0].status == qp::Status::flushed);
    CHECK(sink.memory == Octets(64));
  }
  SECTION("not even bounds are looked at before") {
    raw.us->post(read({Side::sge(sink, 60, 8)}, {5}, 0));
    raw.run();
    CHECK(asked(raw).size() == 1);
    CHECK(raw.us->app.completions.empty());
  }
  SECTION("no octets need nothing") {
    raw.us->post(read({Side::sge(sink, 0, 0)}, {5}, 0));
    raw.run();
    raw.say(tagged(2, true, sink.stag, sink.base));
    REQUIRE(raw.us->app.completions.size() == 1);
    CHECK(raw.us->app.completions[0].status == qp::Status::success);
  }
  SECTION("V-STAG-12: STag 0 fails at once") {
    raw.us->post(read({{sink.base, 8, {0}}}, {5}, 0));
    raw.run();
    CHECK(asked(raw).empty());
    REQUIRE(raw.us->app.completions.size() == 1);
    CHECK(raw.us->app.completions[0].status == qp::Status::invalid_stag);
  }
}
