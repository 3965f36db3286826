// The RQ Limit of a queue pair whose receives are shared, and Modify QP as the specification has it.
#include <poll.h>

#include "unit/rnicdv/world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// a sends to b, whose queue pair has its receives from an SRQ and an RQ Limit.
struct Limited : WiredPair {
  explicit Limited(std::uint32_t limit, std::uint32_t depth = 64) {
    srq = b.make_srq(depth);
    near_cq = a.make_cq(256);
    far_cq = b.make_cq(256);
    sender = a.make_qp(near_cq, near_cq, 128);
    auto init = init_of(b, far_cq, far_cq, srq);
    const rnicdv_qp_init_attr more{.flags = 0, .rq_limit = limit};
    receiver = rnicdv_create_qp(context_of(b), &init, &more);
    REQUIRE(receiver != nullptr);
    join(sender, receiver);
  }
  // So many messages of 16 octets that they come in one burst, each to a receive.
  void burst(int count) {
    for (int i = 0; i < count; ++i) REQUIRE(post_receive(srq, 100, {end_b.sge(0, 64)}) == 0);
    std::vector<ibv_send_wr> wrs(static_cast<std::size_t>(count));
    ibv_sge sge = end_a.sge(0, 16);
    for (std::size_t i = 0; i < wrs.size(); ++i) {
      wrs[i].sg_list = &sge;
      wrs[i].num_sge = 1;
      wrs[i].opcode = IBV_WR_SEND;
      wrs[i].send_flags = IBV_SEND_SIGNALED;
      wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    REQUIRE(provider::post_send(sender, wrs.data(), &bad) == 0);
    (void)test::poll(near_cq, wrs.size());
    for (const ibv_wc& wc : test::poll(far_cq, wrs.size())) CHECK(wc.status == IBV_WC_SUCCESS);
  }
  std::optional<ibv_qp*> event(int limit_ms) {
    pollfd one{rnicdv_event_fd(context_of(b)), POLLIN, 0};
    if (::poll(&one, 1, limit_ms) != 1) return std::nullopt;
    rnicdv_event told{};
    REQUIRE(rnicdv_get_event(context_of(b), &told) == 0);
    CHECK(told.type == RNICDV_EVENT_QP_RQ_LIMIT_REACHED);
    return told.qp;
  }

  ibv_srq* srq = nullptr;
  ibv_cq *near_cq = nullptr, *far_cq = nullptr;
  ibv_qp *sender = nullptr, *receiver = nullptr;
};

}  // namespace

TEST_CASE("V-LIM-06: more messages in progress than the RQ Limit: one event, until it is armed again",
          "[wired][rnicdv][V-LIM-05][V-LIM-06][V-LIM-07][V-AE-40][V-MOD-11][V-QQP-12]") {
  Limited t(1);
  CHECK(direct_of(t.receiver).rq_limit == 1);
  CHECK(direct_of(t.receiver).rq_limit_armed == 1);
  rnicdv_event none{};
  CHECK(rnicdv_get_event(context_of(t.b), &none) == EAGAIN);
  t.burst(60);
  REQUIRE(t.event(30'000) == t.receiver);
  CHECK(direct_of(t.receiver).rq_limit == 1);
  CHECK(direct_of(t.receiver).rq_limit_armed == 0);
  t.burst(60);
  CHECK(rnicdv_get_event(context_of(t.b), &none) == EAGAIN);
  // In RTS, without any other change.
  REQUIRE(modify(t.receiver, RNICDV_QP_RQ_LIMIT, mod_of(0, 2, 0, 0)) == 0);
  CHECK(direct_of(t.receiver).rq_limit == 2);
  CHECK(direct_of(t.receiver).rq_limit_armed == 1);
  t.burst(60);
  REQUIRE(t.event(30'000) == t.receiver);
  // Disarmed by 0.
  REQUIRE(modify(t.receiver, RNICDV_QP_RQ_LIMIT, mod_of(0, 1, 0, 0)) == 0);
  REQUIRE(modify(t.receiver, RNICDV_QP_RQ_LIMIT, mod_of(0, 0, 0, 0)) == 0);
  CHECK(direct_of(t.receiver).rq_limit_armed == 0);
  t.burst(60);
  CHECK(rnicdv_get_event(context_of(t.b), &none) == EAGAIN);
  CHECK_FALSE(next_async(t.b, 0));  // ibverbs is told nothing of it
}

TEST_CASE("V-LIM-06: as many messages as the RQ Limit says are no event", "[wired][rnicdv][V-LIM-06]") {
  Limited t(60);
  for (int i = 0; i < 5; ++i) t.burst(60);
  rnicdv_event none{};
  CHECK(rnicdv_get_event(context_of(t.b), &none) == EAGAIN);
  CHECK(direct_of(t.receiver).rq_limit_armed == 1);
}

TEST_CASE("V-MOD-08: an RQ Limit is for a queue pair with an SRQ, and no higher than that is deep",
          "[wired][rnicdv][V-MOD-08][V-IS-27][V-LIM-05][V-IMM-01]") {
  WiredPair t;
  ibv_srq* srq = t.b.make_srq(16);
  ibv_cq* cq = t.b.make_cq(16);
  auto shared = init_of(t.b, cq, cq, srq), own = init_of(t.b, cq, cq);
  const auto made = [&](ibv_qp_init_attr_ex& init, std::uint32_t limit) {
    const rnicdv_qp_init_attr more{.flags = 0, .rq_limit = limit};
    return rnicdv_create_qp(context_of(t.b), &init, &more);
  };
  CHECK(refusal([&] { return made(own, 1); }) == EINVAL);
  CHECK(refusal([&] { return made(shared, 17); }) == EINVAL);
  ibv_qp *limited = made(shared, 16), *unlimited = made(shared, 0);
  REQUIRE((limited != nullptr && unlimited != nullptr));
  CHECK(direct_of(limited).rq_limit_armed == 1);
  CHECK(direct_of(unlimited).rq_limit_armed == 0);

  CHECK(modify(t.end_b.qp, RNICDV_QP_RQ_LIMIT, mod_of(0, 1, 0, 0)) == EOPNOTSUPP);
  CHECK(modify(limited, RNICDV_QP_RQ_LIMIT, mod_of(0, 17, 0, 0)) == EINVAL);
  CHECK(direct_of(limited).rq_limit == 16);
  // In Idle, and with other attributes, all or nothing.
  CHECK(modify(limited, RNICDV_QP_RQ_LIMIT | RNICDV_QP_ORD, mod_of(0, 3, 1000, 0)) == EINVAL);
  CHECK(direct_of(limited).rq_limit == 16);
  CHECK(modify(limited, RNICDV_QP_RQ_LIMIT | RNICDV_QP_ORD, mod_of(0, 3, 9, 0)) == 0);
  CHECK(direct_of(limited).rq_limit == 3);
  CHECK(direct_of(limited).ord == 9);
  // On its way nowhere.
  REQUIRE(modify(limited, RNICDV_QP_STATE, mod_of(RNICDV_QPS_ERROR, 0, 0, 0)) == 0);
  CHECK(modify(limited, RNICDV_QP_RQ_LIMIT, mod_of(0, 1, 0, 0)) == EINVAL);
}

TEST_CASE("V-AE-40: an event of a queue pair that has gone is nobody's", "[wired][rnicdv][V-AE-40][V-QP-16]") {
  Limited t(1);
  t.burst(60);
  pollfd one{rnicdv_event_fd(context_of(t.b)), POLLIN, 0};
  REQUIRE(::poll(&one, 1, 30'000) == 1);
  REQUIRE(provider::destroy_qp(t.receiver) == 0);
  rnicdv_event none{};
  CHECK(rnicdv_get_event(context_of(t.b), &none) == EAGAIN);
}

TEST_CASE("V-MOD-09: rnicdv_modify_qp knows the changes of state of the specification, and no others",
          "[wired][rnicdv][V-MOD-09][V-VB-16][V-MOD-01]") {
  WiredPair t;
  const auto to = [](ibv_qp* qp, std::uint32_t state) { return modify(qp, RNICDV_QP_STATE, mod_of(state, 0, 0, 0)); };
  ibv_cq* cq = t.a.make_cq(16);
  ibv_qp* idle = t.a.make_qp(cq, cq, 4);
  CHECK(to(idle, RNICDV_QPS_IDLE) == 0);
  CHECK(to(idle, RNICDV_QPS_RTS) == EINVAL);
  CHECK(to(idle, RNICDV_QPS_CLOSING) == EINVAL);
  CHECK(to(idle, RNICDV_QPS_TERMINATE) == EINVAL);
  CHECK(to(idle, 5) == EINVAL);
  CHECK(modify(idle, 0x100, {}) == EINVAL);
  CHECK(to(t.end_a.qp, RNICDV_QPS_RTS) == 0);
  CHECK(to(t.end_a.qp, RNICDV_QPS_IDLE) == EINVAL);
  CHECK(to(t.end_a.qp, RNICDV_QPS_ERROR) == 0);
  CHECK(to(t.end_a.qp, RNICDV_QPS_ERROR) == EINVAL);  // where ibv_modify_qp says nothing
  CHECK(provider::modify_qp(
            t.end_a.qp,
            [] {
              static ibv_qp_attr attributes{};
              attributes.qp_state = IBV_QPS_ERR;
              return &attributes;
            }(),
            IBV_QP_STATE) == 0);
  REQUIRE(comes_true([&] { return to(t.end_a.qp, RNICDV_QPS_IDLE) == 0; }));
  CHECK(state_of(t.end_a.qp) == IBV_QPS_RESET);
}
