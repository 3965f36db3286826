/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Events that name an object: those that are handed out are counted, and an object that goes takes its own with it.
#include <sys/socket.h>
#include <time.h>

#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

// Blocks, as every provider does, until the application has acknowledged the events it was given.
void await_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& cond, const std::uint32_t& completed,
                            const std::uint32_t& taken) {
  pthread_mutex_lock(&mutex);
  while (completed != load(taken, std::memory_order_acquire)) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

std::uint32_t drop_completion_events(Cq& cq) {
  const ibv_comp_channel* channel = cq.ibv.channel;
  return drop_events(context_of(cq.ibv.context), {channel->fd, cq.channel_writer, cookie_of(channel)}, &cq.ibv);
}

void count_event(std::uint32_t& counter) { std::atomic_ref(counter).fetch_add(1); }

}  // namespace

std::uint64_t cookie_of(const ibv_comp_channel* channel) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (channel == nullptr) return 0;
  return getsockopt(channel->fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

void forget_async_events(Context& context, const void* object, pthread_mutex_t& mutex, pthread_cond_t& cond,
                         const std::uint32_t& completed, const std::uint32_t& taken) {
  if (context.control.in_forked_child()) return;
  drop_events(context, {context.async_fd, context.async_writer, 0}, object);
  await_acknowledgements(mutex, cond, completed, taken);
}

// An event may have been read but not counted yet, in the middle of ibv_get_cq_event on another
// thread. It is counted within a moment, which this waits for (not for ever: see the loop).
void forget_completion_events(Cq& cq, std::uint32_t sent) {
  std::uint32_t dropped = 0;
  if (load(cq.events_taken, std::memory_order_acquire) != sent) dropped = drop_completion_events(cq);
  const timespec moment{0, 1000000};
  for (int i = 0; i < 100; ++i) {
    if (load(cq.events_taken, std::memory_order_acquire) + dropped >= sent) break;
    nanosleep(&moment, nullptr);
  }
  await_acknowledgements(cq.ibv.mutex, cq.ibv.cond, cq.ibv.comp_events_completed, cq.events_taken);
}

void forget_completion_events(Cq& cq) {
  drop_completion_events(cq);
  await_acknowledgements(cq.ibv.mutex, cq.ibv.cond, cq.ibv.comp_events_completed, cq.events_taken);
}

void cq_event(ibv_cq* cq) { count_event(of(cq).events_taken); }

void async_event(ibv_context* /*context*/, ibv_async_event* event) {
  if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
    store(of(event->element.qp).told_last_wqe, true, std::memory_order_relaxed);
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      count_event(of(event->element.cq).async_taken);
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      count_event(of(event->element.qp).async_taken);
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      count_event(of(event->element.srq).async_taken);
      break;
    default:
      break;
  }
}

}  // namespace rnic::provider
