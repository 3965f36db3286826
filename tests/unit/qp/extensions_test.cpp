// RFC 7306 in a queue pair: atomic operations and RDMA Write with Immediate, both ends, and what is
// refused. A raw peer says each wrong thing; two queue pairs do the right ones.

#include <functional>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "unit/qp/extended.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::Opcode;
using qp::Status;
using tpt::Rights;

namespace {

// One of ours against a raw peer, the word in memory, and its refusals.
struct Scene {
  explicit Scene(std::function<void(qp::Config&)> change = extend, Rights rights = kAtomicRights, PdId pd = kPd,
                 qp::Start start = responder_start())
      : raw(start, change), words(*raw.us, rights, pd) {}
  wire::AtomicRequestHeader add(std::uint64_t value) const {
    return {.request_id = 0xABCD, .stag = words.region.stag, .tagged_offset = words.to(), .data = value};
  }
  // The responder: it says this, hears that, and its memory is as it was.
  void is_refused(const Octets& ulpdu, unsigned code, qp::Event event) {
    const auto before = words.region.memory;
    raw.say(ulpdu);
    const auto terminates = raw.terminates();
    REQUIRE(terminates.size() == 1);
    CHECK(terminates[0].code.word() == code);
    // The DDP header and nothing of RDMAP's (RFC 7306 s8.1).
    CHECK(terminates[0].has_length);
    CHECK(terminates[0].segment_length == ulpdu.size());
    REQUIRE(terminates[0].ddp_header_size == 18);
    CHECK(std::memcmp(terminates[0].ddp_header.data(), ulpdu.data(), 18) == 0);
    CHECK_FALSE(terminates[0].has_read_request);
    CHECK(raw.us->app.events == std::vector{event});
    CHECK(words.region.memory == before);
    CHECK(raw.heard_opcode(wire::RdmapOpcode::atomic_response).empty());
  }
  Raw raw;
  Words words;
};

qp::Start initiator_start(std::uint32_t ord = 16) {
  qp::Start start = default_start();
  start.ord = ord;
  return start;
}

// A FetchAdd of ours is out, and the peer may say what it likes.
struct Asked {
  explicit Asked(std::uint32_t ord = 16) : scene(extend, kAtomicRights, kPd, initiator_start(ord)) {
    scene.words.set(1, 0x1111);
    scene.raw.us->post(fetch_add(scene.words.sge(1), {9}, 0x1000, 5));
    scene.raw.run();
    const auto heard = scene.raw.heard_opcode(wire::RdmapOpcode::atomic_request);
    REQUIRE(heard.size() == 1);
    id = wire::parse_atomic_request(Bytes(heard[0]).subspan(18))->request_id;
  }
  void is_refused(const Octets& ulpdu, unsigned code, qp::Event event) {
    scene.is_refused(ulpdu, code, event);
    const auto done = scene.raw.us->app.of_sends();
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == Status::flushed);
  }
  Scene scene;
  std::uint32_t id = 0;
};

}  // namespace

// ---- what goes out -----------------------------------------------------------------------------------

TEST_CASE("W-EXT-01: a Fetch and Add is one Atomic Request on queue 1, to the octet",
          "[qp][W-EXT-01][W-EXT-09][W-EXT-10]") {
  Raw raw(default_start(), extend);
  Words words(*raw.us);
  raw.us->post(fetch_add(words.sge(), {0x01020304}, 0x1122334455667788, 0x0A0B0C0D0E0F1011));
  raw.run();
  const auto heard = raw.heard_opcode(wire::RdmapOpcode::atomic_request);
  REQUIRE(heard.size() == 1);
  REQUIRE(heard[0].size() == 70);
  const auto ddp = wire::parse_untagged(heard[0]);
  REQUIRE(ddp);
  CHECK(*ddp == wire::UntaggedHeader{.last = true, .rdmap_control = 0x4A, .queue = 1, .msn = 1});
  const auto header = wire::parse_atomic_request(Bytes(heard[0]).subspan(18));
  CHECK(*header == wire::AtomicRequestHeader{.opcode = wire::AtomicOpcode::fetch_add,
                                             .request_id = header->request_id,
                                             .stag = {0x01020304},
                                             .tagged_offset = 0x1122334455667788,
                                             .data = 0x0A0B0C0D0E0F1011,
                                             .data_mask = 0,
                                             .compare = 0,
                                             .compare_mask = ~std::uint64_t{0}});
}

TEST_CASE("W-EXT-02: a Compare and Swap sends both values with full masks", "[qp][W-EXT-02][W-EXT-09]") {
  Raw raw(default_start(), extend);
  Words words(*raw.us);
  raw.us->post(compare_swap(words.sge(), {7}, 0x100, 0xC0, 0x50));
  raw.run();
  const auto heard = raw.heard_opcode(wire::RdmapOpcode::atomic_request);
  REQUIRE(heard.size() == 1);
  const auto header = wire::parse_atomic_request(Bytes(heard[0]).subspan(18));
  CHECK(header->opcode == wire::AtomicOpcode::compare_swap);
  CHECK(header->data == 0x50);
  CHECK(header->data_mask == ~std::uint64_t{0});
  CHECK(header->compare == 0xC0);
  CHECK(header->compare_mask == ~std::uint64_t{0});
}

TEST_CASE("W-EXT-02: what is posted with masks leaves with them, to the octet",
          "[qp][golden][W-EXT-02][W-EXT-09][W-EXT-10]") {
  Raw raw(default_start(), extend);
  Words words(*raw.us);
  raw.us->post(masked_fetch_add(words.sge(), {0xABCD0042}, 0x7F0000001008, 0x0000000100000001, 0x8000000080000000));
  raw.us->post(masked_compare_swap(words.sge(), {0xABCD0042}, 0x7F0000001008, 0x1100000000000022, 0xFF000000000000FF,
                                   0xAB00, 0xFF00));
  raw.run();
  const auto heard = raw.heard_opcode(wire::RdmapOpcode::atomic_request);
  REQUIRE(heard.size() == 2);
  CHECK(heard[0] == hex("414a00000000000000010000000100000000"  // DDP: QN 1, MSN 1
                        "0000000000000001abcd004200007f0000001008"
                        "00000001000000018000000080000000"
                        "0000000000000000ffffffffffffffff"));
  CHECK(heard[1] == hex("414a00000000000000010000000200000000"
                        "0000000200000002abcd004200007f0000001008"
                        "000000000000ab00000000000000ff00"
                        "1100000000000022ff000000000000ff"));
}

TEST_CASE("W-EXT-09: Write with Immediate is a Write and then an Immediate on queue 0, and one completion",
          "[qp][W-EXT-01][W-EXT-09][W-EXT-12]") {
  const bool solicited = GENERATE(false, true);
  const std::uint32_t length = GENERATE(0u, 8u, 5000u);
  Raw raw(default_start(), extend);
  Region& from = raw.us->region(5000, 4);
  auto request = write_immediate({Side::sge(from, 0, length)}, {9}, 0x2000, 0);
  const std::array<std::uint8_t, 4> network{0xDE, 0xAD, 0xBE, 0xEF};
  std::memcpy(&request.immediate, network.data(), network.size());
  request.solicited = solicited;
  raw.us->post(request);
  raw.us->post(send());
  raw.run();
  REQUIRE(raw.heard.size() >= 3);
  const std::size_t writes = raw.heard_opcode(wire::RdmapOpcode::write).size();
  CHECK(writes == (length == 5000 ? 4 : 1));
  CHECK(wire::parse_ddp(raw.heard[writes - 1])->last);
  const Octets& said = raw.heard[writes];
  REQUIRE(said.size() == 26);
  CHECK(
      *wire::parse_untagged(said) ==
      wire::UntaggedHeader{.last = true, .rdmap_control = std::uint8_t(solicited ? 0x49 : 0x48), .queue = 0, .msn = 1});
  CHECK(Octets(said.begin() + 18, said.end()) ==
        Octets{std::byte{0xDE}, std::byte{0xAD}, std::byte{0xBE}, std::byte{0xEF}, {}, {}, {}, {}});
  // The next message of the queue has the next number.
  CHECK(wire::parse_untagged(raw.heard[writes + 1])->msn == 2);
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[0].opcode == Opcode::write_immediate);
  CHECK(raw.us->app.completions[0].status == Status::success);
}

// ---- two of ours ----------------------------------------------------------------------------------------

TEST_CASE("W-EXT-05: atomics change the word, and the original comes back in the host's order",
          "[qp][W-EXT-02][W-EXT-05][W-EXT-16]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Pair pair(extended(moves));
  Words mine(*pair.a), theirs(*pair.b);
  theirs.set(0, 0x0102030405060708);
  pair.b->post_receive({});
  pair.a->post(fetch_add(mine.sge(0), theirs.region.stag, theirs.to(0), 0x10));
  pair.a->post(compare_swap(mine.sge(1), theirs.region.stag, theirs.to(0), 0x0102030405060718, 0x77));
  pair.a->post(compare_swap(mine.sge(2), theirs.region.stag, theirs.to(0), 0x78, 0x99));
  pair.a->post(fetch_add(mine.sge(3), theirs.region.stag, theirs.to(0), ~std::uint64_t{0}));
  pair.run();
  CHECK(mine.get(0) == 0x0102030405060708);
  CHECK(mine.get(1) == 0x0102030405060718);
  CHECK(mine.get(2) == 0x77);  // not equal: as it was
  CHECK(mine.get(3) == 0x77);
  CHECK(theirs.get(0) == 0x76);
  const auto done = pair.a->app.of_sends();
  REQUIRE(done.size() == 4);
  for (const auto& each : done) CHECK(each.status == Status::success);
  CHECK(done[0].opcode == Opcode::fetch_add);
  CHECK(done[1].opcode == Opcode::compare_swap);
  // The responder's application hears of nothing, and its receive is still there.
  CHECK(pair.b->app.completions.empty());
  CHECK(pair.b->app.events.empty());
  CHECK(pair.b->app.receives.size() == 1);
}

TEST_CASE("W-EXT-02: fields are added to each by itself, and bits swapped where others are equal, of a peer's word",
          "[qp][W-EXT-02][W-EXT-07]") {
  const Moves moves = GENERATE(Moves::direct, Moves::late);
  Pair pair(extended(moves));
  Words mine(*pair.a), theirs(*pair.b);
  theirs.set(0, 0x00000007'FFFFFFFF);
  const auto to = theirs.to(0);
  const Stag stag = theirs.region.stag;
  pair.a->post(masked_fetch_add(mine.sge(0), stag, to, 0xFFFFFFFF'00000002, 0x80000000'80000000));
  pair.a->post(fetch_add(mine.sge(1), stag, to, 0x00000000'FFFFFFFF));  // a carry from field to field
  pair.a->post(masked_compare_swap(mine.sge(2), stag, to, 0xAAAAAA00, 0xFF, 0x12345678, 0xFFFF0000));
  pair.a->post(masked_compare_swap(mine.sge(3), stag, to, 1, 1, 0, UINT64_MAX));     // not equal
  pair.a->post(masked_compare_swap(mine.sge(4), stag, to, 1, 0, 0x99, UINT64_MAX));  // nothing is compared
  pair.run();
  CHECK(mine.get(0) == 0x00000007'FFFFFFFF);
  CHECK(mine.get(1) == 0x00000006'00000001);
  CHECK(mine.get(2) == 0x00000007'00000000);
  CHECK(mine.get(3) == 0x00000007'12340000);
  CHECK(mine.get(4) == 0x00000007'12340000);
  CHECK(theirs.get(0) == 0x99);
  const auto done = pair.a->app.of_sends();
  REQUIRE(done.size() == 5);
  for (const auto& each : done) CHECK(each.status == Status::success);
}

TEST_CASE("W-EXT-06: atomics and Reads share queue 1, its order and its depth", "[qp][W-EXT-06][W-EXT-07][W-EXT-16]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  const auto seed = static_cast<std::uint64_t>(GENERATE(1, 2, 3));
  Options options = extended(moves, seed);
  options.start = default_start();
  options.start.ord = options.start.ird = 3;
  Pair pair(options);
  Words mine(*pair.a), theirs(*pair.b);
  // A Read before an atomic sees the word as it was, one behind it as it is, and a Write before both.
  mine.set(0, 100);
  pair.a->post(write({mine.sge(0)}, theirs.region.stag, theirs.to(0)));
  for (std::size_t i = 1; i < 8; ++i) {
    if (i % 2 == 1)
      pair.a->post(read({mine.sge(i)}, theirs.region.stag, theirs.to(0)));
    else
      pair.a->post(fetch_add(mine.sge(i), theirs.region.stag, theirs.to(0), 1));
  }
  pair.run();
  for (std::size_t i = 1; i < 8; ++i) {
    INFO("request " << i);
    CHECK(mine.get(i) == 100 + (i - 1) / 2);
  }
  CHECK(theirs.get(0) == 103);
  CHECK(pair.a->app.of_sends().size() == 8);
  for (const qp::Completion& each : pair.a->app.of_sends())
    CHECK(each.length == (each.opcode == Opcode::write ? 0 : 8));
  CHECK(pair.b->qp.state() == qp::State::rts);
}

TEST_CASE("W-EXT-06: no more atomics and Reads together are out than ORD", "[qp][W-EXT-06][W-RDMAP-19]") {
  Raw raw(initiator_start(2), extend);
  Words words(*raw.us);
  raw.us->post(read({words.sge(0)}, {9}, 0));
  raw.us->post(fetch_add(words.sge(1), {9}, 0, 1));
  raw.us->post(fetch_add(words.sge(2), {9}, 0, 1));
  raw.run();
  const auto first = raw.heard_opcode(wire::RdmapOpcode::atomic_request);
  REQUIRE(first.size() == 1);
  CHECK(wire::parse_untagged(first[0])->msn == 2);
  raw.say(tagged(2, true, words.region.stag, words.to(0), filled(8)));
  const auto then = raw.heard_opcode(wire::RdmapOpcode::atomic_request);
  REQUIRE(then.size() == 2);
  CHECK(wire::parse_untagged(then[1])->msn == 3);
}

TEST_CASE("W-EXT-06: without ORD an atomic fails", "[qp][W-EXT-06][V-RD-09]") {
  Raw raw(initiator_start(0), extend);
  Words words(*raw.us);
  raw.us->post(fetch_add(words.sge(), {9}, 0, 1));
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == Status::zero_read_resources);
}

TEST_CASE("W-EXT-06: an atomic more than IRD is too many", "[qp][W-EXT-06][W-RDMAP-19][W-RDMAP-20]") {
  qp::Start start = responder_start();
  start.ird = 2;
  Scene s(extend, kAtomicRights, kPd, start);
  // The responses cannot leave: nothing is acknowledged, and the window is full.
  Octets all;
  for (std::uint32_t msn = 1; msn <= 3; ++msn) all = all + s.raw.fpdu(atomic_request(msn, s.add(1)));
  s.raw.say_octets(all);
  s.raw.run();
  const auto terminates = s.raw.terminates();
  REQUIRE(terminates.size() == 1);
  CHECK(terminates[0].code.word() == 0x1203);
  CHECK(s.raw.us->app.events == std::vector{qp::Event::irrq_too_many});
}

TEST_CASE("W-EXT-12: Immediates and Sends take receives in the order they were posted in",
          "[qp][W-EXT-11][W-EXT-12][W-EXT-13]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  const auto seed = static_cast<std::uint64_t>(GENERATE(1, 2, 3));
  Pair pair(extended(moves, seed));
  Region& from = pair.a->region(9000, 5);
  Region& there = pair.b->region(9000);
  Region& buffer = pair.b->region(64);
  for (std::uint32_t i = 0; i < 3; ++i) pair.b->post_receive({Side::sge(buffer, i * 16, 16)});
  // When the Immediate's receive completes, all of the Write is there.
  bool in_place = false;
  pair.a->post(send({Side::sge(from, 0, 4)}));
  auto request = write_immediate({Side::sge(from, 0, 9000)}, there.stag, there.base, 0x12345678);
  request.solicited = true;
  pair.a->post(request);
  pair.a->post(send({Side::sge(from, 0, 5)}));
  for (int i = 0; i < 20000 && pair.b->app.completions.size() < 3; ++i) {
    const std::size_t before = pair.b->app.completions.size();
    pair.step();
    if (before < 2 && pair.b->app.completions.size() >= 2) in_place = there.memory == from.memory;
  }
  CHECK(in_place);
  const auto& got = pair.b->app.completions;
  REQUIRE(got.size() == 3);
  CHECK(got[0].opcode == Opcode::receive);
  CHECK(got[1].opcode == Opcode::receive_write_immediate);
  CHECK(got[1].status == Status::success);
  CHECK(got[1].slot == 1);
  CHECK(got[1].immediate);
  CHECK(got[1].word == 0x12345678);
  CHECK(got[1].length == 0);
  CHECK(got[1].solicited);
  CHECK_FALSE(got[1].invalidated);
  CHECK(got[2].slot == 2);
  CHECK_FALSE(got[2].immediate);
  // The middle receive's memory is as it was.
  CHECK(std::all_of(buffer.memory.begin() + 16, buffer.memory.begin() + 32,
                    [](std::byte b) { return b == std::byte{}; }));
  pair.run();
  CHECK(pair.a->app.of_sends().size() == 3);
}

TEST_CASE("W-EXT-11: an Immediate without a receive waits for one, and atomics wait behind it",
          "[qp][W-EXT-11][W-EXT-12][V-SR-06]") {
  Pair pair(extended());
  Words mine(*pair.a), theirs(*pair.b);
  mine.set(0, 42);
  pair.a->post(write_immediate({mine.sge(0)}, theirs.region.stag, theirs.to(0), 77));
  pair.a->post(fetch_add(mine.sge(1), theirs.region.stag, theirs.to(1), 1));
  pair.a->post(send());
  pair.run();
  CHECK(theirs.get(0) == 42);  // the Write does not wait
  CHECK(theirs.get(1) == 0);
  CHECK(pair.b->app.completions.empty());
  pair.b->post_receive({});
  pair.run();
  REQUIRE(pair.b->app.completions.size() == 1);
  CHECK(pair.b->app.completions[0].word == 77);
  CHECK(theirs.get(1) == 1);
  CHECK(pair.a->app.of_sends().size() == 3);
  pair.b->post_receive({});
  pair.run();
  CHECK(pair.b->app.completions.size() == 2);
}

TEST_CASE("W-EXT-07: a fenced request waits for an atomic before it", "[qp][W-EXT-07][V-FEN-01]") {
  Asked a;
  auto fenced = send();
  fenced.fence = true;
  a.scene.raw.us->post(fenced);
  a.scene.raw.run();
  CHECK(a.scene.raw.heard_opcode(wire::RdmapOpcode::send).empty());
  CHECK(a.scene.raw.us->app.completions.empty());
  a.scene.raw.say(atomic_response(1, a.id, 0xFEEDFACE12345678));
  CHECK(a.scene.words.get(1) == 0xFEEDFACE12345678);
  CHECK(a.scene.raw.heard_opcode(wire::RdmapOpcode::send).size() == 1);
  CHECK(a.scene.raw.us->app.of_sends().size() == 2);
}

// ---- the responder, and a raw peer ------------------------------------------------------------------------

TEST_CASE("W-EXT-07: the Response is on queue 3, counted from 1, with the request's identifier",
          "[qp][W-EXT-01][W-EXT-05][W-EXT-07][W-EXT-09][W-EXT-10]") {
  Scene s;
  s.words.set(0, 0x0102030405060708);
  auto first = s.add(0x10);
  first.compare = 99;  // not used by FetchAdd: ignored
  first.compare_mask = 3;
  Octets said = atomic_request(1, first);
  said[18] = std::byte{0xFF};  // reserved bits
  said[20] = std::byte{0xFF};
  said[21] |= std::byte{0xF0};
  s.raw.say(said);
  auto second = s.add(0);
  second.request_id = 5;
  s.raw.say(atomic_request(2, second));
  const auto heard = s.raw.heard_opcode(wire::RdmapOpcode::atomic_response);
  REQUIRE(heard.size() == 2);
  REQUIRE(heard[0].size() == 30);
  CHECK(*wire::parse_untagged(heard[0]) ==
        wire::UntaggedHeader{.last = true, .rdmap_control = 0x4B, .queue = 3, .msn = 1});
  CHECK(*wire::parse_atomic_response(Bytes(heard[0]).subspan(18)) ==
        wire::AtomicResponseHeader{.request_id = 0xABCD, .original = 0x0102030405060708});
  CHECK(wire::parse_untagged(heard[1])->msn == 2);
  CHECK(*wire::parse_atomic_response(Bytes(heard[1]).subspan(18)) ==
        wire::AtomicResponseHeader{.request_id = 5, .original = 0x0102030405060718});
}

TEST_CASE("W-EXT-02: masks cut a sum into fields, and choose what is compared and swapped", "[qp][W-EXT-02]") {
  Scene s;
  SECTION("FetchAdd: no carry out of a field's most significant bit") {
    s.words.set(0, 0x00000001'FFFFFFFF);
    auto header = s.add(0x00000001'00000001);
    header.data_mask = 0x80000000;
    s.raw.say(atomic_request(1, header));
    CHECK(s.words.get() == 0x00000002'00000000);
  }
  SECTION("CmpSwap") {
    s.words.set(0, 0x1122334455667788);
    auto header = s.add(0xFFFFFFFFFFFFFFFF);
    header.opcode = wire::AtomicOpcode::compare_swap;
    header.data_mask = 0x00FF00;
    header.compare = 0xAAAAAAAAAAAAAA88;
    header.compare_mask = 0xFF;
    s.raw.say(atomic_request(1, header));
    CHECK(s.words.get() == 0x112233445566FF88);
    header.compare = 0x89;
    header.data = 0;
    s.raw.say(atomic_request(2, header));
    CHECK(s.words.get() == 0x112233445566FF88);
    CHECK(s.raw.heard_opcode(wire::RdmapOpcode::atomic_response).size() == 2);
  }
}

TEST_CASE("W-EXT-02: the masked sum is that of 64 one-bit adders", "[tpt][W-EXT-02]") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t original = random(), add = random(), mask = random() & random();
    std::uint64_t sum = 0, carry = 0;
    for (unsigned bit = 0; bit < 64; ++bit) {
      const std::uint64_t one = (original >> bit & 1) + (add >> bit & 1) + carry;
      sum |= (one & 1) << bit;
      carry = (mask >> bit & 1) != 0 ? 0 : one >> 1;
    }
    REQUIRE(tpt::fetch_add_result(original, add, mask) == sum);
  }
}

TEST_CASE("W-EXT-02: another atomic opcode is an unexpected one", "[qp][W-EXT-02][W-EXT-15]") {
  const int opcode = GENERATE(3, 15);
  Scene s;
  auto header = s.add(1);
  header.opcode = wire::AtomicOpcode(opcode);
  s.is_refused(atomic_request(1, header), 0x0206, qp::Event::unexpected_opcode);
}

TEST_CASE("W-EXT-02: opcode 1 is the drafts' Swap: it compares with nothing and looks at no mask",
          "[qp][W-EXT-02][W-EXT-07]") {
  Scene s;
  s.words.set(0, 0x1122334455667788);
  auto header = s.add(0xAABBCCDDEEFF0011);
  header.opcode = wire::AtomicOpcode::swap;
  header.data_mask = GENERATE(std::uint64_t{0}, UINT64_MAX);
  header.compare = 5;
  header.compare_mask = GENERATE(std::uint64_t{0}, UINT64_MAX);
  s.raw.say(atomic_request(1, header));
  CHECK(s.words.get() == 0xAABBCCDDEEFF0011);
  const auto responses = s.raw.heard_opcode(wire::RdmapOpcode::atomic_response);
  REQUIRE(responses.size() == 1);
  CHECK(wire::parse_atomic_response(Bytes(responses[0]).subspan(18))->original == 0x1122334455667788);
}

TEST_CASE("W-EXT-01: where the drafts and RFC 7306 differ it is the RFC's that holds", "[qp][W-EXT-01][W-EXT-10]") {
  SECTION("Immediate Data with SE on queue 1") {
    Scene s;
    Octets ulpdu = immediate(1, 0, true);
    ulpdu[9] = std::byte{1};
    s.is_refused(ulpdu, 0x0206, qp::Event::unexpected_opcode);
  }
  SECTION("an Atomic Response on queue 1") {
    Asked asked;
    Octets ulpdu = atomic_response(1, asked.id, 0);
    ulpdu[9] = std::byte{1};
    asked.is_refused(ulpdu, 0x0206, qp::Event::unexpected_opcode);
  }
  SECTION("a Compare Mask of 32 bits in a Fetch and Add: nobody looks at it") {
    Scene s;
    auto header = s.add(3);
    header.compare_mask = 0xFFFFFFFF;
    s.raw.say(atomic_request(1, header));
    CHECK(s.words.get() == 3);
  }
}

TEST_CASE("W-EXT-03: the address is aligned, whatever its TO is", "[qp][W-EXT-03][W-EXT-15]") {
  SECTION("an unaligned address is refused and its memory untouched") {
    const std::uint64_t off = GENERATE(1u, 4u, 7u);
    Scene s;
    auto header = s.add(1);
    header.tagged_offset += off;
    s.is_refused(atomic_request(1, header), 0x0207, qp::Event::read_request_form);
  }
  SECTION("an odd TO that names an aligned address is none") {
    Scene s;
    const auto stag = s.raw.us->table.register_region({.pd = kPd,
                                                       .rights = kAtomicRights,
                                                       .base = 0x1001,
                                                       .size = 8,
                                                       .key = 1,
                                                       .memory = {.space = {}, .address = s.words.to()}});
    REQUIRE(stag);
    auto header = s.add(9);
    header.stag = *stag;
    header.tagged_offset = 0x1001;
    s.raw.say(atomic_request(1, header));
    CHECK(s.words.get() == 9);
    CHECK(s.raw.us->app.events.empty());
  }
}

TEST_CASE("W-EXT-04: an atomic needs a right of the region and of the queue pair", "[qp][W-EXT-04][W-EXT-15]") {
  SECTION("no such STag") {
    Scene s;
    auto header = s.add(1);
    header.stag.value ^= 1;
    s.is_refused(atomic_request(1, header), 0x0100, qp::Event::irrq_invalid_stag);
  }
  SECTION("seven octets are left") {
    Scene s;
    auto header = s.add(1);
    header.tagged_offset = s.words.region.at(72 - 7);
    s.is_refused(atomic_request(1, header), 0x0101, qp::Event::irrq_base_bounds);
  }
  SECTION("reading and writing are not enough") {
    Scene s(extend, kAllRights);
    s.is_refused(atomic_request(1, s.add(1)), 0x0102, qp::Event::irrq_access);
  }
  SECTION("the queue pair does not allow it") {
    Scene s([](qp::Config& config) { config.extensions = true; });
    s.is_refused(atomic_request(1, s.add(1)), 0x0102, qp::Event::irrq_access);
  }
  SECTION("another protection domain") {
    Scene s(extend, kAtomicRights, kOtherPd);
    s.is_refused(atomic_request(1, s.add(1)), 0x0103, qp::Event::irrq_invalid_pd);
  }
  SECTION("past 2^64") {
    Scene s;
    auto header = s.add(1);
    header.tagged_offset = ~std::uint64_t{0} - 6;
    s.is_refused(atomic_request(1, header), 0x0104, qp::Event::irrq_wrap);
  }
  SECTION("reads disabled are no matter") {
    Scene s(
        [](qp::Config& config) {
          config.extensions = true;
          config.access = Rights::remote_atomic;
        },
        Rights::local_read | Rights::local_write | Rights::remote_atomic);
    s.raw.say(atomic_request(1, s.add(3)));
    CHECK(s.words.get() == 3);
  }
}

TEST_CASE("W-EXT-09: an Atomic Request has 52 octets, L and offset 0", "[qp][W-EXT-09][W-EXT-15][W-EXT-18]") {
  Scene s;
  Octets body(52);
  wire::emit(s.add(1), body);
  SECTION("51") {
    body.resize(51);
    s.is_refused(untagged(10, true, 1, 1, 0, body), 0x0207, qp::Event::read_request_form);
  }
  SECTION("53") {
    body.resize(53);
    s.is_refused(untagged(10, true, 1, 1, 0, body), 0x0207, qp::Event::read_request_form);
  }
  SECTION("without L") { s.is_refused(untagged(10, false, 1, 1, 0, body), 0x0207, qp::Event::not_last); }
  SECTION("offset 8") { s.is_refused(untagged(10, true, 1, 1, 8, body), 0x1204, qp::Event::read_request_form); }
  SECTION("a number missed") { s.is_refused(untagged(10, true, 1, 2, 0, body), 0x1203, qp::Event::irrq_gap); }
  SECTION("another queue") { s.is_refused(untagged(10, true, 0, 1, 0, body), 0x0206, qp::Event::unexpected_opcode); }
  SECTION("another version of RDMAP") {
    Octets said = untagged(10, true, 1, 1, 0, body);
    said[1] = std::byte{0x0A};
    s.is_refused(said, 0x0205, qp::Event::rdmap_version);
  }
}

TEST_CASE("W-EXT-04: memory that cannot be reached ends the stream, and blames no message", "[qp][W-EXT-04]") {
  Scene s;
  s.raw.us->mover.unreachable.insert(s.words.region.stag.value);
  s.raw.say(atomic_request(1, s.add(1)));
  const auto terminates = s.raw.terminates();
  REQUIRE(terminates.size() == 1);
  CHECK(terminates[0].code.word() == 0x0207);
  CHECK_FALSE(terminates[0].has_length);
  CHECK(s.raw.us->app.events == std::vector{qp::Event::local_catastrophic});
}

// ---- the requester, and a raw peer --------------------------------------------------------------------------

TEST_CASE("W-EXT-07: a Response that answers nothing is refused, and places nothing", "[qp][W-EXT-07][W-EXT-15]") {
  SECTION("the right one") {
    Asked a;
    a.scene.raw.say(atomic_response(1, a.id, 7));
    CHECK(a.scene.words.get(1) == 7);
    CHECK(a.scene.raw.us->app.of_sends().size() == 1);
    SECTION("and one more: no atomic is outstanding") {
      a.scene.is_refused(atomic_response(2, a.id, 8), 0x1202, qp::Event::rq_msn_range);
    }
  }
  SECTION("another identifier") {
    Asked a;
    a.is_refused(atomic_response(1, a.id + 1, 7), 0x0207, qp::Event::read_request_form);
  }
  SECTION("another number") {
    Asked a;
    a.is_refused(atomic_response(2, a.id, 7), 0x1203, qp::Event::rq_msn_range);
  }
  SECTION("too short, too long") {
    Asked a;
    const std::size_t size = GENERATE(11u, 13u);
    Octets said = atomic_response(1, a.id, 7);
    said.resize(18 + size);
    a.is_refused(said, 0x0207, qp::Event::read_request_form);
  }
  SECTION("without L") {
    Asked a;
    Octets said = atomic_response(1, a.id, 7);
    said[0] = std::byte{0x01};
    a.is_refused(said, 0x0207, qp::Event::not_last);
  }
  SECTION("offset 4") {
    Asked a;
    a.is_refused(untagged(11, true, 3, 1, 4, filled(12)), 0x1204, qp::Event::rq_msn_range);
  }
  SECTION("a Read's Response in its place") {
    Asked a;
    a.scene.raw.say(tagged(2, true, a.scene.words.region.stag, a.scene.words.to(1), filled(8)));
    REQUIRE(a.scene.raw.terminates().size() == 1);
    CHECK(a.scene.raw.terminates()[0].code.word() == 0x0206);
    CHECK(a.scene.words.get(1) == 0x1111);
  }
  SECTION("before that of a Read that was asked before") {
    Raw raw(default_start(), extend);
    Words words(*raw.us);
    raw.us->post(read({words.sge(0)}, {9}, 0));
    raw.us->post(fetch_add(words.sge(1), {9}, 0, 1));
    raw.run();
    raw.say(atomic_response(1, 2, 7));
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == 0x0206);
    CHECK(words.get(1) == 0);
  }
}

TEST_CASE("W-EXT-05: a result goes to eight octets that may be written, now and when it comes", "[qp][W-EXT-05]") {
  Raw raw(default_start(), extend);
  Words words(*raw.us);
  const auto first = [&] {
    raw.run();
    REQUIRE(raw.us->app.completions.size() == 1);
    return raw.us->app.completions[0].status;
  };
  auto request = fetch_add(words.sge(), {9}, 0, 1);
  SECTION("no address") {
    request.sge_count = 0;
    raw.us->post(request);
    CHECK(first() == Status::invalid_wqe);
  }
  SECTION("seven octets") {
    request.sges[0].length = 7;
    raw.us->post(request);
    CHECK(first() == Status::invalid_length);
  }
  SECTION("not to be written") {
    const Region& source = raw.us->region(8, 0, Rights::local_read);
    request.sges[0] = Side::sge(source, 0, 8);
    raw.us->post(request);
    CHECK(first() == Status::access);
    CHECK(raw.heard_opcode(wire::RdmapOpcode::atomic_request).empty());
  }
  SECTION("gone when the Response comes") {
    raw.us->post(request);
    raw.run();
    REQUIRE(raw.us->table.deregister(words.region.stag));
    raw.say(atomic_response(1, 1, 7));
    CHECK(first() == Status::invalid_stag);
    CHECK(words.get() == 0);
  }
}

TEST_CASE("W-RDMAP-64: in place of an atomic or Write with Immediate that cannot be built a Terminate goes",
          "[qp][W-RDMAP-64]") {
  Raw raw(default_start(), extend);
  Words words(*raw.us);
  const Region& unreadable = raw.us->region(8, 0, Rights::local_write);
  const Region& readonly = raw.us->region(8, 0, Rights::local_read);
  SECTION("a Fetch and Add") {
    auto request = fetch_add(words.sge(), {9}, 0, 1);
    request.sges[0] = Side::sge(readonly, 0, 8);
    raw.us->post(request);
  }
  SECTION("a Write with Immediate") { raw.us->post(write_immediate({Side::sge(unreadable, 0, 8)}, {9}, 0, 1)); }
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 1);
  CHECK(raw.us->app.completions[0].status == Status::access);
  REQUIRE(raw.heard.size() == 1);
  REQUIRE(raw.terminates().size() == 1);
  CHECK(raw.terminates()[0] == wire::TerminateMessage{});
}

TEST_CASE("V-CS-05: the Terminate names the atomic that was refused", "[qp][V-CS-05][W-EXT-04]") {
  Pair pair(extended());
  Words mine(*pair.a), theirs(*pair.b, kAllRights);
  pair.a->post(fetch_add(mine.sge(), theirs.region.stag, theirs.to(), 1));
  pair.run();
  const auto done = pair.a->app.of_sends();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == Status::remote_termination);
  CHECK(done[0].detail == 0x0102);
  CHECK(theirs.get() == 0);
}

// ---- Immediate Data, said by a raw peer -----------------------------------------------------------------------

TEST_CASE("W-EXT-11: an Immediate consumes one receive, and the first four octets are its value",
          "[qp][W-EXT-11][W-EXT-13]") {
  Scene s;
  Region& buffer = s.raw.us->region(64, 3);
  const auto before = buffer.memory;
  s.raw.us->post_receive({Side::sge(buffer, 0, 64)});
  // Not even valid: nothing is placed in it.
  s.raw.us->post_receive({{0x10, 8, {0xBAD}}});
  s.raw.say(immediate(1, 0x0A0B0C0D'01020304, true));
  s.raw.say(immediate(2, 0x0A0B0C0E'00000000));
  const auto& got = s.raw.us->app.completions;
  REQUIRE(got.size() == 2);
  const std::array<std::uint8_t, 4> network{0x0A, 0x0B, 0x0C, 0x0D};
  CHECK(std::memcmp(&got[0].word, network.data(), 4) == 0);
  CHECK(got[0].solicited);
  CHECK(got[0].status == Status::success);
  CHECK(got[1].slot == 1);
  CHECK_FALSE(got[1].solicited);
  CHECK(got[1].status == Status::success);
  CHECK(buffer.memory == before);
}

TEST_CASE("W-EXT-11: an Immediate of any other form is refused", "[qp][W-EXT-11][W-EXT-15][W-EXT-18]") {
  const bool posted = GENERATE(true, false);  // in hold mode it makes no difference
  Scene s;
  if (posted) s.raw.us->post_receive({});
  SECTION("7 octets") { s.is_refused(untagged(8, true, 0, 1, 0, filled(7)), 0x0207, qp::Event::read_request_form); }
  SECTION("9 octets") { s.is_refused(untagged(8, true, 0, 1, 0, filled(9)), 0x0207, qp::Event::read_request_form); }
  SECTION("none") { s.is_refused(untagged(9, true, 0, 1, 0), 0x0207, qp::Event::read_request_form); }
  SECTION("without L") { s.is_refused(untagged(8, false, 0, 1, 0, filled(8)), 0x0207, qp::Event::not_last); }
  SECTION("offset 8") { s.is_refused(untagged(8, true, 0, 1, 8, filled(8)), 0x1204, qp::Event::rq_msn_range); }
  SECTION("a number missed") { s.is_refused(untagged(8, true, 0, 2, 0, filled(8)), 0x1203, qp::Event::rq_msn_gap); }
  SECTION("another queue") {
    s.is_refused(untagged(8, true, 1, 1, 0, filled(8)), 0x0206, qp::Event::unexpected_opcode);
  }
  SECTION("inside a Send") {
    s.raw.say(untagged(3, false, 0, 1, 0));
    s.is_refused(untagged(8, true, 0, 1, 0, filled(8)), 0x0206, qp::Event::unexpected_opcode);
  }
}

TEST_CASE("W-EXT-11: in terminate mode an Immediate without a receive finds no buffer", "[qp][W-EXT-11]") {
  Scene s([](qp::Config& config) {
    extend(config);
    config.hold_without_receive = false;
  });
  s.is_refused(immediate(1, 1), 0x1202, qp::Event::rq_msn_range);
}

TEST_CASE("W-EXT-11: an Immediate as first FPDU is no Send RTR", "[qp][W-EXT-11][W-MPA-45]") {
  qp::Start start = responder_start();
  start.rtr = qp::Start::Rtr::send;
  Scene s(extend, kAtomicRights, kPd, start);
  s.is_refused(untagged(8, true, 0, 1, 0), 0x0207, qp::Event::read_request_form);
}

// ---- off --------------------------------------------------------------------------------------------------------

TEST_CASE("W-EXT-14: where they are off, the opcodes are unexpected and the work is refused",
          "[qp][W-EXT-14][W-EXT-17][W-RDMAP-04]") {
  const auto off = [](qp::Config& config) {
    extend(config);
    config.extensions = false;
  };
  SECTION("received") {
    Scene s(off);
    s.raw.us->post_receive({});
    SECTION("Immediate") { s.is_refused(immediate(1, 1), 0x0206, qp::Event::unexpected_opcode); }
    SECTION("Immediate with Solicited Event") {
      s.is_refused(immediate(1, 1, true), 0x0206, qp::Event::unexpected_opcode);
    }
    SECTION("Atomic Request") { s.is_refused(atomic_request(1, s.add(1)), 0x0206, qp::Event::unexpected_opcode); }
    SECTION("a probe, that adds nothing") {
      s.is_refused(atomic_request(1, s.add(0)), 0x0206, qp::Event::unexpected_opcode);
    }
    SECTION("Atomic Response") { s.is_refused(atomic_response(1, 1, 1), 0x0206, qp::Event::unexpected_opcode); }
  }
  SECTION("posted") {
    Raw raw(default_start(), off);
    Words words(*raw.us);
    SECTION("FetchAdd") { raw.us->post(fetch_add(words.sge(), {9}, 0, 1)); }
    SECTION("CmpSwap") { raw.us->post(compare_swap(words.sge(), {9}, 0, 1, 2)); }
    SECTION("Write with Immediate") { raw.us->post(write_immediate({words.sge()}, {9}, 0, 1)); }
    raw.run();
    REQUIRE(raw.us->app.completions.size() == 1);
    CHECK(raw.us->app.completions[0].status == Status::invalid_wqe);
    CHECK(raw.heard_opcode(wire::RdmapOpcode::atomic_request).empty());
    CHECK(raw.heard_opcode(wire::RdmapOpcode::write).empty());
  }
}
