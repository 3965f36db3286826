// The states of a queue pair as an application has them: every cell of verbs.md s2.1 that Modify QP has, what is
// changed on the way, and what becomes of work.
#include "unit/provider/wired.hpp"

#include <memory>

using namespace rnic;
using namespace rnic::test;

namespace {

struct Cell {
  ibv_qp_state asked;
  int error;
  ibv_qp_state then;
};
struct Row {
  ibv_qp_state from;
  std::vector<Cell> cells;
};

// Idle is INIT here. What ibverbs has otherwise than the matrix: a way down that is behind the queue pair already, or
// that it is on, is no error (V-MOD-09); librdmacm asks for SQD whoever was first. RESET out of SQD and SQE waits for
// their end, which does not come here.
const Row kRows[] = {
    {IBV_QPS_INIT,
     {{IBV_QPS_INIT, 0, IBV_QPS_INIT},
      {IBV_QPS_RTS, EINVAL, IBV_QPS_INIT},
      {IBV_QPS_SQD, 0, IBV_QPS_INIT},
      {IBV_QPS_SQE, EINVAL, IBV_QPS_INIT},
      {IBV_QPS_RTR, 0, IBV_QPS_RTR},
      {IBV_QPS_RESET, 0, IBV_QPS_RESET},
      {IBV_QPS_ERR, 0, IBV_QPS_ERR}}},
    {IBV_QPS_RTS,
     {{IBV_QPS_INIT, EINVAL, IBV_QPS_RTS},
      {IBV_QPS_RTR, EINVAL, IBV_QPS_RTS},
      {IBV_QPS_RTS, 0, IBV_QPS_RTS},
      {IBV_QPS_SQD, 0, IBV_QPS_SQD},
      {IBV_QPS_SQE, 0, IBV_QPS_SQE},
      {IBV_QPS_RESET, 0, IBV_QPS_RESET},
      {IBV_QPS_ERR, 0, IBV_QPS_ERR}}},
    {IBV_QPS_SQD,
     {{IBV_QPS_INIT, EINVAL, IBV_QPS_SQD},
      {IBV_QPS_RTS, EINVAL, IBV_QPS_SQD},
      {IBV_QPS_SQD, 0, IBV_QPS_SQD},
      {IBV_QPS_SQE, EINVAL, IBV_QPS_SQD},
      {IBV_QPS_RTR, EINVAL, IBV_QPS_SQD},
      {IBV_QPS_ERR, 0, IBV_QPS_SQD}}},
    {IBV_QPS_SQE,
     {{IBV_QPS_INIT, EINVAL, IBV_QPS_SQE},
      {IBV_QPS_RTS, EINVAL, IBV_QPS_SQE},
      {IBV_QPS_SQD, 0, IBV_QPS_SQE},
      {IBV_QPS_SQE, EINVAL, IBV_QPS_SQE},
      {IBV_QPS_RTR, EINVAL, IBV_QPS_SQE},
      {IBV_QPS_ERR, 0, IBV_QPS_SQE}}},
    {IBV_QPS_ERR,
     {{IBV_QPS_RTS, EINVAL, IBV_QPS_ERR},
      {IBV_QPS_SQD, 0, IBV_QPS_ERR},
      {IBV_QPS_SQE, EINVAL, IBV_QPS_ERR},
      {IBV_QPS_ERR, 0, IBV_QPS_ERR},
      {IBV_QPS_RTR, 0, IBV_QPS_RTR},
      {IBV_QPS_RESET, 0, IBV_QPS_RESET},
      {IBV_QPS_INIT, 0, IBV_QPS_INIT}}},
};

// A queue pair in a state, which it keeps: no worker turns.
struct Standing : WiredPair {
  explicit Standing(ibv_qp_state state)
      : qp(state == IBV_QPS_INIT ? a.make_qp(end_a.send_cq, end_a.receive_cq, 4) : end_a.qp) {
    stop_turning();
    if (state != IBV_QPS_RTS) REQUIRE(to_state(qp, state) == 0);
    REQUIRE(state_of(qp) == state);
  }
  ibv_qp* qp;
};

}  // namespace

TEST_CASE("V-ST-01: Modify QP goes where the matrix lets it, at once, and nowhere else",
          "[wired][V-ST-01][V-ST-03][V-IS-24][V-IDLE-03][V-RTS-03][V-TERM-04][V-ERRST-02][V-CLS-01][V-MOD-09]") {
  for (const Row& row : kRows) {
    std::unique_ptr<Standing> t;
    for (const Cell& cell : row.cells) {
      INFO("from " << row.from << " to " << cell.asked);
      if (t == nullptr || state_of(t->qp) != row.from) t = std::make_unique<Standing>(row.from);
      CHECK(to_state(t->qp, cell.asked) == cell.error);
      CHECK(state_of(t->qp) == cell.then);
    }
  }
}

TEST_CASE("V-ST-02: a queue pair's state changes by its own Modify, or as the matrix has it, and not with others",
          "[wired][V-ST-02][V-RTS-07]") {
  WiredPair t;
  ibv_qp* bystander = t.a.make_qp(t.end_a.send_cq, t.end_a.receive_cq, 4);
  REQUIRE(bystander != nullptr);
  REQUIRE(post_receive(t.end_a.qp, 1) == 0);
  REQUIRE(post_receive(bystander, 2) == 0);
  REQUIRE(post(bystander, {3}) == 0);
  CHECK(state_of(bystander) == IBV_QPS_INIT);
  CHECK(state_of(t.end_a.qp) == IBV_QPS_RTS);
  REQUIRE(to_state(bystander, IBV_QPS_ERR) == 0);
  CHECK(state_of(t.end_a.qp) == IBV_QPS_RTS);
  REQUIRE(to_state(bystander, IBV_QPS_RTR) == 0);
  REQUIRE(to_state(t.end_b.qp, IBV_QPS_SQD) == 0);
  REQUIRE(comes_true([&] { return state_of(t.end_a.qp) == IBV_QPS_RESET; }));
  CHECK(state_of(bystander) == IBV_QPS_RTR);
}

namespace {

struct Change {
  const char* what;
  int mask;
  ibv_qp_state state;
  unsigned access;
  std::uint8_t ord, ird;
  int error;
};

bool same(const ibv_qp_attr& one, const ibv_qp_attr& other) {
  return one.qp_state == other.qp_state && one.qp_access_flags == other.qp_access_flags &&
         one.max_rd_atomic == other.max_rd_atomic && one.max_dest_rd_atomic == other.max_dest_rd_atomic &&
         std::memcmp(&one.cap, &other.cap, sizeof one.cap) == 0;
}

int modify(ibv_qp* qp, const Change& change) {
  ibv_qp_attr attributes{};
  attributes.qp_state = change.state;
  attributes.qp_access_flags = change.access;
  attributes.max_rd_atomic = change.ord;
  attributes.max_dest_rd_atomic = change.ird;
  attributes.cap = {1024, 1024, 1, 1, 0};
  return provider::modify_qp(qp, &attributes, change.mask);
}

constexpr int kDepths = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;

}  // namespace

TEST_CASE("V-ST-05: a Modify of which a part cannot be changes nothing",
          "[wired][V-ST-05][V-ST-04][V-ST-03][V-MOD-01][V-MOD-03][V-IS-23][V-IS-20][V-IS-21][V-IMM-01][V-VB-16]") {
  SECTION("in Idle") {
    Wired t;
    ibv_cq* cq = t.a.make_cq(16);
    ibv_qp* qp = t.a.make_qp(cq, cq, 4);
    REQUIRE(modify(qp, {"", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | kDepths, IBV_QPS_INIT, IBV_ACCESS_REMOTE_READ, 3, 4,
                        0}) == 0);
    const ibv_qp_attr before = attributes_of(qp);
    CHECK(before.qp_access_flags == IBV_ACCESS_REMOTE_READ);
    CHECK(before.max_rd_atomic == 3);
    CHECK(before.max_dest_rd_atomic == 4);
    const unsigned both = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    const Change refused[] = {
        {"ORD above the device's", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | kDepths, IBV_QPS_RTR, both, 129, 5, EINVAL},
        {"IRD above the device's", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | kDepths, IBV_QPS_RTR, both, 5, 129, EINVAL},
        {"no such state", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, IBV_QPS_UNKNOWN, both, 0, 0, EINVAL},
        {"attributes on the way to Error", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, IBV_QPS_ERR, both, 0, 0, EINVAL},
        {"RTS without a stream", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | kDepths, IBV_QPS_RTS, both, 5, 5, EINVAL},
        {"depths of queues", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_CAP, IBV_QPS_RTR, both, 0, 0, EOPNOTSUPP},
    };
    for (const Change& change : refused) {
      INFO(change.what);
      CHECK(modify(qp, change) == change.error);
      CHECK(same(attributes_of(qp), before));
    }
  }
  SECTION("in RTS") {
    WiredPair t;
    ibv_qp* qp = t.end_a.qp;
    const ibv_qp_attr before = attributes_of(qp);
    REQUIRE(before.max_rd_atomic == 4);
    const std::uint8_t ird = before.max_dest_rd_atomic;
    const unsigned read_only = IBV_ACCESS_REMOTE_READ;
    const Change refused[] = {
        {"more ORD", IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTS, 0, 5, 0, EOPNOTSUPP},
        {"other IRD", IBV_QP_STATE | kDepths, IBV_QPS_RTS, 0, 2, std::uint8_t(ird + 1), EOPNOTSUPP},
        {"other rights", IBV_QP_ACCESS_FLAGS, IBV_QPS_RTS, read_only, 0, 0, EOPNOTSUPP},
        {"other rights, by name", IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, IBV_QPS_RTS, read_only, 0, 0, EOPNOTSUPP},
        {"less ORD and other rights", IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTS, read_only, 1, 0,
         EOPNOTSUPP},
        {"less ORD and depths of queues", IBV_QP_CAP | IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTS, 0, 1, 0, EOPNOTSUPP},
    };
    for (const Change& change : refused) {
      INFO(change.what);
      CHECK(modify(qp, change) == change.error);
      CHECK(same(attributes_of(qp), before));
    }
    // V-MOD-02, V-MOD-07: what can be had is had, and told.
    CHECK(modify(qp, {"", IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTS, 0, 2, 0, 0}) == 0);
    CHECK(attributes_of(qp).max_rd_atomic == 2);
  }
  SECTION("on the way down") {
    Standing t(GENERATE(IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR));
    const ibv_qp_attr before = attributes_of(t.qp);
    CHECK(modify(t.qp, {"", IBV_QP_ACCESS_FLAGS, IBV_QPS_ERR, IBV_ACCESS_REMOTE_READ, 0, 0, 0}) != 0);
    CHECK(modify(t.qp, {"", IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_ERR, 0, 1, 0, 0}) != 0);
    CHECK(same(attributes_of(t.qp), before));
  }
}

TEST_CASE("V-MOD-07: ORD and IRD are what was asked for, and 0 only where 0 was",
          "[wired][V-MOD-07][V-IRD-04][V-QQP-05]") {
  Wired t;
  ibv_cq* cq = t.a.make_cq(16);
  ibv_qp* qp = t.a.make_qp(cq, cq, 4);
  for (const auto& [ord, ird] : {std::pair<std::uint8_t, std::uint8_t>{1, 1}, {0, 7}, {7, 0}, {128, 128}}) {
    REQUIRE(modify(qp, {"", IBV_QP_STATE | kDepths, IBV_QPS_INIT, 0, ord, ird, 0}) == 0);
    CHECK(attributes_of(qp).max_rd_atomic == ord);
    CHECK(attributes_of(qp).max_dest_rd_atomic == ird);
  }
}

TEST_CASE("V-MOD-04: a queue pair's queues are not resized: it is not advertised, and refused, and work goes on",
          "[wired][V-MOD-04][V-MOD-06][V-QRN-20]") {
  WiredPair t(8);
  ibv_device_attr_ex device{};
  REQUIRE(provider::query_device_ex(&t.a.context->verbs.context, nullptr, &device, sizeof device) == 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_RESIZE_MAX_WR) == 0);
  for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(post_receive(t.end_b.qp, i, {t.end_b.sge(8 * i, 8)}) == 0);
  REQUIRE(post_receive(t.end_a.qp, 1) == 0);
  for (const std::uint32_t wr : {1u, 2u, 64u}) {
    ibv_qp_attr attributes{};
    attributes.cap = {wr, wr, 1, 1, 0};
    CHECK(provider::modify_qp(t.end_a.qp, &attributes, IBV_QP_CAP) == EOPNOTSUPP);
    CHECK(attributes_of(t.end_a.qp).cap.max_send_wr == 8);
  }
  for (std::uint64_t i = 0; i < 3; ++i) {
    REQUIRE(post(t.end_a.qp, {i}) == 0);
    expect(t.end_a.send_cq, i);
    expect(t.end_b.receive_cq, i);
  }
  CHECK_FALSE(next_async(t.a, 0));
  CHECK_FALSE(next_async(t.b, 0));
}

TEST_CASE("V-IDLE-07: what is posted in Idle is not begun, and done in its order when the connection is there",
          "[wired][V-IDLE-01][V-IDLE-02][V-IDLE-07][V-RTS-01][V-CONN-06][V-ORD-01]") {
  WiredPair::End from, to;
  Wired t;
  WiredPair::set_up(t.a, from, 16, nullptr);
  WiredPair::set_up(t.b, to, 16, nullptr);
  const auto nothing_is_told = [&] {
    ibv_wc wc{};
    for (ibv_cq* cq : {from.send_cq, from.receive_cq, to.send_cq, to.receive_cq})
      CHECK(provider::poll_cq(cq, 1, &wc) == 0);
  };
  const auto put = [&](std::uint64_t id) {
    REQUIRE(post_receive(to.qp, id, {to.sge(64 * id, 8)}) == 0);
    REQUIRE(post(from.qp, {id}, {from.sge(0, 8)}) == 0);
  };
  put(0);  // in RESET
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR})
    for (ibv_qp* qp : {from.qp, to.qp}) REQUIRE(to_state(qp, state, IBV_QP_ACCESS_FLAGS) == 0);
  put(1);
  REQUIRE(post(from.qp, {2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, to.remote(4096)}, {from.sge(0, 8)}) == 0);
  usleep(20'000);
  nothing_is_told();
  // The TCP connection is there, and octets have been sent both ways; the queue pair of the called end is in Idle.
  const Wired::Ids ids = t.call(from.qp);
  CHECK(state_of(to.qp) == IBV_QPS_RTR);
  CHECK(to_state(to.qp, IBV_QPS_RTS) == EINVAL);
  usleep(20'000);
  nothing_is_told();
  t.accept(ids, to.qp);
  for (std::uint64_t i = 0; i < 3; ++i) expect(from.send_cq, i);
  for (std::uint64_t i = 0; i < 2; ++i) expect(to.receive_cq, i);
  CHECK(state_of(from.qp) == IBV_QPS_RTS);
  CHECK(state_of(to.qp) == IBV_QPS_RTS);
}

TEST_CASE("V-ERRST-12: Idle can be had from Error when all is flushed, whether or not it has been polled",
          "[wired][V-ERRST-12][V-ERRST-08][V-ERRST-11][V-IDLE-05]") {
  Wired t;
  ibv_cq* cq = t.a.make_cq(64);
  ibv_qp* qp = t.a.make_qp(cq, cq, 16);
  for (std::uint64_t i = 0; i < 10; ++i) {
    REQUIRE(post_receive(qp, i) == 0);
    REQUIRE(post(qp, {100 + i, IBV_WR_SEND, 0}) == 0);
  }
  REQUIRE(to_state(qp, IBV_QPS_ERR) == 0);
  REQUIRE(to_state(qp, IBV_QPS_INIT) == 0);
  std::uint64_t next_receive = 0, next_send = 100;
  for (const ibv_wc& wc : poll(cq, 20)) {
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(wc.wr_id == (wc.wr_id < 100 ? next_receive : next_send));
    ++(wc.wr_id < 100 ? next_receive : next_send);
  }
  ibv_wc wc{};
  CHECK(provider::poll_cq(cq, 1, &wc) == 0);
}

TEST_CASE("V-ERRST-13: work is done or flushed, once, in order, wherever a Modify to Error finds it",
          "[wired][V-ERRST-13][V-ERRST-03][V-POLL-02][V-ERRST-01]") {
  WiredPair t(64);
  for (int round = 0; round < 12; ++round) {
    for (std::uint64_t i = 0; i < 48; ++i) {
      REQUIRE(post_receive(t.end_b.qp, i, {t.end_b.sge(0, 64)}) == 0);
      REQUIRE(post(t.end_a.qp, {i}, {t.end_a.sge(0, 64)}) == 0);
    }
    usleep(static_cast<useconds_t>(round * 37));
    REQUIRE(to_state(t.end_a.qp, IBV_QPS_ERR) == 0);
    std::size_t sent = 0, came = 0;
    bool flushed = false;
    std::uint64_t next = 0;
    for (const ibv_wc& wc : poll(t.end_a.send_cq, 48)) {
      CHECK(wc.wr_id == next++);
      if (wc.status == IBV_WC_SUCCESS)
        ++sent;
      else
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
      CHECK_FALSE((flushed && wc.status == IBV_WC_SUCCESS));
      flushed |= wc.status != IBV_WC_SUCCESS;
    }
    for (const ibv_wc& wc : poll(t.end_b.receive_cq, 48)) came += wc.status == IBV_WC_SUCCESS ? 1 : 0;
    (void)sent;
    (void)came;
    ibv_wc wc{};
    CHECK(provider::poll_cq(t.end_a.send_cq, 1, &wc) == 0);
    CHECK(provider::poll_cq(t.end_b.receive_cq, 1, &wc) == 0);
    t.join_again();
    while (next_async(t.a, 0) || next_async(t.b, 0)) {
    }
  }
}

TEST_CASE("V-MOD-10: RESET waits until all has been flushed", "[wired][V-MOD-10][V-ERRST-09]") {
  WiredPair t;
  for (std::uint64_t i = 0; i < 32; ++i) REQUIRE(post_receive(t.end_a.qp, i, {t.end_a.sge(0, 8)}) == 0);
  REQUIRE(to_state(t.end_a.qp, IBV_QPS_RESET) == 0);
  CHECK(state_of(t.end_a.qp) == IBV_QPS_RESET);
  ibv_wc all[64];
  REQUIRE(provider::poll_cq(t.end_a.receive_cq, 64, all) == 32);  // all of it at once
  for (std::uint64_t i = 0; i < 32; ++i) CHECK(all[i].status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
  t.join_again();
  REQUIRE(post_receive(t.end_b.qp, 7) == 0);
  REQUIRE(post(t.end_a.qp, {8}) == 0);
  expect(t.end_a.send_cq, 8);
  expect(t.end_b.receive_cq, 7);
}

TEST_CASE("V-CLS-05: who is closed with work under way ends in Error, and so does the peer",
          "[wired][V-CLS-05][V-CLS-06][V-RTS-06][V-AE-21][V-EH-04]") {
  WiredPair t;
  // A Read that is not answered: the peer's Send that nobody takes is in front of it.
  REQUIRE(post(t.end_a.qp, {1}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_a.send_cq, 1);
  REQUIRE(post(t.end_a.qp, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_b.remote()}, {t.end_a.sge(0, 8)}) == 0);
  REQUIRE(to_state(t.end_a.qp, IBV_QPS_SQD) == 0);
  CHECK(state_of(t.end_a.qp) == IBV_QPS_ERR);
  expect(t.end_a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
  for (const Application* app : {&t.a, &t.b}) {
    const auto told = next_async(*app, 10'000);
    REQUIRE(told);
    CHECK(told->type == IBV_EVENT_QP_FATAL);
  }
  CHECK(state_of(t.end_b.qp) == IBV_QPS_ERR);
}

TEST_CASE("V-QP-17: a queue pair is destroyed with work outstanding, and its memory is let go",
          "[wired][V-QP-17][V-QP-14][V-QP-16][V-WR-12][V-VB-17]") {
  WiredPair t;
  for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(post_receive(t.end_a.qp, i, {t.end_a.sge(0, 8)}) == 0);
  REQUIRE(post(t.end_a.qp, {1}, {t.end_a.sge(0, 8)}) == 0);  // which nobody takes
  REQUIRE(post(t.end_a.qp, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_b.remote()}, {t.end_a.sge(0, 8)}) == 0);
  REQUIRE(provider::destroy_qp(t.end_a.qp) == 0);
  CHECK(provider::dereg_mr(t.end_a.mr) == 0);
  ibv_wc wc{};
  CHECK(provider::poll_cq(t.end_a.receive_cq, 1, &wc) == 0);
  CHECK(provider::poll_cq(t.end_a.send_cq, 1, &wc) == 0);
  CHECK(provider::destroy_cq(t.end_a.send_cq) == 0);
  CHECK(provider::destroy_cq(t.end_a.receive_cq) == 0);
  REQUIRE(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
}
