/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Datagrams: address handles, multicast groups, and the states of queue pairs of type UD. See ibv_create_ah(3),
// ibv_attach_mcast(3) and ibv_modify_qp(3).
#include "datagrams.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "verbs_objects.hpp"

namespace rnic::provider {

// ---- address handles -----------------------------------------------------------------------------

namespace {

// 0, or an errno as a RoCE device says it. Which GIDs there are now the daemon knows.
int check_address(Context& context, const ibv_ah_attr& attributes) {
  if (attributes.port_num != 1 || attributes.is_global == 0) return EINVAL;  // there are no LIDs
  constexpr ibv_gid kNobody{};
  if (std::memcmp(&attributes.grh.dgid, &kNobody, sizeof kNobody) == 0) return EINVAL;
  return context.control.call(RNIC_CHECK_GID, attributes.grh.sgid_index);
}

// A place for one more; false: there are as many as there may be.
bool take_place(Context& context) {
  const std::atomic_ref count(context.address_handles);
  std::uint32_t now = count.load();
  do {
    if (now >= max_address_handles(context)) return false;
  } while (!count.compare_exchange_weak(now, now + 1));
  return true;
}
void give_place_back(Context& context) { std::atomic_ref(context.address_handles).fetch_sub(1); }

}  // namespace

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  Context& context = context_of(pd);
  errno = check_address(context, *attributes);
  if (errno == 0 && !take_place(context)) errno = ENOMEM;
  if (errno != 0) return nullptr;
  auto* ah = static_cast<Ah*>(std::calloc(1, sizeof(Ah)));
  if (ah == nullptr) {
    give_place_back(context);
    return nullptr;
  }
  ah->ibv.pd = pd;
  enter_unknown(pd);
  const ibv_global_route& route = attributes->grh;
  static_assert(sizeof ah->address.gid == sizeof route.dgid);
  std::memcpy(ah->address.gid, &route.dgid, sizeof route.dgid);
  ah->address.flow_label = route.flow_label;
  ah->address.gid_index = route.sgid_index;
  ah->address.traffic_class = route.traffic_class;
  ah->address.hop_limit = route.hop_limit;
  return &ah->ibv;
}

int destroy_ah(ibv_ah* ah) {
  leave_unknown(ah->pd);
  give_place_back(context_of(ah->pd));
  std::free(&of(ah));
  return 0;
}

// ---- multicast groups ----------------------------------------------------------------------------

namespace {

int ask_group(ibv_qp* qp, const ibv_gid* gid, std::uint32_t type) {
  if (!is_datagram(of(qp))) return EINVAL;
  rnic_mcast request{};
  request.qp_number = qp->qp_num;
  std::memcpy(request.gid, gid->raw, sizeof request.gid);
  return context_of(qp->context).control.call(type, &request, sizeof request, nullptr, 0);
}

}  // namespace

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t /*lid*/) {
  return ask_group(qp, gid, RNIC_ATTACH_MCAST);
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t /*lid*/) {
  return ask_group(qp, gid, RNIC_DETACH_MCAST);
}

// ---- states --------------------------------------------------------------------------------------

namespace {

// What InfiniBand has a Modify of this type say: what it must, and what it may.
struct Masks {
  int required, optional;
};

// Nothing of the kind: `required` is -1.
constexpr Masks masks_of(ibv_qp_state from, ibv_qp_state to) {
  constexpr int kBegin = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return {0, 0};
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return {kBegin, 0};
  if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) return {0, kBegin};
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) return {0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) return {IBV_QP_SQ_PSN, IBV_QP_QKEY};
  if ((from == IBV_QPS_RTS || from == IBV_QPS_SQE) && to == IBV_QPS_RTS) return {0, IBV_QP_QKEY};
  return {-1, 0};
}

}  // namespace

int change_datagrams(Qp& qp, ibv_qp_state now, const ibv_qp_attr& attributes, int mask, rnic_modify_qp& request) {
  const ibv_qp_state wanted = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : now;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != now) return EINVAL;
  const Masks allowed = masks_of(now, wanted);
  const int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if (allowed.required < 0 || (given & allowed.required) != allowed.required) return EINVAL;
  if ((given & ~(allowed.required | allowed.optional)) != 0) return EINVAL;
  if ((mask & IBV_QP_SQ_PSN) != 0 && attributes.sq_psn > 0xFFFFFF) return EINVAL;
  request = {};
  request.qp_number = qp.ibv.qp_num;
  request.mask = (mask & IBV_QP_QKEY) != 0 ? RNIC_MODIFY_Q_KEY : 0;
  request.q_key = attributes.qkey;
  if ((mask & IBV_QP_STATE) == 0) return 0;
  request.mask |= RNIC_MODIFY_STATE;
  switch (wanted) {
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
    case IBV_QPS_RESET:
      request.state = RNIC_QP_IDLE;
      request.idle_name = wanted;
      break;
    case IBV_QPS_RTS:
      request.state = RNIC_QP_RTS;
      break;
    default:
      request.state = RNIC_QP_ERROR;
      break;
  }
  return 0;
}

}  // namespace rnic::provider
