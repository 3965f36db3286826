// TCP's octets -> FPDUs -> the responder.

#include "qp/stream_in.hpp"

#include "kit/catch.hpp"
#include "unit/qp/stream_end.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Fault;
using Kind = rdmap::Verdict::Kind;

namespace {

constexpr std::uint8_t kWrite = 0, kSend = 3, kTerminate = 7;

Octets write_to(const Region& region, std::uint64_t offset, const Octets& payload) {
  return tagged(kWrite, true, region.stag, region.at(offset), payload);
}
Octets part(const Octets& octets, std::size_t from, std::size_t to) {
  return {octets.begin() + static_cast<std::ptrdiff_t>(from), octets.begin() + static_cast<std::ptrdiff_t>(to)};
}
// A Send that waits outside, as there is no receive and what is held has no room.
struct Waiting : StreamEnd {
  Waiting() : StreamEnd(default_start(), Moves::direct, with([](rdmap::Settings& s) { s.held_bytes_max = 72; })) {
    say_fpdu(untagged(kSend, true, 0, 1, 0, filled(32)));
    say_fpdu(untagged(kSend, true, 0, 2, 0, filled(32)));
    parse();
  }
};

}  // namespace

TEST_CASE("W-MPA-68: an FPDU is looked at when all of it is here, and then consumed", "[qp][W-MPA-68]") {
  StreamEnd s;
  Region& region = s.region(64);
  const Octets octets = s.fpdu(write_to(region, 0, filled(32)));
  const std::uint64_t base = s.tcp.consumed();
  CHECK_FALSE(s.parse());
  CHECK_FALSE(s.in.unframed());
  s.say_octets(part(octets, 0, octets.size() - 1));
  CHECK_FALSE(s.parse());
  CHECK(s.in.unframed());
  CHECK(region.memory[0] == std::byte{0});
  CHECK(s.tcp.consumed() == base);
  s.say_octets(part(octets, octets.size() - 1, octets.size()));
  CHECK(s.parse());
  CHECK_FALSE(s.in.unframed());
  CHECK(region.memory[31] == octet_at(31, 7));
  CHECK(s.tcp.consumed() == base + octets.size());
  CHECK(s.all_counters.fpdus_in == 1);
}

TEST_CASE("W-DDP-13: octets are consumed and acknowledged when what they brought is delivered", "[qp][W-DDP-13]") {
  StreamEnd s(default_start(), Moves::at_flush);
  Region& region = s.region(64);
  std::uint32_t acknowledged = 0;
  s.wire.loses = [&](bool is_a, const tcp::SegmentOut& out) {
    if (is_a) acknowledged = out.header.acknowledgement;
    return false;
  };
  const std::uint64_t base = s.tcp.consumed();
  const Octets first = s.fpdu(write_to(region, 0, filled(32))), second = s.fpdu(write_to(region, 32, filled(32)));
  s.say_octets(first + second);
  CHECK(s.parse());
  CHECK(s.tcp.consumed() == base);
  tpt::Kept kept;
  s.in.keep(kept);
  CHECK(kept.buffers.size() == 1);
  s.wire.now = s.wire.now + seconds(1);
  s.wire.carry();
  constexpr std::uint32_t kFirst = 0xFFFFFF01;  // of the peer's octets
  CHECK((acknowledged == 0 || acknowledged == kFirst));

  s.mover.flush();
  CHECK_FALSE(s.responder.deliver_next());
  s.in.consume();
  CHECK(s.tcp.consumed() == base + first.size());
  CHECK_FALSE(s.responder.deliver_next());
  s.in.consume();
  CHECK(s.tcp.consumed() == base + first.size() + second.size());
  s.wire.now = s.wire.now + seconds(1);
  for (int i = 0; i < 5; ++i) s.wire.carry();
  CHECK(acknowledged == static_cast<std::uint32_t>(kFirst + first.size() + second.size()));
}

TEST_CASE("W-MPA-68: what is no FPDU is refused, behind all that was before it", "[qp][W-MPA-68][V-STOP-06]") {
  const Moves moves = GENERATE(Moves::direct, Moves::at_flush);
  StreamEnd s(default_start(), moves);
  Region& region = s.region(64);
  s.say_fpdu(write_to(region, 0, filled(32)));
  Octets bad = s.fpdu(write_to(region, 32, filled(32)));
  bad[20] ^= std::byte{1};
  s.say_octets(bad);
  s.say_fpdu(write_to(region, 32, filled(32)));
  CHECK(s.parse());
  CHECK(s.responder.stopped());
  if (moves == Moves::at_flush) {
    CHECK_FALSE(s.verdict);
    s.mover.flush();
    CHECK_FALSE(s.responder.deliver_next());
    s.verdict = s.responder.deliver_next();
  }
  CHECK(s.verdict.kind == Kind::fault);
  CHECK(s.verdict.fault == Fault::crc);
  CHECK(region.memory[0] == octet_at(0, 7));
  CHECK(region.memory[32] == std::byte{0});
}

TEST_CASE("W-MPA-87: an FPDU opens the responder's gate, and its work may leave", "[qp][W-MPA-87][W-MPA-21]") {
  StreamEnd s(responder_start());
  s.requester.nothing_posted();
  s.say_fpdu(tagged(kWrite, true, {1}, 0));
  CHECK(s.parse());
  CHECK(s.gate.open());
  CHECK(s.requester.may_be_posted());
}

TEST_CASE("an FPDU that is taken makes a nudge needless", "[qp][peer]") {
  StreamEnd s;
  CHECK(s.gate.next_deadline() != kNever);
  s.say_fpdu(tagged(kWrite, true, {1}, 0));
  s.parse();
  CHECK(s.gate.next_deadline() == kNever);
}

TEST_CASE("V-SR-06: what has to wait is not consumed, and is given again", "[qp][V-SR-06]") {
  Waiting s;
  CHECK(s.in.waits());
  CHECK_FALSE(s.in.unframed());
  CHECK(s.tcp.consumed() < s.tcp.received());
  CHECK_FALSE(s.parse());
  Region& region = s.region(64);
  s.post_receive({End::sge(region, 0, 32)});
  CHECK(s.parse());
  CHECK_FALSE(s.in.waits());
  CHECK(s.tcp.consumed() == s.tcp.received());
  CHECK(s.responder.holds());
}

TEST_CASE("W-RDMAP-66: a Terminate is found behind what waits, once the peer has closed", "[qp][W-RDMAP-66]") {
  Waiting s;
  s.say_fpdu(untagged(kSend, true, 0, 3, 0, filled(32)));
  s.say_fpdu(untagged(kTerminate, true, 2, 1, 0, filled(4)));
  s.parse();
  CHECK_FALSE(s.verdict);
  s.peer.close();
  for (int i = 0; i < 5; ++i) s.wire.carry();
  REQUIRE(s.tcp.peer_closed());
  s.parse();
  CHECK(s.verdict.kind == Kind::peer_terminated);
  CHECK(s.responder.terminate().size() == 4);
}

TEST_CASE("what waits is looked behind once, and nothing but a Terminate is taken", "[qp][W-RDMAP-66]") {
  Waiting s;
  s.say_fpdu(untagged(kSend, true, 0, 3, 0, filled(32)));
  s.peer.close();
  for (int i = 0; i < 5; ++i) s.wire.carry();
  s.parse();
  s.parse();
  CHECK_FALSE(s.verdict);
  CHECK(s.in.waits());
  CHECK(s.in.unframed());
}

TEST_CASE("too many open deliveries are a pause", "[qp]") {
  StreamEnd s(default_start(), Moves::at_flush);
  Region& region = s.region(64);
  Octets octets;
  for (int i = 0; i < 20; ++i) octets = octets + s.fpdu(write_to(region, 0, filled(4)));
  for (int i = 0; i < 60; ++i) s.say_octets(octets);
  CHECK(s.parse());
  CHECK(s.in.paused());
  CHECK(s.all_counters.fpdus_in == rdmap::kDeliveriesMax);
  s.mover.flush();
  while (s.responder.deliverable() && s.responder.lets_go()) s.responder.deliver_next();
  CHECK(s.parse());
  CHECK_FALSE(s.in.paused());
  CHECK(s.all_counters.fpdus_in == 1200);
}

TEST_CASE("V-CLS-05: in Closing Writes of no octets are no data, and all else is", "[qp][V-CLS-05]") {
  StreamEnd s;
  Region& region = s.region(64);
  s.say_fpdu(tagged(kWrite, true, {1}, 0));
  s.say_fpdu(tagged(kWrite, true, {1}, 0));
  SECTION("nothing else") {
    CHECK(s.in.unframed());
    CHECK(s.in.take_empty_writes());
    CHECK_FALSE(s.in.unframed());
    CHECK(s.tcp.consumed() == s.tcp.received());
    return;
  }
  SECTION("a Write of an octet") { s.say_fpdu(write_to(region, 0, filled(1))); }
  SECTION("a Send of none") { s.say_fpdu(untagged(kSend, true, 0, 1, 0)); }
  SECTION("a Write that goes on") { s.say_fpdu(tagged(kWrite, false, {1}, 0)); }
  SECTION("part of an FPDU") { s.say_octets(Octets(3)); }
  SECTION("a damaged one") {
    Octets damaged = s.fpdu(tagged(kWrite, true, {1}, 0));
    damaged.back() ^= std::byte{1};
    s.say_octets(damaged);
  }
  CHECK_FALSE(s.in.take_empty_writes());
  CHECK(region.memory[0] == std::byte{0});
}

TEST_CASE("V-TERM-07: what comes then is ignored, but taken", "[qp][V-TERM-07]") {
  StreamEnd s;
  CHECK_FALSE(s.in.discard());
  s.say_octets(Octets(100));
  CHECK(s.in.discard());
  CHECK(s.tcp.consumed() == s.tcp.received());
  CHECK_FALSE(s.in.discard());
}
