// Whose resources are whose: what the daemon looks after between applications that do not trust each
// other (RFC 5040 s8.1, RFC 5042).
#include "control/limits.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("W-RDMAP-54: whatever belongs to another application is refused, whichever way it is named",
          "[control][W-RDMAP-54][W-RDMAP-53][V-RNIC-01]") {
  Daemon daemon;
  App mine(daemon), other(daemon);
  for (int i = 0; i < 40; ++i) other.pd();  // its handles are numbers that we have not got
  const auto pd = other.pd(), cq = other.cq();
  const auto srq = other.try_srq(pd, 4).as<rnic_create_srq_reply>().srq;
  const auto qp = other.qp(pd, cq);
  std::uint64_t word = 0;
  const auto mr = other.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
  rnic_alloc_mw window{};
  window.pd = pd;
  const auto mw = other.ask(RNIC_ALLOC_MW, window).as<rnic_alloc_mw_reply>().mw;
  const auto own_pd = mine.pd(), own_cq = mine.cq();
  REQUIRE(mine.ask(RNIC_CREATE_QP, mine.qp_request(own_pd, own_cq)).status == 0);

  // To build on: nobody shares a CQ, a PD or an SRQ with whom it does not trust.
  CHECK(mine.ask(RNIC_CREATE_QP, mine.qp_request(own_pd, cq)).status == EINVAL);
  CHECK(mine.ask(RNIC_CREATE_QP, mine.qp_request(pd, own_cq)).status == EINVAL);
  CHECK(mine.ask(RNIC_CREATE_QP, mine.qp_request(own_pd, own_cq, srq)).status == EINVAL);
  auto mixed = mine.qp_request(own_pd, own_cq);
  mixed.recv_cq = cq;
  CHECK(mine.ask(RNIC_CREATE_QP, mixed).status == EINVAL);
  CHECK(mine.try_srq(pd, 4).status == EINVAL);
  CHECK(mine.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).status == EINVAL);
  CHECK(mine.ask(RNIC_ALLOC_MW, window).status == EINVAL);
  // To change, to ask after, to destroy.
  rnic_modify_qp modify{};
  modify.qp_number = qp;
  modify.mask = RNIC_MODIFY_STATE;
  modify.state = RNIC_QP_ERROR;
  CHECK(mine.ask(RNIC_MODIFY_QP, modify).status == EINVAL);
  CHECK(mine.by_handle(RNIC_QUERY_QP, qp).status == EINVAL);
  CHECK(mine.by_handle(RNIC_DESTROY_QP, qp).status == EINVAL);
  CHECK(mine.by_handle(RNIC_DESTROY_SRQ, srq).status == EINVAL);
  CHECK(mine.by_handle(RNIC_DESTROY_CQ, cq).status == EINVAL);
  CHECK(mine.by_handle(RNIC_DEREG_MR, mr).status == EINVAL);
  CHECK(mine.by_handle(RNIC_DEALLOC_MW, mw).status == EINVAL);
  CHECK(mine.by_handle(RNIC_DEALLOC_PD, pd).status == EINVAL);
  CHECK(other.by_handle(RNIC_QUERY_QP, qp).status == 0);
}

TEST_CASE("W-RDMAP-53: how many entries a CQ has, and how many CQs there are, the daemon says",
          "[control][W-RDMAP-53][V-IS-02]") {
  Daemon daemon;
  App app(daemon);
  CHECK(app.try_cq(control::kCqesMax).status == 0);
  CHECK(app.try_cq(control::kCqesMax + 1).status == EINVAL);
  // The memory that it lies in is the daemon's to give, and bounded.
  int last = 0;
  for (int i = 0; i < 2000 && last == 0; ++i) last = app.try_cq(control::kCqesMax).status;
  CHECK(last == ENOMEM);
  App other(daemon);
  CHECK(other.try_cq(16).status == 0);
}

TEST_CASE("W-RDMAP-61: a process can ask for places in the inbound read queue, and not take them",
          "[control][W-RDMAP-61][W-RDMAP-60]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto ird = [&] { return app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().ird; };
  const auto ask = [&](std::uint32_t places) {
    rnic_modify_qp modify{};
    modify.qp_number = number;
    modify.mask = RNIC_MODIFY_IRD;
    modify.ird = places;
    return app.ask(RNIC_MODIFY_QP, modify).status;
  };
  CHECK(ask(control::kReadDepthMax) == 0);
  CHECK(ird() == control::kReadDepthMax);
  CHECK(ask(control::kReadDepthMax + 1) == EINVAL);
  CHECK(ird() == control::kReadDepthMax);
}

TEST_CASE("V-IS-22: what is named by a number of nothing is refused, whatever is asked of it",
          "[control][V-IS-22][V-IS-11][V-IS-18][V-IS-07][V-VB-05][V-VB-08][V-VB-09][V-VB-12][V-VB-13][V-VB-15]"
          "[V-VB-16][V-VB-17][V-IMM-01]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto srq = app.try_srq(pd, 8).as<rnic_create_srq_reply>().srq;
  const auto number = app.qp(pd, cq);
  constexpr std::uint32_t kNothing = 0xABCDEF;
  rnic_modify_qp modify{};
  modify.qp_number = kNothing;
  modify.mask = RNIC_MODIFY_STATE;
  modify.state = RNIC_QP_ERROR;
  CHECK(app.ask(RNIC_MODIFY_QP, modify).status == EINVAL);
  CHECK(app.ask(RNIC_RESIZE_CQ, rnic_resize_cq{kNothing, 64}).status == EINVAL);
  CHECK(app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{kNothing, RNIC_SRQ_LIMIT, 1, 0, 0, 0}).status == EINVAL);
  for (const std::uint32_t type : {RNIC_QUERY_QP, RNIC_DESTROY_QP, RNIC_DESTROY_CQ, RNIC_QUERY_SRQ, RNIC_DESTROY_SRQ,
                                   RNIC_DEALLOC_PD, RNIC_DEREG_MR})
    CHECK(app.by_handle(type, kNothing).status == EINVAL);
  // Nor does a number of another kind do.
  CHECK(app.by_handle(RNIC_DESTROY_CQ, srq).status == EINVAL);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, cq).status == EINVAL);
  CHECK(app.by_handle(RNIC_DEALLOC_PD, cq).status == EINVAL);
  const auto told = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(told.state == RNIC_QP_IDLE);
  // All are there still, and go in their order.
  CHECK(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == 0);
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == 0);
}
