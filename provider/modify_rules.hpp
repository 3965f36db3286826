/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What InfiniBand has ibv_modify_qp name on each step of a queue pair of type RC, as Linux checks it for every device:
// a device of the RoCE face does so too.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

namespace rnic::provider {

struct ModifyStep {
  int required = 0;
  int optional = 0;
};

// Nothing: there is no such step. SQD is no state here, SQE none of RC. No alternate path can be named, as none is
// advertised.
constexpr std::optional<ModifyStep> modify_step(ibv_qp_state from, ibv_qp_state to) {
  constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int kRtr =
      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  constexpr int kAlways = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE;

  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return ModifyStep{};
  switch (from) {
    case IBV_QPS_RESET:
      if (to == IBV_QPS_INIT) return ModifyStep{kInit, 0};
      break;
    case IBV_QPS_INIT:
      if (to == IBV_QPS_INIT) return ModifyStep{0, kInit};
      if (to == IBV_QPS_RTR) return ModifyStep{kRtr, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX};
      break;
    case IBV_QPS_RTR:
      if (to == IBV_QPS_RTS) return ModifyStep{kRts, kAlways};
      break;
    case IBV_QPS_RTS:
      if (to == IBV_QPS_RTS) return ModifyStep{0, kAlways};
      break;
    default:
      break;
  }
  return std::nullopt;
}

// Whether this is such a step, and names what it has to and nothing that does not belong there.
constexpr bool may_modify(ibv_qp_state from, ibv_qp_state to, int mask) {
  const auto step = modify_step(from, to);
  return step && (mask & step->required) == step->required &&
         (mask & ~(step->required | step->optional | IBV_QP_STATE)) == 0;
}

}  // namespace rnic::provider
