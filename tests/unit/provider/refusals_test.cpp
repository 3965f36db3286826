// What a verb refuses at once: more than there is, and handles that are nobody's. Provider and daemon.
#include "unit/provider/wired.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// The errno of a call that gives a pointer, or an errno.
template <typename Call>
int refusal(const Call& call) {
  errno = 0;
  return call() == nullptr ? errno : 0;
}

ibv_qp* make_extended(Application& app, ibv_cq* cq, ibv_srq* srq = nullptr) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = app.pd;
  return provider::create_qp_ex(&app.context->verbs.context, &init);
}

int extended_cq_refusal(Application& app) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 8;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  errno = 0;
  return provider::create_cq_ex(&app.context->verbs.context, &init) == nullptr ? errno : 0;
}

int srq_refusal(Application& app) {
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  return refusal([&] { return provider::create_srq(app.pd, &init); });
}

}  // namespace

TEST_CASE("V-IS-02: where no more is to be had, every verb that makes something says ENOMEM and has made nothing",
          "[wired][V-IS-02][V-RNIC-08][V-IMM-01]") {
  std::vector<char> memory(4096);
  Wired t;
  ibv_context* const context = &t.a.context->verbs.context;
  ibv_cq* const cq = t.a.make_cq(8);
  REQUIRE(cq != nullptr);
  const auto made = [&](control::Shares control::ServedDevice::*kind, std::optional<std::uint64_t> total) {
    std::uint64_t used = 0;
    t.at_daemon([&](control::Machine& machine, control::Server&) {
      control::Shares& shares = (*machine.devices[0]).*kind;
      used = shares.used();
      shares.set_total(total.value_or(used));
    });
    return used;
  };
  using Verb = std::function<int()>;
  const auto expect_enough_for = [&](control::Shares control::ServedDevice::*kind, const std::vector<Verb>& verbs) {
    const std::uint64_t before = made(kind, std::nullopt);
    for (const Verb& verb : verbs) CHECK(verb() == ENOMEM);
    CHECK(made(kind, 1000) == before);
    for (const Verb& verb : verbs) CHECK(verb() == 0);
    CHECK(made(kind, 1000) == before + verbs.size());
  };
  using control::ServedDevice;
  expect_enough_for(&ServedDevice::pds, {[&] { return refusal([&] { return provider::alloc_pd(context); }); }});
  expect_enough_for(&ServedDevice::cqs, {[&] { return refusal([&] { return t.a.make_cq(8); }); },
                                         [&] { return extended_cq_refusal(t.a); }});
  expect_enough_for(&ServedDevice::srqs, {[&] { return srq_refusal(t.a); }});
  expect_enough_for(&ServedDevice::qps, {[&] { return refusal([&] { return t.a.make_qp(cq, cq, 4); }); },
                                         [&] { return refusal([&] { return make_extended(t.a, cq); }); }});
  expect_enough_for(
      &ServedDevice::stags,
      {[&] { return refusal([&] { return t.a.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE); }); },
       [&] { return refusal([&] { return provider::alloc_mw(t.a.pd, IBV_MW_TYPE_1); }); },
       [&] { return refusal([&] { return provider::alloc_mw(t.a.pd, IBV_MW_TYPE_2); }); }});
  std::vector<std::unique_ptr<Application>> others;
  expect_enough_for(&ServedDevice::contexts, {[&] {
    others.push_back(std::make_unique<Application>(t.another_client(), "rnic0"));
    return others.back()->error;
  }});
  t.end();
}

TEST_CASE("V-IS-11: a completion queue by a handle that is nobody's is refused, and is what it was",
          "[wired][V-IS-11]") {
  Wired t;
  ibv_cq *const cq = t.a.make_cq(8), *const gone = t.a.make_cq(8), *const good = t.a.make_cq(8);
  const std::uint32_t own = cq->handle, nobodys = gone->handle;
  REQUIRE(provider::destroy_cq(gone) == 0);
  const int entries = cq->cqe;
  for (const std::uint32_t wrong : {nobodys, own + 1000, 0xFFFFFFFFu}) {
    cq->handle = wrong;
    CHECK(provider::resize_cq(cq, 1000) == EINVAL);
    CHECK(refusal([&] { return t.a.make_qp(cq, cq, 4); }) == EINVAL);
    CHECK(refusal([&] { return t.a.make_qp(cq, good, 4); }) == EINVAL);
    CHECK(refusal([&] { return t.a.make_qp(good, cq, 4); }) == EINVAL);
    CHECK(refusal([&] { return make_extended(t.a, cq); }) == EINVAL);
    CHECK(provider::destroy_cq(cq) == EINVAL);
    cq->handle = own;
  }
  CHECK(cq->cqe == entries);
  t.at_daemon([](control::Machine& machine, control::Server&) {
    CHECK(machine.cqs_by_cookie.size() == 2);
    CHECK(machine.qps_by_cookie.empty());
  });
  CHECK(provider::resize_cq(cq, 1000) == 0);
  CHECK(provider::destroy_cq(cq) == 0);
}

TEST_CASE("V-IS-18: a shared receive queue by a handle that is nobody's is refused, and is what it was",
          "[wired][V-IS-18]") {
  Wired t;
  ibv_cq* const cq = t.a.make_cq(8);
  ibv_srq *const srq = t.a.make_srq(8), *const gone = t.a.make_srq(8);
  std::uint32_t& handle = provider::of(srq).handle;
  const std::uint32_t own = handle, nobodys = provider::of(gone).handle;
  REQUIRE(provider::destroy_srq(gone) == 0);
  ibv_srq_attr attributes{};
  for (const std::uint32_t wrong : {nobodys, own + 1000, 0xFFFFFFFFu}) {
    handle = wrong;
    CHECK(provider::query_srq(srq, &attributes) == EINVAL);
    attributes = {.max_wr = 100, .max_sge = 0, .srq_limit = 3};
    CHECK(provider::modify_srq(srq, &attributes, IBV_SRQ_LIMIT) == EINVAL);
    CHECK(provider::modify_srq(srq, &attributes, IBV_SRQ_MAX_WR) == EINVAL);
    CHECK(refusal([&] { return t.a.make_qp(cq, cq, 4, srq); }) == EINVAL);
    CHECK(refusal([&] { return make_extended(t.a, cq, srq); }) == EINVAL);
    CHECK(provider::destroy_srq(srq) == EINVAL);
    handle = own;
  }
  REQUIRE(provider::query_srq(srq, &attributes) == 0);
  CHECK(attributes.max_wr == 8);
  CHECK(attributes.srq_limit == 0);
  t.at_daemon([](control::Machine& machine, control::Server&) { CHECK(machine.qps_by_cookie.empty()); });
  CHECK(provider::destroy_srq(srq) == 0);
}
