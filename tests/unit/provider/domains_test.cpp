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
