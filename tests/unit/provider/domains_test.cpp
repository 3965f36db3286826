// Parent domains and thread domains: what stands for a PD is one, and goes last but for it.
#include "kit/catch.hpp"

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

struct Domains {
  Domains() : app(daemon), context(&app.context->verbs.context) {}
  ibv_pd* parent_domain(ibv_pd* of, ibv_td* td = nullptr) {
    ibv_parent_domain_init_attr init{};
    init.pd = of;
    init.td = td;
    return provider::alloc_parent_domain(context, &init);
  }
  int refusal(ibv_parent_domain_init_attr init) {
    errno = 0;
    return provider::alloc_parent_domain(context, &init) == nullptr ? errno : 0;
  }
  ibv_td* thread_domain() {
    ibv_td_init_attr init{};
    return provider::alloc_td(context, &init);
  }

  TestDaemon daemon;
  Application app;
  ibv_context* context;
};

}  // namespace

TEST_CASE("V-PD-01: what is made in a parent domain is of its protection domain", "[provider][domains][V-PD-01]") {
  Domains t;
  ibv_td* td = t.thread_domain();
  REQUIRE(td != nullptr);
  CHECK(td->context == t.context);
  ibv_pd* pd = t.app.pd;
  ibv_pd* parent = t.parent_domain(pd, td);
  REQUIRE(parent != nullptr);
  CHECK(parent->context == t.context);
  t.app.pd = parent;  // all that follows is made in it

  ibv_cq* cq = t.app.make_cq(8);
  ibv_srq* srq = t.app.make_srq(4);
  ibv_qp* qp = t.app.make_qp(cq, cq, 4, srq);
  static char buffer[64];
  ibv_mr* mr = t.app.make_mr(buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE((qp != nullptr && mr != nullptr));
  CHECK(qp->pd == parent);
  CHECK(t.daemon.relay().last(RNIC_CREATE_QP).as<rnic_create_qp>().pd == pd->handle);
  CHECK(t.daemon.relay().last(RNIC_CREATE_SRQ).as<rnic_create_srq>().pd == pd->handle);
  CHECK(t.daemon.relay().last(RNIC_REG_MR).as<rnic_reg_mr>().pd == pd->handle);

  t.app.pd = pd;  // and beside it what is made in the PD itself
  CHECK(t.app.make_qp(cq, cq, 4, srq) != nullptr);
}

TEST_CASE("V-PD-04: a domain that something stands for, or on, is busy", "[provider][domains][V-PD-04][V-IS-08]") {
  Domains t;
  ibv_td* td = t.thread_domain();
  ibv_pd* first = t.parent_domain(t.app.pd, td);
  ibv_pd* second = t.parent_domain(t.app.pd);
  ibv_pd* upon = t.parent_domain(first);
  REQUIRE((first != nullptr && second != nullptr && upon != nullptr));
  const std::size_t asked = t.daemon.relay().count(RNIC_DEALLOC_PD);
  CHECK(provider::dealloc_pd(t.app.pd) == EBUSY);
  CHECK(provider::dealloc_td(td) == EBUSY);
  CHECK(provider::dealloc_pd(first) == EBUSY);
  CHECK(provider::dealloc_pd(upon) == 0);
  CHECK(provider::dealloc_pd(first) == 0);
  CHECK(provider::dealloc_td(td) == 0);
  CHECK(provider::dealloc_pd(t.app.pd) == EBUSY);
  CHECK(provider::dealloc_pd(second) == 0);
  CHECK(t.daemon.relay().count(RNIC_DEALLOC_PD) == asked);  // of which the daemon hears nothing
  CHECK(provider::dealloc_pd(t.app.pd) == 0);
  CHECK(t.daemon.relay().count(RNIC_DEALLOC_PD) == asked + 1);
}

TEST_CASE("V-PD-04: a region that is reregistered holds the parent domain that it goes to",
          "[provider][domains][V-PD-04][V-MR-05]") {
  Domains t;
  ibv_pd* const pd = t.app.pd;
  ibv_pd* const from = t.parent_domain(pd);
  ibv_pd* const to = t.parent_domain(pd);
  REQUIRE((from != nullptr && to != nullptr));
  static char buffer[64];
  t.app.pd = from;
  ibv_mr* const mr = t.app.make_mr(buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  REQUIRE(provider::rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, to, nullptr, 0, 0) == 0);
  CHECK(provider::dealloc_pd(from) == 0);
  REQUIRE(provider::dealloc_pd(to) == EBUSY);
  REQUIRE(provider::rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0) == 0);
  CHECK(provider::dealloc_pd(to) == 0);
  CHECK(provider::dealloc_pd(pd) == EBUSY);
  CHECK(provider::dereg_mr(mr) == 0);
  CHECK(provider::dealloc_pd(pd) == 0);
}

TEST_CASE("objects that are destroyed leave errno as it was: librdmacm tells it as the reason of what failed before",
          "[provider]") {
  Domains t;
  ibv_cq* const cq = t.app.make_cq(8);
  ibv_srq* const srq = t.app.make_srq(4);
  ibv_qp* const qp = t.app.make_qp(cq, cq, 4);
  errno = EXDEV;
  CHECK(provider::destroy_qp(qp) == 0);
  CHECK(provider::destroy_srq(srq) == 0);
  CHECK(provider::destroy_cq(cq) == 0);
  CHECK(errno == EXDEV);
}

TEST_CASE("V-PD-04: each kind of object holds the parent domain by itself", "[provider][domains][V-PD-04]") {
  Domains t;
  ibv_cq* const cq = t.app.make_cq(8);
  t.app.pd = t.parent_domain(t.app.pd);
  REQUIRE(t.app.pd != nullptr);
  const auto busy = [&] { return provider::dealloc_pd(t.app.pd) == EBUSY; };
  static char buffer[64];
  SECTION("a queue pair") {
    ibv_qp* const qp = t.app.make_qp(cq, cq, 4);
    REQUIRE(busy());
    CHECK(provider::destroy_qp(qp) == 0);
  }
  SECTION("a shared receive queue") {
    ibv_srq* const srq = t.app.make_srq(4);
    REQUIRE(busy());
    CHECK(provider::destroy_srq(srq) == 0);
  }
  SECTION("a region") {
    ibv_mr* const mr = t.app.make_mr(buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(busy());
    CHECK(provider::dereg_mr(mr) == 0);
  }
  SECTION("a window") {
    ibv_mw* const window = provider::alloc_mw(t.app.pd, IBV_MW_TYPE_1);
    REQUIRE(busy());
    CHECK(provider::dealloc_mw(window) == 0);
  }
  SECTION("a completion queue") {
    ibv_cq_init_attr_ex wishes{};
    wishes.cqe = 8;
    wishes.wc_flags = IBV_WC_STANDARD_FLAGS;
    wishes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    wishes.parent_domain = t.app.pd;
    ibv_cq_ex* const made = provider::create_cq_ex(t.context, &wishes);
    REQUIRE(made != nullptr);
    REQUIRE(busy());
    CHECK(provider::destroy_cq(ibv_cq_ex_to_cq(made)) == 0);
  }
  CHECK(provider::dealloc_pd(t.app.pd) == 0);
}

TEST_CASE("V-VBX-01: a parent domain stands for a PD of its context, and with both allocators or none",
          "[provider][domains][V-VBX-01]") {
  Domains t;
  Application other(t.daemon.introduce(), "rnic1");
  ibv_parent_domain_init_attr good{};
  good.pd = t.app.pd;
  CHECK(t.refusal(good) == 0);
  ibv_parent_domain_init_attr init = good;
  init.pd = nullptr;
  CHECK(t.refusal(init) == EINVAL);
  init.pd = other.pd;
  CHECK(t.refusal(init) == EINVAL);
  ibv_td_init_attr nothing{};
  init = good;
  init.td = provider::alloc_td(&other.context->verbs.context, &nothing);
  CHECK(t.refusal(init) == EINVAL);
  init = good;
  init.comp_mask = 1U << 7;
  CHECK(t.refusal(init) == EINVAL);
  init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  CHECK(t.refusal(init) == EINVAL);
  init.alloc = [](ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) -> void* { return nullptr; };
  CHECK(t.refusal(init) == EINVAL);
  init.free = [](ibv_pd*, void*, void*, std::uint64_t) {};
  CHECK(t.refusal(init) == 0);

  ibv_td_init_attr unknown{};
  unknown.comp_mask = 1;
  errno = 0;
  CHECK(provider::alloc_td(t.context, &unknown) == nullptr);
  CHECK(errno == EINVAL);
}
