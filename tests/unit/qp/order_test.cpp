// Order: completions, fences, Read depths, what is held for want of a receive, and who speaks first.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

namespace {

std::vector<std::uint32_t> slots(const std::vector<qp::Completion>& completions) {
  std::vector<std::uint32_t> out;
  for (const auto& c : completions) out.push_back(c.slot);
  return out;
}
using Slots = std::vector<std::uint32_t>;

std::size_t sends_heard(const Raw& raw) { return raw.heard_opcode(wire::RdmapOpcode::send).size(); }
std::size_t reads_heard(const Raw& raw) { return raw.heard_opcode(wire::RdmapOpcode::read_request).size(); }

}  // namespace

TEST_CASE("V-ORD-03: a Send behind a Read is sent at once and completes behind it",
          "[qp][V-ORD-02][V-ORD-03][V-FEN-01][W-RDMAP-39][W-RDMAP-47]") {
  Raw raw;
  Region& sink = raw.us->region(64);
  raw.us->post(read({Side::sge(sink, 0, 8)}, {9}, 0));
  raw.us->post(send());
  auto fenced = send();
  fenced.fence = true;
  raw.us->post(fenced);
  raw.us->post(send());
  raw.run();
  CHECK(reads_heard(raw) == 1);
  CHECK(sends_heard(raw) == 1);
  CHECK(raw.us->app.completions.empty());
  raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
  CHECK(sends_heard(raw) == 3);
  CHECK(slots(raw.us->app.completions) == Slots{0, 1, 2, 3});
}

TEST_CASE("W-RDMAP-47: a fenced Write waits for the Read before it, a fenced Read for none",
          "[qp][W-RDMAP-47][V-FEN-01][V-FEN-03]") {
  Raw raw;
  Region& sink = raw.us->region(64);
  raw.us->post(read({Side::sge(sink, 0, 8)}, {9}, 0));
  auto fenced = write({Side::sge(sink, 8, 8)}, {9}, 0);
  const auto writes_heard = [&] { return raw.heard_opcode(wire::RdmapOpcode::write).size(); };
  SECTION("a Write") {
    fenced.fence = true;
    raw.us->post(fenced);
    raw.run();
    CHECK(writes_heard() == 0);
    raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
    CHECK(writes_heard() == 1);
  }
  SECTION("a Write that is not fenced") {
    raw.us->post(fenced);
    raw.run();
    CHECK(writes_heard() == 1);
  }
  SECTION("a Read") {
    auto second = read({Side::sge(sink, 16, 8)}, {9}, 0);
    second.fence = true;
    raw.us->post(second);
    raw.run();
    CHECK(reads_heard(raw) == 2);
  }
}

TEST_CASE("V-FEN-02: a fenced Invalidate waits for all before it", "[qp][V-FEN-02][V-MWR-03][V-MWR-04]") {
  Raw raw;
  Region& sink = raw.us->region(64);
  raw.us->post(read({Side::sge(sink, 0, 8)}, {9}, 0));
  auto invalidate = work(qp::Opcode::local_invalidate);
  invalidate.remote_stag = sink.stag;
  SECTION("fenced") {
    invalidate.fence = true;
    raw.us->post(invalidate);
    raw.run();
    CHECK(raw.us->table.check_local(sink.stag, kPd, tpt::Rights::local_read, sink.base, 1));
    raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
    CHECK(slots(raw.us->app.completions) == Slots{0, 1});
    CHECK_FALSE(raw.us->table.check_local(sink.stag, kPd, tpt::Rights::local_read, sink.base, 1));
  }
  SECTION("V-MWR-05: not fenced, it acts at once, and the Response finds the sink gone") {
    raw.us->post(invalidate);
    raw.run();
    CHECK_FALSE(raw.us->table.check_local(sink.stag, kPd, tpt::Rights::local_read, sink.base, 1));
    CHECK(raw.us->app.completions.empty());
    raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
    CHECK(raw.us->app.events == std::vector{qp::Event::invalid_stag});
  }
}

TEST_CASE("V-IRD-06: no more Reads on the wire than ORD, and the whole SQ waits",
          "[qp][V-IRD-06][V-IRD-07][V-ORD-07][W-RDMAP-19][W-RDMAP-60]") {
  qp::Start start = default_start();
  start.ord = 2;
  Raw raw(start);
  Region& sink = raw.us->region(64);
  for (int i = 0; i < 16; ++i) raw.us->post(read({Side::sge(sink, 0, 8)}, {9}, 0));
  raw.us->post(send());
  raw.run();
  CHECK(reads_heard(raw) == 2);
  CHECK(sends_heard(raw) == 0);
  CHECK(raw.us->qp.idle());
  raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
  CHECK(reads_heard(raw) == 3);
  for (int i = 0; i < 15; ++i) raw.say(tagged(2, true, sink.stag, sink.base, filled(8)));
  CHECK(reads_heard(raw) == 16);
  CHECK(sends_heard(raw) == 1);
  CHECK(raw.us->app.completions.size() == 17);
}

TEST_CASE("V-RD-06: Read with Invalidate invalidates its sink before it completes", "[qp][V-RD-06][V-INV-06]") {
  Raw raw;
  Region& sink = raw.us->region(64);
  auto request = read({Side::sge(sink, 0, 8)}, {9}, 0);
  request.opcode = qp::Opcode::read_invalidate;
  raw.us->post(request);
  raw.run();
  raw.say(tagged(2, false, sink.stag, sink.base, filled(4)));
  CHECK(raw.us->table.check_local(sink.stag, kPd, tpt::Rights::local_read, sink.base, 1));
  raw.say(tagged(2, true, sink.stag, sink.at(4), filled(4)));
  CHECK_FALSE(raw.us->table.check_local(sink.stag, kPd, tpt::Rights::local_read, sink.base, 1));
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == qp::Status::success);
  CHECK(raw.us->app.completions[0].opcode == qp::Opcode::read_invalidate);
}

TEST_CASE("V-ORD-05: a Read after a Write to the same place returns what was written", "[qp][V-ORD-05][V-FEN-03]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  const auto seed = GENERATE(1, 2, 3, 4, 5);
  Options options;
  options.moves = moves;
  options.seed = static_cast<std::uint64_t>(seed);
  Pair pair(options);
  Region& from = pair.a->region(50'000, 3);
  Region& back = pair.a->region(50'000);
  Region& there = pair.b->region(50'000);
  pair.a->post(write({Side::sge(from, 0, 50'000)}, there.stag, there.base));
  pair.a->post(read({Side::sge(back, 0, 50'000)}, there.stag, there.base));
  pair.run();
  CHECK(back.memory == from.memory);
}

TEST_CASE("V-SR-11: when a receive completes, the Writes before it are in place", "[qp][V-SR-11][W-RDMAP-42]") {
  const auto seed = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  Options options;
  options.moves = Moves::late;
  options.seed = static_cast<std::uint64_t>(seed);
  Pair pair(options);
  Region& from = pair.a->region(30'000, 3);
  Region& there = pair.b->region(30'000);
  Region& to = pair.b->region(64);
  pair.b->post_receive({Side::sge(to, 0, 64)});
  pair.a->post(write({Side::sge(from, 0, 30'000)}, there.stag, there.base));
  pair.a->post(send({Side::sge(from, 0, 8)}));
  bool told = false;
  for (int i = 0; i < 2000 && !told; ++i) {
    pair.step();
    told = !pair.b->app.completions.empty();
  }
  REQUIRE(told);
  CHECK(there.memory == from.memory);
  CHECK(to.memory[7] == from.memory[7]);
}

TEST_CASE("V-ORD-08: octets placed late are neither consumed nor acknowledged before", "[qp][V-ORD-08][W-DDP-13]") {
  Raw raw(default_start(), {}, Moves::at_flush);
  Region& r = raw.us->region(64);
  raw.run();
  raw.us->mover.stalled = true;
  const auto consumed = raw.us->tcp.consumed();
  const auto acknowledged = raw.tcp.acknowledged();
  raw.say(tagged(0, true, r.stag, r.base, filled(64)));
  raw.pass(milliseconds(100), milliseconds(10));
  CHECK(raw.us->tcp.consumed() == consumed);
  CHECK(raw.tcp.acknowledged() == acknowledged);
  CHECK_FALSE(raw.us->qp.idle());
  raw.us->mover.stalled = false;
  raw.run();
  raw.pass(milliseconds(500));
  CHECK(raw.us->tcp.consumed() > consumed);
  CHECK(raw.tcp.acknowledged() > acknowledged);
  CHECK(r.memory[63] == filled(64)[63]);
}

// ---- two peers at once -----------------------------------------------------------------------------

TEST_CASE("V-IRD-11: Sends and Writes go on while Read Responses wait for the window", "[qp][V-IRD-11][V-ORD-06]") {
  // The peer takes nothing: our Response stands, and what it sends is placed all the same.
  qp::Start start = default_start();
  Raw raw(start);
  Region& big = raw.us->region(8'000'000, 3);
  Region& r = raw.us->region(64);
  raw.us->post_receive({Side::sge(r, 0, 8)});
  raw.run();
  raw.wire.cut_a = true;  // no acknowledgement either: the window of both kinds closes
  raw.say(read_request(1, {{1}, 0, 8'000'000, big.stag, big.base}));
  raw.say(tagged(0, true, r.stag, r.at(8), filled(8)));
  raw.say(untagged(3, true, 0, 1, 0, filled(8)));
  CHECK(r.memory[8] == filled(8)[0]);
  CHECK(raw.us->app.completions.size() == 1);
  CHECK(raw.us->qp.idle());  // blocked by the window
}

TEST_CASE("V-IRD-11: two peers reading from each other and writing come to an end", "[qp][V-IRD-11][W-RDMAP-65]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Options options;
  options.moves = moves;
  options.tcp.receive_window_bytes = 65536;
  Pair pair(options);
  Region& a = pair.a->region(600'000, 1);
  Region& b = pair.b->region(600'000, 2);
  Region& from_b = pair.a->region(600'000);
  Region& from_a = pair.b->region(600'000);
  pair.a->post(send({}));
  pair.b->post_receive({});
  pair.run();
  for (std::uint32_t i = 0; i < 6; ++i) {
    pair.a->post(read({Side::sge(from_b, i * 100'000, 100'000)}, b.stag, b.at(i * 100'000)));
    pair.b->post(read({Side::sge(from_a, i * 100'000, 100'000)}, a.stag, a.at(i * 100'000)));
  }
  pair.run(200000);
  pair.pass(seconds(1));
  CHECK(from_b.memory == b.memory);
  CHECK(from_a.memory == a.memory);
  CHECK(pair.b->app.of_sends().size() == 6);
}

TEST_CASE("W-DDP-10: Responses and work take turns at message boundaries, and never in between",
          "[qp][W-DDP-10][W-DDP-11][W-RDMAP-45]") {
  Raw raw;
  Region& r = raw.us->region(20'000, 3);
  for (int i = 0; i < 4; ++i) raw.us->post(write({Side::sge(r, 0, 20'000)}, {7}, 0));
  raw.say_octets(raw.fpdu(read_request(1, {{1}, 0, 20'000, r.stag, r.base})) +
                 raw.fpdu(read_request(2, {{2}, 0, 20'000, r.stag, r.base})));
  while (raw.wire.carry()) {
  }
  raw.run();
  std::vector<std::uint32_t> messages;  // by STag
  bool fresh = true;
  std::uint64_t expected = 0;
  for (const Octets& ulpdu : raw.heard) {
    const auto header = wire::parse_tagged(ulpdu);
    REQUIRE(header);
    if (fresh) {
      messages.push_back(header->stag.value);
      expected = 0;
    }
    CHECK(header->stag.value == messages.back());
    CHECK(header->tagged_offset == expected);
    expected += ulpdu.size() - 14;
    fresh = header->last;
    if (fresh) CHECK(expected == 20'000);
  }
  CHECK(messages == Slots{7, 1, 7, 2, 7, 7});
}

TEST_CASE("W-RDMAP-27: a Read whose source goes away half way tells what is left", "[qp][W-RDMAP-27][V-INV-10]") {
  Raw raw;
  Region& r = raw.us->region(100'000, 3);
  raw.run();
  raw.say_octets(raw.fpdu(read_request(1, {{1}, 1000, 100'000, r.stag, r.base})));
  while (raw.wire.carry()) {
  }
  raw.us->qp.receive(raw.wire.now);
  raw.us->qp.transmit(raw.wire.now, 5000);
  REQUIRE(raw.us->table.deregister(r.stag));
  raw.run();
  const auto parts = raw.heard_opcode(wire::RdmapOpcode::read_response);
  std::uint32_t sent = 0;
  for (const auto& part : parts) sent += static_cast<std::uint32_t>(part.size()) - 14;
  REQUIRE(sent > 0);
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0].code.word() == 0x0100);
  const auto left = wire::parse_read_request(raw.terminates()[0].read_request);
  REQUIRE(left);
  CHECK(left->sink_to == 1000 + sent);
  CHECK(left->source_to == r.base + sent);
  CHECK(left->size_bytes == 100'000 - sent);
}

// ---- no receive posted -------------------------------------------------------------------------------

TEST_CASE("V-SR-06: a Send without a receive is held, and the stream goes on", "[qp][V-SR-06][V-ORD-05]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Raw raw(default_start(), {}, moves);
  Region& to = raw.us->region(10'000);
  Region& r = raw.us->region(64, 5);
  raw.us->post(read({Side::sge(to, 9000, 8)}, {9}, 0));
  raw.run();
  raw.say_octets(raw.fpdu(untagged(3, false, 0, 1, 0, filled(1000))));
  raw.say(untagged(3, true, 0, 1, 1000, filled(10, 8)));
  CHECK(raw.us->app.completions.empty());
  // A Read Request and a later Send wait, a Write and a Read Response do not.
  raw.say(read_request(1, {{1}, 0, 8, r.stag, r.base}));
  raw.say(untagged(5, true, 0, 2, 0, filled(20, 9)));
  raw.say(tagged(0, true, r.stag, r.base, filled(8, 11)));
  raw.say(tagged(2, true, to.stag, to.at(9000), filled(8, 12)));
  CHECK(raw.us->app.of_receives().empty());
  REQUIRE(raw.us->app.of_sends().size() == 1);
  CHECK(std::memcmp(to.memory.data() + 9000, filled(8, 12).data(), 8) == 0);
  CHECK(std::memcmp(r.memory.data(), filled(8, 11).data(), 8) == 0);
  CHECK(raw.heard_opcode(wire::RdmapOpcode::read_response).empty());
  CHECK(raw.us->qp.idle());
  SECTION("until receives come") {
    raw.us->post_receive({Side::sge(to, 0, 2000)});
    raw.run();
    REQUIRE(raw.us->app.of_receives().size() == 1);
    CHECK(raw.us->app.of_receives()[0].length == 1010);
    CHECK(std::memcmp(to.memory.data(), filled(1000).data(), 1000) == 0);
    CHECK(std::memcmp(to.memory.data() + 1000, filled(10, 8).data(), 10) == 0);
    REQUIRE(raw.heard_opcode(wire::RdmapOpcode::read_response).size() == 1);
    raw.us->post_receive({Side::sge(to, 3000, 2000)});
    raw.run();
    REQUIRE(raw.us->app.of_receives().size() == 2);
    CHECK(raw.us->app.of_receives()[1].solicited);
    CHECK(std::memcmp(to.memory.data() + 3000, filled(20, 9).data(), 20) == 0);
    // And what comes now is not held any more.
    raw.us->post_receive({Side::sge(to, 6000, 2000)});
    raw.say(untagged(3, true, 0, 3, 0, filled(30)));
    CHECK(raw.us->app.of_receives().size() == 3);
  }
  SECTION("V-EH-15: or until the time is up") {
    raw.pass(seconds(31), seconds(1));
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0x1202);
    CHECK(raw.terminates()[0].has_length);
    CHECK(raw.us->app.events == std::vector{qp::Event::rq_msn_range});
  }
  SECTION("a Terminate acts") {
    raw.say(untagged(7, true, 2, 1, 0, Octets(4)));
    CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
  }
  SECTION("a RST acts") {
    raw.tcp.abort(raw.wire.now);
    raw.run();
    CHECK(raw.us->app.events == std::vector{qp::Event::connection_reset});
  }
  SECTION("a FIN acts: a Read Request is not answered") {
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->app.events == std::vector{qp::Event::bad_llp_close});
  }
  SECTION("V-EH-20: too long for the receive that comes") {
    raw.us->post_receive({Side::sge(to, 0, 1009)});
    raw.run();
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0x1205);
    CHECK(raw.us->app.of_receives().at(0).status == qp::Status::message_too_long);
  }
}

TEST_CASE("W-DDP-13: a FIN behind held Sends waits until receives have taken them", "[qp][W-DDP-13][V-SR-06]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Raw raw(default_start(), {}, moves);
  Region& to = raw.us->region(10'000);
  raw.run();
  raw.say(untagged(3, true, 0, 1, 0, filled(100)));
  raw.say(untagged(3, true, 0, 2, 0, filled(200, 8)));
  raw.tcp.close();
  raw.run();
  CHECK(raw.us->qp.state() == qp::State::rts);
  CHECK(raw.us->app.completions.empty());
  SECTION("then it acts") {
    raw.us->post_receive({Side::sge(to, 0, 2000)});
    raw.run();
    CHECK(raw.us->qp.state() == qp::State::rts);
    raw.us->post_receive({Side::sge(to, 3000, 2000)});
    raw.run();
    REQUIRE(raw.us->app.of_receives().size() == 2);
    CHECK(raw.us->app.of_receives()[0].length == 100);
    CHECK(raw.us->app.of_receives()[1].length == 200);
    CHECK(std::memcmp(to.memory.data() + 3000, filled(200, 8).data(), 200) == 0);
    CHECK(raw.us->app.events == std::vector{qp::Event::close_complete});
  }
  SECTION("or until the time is up") {
    raw.pass(seconds(31), seconds(1));
    CHECK(raw.us->app.events == std::vector{qp::Event::rq_msn_range});
  }
}

TEST_CASE("V-SR-06: when the bound is full the window closes, and nothing is lost", "[qp][V-SR-06]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Options options;
  options.moves = moves;
  options.b = [](qp::Config& c) { c.held_bytes_max = 8192; };
  options.tcp.receive_window_bytes = 65536;
  Pair pair(options);
  Region& from = pair.a->region(1000, 3);
  Region& to = pair.b->region(1000);
  for (int i = 0; i < 200; ++i) pair.a->post(send({Side::sge(from, 0, 1000)}));
  pair.run();
  CHECK(pair.b->app.completions.empty());
  CHECK(pair.a->app.completions.size() < 200);
  for (int i = 0; i < 200; ++i) {
    std::fill(to.memory.begin(), to.memory.end(), std::byte{0});
    pair.b->post_receive({Side::sge(to, 0, 1000)});
    pair.run();
    pair.pass(milliseconds(100), milliseconds(50));
    REQUIRE(pair.b->app.completions.size() == static_cast<std::size_t>(i) + 1);
    REQUIRE(to.memory == from.memory);
  }
  CHECK(pair.a->app.completions.size() == 200);
}

// ---- who speaks first ----------------------------------------------------------------------------------

TEST_CASE("W-MPA-21: a responder holds its work until it has heard an FPDU", "[qp][W-MPA-21][W-MPA-87][V-CONN-11]") {
  Raw raw(responder_start());
  raw.us->post(send());
  raw.run();
  CHECK(raw.heard.empty());
  CHECK_FALSE(raw.us->qp.gate_open());
  raw.say(tagged(0, true, {1}, 0));
  CHECK(raw.us->qp.gate_open());
  CHECK(raw.heard.size() == 1);
  CHECK(raw.us->app.of_sends().size() == 1);
}

TEST_CASE("W-MPA-90: a responder waits for the first FPDU no longer than 10 s", "[qp][W-MPA-90]") {
  qp::Start start = responder_start();
  SECTION("where one must come") {
    start.peer_to_peer = true;
    Raw raw(start);
    raw.pass(seconds(9), seconds(1));
    CHECK(raw.us->qp.state() == State::rts);
    raw.pass(seconds(2), seconds(1));
    CHECK(raw.us->qp.state() == State::error);
  }
  SECTION("and for ever where none need") {
    Raw raw(start);
    raw.pass(seconds(100), seconds(1));
    CHECK(raw.us->qp.state() == State::rts);
    CHECK(raw.us->qp.next_deadline() == kNever);
  }
}

TEST_CASE("W-MPA-45: the RTR leaves first, and completes nobody's work",
          "[qp][W-MPA-42][W-MPA-45][W-MPA-46][W-MPA-87]") {
  qp::Start start = default_start();
  start.rtr = GENERATE(qp::Start::Rtr::write, qp::Start::Rtr::read, qp::Start::Rtr::send);
  SECTION("on the wire") {
    Raw raw(start);
    CHECK_FALSE(raw.us->qp.gate_open());
    raw.us->post(send());
    raw.run();
    CHECK(raw.us->qp.gate_open());
    REQUIRE(raw.heard.size() == 2);
    const auto first = wire::parse_ddp(raw.heard[0]);
    REQUIRE(first);
    CHECK(first->last);
    switch (start.rtr) {
      case qp::Start::Rtr::write:
        CHECK(raw.heard[0].size() == 14);
        CHECK(first->rdmap_control == 0x40);
        CHECK(first->stag == Stag{1});
        break;
      case qp::Start::Rtr::read:
        CHECK(raw.heard[0].size() == 46);
        CHECK(first->msn == 1);
        CHECK(wire::parse_read_request(Bytes(raw.heard[0]).subspan(18))->size_bytes == 0);
        break;
      default:
        CHECK(raw.heard[0].size() == 18);
        CHECK(first->msn == 1);
        CHECK(wire::parse_ddp(raw.heard[1])->msn == 2);
    }
    CHECK(raw.us->app.completions.size() == 1);
  }
  SECTION("both sides") {
    Options options;
    options.start = start;
    Pair pair(options);
    Region& r = pair.b->region(64);
    Region& s = pair.a->region(64, 3);
    pair.b->post_receive({Side::sge(r, 0, 64)});
    pair.b->post(write({}, {1}, 0));
    pair.run();
    CHECK(pair.b->qp.gate_open());
    CHECK(pair.b->app.of_receives().empty());
    CHECK(pair.b->app.of_sends().size() == 1);
    CHECK(pair.a->app.completions.empty());
    // The depth that a Read RTR took is free again.
    pair.a->post(send({Side::sge(s, 0, 8)}));
    for (int i = 0; i < 16; ++i) pair.a->post(read({Side::sge(s, 0, 8)}, r.stag, r.base));
    pair.run();
    CHECK(pair.b->app.of_receives().size() == 1);
    CHECK(pair.a->app.completions.size() == 17);
    CHECK(pair.a->app.events.empty());
    CHECK(pair.b->app.events.empty());
  }
}

TEST_CASE("W-MPA-49: a Read of no octets is taken as first FPDU whatever was negotiated", "[qp][W-MPA-49]") {
  qp::Start start = responder_start();
  start.ird = 0;
  Raw raw(start, [](qp::Config& c) { c.access = tpt::Rights::none; });
  raw.say(read_request(1, {{1}, 3, 0, {1}, 0}));
  REQUIRE(raw.heard_opcode(wire::RdmapOpcode::read_response).size() == 1);
  raw.say(read_request(2, {{1}, 3, 0, {1}, 0}));
  REQUIRE(raw.terminates().size() == 1);
}

// ---- memory that cannot be reached ----------------------------------------------------------------------

TEST_CASE("V-CS-04: memory that is gone fails its work request and no other stream's",
          "[qp][V-CS-04][V-STOP-02][V-AE-36][V-EH-41]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Raw raw(default_start(), {}, moves);
  Region& r = raw.us->region(4000, 3);
  Region& gone = raw.us->region(4000, 3);
  raw.us->mover.unreachable.insert(gone.stag.value);
  SECTION("gathered") {
    raw.us->post(write({Side::sge(r, 0, 100)}, {1}, 0));
    raw.run();
    raw.us->post(write({Side::sge(gone, 0, 4000)}, {1}, 0));
    raw.us->post(write({Side::sge(r, 0, 100)}, {1}, 0));
    raw.run();
    const auto& got = raw.us->app.completions;
    REQUIRE(got.size() == 3);
    CHECK(got[0].status == qp::Status::success);
    CHECK(got[1].status == qp::Status::access);
    CHECK(got[2].status == qp::Status::flushed);
    CHECK(raw.heard.size() == 2);
  }
  SECTION("placed in a receive") {
    raw.us->post_receive({Side::sge(gone, 0, 4000)});
    raw.say(untagged(3, true, 0, 1, 0, filled(100)));
    REQUIRE(raw.us->app.completions.size() == 1);
    CHECK(raw.us->app.completions[0].status == qp::Status::local_catastrophic);
  }
  SECTION("placed by a Write") {
    raw.say(tagged(0, true, gone.stag, gone.base, filled(100)));
    CHECK(raw.us->app.events == std::vector{qp::Event::local_catastrophic});
  }
  CHECK(raw.terminates().size() == 1);
}

TEST_CASE("V-POLL-06: nothing is moved for a queue pair in Error", "[qp][V-POLL-06][V-WR-12]") {
  Raw raw(default_start(), {}, Moves::at_flush);
  Region& r = raw.us->region(4000);
  raw.run();
  raw.us->mover.stalled = true;
  raw.us->post_receive({Side::sge(r, 0, 4000)});
  raw.us->post(write({Side::sge(r, 0, 100)}, {1}, 0));
  raw.say(untagged(3, true, 0, 1, 0, filled(100)));
  CHECK(raw.us->app.completions.empty());
  REQUIRE(raw.us->qp.modify_state(State::error, raw.wire.now));
  CHECK(raw.us->app.completions.size() == 2);
  raw.us->mover.stalled = false;
  raw.us->mover.flush();
  CHECK(r.memory == std::vector<std::byte>(4000));
}

TEST_CASE("V-ERRST-03: a flushed request gives its memory back, so not while a copy of it waits for a page",
          "[qp][V-ERRST-03][V-MR-20][V-IS-26]") {
  Raw raw(default_start(), {}, Moves::at_flush);
  Region& r = raw.us->region(4000);
  raw.run();
  raw.us->mover.stalled = raw.us->mover.stuck = true;
  raw.us->post_receive({Side::sge(r, 0, 4000)});
  raw.us->post(write({Side::sge(r, 0, 100)}, {1}, 0));
  raw.say(untagged(3, true, 0, 1, 0, filled(100)));
  raw.run();
  CHECK(raw.us->qp.idle());  // it is told when the copy is over
  tpt::Kept kept;
  raw.us->qp.keep(kept);
  CHECK(kept.buffers.size() == 2);  // the Send's that came, and the Write's that goes
  const bool by_peer = GENERATE(false, true);
  if (by_peer) {
    raw.tcp.abort(raw.wire.now);
    raw.run();
  } else {
    REQUIRE(raw.us->qp.modify_state(State::error, raw.wire.now));
  }
  REQUIRE(raw.us->qp.state() == State::error);
  CHECK(raw.us->app.completions.empty());
  raw.run();
  CHECK(raw.us->qp.idle());
  CHECK(raw.us->app.completions.empty());
  CHECK(raw.us->qp.modify_state(State::idle, raw.wire.now).error() == qp::ModifyError::still_flushing);
  raw.us->mover.stalled = raw.us->mover.stuck = false;
  raw.us->qp.on_let_go();
  CHECK_FALSE(raw.us->qp.idle());
  raw.run();
  CHECK(raw.us->app.completions.size() == 2);
  CHECK(raw.us->qp.modify_state(State::idle, raw.wire.now));
}

TEST_CASE("V-INV-10: an Invalidate completes only when nothing is on its way to the memory any more",
          "[qp][V-INV-10]") {
  Raw raw(default_start(), {}, Moves::at_flush);
  Region& r = raw.us->region(64);
  raw.run();
  raw.us->mover.stalled = true;
  raw.say(tagged(0, true, r.stag, r.base, filled(8)));
  auto invalidate = work(qp::Opcode::local_invalidate);
  invalidate.remote_stag = r.stag;
  raw.us->post(invalidate);
  raw.run();
  CHECK(raw.us->app.completions.empty());
  CHECK_FALSE(raw.us->table.check_local(r.stag, kPd, tpt::Rights::local_read, r.base, 1));
  raw.us->mover.stalled = false;
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == qp::Status::success);
}

TEST_CASE("V-ORD-08: segments whose gathers were done while nobody looked are not forgotten", "[qp][V-ORD-08]") {
  Options options;
  options.moves = Moves::at_flush;
  Pair pair(options);
  pair.run();
  Region& from = pair.a->region(100, 3);
  Region& to = pair.b->region(100);
  pair.a->post(write({Side::sge(from, 0, 100)}, to.stag, to.base));
  pair.a->qp.transmit(pair.wire.now, 1u << 20);
  pair.a->mover.flush();
  // Done, sealed by nobody, and with no event to come: whoever asks must be told that there is work.
  CHECK_FALSE(pair.a->qp.idle());
  pair.run();
  CHECK(pair.a->qp.idle());
  CHECK(from.memory == to.memory);
}
