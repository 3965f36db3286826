/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The life of shared receive queues, and what they have in common with those of a QP.
#include <cerrno>
#include <cstdlib>

#include "verbs_objects.hpp"

namespace rnic::provider {

bool allocate_receives(ReceiveQueue& queue) {
  if (queue.size == 0) return true;
  queue.wr_ids = static_cast<std::uint64_t*>(std::calloc(queue.size, sizeof *queue.wr_ids));
  return queue.wr_ids != nullptr;
}

void free_receives(ReceiveQueue& queue) { std::free(queue.wr_ids); }

namespace {

std::uint64_t index_ring_bytes(std::uint32_t entries) {
  return (std::uint64_t{entries} * sizeof(std::uint32_t) + RNIC_CACHE_LINE - 1) / RNIC_CACHE_LINE * RNIC_CACHE_LINE;
}

bool set_up_srq(Srq& srq, const rnic_create_srq_reply& reply, char* at) {
  const std::uint64_t indexes = index_ring_bytes(reply.entries);
  const std::uint64_t needed = sizeof(rnic_ring_control) + indexes + std::uint64_t{reply.entries} * reply.stride;
  if (at == nullptr || !is_power_of_two(reply.entries) || reply.area.length < needed) return false;
  if (reply.stride < sizeof(rnic_rqe) + std::uint64_t{reply.sge_max} * sizeof(rnic_sge)) {
    return false;
  }
  ReceiveQueue& queue = srq.queue;
  queue.size = reply.entries;
  queue.stride = reply.stride;
  queue.sge_max = reply.sge_max;
  queue.doorbell = reply.doorbell;
  queue.control = reinterpret_cast<rnic_ring_control*>(at);
  srq.index_ring = reinterpret_cast<std::uint32_t*>(at + sizeof(rnic_ring_control));
  queue.slots = reinterpret_cast<std::byte*>(at + sizeof(rnic_ring_control) + indexes);
  srq.free_slots = static_cast<std::uint32_t*>(std::calloc(queue.size, sizeof(std::uint32_t)));
  if (srq.free_slots == nullptr || !allocate_receives(queue)) return false;
  for (std::uint32_t i = 0; i < queue.size; ++i) srq.free_slots[i] = queue.size - 1 - i;
  srq.free_count = queue.size;
  srq.handle = reply.srq;
  return true;
}

int ask_for_srq(Context& context, Srq& srq, const rnic_create_srq& request, rnic_create_srq_reply& reply) {
  Descriptors fds{};
  const ArenaGuard guard(context);
  int error = context.control.call(RNIC_CREATE_SRQ, request, reply, &fds);
  if (error != 0) return error;
  char* at = nullptr;
  error = map_area(context, reply.area, fds, at);
  fds.close_rest();
  if (error == 0 && !set_up_srq(srq, reply, at)) error = ENOMEM;
  if (error != 0) context.control.call(RNIC_DESTROY_SRQ, reply.srq);
  return error;
}

void free_srq(Srq& srq) {
  free_receives(srq.queue);
  std::free(srq.free_slots);
  std::free(&srq);
}

}  // namespace

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  Context& context = context_of(pd);
  auto* srq = static_cast<Srq*>(allocate_zeroed(sizeof(Srq)));
  if (srq == nullptr) return nullptr;
  rnic_create_srq request{};
  request.pd = pd->handle;
  request.wr_min = init->attr.max_wr;
  request.sge_max = init->attr.max_sge;
  request.user_pointer = pointer_value(&srq->ibv);  // the limit is not set here, as with IB
  rnic_create_srq_reply reply{};
  const int error = ask_for_srq(context, *srq, request, reply);
  if (error != 0) {
    free_srq(*srq);
    errno = error;
    return nullptr;
  }
  srq->context = &context;
  srq->ibv.handle = reply.srq;
  init->attr.max_wr = reply.entries;
  init->attr.max_sge = reply.sge_max;
  return &srq->ibv;
}

int modify_srq(ibv_srq* ibv, ibv_srq_attr* attributes, int mask) {
  Srq& srq = of(ibv);
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;  // V-IS-03
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;                 // V-QRN-20: not advertised
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  if (attributes->srq_limit > srq.queue.size) return EINVAL;  // V-LIM-04
  const rnic_modify_srq request{srq.handle, attributes->srq_limit};
  return srq.context->control.call(RNIC_MODIFY_SRQ, &request, sizeof request, nullptr, 0);
}

int query_srq(ibv_srq* ibv, ibv_srq_attr* attributes) {
  Srq& srq = of(ibv);
  const rnic_handle request{srq.handle, 0};
  rnic_query_srq_reply reply{};
  const int error = srq.context->control.call(RNIC_QUERY_SRQ, request, reply);
  if (error != 0) return error;
  attributes->max_wr = reply.entries;
  attributes->max_sge = reply.sge_max;
  attributes->srq_limit = reply.limit;
  return 0;
}

int destroy_srq(ibv_srq* ibv) {
  Srq& srq = of(ibv);
  const int error = destroyed(srq.context->control.call(RNIC_DESTROY_SRQ, srq.handle));
  if (error != 0) return error;
  forget_async_events(*srq.context, ibv, ibv->mutex, ibv->cond, ibv->events_completed, srq.async_taken);
  free_srq(srq);
  return 0;
}

}  // namespace rnic::provider
