// What comes beyond a gap, with markers toward us: it is placed at once, and told, complained about
// and answered for in its turn.

#include <utility>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

qp::Start with_markers(bool initiator = true) {
  qp::Start start = default_start();
  start.initiator = initiator;
  start.markers_in = mpa::Markers::expected;
  return start;
}

// A peer that says FPDUs, each in a TCP segment of its own; some of them do not arrive until asked to.
struct Scene {
  explicit Scene(const qp::Start& start = with_markers(), std::function<void(qp::Config&)> change = {},
                 Moves moves = Moves::direct, const tcp::Options& with = {})
      : raw(start, std::move(change), moves, with), region(raw.us->region(16384)) {
    raw.wire.loses = [this](bool is_a, const tcp::SegmentOut& out) {
      return !is_a && !out.payload.empty() && lost.contains(out.header.sequence);
    };
  }
  // The next segment; true: it is lost, and lost again, until arrive().
  void say(const Octets& ulpdu, bool is_lost = false) { say_octets(raw.fpdu(ulpdu), is_lost); }
  void say_octets(const Octets& octets, bool is_lost = false) {
    const auto at = static_cast<std::uint32_t>(0xFFFFFF01 + raw.tcp.appended());
    if (is_lost) lost.insert(at);
    raw.say_octets(octets);
    raw.run();
  }
  // A segment that the peer's TCP has not sent.
  void hear(std::uint32_t at, const Octets& octets) {
    BufferRef buffer = BufferRef::take(raw.us->pool);
    std::copy(octets.begin(), octets.end(), buffer->append(static_cast<std::uint32_t>(octets.size())).begin());
    tcp::SegmentIn segment;
    segment.header.sequence = at;
    segment.header.acknowledgement = static_cast<std::uint32_t>(1001 + raw.us->tcp.appended());
    segment.header.flags = wire::tcp_flags::kAck;
    segment.header.window = 0xFFFF;
    segment.payload = buffer->bytes();
    segment.buffer = std::move(buffer);
    raw.us->tcp.on_segment(std::move(segment), raw.wire.now);
  }
  void arrive() {
    lost.clear();
    raw.pass(seconds(3));
  }
  Octets write(std::uint64_t offset, const Octets& payload, bool last = true) const {
    return tagged(0, last, region.stag, region.at(offset), payload);
  }
  // Whether the octets from `offset` on are these.
  bool holds(std::uint64_t offset, const Octets& octets) const {
    return std::equal(octets.begin(), octets.end(), region.memory.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  std::uint64_t early() const { return raw.us->qp.counters().fpdus_early; }

  Raw raw;
  Region& region;
  std::set<std::uint32_t> lost;
};

Octets first(const Octets& octets, std::size_t n) {
  return {octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(n)};
}

}  // namespace

TEST_CASE("W-TCP-09: with markers a Write beyond a gap is placed at once, without them when the gap has closed",
          "[qp][W-TCP-09][W-MPA-71]") {
  const bool markers = GENERATE(true, false);
  Scene s(markers ? with_markers() : default_start());
  s.say(s.write(0, filled(1000, 3)), true);
  s.say(s.write(2000, filled(1000, 4), false));
  CHECK(s.early() == (markers ? 1u : 0u));
  CHECK(s.holds(2000, filled(1000, 4)) == markers);
  CHECK(s.holds(0, Octets(1000)));
  s.arrive();
  CHECK(s.holds(0, filled(1000, 3)));
  CHECK(s.holds(2000, filled(1000, 4)));
  CHECK(s.raw.us->qp.state() == qp::State::rts);
}

TEST_CASE("W-MPA-71: a segment that no marker is in is placed early only behind one that has one",
          "[qp][W-MPA-71][W-TCP-09]") {
  Scene s;
  s.say(s.write(0, filled(100)), true);         // 0 to 124
  s.say(s.write(1000, filled(100, 3), false));  // 124 to 244: no marker
  CHECK(s.early() == 0);
  s.say(s.write(2000, filled(400, 4), false));  // up to 668, with the marker at 512
  CHECK(s.early() == 1);
  CHECK(s.holds(2000, filled(400, 4)));
  CHECK(s.holds(1000, Octets(100)));
  s.say(s.write(3000, filled(100, 5), false));  // no marker, but behind it
  CHECK(s.early() == 2);
  CHECK(s.holds(3000, filled(100, 5)));
  s.arrive();
  CHECK(s.holds(1000, filled(100, 3)));
}

TEST_CASE("W-TCP-10: nothing from beyond a gap is delivered, and a Send is not placed either",
          "[qp][W-TCP-10][W-DDP-13]") {
  Scene s;
  Region& receive = s.raw.us->region(2000);
  s.raw.us->post_receive({Side::sge(receive, 0, 2000)});
  s.say(s.write(0, filled(1000)), true);
  s.say(untagged(3, true, 0, 1, 0, filled(1000, 4)));
  CHECK(s.raw.us->app.completions.empty());
  CHECK(receive.memory == Octets(2000));
  s.arrive();
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].length == 1000);
}

TEST_CASE("V-SRQ-09: receives of a shared queue are taken in the order of the stream, and none from beyond a gap",
          "[qp][V-SRQ-09][V-SEC-17][V-SR-10][V-SRQ-10]") {
  Scene s(with_markers(), [](qp::Config& c) { c.shared_receive = true; });
  Region& to = s.raw.us->region(6000);
  for (std::uint32_t i = 0; i < 6; ++i) s.raw.us->post_receive({Side::sge(to, 1000 * i, 1000)}, true);
  const auto& left = s.raw.us->app.receives;
  SECTION("the fifth Send is here before the first") {
    s.say(untagged(3, true, 0, 1, 0, filled(600, 1)), true);
    for (std::uint32_t msn = 2; msn <= 5; ++msn) s.say(untagged(3, true, 0, msn, 0, filled(600, msn)));
    CHECK(left.size() == 6);
    CHECK(s.raw.us->app.completions.empty());
    s.arrive();
    CHECK(left.size() == 1);
    const auto& told = s.raw.us->app.completions;
    REQUIRE(told.size() == 5);
    for (std::uint32_t i = 0; i < 5; ++i) {
      CHECK(told[i].slot == i);
      CHECK(std::memcmp(to.memory.data() + 1000 * i, filled(600, i + 1).data(), 600) == 0);
    }
  }
  SECTION("one in the stream's order that calls itself the fifth takes none") {
    s.say(untagged(3, true, 0, 5, 0, filled(600)));
    CHECK(s.raw.terminates().size() == 1);
    CHECK(left.size() == 6);
  }
}

TEST_CASE("W-TCP-10: a Read is done when its Response is there in order", "[qp][W-TCP-10][W-RDMAP-41]") {
  Scene s;
  s.raw.us->post(read({Side::sge(s.region, 0, 3000)}, {0x77}, 0));
  s.raw.run();
  REQUIRE(s.raw.heard_opcode(wire::RdmapOpcode::read_request).size() == 1);
  const Octets all = filled(3000, 5);
  const auto part = [&](std::size_t at, bool last) {
    return tagged(
        2, last, s.region.stag, s.region.at(at),
        {all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(at) + 1000});
  };
  s.say(part(0, false), true);
  s.say(part(1000, false));
  s.say(part(2000, true));
  CHECK(s.early() == 2);
  CHECK(s.holds(1000, {all.begin() + 1000, all.begin() + 2992}));
  CHECK(s.raw.us->app.completions.empty());
  s.arrive();
  CHECK(s.holds(0, all));
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::success);
}

TEST_CASE("V-ORD-09: of what is placed early a message's last octets wait for the rest", "[qp][V-ORD-09]") {
  Scene s;
  s.say(s.write(0, filled(1000), false), true);
  s.say(s.write(1000, filled(1000, 4), true));
  CHECK(s.holds(1000, first(filled(1000, 4), 992)));
  CHECK(s.holds(1992, Octets(8)));
  s.arrive();
  CHECK(s.holds(1000, filled(1000, 4)));
  CHECK(s.raw.us->mover.places.back().part == tpt::Part::tail);
}

TEST_CASE("W-TCP-11: a second copy of what was placed early changes nothing", "[qp][W-TCP-11]") {
  Scene s;
  s.say(s.write(0, filled(1000)), true);
  const auto at = static_cast<std::uint32_t>(0xFFFFFF01 + s.raw.tcp.appended());
  const Octets ulpdu = s.write(2000, filled(1000, 4), false);
  mpa::Packer again = s.raw.packer;
  s.say(ulpdu);
  REQUIRE(s.holds(2000, filled(1000, 4)));
  // The same octets of the stream with another content, and a CRC that is good.
  std::swap(again, s.raw.packer);
  s.hear(at, s.raw.fpdu(s.write(2000, filled(1000, 9), false)));
  s.raw.run();
  CHECK(s.holds(2000, filled(1000, 4)));
  s.arrive();
  CHECK(s.holds(2000, filled(1000, 4)));
  CHECK(s.raw.us->qp.state() == qp::State::rts);
}

TEST_CASE("V-STOP-06: an error beyond a gap is told in its turn, and the first in the stream's order wins",
          "[qp][V-STOP-06][V-STOP-08][W-RDMAP-29]") {
  const bool first_is_bad = GENERATE(false, true);
  Scene s;
  const Octets good = s.write(0, filled(1000));
  const Octets earlier = first_is_bad ? tagged(0, true, {0x1234}, 5, filled(600)) : good;
  const Octets later = tagged(0, true, {0xABCD}, 7, filled(700));
  s.say(earlier, true);
  s.say(later);
  // And what is behind it is not placed.
  s.say(s.write(4000, filled(1000, 6), false));
  CHECK(s.raw.terminates().empty());
  CHECK(s.raw.us->app.events.empty());
  CHECK(s.raw.us->qp.state() == qp::State::rts);
  CHECK(s.early() == 0);
  s.arrive();
  REQUIRE(s.raw.terminates().size() == 1);
  const auto terminate = s.raw.terminates()[0];
  const Octets& culprit = first_is_bad ? earlier : later;
  CHECK(terminate.code.word() == 0x1100);
  CHECK(terminate.segment_length == culprit.size());
  CHECK(std::memcmp(terminate.ddp_header.data(), culprit.data(), 14) == 0);
  CHECK(s.holds(0, filled(1000)) != first_is_bad);
  CHECK(s.holds(4000, Octets(1000)));
}

TEST_CASE("W-MPA-69: a bad CRC beyond a gap is told in its turn, and nothing behind it is placed",
          "[qp][W-MPA-69][W-MPA-68][V-STOP-06]") {
  Scene s;
  s.say(s.write(0, filled(1000)), true);
  Octets broken = s.raw.fpdu(s.write(1000, filled(1000, 3), false));
  broken[500] ^= std::byte{1};
  s.say_octets(broken);
  s.say(s.write(2000, filled(1000, 4), false));
  CHECK(s.early() == 0);
  CHECK(s.raw.terminates().empty());
  s.arrive();
  REQUIRE(s.raw.terminates().size() == 1);
  CHECK(s.raw.terminates()[0].code.word() == 0x2002);
  CHECK(s.holds(0, filled(1000)));
  CHECK(s.holds(1000, Octets(2000)));
}

TEST_CASE("W-MPA-66: a marker beyond a gap that contradicts the lengths in front of it is told when the gap closes",
          "[qp][W-MPA-66][V-EH-07]") {
  Scene s;
  // What is lost ends, by its length, inside of what comes next.
  Octets longer = s.raw.fpdu(s.write(0, filled(600)));
  Octets lying = longer;
  s.raw.packer.take_back(static_cast<std::uint32_t>(longer.size()));
  lying = s.raw.fpdu(s.write(0, filled(900)));
  s.raw.packer.take_back(static_cast<std::uint32_t>(lying.size()));
  (void)s.raw.fpdu(s.write(0, filled(600)));
  lying.resize(longer.size());
  s.say_octets(lying, true);
  s.say(s.write(2000, filled(1000, 4), false));
  CHECK(s.early() == 1);
  CHECK(s.raw.us->qp.state() == qp::State::rts);
  s.arrive();
  REQUIRE(s.raw.terminates().size() == 1);
  // The CRC that it finds there is as little right as the marker.
  CHECK(s.raw.terminates()[0].code.word() == 0x2002);
}

TEST_CASE("W-TCP-09: memory ends up as if all had been placed in order", "[qp][W-TCP-09][W-DDP-12]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush);
  Scene s(
      with_markers(),
      [](qp::Config& c) {
        c.access = c.access | tpt::Rights::remote_atomic;
        c.extensions = true;
      },
      moves);
  SECTION("a Write in the gap goes where a later one was placed early") {
    s.say(s.write(100, filled(1000, 3)), true);
    s.say(s.write(500, filled(1000, 4)));
    CHECK(s.early() == 1);
    s.arrive();
    CHECK(s.holds(100, first(filled(1000, 3), 400)));
    CHECK(s.holds(500, filled(1000, 4)));
  }
  SECTION("of two early ones the earlier comes last") {
    s.say(s.write(8000, filled(1000, 2)), true);
    s.say(s.write(100, filled(1000, 3)), true);
    s.say(s.write(500, filled(1000, 4)));
    s.lost.erase(*s.lost.rbegin());
    s.raw.pass(milliseconds(300));
    s.arrive();
    CHECK(s.holds(500, filled(1000, 4)));
  }
  SECTION("they touch, and do not overlap") {
    s.say(s.write(100, filled(1000, 3)), true);
    s.say(s.write(1100, filled(1000, 4), false));
    s.arrive();
    std::uint64_t octets = 0;
    for (const auto& place : s.raw.us->mover.places) octets += place.to.length;
    CHECK(octets == 2000);  // none of them twice
    CHECK(s.holds(100, filled(1000, 3)));
    CHECK(s.holds(1100, filled(1000, 4)));
  }
}

TEST_CASE("W-TCP-09: what cannot be reached early is tried again in its turn, and blamed there",
          "[qp][W-TCP-09][V-STOP-06]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush);
  Scene s(with_markers(), {}, moves);
  s.say(s.write(0, filled(1000)), true);
  s.raw.us->mover.unreachable.insert(s.region.stag.value);
  s.say(s.write(2000, filled(1000, 4), false));
  CHECK(s.raw.us->app.events.empty());
  const bool comes_back = GENERATE(true, false);
  if (comes_back) s.raw.us->mover.unreachable.clear();
  s.arrive();
  CHECK(s.holds(2000, filled(1000, 4)) == comes_back);
  CHECK((s.raw.us->qp.state() == qp::State::rts) == comes_back);
}

TEST_CASE("W-TCP-09: a placement that is on its way when its turn comes is waited for", "[qp][W-TCP-09][W-DDP-13]") {
  Scene s(with_markers(), {}, Moves::at_flush);
  Region& receive = s.raw.us->region(100);
  s.raw.us->post_receive({Side::sge(receive, 0, 100)});
  s.say(s.write(0, filled(1000)), true);
  s.raw.us->mover.stalled = true;
  s.say(s.write(2000, filled(1000, 4), false));
  s.say(untagged(3, true, 0, 1, 0));
  const std::uint64_t consumed = s.raw.us->tcp.consumed();
  s.arrive();
  CHECK(s.raw.us->app.completions.empty());
  CHECK(s.raw.us->tcp.consumed() == consumed);
  s.raw.us->mover.stalled = false;
  s.raw.run();
  CHECK(s.holds(2000, filled(1000, 4)));
  CHECK(s.raw.us->app.completions.size() == 1);
}

TEST_CASE("W-TCP-09: an error while an early placement is on its way leaves nothing behind",
          "[qp][W-TCP-09][V-STOP-07]") {
  Scene s(with_markers(), {}, Moves::at_flush);
  s.say(s.write(0, filled(1000)), true);
  s.raw.us->mover.stalled = true;
  s.say(s.write(2000, filled(1000, 4), false));
  const std::uint32_t buffers = s.raw.us->pool.available();
  REQUIRE(s.raw.us->qp.modify_state(qp::State::error, s.raw.wire.now));
  s.raw.us->mover.stalled = false;
  s.raw.run();
  CHECK(s.holds(2000, Octets(1000)));
  CHECK(s.raw.us->pool.available() > buffers);
}

TEST_CASE("V-INV-10: what was placed early is checked again in its turn", "[qp][V-INV-10][W-TCP-09]") {
  Scene s;
  Region& other = s.raw.us->region(4000);
  s.say(s.write(0, filled(1000)), true);
  s.say(tagged(0, false, other.stag, other.base, filled(1000, 4)));
  CHECK(s.early() == 1);
  REQUIRE(s.raw.us->table.invalidate_local(other.stag, kPd, {1}));
  s.arrive();
  REQUIRE(s.raw.terminates().size() == 1);
  CHECK(s.raw.terminates()[0].code.word() == 0x1100);
}

TEST_CASE("W-RDMAP-14: a Read Response beyond a gap is placed only where a Read waits for it",
          "[qp][W-RDMAP-14][V-RD-03]") {
  Scene s;
  Region& sink = s.raw.us->region(4000);
  s.raw.us->post(read({Side::sge(sink, 1000, 2000)}, {0x77}, 0));
  s.raw.run();
  s.say(tagged(2, false, sink.stag, sink.at(1000), filled(600)), true);
  Octets wrong;
  SECTION("another region") { wrong = tagged(2, false, s.region.stag, s.region.at(1600), filled(600)); }
  SECTION("before it") { wrong = tagged(2, false, sink.stag, sink.at(999), filled(600)); }
  SECTION("past its end") { wrong = tagged(2, false, sink.stag, sink.at(2401), filled(600)); }
  s.say(wrong);
  CHECK(s.early() == 0);
  s.arrive();
  REQUIRE(s.raw.terminates().size() == 1);
  CHECK((s.raw.terminates()[0].code.word() & 0xFFF0) == 0x1100);
}

TEST_CASE("W-RDMAP-14: up to its last octet a Read Response is placed early", "[qp][W-RDMAP-14]") {
  Scene s;
  Region& sink = s.raw.us->region(4000);
  s.raw.us->post(read({Side::sge(sink, 1000, 1200)}, {0x77}, 0));
  s.raw.run();
  s.say(tagged(2, false, sink.stag, sink.at(1000), filled(600)), true);
  s.say(tagged(2, true, sink.stag, sink.at(1600), filled(600)));
  CHECK(s.early() == 1);
  s.arrive();
  CHECK(s.raw.us->app.completions.size() == 1);
}

TEST_CASE("V-RD-03: Responses beyond a gap are placed early by the STags of their Reads alone",
          "[qp][V-RD-03][W-TCP-09][W-RDMAP-14]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Scene s(with_markers(), {}, moves);
  Region& sink = s.raw.us->region(4000, 0, tpt::Rights::local_read | tpt::Rights::local_write);
  // To the same place, so that the STag says whose Response it is.
  for (int i = 0; i < 3; ++i) s.raw.us->post(read({Side::sge(sink, 1000, 1200)}, {0x77}, 0));
  s.raw.run();
  std::vector<Stag> stags;
  for (const Octets& ulpdu : s.raw.heard_opcode(wire::RdmapOpcode::read_request))
    stags.push_back(wire::parse_read_request(Bytes(ulpdu).subspan(18))->sink_stag);
  REQUIRE(stags.size() == 3);
  const auto half = [&](std::size_t read, bool second, unsigned seed) {
    return tagged(2, second, stags[read], sink.at(second ? 1600 : 1000), filled(600, seed));
  };
  s.say(half(0, false, 1), true);
  s.say(half(0, true, 2));
  s.say(half(1, false, 3));
  CHECK(s.early() == 2);
  CHECK(std::equal(sink.memory.begin() + 1000, sink.memory.begin() + 1600, filled(600, 3).begin()));
  CHECK(s.raw.us->app.completions.empty());
  SECTION("they are done in their turn") {
    s.say(half(1, true, 4));
    s.say(half(2, false, 5));
    s.say(half(2, true, 6));
    s.arrive();
    CHECK(s.raw.us->app.completions.size() == 3);
    if (moves == Moves::late) return;  // which keeps no order
    CHECK(std::equal(sink.memory.begin() + 1000, sink.memory.begin() + 1600, filled(600, 5).begin()));
    CHECK(std::equal(sink.memory.begin() + 1600, sink.memory.begin() + 2200, filled(600, 6).begin()));
  }
  SECTION("a Write that names one is not placed, and told of in its turn") {
    s.say(tagged(0, true, stags[2], sink.at(1000), filled(600, 9)));
    CHECK(s.early() == 2);
    s.arrive();
    REQUIRE(s.raw.terminates().size() == 1);
    CHECK(s.raw.terminates()[0].code.word() == 0x1100);
    CHECK(s.raw.us->app.events == std::vector{qp::Event::invalid_stag});
  }
  SECTION("nor a Response that names the consumer's STag, or leaves its range") {
    const bool by_stag = GENERATE(true, false);
    s.say(by_stag ? tagged(2, true, sink.stag, sink.at(1600), filled(600, 9))
                  : tagged(2, true, stags[1], sink.at(1601), filled(600, 9)));
    CHECK(s.early() == 2);
    s.arrive();
    REQUIRE(s.raw.terminates().size() == 1);
    CHECK(s.raw.terminates()[0].code.word() == (by_stag ? 0x1100 : 0x1101));
  }
  SECTION("V-MR-20: when the region has ended nothing more is, and what was placed is not told") {
    REQUIRE(s.raw.us->table.deregister(sink.stag));
    const Octets now = sink.memory;
    s.say(half(1, true, 4));
    CHECK(s.early() == 2);
    s.arrive();
    REQUIRE(s.raw.terminates().size() == 1);
    CHECK(s.raw.terminates()[0].code.word() == 0x1100);
    CHECK(sink.memory == now);
    for (const qp::Completion& each : s.raw.us->app.completions) CHECK(each.status == qp::Status::flushed);
  }
}

TEST_CASE("W-MPA-92: a FIN beyond a gap is told when all before it is there", "[qp][W-MPA-92][V-RTS-07]") {
  Scene s;
  s.say(s.write(0, filled(1000)), true);
  s.say(s.write(1000, filled(1000, 4)));
  s.raw.tcp.close();
  s.raw.run();
  CHECK(s.raw.us->qp.state() == qp::State::rts);
  CHECK(s.raw.us->app.events.empty());
  s.arrive();
  CHECK(s.holds(0, filled(1000)));
  CHECK(s.holds(1000, filled(1000, 4)));
  CHECK(s.raw.us->app.events == std::vector<qp::Event>{qp::Event::close_complete});
}

TEST_CASE("W-TCP-26: what was taken from beyond a gap is acknowledged selectively, and is not asked for again",
          "[qp][W-TCP-26]") {
  Scene s;
  s.say(s.write(0, filled(1000)), true);
  std::uint64_t again = 0;
  for (int i = 0; i < 20; ++i) s.say(s.write(1000 + 500 * static_cast<std::uint64_t>(i), filled(500, 4), false));
  CHECK(s.early() == 20);
  s.raw.wire.loses = [&](bool is_a, const tcp::SegmentOut& out) {
    if (!is_a && !out.payload.empty()) ++again;
    return false;
  };
  s.raw.pass(seconds(3));
  CHECK(again == 1);
  CHECK(s.raw.us->qp.counters().fpdus_in == 21);
}

TEST_CASE("W-TCP-09: many gaps at once, in any order of arrival", "[qp][W-TCP-09][W-TCP-10][W-DDP-12]") {
  std::uint64_t early = 0;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    Scene s(with_markers(), {}, seed % 2 == 0 ? Moves::direct : Moves::late);
    Octets expected(16384);
    for (int i = 0; i < 150; ++i) {
      const auto size = static_cast<std::uint32_t>(1 + random() % 1300);
      const auto at = random() % (16384 - size);
      const Octets payload = filled(size, static_cast<std::uint32_t>(random() % 1000));
      // Overlapping each other, so that their order shows.
      std::copy(payload.begin(), payload.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
      s.say(s.write(at, payload, random() % 2 == 0), random() % 12 == 0);
      if (random() % 10 == 0 && !s.lost.empty()) {
        auto it = s.lost.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(random() % s.lost.size()));
        s.lost.erase(it);
        s.raw.pass(milliseconds(400));
      }
    }
    s.arrive();
    s.raw.pass(seconds(30));
    INFO("seed " << seed);
    early += s.early();
    CHECK(s.raw.us->qp.state() == qp::State::rts);
    CHECK(s.raw.us->qp.counters().fpdus_in == 150);
    if (seed % 2 == 0) CHECK(s.region.memory == expected);  // late moves keep no order among themselves
  }
  CHECK(early > 200);
}

TEST_CASE("W-TCP-09: of pieces without a gap between them 1,024 are one run, and the rest another", "[qp][W-TCP-09]") {
  tcp::Options wide;
  wide.out_of_order_segments_max = wide.receive_segments_max = 2048;
  Scene s(with_markers(), {}, Moves::direct, wide);
  s.raw.wire.cut_a = true;  // the peer's TCP knows nothing of what is heard here
  std::uint32_t at = 0xFFFFFF01;
  const auto next = [&](const Octets& octets) {
    return std::exchange(at, at + static_cast<std::uint32_t>(octets.size()));
  };
  const Octets missing = s.raw.fpdu(s.write(0, filled(600, 3)));
  next(missing);
  // Five to an FPDU, each too large to be copied to the one before: so the first of the runs ends in the 205th.
  constexpr int kWrites = 206, kCut = 205;
  for (int i = 1; i <= kWrites; ++i) {
    const Octets fpdu = s.raw.fpdu(s.write(i == kCut ? 8000 : 4000, filled(3000, 4), false));
    const std::size_t size = fpdu.size() / 5 + 1;
    for (std::size_t begin = 0; begin < fpdu.size(); begin += size) {
      const auto from = fpdu.begin() + static_cast<std::ptrdiff_t>(begin);
      const Octets piece(from, from + static_cast<std::ptrdiff_t>(std::min(size, fpdu.size() - begin)));
      s.hear(next(piece), piece);
    }
  }
  REQUIRE(s.raw.us->tcp.beyond_count() == 5 * kWrites);
  s.raw.run();
  CHECK(s.early() == kWrites - 1);
  CHECK(s.holds(4000, filled(3000, 4)));
  CHECK(s.holds(8000, Octets(3000)));
  s.hear(0xFFFFFF01, missing);
  s.raw.run();
  CHECK(s.raw.us->qp.counters().fpdus_in == 1 + kWrites);
  CHECK(s.holds(0, filled(600, 3)));
  CHECK(s.holds(8000, filled(3000, 4)));
}

TEST_CASE("behind what is no stream of FPDUs nothing is placed early, in the same turn either", "[qp][W-TCP-09]") {
  Scene s;
  const auto append = [&](const Octets& octets, bool is_lost) {
    if (is_lost) s.lost.insert(static_cast<std::uint32_t>(0xFFFFFF01 + s.raw.tcp.appended()));
    s.raw.say_octets(octets);
  };
  append(s.raw.fpdu(s.write(0, filled(600, 3))), true);
  Octets bad = s.raw.fpdu(s.write(1000, filled(1000, 4), false));
  bad[30] ^= std::byte{1};
  append(bad, false);
  append(s.raw.fpdu(s.write(3000, filled(600, 5))), true);
  append(s.raw.fpdu(s.write(4000, filled(1000, 6), false)), false);
  s.raw.run();
  CHECK(s.early() == 0);
  CHECK(s.holds(4000, Octets(1000)));
}
