/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The life of shared receive queues, and what they have in common with those of a QP.
#include <bit>
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

bool take_ring(ReceiveQueue& queue, char* at, std::uint32_t entries, std::uint64_t length) {
  if (at == nullptr || !is_power_of_two(entries)) return false;
  if (length < sizeof(rnic_ring_control) + std::uint64_t{entries} * queue.stride) return false;
  queue.size = entries;
  queue.control = reinterpret_cast<rnic_ring_control*>(at);
  queue.slots = reinterpret_cast<std::byte*>(at + sizeof(rnic_ring_control));
  return true;
}

// So many ids, where there are not. False, and nothing has changed: out of memory.
bool grow_ids(Srq& srq, std::uint32_t count) {
  if (count <= srq.id_count) return true;
  auto* wr_ids = static_cast<std::uint64_t*>(std::realloc(srq.queue.wr_ids, count * sizeof *srq.queue.wr_ids));
  if (wr_ids == nullptr) return false;
  srq.queue.wr_ids = wr_ids;
  auto* free_ids = static_cast<std::uint32_t*>(std::realloc(srq.free_ids, count * sizeof *srq.free_ids));
  if (free_ids == nullptr) return false;
  srq.free_ids = free_ids;
  for (std::uint32_t id = count; id-- > srq.id_count;) srq.free_ids[srq.free_count++] = id;
  srq.id_count = count;
  return true;
}

bool set_up_srq(Srq& srq, const rnic_create_srq_reply& reply, char* at) {
  if (reply.stride < sizeof(rnic_rqe) + std::uint64_t{reply.sge_max} * sizeof(rnic_sge)) {
    return false;
  }
  ReceiveQueue& queue = srq.queue;
  queue.stride = reply.stride;
  queue.sge_max = reply.sge_max;
  queue.doorbell = reply.doorbell;
  srq.handle = reply.srq;
  return take_ring(queue, at, reply.entries, reply.area.length) && grow_ids(srq, reply.entries);
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
  std::free(srq.free_ids);
  std::free(&srq);
}

}  // namespace

// The limit is not set here, as with IB.
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) { return create_limited_srq(pd, init, 0); }

ibv_srq* create_limited_srq(ibv_pd* pd, ibv_srq_init_attr* init, std::uint32_t limit) {
  Context& context = context_of(pd);
  auto* srq = static_cast<Srq*>(allocate_zeroed(sizeof(Srq)));
  if (srq == nullptr) return nullptr;
  rnic_create_srq request{};
  request.pd = pd->handle;
  request.wr_min = init->attr.max_wr;
  request.sge_max = init->attr.max_sge;
  request.limit = limit;
  request.user_pointer = pointer_value(&srq->ibv);
  rnic_create_srq_reply reply{};
  const int error = ask_for_srq(context, *srq, request, reply);
  if (error != 0) {
    free_srq(*srq);
    errno = error;
    return nullptr;
  }
  srq->context = &context;
  srq->ibv.context = pd->context;
  srq->ibv.handle = reply.srq;
  srq->ibv.pd = pd;
  enter_domain(pd);
  init->attr.max_wr = reply.entries;
  init->attr.max_sge = reply.sge_max;
  return &srq->ibv;
}

namespace {

// Nobody posts meanwhile, nor is a place freed: both are under the queue's lock.
int resize_srq(Srq& srq, rnic_modify_srq& request) {
  Context& context = *srq.context;
  const ArenaGuard arenas(context);
  int error = map_missing_arenas(context);  // as for resize_cq()
  if (error != 0) return error;
  const SpinGuard guard(srq.queue.lock);
  request.in_use = srq.id_count - srq.free_count;
  // The ids are there before the daemon moves the ring: there is no way back then.
  if (!grow_ids(srq, std::bit_ceil(request.wr_min))) return ENOMEM;
  rnic_modify_srq_reply reply{};
  char* at = nullptr;
  while (reply.entries == 0) {  // each time with an arena that is new
    Descriptors fds{};
    error = context.control.call(RNIC_MODIFY_SRQ, request, reply, &fds);
    if (error == 0) error = map_area(context, reply.area, fds, at);
    fds.close_rest();
    if (error != 0) return error;
  }
  return reply.entries <= srq.id_count && take_ring(srq.queue, at, reply.entries, reply.area.length) ? 0 : ENOMEM;
}

}  // namespace

int modify_srq(ibv_srq* ibv, ibv_srq_attr* attributes, int mask) {
  Srq& srq = of(ibv);
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;  // V-IS-03
  if (mask == 0) return 0;
  rnic_modify_srq request{};
  request.srq = srq.handle;
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    request.set |= RNIC_SRQ_LIMIT;
    request.limit = attributes->srq_limit;
  }
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    if (attributes->max_wr == 0 || attributes->max_wr > srq.context->attributes.max_srq_wr) return EINVAL;
    request.set |= RNIC_SRQ_ENTRIES;
    request.wr_min = attributes->max_wr;
    return resize_srq(srq, request);
  }
  rnic_modify_srq_reply reply{};
  return srq.context->control.call(RNIC_MODIFY_SRQ, request, reply);
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
  leave_domain(ibv->pd);
  free_srq(srq);
  return 0;
}

}  // namespace rnic::provider
