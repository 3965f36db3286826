// How a queue pair ends by its own application's Modify, as that and its peer have it. Provider, daemon and data plane;
// the peer says its octets by hand, and closes when it likes.
#include "unit/rnicdv/raw_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

int to(ibv_qp* qp, std::uint32_t state) { return modify(qp, RNICDV_QP_STATE, mod_of(state, 0, 0, 0)); }

// Its peer's RST, which no application of ours can say.
void reset_by_peer(RawPeer& t) {
  t.at_daemon([&](control::Machine& machine, control::Server&) {
    control::ServedDevice& device = *machine.devices[1];
    device.first().worker->call([&](Instant now) {
      for (const core::StreamInfo& stream : device.first().device->streams())
        device.first().device->kill(stream.stream, now);
    });
  });
}

void every_modify_is_refused(ibv_qp* qp, std::uint32_t state) {
  for (const std::uint32_t asked :
       {RNICDV_QPS_IDLE, RNICDV_QPS_RTS, RNICDV_QPS_CLOSING, RNICDV_QPS_TERMINATE, RNICDV_QPS_ERROR})
    CHECK(to(qp, asked) == EINVAL);
  CHECK(test::direct_of(qp).state == state);
}

}  // namespace

TEST_CASE(
    "V-RTS-08: Modify to Terminate tells the peer 0x0000, without a header, and the application by Query QP alone",
    "[wired][rnicdv][V-RTS-08][V-EH-42][V-TDN-02][V-TDN-06][V-TERM-01][V-TERM-04][V-TERM-05][V-TERM-06][V-TERM-07]"
    "[V-TERM-08][V-TERM-10][V-ERRST-07][V-STOP-09]") {
  RawPeer t;
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(8, 8)}) == 0);
  REQUIRE(t.hear());
  REQUIRE(to(t.qp_a, RNICDV_QPS_TERMINATE) == 0);
  const rnicdv_qp_attr at_once = t.attr();
  CHECK(at_once.state == RNICDV_QPS_TERMINATE);
  CHECK(at_once.terminate_origin == 1);
  REQUIRE(at_once.terminate_length == 4);
  for (int i = 0; i < 4; ++i) CHECK(at_once.terminate[i] == 0);
  every_modify_is_refused(t.qp_a, RNICDV_QPS_TERMINATE);
  const auto heard = t.hear_terminate();
  REQUIRE(heard);
  CHECK(t.said_terminate == Octets(4, '\0'));
  // What is posted from now on is flushed behind what was, and what the peer says is not looked at.
  REQUIRE(post_receive(t.qp_a, 3, {t.sge(0, 8)}) == 0);
  REQUIRE(post(t.qp_a, {4}, {t.sge(0, 8)}) == 0);
  t.say_octets(fpdu(message(1, "late")) + fpdu(untagged(7, 2, 1, Octets(4, '\0'))));
  std::vector<std::uint64_t> told;
  for (const ibv_wc& wc : poll(t.cq_a, 4)) {
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
    told.push_back(wc.wr_id);
  }
  std::sort(told.begin(), told.end());
  CHECK(told == std::vector<std::uint64_t>{1, 2, 3, 4});
  CHECK(t.attr().state == RNICDV_QPS_TERMINATE);
  CHECK(t.no_event());
  SECTION("V-TERM-10: until the peer has closed") {
    t.close_peer();
    REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
    CHECK(t.no_event());
  }
  SECTION("V-TERM-08: or its stream is lost, which is told") {
    reset_by_peer(t);
    REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
    CHECK(t.event() == IBV_EVENT_QP_FATAL);
  }
  CHECK(t.attr().terminate_origin == 1);
  CHECK(t.attr().terminate_length == 4);
  CHECK(t.nothing_completes());
  CHECK((t.memory_a == std::vector<char>(t.memory_a.size())));
}

TEST_CASE("V-RTS-11: Modify to Error resets the stream at once, says no Terminate, and nothing more is placed",
          "[wired][rnicdv][V-RTS-11][V-EH-43][V-TDN-03][V-ERRST-01][V-STOP-11]") {
  RawPeer t;
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(8, 8)}) == 0);
  REQUIRE(t.hear());
  REQUIRE(to(t.qp_a, RNICDV_QPS_ERROR) == 0);
  CHECK(t.attr().state == RNICDV_QPS_ERROR);
  CHECK(t.attr().stream == 0);
  CHECK_FALSE(t.hear());
  CHECK(t.reset);
  const Octets late = fpdu(tagged(0, t.mr_a->rkey, t.to(), "late"));
  std::size_t sent = 0;
  CHECK(rnicdv_stream_send(t.stream_b, late.data(), late.size(), &sent) == ECONNRESET);
  for (const ibv_wc& wc : poll(t.cq_a, 2)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(t.nothing_completes());
  CHECK(t.no_event());
  CHECK(t.attr().terminate_origin == 0);
  CHECK((t.memory_a == std::vector<char>(t.memory_a.size())));
}

TEST_CASE("V-EH-02: a peer's RST is told, and what was under way is flushed",
          "[wired][rnicdv][V-EH-02][V-RTS-12][V-AE-04][V-TDN-05]") {
  RawPeer t;
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(8, 8)}) == 0);
  REQUIRE(t.hear());
  reset_by_peer(t);
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.event() == IBV_EVENT_QP_FATAL);
  for (const ibv_wc& wc : poll(t.cq_a, 2)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(t.no_event());
  CHECK(t.attr().terminate_origin == 0);
}

TEST_CASE(
    "V-CLS-03: in Closing all receives are flushed, those posted then too, and whatever else comes is a Bad Close",
    "[wired][rnicdv][V-CLS-01][V-CLS-02][V-CLS-04][V-CLS-05][V-CLS-06][V-CLS-07][V-CLS-09][V-EH-04][V-AE-01]"
    "[V-AE-21][V-TDN-01][V-TDN-08][V-RTS-06][V-STOP-11]") {
  RawPeer t;
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(post_receive(t.qp_a, i, {t.sge(0, 8)}) == 0);
  REQUIRE(to(t.qp_a, RNICDV_QPS_CLOSING) == 0);
  for (std::uint64_t i = 0; i < 3; ++i) expect(t.cq_a, i, IBV_WC_WR_FLUSH_ERR);
  REQUIRE(post_receive(t.qp_a, 3, {t.sge(0, 8)}) == 0);
  expect(t.cq_a, 3, IBV_WC_WR_FLUSH_ERR);
  // The peer's FIN is due.
  CHECK(t.attr().state == RNICDV_QPS_CLOSING);
  every_modify_is_refused(t.qp_a, RNICDV_QPS_CLOSING);
  CHECK_FALSE(t.hear());
  CHECK_FALSE(t.reset);
  CHECK(t.no_event());
  const auto says = [&](const Octets& ulpdu) {
    t.say(ulpdu);
    t.close_peer();  // which would have been a clean close
  };
  bool bad = true;
  SECTION("V-CLS-07: the peer closes") {
    bad = false;
    t.close_peer();
  }
  SECTION("V-CLS-02: a Write") { says(tagged(0, t.mr_a->rkey, t.to(), "late")); }
  SECTION("V-CLS-02: a Send") { says(message(1, "late")); }
  SECTION("V-CLS-02: a Read Request") { says(read_request(1, 8, t.mr_a->rkey, t.to())); }
  SECTION("V-CLS-09: a Terminate") { says(untagged(7, 2, 1, Octets(4, '\0'))); }
  SECTION("V-CLS-05: work that is posted") {
    REQUIRE(post(t.qp_a, {9}, {t.sge(0, 8)}) == 0);
    expect(t.cq_a, 9, IBV_WC_WR_FLUSH_ERR);
    std::size_t none = 0;
    CHECK(comes_true([&] { return rnicdv_stream_send(t.stream_b, "x", 1, &none) == ECONNRESET; }));
  }
  if (!bad) {
    REQUIRE(t.comes_to(RNICDV_QPS_IDLE));
    CHECK(t.no_event());
    return;
  }
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.event() == IBV_EVENT_QP_FATAL);
  CHECK(t.no_event());
  CHECK(t.nothing_completes());
  CHECK((t.memory_a == std::vector<char>(t.memory_a.size())));
}

TEST_CASE("V-TERM-09: what a completion has told is no event, and a stream that is lost behind it is one",
          "[wired][rnicdv][V-TERM-09][V-ERR-01]") {
  RawPeer t;
  REQUIRE(post(t.qp_a, {1}, {{t.to(), 8, 0x7FFFFF00}}) == 0);
  expect(t.cq_a, 1, IBV_WC_LOC_PROT_ERR);
  REQUIRE(t.hear_terminate());
  CHECK(t.no_event());
  CHECK(t.attr().state == RNICDV_QPS_TERMINATE);
  const bool lost = GENERATE(true, false);
  if (lost)
    reset_by_peer(t);
  else
    t.close_peer();
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.event(lost ? 10'000 : 20) == (lost ? std::uint32_t{IBV_EVENT_QP_FATAL} : RawPeer::kNoEvent));
}

TEST_CASE("V-TERM-03: a peer that never closes keeps nobody in Terminate or in Closing for ever",
          "[wired][rnicdv][V-TERM-03][V-CLS-08][V-CLS-06]") {
  RawPeer terminates, closes;
  REQUIRE(to(terminates.qp_a, RNICDV_QPS_TERMINATE) == 0);
  REQUIRE(to(closes.qp_a, RNICDV_QPS_CLOSING) == 0);
  for (RawPeer* t : {&terminates, &closes}) {
    REQUIRE(t->comes_to(RNICDV_QPS_ERROR));
    CHECK(t->event() == IBV_EVENT_QP_FATAL);
    CHECK(t->attr().stream == 0);
  }
}
