// Acknowledged streams (docs/wire.md s8.1): what completes when, and whose error it is.
#include "unit/qp/acknowledged.hpp"
#include "kit/catch.hpp"
#include "kit/qp_world.hpp"
#include "rdmap/acknowledgements.hpp"
#include "unit/qp/extended.hpp"
#include "wire/acknowledge.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;
using qp::Status;

// ---- completion --------------------------------------------------------------------------------------

TEST_CASE("W-ACK-02: a Send or Write is complete when the peer has acknowledged it, and not before",
          "[qp][acknowledged][W-ACK-01][W-ACK-02]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.us->post(send({Side::sge(source, 0, 8)}));
  peer.us->post(write_immediate({Side::sge(source, 0, 8)}, {9}, 0, 5));
  peer.run();
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).size() == 1);
  CHECK(of_sends(*peer.us).empty());
  peer.acknowledge(1);
  CHECK(of_sends(*peer.us) == Statuses{kDone});
  peer.acknowledge(3);  // of the Write with Immediate the Write
  CHECK(of_sends(*peer.us) == Statuses{kDone, kDone});
  peer.acknowledge(4);
  CHECK(of_sends(*peer.us) == Statuses{kDone, kDone, kDone});
}

TEST_CASE("W-ACK-02: Reads and atomics complete by their responses, in their place", "[qp][acknowledged][W-ACK-02]") {
  Peer peer;
  Region& sink = peer.us->region(64);
  peer.us->post(read({Side::sge(sink, 0, 8)}, {9}, 0));
  peer.us->post(write({Side::sge(sink, 8, 8)}, {9}, 0));
  peer.run();
  peer.acknowledge(2);
  CHECK(of_sends(*peer.us).empty());
  peer.say(tagged(2, true, sink.stag, sink.base, filled(8)));
  CHECK(of_sends(*peer.us) == Statuses{kDone, kDone});
}

TEST_CASE("W-ACK-03: what is performed is acknowledged once for all that came together",
          "[qp][acknowledged][W-ACK-03]") {
  Peer peer;
  Region& target = peer.us->region(64);
  peer.us->post_receive({});
  Octets all;
  for (std::uint32_t i = 0; i < 10; ++i) all = all + peer.fpdu(tagged(0, true, target.stag, target.base, filled(8)));
  all = all + peer.fpdu(untagged(3, true, 0, 1, 0));
  peer.say_octets(all);
  peer.run();
  CHECK(peer.acknowledgements() == 1);
  CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 11});
}

TEST_CASE("W-ACK-04: a Send whose first segments were set aside, and whose last was not, is performed with its end",
          "[qp][acknowledged][W-ACK-04]") {
  const rdmap::Patience patience{};
  rdmap::Acknowledgements counts(patience);
  counts.accept();
  counts.set_aside();
  counts.deliver(1, true);
  CHECK(counts.performed() == 0);
  counts.deliver_aside(1, 2, false);  // of the second a part is set aside
  CHECK(counts.performed() == 1);
  counts.accept();
  counts.deliver(2, false);
  CHECK(counts.performed() == 2);
  counts.accept();
  counts.deliver(3, false);
  CHECK(counts.performed() == 3);
}

TEST_CASE("W-ACK-03: not before it is placed", "[qp][acknowledged][W-ACK-03]") {
  Peer peer({}, Moves::at_flush);
  Region& target = peer.us->region(64);
  peer.us->mover.stalled = true;
  peer.say_octets(peer.fpdu(tagged(0, true, target.stag, target.base, filled(8))));
  for (int i = 0; i < 20; ++i) {
    peer.us->qp.receive(peer.wire.now);
    peer.us->mover.flush();
    peer.us->qp.settle(peer.wire.now);
    peer.us->qp.transmit(peer.wire.now, 1u << 20);
    peer.us->qp.settle(peer.wire.now);
    peer.wire.carry();
    peer.listen();
  }
  CHECK(peer.acknowledgements() == 0);
  peer.us->mover.stalled = false;
  peer.run();
  CHECK(peer.heard_last().performed == 1);
}

TEST_CASE("W-ACK-04: a Send that waits for a receive is not acknowledged, nor a Write behind it",
          "[qp][acknowledged][W-ACK-04]") {
  Peer peer;
  Region& target = peer.us->region(64);
  peer.say(tagged(0, true, target.stag, target.base, filled(8)));
  peer.say(untagged(3, true, 0, 1, 0));
  peer.say(tagged(0, true, target.stag, target.base, filled(8)));
  peer.say(untagged(3, true, 0, 2, 0));
  peer.say(tagged(0, true, target.stag, target.base, filled(8)));
  CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 1, .waits = true, .timer = 12});
  peer.us->post_receive({});
  peer.run();
  CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 3, .waits = true, .timer = 12});
  peer.us->post_receive({});
  peer.run();
  CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 5});
  // Where they were there in time nothing waits.
  peer.us->post_receive({});
  peer.say(untagged(3, true, 0, 3, 0));
  CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 6});
}

TEST_CASE("W-ACK-04: a message of several segments that waits is one", "[qp][acknowledged][W-ACK-04]") {
  Peer peer;
  Region& sink = peer.us->region(64);
  peer.say(untagged(3, false, 0, 1, 0, filled(8)));
  CHECK((peer.acknowledgements() == 0 || peer.heard_last().performed == 0));
  const bool in_time = GENERATE(true, false);
  if (in_time) peer.us->post_receive({Side::sge(sink, 0, 64)});
  peer.run();
  peer.say(untagged(3, true, 0, 1, 8, filled(8)));
  if (!in_time) {
    CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 0, .waits = true, .timer = 12});
    peer.us->post_receive({Side::sge(sink, 0, 64)});
    peer.run();
  }
  CHECK(peer.heard_last() == wire::AcknowledgeHeader{.performed = 1});
  CHECK(peer.us->app.of_receives().size() == 1);
}

TEST_CASE("W-ACK-05: an acknowledgement goes ahead of work, and behind the message under way",
          "[qp][acknowledged][W-ACK-05]") {
  Peer peer;
  Region& big = peer.us->region(1 << 20, 3);
  Region& here = peer.us->region(64);
  peer.deaf = true;
  for (int i = 0; i < 3; ++i) peer.us->post(write({Side::sge(big, 0, 1 << 20)}, {9}, 0));
  peer.run();  // the peer's window is full, and most of the first is not out
  peer.say(tagged(0, true, here.stag, here.base, filled(8)));
  peer.deaf = false;
  peer.run();
  // Where the first Write ended, and nothing of the second had left.
  std::size_t ended = 0;
  bool found = false;
  for (std::size_t i = 0; i < peer.heard.size(); ++i) {
    const auto header = wire::parse_ddp(peer.heard[i]);
    REQUIRE(header);
    if (wire::rdmap_opcode(header->rdmap_control) == wire::RdmapOpcode::acknowledge) {
      CHECK(ended == 1);
      REQUIRE(i > 1);
      CHECK(wire::parse_ddp(peer.heard[i - 1])->last);
      found = true;
      break;
    }
    ended += header->last ? 1 : 0;
  }
  CHECK(found);
  CHECK(peer.heard_last().performed == 1);
}

TEST_CASE("a receive says how many octets the Write of its Immediate had, though it came late", "[qp][acknowledged]") {
  Pair pair(acknowledged());
  Region& from = pair.a->region(9000, 5);
  Region& there = pair.b->region(9000);
  const std::uint32_t lengths[] = {9000, 0, 7};
  for (const std::uint32_t each : lengths)
    pair.a->post(write_immediate({Side::sge(from, 0, each)}, there.stag, there.base, each));
  pair.a->post(write({Side::sge(from, 0, 100)}, there.stag, there.base));
  pair.run();
  REQUIRE(pair.b->app.completions.empty());  // all three wait for a receive
  for (int i = 0; i < 3; ++i) pair.b->post_receive({});
  pair.run();
  pair.b->post_receive({});
  pair.a->post(write_immediate({Side::sge(from, 0, 30)}, there.stag, there.base, 30));
  pair.run();
  REQUIRE(pair.b->app.completions.size() == 4);
  for (std::uint32_t i = 0; i < 3; ++i) CHECK(pair.b->app.completions[i].length == lengths[i]);
  CHECK(pair.b->app.completions[3].length == 30);
}

TEST_CASE("W-ACK-02: thousands of requests may be unacknowledged", "[qp][acknowledged][W-ACK-02]") {
  Pair pair(acknowledged(Moves::direct, [](qp::Config& c) { c.send_depth = 4096; }));
  Region& source = pair.a->region(64, 3);
  Region& there = pair.b->region(64);
  pair.wire.cut_b = true;  // nothing comes back
  for (int i = 0; i < 3000; ++i) pair.a->post(write({Side::sge(source, 0, 8)}, there.stag, there.base));
  pair.run();
  CHECK(of_sends(*pair.a).empty());
  pair.wire.cut_b = false;
  pair.pass(milliseconds(400), milliseconds(20));
  CHECK(of_sends(*pair.a) == Statuses(3000, kDone));
}

TEST_CASE("W-ACK-02: whatever a mover and a wire do, a Write's completion says that its octets are there",
          "[qp][acknowledged][W-ACK-02]") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  Options options = acknowledged(Moves::late);
  options.seed = seed;
  Pair pair(options);
  std::mt19937 random(static_cast<unsigned>(seed));
  pair.wire.loses = [&](bool, const tcp::SegmentOut&) { return random() % 20 == 0; };
  Region& source = pair.a->region(4096, 1);
  Region& there = pair.b->region(4096);
  unsigned stale = 0, done = 0;
  std::deque<std::uint32_t> expected;
  pair.a->app.on_completion = [&](const qp::Completion& completion) {
    if (completion.status != kDone) return;
    // Out of band, and at once: what the peer reads.
    std::uint32_t value;
    const std::uint32_t at = completion.slot % 512 * 8;
    std::memcpy(&value, there.memory.data() + at, sizeof value);
    if (value < completion.slot) ++stale;
    ++done;
  };
  for (std::uint32_t i = 0; i < 2000; ++i) {
    // Its own place in the source as long as it is not complete.
    while (i - done >= 256) {
      pair.run();
      pair.wire.now = pair.wire.now + milliseconds(20);
    }
    std::memcpy(source.memory.data() + i % 512 * 8, &i, sizeof i);
    pair.a->post(write({Side::sge(source, i % 512 * 8, 8)}, there.stag, there.at(i % 512 * 8)));
    if (random() % 8 == 0) pair.step();
  }
  pair.pass(seconds(1), milliseconds(20));
  CHECK(done == 2000);
  CHECK(stale == 0);
}

// ---- errors belong to the request --------------------------------------------------------------------

TEST_CASE("W-ACK-06: the request that is refused fails, those before it are done, those behind it flushed",
          "[qp][acknowledged][W-ACK-06]") {
  Pair pair(acknowledged(GENERATE(Moves::direct, Moves::at_flush)));
  Region& source = pair.a->region(64, 3);
  Region& there = pair.b->region(64);
  pair.b->post_receive({});
  pair.a->post(write({Side::sge(source, 0, 8)}, there.stag, there.base));
  pair.a->post(send());
  std::uint32_t detail = 0;
  SECTION("a Write to an STag that nobody has") {
    pair.a->post(write({Side::sge(source, 0, 8)}, {0x12345600}, there.base));
    detail = 0x1100;
  }
  SECTION("a Write past the end") {
    pair.a->post(write({Side::sge(source, 0, 16)}, there.stag, there.base + 56));
    detail = 0x1101;
  }
  SECTION("a Read past the end") {
    pair.a->post(read({Side::sge(source, 0, 16)}, there.stag, there.base + 56));
    detail = 0x0101;
  }
  SECTION("an atomic where none is allowed") {
    pair.a->post(fetch_add(Side::sge(source, 0, 8), there.stag, there.base, 1));
    detail = 0x0102;
  }
  SECTION("a Send that is longer than its receive") {
    pair.b->post_receive({});
    pair.a->post(send({Side::sge(source, 0, 8)}));
    detail = 0x1205;
  }
  SECTION("a Send whose receive names memory that is none") {
    pair.b->post_receive({{there.base, 64, {0x77777700}}});
    pair.a->post(send({Side::sge(source, 0, 8)}));
    detail = 0x0000;
  }
  pair.a->post(write({Side::sge(source, 8, 8)}, there.stag, there.at(8)));
  pair.a->post(send());
  pair.run();
  pair.pass(milliseconds(100));
  CHECK(of_sends(*pair.a) == Statuses{kDone, kDone, kRefused, kFlushed, kFlushed});
  CHECK(pair.a->app.of_sends()[2].detail == detail);
  CHECK(pair.a->qp.state() == State::error);
  CHECK(pair.b->qp.state() == State::error);
  CHECK(there.memory[8] == std::byte{0});
  CHECK(pair.a->app.events.empty());
}

TEST_CASE("W-ACK-06: the error comes before what is flushed for it, where both queues report to one CQ",
          "[qp][acknowledged][W-ACK-06]") {
  Pair pair(acknowledged());
  const bool receive_fails = GENERATE(true, false);
  pair.a->post_receive({});
  pair.b->post(send());
  pair.run();
  if (receive_fails) {
    pair.b->post_receive({{0x1000, 64, {0x77777700}}});
    pair.a->post(send({Side::sge(pair.a->region(64), 0, 8)}));
  } else {
    pair.a->post(write({Side::sge(pair.a->region(64), 0, 8)}, {0x12345600}, 0));
    pair.b->post_receive({});
  }
  pair.a->post_receive({});
  pair.run();
  pair.pass(milliseconds(100));
  for (const Side* side : {pair.a.get(), pair.b.get()}) {
    // Of these only the first of what was not performed is no success.
    std::vector<rdmap::Completion> bad;
    for (const auto& each : side->app.completions)
      if (each.status != Status::success) bad.push_back(each);
    REQUIRE(!bad.empty());
    if (side == pair.a.get()) {
      CHECK(bad[0].of_send_queue);
      CHECK(bad[0].status == kRefused);
    } else if (receive_fails) {
      CHECK(!bad[0].of_send_queue);
      CHECK(bad[0].status == Status::invalid_stag);
    }
    for (std::size_t i = 1; i < bad.size(); ++i) CHECK(bad[i].status == kFlushed);
  }
}

TEST_CASE("W-ACK-06: a Read before the one that is refused is answered first", "[qp][acknowledged][W-ACK-06]") {
  Pair pair(acknowledged(GENERATE(Moves::direct, Moves::at_flush, Moves::late)));
  Region& sink = pair.a->region(300000);
  Region& there = pair.b->region(300000, 5);
  pair.a->post(read({Side::sge(sink, 0, 300000)}, there.stag, there.base));
  pair.a->post(write({Side::sge(sink, 0, 8)}, {0x12345600}, there.base));
  pair.a->post(send());
  pair.run();
  pair.pass(milliseconds(100));
  CHECK(of_sends(*pair.a) == Statuses{kDone, kRefused, kFlushed});
  CHECK(sink.memory == there.memory);
}

TEST_CASE("W-ACK-06: what is refused behind a Send that waits is refused in its turn", "[qp][acknowledged][W-ACK-06]") {
  Peer peer;
  Region& target = peer.us->region(64);
  peer.say(untagged(3, true, 0, 1, 0));
  SECTION("a Write") { peer.say(tagged(0, true, {0x12345600}, 0, filled(8))); }
  SECTION("a Read") {
    peer.say(read_request(1, {.sink_stag = {1}, .size_bytes = 8, .source_stag = {0x12345600}, .source_to = 0}));
  }
  CHECK(peer.us->qp.state() == State::rts);
  CHECK(peer.refusals().empty());
  // And the good one behind it does nothing.
  peer.say(tagged(0, true, target.stag, target.base, filled(8)));
  peer.us->post_receive({});
  peer.run();
  CHECK(peer.us->app.of_receives().front().status == kDone);
  CHECK(peer.heard_last().performed == 1);
  REQUIRE(peer.refusals().size() == 1);
  CHECK(peer.refusals()[0].request == 2);
  CHECK(peer.terminates().size() == 1);
  CHECK(target.memory[0] == std::byte{0});
}

TEST_CASE("W-ACK-07: our own request that fails waits for those before it", "[qp][acknowledged][W-ACK-07]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.us->post(write({{source.base, 8, {0x55555500}}}, {9}, 0));
  peer.us->post(send());
  peer.run();
  CHECK(of_sends(*peer.us).empty());
  CHECK(peer.us->qp.state() == State::rts);
  peer.acknowledge(1);
  CHECK(of_sends(*peer.us) == Statuses{kDone, Status::invalid_stag, kFlushed});
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).empty());
  CHECK(peer.terminates().size() == 1);
}

TEST_CASE("W-ACK-07: the peer's refusal comes before a failure of our own behind it",
          "[qp][acknowledged][W-ACK-06][W-ACK-07]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.us->post(write({{source.base, 8, {0x55555500}}}, {9}, 0));
  peer.run();
  CHECK(of_sends(*peer.us).empty());
  peer.refuse(1, 0x1101);
  peer.run();
  CHECK(of_sends(*peer.us) == Statuses{kRefused, kFlushed});
}

TEST_CASE("W-ACK-07: behind a refusal that waits for a Read to be answered nothing is begun",
          "[qp][acknowledged][W-ACK-06][W-ACK-07]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  Region& sink = peer.us->region(64);
  peer.us->post(read({Side::sge(sink, 0, 8)}, {9}, 0));
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  peer.refuse(2, 0x1101);
  CHECK(of_sends(*peer.us).empty());
  peer.us->post(send({Side::sge(source, 0, 8)}));
  peer.run();
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).empty());
  peer.say(tagged(2, true, sink.stag, sink.base, filled(8)));
  CHECK(of_sends(*peer.us) == Statuses{kDone, kRefused, kFlushed});
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).empty());
}

TEST_CASE("W-ACK-06: a Send whose receive is too small is refused, with a Read behind it that waits for it",
          "[qp][acknowledged][W-ACK-06]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.say(untagged(3, true, 0, 1, 0, filled(8)));
  peer.say(read_request(1, {.sink_stag = {1}, .size_bytes = 8, .source_stag = source.stag, .source_to = source.base}));
  CHECK(peer.us->qp.state() == State::rts);
  peer.us->post_receive({});
  peer.run();
  REQUIRE(peer.refusals().size() == 1);
  CHECK(peer.refusals()[0].request == 1);
  CHECK(peer.terminates().size() == 1);
}

TEST_CASE("W-ACK-09: who acknowledges or refuses what he was never sent breaks the protocol",
          "[qp][acknowledged][W-ACK-09]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  SECTION("too many") { peer.acknowledge(3); }
  SECTION("fewer than before") {
    peer.acknowledge(1);
    peer.acknowledge(0);
  }
  SECTION("one that is far off") { peer.acknowledge(0x80000001); }
  SECTION("that the next one waits, where there is none") { peer.acknowledge(2, true, 12); }
  SECTION("a refusal of none") { peer.refuse(0, 0x1100); }
  SECTION("of one to come") { peer.refuse(4, 0x1100); }
  SECTION("out of turn") {
    peer.acknowledge(1);
    --peer.msn;
    peer.acknowledge(1);
  }
  SECTION("too short") { peer.say(untagged(12, true, 4, 1, 0, filled(7))); }
  SECTION("too long") { peer.say(untagged(12, true, 4, 1, 0, filled(9))); }
  SECTION("not the last") { peer.say(untagged(12, false, 4, 1, 0, filled(8))); }
  SECTION("of another queue") { peer.say(untagged(12, true, 3, 1, 0, filled(8))); }
  CHECK(peer.terminates().size() == 1);
  peer.tcp.close();
  peer.run();
  const auto told = of_sends(*peer.us);
  CHECK(told.size() == 2);
  CHECK(told.back() != kDone);
}

TEST_CASE("W-ACK-09: an acknowledgement that was dropped for a later one is not missed",
          "[qp][acknowledged][W-ACK-09]") {
  Peer peer;
  Region& source = peer.us->region(64, 1);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  peer.msn += 3;
  peer.acknowledge(1);
  CHECK(of_sends(*peer.us) == Statuses{kDone});
  CHECK(peer.us->qp.state() == State::rts);
}

TEST_CASE("W-ACK-01: without the agreement its opcodes are none", "[qp][acknowledged][W-ACK-01]") {
  for (std::uint8_t opcode = 12; opcode < 16; ++opcode) {
    Raw raw(default_start(), as_roce);
    raw.us->post_receive({});
    raw.say(untagged(opcode, true, opcode < 14 ? 4 : 0, 1, 0, filled(8)));
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0x0206);
  }
}

// ---- Reads with several SGEs, Send with Immediate ------------------------------------------------------

TEST_CASE("W-ACK-11: a Read takes as many SGEs as a Send, each with a Request of its own, and is one completion",
          "[qp][acknowledged][W-ACK-11]") {
  const std::uint32_t ord = GENERATE(1u, 2u, 16u);
  Options options = acknowledged(GENERATE(Moves::direct, Moves::late));
  options.start.ird = options.start.ord = ord;
  Pair pair(options);
  Region& sink = pair.a->region(4096, 0, tpt::Rights::local_write | tpt::Rights::local_read);
  Region& there = pair.b->region(4096, 5);
  std::vector<qp::Sge> sges;
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t length = i == 5 || i == 15 ? 0 : 100 + i;
    sges.push_back(Side::sge(sink, i * 256, length));
    total += length;
  }
  pair.a->post(read(sges, there.stag, there.at(7)));
  pair.a->post(write({Side::sge(sink, 0, 0)}, {}, 0));
  pair.a->post(read({}, there.stag, there.base));
  pair.run();
  CHECK(of_sends(*pair.a) == Statuses{kDone, kDone, kDone});
  CHECK(pair.a->app.of_sends()[0].length == total);
  CHECK(pair.a->qp.counters().reads_out == 15);
  std::uint32_t at = 7;
  for (const qp::Sge& sge : sges) {
    const auto first = sink.memory.begin() + static_cast<std::ptrdiff_t>(sge.address - sink.base);
    CHECK(std::equal(first, first + sge.length, there.memory.begin() + at));
    at += sge.length;
  }
  CHECK(at == 7 + total);
}

TEST_CASE("W-ACK-11: of a Read with several SGEs all are looked at before anything is asked for",
          "[qp][acknowledged][W-ACK-11]") {
  Peer peer;
  Region& sink = peer.us->region(64);
  Region& closed = peer.us->region(64, 0, tpt::Rights::local_read);
  peer.us->post(read({Side::sge(sink, 0, 8), Side::sge(closed, 0, 8)}, {9}, 0));
  peer.run();
  CHECK(peer.heard_opcode(wire::RdmapOpcode::read_request).empty());
  CHECK(of_sends(*peer.us) == Statuses{Status::access});
}

TEST_CASE("W-ACK-11: a Read that is half asked for is flushed once", "[qp][acknowledged][W-ACK-11]") {
  Raw raw(
      [] {
        qp::Start start = acknowledged_start();
        start.ord = 1;
        return start;
      }(),
      as_roce);
  Region& sink = raw.us->region(64);
  raw.us->post(read({Side::sge(sink, 0, 8), Side::sge(sink, 8, 8)}, {9}, 0));
  raw.us->post(send());
  raw.run();
  CHECK(raw.heard_opcode(wire::RdmapOpcode::read_request).size() == 1);
  REQUIRE(raw.us->qp.modify_state(State::error, raw.wire.now));
  CHECK(of_sends(*raw.us) == Statuses{kFlushed, kFlushed});
}

TEST_CASE("W-ACK-13: a Send with Immediate takes one receive, for its octets and its value",
          "[qp][acknowledged][W-ACK-13]") {
  Pair pair(acknowledged());
  Region& source = pair.a->region(20000, 3);
  Region& sink = pair.b->region(20000);
  pair.b->post_receive({Side::sge(sink, 0, 20000)});
  pair.b->post_receive({});
  pair.a->post(send_immediate({Side::sge(source, 0, 20000)}, 0x44332211));
  auto solicited = send_immediate({}, 7);
  solicited.solicited = true;
  pair.a->post(solicited);
  pair.run();
  CHECK(of_sends(*pair.a) == Statuses{kDone, kDone});
  const auto received = pair.b->app.of_receives();
  REQUIRE(received.size() == 2);
  CHECK(received[0].opcode == qp::Opcode::receive);
  CHECK(received[0].immediate);
  CHECK(received[0].word == 0x44332211);
  CHECK(received[0].length == 20000);
  CHECK_FALSE(received[0].solicited);
  CHECK_FALSE(received[0].invalidated);
  CHECK(received[1].word == 7);
  CHECK(received[1].solicited);
  CHECK(sink.memory == source.memory);
}

TEST_CASE("W-ACK-13: a Send with Immediate is these octets", "[qp][acknowledged][W-ACK-13]") {
  Peer peer;
  auto request = send_immediate({}, to_big(0x01020304u));
  peer.us->post(request);
  request.solicited = true;
  peer.us->post(request);
  peer.run();
  REQUIRE(peer.heard.size() == 2);
  CHECK(peer.heard[0] == untagged(14, true, 0, 1, 0, {}, {0x01020304}));
  CHECK(peer.heard[1] == untagged(15, true, 0, 2, 0, {}, {0x01020304}));
}

TEST_CASE("W-ACK-13: on another stream there is none", "[qp][acknowledged][W-ACK-13]") {
  Pair pair;
  pair.a->post(send_immediate({}, 1));
  pair.run();
  CHECK(of_sends(*pair.a) == Statuses{Status::invalid_wqe});
}

TEST_CASE("W-ACK-11: a Read with several SGEs is complete with the last of its Responses",
          "[qp][acknowledged][W-ACK-11]") {
  Peer peer;
  Region& sink = peer.us->region(64);
  peer.us->post(read({Side::sge(sink, 0, 8), Side::sge(sink, 8, 8)}, {9}, 0));
  peer.run();
  const auto asked = peer.heard_opcode(wire::RdmapOpcode::read_request);
  REQUIRE(asked.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(of_sends(*peer.us).empty());
    const auto request = wire::parse_read_request(Bytes(asked[i]).subspan(18));
    peer.say(tagged(2, true, request->sink_stag, request->sink_to, Octets(8, std::byte{7})));
  }
  CHECK(of_sends(*peer.us) == Statuses{kDone});
}

TEST_CASE("W-ACK-04: of what is set aside each is performed by itself, known or not what follows",
          "[qp][acknowledged][W-ACK-04]") {
  const rdmap::Patience patience{};
  rdmap::Acknowledgements acknowledgements(patience);
  for (std::uint32_t number = 1; number <= 3; ++number) {
    acknowledgements.accept();
    acknowledgements.set_aside();
    acknowledgements.deliver(number, true);
  }
  CHECK(acknowledgements.performed() == 0);
  acknowledgements.deliver_aside(1, {}, true);
  CHECK(acknowledgements.performed() == 1);
  acknowledgements.deliver_aside(2, 3, false);
  CHECK(acknowledgements.performed() == 2);
  acknowledgements.deliver_aside(3, {}, false);
  CHECK(acknowledgements.performed() == 3);
}

TEST_CASE("W-ACK-07: behind our own request that fails none is begun", "[qp][acknowledged][W-ACK-07]") {
  Peer peer;
  Region& source = peer.us->region(64);
  peer.us->post(write({Side::sge(source, 0, 8)}, {9}, 0));
  peer.run();
  peer.us->post(write({{0x7000, 8, {0x12345600}}}, {9}, 0));
  peer.us->post(send());
  peer.run();
  peer.us->post(send());
  peer.us->qp.work_posted();
  peer.run();
  CHECK(peer.heard_opcode(wire::RdmapOpcode::send).empty());
  CHECK(of_sends(*peer.us).empty());  // the Write before it is not acknowledged yet
  peer.acknowledge(1);
  CHECK(of_sends(*peer.us).at(0) == kDone);
  CHECK(of_sends(*peer.us).at(1) == Status::invalid_stag);
}
