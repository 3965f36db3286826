// The RoCE face as an application sees it, with the real provider, daemon and data plane.
#include <algorithm>

#include "direct.hpp"
#include "unit/provider/oob.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::oob;

namespace {

constexpr const char* kRoceDevices =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.2/24\"\nmtu = 9000\n";

constexpr const char* kTwoRoce =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\nface = \"roce\"\n";

// Connected, the first with that patience and with as much as it can ask for.
struct TwoRoce : TwoEnds {
  explicit TwoRoce(std::uint8_t rnr_retry = 6, std::uint8_t min_rnr_timer = 12) : TwoEnds(kTwoRoce) {
    REQUIRE(x.to_init() == 0);
    REQUIRE(x.to_rtr(y) == 0);
    ibv_qp_attr rts = x.rts();
    rts.rnr_retry = rnr_retry;
    REQUIRE(x.modify(rts, kRtsMask) == 0);
    REQUIRE(y.to_init() == 0);
    ibv_qp_attr rtr = y.rtr(x);
    rtr.min_rnr_timer = min_rnr_timer;
    REQUIRE(y.modify(rtr, kRtrMask) == 0);
    REQUIRE(y.to_rts() == 0);
    passes(x, y, 100);
    passes(y, x, 200);
  }
  Remote at_y(std::size_t offset = 0) const {
    return {reinterpret_cast<std::uintptr_t>(y.memory.data()) + offset, y.mr->rkey};
  }
  ibv_sge of_x(std::size_t offset, std::uint32_t length) { return sge_of(x.mr, x.memory.data() + offset, length); }
};

}  // namespace

TEST_CASE("a device of face roce has InfiniBand's attributes, and one beside it iWARP's", "[wired][roce]") {
  Wired w(kRoceDevices);
  ibv_context* const roce = &w.a.context->verbs.context;
  ibv_context* const other_face = &w.b.context->verbs.context;
  ibv_port_attr port{}, other{};
  REQUIRE(provider::query_port(roce, 1, &port) == 0);
  REQUIRE(provider::query_port(other_face, 1, &other) == 0);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(port.pkey_tbl_len == 1);
  CHECK(other.pkey_tbl_len == 0);
  CHECK((port.port_cap_flags & IBV_PORT_IP_BASED_GIDS) != 0);
  CHECK((other.port_cap_flags & IBV_PORT_IP_BASED_GIDS) == 0);
  CHECK(port.gid_tbl_len == other.gid_tbl_len + 1);
  CHECK(port.active_mtu == IBV_MTU_1024);
  CHECK(other.active_mtu == IBV_MTU_4096);

  ibv_device_attr_ex device{}, iwarp{};
  REQUIRE(provider::query_device_ex(roce, nullptr, &device, sizeof device) == 0);
  REQUIRE(provider::query_device_ex(other_face, nullptr, &iwarp, sizeof iwarp) == 0);
  CHECK(device.orig_attr.max_pkeys == 1);
  CHECK(iwarp.orig_attr.max_pkeys == 0);
  CHECK(device.orig_attr.atomic_cap == IBV_ATOMIC_HCA);

  CHECK(state_of(w.a.make_qp(w.a.make_cq(4), w.a.make_cq(4), 4, nullptr)) == IBV_QPS_RESET);
  CHECK(state_of(w.b.make_qp(w.b.make_cq(4), w.b.make_cq(4), 4, nullptr)) == IBV_QPS_INIT);
}

TEST_CASE("W-ACK-02: what a Write's completion says is so, whoever asks", "[wired][roce][W-ACK-02]") {
  TwoRoce t;
  for (std::uint32_t i = 1; i <= 5000; ++i) {
    std::memcpy(t.x.memory.data(), &i, sizeof i);
    REQUIRE(post(t.x.qp, {i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, t.at_y(512)}, {t.of_x(0, sizeof i)}) == 0);
    expect(t.x.cq, i);
    std::uint32_t there = 0;
    std::memcpy(&there, t.y.memory.data() + 512, sizeof there);
    if (there != i) FAIL("Write " << i << " is complete, and " << there << " is there");
  }
}

TEST_CASE("W-ACK-06: a Write to a key that nobody has fails itself, and flushes what is behind it",
          "[wired][roce][W-ACK-06]") {
  TwoRoce t;
  REQUIRE(t.y.receive(9) == 0);
  REQUIRE(post(t.x.qp, {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, t.at_y()}, {t.of_x(0, 8)}) == 0);
  Remote wrong = t.at_y();
  wrong.rkey ^= 0xFF;
  REQUIRE(post(t.x.qp, {2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, wrong}, {t.of_x(0, 8)}) == 0);
  REQUIRE(post(t.x.qp, {3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, t.at_y(64)}, {t.of_x(0, 8)}) == 0);
  expect(t.x.cq, 1);
  expect(t.x.cq, 2, IBV_WC_REM_ACCESS_ERR);
  expect(t.x.cq, 3, IBV_WC_WR_FLUSH_ERR);
  CHECK(comes_true([&] { return state_of(t.x.qp) == IBV_QPS_ERR && state_of(t.y.qp) == IBV_QPS_ERR; }));
  expect(t.y.cq, 9, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("W-ACK-06: a Send that is longer than its receive is an invalid request", "[wired][roce][W-ACK-06]") {
  TwoRoce t;
  REQUIRE(t.y.receive(9) == 0);
  REQUIRE(post(t.x.qp, {1}, {t.of_x(0, 65)}) == 0);
  expect(t.x.cq, 1, IBV_WC_REM_INV_REQ_ERR);
  expect(t.y.cq, 9, IBV_WC_LOC_LEN_ERR);
}

TEST_CASE("W-ACK-10: a Send without a receive ends as rnr_retry has it", "[wired][roce][W-ACK-10]") {
  SECTION("after a time") {
    TwoRoce t(0, 14);
    REQUIRE(t.x.send(1) == 0);
    REQUIRE(t.x.send(2) == 0);
    expect(t.x.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    expect(t.x.cq, 2, IBV_WC_WR_FLUSH_ERR);
  }
  SECTION("never") {
    TwoRoce t(7, 1);
    REQUIRE(t.x.send(1) == 0);
    usleep(200'000);
    ibv_wc wc{};
    CHECK(provider::poll_cq(t.x.cq, 1, &wc) == 0);
    REQUIRE(t.y.receive(9) == 0);
    expect(t.y.cq, 9);
    expect(t.x.cq, 1);
  }
}

TEST_CASE("W-MEET-02: a peer that does not come costs the first request RETRY_EXC_ERR, and the others a flush",
          "[wired][roce][W-MEET-02]") {
  TwoEnds t(kTwoRoce);
  End& there = GENERATE(true, false) ? t.x : t.y;  // the lower address calls
  there.ready(&there == &t.x ? t.y : t.x);
  REQUIRE(there.send(1) == 0);
  REQUIRE(there.send(2) == 0);
  expect(there.cq, 1, IBV_WC_RETRY_EXC_ERR);
  expect(there.cq, 2, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("W-MEET-03: what is posted toward a caller in a pause that is longer than the retry time arrives",
          "[wired][roce][W-MEET-03]") {
  TwoEnds t(kTwoRoce);
  REQUIRE(t.x.to_init() == 0);
  REQUIRE(t.x.receive(9) == 0);
  REQUIRE(t.x.to_rtr(t.y) == 0);
  REQUIRE(t.x.to_rts() == 0);
  // It is refused again and again, and its pauses become longer than a second.
  REQUIRE(t.y.to_init() == 0);
  ibv_qp_attr other = t.y.rtr(t.x);
  ++other.rq_psn;
  REQUIRE(t.y.modify(other, kRtrMask) == 0);
  usleep(1'350'000);
  REQUIRE(t.y.reset() == 0);
  t.y.ready(t.x);
  REQUIRE(t.y.send(1) == 0);
  expect(t.y.cq, 1);
  expect(t.x.cq, 9);
}

TEST_CASE("W-ACK-11: a Read takes as many SGEs as a Send, into memory of Local Write only", "[wired][roce][W-ACK-11]") {
  TwoRoce t;
  ibv_device_attr_ex device{};
  REQUIRE(provider::query_device_ex(&t.a.context->verbs.context, nullptr, &device, sizeof device) == 0);
  CHECK(device.orig_attr.max_sge_rd == device.orig_attr.max_sge);
  std::vector<char> memory(4096);
  ibv_mr* const mr = t.a.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  for (std::size_t i = 0; i < 1024; ++i) t.y.memory[2048 + i] = static_cast<char>(i * 7 + 1);
  std::vector<ibv_sge> sges;
  for (std::uint32_t i = 0; i < 4; ++i) sges.push_back(sge_of(mr, memory.data() + i * 1000, 100 + i));
  REQUIRE(post(t.x.qp, {1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.at_y(2048)}, sges) == 0);
  expect(t.x.cq, 1);
  std::size_t at = 2048;
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(std::equal(memory.begin() + i * 1000, memory.begin() + i * 1000 + 100 + i, t.y.memory.begin() + at));
    at += 100 + i;
  }
  provider::dereg_mr(mr);
}

TEST_CASE("W-ACK-13: a Send with Immediate brings data and value in one receive", "[wired][roce][W-ACK-13]") {
  TwoRoce t;
  REQUIRE(t.y.receive(9) == 0);
  std::memset(t.x.memory.data(), 'i', 64);
  std::memset(t.y.memory.data() + 1024, 0, 64);
  ibv_sge sge = t.of_x(0, 40);
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = 0x44332211;
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(t.x.qp, &wr, &bad) == 0);
  const ibv_wc received = poll(t.y.cq, 1)[0];
  CHECK(received.wr_id == 9);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.wc_flags == IBV_WC_WITH_IMM);
  CHECK(received.imm_data == 0x44332211);
  CHECK(received.byte_len == 40);
  CHECK(std::count(t.y.memory.begin() + 1024, t.y.memory.begin() + 1088, 'i') == 40);
  const ibv_wc sent = poll(t.x.cq, 1)[0];
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(sent.opcode == IBV_WC_SEND);
}

TEST_CASE("on the RoCE face a peer's rights change in RTS, from the next request on", "[wired][roce]") {
  TwoRoce t;
  const auto grant = [&](unsigned access) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.qp_access_flags = access;
    return t.y.modify(attributes, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
  };
  const auto write = [&](std::uint64_t id) {
    return post(t.x.qp, {id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, t.at_y()}, {t.of_x(0, 8)});
  };
  const auto read = [&](std::uint64_t id) {
    return post(t.x.qp, {id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.at_y()}, {t.of_x(0, 8)});
  };
  const auto is_granted = [&](unsigned access) {
    const ibv_qp_attr is = t.y.asked();
    CHECK(is.qp_state == IBV_QPS_RTS);
    CHECK(is.qp_access_flags == access);
  };
  REQUIRE(grant(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == 0);
  is_granted(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(write(1) == 0);
  expect(t.x.cq, 1);
  REQUIRE(grant(kRemote) == 0);
  is_granted(kRemote);
  REQUIRE(read(2) == 0);
  expect(t.x.cq, 2);
  const bool takes_reads = GENERATE(true, false);
  const unsigned one = takes_reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  REQUIRE(grant(one) == 0);
  is_granted(one);
  REQUIRE((takes_reads ? read(3) : write(3)) == 0);
  expect(t.x.cq, 3);
  REQUIRE((takes_reads ? write(4) : read(4)) == 0);
  const ibv_wc refused = poll(t.x.cq, 1)[0];
  CHECK(refused.wr_id == 4);
  CHECK((refused.status == IBV_WC_REM_ACCESS_ERR || refused.status == IBV_WC_REM_INV_REQ_ERR));
  CHECK(comes_true([&] { return state_of(t.y.qp) == IBV_QPS_ERR; }));
}

TEST_CASE("on the RoCE face a queue pair that is closed by direct verbs is remembered as it is told of",
          "[wired][roce]") {
  TwoRoce t;
  rnicdv_qp_mod closing{};
  closing.state = RNICDV_QPS_CLOSING;
  REQUIRE(provider::direct::modify_qp(t.x.qp, &closing, RNICDV_QP_STATE) == 0);
  CHECK(t.x.qp->state == IBV_QPS_RTS);
  TwoRoce u;
  rnicdv_qp_mod terminate{};
  terminate.state = RNICDV_QPS_TERMINATE;
  REQUIRE(provider::direct::modify_qp(u.x.qp, &terminate, RNICDV_QP_STATE) == 0);
  CHECK(u.x.qp->state == IBV_QPS_ERR);
}
