// What becomes of a connection of rdma_cm with its peer: the depths that they agree on, markers that are wrong,
// segments that overtake each other, a peer that resets or says nothing any more. Provider, daemon and data plane; the
// peer says its startup frames and FPDUs by hand.
#include "unit/rnicdv/mpa_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

constexpr std::uint32_t kMissing = 0x7FFFFF00;

Octets part(const RawPeer& t, std::size_t at, std::size_t size) { return {t.memory_a.data() + at, size}; }

// So many of ours are asked for at once, and as many of the peer's are taken.
void expect_depths(MpaPeer& t, std::uint32_t ord, std::uint32_t ird) {
  CHECK(t.attr().ord == ord);
  CHECK(t.attr().ird == ird);
  for (std::uint64_t id = 0; id <= ord; ++id)
    REQUIRE(post(t.qp_a, {id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(0, 8)}) == 0);
  for (std::uint32_t i = 0; i < ord; ++i) REQUIRE(t.hear());
  CHECK(t.hears_nothing());
  // The receive that the first waits for is never posted: what is behind it is counted, and not served.
  t.say(message(1, "waits"));
  for (std::uint32_t msn = 1; msn <= ird; ++msn) t.say(read_request(msn, 8, t.mr_a->rkey, t.to()));
  CHECK(t.hears_nothing());
  CHECK(t.no_event());
  t.say(read_request(ird + 1, 8, t.mr_a->rkey, t.to()));
  const auto terminate = t.hear_terminate();
  REQUIRE(terminate);
  CHECK(terminate->code.word() == 0x1203);
}

}  // namespace

TEST_CASE("V-IRD-13: rdma_connect's depths are in the Request, and our Reads are no more than the Reply has places for",
          "[wired][rnicdv][V-IRD-13][V-IRD-06][V-IRD-08]") {
  MpaPeer t;
  t.call({.responder_resources = 3, .initiator_depth = 5});
  REQUIRE(t.theirs.header.revision == 2);
  REQUIRE(t.theirs.block);
  CHECK(t.theirs.block->ird == 3);
  CHECK(t.theirs.block->ord == 5);
  REQUIRE(t.theirs.block->peer_to_peer);
  SECTION("fewer than we wanted") {
    t.answer({{.reply = true, .crc = true},
              wire::EnhancedBlock{.peer_to_peer = true, .rtr_write = true, .ird = 2, .ord = 1}});
    REQUIRE(t.hear() == tagged(0, 1, 0));  // ready to receive
    expect_depths(t, 2, 3);
  }
  SECTION("more, and it wants more of us than we said") {
    t.answer({{.reply = true, .crc = true},
              wire::EnhancedBlock{.peer_to_peer = true, .rtr_write = true, .ird = 9, .ord = 4}});
    REQUIRE(t.hear() == tagged(0, 1, 0));
    expect_depths(t, 5, 4);
  }
}

TEST_CASE("V-IRD-13: a Reply to rdma_accept has its depths, bounded by what the Request says",
          "[wired][rnicdv][V-IRD-13][V-IRD-06][V-IRD-08]") {
  MpaPeer t;
  t.be_called({{.crc = true}, wire::EnhancedBlock{.ird = 2, .ord = 9}},
              {.responder_resources = 3, .initiator_depth = 5});
  REQUIRE(t.theirs.block);
  CHECK(t.theirs.block->ird == 3);
  CHECK(t.theirs.block->ord == 2);
  t.say(tagged(0, 0, 0));  // the caller is the first to speak
  t.channel().expect(RNIC_CM_ESTABLISHED);
  expect_depths(t, 2, 3);
}

TEST_CASE("V-IRD-13: startup frames of revision 1 say nothing of depths: each end has what its application said",
          "[wired][rnicdv][V-IRD-13][V-IRD-06][V-IRD-08]") {
  MpaPeer t(MpaPeer::kMarked);
  t.call({.responder_resources = 2, .initiator_depth = 3});
  CHECK(t.theirs.header.revision == 1);
  CHECK_FALSE(t.theirs.block);
  CHECK(t.theirs.header.private_data_length == 0);
  t.answer({{.reply = true, .crc = true}, {}});
  expect_depths(t, 3, 2);
}

TEST_CASE("V-EH-07: a marker that contradicts the FPDU that it is in is told as such",
          "[wired][rnicdv][V-EH-07][V-AE-07][V-STOP-04][V-STOP-09]") {
  MpaPeer t(MpaPeer::kMarked);
  t.connect();
  REQUIRE(t.theirs.header.markers);
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(post_receive(t.qp_a, id, {t.sge(0, 1024)}) == 0);
  t.say(message(1, Octets(600, 'm')));
  CHECK(poll(t.cq_a, 1)[0].byte_len == 600);
  const std::size_t begin = t.packer->position() % 512;
  Octets wrong = t.framed(message(2, Octets(600, 'w')));
  const std::size_t marker = 512 - begin;
  REQUIRE(static_cast<std::uint8_t>(wrong[marker + 2]) * 256u + static_cast<std::uint8_t>(wrong[marker + 3]) == marker);
  wrong[marker + 3] = static_cast<char>(wrong[marker + 3] ^ 4);
  t.seal(wrong);  // nothing else is wrong with it
  t.say_octets(wrong + t.framed(message(3, "late")));
  const auto terminate = t.hear_terminate();
  REQUIRE(terminate);
  CHECK(terminate->code.word() == 0x2003);
  CHECK(t.said_terminate.substr(2) == Octets(2, '\0'));
  CHECK(t.event() == IBV_EVENT_QP_FATAL);
  t.close_peer();
  t.expect_disconnected();
  expect(t.cq_a, 2, IBV_WC_WR_FLUSH_ERR);
  expect(t.cq_a, 3, IBV_WC_WR_FLUSH_ERR);
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.attr().terminate_origin == 1);
  CHECK(t.no_event());
  CHECK(part(t, 0, 600) == Octets(600, 'm'));
}

TEST_CASE("V-EH-02: a reset of the peer's is an event and a disconnect, and ends what was under way",
          "[wired][rnicdv][V-EH-02][V-AE-03][V-TDN-07]") {
  MpaPeer t(MpaPeer::kMarked);
  t.connect();
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 64)}) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(0, 8)}) == 0);
  REQUIRE(t.hear());
  t.reset_stream();
  CHECK(t.event() == IBV_EVENT_QP_FATAL);
  t.expect_disconnected();
  for (const ibv_wc& wc : poll(t.cq_a, 2)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.attr().terminate_origin == 0);
  CHECK(t.no_event());
  CHECK(t.nothing_completes());
}

TEST_CASE("V-EH-01: a peer that answers nothing any more is given up: an event, a disconnect, and no Terminate",
          "[wired][rnicdv][V-EH-01][V-AE-04][V-TDN-07]") {
  MpaPeer t(
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nmpa_revision = 1\nretransmissions = 3\n"
      "rto_min_ms = 10\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\n");
  t.connect();
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 64)}) == 0);
  // While it says nothing and nothing is asked of it, nobody misses it.
  t.fall_silent();
  usleep(300'000);
  CHECK(t.no_event());
  CHECK(t.attr().state == RNICDV_QPS_RTS);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(0, 8)}) == 0);
  CHECK(t.event() == IBV_EVENT_QP_FATAL);
  t.expect_disconnected();
  for (const ibv_wc& wc : poll(t.cq_a, 2)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.attr().terminate_origin == 0);
  CHECK(t.no_event());
  t.arrive();
}

namespace {

// Segments of which the first is late, and the one behind it is placed already.
struct Overtaken : MpaPeer {
  Overtaken() : MpaPeer(kMarked) {
    connect();
    for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(post_receive(qp_a, id, {sge(2048, 64)}) == 0);
  }
  void overtakes(const Octets& late, std::initializer_list<Octets> behind) {
    const Octets lost = framed(late);
    Octets rest = framed(tagged(0, mr_a->rkey, to(1024), Octets(600, 'e')));  // long enough to have a marker
    for (const Octets& each : behind) rest += framed(each);
    overtake(lost, rest);
    const volatile char& placed = memory_a[1024];  // its last octets are placed in its turn (V-ORD-09)
    REQUIRE(comes_true([&] { return placed == 'e'; }));
    usleep(30'000);  // what could be told of the others, would be by now
    CHECK(attr().state == RNICDV_QPS_RTS);
    CHECK(no_event());
    CHECK(nothing_completes());
  }
  void expect_end(const Octets& culprit, unsigned code) {
    const auto terminate = hear_terminate();
    REQUIRE(terminate);
    CHECK(terminate->code.word() == code);
    CHECK(terminate->segment_length == culprit.size());
    CHECK(std::memcmp(terminate->ddp_header.data(), culprit.data(), terminate->ddp_header_size) == 0);
  }
};

}  // namespace

TEST_CASE("V-STOP-06: what is wrong beyond a gap is told in its turn, and the first in the stream's order wins",
          "[wired][rnicdv][V-STOP-06][V-STOP-08]") {
  Overtaken t;
  const bool first_is_bad = GENERATE(false, true);
  const Octets late = tagged(0, first_is_bad ? kMissing : t.mr_a->rkey, t.to(), "late");
  const Octets bad = tagged(0, kMissing + 0x100, 7, Octets(100, 'b'));
  t.overtakes(late, {bad, tagged(0, t.mr_a->rkey, t.to(256), Octets(100, 'c'))});
  t.arrive();
  t.expect_end(first_is_bad ? late : bad, 0x1100);
  CHECK(t.event() == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(part(t, 0, 4) == (first_is_bad ? Octets(4, '\0') : Octets("late")));
  CHECK(part(t, 256, 100) == Octets(100, '\0'));
}

TEST_CASE("V-STOP-07: another error does not wait for the turn of one that is beyond a gap",
          "[wired][rnicdv][V-STOP-07]") {
  Overtaken t;
  t.overtakes(tagged(0, t.mr_a->rkey, t.to(), "late"), {tagged(0, kMissing, 7, Octets(100, 'b'))});
  SECTION("of the send queue") {
    REQUIRE(post(t.qp_a, {9}, {{t.to(), 8, kMissing}}) == 0);
    expect(t.cq_a, 9, IBV_WC_LOC_PROT_ERR);
    CHECK(t.attr().state == RNICDV_QPS_TERMINATE);
    t.arrive();
    const auto terminate = t.hear_terminate();
    REQUIRE(terminate);
    CHECK(terminate->code.word() == 0);
  }
  SECTION("of the stream") {
    t.reset_stream();
    t.arrive();  // the RST alone: nothing is said again behind it
    CHECK(t.event() == IBV_EVENT_QP_FATAL);
    REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
    CHECK(t.attr().terminate_origin == 0);
  }
  CHECK(part(t, 0, 4) == Octets(4, '\0'));
}

TEST_CASE("V-SEC-17: a Send that has overtaken others takes no receive, and one that says so falsely takes none ever",
          "[wired][rnicdv][V-SEC-17][V-SR-10][V-SEC-18]") {
  Overtaken t;
  SECTION("in its turn it takes its own") {
    t.overtakes(message(1, "first"), {message(2, "the second"), message(3, "the third one")});
    t.arrive();
    for (const unsigned length : {5u, 10u, 13u}) CHECK(poll(t.cq_a, 1)[0].byte_len == length);
  }
  SECTION("one far ahead of the others is refused, and the receives are left") {
    const Octets far = message(1000, "far ahead");
    t.overtakes(message(1, "first"), {far});
    t.arrive();
    CHECK(poll(t.cq_a, 1)[0].byte_len == 5);
    t.expect_end(far, 0x1203);
    for (std::uint64_t id = 2; id <= 3; ++id) expect(t.cq_a, id, IBV_WC_WR_FLUSH_ERR);
    CHECK(t.nothing_completes());
  }
}
