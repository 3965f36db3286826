// What goes out and comes in on a stream in full operation: messages and their order, sizes, the rules
// for messages without octets, and the one Terminate.

#include "kit/catch.hpp"
#include "unit/qp/extended.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::Opcode;
using qp::Status;

namespace {

wire::DdpHeader ddp_of(const Octets& ulpdu) { return *wire::parse_ddp(ulpdu); }
unsigned opcode_of(const Octets& ulpdu) { return std::to_integer<unsigned>(ulpdu[1]) & 0xF; }

// The messages among these ULPDUs, each by its opcode; every segment of a message must carry what the
// others do.
std::vector<unsigned> messages_of(const std::vector<Octets>& heard) {
  std::vector<unsigned> out;
  std::optional<wire::DdpHeader> open;
  std::uint64_t done = 0;
  for (const Octets& ulpdu : heard) {
    const auto header = ddp_of(ulpdu);
    if (open) {
      CHECK(header.tagged == open->tagged);
      CHECK(header.rdmap_control == open->rdmap_control);
      CHECK(header.stag == open->stag);
      CHECK(header.queue == open->queue);
      CHECK(header.msn == open->msn);
    } else {
      open = header;
      done = 0;
      out.push_back(opcode_of(ulpdu));
    }
    if (header.tagged)
      CHECK(header.tagged_offset == open->tagged_offset + done);
    else
      CHECK(header.message_offset == done);
    done += ulpdu.size() - header.size();
    if (header.last) open.reset();
  }
  CHECK_FALSE(open);
  return out;
}

// A raw peer that has said something, so that we may speak.
struct Heard : Raw {
  explicit Heard(std::function<void(qp::Config&)> change = extend, Moves moves = Moves::direct)
      : Raw(responder_start(), std::move(change), moves) {
    say(tagged(0, true, {1}, 0));
  }
};

// Loses what comes from b without octets and stands beyond a's window, as a peer does that follows RFC 9293 s3.10.7.4
// by the letter. Ours takes the ACK of such a segment.
void a_is_strict(Wire& wire) {
  const std::uint32_t shift = tcp::window_shift(wire.options.receive_window_bytes);
  wire.loses = [shift, edge = std::optional<std::uint32_t>()](bool is_a, const tcp::SegmentOut& out) mutable {
    const wire::TcpHeader& header = out.header;
    const auto beyond = [&](std::uint32_t at) { return edge && static_cast<std::int32_t>(at - *edge) > 0; };
    if (!is_a) return out.payload.empty() && beyond(header.sequence);
    const std::uint32_t told = header.acknowledgement + (std::uint32_t{header.window} << shift);
    if (!edge || beyond(told)) edge = told;
    return false;
  };
}

}  // namespace

TEST_CASE("W-RDMAP-06: each operation is one DDP message, and nothing but RDMAP messages is on the stream",
          "[qp][W-RDMAP-06][W-RDMAP-07][W-DDP-04][W-DDP-05][W-DDP-10][W-DDP-11]") {
  Heard raw;
  Region& memory = raw.us->region(20'000, 4);
  const auto sge = [&](std::uint32_t length) { return Side::sge(memory, 0, length); };
  raw.us->post(send({sge(5000)}));
  raw.us->post(write({sge(7000), sge(100)}, {7}, 500));
  raw.us->post(send({}));
  raw.us->post(read({sge(3000)}, {7}, 0));
  raw.us->post(write({}, {7}, 0));
  raw.us->post(fetch_add({memory.at(8 - memory.base % 8), 8, memory.stag}, {7}, 0, 1));
  raw.us->post(write_immediate({sge(4000)}, {7}, 0, 3));
  auto invalidate = work(Opcode::send_invalidate, {sge(10)});
  invalidate.invalidate = {9};
  invalidate.solicited = true;
  raw.us->post(invalidate);
  raw.run();
  // What the peer hears from the first octet on is FPDUs and nothing else, or it would have thrown.
  CHECK(messages_of(raw.heard) == std::vector<unsigned>{3, 0, 3, 1, 0, 10, 0, 8, 6});
  // MSNs: one for each message of a queue.
  std::array<std::vector<std::uint32_t>, 4> msns;
  for (const Octets& ulpdu : raw.heard)
    if (const auto header = ddp_of(ulpdu); !header.tagged && header.last) msns.at(header.queue).push_back(header.msn);
  CHECK(msns[0] == std::vector<std::uint32_t>{1, 2, 3, 4});
  CHECK(msns[1] == std::vector<std::uint32_t>{1, 2});
}

TEST_CASE("W-RDMAP-38: messages leave in the order their work was posted in, whatever it is",
          "[qp][W-RDMAP-38][W-DDP-10]") {
  std::mt19937 random(5);
  for (int round = 0; round < 5; ++round) {
    Heard raw(extend, round % 2 == 0 ? Moves::direct : Moves::late);
    Region& memory = raw.us->region(20'000, 4);
    std::vector<unsigned> expected;
    for (int i = 0; i < 60; ++i) {
      const auto size = static_cast<std::uint32_t>(random() % 4000);
      switch (random() % 4) {
        case 0:
          raw.us->post(send({Side::sge(memory, 0, size)}));
          expected.push_back(3);
          break;
        case 1:
          raw.us->post(write({Side::sge(memory, 0, size)}, {7}, 0));
          expected.push_back(0);
          break;
        case 2:
          raw.us->post(write_immediate({}, {7}, 0, 1));
          expected.insert(expected.end(), {0, 8});
          break;
        default:
          if (std::count(expected.begin(), expected.end(), 1u) == 16) break;
          raw.us->post(read({Side::sge(memory, 0, size)}, {7}, 0));
          expected.push_back(1);
      }
    }
    raw.run();
    CHECK(messages_of(raw.heard) == expected);
  }
}

TEST_CASE("W-MPA-54: a ULPDU has 64768 octets at most, however large the segments",
          "[qp][W-MPA-54][W-MPA-60][W-DDP-08]") {
  tcp::Options options;
  options.mss_bytes = 65'495;
  Raw raw(responder_start(), {}, Moves::direct, options, 65'600);
  raw.say(tagged(0, true, {1}, 0));
  Region& memory = raw.us->region(200'000, 4);
  raw.us->post(write({Side::sge(memory, 0, 200'000)}, {7}, 0));
  raw.us->post(send({}));
  raw.run();
  std::vector<std::size_t> sizes;
  for (const Octets& ulpdu : raw.heard) sizes.push_back(ulpdu.size());
  CHECK(sizes == std::vector<std::size_t>{64'768, 64'768, 64'768, 14 + 200'000 - 3 * 64'754, 18});
}

TEST_CASE("W-MPA-72: FPDUs of 64 KiB are taken whatever the segmentation", "[qp][W-MPA-72][W-MPA-55][W-TCP-06]") {
  const bool markers = GENERATE(false, true);
  const std::size_t piece = GENERATE(1460u, 536u, 97u);
  qp::Start start = responder_start();
  if (markers) start.markers_in = mpa::Markers::expected;
  Raw raw(start);
  Region& memory = raw.us->region(70'000);
  const Octets payload = filled(64'768 - 14, 3);
  Octets stream;
  for (int i = 0; i < 3; ++i)
    stream = stream + raw.fpdu(tagged(0, true, memory.stag, memory.base + static_cast<unsigned>(i), payload));
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    const Octets part(stream.begin() + static_cast<std::ptrdiff_t>(at),
                      stream.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, stream.size())));
    raw.say_octets(part);
    if (at / piece % 32 == 31) raw.run();
  }
  raw.run();
  CHECK(raw.us->qp.counters().writes_in == 3);
  CHECK(std::equal(payload.begin(), payload.end(), memory.memory.begin() + 2));
  CHECK(raw.us->qp.state() == qp::State::rts);
}

TEST_CASE("W-DDP-16: with a copy, work is complete when the copy is made, not before, whatever the peer does",
          "[qp][W-DDP-16][W-RDMAP-40][W-TCP-19]") {
  Heard raw({}, Moves::at_flush);
  Region& memory = raw.us->region(1000, 4);
  const Octets before = memory.memory;
  raw.us->mover.stalled = true;
  raw.us->post(write({Side::sge(memory, 0, 1000)}, {7}, 0));
  raw.us->post(send({Side::sge(memory, 0, 1000)}));
  raw.run();
  CHECK(raw.us->app.completions.empty());
  raw.us->mover.stalled = false;
  raw.wire.cut_a = true;  // and nothing of it arrives
  raw.run();
  CHECK(raw.us->app.completions.size() == 2);
  CHECK(raw.heard.empty());
  // The memory is the application's again; what is sent, and sent again, is what it held.
  std::fill(memory.memory.begin(), memory.memory.end(), std::byte{0xEE});
  raw.wire.cut_a = false;
  raw.pass(seconds(2));
  REQUIRE(raw.heard.size() == 2);
  CHECK(Octets(raw.heard[0].begin() + 14, raw.heard[0].end()) == before);
  CHECK(Octets(raw.heard[1].begin() + 18, raw.heard[1].end()) == before);
}

TEST_CASE("W-RDMAP-41: a Read completes when its Response is placed and all before it, in order",
          "[qp][W-RDMAP-41][W-RDMAP-13]") {
  Heard raw({}, Moves::at_flush);
  Region& sink = raw.us->region(4000);
  raw.us->post(read({Side::sge(sink, 0, 1000)}, {7}, 0));
  raw.us->post(read({Side::sge(sink, 1000, 0)}, {7}, 0));
  raw.run();
  raw.us->mover.stalled = true;
  raw.say(tagged(2, false, sink.stag, sink.at(0), filled(600)));
  raw.say(tagged(2, true, sink.stag, sink.at(600), filled(400)));
  raw.say(tagged(2, true, sink.stag, sink.at(1000)));
  CHECK(raw.us->app.completions.empty());
  raw.us->mover.stalled = false;
  raw.run();
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[0].slot == 0);
  CHECK(raw.us->app.completions[1].slot == 1);
}

TEST_CASE("W-RDMAP-65: every Read Request gets exactly one Response, to the one sink that it names",
          "[qp][W-RDMAP-65][W-RDMAP-13]") {
  Heard raw;
  Region& source = raw.us->region(10'000, 6);
  const std::uint32_t sizes[] = {5000, 0, 1, 1440, 1441};
  std::uint32_t msn = 1;
  for (const std::uint32_t size : sizes) {
    raw.say(read_request(msn, {.sink_stag = {0xF0 + msn},
                               .sink_to = 100 * msn,
                               .size_bytes = size,
                               .source_stag = source.stag,
                               .source_to = source.at(msn)}));
    ++msn;
  }
  CHECK(messages_of(raw.heard) == std::vector<unsigned>(5, 2));
  std::size_t i = 0;
  Octets got;
  msn = 1;
  for (const Octets& ulpdu : raw.heard) {
    const auto header = ddp_of(ulpdu);
    CHECK(header.stag.value == 0xF0 + msn);
    CHECK(header.tagged_offset == 100 * msn + got.size());
    got.insert(got.end(), ulpdu.begin() + 14, ulpdu.end());
    if (!header.last) continue;
    REQUIRE(got.size() == sizes[i]);
    CHECK(std::equal(got.begin(), got.end(), source.memory.begin() + static_cast<std::ptrdiff_t>(msn)));
    got.clear();
    ++msn;
    ++i;
  }
}

TEST_CASE("W-RDMAP-10: Read Requests leave in order, are answered in order, and tell the application nothing",
          "[qp][W-RDMAP-10][W-EXT-16]") {
  Options options;
  options.moves = GENERATE(Moves::direct, Moves::late);
  Pair pair(options);
  Region& from = pair.b->region(8000, 3);
  Region& to = pair.a->region(8000);
  Region& unused = pair.b->region(100);
  pair.b->post_receive({Side::sge(unused, 0, 100)});
  for (std::uint32_t i = 0; i < 8; ++i)
    pair.a->post(read({Side::sge(to, i * 1000, i % 3 == 0 ? 0 : 1000)}, from.stag, from.at(i * 1000)));
  pair.run();
  REQUIRE(pair.a->app.completions.size() == 8);
  for (std::uint32_t i = 0; i < 8; ++i) CHECK(pair.a->app.completions[i].slot == i);
  CHECK(pair.b->app.completions.empty());
  CHECK(pair.b->app.events.empty());
  CHECK(pair.b->qp.counters().reads_in == 8);
}

TEST_CASE("W-RDMAP-46: a direction that stands still holds up neither the other nor another stream",
          "[qp][W-RDMAP-46][V-SEC-15]") {
  Pair pair;
  Pair other;
  pair.run();
  Region& from = pair.b->region(100'000, 4);
  for (int i = 0; i < 20; ++i) pair.b->post(send({Side::sge(from, 0, 100'000)}));  // no receive is posted for them
  pair.run();
  CHECK(pair.b->app.completions.size() < 20);
  Region& source = pair.a->region(100'000, 5);
  Region& sink = pair.b->region(100'000);
  pair.a->post(write({Side::sge(source, 0, 100'000)}, sink.stag, sink.base));
  pair.run();
  CHECK(pair.a->app.completions.size() == 1);
  CHECK(sink.memory == source.memory);
  Region& there = other.b->region(1000);
  Region& here = other.a->region(1000, 3);
  other.a->post(write({Side::sge(here, 0, 1000)}, there.stag, there.base));
  other.run();
  CHECK(there.memory == here.memory);
}

// As above, while time passes: the window of what stands still is probed, and acknowledgements are still to be taken.
TEST_CASE("W-RDMAP-46: nor does it, however long it stands still", "[qp][W-RDMAP-46][W-TCP-01]") {
  Options options;
  options.tcp.mss_bytes = GENERATE(1460u, 65'495u);
  options.buffer_bytes = 65'600;
  Pair pair(options);
  a_is_strict(pair.wire);
  pair.run();
  Region& opening = pair.a->region(8, 6);
  Region& opened = pair.b->region(8);
  pair.a->post(write({Side::sge(opening, 0, 8)}, opened.stag, opened.base));  // so that both may send
  pair.run();
  Region& from = pair.b->region(100'000, 4);
  for (int i = 0; i < 20; ++i) pair.b->post(send({Side::sge(from, 0, 100'000)}));  // no receive is posted for them
  pair.pass(seconds(8));
  Region& source = pair.a->region(100'000, 5);
  Region& sink = pair.b->region(100'000);
  for (int i = 0; i < 50; ++i) pair.a->post(write({Side::sge(source, 0, 100'000)}, sink.stag, sink.base));
  pair.pass(seconds(1));
  CHECK(pair.a->app.completions.size() == 51);
  CHECK(sink.memory == source.memory);
}

TEST_CASE("W-RDMAP-18: only messages with SE are told as solicited", "[qp][W-RDMAP-18][W-DDP-15]") {
  Heard raw;
  Region& receive = raw.us->region(1000);
  for (int i = 0; i < 8; ++i) raw.us->post_receive({Side::sge(receive, 0, 100)});
  raw.say(untagged(3, true, 0, 1, 0, filled(10)));
  raw.say(untagged(5, true, 0, 2, 0, filled(10)));
  raw.say(immediate(3, 0, false));
  raw.say(immediate(4, 0, true));
  // Segments of a message that differ in it: what the last one says counts.
  raw.say(untagged(3, false, 0, 5, 0, filled(10)));
  raw.say(untagged(5, true, 0, 5, 10, filled(10)));
  std::vector<bool> solicited;
  for (const auto& c : raw.us->app.of_receives()) solicited.push_back(c.solicited);
  CHECK(solicited == std::vector<bool>{false, true, false, true, true});
}

// ---- messages without octets -------------------------------------------------------------------------

TEST_CASE("W-DDP-25: a Send of no octets is checked as one of many is", "[qp][W-DDP-25][W-DDP-17]") {
  const auto refused = [](Heard& raw, const Octets& ulpdu, unsigned code) {
    raw.say(ulpdu);
    const auto terminates = raw.terminates();
    REQUIRE(terminates.size() == 1);
    CHECK(terminates[0].code.word() == code);
    CHECK(std::memcmp(terminates[0].ddp_header.data(), ulpdu.data(), 18) == 0);
    CHECK(raw.us->app.of_receives().size() == 1);
    CHECK(raw.us->app.of_receives()[0].status == Status::flushed);
  };
  Heard raw([](qp::Config& c) { c.hold_without_receive = false; });
  Region& receive = raw.us->region(1000);
  if (GENERATE(true, false)) {
    raw.us->post_receive({Side::sge(receive, 0, 1000)});
    SECTION("queue") { refused(raw, untagged(3, true, 5, 1, 0), 0x1201); }
    SECTION("MSN, past") { refused(raw, untagged(3, true, 0, 0, 0), 0x1203); }
    SECTION("MSN, future") { refused(raw, untagged(3, true, 0, 2, 0), 0x1203); }
    SECTION("offset of a message that has not begun") { refused(raw, untagged(3, true, 0, 1, 1), 0x1204); }
    SECTION("offset of one that has") {
      raw.say(untagged(3, false, 0, 1, 0, filled(100)));
      refused(raw, untagged(3, true, 0, 1, 0xFFFFFF00), 0x1204);
    }
    SECTION("right, behind octets: its offset is the length") {
      raw.say(untagged(3, false, 0, 1, 0, filled(100)));
      raw.say(untagged(3, true, 0, 1, 100));
      REQUIRE(raw.us->app.of_receives().size() == 1);
      CHECK(raw.us->app.of_receives()[0].length == 100);
    }
  } else {
    SECTION("buffer") {
      raw.say(untagged(3, true, 0, 1, 0));
      REQUIRE(raw.terminates().size() == 1);
      CHECK(raw.terminates()[0].code.word() == 0x1202);
    }
  }
}

TEST_CASE("W-MPA-45: an RTR of each kind is taken, and opens the gate", "[qp][W-MPA-45][W-MPA-46][W-MPA-87]") {
  struct Row {
    qp::Start::Rtr rtr;
    Octets ulpdu;
  };
  const Row rows[] = {{qp::Start::Rtr::write, tagged(0, true, {1}, 0)},
                      {qp::Start::Rtr::read, read_request(1, {.sink_stag = {1}, .source_stag = {1}})},
                      {qp::Start::Rtr::send, untagged(3, true, 0, 1, 0)}};
  for (const Row& row : rows) {
    qp::Start start = responder_start();
    start.rtr = row.rtr;
    start.peer_to_peer = true;
    Raw raw(start);
    Region& receive = raw.us->region(1000);
    raw.us->post_receive({Side::sge(receive, 0, 1000)});
    raw.us->post(send({}));
    raw.run();
    CHECK(raw.heard.empty());
    CHECK_FALSE(raw.us->qp.gate_open());
    raw.say(row.ulpdu);
    CHECK(raw.us->qp.gate_open());
    CHECK(raw.us->app.of_receives().empty());
    CHECK(raw.heard_opcode(wire::RdmapOpcode::send).size() == 1);
    CHECK(raw.heard_opcode(wire::RdmapOpcode::read_response).size() == (row.rtr == qp::Start::Rtr::read ? 1u : 0u));
    // The consumer's first message follows with the next number of its queue.
    const bool was_send = row.rtr == qp::Start::Rtr::send;
    raw.say(untagged(3, true, 0, was_send ? 2 : 1, 0, filled(10)));
    REQUIRE(raw.us->app.of_receives().size() == 1);
    CHECK(raw.us->app.of_receives()[0].length == 10);
    CHECK(raw.us->qp.state() == qp::State::rts);
  }
}

TEST_CASE("W-MPA-46: a Send of no octets is the consumer's where no Send RTR was agreed on, or when it comes later",
          "[qp][W-MPA-46]") {
  qp::Start start = responder_start();
  start.rtr = GENERATE(qp::Start::Rtr::write, qp::Start::Rtr::send);
  Raw raw(start);
  Region& receive = raw.us->region(1000);
  raw.us->post_receive({Side::sge(receive, 0, 1000)});
  if (start.rtr == qp::Start::Rtr::send) raw.say(tagged(0, true, {1}, 0));
  raw.say(untagged(3, true, 0, 1, 0));
  CHECK(raw.us->app.of_receives().size() == 1);
}

TEST_CASE("W-MPA-87: the Response to a Read RTR is absorbed, and frees its place in ORD", "[qp][W-MPA-87][W-MPA-45]") {
  qp::Start start = default_start();
  start.rtr = qp::Start::Rtr::read;
  start.ord = 1;
  Raw raw(start);
  Region& sink = raw.us->region(100);
  raw.us->post(read({Side::sge(sink, 0, 100)}, {7}, 0));
  raw.us->post(send({}));
  raw.run();
  // The RTR has the only place: the consumer's Read waits, and all behind it.
  CHECK(messages_of(raw.heard) == std::vector<unsigned>{1});
  CHECK(wire::parse_read_request(Bytes(raw.heard[0]).subspan(18))->size_bytes == 0);
  raw.say(tagged(2, true, {1}, 0));
  CHECK(raw.us->app.completions.empty());
  CHECK(messages_of(raw.heard) == std::vector<unsigned>{1, 1, 3});
  raw.say(tagged(2, true, sink.stag, sink.base, filled(100)));
  CHECK(raw.us->app.completions.size() == 2);
}

// ---- associations and rights -------------------------------------------------------------------------

TEST_CASE("W-DDP-23: an STag is bound to a protection domain, or to one stream", "[qp][W-DDP-23][W-DDP-27][V-SEC-03]") {
  const auto write_through = [](bool window, std::uint32_t number, PdId pd) {
    Raw raw(responder_start(), [&](qp::Config& c) {
      c.number = {number};
      c.pd = pd;
    });
    Region& region = raw.us->region(1000, 0, kAllRights | tpt::Rights::window_bind);
    Stag stag = region.stag;
    if (window) {
      const auto made = raw.us->table.allocate_window(kPd, 1);
      REQUIRE(made);
      REQUIRE(raw.us->table.bind(*made, 5, region.stag, kPd, {1}, tpt::Rights::remote_write, region.base, 1000));
      stag = Stag{(made->value & ~0xFFu) | 5};
    }
    raw.say(tagged(0, true, stag, region.base, filled(10)));
    if (raw.terminates().empty()) {
      CHECK(raw.us->app.events.empty());
      return 0u;
    }
    // The local consumer hears of it too.
    CHECK(raw.us->app.events == std::vector{qp::Event::invalid_pd});
    return static_cast<unsigned>(raw.terminates()[0].code.word());
  };
  CHECK(write_through(false, 1, kPd) == 0);
  CHECK(write_through(false, 2, kPd) == 0);  // any stream of the domain
  CHECK(write_through(false, 1, kOtherPd) == 0x1102);
  CHECK(write_through(true, 1, kPd) == 0);
  CHECK(write_through(true, 2, kPd) == 0x1102);  // its stream alone
}

TEST_CASE("W-DDP-30: what an STag allows is set up and taken back, each by itself", "[qp][W-DDP-30]") {
  struct Change {
    const char* what;
    std::function<void(Side&, Region&)> make;
    unsigned code;
  };
  const Change changes[] = {
      {"validity", [](Side& s, Region& r) { REQUIRE(s.table.invalidate_local(r.stag, kPd, {1})); }, 0x1100},
      {"the STag itself", [](Side& s, Region& r) { REQUIRE(s.table.deregister(r.stag)); }, 0x1100},
      {"rights",
       [](Side& s, Region& r) {
         REQUIRE(s.table.reregister(r.stag, {.pd = kPd,
                                             .rights = tpt::Rights::local_read | tpt::Rights::remote_read,
                                             .base = r.base,
                                             .size = 1000,
                                             .key = 0x5a,
                                             .memory = {.space = {}, .address = r.base, .direct = r.memory.data()}}));
       },
       0x1102},
      {"range",
       [](Side& s, Region& r) {
         REQUIRE(s.table.reregister(r.stag, {.pd = kPd,
                                             .rights = kAllRights,
                                             .base = r.base,
                                             .size = 500,
                                             .key = 0x5a,
                                             .memory = {.space = {}, .address = r.base, .direct = r.memory.data()}}));
       },
       0x1101},
      {"protection domain",
       [](Side& s, Region& r) {
         REQUIRE(s.table.reregister(r.stag, {.pd = kOtherPd,
                                             .rights = kAllRights,
                                             .base = r.base,
                                             .size = 1000,
                                             .key = 0x5a,
                                             .memory = {.space = {}, .address = r.base, .direct = r.memory.data()}}));
       },
       0x1102}};
  for (const Change& change : changes) {
    INFO(change.what);
    Raw raw(responder_start());
    Region& region = raw.us->region(1000);
    raw.say(tagged(0, true, region.stag, region.at(600), filled(100)));
    CHECK(raw.us->qp.state() == qp::State::rts);
    change.make(*raw.us, region);
    raw.say(tagged(0, true, region.stag, region.at(600), filled(100, 9)));
    REQUIRE(raw.terminates().size() == 1);
    CHECK(raw.terminates()[0].code.word() == change.code);
    CHECK(std::equal(region.memory.begin() + 600, region.memory.begin() + 700, filled(100).begin()));
  }
}

TEST_CASE("W-DDP-24: octets of an operation that was cut short are never told as received",
          "[qp][W-DDP-24][V-STOP-04]") {
  const bool by_reset = GENERATE(true, false);
  Heard raw;
  Region& receive = raw.us->region(2000);
  raw.us->post_receive({Side::sge(receive, 0, 2000)});
  raw.us->post(read({Side::sge(receive, 1000, 1000)}, {7}, 0));
  raw.run();
  raw.say(untagged(3, false, 0, 1, 0, filled(600)));
  raw.say(tagged(2, false, receive.stag, receive.at(1000), filled(600)));
  CHECK(raw.us->app.completions.empty());
  if (by_reset) {
    raw.tcp.abort(raw.wire.now);
    raw.run();
  } else {
    raw.say(tagged(15, true, {1}, 0));
    raw.tcp.close();
    raw.run();
  }
  REQUIRE(raw.us->app.completions.size() == 2);
  for (const auto& completion : raw.us->app.completions) {
    CHECK(completion.status == Status::flushed);
    CHECK(completion.length == 0);
  }
}

// ---- Terminates that come ----------------------------------------------------------------------------

TEST_CASE("W-RDMAP-35: a Terminate ends the connection whatever its queue, number and offset say",
          "[qp][W-RDMAP-35][W-RDMAP-33]") {
  const Octets body{std::byte{0x12}, std::byte{0x02}, std::byte{0}, std::byte{0}};
  for (const Octets& ulpdu :
       {untagged(7, true, 2, 1, 0, body), untagged(7, true, 0, 1, 0, body), untagged(7, true, 9, 1, 0, body),
        untagged(7, true, 2, 77, 0, body), untagged(7, true, 2, 1, 400, body), untagged(7, false, 2, 1, 0, body),
        untagged(7, true, 2, 1, 0, {}), untagged(7, true, 2, 1, 0, filled(3)),
        untagged(7, true, 2, 1, 0, filled(600))}) {
    Heard raw;
    raw.say(ulpdu);
    CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
    CHECK(raw.terminates().empty());
    CHECK(raw.us->qp.state() == qp::State::terminate);
    CHECK(raw.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::remote);
    CHECK(raw.us->qp.terminate_record().length == std::min<std::size_t>(ulpdu.size() - 18, 64));
  }
}

TEST_CASE("W-RDMAP-37: a peer's other code for the same fault is understood as ours is",
          "[qp][W-RDMAP-37][W-RDMAP-33][V-CS-05]") {
  // Ours; siw's; irdma's (wire.md s3.4 and s6, 13 and 26).
  const std::vector<std::array<unsigned, 3>> same{{0x1102, 0x1100, 0x0102}, {0x1205, 0x1202, 0x1205},
                                                  {0x0100, 0x0209, 0x0200}, {0x1203, 0x0207, 0x1202},
                                                  {0x0206, 0x1000, 0x02FF}, {0x1000, 0x0207, 0x1000}};
  for (const auto& codes : same) {
    for (const unsigned code : codes) {
      for (const bool bits_swapped : {false, true}) {  // siw on a little-endian machine
        Heard raw;
        Region& sink = raw.us->region(100);
        raw.us->post(read({Side::sge(sink, 0, 100)}, {7}, 0));
        raw.run();
        Octets body(6 + 18);
        unsigned kinds = code >> 8 & 0xFF;
        if (bits_swapped) kinds = (kinds << 4 | kinds >> 4) & 0xFF;
        body[0] = static_cast<std::byte>(kinds);
        body[1] = static_cast<std::byte>(code);
        body[2] = bits_swapped ? std::byte{0x03} : std::byte{0xC0};
        std::memcpy(body.data() + 6, raw.heard.back().data(), 18);
        raw.say(untagged(7, true, 2, 1, 0, body));
        CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
        REQUIRE(raw.us->app.completions.size() == 1);
        // Where its headers can be read, the Read that it names is blamed.
        CHECK(raw.us->app.completions[0].status == (bits_swapped ? Status::flushed : Status::remote_termination));
        raw.tcp.close();
        raw.run();
        CHECK(raw.us->qp.state() == qp::State::error);
      }
    }
  }
}

TEST_CASE("W-RDMAP-66: a Terminate finds its place whatever receives and limits there are",
          "[qp][W-RDMAP-66][V-SR-06]") {
  const Octets body{std::byte{0x12}, std::byte{0x02}, std::byte{0}, std::byte{0}};
  SECTION("no receive, none held") {
    Heard raw([](qp::Config& c) { c.hold_without_receive = false; });
    raw.say(untagged(7, true, 2, 1, 0, body));
    CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
  }
  SECTION("behind Sends that are held") {
    Heard raw;
    raw.say(untagged(3, true, 0, 1, 0, filled(1000)));
    raw.say(untagged(7, true, 2, 1, 0, body));
    CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
  }
  SECTION("behind more Sends than may be held, when the peer has closed its half") {
    Heard raw([](qp::Config& c) { c.held_bytes_max = 4000; });
    for (std::uint32_t i = 1; i <= 10; ++i) raw.say(untagged(3, true, 0, i, 0, filled(1000)));
    raw.say(untagged(7, true, 2, 1, 0, body));
    CHECK(raw.us->app.events.empty());
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
    CHECK(raw.us->qp.terminate_record().length == 4);
  }
  SECTION("and a mere FIN behind as many waits for receives") {
    Heard raw([](qp::Config& c) { c.held_bytes_max = 4000; });
    for (std::uint32_t i = 1; i <= 10; ++i) raw.say(untagged(3, true, 0, i, 0, filled(1000)));
    raw.tcp.close();
    raw.run();
    CHECK(raw.us->app.events.empty());
    Region& receive = raw.us->region(1000);
    for (int i = 0; i < 10; ++i) raw.us->post_receive({Side::sge(receive, 0, 1000)});
    raw.run();
    CHECK(raw.us->app.of_receives().size() == 10);
    CHECK(raw.us->qp.state() == qp::State::idle);
  }
  SECTION("while a receive waits in the middle of its message") {
    Heard raw;
    Region& receive = raw.us->region(2000);
    raw.us->post_receive({Side::sge(receive, 0, 2000)});
    raw.say(untagged(3, false, 0, 1, 0, filled(1000)));
    raw.say(untagged(7, true, 2, 1, 0, body));
    CHECK(raw.us->app.events == std::vector{qp::Event::terminate_received});
  }
}
