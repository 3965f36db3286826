// What ibv_modify_qp asks for on a device of face roce, on each step from each state, with the real provider, daemon
// and data plane.
#include <cstring>
#include <optional>
#include <vector>

#include "unit/provider/wired.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr const char* kRoceDevices =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:m\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:m\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\nface = \"roce\"\n";

// As the kernel's table has them for RC (drivers/infiniband/core/verbs.c), but for what needs an alternate path.
struct Step {
  ibv_qp_state from, to;
  std::vector<int> required, optional;
};
const std::vector<int> kNone;
const std::vector<int> kInit{IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS};
const std::vector<int> kRtr{IBV_QP_AV,     IBV_QP_PATH_MTU,           IBV_QP_DEST_QPN,
                            IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER};
const std::vector<int> kRts{IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_SQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC};
const std::vector<int> kAlways{IBV_QP_CUR_STATE, IBV_QP_ACCESS_FLAGS, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE};
const std::vector<Step> kSteps{
    {IBV_QPS_RESET, IBV_QPS_RESET, kNone, kNone},
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, kNone},
    {IBV_QPS_RESET, IBV_QPS_ERR, kNone, kNone},
    {IBV_QPS_INIT, IBV_QPS_RESET, kNone, kNone},
    {IBV_QPS_INIT, IBV_QPS_INIT, kNone, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kRtr, {IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX}},
    {IBV_QPS_INIT, IBV_QPS_ERR, kNone, kNone},
    {IBV_QPS_RTR, IBV_QPS_RESET, kNone, kNone},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRts, kAlways},
    {IBV_QPS_RTR, IBV_QPS_ERR, kNone, kNone},
    {IBV_QPS_RTS, IBV_QPS_RESET, kNone, kNone},
    {IBV_QPS_RTS, IBV_QPS_RTS, kNone, kAlways},
    {IBV_QPS_RTS, IBV_QPS_ERR, kNone, kNone},
    {IBV_QPS_ERR, IBV_QPS_RESET, kNone, kNone},
    {IBV_QPS_ERR, IBV_QPS_ERR, kNone, kNone},
};
const std::vector<ibv_qp_state> kStates{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                        IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
const std::vector<int> kAll{IBV_QP_CUR_STATE,
                            IBV_QP_EN_SQD_ASYNC_NOTIFY,
                            IBV_QP_ACCESS_FLAGS,
                            IBV_QP_PKEY_INDEX,
                            IBV_QP_PORT,
                            IBV_QP_QKEY,
                            IBV_QP_AV,
                            IBV_QP_PATH_MTU,
                            IBV_QP_TIMEOUT,
                            IBV_QP_RETRY_CNT,
                            IBV_QP_RNR_RETRY,
                            IBV_QP_RQ_PSN,
                            IBV_QP_MAX_QP_RD_ATOMIC,
                            IBV_QP_ALT_PATH,
                            IBV_QP_MIN_RNR_TIMER,
                            IBV_QP_SQ_PSN,
                            IBV_QP_MAX_DEST_RD_ATOMIC,
                            IBV_QP_PATH_MIG_STATE,
                            IBV_QP_CAP,
                            IBV_QP_DEST_QPN,
                            IBV_QP_RATE_LIMIT};

int sum(const std::vector<int>& bits) {
  int mask = 0;
  for (const int bit : bits) mask |= bit;
  return mask;
}

const Step* step_of(ibv_qp_state from, ibv_qp_state to) {
  for (const Step& step : kSteps)
    if (step.from == from && step.to == to) return &step;
  return nullptr;
}

// A queue pair, and what it may be told: whoever it is to meet never comes.
struct One : Wired {
  ibv_cq* cq;
  ibv_qp* qp;

  One() : Wired(kRoceDevices), cq(a.make_cq(16)), qp(a.make_qp(cq, cq, 4, nullptr)) { REQUIRE(qp != nullptr); }

  ibv_qp_attr attributes(ibv_qp_state to, ibv_qp_state from = IBV_QPS_RESET) const {
    ibv_qp_attr all{};
    all.qp_state = to;
    all.cur_qp_state = from;
    all.path_mtu = IBV_MTU_512;
    all.rq_psn = 0x123456;
    all.sq_psn = 0xABCDEF;
    all.dest_qp_num = 0x777;
    all.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    all.ah_attr.is_global = 1;
    all.ah_attr.port_num = 1;
    all.ah_attr.sl = 3;
    all.ah_attr.grh.sgid_index = 1;
    all.ah_attr.grh.hop_limit = 9;
    all.ah_attr.grh.traffic_class = 0x20;
    all.ah_attr.grh.flow_label = 0x12345;
    const std::uint8_t peer[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 9, 2};
    std::memcpy(all.ah_attr.grh.dgid.raw, peer, sizeof peer);
    all.port_num = 1;
    all.max_rd_atomic = 5;
    all.max_dest_rd_atomic = 6;
    all.min_rnr_timer = 13;
    all.timeout = 17;
    all.retry_cnt = 6;
    all.rnr_retry = 5;
    return all;
  }
  int modify(ibv_qp_attr all, int mask) {
    const int error = provider::modify_qp(qp, &all, mask);
    if (error == 0 && (mask & IBV_QP_STATE) != 0) qp->state = all.qp_state;  // as libibverbs does
    return error;
  }
  int step(ibv_qp_state from, ibv_qp_state to, int mask) { return modify(attributes(to, from), IBV_QP_STATE | mask); }
  void bring_to(ibv_qp_state wanted) {
    REQUIRE(step(state_of(qp), IBV_QPS_RESET, 0) == 0);
    if (wanted == IBV_QPS_ERR) REQUIRE(step(IBV_QPS_RESET, IBV_QPS_ERR, 0) == 0);
    for (const auto& [from, to, required, optional] : kSteps) {
      if (wanted == IBV_QPS_ERR || from == to || to > wanted || to <= from || to > IBV_QPS_RTS) continue;
      REQUIRE(step(from, to, sum(required)) == 0);
    }
    REQUIRE(state_of(qp) == wanted);
  }
};

}  // namespace

TEST_CASE("on the RoCE face each step of ibv_modify_qp takes InfiniBand's attributes and no others", "[wired][roce]") {
  One t;
  for (const ibv_qp_state from : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR}) {
    for (const ibv_qp_state to : kStates) {
      CAPTURE(from, to);
      t.bring_to(from);
      const Step* step = step_of(from, to);
      if (step == nullptr) {
        for (const int mask : {0, sum(kInit), sum(kRtr), sum(kRts)}) CHECK(t.step(from, to, mask) == EINVAL);
        CHECK(state_of(t.qp) == from);
        continue;
      }
      const int required = sum(step->required), optional = sum(step->optional);
      for (const int one : kAll) {
        CAPTURE(one);
        if ((required & one) != 0) {
          CHECK(t.step(from, to, required & ~one) == EINVAL);
        } else if ((optional & one) == 0) {
          CHECK(t.step(from, to, required | one) != 0);
        } else {
          CHECK(t.step(from, to, required | one) == 0);
          t.bring_to(from);
        }
      }
      CHECK(state_of(t.qp) == from);
      CHECK(t.step(from, to, required) == 0);
      CHECK(state_of(t.qp) == to);
      t.bring_to(from);
      CHECK(t.step(from, to, required | optional) == 0);
      CHECK(state_of(t.qp) == to);
    }
  }
}

TEST_CASE("on the RoCE face a Modify that names no state changes attributes of the state that it finds",
          "[wired][roce]") {
  One t;
  CHECK(t.modify(t.attributes(IBV_QPS_RESET), IBV_QP_ACCESS_FLAGS) == EINVAL);
  t.bring_to(IBV_QPS_RTS);
  ibv_qp_attr changed = t.attributes(IBV_QPS_RTS);
  changed.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  changed.min_rnr_timer = 3;
  CHECK(t.modify(changed, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER) == 0);
  CHECK(attributes_of(t.qp).qp_access_flags == IBV_ACCESS_REMOTE_READ);
  CHECK(attributes_of(t.qp).min_rnr_timer == 3);
  CHECK(t.modify(changed, IBV_QP_PATH_MTU) == EINVAL);
  CHECK(state_of(t.qp) == IBV_QPS_RTS);
}

TEST_CASE("on the RoCE face a value that cannot be is refused, and nothing has changed", "[wired][roce]") {
  One t;
  t.bring_to(IBV_QPS_INIT);
  const auto refused = [&](auto change, const std::vector<int>& mask, ibv_qp_state to) {
    const ibv_qp_state from = state_of(t.qp);
    ibv_qp_attr attributes = t.attributes(to, from);
    change(attributes);
    return t.modify(attributes, IBV_QP_STATE | sum(mask)) == EINVAL && state_of(t.qp) == from;
  };
  CHECK(refused([](ibv_qp_attr& a) { a.pkey_index = 1; }, kInit, IBV_QPS_INIT));
  CHECK(refused([](ibv_qp_attr& a) { a.port_num = 2; }, kInit, IBV_QPS_INIT));
  CHECK(refused([](ibv_qp_attr& a) { a.path_mtu = IBV_MTU_2048; }, kRtr, IBV_QPS_RTR));  // more than the port has
  CHECK(refused([](ibv_qp_attr& a) { a.ah_attr.port_num = 2; }, kRtr, IBV_QPS_RTR));
  CHECK(refused([](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 7; }, kRtr, IBV_QPS_RTR));
  CHECK(refused([](ibv_qp_attr& a) { a.ah_attr.grh.dgid = {}; }, kRtr, IBV_QPS_RTR));
  CHECK(refused([](ibv_qp_attr& a) { a.max_dest_rd_atomic = 129; }, kRtr, IBV_QPS_RTR));
  CHECK(refused([](ibv_qp_attr& a) { a.min_rnr_timer = 32; }, kRtr, IBV_QPS_RTR));
  REQUIRE(t.step(IBV_QPS_INIT, IBV_QPS_RTR, sum(kRtr)) == 0);
  CHECK(refused([](ibv_qp_attr& a) { a.timeout = 32; }, kRts, IBV_QPS_RTS));
  CHECK(refused([](ibv_qp_attr& a) { a.retry_cnt = 8; }, kRts, IBV_QPS_RTS));
  CHECK(refused([](ibv_qp_attr& a) { a.rnr_retry = 8; }, kRts, IBV_QPS_RTS));
  std::vector<int> with_more = kRts;
  with_more.push_back(IBV_QP_CUR_STATE);
  CHECK(refused([](ibv_qp_attr& a) { a.cur_qp_state = IBV_QPS_RTS; }, with_more, IBV_QPS_RTS));
  with_more.back() = IBV_QP_PATH_MIG_STATE;
  CHECK(refused([](ibv_qp_attr& a) { a.path_mig_state = IBV_MIG_REARM; }, with_more, IBV_QPS_RTS));
}

TEST_CASE("on the RoCE face ibv_query_qp tells each attribute as it was set", "[wired][roce]") {
  One t;
  t.bring_to(IBV_QPS_RTS);
  const ibv_qp_attr told = attributes_of(t.qp), set = t.attributes(IBV_QPS_RTS);
  CHECK(told.qp_state == IBV_QPS_RTS);
  CHECK(told.cur_qp_state == IBV_QPS_RTS);
  CHECK(told.path_mtu == set.path_mtu);
  CHECK(told.rq_psn == set.rq_psn);
  CHECK(told.sq_psn == set.sq_psn);
  CHECK(told.dest_qp_num == set.dest_qp_num);
  CHECK(told.qp_access_flags == set.qp_access_flags);
  CHECK(told.pkey_index == 0);
  CHECK(told.port_num == 1);
  CHECK(told.max_rd_atomic == set.max_rd_atomic);
  CHECK(told.max_dest_rd_atomic == set.max_dest_rd_atomic);
  CHECK(told.min_rnr_timer == set.min_rnr_timer);
  CHECK(told.timeout == set.timeout);
  CHECK(told.retry_cnt == set.retry_cnt);
  CHECK(told.rnr_retry == set.rnr_retry);
  CHECK(told.ah_attr.is_global == 1);
  CHECK(told.ah_attr.sl == 3);
  CHECK(told.ah_attr.grh.flow_label == 0x12345);
  CHECK(told.ah_attr.grh.traffic_class == 0x20);
  CHECK(told.ah_attr.grh.hop_limit == 9);
  CHECK(told.ah_attr.grh.sgid_index == 1);
  CHECK(std::memcmp(told.ah_attr.grh.dgid.raw, set.ah_attr.grh.dgid.raw, 16) == 0);
  CHECK(told.path_mig_state == IBV_MIG_MIGRATED);
  t.bring_to(IBV_QPS_RESET);
  CHECK(attributes_of(t.qp).rq_psn == 0);
  CHECK(attributes_of(t.qp).qp_access_flags == 0);
  CHECK(attributes_of(t.qp).timeout == 0);
}
