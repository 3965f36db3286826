// What is sent, message by message: the order of work, fences, depths, completions.

#include "rdmap/requester.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_end.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Opcode;
using rdmap::Status;

namespace {

constexpr std::uint8_t kReadResponse = 2;

rdmap::Settings with_ord(std::uint32_t ord) {
  rdmap::Settings settings = default_settings();
  settings.ord = ord;
  return settings;
}
std::vector<wire::RdmapOpcode> opcodes(const std::vector<Octets>& said) {
  std::vector<wire::RdmapOpcode> out;
  for (const Octets& ulpdu : said) out.push_back(wire::rdmap_opcode(std::to_integer<std::uint8_t>(ulpdu[1])));
  return out;
}
using Said = std::vector<wire::RdmapOpcode>;
using Slots = std::vector<std::uint32_t>;
constexpr auto kSend = wire::RdmapOpcode::send;
constexpr auto kWrite = wire::RdmapOpcode::write;
constexpr auto kRead = wire::RdmapOpcode::read_request;

rdmap::WorkRequest fenced(rdmap::WorkRequest request) {
  request.fence = true;
  return request;
}

struct Reader {
  explicit Reader(std::uint32_t ord = 4, Moves moves = Moves::direct)
      : end(with_ord(ord), moves), sink(end.region(64)) {}
  std::uint32_t post_read(std::uint32_t size = 8) { return end.post(read({End::sge(sink, 0, size)}, {9}, 0)); }
  bool answer(std::uint32_t size = 8) {
    return end.hear(tagged(kReadResponse, true, sink.stag, sink.base, filled(size)));
  }
  End end;
  Region& sink;
};

}  // namespace

TEST_CASE("W-RDMAP-38: messages leave in post order, whatever they are", "[rdmap][W-RDMAP-38][W-DDP-10]") {
  Reader r;
  Region& source = r.end.region(64, 3);
  r.end.post(send({End::sge(source, 0, 8)}));
  r.end.post(write({End::sge(source, 0, 64)}, {9}, 100));
  r.post_read();
  r.end.post(send());
  CHECK(opcodes(r.end.say()) == Said{kSend, kWrite, kRead, kSend});
}

TEST_CASE("W-DDP-09: a message is cut to the MULPDU, and its last segment alone has L", "[rdmap][W-DDP-09][W-DDP-04]") {
  End end;
  Region& source = end.region(100, 3);
  end.post(write({End::sge(source, 0, 60), End::sge(source, 60, 40)}, {9}, 1000));
  const auto said = end.say(14 + 48);
  REQUIRE(said.size() == 3);
  const auto part = [&](std::size_t at, std::size_t size) {
    return Octets(source.memory.begin() + static_cast<std::ptrdiff_t>(at),
                  source.memory.begin() + static_cast<std::ptrdiff_t>(at + size));
  };
  CHECK(said[0] == tagged(0, false, {9}, 1000, part(0, 48)));
  CHECK(said[1] == tagged(0, false, {9}, 1048, part(48, 48)));
  CHECK(said[2] == tagged(0, true, {9}, 1096, part(96, 4)));
  CHECK(end.sends_completed() == Slots{0});
}

TEST_CASE("V-ORD-07: no more Reads are outstanding than ORD, and all of the queue waits",
          "[rdmap][V-ORD-07][V-IRD-06]") {
  Reader r(2);
  for (int i = 0; i < 3; ++i) r.post_read();
  r.end.post(send());
  CHECK(opcodes(r.end.say()) == Said{kRead, kRead});
  CHECK(r.end.reads.outstanding() == 2);
  CHECK(r.end.say().empty());
  CHECK(r.answer());
  CHECK(opcodes(r.end.say()) == Said{kRead, kSend});
}

TEST_CASE("V-ORD-07: a place in ORD is free when the Response is delivered, not when it has come",
          "[rdmap][V-ORD-07]") {
  Reader r(1, Moves::at_flush);
  r.post_read();
  r.post_read();
  CHECK(r.end.say().size() == 1);
  CHECK(r.answer());
  CHECK(r.end.say().empty());
  r.end.settle();
  CHECK(opcodes(r.end.say()) == Said{kRead});
}

TEST_CASE("V-RD-09: with ORD 0 a Read fails", "[rdmap][V-RD-09]") {
  Reader r(0);
  r.post_read();
  CHECK(r.end.say().empty());
  CHECK(r.end.fault == rdmap::Fault::local_work);
  r.end.requester.flush(100);
  REQUIRE(r.end.app.completions.size() == 1);
  CHECK(r.end.app.completions[0].status == Status::zero_read_resources);
}

TEST_CASE("V-FEN-01: a Read fence holds a Send or a Write back until Reads are delivered, a Read never",
          "[rdmap][V-FEN-01][W-RDMAP-47]") {
  Reader r;
  r.post_read();
  SECTION("a Send") { r.end.post(fenced(send())); }
  SECTION("a Write") { r.end.post(fenced(write({}, {9}, 0))); }
  SECTION("a Read is not held back") {
    r.end.post(fenced(read({End::sge(r.sink, 0, 8)}, {9}, 0)));
    CHECK(opcodes(r.end.say()) == Said{kRead, kRead});
    return;
  }
  r.end.post(send());
  CHECK(opcodes(r.end.say()) == Said{kRead});
  CHECK(r.answer());
  CHECK(r.end.say().size() == 2);
}

TEST_CASE("V-FEN-02: a fenced Invalidate waits for all before it", "[rdmap][V-FEN-02]") {
  Reader r;
  Region& victim = r.end.region(8);
  auto invalidate = work(Opcode::local_invalidate);
  invalidate.remote_stag = victim.stag;
  const auto valid = [&] {
    return bool(r.end.table.check_local(victim.stag, kPd, tpt::Rights::local_read, victim.base, 1));
  };
  r.post_read();
  SECTION("fenced") {
    r.end.post(fenced(invalidate));
    r.end.say();
    CHECK(valid());
    r.answer();
    r.end.say();
    CHECK_FALSE(valid());
  }
  SECTION("not fenced: at once, though it completes in its turn") {
    r.end.post(invalidate);
    r.end.say();
    CHECK_FALSE(valid());
    CHECK(r.end.app.completions.empty());
  }
}

TEST_CASE("V-ORD-02: completions are in post order, though a Send behind a Read is done first",
          "[rdmap][V-ORD-02][V-ORD-03]") {
  Reader r;
  r.post_read();
  r.end.post(send());
  CHECK(r.end.say().size() == 2);
  CHECK(r.end.app.completions.empty());
  r.answer();
  CHECK(r.end.sends_completed() == Slots{0, 1});
}

TEST_CASE("V-WR-15: what is not signaled is told only when it fails", "[rdmap][V-WR-14][V-WR-15]") {
  End end;
  auto quiet = send();
  quiet.signaled = false;
  end.post(quiet);
  end.post(send());
  auto bad = send({{0x1000, 8, {0xdeadbe00}}});
  bad.signaled = false;
  end.post(bad);
  end.post(quiet);
  CHECK(end.say().size() == 2);
  CHECK(end.sends_completed() == Slots{1});
  CHECK(end.fault == rdmap::Fault::local_work);
  end.requester.flush(100);
  CHECK(end.sends_completed() == Slots{1, 2, 3});
  CHECK(end.app.completions[1].status == Status::invalid_stag);
  CHECK(end.app.completions[2].status == Status::flushed);
}

TEST_CASE("V-ORD-08: a Send is complete when its carrier is on its way, and not before", "[rdmap][V-ORD-08]") {
  End end;
  end.post(send());
  rdmap::Verdict verdict;
  REQUIRE(end.requester.begin(verdict));
  rdmap::OutboundSegment segment;
  REQUIRE_FALSE(end.requester.next_segment(1454, segment));
  CHECK_FALSE(end.requester.complete(verdict));
  end.requester.segment_taken(segment, 5);
  end.requester.carried_up_to(5);
  CHECK_FALSE(end.requester.complete(verdict));
  end.requester.carried_up_to(6);
  CHECK(end.requester.complete(verdict));
  CHECK(end.sends_completed() == Slots{0});
}

TEST_CASE("W-RDMAP-14: a Response answers the oldest Read, to its sink, with all that was asked for",
          "[rdmap][W-RDMAP-14][V-RD-03]") {
  Reader r;
  SECTION("without a Read") {
    r.answer();
    CHECK(r.end.fault == rdmap::Fault::unexpected_opcode);
  }
  r.post_read(16);
  r.end.say();
  SECTION("another sink") {
    r.end.hear(tagged(kReadResponse, true, r.end.region(16).stag, r.sink.base, filled(16)));
    CHECK(r.end.fault == rdmap::Fault::tagged_invalid_stag);
  }
  SECTION("less than all, and its last") {
    r.answer(15);
    CHECK(r.end.fault == rdmap::Fault::tagged_bounds);
  }
  SECTION("more") {
    r.answer(17);
    CHECK(r.end.fault == rdmap::Fault::tagged_bounds);
  }
  SECTION("in two segments, the second from where the first ended") {
    CHECK(r.end.hear(tagged(kReadResponse, false, r.sink.stag, r.sink.base, filled(8))));
    const std::uint64_t to = r.sink.base + GENERATE(7u, 8u);
    r.end.hear(tagged(kReadResponse, true, r.sink.stag, to, filled(8)));
    CHECK(r.end.fault.has_value() == (to != r.sink.base + 8));
    CHECK(r.end.sends_completed().size() == (to == r.sink.base + 8 ? 1 : 0));
  }
}

TEST_CASE("W-DDP-10: Responses and work take turns at message boundaries", "[rdmap][W-DDP-10]") {
  End end;
  Region& source = end.region(64, 3);
  for (std::uint32_t msn = 1; msn <= 2; ++msn)
    end.hear(
        read_request(msn, {.sink_stag = {7}, .size_bytes = 40, .source_stag = source.stag, .source_to = source.base}));
  for (int i = 0; i < 2; ++i) end.post(write({End::sge(source, 0, 40)}, {9}, 0));
  using enum wire::RdmapOpcode;
  CHECK(opcodes(end.say(14 + 20)) ==
        Said{write, write, read_response, read_response, write, write, read_response, read_response});
}

TEST_CASE("V-INV-10: what the table permits is asked anew in each turn", "[rdmap][V-INV-10][W-RDMAP-27]") {
  End end;
  Region& source = end.region(64, 3);
  SECTION("of a Response") {
    end.hear(
        read_request(1, {.sink_stag = {7}, .size_bytes = 8, .source_stag = source.stag, .source_to = source.base}));
    REQUIRE(end.table.deregister(source.stag));
    CHECK(end.say().empty());
    CHECK(end.fault == rdmap::Fault::read_invalid_stag);
  }
  SECTION("of a Write under way") {
    end.post(write({End::sge(source, 0, 64)}, {9}, 0));
    rdmap::Verdict verdict;
    REQUIRE(end.requester.begin(verdict));
    rdmap::OutboundSegment segment;
    REQUIRE_FALSE(end.requester.next_segment(14 + 32, segment));
    REQUIRE(end.table.deregister(source.stag));
    ++end.common.turn;
    CHECK(end.requester.next_segment(14 + 32, segment).fault == rdmap::Fault::local_work);
    CHECK_FALSE(end.requester.sending());
  }
}

TEST_CASE("what stands behind a request's SGEs is not looked at", "[rdmap][V-SGL-04]") {
  End end;
  Region& source = end.region(8, 3);
  auto request = write({End::sge(source, 0, 8)}, {9}, 0);
  request.sges[1] = {0x1000, 8, {0xdeadbe00}};
  end.post(request);
  CHECK(end.say().size() == 1);
  CHECK_FALSE(end.fault);
}

TEST_CASE("messages are counted by kind, and their octets", "[rdmap]") {
  Reader r;
  Region& source = r.end.region(64, 3);
  const auto counts = [&] {
    const rdmap::Counters& c = r.end.counters;
    return std::vector<std::uint64_t>{c.sends_out, c.writes_out, c.reads_out, c.atomics_out, c.bytes_out,
                                      c.sends_in,  c.writes_in,  c.reads_in,  c.atomics_in,  c.bytes_in};
  };
  CHECK(counts() == std::vector<std::uint64_t>(10));
  r.end.post(send({End::sge(source, 0, 8)}));
  r.end.post(write({End::sge(source, 0, 64)}, {9}, 100));
  r.post_read();
  r.end.say();
  CHECK(counts() == std::vector<std::uint64_t>{1, 1, 1, 0, 72, 0, 0, 0, 0, 0});
  r.answer();
  r.end.post_receive();
  r.end.hear(untagged(3, true, 0, 1, 0));
  r.end.hear(tagged(0, true, r.sink.stag, r.sink.base, filled(16)));
  r.end.hear(read_request(1, {.sink_stag = {7}, .source_stag = source.stag, .source_to = source.base}));
  CHECK(counts() == std::vector<std::uint64_t>{1, 1, 1, 0, 72, 1, 1, 1, 0, 24});
}

TEST_CASE("a payload that is taken in pieces is the same octets", "[rdmap][W-MPA-25]") {
  End end;
  const Octets data = filled(48);
  auto request = write({}, {9}, 0);
  request.has_data = true;
  request.data = data;
  end.post(request);
  rdmap::Verdict verdict;
  REQUIRE(end.requester.begin(verdict));
  Octets taken;
  for (int segment_number = 0; segment_number < 2; ++segment_number) {
    rdmap::OutboundSegment segment;
    REQUIRE_FALSE(end.requester.next_segment(14 + 24, segment));
    REQUIRE(segment.payload_bytes == 24);
    for (const std::uint32_t piece : {8, 4, 12})
      end.requester.payload(
          piece, [&](Bytes from) { taken.insert(taken.end(), from.begin(), from.end()); }, [](const tpt::Access&) {});
    end.requester.segment_taken(segment, 0);
  }
  CHECK(taken == data);
}

TEST_CASE("V-ERRST-03: what is posted is flushed in steps", "[rdmap][V-ERRST-03]") {
  End end;
  for (int i = 0; i < 3; ++i) end.post(send());
  end.requester.flush(2);
  CHECK(end.sends_completed() == Slots{0, 1});
  CHECK(end.requester.may_be_posted());
  end.requester.flush(2);
  CHECK(end.sends_completed() == Slots{0, 1, 2});
  CHECK_FALSE(end.requester.may_be_posted());
}
