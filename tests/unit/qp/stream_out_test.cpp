// Segments -> FPDUs -> TCP segments.

#include "qp/stream_out.hpp"

#include "kit/catch.hpp"
#include "unit/qp/stream_end.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

using Last = qp::StreamOut::Last;

constexpr std::uint8_t kWrite = 0;
constexpr std::uint32_t kFpduOfEight = 28;  // of a Write of eight octets

rdmap::WorkRequest write_of(const Region& source, std::uint32_t length) {
  return write({End::sge(source, 0, length)}, {9}, 0);
}
qp::Start with_rtr(qp::Start::Rtr rtr) {
  qp::Start start = default_start();
  start.rtr = rtr;
  return start;
}

}  // namespace

TEST_CASE("W-TCP-02: FPDUs of one turn share a TCP segment, and none lies in two", "[qp][W-TCP-02][W-TCP-24]") {
  StreamEnd s;
  Region& source = s.region(200, 3);
  CHECK_FALSE(s.out.spoken());
  SECTION("three that fit one") {
    for (int i = 0; i < 3; ++i) s.post(write_of(source, 8));
    CHECK(s.fill());
    CHECK(s.out.filling() == 1);
    CHECK(s.push());
    CHECK(s.heard().size() == 3);
    CHECK(s.wire.payload_sizes == std::vector<std::pair<bool, std::uint32_t>>{{true, 3 * kFpduOfEight}});
    CHECK(s.all_counters.fpdus_out == 3);
    CHECK(s.out.spoken());
  }
  SECTION("a hundred: each segment has whole ones, as many as fit") {
    for (int i = 0; i < 100; ++i) s.post(write_of(source, 200));
    std::size_t heard = 0;
    while (s.fill()) {
      s.push();
      heard += s.heard().size();
    }
    CHECK(heard == 100);
    const std::uint32_t one = 220, emss = s.tcp.emss();
    for (std::size_t i = 0; i < s.wire.payload_sizes.size(); ++i) {
      const std::uint32_t size = s.wire.payload_sizes[i].second;
      CHECK(size % one == 0);
      CHECK(size <= emss);
      if (i + 1 != s.wire.payload_sizes.size()) CHECK(size + one > emss);
    }
  }
  SECTION("those of two turns do not") {
    s.post(write_of(source, 8));
    s.fill();
    s.post(write_of(source, 8));
    s.fill();
    CHECK(s.out.filling() == 2);
    s.push();
    s.heard();
    CHECK(s.wire.payload_sizes.size() == 2);
  }
}

TEST_CASE("a turn has a budget, and ends with the FPDU that uses it up", "[qp]") {
  StreamEnd s;
  Region& source = s.region(8, 3);
  for (int i = 0; i < 3; ++i) s.post(write_of(source, 8));
  constexpr std::uint32_t kOne = qp::kMessageCost + kFpduOfEight;
  CHECK(s.fill(kOne + 1));
  s.push();
  CHECK(s.heard().size() == 2);
  CHECK(s.fill(kOne));
  s.push();
  CHECK(s.heard().size() == 1);
  CHECK_FALSE(s.fill());
}

TEST_CASE("messages without octets, and work without messages, cost of a turn, too", "[qp]") {
  StreamEnd s;
  SECTION("empty Writes") {
    for (int i = 0; i < 20; ++i) s.post(work(rdmap::Opcode::write));
  }
  SECTION("what is refused without a message") {
    for (int i = 0; i < 20; ++i) s.post(work(rdmap::Opcode::local_invalidate));
  }
  CHECK(s.fill(10 * qp::kMessageCost));
  CHECK(s.all_counters.fpdus_out <= 10);
  CHECK(s.app.sends.size() >= 9);
}

TEST_CASE("V-ORD-08: a segment goes to TCP when its octets are gathered, and its work is complete then",
          "[qp][V-ORD-08]") {
  StreamEnd s(default_start(), Moves::at_flush);
  Region& source = s.region(8, 3);
  s.post(write_of(source, 8));
  s.fill();
  CHECK(s.common.moves.gathers == 1);
  CHECK_FALSE(s.push());
  CHECK_FALSE(s.requester.complete(s.verdict));
  tpt::Kept kept;
  s.out.keep(kept);
  CHECK(kept.buffers.size() == 1);
  s.mover.flush();
  CHECK(s.common.moves.gathers == 0);
  CHECK(s.push());
  CHECK(s.requester.complete(s.verdict));
  const auto heard = s.heard();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0] == tagged(kWrite, true, {9}, 0, source.memory));
  kept.buffers.clear();
  s.out.keep(kept);
  CHECK(kept.buffers.empty());
}

TEST_CASE("a segment whose octets are there waits behind one whose are not", "[qp][W-DDP-10]") {
  StreamEnd s(default_start(), Moves::at_flush);
  Region& source = s.region(8, 3);
  s.post(write_of(source, 8));
  s.fill();
  auto inline_data = write({}, {9}, 0);
  inline_data.has_data = true;
  inline_data.data = source.memory;
  s.post(inline_data);
  s.fill();
  CHECK_FALSE(s.push());
  CHECK(s.out.filling() == 2);
  s.mover.flush();
  CHECK(s.push());
  CHECK(s.out.empty());
  CHECK(s.heard().size() == 2);
}

TEST_CASE("octets that could not be gathered: what is before them leaves, they do not, and it is told whose they are",
          "[qp][V-STOP-03]") {
  StreamEnd s(default_start(), GENERATE(Moves::direct, Moves::at_flush));
  Region& good = s.region(8, 3);
  Region& bad = s.region(8, 3);
  s.mover.unreachable.insert(bad.stag.value);
  s.post(write_of(good, 8));
  s.fill();
  s.post(write_of(bad, 8));
  s.fill();
  s.post(write_of(good, 8));
  s.fill();
  s.mover.flush();
  CHECK(s.push());
  CHECK(s.failed_work == 1u);
  CHECK(s.heard().size() == 1);
  CHECK(s.out.filling() == 2);
}

TEST_CASE("a Response's gathers are counted by themselves, and are nobody's work", "[qp][W-EXT-16]") {
  StreamEnd s(default_start(), Moves::at_flush);
  Region& source = s.region(8, 3);
  const bool fails = GENERATE(false, true);
  if (fails) s.mover.unreachable.insert(source.stag.value);
  s.hear(read_request(1, {.sink_stag = {7}, .size_bytes = 8, .source_stag = source.stag, .source_to = source.base}));
  s.fill();
  CHECK(s.common.moves.response_gathers == 1);
  s.mover.flush();
  CHECK(s.common.moves.response_gathers == 0);
  CHECK(s.push());
  CHECK(s.failed_work == (fails ? std::optional(rdmap::Requester::kNoWork) : std::nullopt));
}

TEST_CASE("W-MPA-42: nothing leaves before the gate is open", "[qp][W-MPA-42][W-MPA-21]") {
  SECTION("a responder") {
    StreamEnd s(responder_start());
    s.post(send());
    CHECK_FALSE(s.fill());
    CHECK(s.gate.heard());
    CHECK(s.fill());
  }
  SECTION("an initiator with an RTR: that first, and work when it is with TCP") {
    const auto rtr = GENERATE(qp::Start::Rtr::write, qp::Start::Rtr::read, qp::Start::Rtr::send);
    StreamEnd s(with_rtr(rtr));
    s.post(send());
    CHECK(s.fill());
    CHECK_FALSE(s.gate.open());
    CHECK(s.push());
    CHECK(s.gate.open());
    const auto heard = s.heard();
    REQUIRE(heard.size() == 1);
    const auto opcode = wire::rdmap_opcode(std::to_integer<std::uint8_t>(heard[0][1]));
    CHECK(opcode == (rtr == qp::Start::Rtr::write  ? wire::RdmapOpcode::write
                     : rtr == qp::Start::Rtr::read ? wire::RdmapOpcode::read_request
                                                   : wire::RdmapOpcode::send));
    CHECK(s.fill());
    s.push();
    CHECK(s.heard().size() == 1);
  }
  SECTION("a nudge is a Write of no octets") {
    StreamEnd s;
    s.gate.on_time(s.wire.now + milliseconds(50), true);
    CHECK(s.fill());
    s.push();
    const auto heard = s.heard();
    REQUIRE(heard.size() == 1);
    CHECK(heard[0] == tagged(kWrite, true, {1}, 0));
    CHECK_FALSE(s.fill());
  }
}

TEST_CASE("without a buffer it starves, and goes on when there is one", "[qp]") {
  StreamEnd s(default_start(), Moves::direct, default_settings(), {.count = 1, .room_bytes = 9216});
  BufferRef taken = BufferRef::take(s.pool);
  s.post(send());
  s.fill();
  CHECK(s.out.starved());
  CHECK(s.out.empty());
  CHECK_FALSE(s.out.buffer_for_last());
  CHECK(s.out.starved());
  taken.reset();
  CHECK(s.fill());
  CHECK_FALSE(s.out.starved());
  CHECK(s.out.filling() == 1);
}

TEST_CASE("without room in TCP it waits, and says so", "[qp]") {
  StreamEnd s;
  Region& source = s.region(4 << 20, 3);
  s.post(write_of(source, 4 << 20));
  for (int i = 0; i < 1000 && s.fill(); ++i) s.push();
  CHECK(s.out.waits_for_room());
  CHECK_FALSE(s.verdict);
  CHECK_FALSE(s.out.starved());
  const std::uint64_t appended = s.tcp.appended();
  CHECK_FALSE(s.heard().empty());
  CHECK_FALSE(s.out.waits_for_room());
  CHECK(s.fill());
  s.push();
  CHECK(s.tcp.appended() > appended);
}

TEST_CASE("what is filled and finds no place in TCP asks for no turn until there is one", "[qp]") {
  tcp::Options options;
  options.send_segments_max = 16;
  StreamEnd s(default_start(), Moves::direct, default_settings(), {.count = 512, .room_bytes = 9216}, options);
  Region& source = s.region(1 << 16, 3);
  // Small segments take a slot each, and leave more room in octets than there are slots.
  for (int i = 0; i < 10; ++i) {
    s.post(write_of(source, 8));
    s.fill();
    CHECK(s.out.can_push());
    s.push();
    CHECK_FALSE(s.out.can_push());
    REQUIRE(s.out.empty());
  }
  for (int i = 0; i < 12; ++i) s.post(write_of(source, 1400));
  s.fill();
  CHECK(s.out.can_push());
  s.push();
  REQUIRE_FALSE(s.out.empty());
  CHECK_FALSE(s.out.can_push());
  CHECK_FALSE(s.out.starved());
  (void)s.heard();
  s.push();
  CHECK(s.out.empty());
}

TEST_CASE("W-RDMAP-29: a Terminate follows where what was dropped had its place", "[qp][W-RDMAP-29][W-MPA-25]") {
  qp::Start start = default_start();
  start.markers_out = true;
  StreamEnd s(start);
  Region& source = s.region(900, 3);
  s.post(write_of(source, 100));
  s.fill();
  s.push();
  s.post(write_of(source, 900));
  s.fill();
  CHECK(s.out.filling() == 1);
  s.out.drop();
  CHECK(s.out.empty());
  CHECK_FALSE(s.push());
  const Octets payload = filled(900);  // a marker is among them
  SECTION("behind all segments") {
    s.out.append_last(std::array{Last{s.requester.sender().terminate(900), payload}}, s.out.buffer_for_last());
    CHECK(s.out.filling() == 1);
    CHECK(s.push());
  }
  SECTION("at once") {
    s.out.append_last_at_once(std::array{Last{s.requester.sender().terminate(900), payload}}, BufferRef::take(s.pool));
    CHECK(s.out.empty());
  }
  const auto heard = s.heard();
  REQUIRE(heard.size() == 2);
  CHECK(heard[1] == untagged(7, true, 2, 1, 0, payload));
}

TEST_CASE("dropped with its segment, an RTR opens no gate", "[qp][W-MPA-87]") {
  StreamEnd s(with_rtr(qp::Start::Rtr::write));
  s.fill();
  s.out.drop();
  const Octets four(4);
  s.out.append_last(std::array{Last{s.requester.sender().terminate(4), four}}, s.out.buffer_for_last());
  CHECK(s.push());
  CHECK_FALSE(s.gate.open());
}

TEST_CASE("FPDUs are cut for a large buffer while there is one, and else for a small one", "[qp][W-MPA-57]") {
  tcp::Options options;
  options.mss_bytes = 8000;
  StreamEnd s(default_start(), Moves::direct, default_settings(),
              {.count = 64, .room_bytes = 2048, .large_count = 1, .large_room_bytes = 9216}, options);
  Region& source = s.region(16000, 3);
  s.post(write_of(source, 16000));
  REQUIRE(s.tcp.emss() == 8000);
  s.fill();
  s.push();
  s.heard();
  REQUIRE(s.wire.payload_sizes.size() > 1);
  CHECK(s.wire.payload_sizes[0].second > 2048);
  CHECK(s.wire.payload_sizes[1].second <= 2048 - kHeadroom);
}

// ---- runs ----

namespace {

// A port that takes runs of segments, with large buffers for them.
StreamEnd with_runs(std::uint32_t large_count = 8, Moves moves = Moves::direct) {
  tcp::Options options;
  options.run_bytes_max = 65'495;
  options.receive_window_bytes = 1 << 20;
  return StreamEnd(default_start(), moves, default_settings(),
                   {.count = 256, .room_bytes = 1646, .large_count = large_count, .large_room_bytes = 65'600}, options);
}

std::vector<std::uint32_t> sizes(const StreamEnd& s) {
  std::vector<std::uint32_t> all;
  for (const auto& [from_a, size] : s.wire.payload_sizes) all.push_back(size);
  return all;
}

}  // namespace

TEST_CASE("W-TCP-24: a long message is a run of full FPDUs, which is cut where they end", "[qp][W-TCP-24][W-TCP-02]") {
  const Moves moves = GENERATE(Moves::direct, Moves::at_flush);
  StreamEnd s = with_runs(8, moves);
  Region& source = s.region(64'000, 3);
  // A window of some segments at first.
  const std::uint32_t emss = s.tcp.emss(), full = emss / 4 * 4, room = s.tcp.room_bytes();
  REQUIRE(emss == 1460);
  s.post(write_of(source, 8'000));
  REQUIRE(room > 10'000);
  CHECK(s.fill());
  if (moves == Moves::at_flush) {
    CHECK_FALSE(s.push());  // what is to be gathered is not there
    s.mover.flush();
  }
  CHECK(s.push());
  CHECK(s.heard().size() == 6);
  CHECK(s.wire.runs == 1);
  const auto seen = sizes(s);
  REQUIRE(seen.size() == 6);
  for (std::size_t i = 0; i < 5; ++i) CHECK(seen[i] == full);
  CHECK(seen[5] < full);
  CHECK(s.pool.large_available() == 8);
}

TEST_CASE("W-TCP-24: a run is of one message", "[qp][W-TCP-24][W-TCP-02][V-STOP-03]") {
  StreamEnd s = with_runs();
  Region& source = s.region(8'000, 3);
  const std::uint32_t full = s.tcp.emss() / 4 * 4, payload = full - 20;
  SECTION("short ones have a segment of their own") {
    s.post(write_of(source, 4 * payload + 100));
    s.post(write_of(source, 8));
    s.post(write_of(source, 8));
    s.fill();
    s.push();
    CHECK(s.heard().size() == 7);
    CHECK(sizes(s) == std::vector<std::uint32_t>{full, full, full, full, 120, 2 * kFpduOfEight});
    CHECK(s.wire.runs == 1);
  }
  SECTION("a long one, too") {
    s.post(write_of(source, 4 * payload + 1000));
    s.post(write_of(source, payload));
    s.fill();
    s.push();
    CHECK(s.heard().size() == 6);
    CHECK(sizes(s) == std::vector<std::uint32_t>{full, full, full, full, 1020, full});
    CHECK(s.wire.runs == 1);
  }
  SECTION("a short first segment is none that others could be as long as") {
    s.post(write_of(source, 8));
    s.post(write_of(source, 5 * payload));
    s.fill();
    s.push();
    CHECK(s.heard().size() == 6);
    CHECK(sizes(s) == std::vector<std::uint32_t>{kFpduOfEight, full, full, full, full, full});
    CHECK(s.wire.runs == 1);
  }
  SECTION("it takes no more than TCP has room for, and of that no less than a segment") {
    Region& large = s.region(40'000, 3);
    s.post(write_of(source, 700));
    s.post(write_of(large, 40'000));
    const std::uint32_t room = s.tcp.room_bytes();
    s.fill();
    const std::uint64_t filled = s.out.end() - s.tcp.appended();
    CHECK(filled <= room);
    CHECK(filled + s.tcp.emss() > room);
  }
  SECTION("a message of few FPDUs takes small buffers") {
    s.post(write_of(source, 3 * payload));
    s.fill();
    CHECK(s.pool.large_available() == 8);
    s.push();
    CHECK(s.heard().size() == 3);
    CHECK(s.wire.runs == 0);
  }
  SECTION("what fails in it does not keep the run back") {
    // V-STOP-03: what is before it leaves.
    StreamEnd late = with_runs(8, Moves::at_flush);
    Region& good = late.region(8'000, 3);
    Region& bad = late.region(600, 3);
    late.mover.unreachable.insert(bad.stag.value);
    late.post(write_of(good, 5 * payload));
    late.post(write_of(bad, 600));
    late.fill();
    late.mover.flush();
    late.push();
    CHECK(late.heard().size() == 5);
    CHECK(late.wire.runs == 1);
    CHECK(late.failed_work);
  }
}

TEST_CASE("without a large buffer, or SACK, or with markers, segments leave one by one", "[qp][W-TCP-24]") {
  tcp::Options options;
  options.run_bytes_max = 65'495;
  qp::Start start = default_start();
  std::uint32_t large_count = 1;
  SECTION("none is left") {}
  SECTION("the peer knows no SACK") {
    options.sack = false;
    large_count = 8;
  }
  SECTION("it wants markers, so that FPDUs are not of equal length") {
    start.markers_out = true;
    large_count = 8;
  }
  StreamEnd s(start, Moves::direct, default_settings(),
              {.count = 256, .room_bytes = 1646, .large_count = large_count, .large_room_bytes = 65'600}, options);
  const BufferRef taken{large_count == 1 ? s.pool.take_large() : nullptr};
  Region& source = s.region(8'000, 3);
  s.post(write_of(source, 8'000));
  s.fill();
  s.push();
  CHECK(s.heard().size() >= 6);
  CHECK(s.wire.runs == 0);
}

TEST_CASE("W-TCP-03: of a run the segment that is lost goes again by itself, as it was", "[qp][W-TCP-03][W-TCP-19]") {
  StreamEnd s = with_runs();
  Region& source = s.region(12'000, 3);
  s.post(write_of(source, 12'000));
  s.fill();
  s.push();
  unsigned number = 0;
  s.wire.loses = [&](bool from_a, const tcp::SegmentOut& out) {
    return from_a && !out.payload.empty() && ++number == 3;
  };
  CHECK(s.heard().size() == 9);
  CHECK(s.tcp.counters().retransmitted == 1);
  const std::uint32_t full = s.tcp.emss() / 4 * 4;
  const auto seen = sizes(s);
  REQUIRE(seen.size() == 10);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK((seen[i] == full) == (i != 8));
  CHECK(s.pool.large_available() == 8);
}
