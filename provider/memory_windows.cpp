/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Memory windows: their life, and ibv_bind_mw.
#include "memory_windows.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

// Local Write says nothing of a window; applications name it with Remote Write, as for regions.
constexpr unsigned kWindowAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;

std::uint64_t window_rights(unsigned access) {
  return to_rnic_access(access) & ~(RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE);
}

}  // namespace

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  errno = type == IBV_MW_TYPE_1 || type == IBV_MW_TYPE_2 ? 0 : EINVAL;
  if (errno != 0) return nullptr;
  auto* window = static_cast<ibv_mw*>(std::calloc(1, sizeof(ibv_mw)));
  if (window == nullptr) return nullptr;
  Context& context = context_of(pd);
  rnic_alloc_mw request{};
  request.pd = pd->handle;
  request.key = std::atomic_ref(context.next_key).fetch_add(1) & 0xFF;
  request.scope = type == IBV_MW_TYPE_1 ? RNIC_WINDOW_OF_PD : RNIC_WINDOW_OF_QP;
  rnic_alloc_mw_reply reply{};
  const int error = context.control.call(RNIC_ALLOC_MW, &request, sizeof request, &reply, sizeof reply);
  if (error != 0) {
    std::free(window);
    errno = error;
    return nullptr;
  }
  window->context = pd->context;
  window->pd = pd;
  window->rkey = reply.stag;
  window->handle = reply.mw;
  window->type = type;
  enter_domain(pd);
  return window;
}

// Bound or not (V-MW-15).
int dealloc_mw(ibv_mw* window) {
  const int error = destroyed(context_of(window->context).control.call(RNIC_DEALLOC_MW, window->handle));
  if (error != 0) return error;
  leave_domain(window->pd);
  std::free(window);
  return 0;
}

int check_bind(const Qp& qp, ibv_mw_type type, const ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  if (window == nullptr || window->type != type || &context_of(window->context) != qp.context) return EINVAL;
  if (window->rkey >> 8 != rkey >> 8) return EINVAL;  // the key alone is the application's to choose (V-STAG-01)
  if ((info.mw_access_flags & ~kWindowAccess) != 0) return EINVAL;
  const bool unbinds = type == IBV_MW_TYPE_1 && info.length == 0;
  if (info.mr == nullptr) return unbinds ? 0 : EINVAL;
  return &context_of(info.mr->context) == qp.context ? 0 : EINVAL;
}

void write_bind(rnic_sqe& entry, std::byte* body, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  entry.rkey = rkey;
  entry.invalidate = info.mr == nullptr ? 0 : info.mr->lkey;
  entry.remote_address = info.addr;
  entry.argument = info.length;
  const std::uint64_t rights = window_rights(info.mw_access_flags);
  std::memcpy(body, &rights, sizeof rights);
}

int bind_mw(ibv_qp* ibv, ibv_mw* window, ibv_mw_bind* bind) {
  Qp& qp = of(ibv);
  SendQueue& queue = qp.send;
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  const int error = check_bind(qp, IBV_MW_TYPE_1, window, rkey, bind->bind_info);
  if (error != 0) return error;
  const PostGuard guard(queue.lock, *qp.context);
  if (const int none = cannot_post(*qp.context); none != 0) return none;
  if (queue.full()) return ENOMEM;
  std::byte* slot = queue.slot(queue.head);
  rnic_sqe entry{};
  entry.opcode = RNIC_OP_BIND;
  if (queue.signal_all || (bind->send_flags & IBV_SEND_SIGNALED) != 0) entry.flags = RNIC_SQE_SIGNALED;
  write_bind(entry, slot + sizeof entry, rkey, bind->bind_info);
  std::memcpy(slot, &entry, sizeof entry);
  queue.note(queue.head, bind->wr_id, RNIC_OP_BIND);
  queue.publish(queue.head + 1, qp.context->doorbells);
  window->rkey = rkey;
  return 0;
}

}  // namespace rnic::provider
