// The ordering table of wire.md s3.5 (RFC 5040 appendix B, RFC 7306 s7), a test for each of its rows: a
// raw peer says two operations, the first of which is held up on our side. What the table guarantees
// must not be seen of the later one by then; what it leaves open, and we do, is.

#include "kit/catch.hpp"
#include "unit/qp/extended.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

enum class Kind : std::uint8_t { send, write, read, atomic, immediate };

constexpr std::uint32_t kSize = 32;

struct Scene {
  Scene()
      : raw(responder_start(), extend, Moves::at_flush),
        word(*raw.us),
        target(raw.us->region(4096)),
        source(raw.us->region(4096, 6)),
        large(raw.us->region(3u << 20, 1)),
        receive(raw.us->region(4096)) {}

  // Operation number `i`. The later one of two has no octets where it can: nothing but the order of
  // the two holds it back.
  void say(Kind kind, std::uint32_t i) {
    const std::uint32_t size = i == 0 ? kSize : 0;
    switch (kind) {
      case Kind::send:
        return raw.say(untagged(3, true, 0, send_msn++, 0, filled(size)));
      case Kind::immediate:
        return raw.say(immediate(send_msn++, 7));
      case Kind::write:
        return raw.say(tagged(0, true, target.stag, target.at(i * kSize), filled(kSize, i + 1)));
      case Kind::read:
        return raw.say(read_request(request_msn++, {.sink_stag = {0x1000 + i},
                                                    .sink_to = 0,
                                                    .size_bytes = size,
                                                    .source_stag = source.stag,
                                                    .source_to = source.base}));
      case Kind::atomic:
        return raw.say(atomic_request(
            request_msn++,
            {.request_id = 0x1000 + i, .stag = word.region.stag, .tagged_offset = word.to(), .data = 1}));
    }
  }
  // Its effect is there: placed, delivered, or answered.
  bool seen(Kind kind, std::uint32_t i, std::size_t receives_before) const {
    switch (kind) {
      case Kind::send:
      case Kind::immediate:
        return raw.us->app.of_receives().size() > receives_before;
      case Kind::write: {
        const Octets octets = filled(kSize, i + 1);
        return std::equal(octets.begin(), octets.end(), target.memory.begin() + static_cast<std::ptrdiff_t>(i * kSize));
      }
      case Kind::read:
      case Kind::atomic: {
        const auto all = answers();
        return std::find(all.begin(), all.end(), 0x1000 + i) != all.end();
      }
    }
    return false;
  }
  // Sink STags and Request Identifiers of the Responses heard, in order.
  std::vector<std::uint32_t> answers() const {
    std::vector<std::uint32_t> out;
    for (const Octets& ulpdu : raw.heard) {
      const auto opcode = wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu[1]));
      if (opcode == wire::RdmapOpcode::read_response) out.push_back(wire::parse_tagged(ulpdu)->stag.value);
      if (opcode == wire::RdmapOpcode::atomic_response)
        out.push_back(wire::parse_atomic_response(Bytes(ulpdu).subspan(18))->request_id);
    }
    return out;
  }
  // Whatever holds the first one up.
  void hold_up(Kind first) {
    switch (first) {
      case Kind::send:
      case Kind::immediate:
        break;  // no receive is posted
      case Kind::write:
        raw.us->mover.stalled = true;
        break;
      case Kind::read:
        raw.us->mover.gathers_stalled = true;
        break;
      case Kind::atomic:                   // the window is closed, in the middle of a message of our own
        raw.say(tagged(0, true, {1}, 0));  // we may speak
        raw.deaf = true;
        raw.us->post(write({Side::sge(large, 0, 3u << 20)}, {1}, 0));
        raw.pass(seconds(1));
        break;
    }
    if (first != Kind::send && first != Kind::immediate) post_receives();
  }
  void let_go(Kind first) {
    if (first == Kind::send || first == Kind::immediate) post_receives();
    raw.us->mover.stalled = raw.us->mover.gathers_stalled = raw.deaf = false;
    raw.run();
    raw.pass(seconds(2));
  }
  void post_receives() {
    for (std::uint64_t i = 0; i < 2; ++i) raw.us->post_receive({Side::sge(receive, i * kSize, kSize)});
    raw.run();
  }

  Raw raw;
  Words word;
  Region &target, &source, &large, &receive;
  std::uint32_t send_msn = 1, request_msn = 1;
};

// What may be seen of the later one while the first is held up.
enum class Later : std::uint8_t { nothing, everything, whatever };

void check(Kind first, Kind later, Later meanwhile) {
  Scene s;
  s.hold_up(first);
  s.say(first, 0);
  REQUIRE_FALSE(s.seen(first, 0, 0));
  s.say(later, 1);
  CHECK_FALSE(s.seen(first, 0, first == Kind::send || first == Kind::immediate ? 0 : 1));
  if (meanwhile != Later::whatever) CHECK(s.seen(later, 1, 0) == (meanwhile == Later::everything));
  // Nor is an atomic operation executed that may not be answered yet.
  if (later == Kind::atomic) CHECK(s.word.get() == 0);
  s.let_go(first);
  const bool both_receive =
      (first == Kind::send || first == Kind::immediate) && (later == Kind::send || later == Kind::immediate);
  CHECK(s.seen(first, 0, 0));
  CHECK(s.seen(later, 1, both_receive ? 1 : 0));
  if (both_receive) {
    const auto receives = s.raw.us->app.of_receives();
    REQUIRE(receives.size() == 2);
    CHECK(receives[0].slot == 0);
    CHECK((receives[0].opcode == qp::Opcode::receive_write_immediate) == (first == Kind::immediate));
    CHECK((receives[1].opcode == qp::Opcode::receive_write_immediate) == (later == Kind::immediate));
  }
  // Responses leave in the order of their requests.
  const auto answers = s.answers();
  CHECK(std::is_sorted(answers.begin(), answers.end()));
  CHECK(s.raw.us->qp.state() == qp::State::rts);
}

}  // namespace

TEST_CASE("W-RDMAP-42: behind a Send or an Immediate: the next is delivered after it",
          "[qp][pairs][W-RDMAP-42][W-EXT-12]") {
  check(Kind::send, Kind::send, Later::nothing);
  check(Kind::send, Kind::immediate, Later::nothing);
  check(Kind::immediate, Kind::send, Later::nothing);
  check(Kind::immediate, Kind::immediate, Later::nothing);
}

TEST_CASE("W-RDMAP-43: behind a Send or an Immediate: a Write is placed before that is delivered",
          "[qp][pairs][W-RDMAP-43][W-DDP-29]") {
  check(Kind::send, Kind::write, Later::everything);
  check(Kind::immediate, Kind::write, Later::everything);
}

TEST_CASE("W-RDMAP-10: behind a Send or an Immediate: a Read, of no octets too, is answered after its delivery",
          "[qp][pairs][W-RDMAP-10][W-RDMAP-45]") {
  check(Kind::send, Kind::read, Later::nothing);
  check(Kind::immediate, Kind::read, Later::nothing);
}

TEST_CASE("W-RDMAP-45: behind a Send or an Immediate: an Atomic is executed and answered after its delivery",
          "[qp][pairs][W-RDMAP-45]") {
  check(Kind::send, Kind::atomic, Later::nothing);
  check(Kind::immediate, Kind::atomic, Later::nothing);
}

TEST_CASE("W-RDMAP-42: behind a Write: a Send or an Immediate is delivered when it is placed",
          "[qp][pairs][W-RDMAP-42][W-EXT-12]") {
  check(Kind::write, Kind::send, Later::nothing);
  check(Kind::write, Kind::immediate, Later::nothing);
}

TEST_CASE("W-RDMAP-43: behind a Write: nothing is promised of another", "[qp][pairs][W-RDMAP-43]") {
  check(Kind::write, Kind::write, Later::whatever);
}

TEST_CASE("W-RDMAP-45: behind a Write: Reads and Atomics are answered when it is placed",
          "[qp][pairs][W-RDMAP-45][W-RDMAP-10][V-ORD-05]") {
  check(Kind::write, Kind::read, Later::nothing);
  check(Kind::write, Kind::atomic, Later::nothing);
}

TEST_CASE("W-RDMAP-44: behind a Read: Sends, Writes and Immediates go on before it is answered",
          "[qp][pairs][W-RDMAP-44][W-RDMAP-43]") {
  check(Kind::read, Kind::send, Later::everything);
  check(Kind::read, Kind::write, Later::everything);
  check(Kind::read, Kind::immediate, Later::everything);
}

TEST_CASE("W-RDMAP-45: behind a Read: another Read, or an Atomic, is answered after it", "[qp][pairs][W-RDMAP-45]") {
  check(Kind::read, Kind::read, Later::nothing);
  check(Kind::read, Kind::atomic, Later::nothing);
}

TEST_CASE("W-RDMAP-44: behind an Atomic: Sends, Writes and Immediates go on before it is answered",
          "[qp][pairs][W-RDMAP-44]") {
  check(Kind::atomic, Kind::send, Later::everything);
  check(Kind::atomic, Kind::write, Later::everything);
  check(Kind::atomic, Kind::immediate, Later::everything);
}

TEST_CASE(
    "W-RDMAP-45: behind an Atomic: a Read, or another Atomic, is answered after it, and that one finds its result",
    "[qp][pairs][W-RDMAP-45][W-EXT-07]") {
  check(Kind::atomic, Kind::read, Later::nothing);
  check(Kind::atomic, Kind::atomic, Later::nothing);

  Scene s;
  s.say(Kind::atomic, 0);
  s.say(Kind::atomic, 1);
  const auto responses = s.raw.heard_opcode(wire::RdmapOpcode::atomic_response);
  REQUIRE(responses.size() == 2);
  for (std::uint64_t i = 0; i < 2; ++i)
    CHECK(wire::parse_atomic_response(Bytes(responses[i]).subspan(18))->original == i);
  CHECK(s.word.get() == 2);
}
