// How a stream in full operation ends: by errors and their one Terminate, by either side's FIN, by RST
// and loss. What goes out, in what order, and what the application is told.

#include "kit/catch.hpp"
#include "rdmap/terminate.hpp"
#include "unit/qp/extended.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::Event;
using qp::State;
using qp::Status;

namespace {

// Watches what our side says: octets, FIN and RST, in order.
struct Watched : Raw {
  explicit Watched(qp::Start start = responder_start(), std::function<void(qp::Config&)> change = extend,
                   Moves moves = Moves::direct)
      : Raw(start, std::move(change), moves) {
    wire.loses = [this](bool is_a, const tcp::SegmentOut& out) {
      if (!is_a) return false;
      if (out.header.has(wire::tcp_flags::kFin)) ++fins;
      if (out.header.has(wire::tcp_flags::kRst)) ++resets;
      return false;
    };
    if (!start.initiator) say(tagged(0, true, {1}, 0));  // a responder may speak
  }
  unsigned fins = 0, resets = 0;
};

std::vector<unsigned> opcodes(const std::vector<Octets>& heard) {
  std::vector<unsigned> out;
  for (const Octets& ulpdu : heard) out.push_back(std::to_integer<unsigned>(ulpdu[1]) & 0xF);
  return out;
}

// A Write to an STag that nobody has.
Octets bad_write(std::uint32_t payload = 40) { return tagged(0, true, {0xBAD00}, 9, filled(payload)); }

std::size_t flushed(const std::vector<qp::Completion>& completions) {
  return static_cast<std::size_t>(
      std::count_if(completions.begin(), completions.end(), [](const auto& c) { return c.status == Status::flushed; }));
}

}  // namespace

// ---- errors of what came in --------------------------------------------------------------------------

TEST_CASE("W-MPA-75: after a bad CRC or marker the other half says Terminate, and closes with FIN",
          "[qp][W-MPA-75][W-MPA-74][W-RDMAP-31]") {
  const bool crc = GENERATE(true, false);
  qp::Start start = responder_start();
  start.markers_in = mpa::Markers::expected;
  Watched raw(start);
  Region& memory = raw.us->region(2000);
  Octets bad = raw.fpdu(tagged(0, true, memory.stag, memory.base, filled(1000)));
  bad[512 - 24 + 3] ^= std::byte{4};  // behind the first FPDU's 24 octets, in the marker
  if (!crc) raw.packer.seal(bad);
  const Octets good = raw.fpdu(tagged(0, true, memory.stag, memory.base, filled(900)));
  raw.say_octets(bad + good);
  raw.run();
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0].code.word() == (crc ? 0x2002 : 0x2003));
  CHECK(memory.memory == Octets(2000));  // nothing more is passed up
  CHECK(raw.fins == 1);
  CHECK(raw.resets == 0);
  CHECK(raw.tcp.ended() == tcp::Ended::no);
}

TEST_CASE("W-DDP-19: after an error nothing more is placed or told, and nothing is said but the one Terminate",
          "[qp][W-DDP-19][W-RDMAP-29][V-STOP-04]") {
  Watched raw;
  Region& memory = raw.us->region(4000);
  raw.us->post_receive({Side::sge(memory, 3000, 1000)});
  Octets burst = raw.fpdu(tagged(0, true, memory.stag, memory.at(3900), filled(200)));  // its first half fits
  burst = burst + raw.fpdu(tagged(0, true, memory.stag, memory.base, filled(100)));
  burst = burst + raw.fpdu(untagged(3, true, 0, 1, 0, filled(100)));
  burst = burst + raw.fpdu(bad_write());
  raw.say_octets(burst);
  raw.run();
  raw.say(tagged(0, true, memory.stag, memory.base, filled(100)));
  CHECK(memory.memory == Octets(4000));
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0].code.word() == 0x1101);
  CHECK(raw.terminates()[0].segment_length == 214);
  CHECK(raw.us->app.events == std::vector{Event::base_bounds});
  CHECK(opcodes(raw.heard) == std::vector<unsigned>{7});
  CHECK(raw.us->app.of_receives().size() == 1);
  CHECK(raw.us->app.of_receives()[0].status == Status::flushed);
}

TEST_CASE("W-RDMAP-30: the Terminate leaves at the next FPDU's place, in the middle of a message too",
          "[qp][W-RDMAP-30][W-DDP-20][V-STOP-01]") {
  const bool response = GENERATE(true, false);
  Watched raw;
  Region& memory = raw.us->region(3u << 20, 3);
  raw.deaf = true;  // the window closes in the middle of it
  if (response)
    raw.say(read_request(
        1, {.sink_stag = {5}, .size_bytes = 3u << 20, .source_stag = memory.stag, .source_to = memory.base}));
  else
    raw.us->post(write({Side::sge(memory, 0, 3u << 20)}, {5}, 0));
  raw.pass(seconds(1));
  raw.say(bad_write());
  raw.deaf = false;
  raw.pass(seconds(2));
  const auto all = opcodes(raw.heard);
  REQUIRE(all.size() > 100);
  CHECK(all.back() == 7);
  CHECK(std::count(all.begin(), all.end(), 7u) == 1);
  // The message stops short of its end: no segment has L.
  for (std::size_t i = 0; i + 1 < all.size(); ++i) REQUIRE_FALSE(wire::parse_ddp(raw.heard[i])->last);
  CHECK(raw.fins == 1);
  CHECK(raw.resets == 0);
}

TEST_CASE("W-RDMAP-31: a peer that does not close after our Terminate is reset after 5 s, and not before",
          "[qp][W-RDMAP-31][V-TERM-02][V-TERM-03]") {
  Watched raw;
  raw.say(bad_write());
  CHECK(raw.fins == 1);
  raw.pass(milliseconds(4900));
  CHECK(raw.resets == 0);
  CHECK(raw.us->qp.state() == State::terminate);
  raw.pass(milliseconds(200));
  CHECK(raw.resets == 1);
  CHECK(raw.us->qp.state() == State::error);
  CHECK(raw.tcp.ended() == tcp::Ended::reset);
}

TEST_CASE("W-RDMAP-50: an error tears the stream down: pending messages are not finished, all work ends in error",
          "[qp][W-RDMAP-50][W-DDP-20]") {
  Watched raw;
  Region& memory = raw.us->region(3u << 20, 3);
  raw.us->post(read({Side::sge(memory, 0, 100)}, {5}, 0));
  raw.us->post(write({Side::sge(memory, 0, 100)}, {5}, 0));
  raw.run();
  raw.deaf = true;
  raw.us->post(write({Side::sge(memory, 0, 3u << 20)}, {5}, 0));
  raw.us->post(send({}));
  for (int i = 0; i < 3; ++i) raw.us->post_receive({});
  raw.pass(seconds(1));
  raw.say(bad_write());
  raw.us->post(send({}));
  raw.us->post_receive({});
  raw.deaf = false;
  raw.pass(seconds(1));
  raw.tcp.close();
  raw.run();
  CHECK(raw.us->qp.state() == State::error);
  const auto sends = raw.us->app.of_sends();
  REQUIRE(sends.size() == 5);
  CHECK(flushed(sends) == 5);  // the Write behind the Read was done, but not told before it
  CHECK(flushed(raw.us->app.of_receives()) == 4);
  CHECK(raw.heard_opcode(wire::RdmapOpcode::send).empty());
}

TEST_CASE("V-STOP-07: an error of our own does not wait for what the peer has yet to send", "[qp][V-STOP-07]") {
  qp::Start start = default_start();
  start.markers_in = mpa::Markers::expected;
  Watched raw(start);
  Region& memory = raw.us->region(2000);
  bool losing = true;
  raw.wire.loses = [&](bool is_a, const tcp::SegmentOut& out) {
    return losing && !is_a && out.header.sequence == 0xFFFFFF01;
  };
  raw.say(tagged(0, true, memory.stag, memory.base, filled(600)));  // is lost
  raw.say(bad_write(600));                                          // and this is an error, once its turn comes
  CHECK(raw.us->app.events.empty());
  raw.us->post(send({{1, 10, {0xBAD}}}));
  raw.run();
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0].code.word() == 0x0000);
  losing = false;
  raw.pass(seconds(2));
  CHECK(raw.terminates().size() == 1);
  CHECK(raw.us->app.events.empty());
}

// ---- a responder that has not heard anything ---------------------------------------------------------

TEST_CASE("W-MPA-85: before a valid FPDU has come a responder says nothing, whatever goes wrong; then it may",
          "[qp][W-MPA-85][W-MPA-79][W-MPA-21]") {
  const bool has_heard = GENERATE(false, true);
  const auto go_wrong = GENERATE(0, 1, 2);
  qp::Start start = responder_start();
  Raw raw(start);
  unsigned fins = 0;
  raw.wire.loses = [&](bool is_a, const tcp::SegmentOut& out) {
    if (is_a && out.header.has(wire::tcp_flags::kFin)) ++fins;
    return false;
  };
  if (has_heard) raw.say(tagged(0, true, {1}, 0));
  switch (go_wrong) {
    case 0:
      REQUIRE(raw.us->qp.modify_state(State::terminate, raw.wire.now));
      break;
    case 1: {
      Octets broken = raw.fpdu(tagged(0, true, {1}, 0));
      broken[5] ^= std::byte{1};
      raw.say_octets(broken);
      break;
    }
    default:
      raw.say_octets({std::byte{0xFF}, std::byte{0xFF}, std::byte{0}, std::byte{0}});
  }
  raw.run();
  CHECK(raw.terminates().size() == (has_heard ? 1u : 0u));
  CHECK(raw.heard.size() == raw.terminates().size());
  CHECK(fins == 1);
  CHECK(raw.us->app.events.size() == (go_wrong == 0 ? 0u : 1u));  // told here in any case
}

TEST_CASE("W-MPA-79: a first FPDU that MPA finds good opens the gate, though DDP refuses it",
          "[qp][W-MPA-79][W-MPA-21]") {
  Raw raw(responder_start());
  raw.say(bad_write());
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0].code.word() == 0x1100);
}

// ---- the peer's FIN ----------------------------------------------------------------------------------

TEST_CASE("W-MPA-77: a FIN between FPDUs is a close, inside of one it is a loss", "[qp][W-MPA-77][V-EH-01]") {
  for (std::size_t octets = 0; octets <= 28; ++octets) {
    INFO(octets << " octets");
    Watched raw;
    const Octets fpdu = raw.fpdu(tagged(0, true, {1}, 0));
    REQUIRE(fpdu.size() == 20);
    const Octets two = fpdu + fpdu;
    if (octets != 0) raw.say_octets({two.begin(), two.begin() + static_cast<std::ptrdiff_t>(octets)});
    raw.tcp.close();
    raw.run();
    if (octets % 20 == 0) {
      CHECK(raw.us->app.events == std::vector{Event::close_complete});
      CHECK(raw.us->qp.state() == State::idle);
      CHECK(raw.fins == 1);
      CHECK(raw.resets == 0);
    } else {
      CHECK(raw.us->app.events == std::vector{Event::connection_lost});
      CHECK(raw.us->qp.state() == State::error);
      CHECK(raw.resets == 1);
    }
  }
}

TEST_CASE("W-MPA-77: nor does a FIN in the middle of a Send pass for a close", "[qp][W-MPA-77]") {
  Watched raw;
  Region& receive = raw.us->region(2000);
  raw.us->post_receive({Side::sge(receive, 0, 2000)});
  raw.say(untagged(3, false, 0, 1, 0, filled(100)));
  raw.tcp.close();
  raw.run();
  CHECK(raw.us->app.events == std::vector{Event::connection_lost});
}

TEST_CASE("W-MPA-77: RST and too many retries are told for what they are", "[qp][W-MPA-77][W-RDMAP-51][W-RDMAP-52]") {
  const bool reset = GENERATE(true, false);
  Watched raw;
  Region& memory = raw.us->region(100, 2);
  raw.us->post(read({Side::sge(memory, 0, 100)}, {5}, 0));
  raw.us->post(send({}));
  raw.us->post_receive({});
  raw.run();
  if (reset) {
    raw.tcp.abort(raw.wire.now);
    raw.run();
  } else {
    raw.wire.cut_b = true;
    raw.us->post(send({}));
    raw.pass(seconds(600), seconds(1));
  }
  CHECK(raw.us->app.events == std::vector{reset ? Event::connection_reset : Event::connection_lost});
  CHECK(raw.us->qp.state() == State::error);
  // What the peer made of it nobody knows: all of it ends in error.
  CHECK(flushed(raw.us->app.of_sends()) == (reset ? 2u : 3u));
  CHECK(flushed(raw.us->app.of_receives()) == 1);
  CHECK(raw.terminates().empty());
}

TEST_CASE("W-MPA-78: a FIN is told while our half is still open", "[qp][W-MPA-78][W-RDMAP-52]") {
  Watched raw(responder_start(), extend, Moves::at_flush);
  Region& memory = raw.us->region(100, 2);
  raw.us->mover.stalled = true;
  raw.us->post(write({Side::sge(memory, 0, 100)}, {5}, 0));
  raw.run();
  raw.tcp.close();
  raw.run();
  CHECK(raw.us->app.events == std::vector{Event::bad_llp_close});
  CHECK(raw.fins == 0);
  raw.us->mover.stalled = false;
  raw.run();
  CHECK(opcodes(raw.heard) == std::vector<unsigned>{0, 7});  // it is said on that half
  CHECK(raw.fins == 1);
}

TEST_CASE("W-DDP-22: after the peer's FIN no more work of the send queue is done", "[qp][W-DDP-22][V-TDN-07]") {
  const bool busy = GENERATE(true, false);
  Watched raw;
  Region& memory = raw.us->region(100, 2);
  if (busy) raw.us->post(read({Side::sge(memory, 0, 100)}, {5}, 0));
  raw.run();
  raw.tcp.close();
  raw.run();
  CHECK(raw.terminates().size() == (busy ? 1u : 0u));
  const auto before = raw.heard.size();
  for (int i = 0; i < 3; ++i) {
    raw.us->post(send({}));
    raw.us->post(write({Side::sge(memory, 0, 100)}, {5}, 0));
    raw.pass(milliseconds(500));
  }
  CHECK(raw.heard.size() == before);
  CHECK(raw.us->qp.state() == (busy ? State::error : State::idle));
}

TEST_CASE("W-DDP-21: octets behind the peer's FIN reach nobody", "[qp][W-DDP-21]") {
  qp::Start start = default_start();
  start.markers_in = GENERATE(mpa::Markers::none, mpa::Markers::expected);
  Watched raw(start);
  Region& memory = raw.us->region(3000);
  raw.us->post_receive({Side::sge(memory, 2000, 1000)});
  // They are there before the FIN is, behind a gap that it closes.
  const auto at = static_cast<std::uint32_t>(0xFFFFFF01 + raw.tcp.appended());
  const Octets behind = raw.fpdu(tagged(0, true, memory.stag, memory.base, filled(600))) +
                        raw.fpdu(untagged(3, true, 0, 1, 0, filled(50)));
  const auto inject = [&] {
    BufferRef buffer = BufferRef::take(raw.us->pool);
    std::copy(behind.begin(), behind.end(), buffer->append(static_cast<std::uint32_t>(behind.size())).begin());
    tcp::SegmentIn segment;
    segment.header.sequence = at + 1;
    segment.header.acknowledgement = static_cast<std::uint32_t>(1001 + raw.us->tcp.appended());
    segment.header.flags = wire::tcp_flags::kAck;
    segment.header.window = 0xFFFF;
    segment.payload = buffer->bytes();
    segment.buffer = std::move(buffer);
    raw.us->tcp.on_segment(std::move(segment), raw.wire.now);
    raw.run();
  };
  inject();
  raw.tcp.close();
  // And others come when the FIN is there, before the queue pair knows it or after.
  if (GENERATE(true, false))
    raw.run();
  else
    raw.wire.carry();
  REQUIRE(raw.us->tcp.peer_closed());
  inject();
  CHECK(memory.memory == Octets(3000));
  CHECK(raw.us->app.of_receives().size() == 1);
  CHECK(raw.us->app.of_receives()[0].status == Status::flushed);
}

// ---- our own close -----------------------------------------------------------------------------------

TEST_CASE("W-RDMAP-48: our FIN follows the last whole FPDU, and all that was accepted before",
          "[qp][W-RDMAP-48][W-DDP-26][W-TCP-18]") {
  Watched raw;
  Region& memory = raw.us->region(100'000, 3);
  raw.deaf = true;
  for (int i = 0; i < 5; ++i) raw.us->post(write({Side::sge(memory, 0, 100'000)}, {5}, 0));
  raw.us->post(send({Side::sge(memory, 0, 1000)}));
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 6);  // all is with TCP
  REQUIRE(raw.us->qp.modify_state(State::closing, raw.wire.now));
  raw.run();
  CHECK(raw.us->qp.state() == State::closing);
  raw.deaf = false;
  raw.pass(seconds(2));
  std::size_t octets = 0;
  for (const Octets& ulpdu : raw.heard_opcode(wire::RdmapOpcode::write)) octets += ulpdu.size() - 14;
  CHECK(octets == 500'000);
  CHECK(raw.heard_opcode(wire::RdmapOpcode::send).size() == 1);
  CHECK(raw.tcp.peer_closed());
  CHECK(raw.tcp.received() == raw.tcp.consumed());  // nothing is left behind the last FPDU
  raw.tcp.close();
  raw.run();
  CHECK(raw.us->qp.state() == State::idle);
  CHECK(raw.resets == 0);
}

TEST_CASE("W-DDP-26: work that comes after a close fails, and ours follows the peer's with a FIN", "[qp][W-DDP-26]") {
  SECTION("after our own") {
    Watched raw;
    raw.wire.cut_a = true;
    REQUIRE(raw.us->qp.modify_state(State::closing, raw.wire.now));
    raw.us->post(send({}));
    raw.run();
    REQUIRE(raw.us->app.of_sends().size() == 1);
    CHECK(raw.us->app.of_sends()[0].status == Status::flushed);
  }
  SECTION("after the peer's") {
    Watched raw;
    raw.tcp.close();
    raw.run();
    CHECK(raw.fins == 1);
    CHECK(raw.resets == 0);
    CHECK(raw.tcp.ended() == tcp::Ended::gracefully);
  }
}

TEST_CASE("W-RDMAP-49: no FIN while work of ours, or an answer to the peer, is outstanding",
          "[qp][W-RDMAP-49][V-RTS-06]") {
  const int what = GENERATE(0, 1, 2, 3);
  Watched raw(responder_start(), extend, Moves::at_flush);
  Region& memory = raw.us->region(1000, 3, kAtomicRights);
  raw.us->mover.gathers_stalled = true;
  switch (what) {
    case 0:
      raw.us->post(read({Side::sge(memory, 0, 100)}, {5}, 0));
      break;
    case 1:
      raw.us->post(fetch_add({memory.at(8 - memory.base % 8), 8, memory.stag}, {5}, 0, 1));
      break;
    case 2:
      raw.us->post(write({Side::sge(memory, 0, 100)}, {5}, 0));
      break;
    default:
      raw.say(
          read_request(1, {.sink_stag = {5}, .size_bytes = 100, .source_stag = memory.stag, .source_to = memory.base}));
  }
  raw.run();
  REQUIRE(raw.us->qp.modify_state(State::closing, raw.wire.now));
  raw.run();
  CHECK(raw.fins == 0);
  CHECK(raw.resets == 1);
  CHECK(raw.us->app.events == std::vector{Event::bad_close});
  CHECK(raw.us->qp.state() == State::error);
}

// ---- what is told ------------------------------------------------------------------------------------

TEST_CASE("W-RDMAP-52: every fault but the consumer's own wish is told to the consumer",
          "[rdmap][W-RDMAP-52][V-ERR-01]") {
  std::set<unsigned> events;
  for (unsigned i = 0; i < static_cast<unsigned>(rdmap::Fault::count); ++i) {
    const auto fault = static_cast<rdmap::Fault>(i);
    const rdmap::FaultRow& row = rdmap::row(fault);
    INFO("fault " << i);
    switch (row.told) {
      case rdmap::Told::nobody:
        CHECK(fault == rdmap::Fault::by_consumer);
        break;
      case rdmap::Told::event:
        CHECK((row.event >= 5 && row.event <= 36));
        events.insert(row.event);
        break;
      case rdmap::Told::completion:
        CHECK(row.event == 0);
        break;
    }
  }
  CHECK(events.size() == 31);  // all of 5 to 36 but 21, which no Terminate goes with
}

TEST_CASE("V-TERM-05: work that is posted in Terminate is flushed there, with or without a receive",
          "[qp][V-TERM-05]") {
  Raw raw;
  REQUIRE(raw.us->qp.modify_state(qp::State::terminate, raw.wire.now));
  raw.run();
  REQUIRE(raw.us->qp.state() == qp::State::terminate);
  const bool work = GENERATE(true, false);
  if (work)
    raw.us->post(send());
  else
    raw.us->post_receive({});
  raw.run();
  CHECK(raw.us->qp.state() == qp::State::terminate);
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == qp::Status::flushed);
}

TEST_CASE("V-MOD-01: in Idle the depths may be as large as they were made for", "[qp][V-MOD-01]") {
  Side side(default_config(1), Moves::direct, 1, {});
  const qp::Config config = side.qp.config();
  CHECK(side.qp.set_depths(config.ird_max, config.ord_max));
  CHECK_FALSE(side.qp.set_depths(config.ird_max + 1, config.ord_max));
  CHECK_FALSE(side.qp.set_depths(config.ird_max, config.ord_max + 1));
  CHECK(side.qp.config().ord == config.ord_max);
}
