// The direct verbs on two applications whose data plane runs: librnicdv's own functions, on the provider of this
// program.
#pragma once

#include <vector>

#include "direct.hpp"
#include "rnicdv/rnicdv.h"
#include "unit/provider/wired.hpp"

namespace rnic::test {

inline ibv_context* context_of(const Application& app) { return &app.context->verbs.context; }

inline rnicdv_qp_attr direct_of(ibv_qp* qp) {
  rnicdv_qp_attr attr{};
  REQUIRE(rnicdv_query_qp(qp, &attr) == 0);
  return attr;
}

inline rnicdv_mr_attr direct_of(const Application& app, std::uint32_t stag) {
  rnicdv_mr_attr attr{};
  REQUIRE(rnicdv_query_mr(context_of(app), stag, &attr) == 0);
  return attr;
}

// A queue pair with builders.
inline ibv_qp_init_attr_ex init_of(Application& app, ibv_cq* send, ibv_cq* receive, ibv_srq* srq = nullptr) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = send;
  init.recv_cq = receive;
  init.srq = srq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {64, 64, 4, 4, 64};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = app.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
  return init;
}

inline rnicdv_qp_mod mod_of(std::uint32_t state, std::uint32_t rq_limit, std::uint32_t ord, std::uint32_t ird) {
  rnicdv_qp_mod mod{};
  mod.state = state;
  mod.rq_limit = rq_limit;
  mod.ord = ord;
  mod.ird = ird;
  return mod;
}

inline int modify(ibv_qp* qp, std::uint32_t mask, const rnicdv_qp_mod& mod) { return rnicdv_modify_qp(qp, &mod, mask); }

// The errno of a call that has to fail.
template <typename Call>
int refusal(const Call& call) {
  errno = 0;
  return call() == nullptr ? errno : 0;
}

}  // namespace rnic::test
