// Protection domains: how many, and while they are in use.
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-PD-04: a PD in use cannot be deallocated", "[control][objects][V-PD-04][V-IS-08][V-VB-05]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  int word = 0;

  const auto mr = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DEREG_MR, mr).status == 0);

  const auto srq = app.try_srq(pd, 1).as<rnic_create_srq_reply>().srq;
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_SRQ, srq).status == 0);

  const auto number = app.qp(pd, app.cq());
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);

  rnic_alloc_mw window{};
  window.pd = pd;
  const auto mw = app.ask(RNIC_ALLOC_MW, window).as<rnic_alloc_mw_reply>().mw;
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DEALLOC_MW, mw).status == 0);

  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == 0);
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EINVAL);
}

TEST_CASE("V-PD-03: PDs of a device have different ids", "[control][objects][V-PD-03]") {
  Daemon daemon;
  App one(daemon), other(daemon);
  const auto a = one.pd(), b = one.pd(), c = other.pd();
  int word = 0;
  const auto pd_of = [&](App& app, std::uint32_t pd) {
    const Stag stag{app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().stag};
    return daemon.machine.devices[0]->table->query(stag)->pd.value;
  };
  const auto first = pd_of(one, a), second = pd_of(one, b), third = pd_of(other, c);
  CHECK(first != second);
  CHECK(first != third);
  CHECK(second != third);
}
