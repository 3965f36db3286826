// What becomes of work whose queue pair fails or goes: verbs.md s8, and what is flushed.

#include "unit/qp/states.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

TEST_CASE("V-WR-14: an unsignaled failure is told, and all behind it", "[qp][V-WR-14][V-WR-15][V-ERRST-04][V-ERR-07]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Options options;
  options.moves = moves;
  Pair pair(options);
  Region& to = pair.b->region(64);
  Region& from = pair.a->region(64, 1);
  for (int i = 0; i < 49; ++i) pair.b->post_receive({Side::sge(to, 0, 64)});
  auto good = send({Side::sge(from, 0, 8)});
  good.signaled = false;
  auto bad = send({Side::sge(from, 60, 8)});
  bad.signaled = false;
  for (int i = 0; i < 49; ++i) pair.a->post(good);
  SECTION("after the first are with the peer") { pair.run(); }
  SECTION("in one go") {}
  const auto slot = pair.a->post(bad);
  for (int i = 0; i < 50; ++i) pair.a->post(good);
  pair.run();
  const auto& got = pair.a->app.completions;
  REQUIRE(got.size() == 51);
  CHECK(got[0].slot == slot);
  CHECK(got[0].status == qp::Status::base_bounds);
  for (std::uint32_t i = 1; i < 51; ++i) {
    CHECK(got[i].status == qp::Status::flushed);
    CHECK(got[i].slot == slot + i);
  }
  CHECK(pair.b->app.of_receives().size() == 49);
  CHECK(pair.a->app.events.empty());
  // 0x0000: what the peer itself has done wrong.
  CHECK(pair.b->app.events == Events{qp::Event::peer_gone});
}

TEST_CASE("V-EH-38: a bad work request is not sent; a Terminate goes in its place",
          "[qp][V-EH-38][V-STOP-03][W-RDMAP-64][V-SGL-04][V-SGL-05][V-RTS-09][V-SGL-06][V-CS-03][V-CS-13][V-CS-25]"
          "[V-MWR-02][V-TDN-05][V-ERR-02][V-STAG-12]") {
  Raw raw;
  Region& r = raw.us->region(64, 1);
  Region& unreadable = raw.us->region(64, 1, tpt::Rights::remote_write | tpt::Rights::local_write);
  Region& foreign = raw.us->region(64, 1, kAllRights, kOtherPd);
  const auto window = raw.us->table.allocate_window(kPd, 1);
  REQUIRE(window);
  qp::Status status{};
  qp::WorkRequest bad = send();
  SECTION("malformed") {
    bad.malformed = true;
    status = qp::Status::invalid_wqe;
  }
  SECTION("an unknown STag") {
    bad = send({{r.base, 8, {0x7FFFFF00}}});
    status = qp::Status::invalid_stag;
  }
  SECTION("a window") {
    bad = send({{r.base, 8, *window}});
    status = qp::Status::invalid_stag;
  }
  SECTION("another PD") {
    bad = send({Side::sge(foreign, 0, 8)});
    status = qp::Status::invalid_pd;
  }
  SECTION("bounds") {
    bad = write({Side::sge(r, 57, 8)}, {1}, 0);
    status = qp::Status::base_bounds;
  }
  SECTION("a wrap") {
    bad = send({{~0ull, 8, r.stag}});
    status = qp::Status::wrap;
  }
  SECTION("V-SGL-06: more than 2^32 - 1 octets") {
    bad = send({{r.base, 0xFFFFFFFF, r.stag}, {r.base, 1, r.stag}});
    status = qp::Status::invalid_length;
  }
  SECTION("V-SGL-07: a Read with two sinks") {
    bad = read({Side::sge(r, 0, 8), Side::sge(r, 8, 8)}, {1}, 0);
    status = qp::Status::invalid_wqe;
  }
  SECTION("a fast registration") {
    bad = work(qp::Opcode::fast_register);
    status = qp::Status::not_privileged;
  }
  SECTION("an invalidation of what cannot be") {
    bad = work(qp::Opcode::local_invalidate);
    bad.remote_stag = foreign.stag;
    status = qp::Status::invalid_pd;
  }
  SECTION("an extension that is off") {
    bad = work(qp::Opcode::fetch_add);
    status = qp::Status::invalid_wqe;
  }
  SECTION("V-STAG-12: a Write to STag 0") {
    bad = write({Side::sge(r, 0, 8)}, {0}, 0);
    status = qp::Status::invalid_stag;
  }
  SECTION("no right to read") {
    bad = send({Side::sge(unreadable, 0, 8)});
    status = qp::Status::access;
  }
  raw.us->post(bad);
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == status);
  REQUIRE(raw.heard.size() == 1);
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0] == wire::TerminateMessage{});  // 0/0/00, and M, D and R are 0
  CHECK(raw.us->app.events.empty());
  for (const auto state : {State::terminate, State::error}) {  // V-ERR-02
    CHECK(raw.us->qp.state() == state);
    CHECK(raw.us->qp.terminate_record().length == 4);
    CHECK(raw.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::local);
    raw.tcp.close();
    raw.run();
  }
}

TEST_CASE("W-RDMAP-64: a message that fails under way ends with a Terminate that names no segment",
          "[qp][W-RDMAP-64][V-STOP-03]") {
  Raw raw;
  Region& r = raw.us->region(100'000, 1);
  raw.us->post(send());
  raw.run();
  raw.us->post(write({Side::sge(r, 0, 100'000)}, {1}, 0));
  qp::Status status{};
  SECTION("its memory cannot be read") {
    raw.us->mover.unreachable.insert(r.stag.value);
    status = qp::Status::access;
  }
  SECTION("its STag is taken away") {
    raw.us->qp.transmit(raw.wire.now, 3000);
    REQUIRE(raw.us->table.deregister(r.stag));
    status = qp::Status::invalid_stag;
  }
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[1].status == status);
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0] == wire::TerminateMessage{});
  CHECK(raw.heard.back().size() == 18 + 4);
  CHECK(raw.us->app.events.empty());
}

TEST_CASE("V-STOP-05: a Modify stops a message between two segments, and what is begun goes out whole",
          "[qp][V-STOP-05][V-STOP-01][V-TERM-01]") {
  Raw raw;
  Region& r = raw.us->region(100'000, 1);
  raw.us->post(write({Side::sge(r, 0, 100'000)}, {1}, 0));
  raw.us->qp.transmit(raw.wire.now, 4000);
  raw.us->mover.flush();
  raw.us->qp.settle(raw.wire.now);
  REQUIRE(raw.us->qp.modify_state(State::terminate, raw.wire.now));
  raw.run();
  REQUIRE(raw.heard.size() >= 2);
  CHECK(raw.heard.size() <= 6);  // of some seventy
  REQUIRE(raw.terminates().size() == 1);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i + 1 < raw.heard.size(); ++i) {
    const auto header = wire::parse_tagged(raw.heard[i]);
    REQUIRE(header);
    CHECK(header->tagged_offset == next);
    CHECK_FALSE(header->last);
    next += raw.heard[i].size() - wire::TaggedHeader::kSize;
  }
  CHECK(raw.tcp.peer_closed());
  CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});
}

TEST_CASE("V-TERM-09: a RST after an error that a completion told is a Bad Close", "[qp][V-TERM-09]") {
  Raw raw;
  auto bad = send();
  bad.malformed = true;
  raw.us->post(bad);
  raw.run();
  CHECK(raw.us->app.events.empty());
  raw.tcp.abort(raw.wire.now);
  raw.run();
  CHECK(raw.us->app.events == Events{qp::Event::bad_close});
}

TEST_CASE("V-TERM-09: and after one that an event told it is not told again", "[qp][V-TERM-09][V-ERR-01]") {
  Raw raw;
  raw.say(untagged(3, true, 7, 1, 0));
  CHECK(raw.us->app.events == Events{qp::Event::queue_number});
  raw.tcp.abort(raw.wire.now);
  raw.run();
  CHECK(raw.us->app.events == Events{qp::Event::queue_number});
  CHECK(raw.us->qp.state() == State::error);
}

TEST_CASE("V-RD-09: with ORD 0 a Read fails", "[qp][V-RD-09][V-CS-12]") {
  qp::Start start = default_start();
  start.ord = 0;
  Raw raw(start);
  raw.us->post(read({}, {1}, 0));
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == qp::Status::zero_read_resources);
}

TEST_CASE("V-EH-39: a full completion queue ends the queue pair",
          "[qp][V-EH-39][V-AE-33][V-AE-34][W-RDMAP-23][W-RDMAP-64]") {
  Raw raw;
  Region& r = raw.us->region(64, 1);
  raw.us->app.room = 1;
  SECTION("V-AE-33: of the SQ") {
    raw.us->post(send());
    raw.us->post(send());
    raw.run();
    CHECK(raw.us->app.events == Events{qp::Event::cq_sq_error});
  }
  SECTION("V-AE-34: of the RQ") {
    for (int i = 0; i < 3; ++i) raw.us->post_receive({Side::sge(r, 0, 8)});
    raw.say(untagged(3, true, 0, 1, 0, filled(8)));
    raw.say(untagged(3, true, 0, 2, 0, filled(8)));
    CHECK(raw.us->app.events == Events{qp::Event::cq_rq_error});
  }
  REQUIRE(raw.terminates().size() == 1);
  // No segment of the peer's has to do with it.
  CHECK(raw.terminates()[0] == wire::TerminateMessage{.code = wire::terminate_code::kOperationCatastrophicStream});
  CHECK(raw.us->qp.state() == State::terminate);
}

TEST_CASE("V-SRQ-19: a shared queue's receives are not flushed with one queue pair", "[qp][V-SRQ-19][V-LIM-08]") {
  Raw raw(default_start(), [](qp::Config& c) { c.shared_receive = true; });
  Region& r = raw.us->region(64, 1);
  raw.us->post_receive({Side::sge(r, 0, 64)}, true);
  raw.us->post_receive({Side::sge(r, 0, 64)}, true);
  raw.say(untagged(3, false, 0, 1, 0, filled(8)));
  REQUIRE(raw.us->qp.modify_state(State::error, raw.wire.now));
  CHECK(statuses(raw.us->app.completions) == std::vector{qp::Status::flushed});  // the one it had taken
  CHECK(raw.us->app.receives.size() == 1);
  CHECK(raw.us->app.events == Events{qp::Event::last_wqe_reached});
}

TEST_CASE("V-ORD-08: what was completed is delivered after the queue pair is gone", "[qp][V-ORD-08][V-POLL-06]") {
  Pair pair;
  pair.run();
  Region& from = pair.a->region(100'000, 3);
  Region& to = pair.b->region(100'000);
  const auto sent = from.memory;
  pair.wire.cut_a = true;
  auto request = write({Side::sge(from, 0, 10'000)}, to.stag, to.base);
  pair.a->post(request);
  pair.run();
  REQUIRE(pair.a->app.completions.size() == 1);
  // The buffer is the application's again, and the octets on their way are not it.
  std::fill(from.memory.begin(), from.memory.end(), std::byte{0xEE});
  REQUIRE(pair.a->table.deregister(from.stag));
  CHECK(pair.a->qp.detach(pair.wire.now) == qp::QueuePair::Leftover::graceful);
  pair.a->tcp.close();
  pair.wire.cut_a = false;
  for (int i = 0; i < 100; ++i) {
    pair.wire.now = pair.wire.now + milliseconds(100);
    while (pair.wire.carry()) pair.turn(*pair.b);
  }
  CHECK(std::memcmp(to.memory.data(), sent.data(), 10'000) == 0);
}
