// In which order work of a send queue begins and is told, and what of a Read is looked at when: with a peer by hand
// that answers a Read when it likes. Provider, daemon and data plane.
#include "unit/rnicdv/raw_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

constexpr const char* kStrict =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.1/24\"\nread_sink = \"strict\"\n"
    "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.2/24\"\nread_sink = \"strict\"\n";

int post_read(RawPeer& t, std::uint64_t id, const ibv_sge& into, unsigned flags = IBV_SEND_SIGNALED) {
  return post(t.qp_a, {id, IBV_WR_RDMA_READ, flags, {0x1000, 5}}, {into});
}

// The peer hears a Read Request.
wire::ReadRequestHeader asked(RawPeer& t) {
  const auto ulpdu = t.hear();
  REQUIRE(ulpdu);
  const auto header = wire::parse_untagged(bytes_of(*ulpdu));
  REQUIRE(header);
  REQUIRE(header->rdmap_control == 0x41);
  return *wire::parse_read_request(bytes_of(*ulpdu).subspan(wire::UntaggedHeader::kSize));
}
void answer(RawPeer& t, const wire::ReadRequestHeader& request, char octet) {
  t.say(tagged(2, request.sink_stag.value, request.sink_to, Octets(request.size_bytes, octet)));
}

}  // namespace

TEST_CASE("V-FEN-01: what is fenced begins when all Reads before it are complete, and what is not does not wait",
          "[wired][rnicdv][V-FEN-01][V-ORD-03][V-ORD-02]") {
  RawPeer t;
  const ibv_wr_opcode fenced = GENERATE(IBV_WR_SEND, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE);
  constexpr unsigned kFence = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
  REQUIRE(post_read(t, 1, t.sge(0, 8)) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {0x2000, 6}}, {t.sge(64, 4)}) == 0);
  REQUIRE(post_read(t, 3, t.sge(8, 8), kFence) == 0);  // not looked at of a Read
  REQUIRE(post(t.qp_a, {4, fenced, kFence, {0x3000, 7}}, {t.sge(64, 4)}) == 0);
  REQUIRE(post(t.qp_a, {5}, {t.sge(64, 4)}) == 0);
  const auto first = asked(t);
  CHECK(t.hear() == tagged(0, 6, 0x2000, Octets(4, '\0')));
  const auto second = asked(t);
  REQUIRE(t.hears_nothing());
  CHECK(t.nothing_completes());  // though the Write is done
  answer(t, first, 'r');
  expect(t.cq_a, 1);
  expect(t.cq_a, 2);
  REQUIRE(t.hears_nothing());
  CHECK(t.nothing_completes());
  answer(t, second, 's');
  for (std::uint64_t id = 3; id <= 5; ++id) expect(t.cq_a, id);
  const auto behind = t.hear();
  REQUIRE(behind);
  const bool write = fenced == IBV_WR_RDMA_WRITE;
  CHECK(static_cast<std::uint8_t>((*behind)[1]) == (write ? 0x40 : fenced == IBV_WR_SEND ? 0x43 : 0x44));
  CHECK(t.hear() == message(write ? 1 : 2, Octets(4, '\0')));
  CHECK(t.memory_a[7] == 'r');
  CHECK(t.memory_a[15] == 's');
}

TEST_CASE("V-FEN-03: a Write, a Read of nothing and a fenced Write are done at the peer one after the other",
          "[wired][rnicdv][V-FEN-03][V-FEN-01]") {
  RawPeer t;
  REQUIRE(post(t.qp_a, {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {0x2000, 6}}, {t.sge(0, 4)}) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0, 0}}) == 0);
  REQUIRE(post(t.qp_a, {3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_FENCE, {0x2000, 6}}, {t.sge(0, 4)}) == 0);
  const Octets write = tagged(0, 6, 0x2000, Octets(4, '\0'));
  CHECK(t.hear() == write);
  const auto request = asked(t);
  CHECK(request.size_bytes == 0);
  REQUIRE(t.hears_nothing());
  answer(t, request, '\0');
  CHECK(t.hear() == write);
  for (std::uint64_t id = 1; id <= 3; ++id) expect(t.cq_a, id);
}

TEST_CASE("V-FEN-02: a Local Fence has an invalidation wait for all before it, and without one it does not",
          "[wired][rnicdv][V-FEN-02][V-MWR-03][V-ORD-03]") {
  RawPeer t;
  const bool fence = GENERATE(true, false);
  ibv_mr* other = t.a.make_mr(t.memory_a.data() + 1024, 64, RawPeer::kAll);
  REQUIRE(post_read(t, 1, t.sge(0, 8)) == 0);
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = fence ? unsigned{IBV_SEND_SIGNALED} | IBV_SEND_FENCE : unsigned{IBV_SEND_SIGNALED};
  wr.invalidate_rkey = other->rkey;
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(t.qp_a, &wr, &bad) == 0);
  const auto request = asked(t);
  const auto valid = [&] { return test::direct_of(t.a, other->rkey).valid == 1; };
  if (fence) {
    REQUIRE(t.hears_nothing());
    CHECK(valid());
  } else {
    CHECK(comes_true([&] { return !valid(); }));
  }
  CHECK(t.nothing_completes());
  answer(t, request, 'r');
  expect(t.cq_a, 1);
  expect(t.cq_a, 2);
  CHECK_FALSE(valid());
  CHECK(t.memory_a[7] == 'r');
}

TEST_CASE("V-RD-04: strictly a Read leaves whatever its sink is, and is judged when it is answered",
          "[wired][rnicdv][V-RD-03][V-RD-04]") {
  SECTION("a sink with a local right alone") {
    RawPeer t(4, 4, RawPeer::kRemote, kStrict);
    ibv_mr* local = t.a.make_mr(t.memory_a.data(), 64, IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(post_read(t, 1, sge_of(local, t.memory_a.data(), 8)) == 0);
    const auto request = asked(t);
    CHECK(request.sink_stag.value == local->rkey);
    CHECK(t.nothing_completes());
    CHECK(t.attr().state == RNICDV_QPS_RTS);
    answer(t, request, 'r');
    expect(t.cq_a, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK(t.event() == IBV_EVENT_QP_ACCESS_ERR);
    const auto heard = t.hear_terminate();
    REQUIRE(heard);
    CHECK(heard->code.word() == 0x1102);
    CHECK(t.memory_a[0] == '\0');
  }
  SECTION("a queue pair to which nobody may write") {
    RawPeer t(4, 4, IBV_ACCESS_REMOTE_READ, kStrict);
    REQUIRE(post_read(t, 1, t.sge(0, 8)) == 0);
    const auto request = asked(t);
    CHECK(t.nothing_completes());
    answer(t, request, 'r');
    expect(t.cq_a, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK(t.event() == IBV_EVENT_QP_ACCESS_ERR);
    CHECK(t.memory_a[0] == '\0');
  }
  SECTION("a sink that its peer may write to") {
    RawPeer t(4, 4, RawPeer::kRemote, kStrict);
    REQUIRE(post_read(t, 1, t.sge(0, 8)) == 0);
    const auto request = asked(t);
    CHECK(request.sink_stag.value == t.mr_a->rkey);
    answer(t, request, 'r');
    expect(t.cq_a, 1);
    CHECK(t.memory_a[7] == 'r');
    CHECK(t.memory_a[8] == '\0');
  }
  SECTION("no octets, of no STag") {
    RawPeer t(4, 4, RawPeer::kRemote, kStrict);
    REQUIRE(post_read(t, 1, {t.to(), 0, 0}) == 0);
    answer(t, asked(t), 'r');
    expect(t.cq_a, 1);
  }
}

TEST_CASE("V-RD-03: by default a Read has an STag of its own, for its Response and no longer",
          "[wired][rnicdv][V-RD-03]") {
  RawPeer t(4, 4, IBV_ACCESS_REMOTE_READ);
  ibv_mr* local = t.a.make_mr(t.memory_a.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(post_read(t, 1, sge_of(local, t.memory_a.data(), 8)) == 0);
  const auto request = asked(t);
  CHECK(request.sink_stag.value != local->rkey);
  answer(t, request, 'r');
  expect(t.cq_a, 1);
  CHECK(t.memory_a[7] == 'r');
  // A Write of its peer's to that.
  t.say(tagged(0, request.sink_stag.value, request.sink_to, "late"));
  const auto heard = t.hear_terminate();
  REQUIRE(heard);
  CHECK(t.event() == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(t.memory_a[0] == 'r');
}

TEST_CASE("V-ORD-07: of Reads no more are asked for than ORD says, and what is behind one too many waits with it",
          "[wired][rnicdv][V-ORD-07][V-IRD-05][V-IRD-06][V-RD-09]") {
  RawPeer t(2, 4);
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(post_read(t, id, t.sge(8 * id, 8)) == 0);
  REQUIRE(post(t.qp_a, {4}, {t.sge(64, 4)}) == 0);
  const auto first = asked(t), second = asked(t);
  REQUIRE(t.hears_nothing());
  answer(t, first, 'a');
  expect(t.cq_a, 1);
  const auto third = asked(t);
  CHECK(t.hear() == message(1, Octets(4, '\0')));
  answer(t, second, 'b');
  answer(t, third, 'c');
  for (std::uint64_t id = 2; id <= 4; ++id) expect(t.cq_a, id);
  CHECK((t.memory_a[8] == 'a' && t.memory_a[16] == 'b' && t.memory_a[24] == 'c'));
  SECTION("with ORD 0 a Read fails") {
    RawPeer none(0, 4);
    REQUIRE(post_read(none, 1, none.sge(0, 8)) == 0);
    expect(none.cq_a, 1, IBV_WC_LOC_QP_OP_ERR);
  }
}

TEST_CASE("V-IRD-05: of ORD and IRD as much can be had as the device has, and one more is refused whole",
          "[wired][rnicdv][V-IRD-05][V-IS-20][V-IS-21][V-MOD-07]") {
  Wired t;
  ibv_cq* cq = t.a.make_cq(16);
  ibv_qp* qp = t.a.make_qp(cq, cq, 4);
  ibv_device_attr_ex device{};
  REQUIRE(provider::query_device_ex(context_of(t.a), nullptr, &device, sizeof device) == 0);
  const auto ord = static_cast<std::uint32_t>(device.orig_attr.max_qp_init_rd_atom);
  const auto ird = static_cast<std::uint32_t>(device.orig_attr.max_qp_rd_atom);
  const auto set = [&](std::uint32_t wanted_ord, std::uint32_t wanted_ird) {
    return modify(qp, RNICDV_QP_ORD | RNICDV_QP_IRD, mod_of(0, 0, wanted_ord, wanted_ird));
  };
  REQUIRE(set(ord, ird) == 0);
  CHECK(direct_of(qp).ord == ord);
  CHECK(direct_of(qp).ird == ird);
  REQUIRE(set(3, 5) == 0);
  CHECK(set(ord + 1, 5) == EINVAL);
  CHECK(set(3, ird + 1) == EINVAL);
  CHECK(direct_of(qp).ord == 3);
  CHECK(direct_of(qp).ird == 5);
  t.end();
}

TEST_CASE("V-INV-06: a Read with Invalidate into a shared region is done, and then it is an error",
          "[wired][rnicdv][V-INV-06][V-MR-21]") {
  RawPeer t;
  const rnicdv_mr_init again{
      .iova = t.to(), .access = RNICDV_LOCAL_READ | RNICDV_LOCAL_WRITE | RNICDV_REMOTE_WRITE, .key = 1};
  ibv_mr* const shared = rnicdv_reg_shared_mr(t.mr_a, t.a.pd, &again);
  REQUIRE(shared != nullptr);
  REQUIRE(post(t.qp_a, {1, provider::kReadInvalidate, IBV_SEND_SIGNALED, {0x1000, 5}}, {{t.to(), 8, shared->lkey}}) ==
          0);
  answer(t, asked(t), 'r');
  const ibv_wc wc = poll(t.cq_a, 1)[0];
  CHECK(wc.wr_id == 1);
  CHECK(wc.status != IBV_WC_SUCCESS);
  CHECK(wc.status != IBV_WC_WR_FLUSH_ERR);
  CHECK(t.memory_a[7] == 'r');
  CHECK(test::direct_of(t.a, shared->rkey).valid == 1);
  REQUIRE(t.hear_terminate());
  CHECK(t.no_event());
}
