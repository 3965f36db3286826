/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The life of completion queues.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

bool take_ring(Cq& cq, char* at, std::uint32_t entries, std::uint64_t length) {
  if (at == nullptr || !is_power_of_two(entries)) return false;
  if (length < sizeof(rnic_cq_control) + std::uint64_t{entries} * sizeof(rnic_cqe)) return false;
  cq.control = reinterpret_cast<rnic_cq_control*>(at);
  cq.entries = reinterpret_cast<rnic_cqe*>(at + sizeof(rnic_cq_control));
  cq.shift = static_cast<std::uint32_t>(__builtin_ctz(entries));
  cq.consumer = 0;
  cq.ibv.cqe = clamp_int(entries);
  return true;
}

int ask_for_cq(Context& context, Cq& cq, const rnic_create_cq& request) {
  rnic_create_cq_reply reply{};
  Descriptors fds{};
  const ArenaGuard guard(context);
  int error = context.control.call(RNIC_CREATE_CQ, request, reply, &fds);
  if (error != 0) return error;
  char* at = nullptr;
  error = map_area(context, reply.area, fds, at);
  cq.channel_writer = request.channel_cookie != 0 ? fds.take() : -1;
  fds.close_rest();
  cq.ibv.handle = reply.cq;
  // Without it nobody would be woken after the daemon's death.
  if (error == 0 && request.channel_cookie != 0 && cq.channel_writer < 0) error = EMFILE;
  if (error == 0 && !take_ring(cq, at, reply.entries, reply.area.length)) error = ENOMEM;
  if (error == 0) return 0;
  if (cq.channel_writer >= 0) close(cq.channel_writer);
  context.control.call(RNIC_DESTROY_CQ, reply.cq);
  return error;
}

}  // namespace

namespace {

// `request`: what it is to be, but for what names the channel and us.
Cq* make_cq(ibv_context* ibv, rnic_create_cq request, ibv_comp_channel* channel) {
  Context& context = context_of(ibv);
  request.channel_cookie = cookie_of(channel);
  if (request.entries_min > INT32_MAX || request.vector > INT32_MAX ||
      (channel != nullptr && request.channel_cookie == 0)) {
    errno = EINVAL;
    return nullptr;
  }
  auto* cq = static_cast<Cq*>(allocate_zeroed(sizeof(Cq)));
  if (cq == nullptr) return nullptr;
  request.user_pointer = pointer_value(&cq->ibv);
  cq->attached.make_head();
  const int error = ask_for_cq(context, *cq, request);
  if (error != 0) {
    std::free(cq);
    errno = error;
    return nullptr;
  }
  // The watcher may look at it before libibverbs has filled it in.
  cq->ibv.context = ibv;
  cq->ibv.channel = channel;
  pthread_mutex_lock(&context.objects);
  cq->in_context.insert_after(context.cq_list, cq);
  pthread_mutex_unlock(&context.objects);
  return cq;
}

}  // namespace

ibv_cq* create_cq(ibv_context* ibv, int entries, ibv_comp_channel* channel, int vector) {
  rnic_create_cq request{};
  request.entries_min = static_cast<std::uint32_t>(entries);
  request.vector = static_cast<std::uint32_t>(vector);
  Cq* cq = make_cq(ibv, request, channel);
  return cq == nullptr ? nullptr : &cq->ibv;
}

ibv_cq_ex* create_cq_ex(ibv_context* ibv, ibv_cq_init_attr_ex* init) {
  constexpr std::uint64_t kTimes = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  const std::uint32_t flags = (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? init->flags : 0;
  const bool in_domain = (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if ((init->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) != 0 ||
      (in_domain && (init->parent_domain == nullptr || init->parent_domain->context != ibv ||
                     of(init->parent_domain).stands_for == nullptr))) {
    errno = EINVAL;
    return nullptr;
  }
  // A queue that overruns is in error (V-CQ-06); the daemon overwrites nothing that waits to be polled.
  if ((init->wc_flags & ~(IBV_WC_STANDARD_FLAGS | kTimes)) != 0 ||
      (flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  rnic_create_cq request{};
  request.entries_min = init->cqe;
  request.vector = init->comp_vector;
  request.flags = (init->wc_flags & kTimes) != 0 ? RNIC_CQ_TIMES : 0;
  Cq* cq = make_cq(ibv, request, init->channel);
  if (cq == nullptr) return nullptr;
  cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  set_iterators(cq->ex);
  if (in_domain) {
    cq->domain = init->parent_domain;
    enter_domain(cq->domain);
  }
  return &cq->ex;
}

int resize_cq(ibv_cq* ibv, int entries) {
  Cq& cq = of(ibv);
  Context& context = context_of(ibv->context);
  if (entries <= 0) return EINVAL;
  const rnic_resize_cq request{ibv->handle, static_cast<std::uint32_t>(entries)};
  rnic_resize_cq_reply reply{};
  char* at = nullptr;
  // Once the daemon has moved the ring there is no way back: it is to go where we have it mapped.
  const ArenaGuard arenas(context);
  int error = map_missing_arenas(context);
  if (error != 0) return error;
  const SpinGuard guard(cq.lock);
  while (reply.entries == 0) {  // each time with an arena that is new
    Descriptors fds{};
    error = context.control.call(RNIC_RESIZE_CQ, request, reply, &fds);
    if (error == 0) error = map_area(context, reply.area, fds, at);
    fds.close_rest();
    if (error != 0) return error;
  }
  if (!take_ring(cq, at, reply.entries, reply.area.length)) return ENOMEM;
  store(cq.control->arm, cq.arm_sequence << 2 | cq.arm_kind, std::memory_order_seq_cst);
  return 0;
}

int destroy_cq(ibv_cq* ibv) {
  Cq& cq = of(ibv);
  Context& context = context_of(ibv->context);
  cq.lock.lock();
  const bool used = cq.attached.next != &cq.attached;
  cq.lock.unlock();
  if (used) return EBUSY;  // V-CQ-09

  const rnic_handle request{ibv->handle, 0};
  rnic_destroy_cq_reply reply{};
  const int error = context.control.call(RNIC_DESTROY_CQ, request, reply);
  if (destroyed(error) != 0) return error;
  pthread_mutex_lock(&context.objects);
  cq.in_context.remove();
  pthread_mutex_unlock(&context.objects);

  if (error != EPERM) {
    if (ibv->channel != nullptr && error == 0) forget_completion_events(cq, reply.events_sent + cq.events_sent);
    if (ibv->channel != nullptr && error != 0) forget_completion_events(cq);  // the daemon has gone
    forget_async_events(context, ibv, ibv->mutex, ibv->cond, ibv->async_events_completed, cq.async_taken);
  }
  if (cq.channel_writer >= 0) close(cq.channel_writer);
  if (cq.domain != nullptr) leave_domain(cq.domain);
  std::free(&cq);
  return 0;
}

}  // namespace rnic::provider
