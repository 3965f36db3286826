/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The direct verbs of devices, events, queues and queue pairs.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "direct.hpp"
#include "verbs_objects.hpp"

namespace rnic::provider::direct {

constexpr rnic::direct::Table kTable = {
    .size = sizeof(rnic::direct::Table),
    .reserved = 0,
    .is_ours = is_ours,
    .query_device = query_device,
    .event_fd = event_fd,
    .get_event = get_event,
    .query_cq = query_cq,
    .query_srq = query_srq,
    .create_srq = create_srq,
    .create_qp = create_qp,
    .modify_qp = modify_qp,
    .query_qp = query_qp,
    .reg_mr = reg_mr,
    .reg_shared_mr = reg_shared_mr,
    .reg_page_list = reg_page_list,
    .rereg_page_list = rereg_page_list,
    .alloc_stag = alloc_stag,
    .query_mr = query_mr,
    .query_mw = query_mw,
    .wr_rdma_read_inv = wr_rdma_read_inv,
    .wr_fast_register = wr_fast_register,
    .stream_connect = stream_connect,
    .stream_listen = stream_listen,
    .stream_accept = stream_accept,
    .stream_send = stream_send,
    .stream_receive = stream_receive,
    .stream_query = stream_query,
    .stream_close = stream_close,
    .wr_masked_fetch_add = wr_masked_fetch_add,
    .wr_masked_cmp_swp = wr_masked_cmp_swp,
};

// By a function that stands in no other's table of operations.
bool is_ours(const ibv_context* context) { return context->ops.poll_cq == provider::poll_cq; }

// ---- devices ---------------------------------------------------------------------------------------

int query_device(ibv_context* ibv, rnicdv_device_attr* attr) {
  const rnic_device_attributes& ours = context_of(ibv).attributes;
  const auto can = [&](std::uint32_t capability) { return (ours.capabilities & capability) != 0 ? 1u : 0u; };
  *attr = {};
  attr->max_write_sge = ours.max_sge;
  attr->max_page_list = RNIC_PAGE_LIST_MAX;
  attr->can_modify_ird = can(RNIC_CAP_MODIFY_IRD);
  attr->can_raise_ord = can(RNIC_CAP_RAISE_ORD);
  attr->detects_cq_overflow = can(RNIC_CAP_CQ_OVERFLOW);
  attr->srq_dequeue = can(RNIC_CAP_SRQ_ARRIVAL) != 0 ? RNICDV_SRQ_ARRIVAL : RNICDV_SRQ_SEQUENTIAL;
  attr->buffer_mode = RNICDV_PAGE_MODE;
  attr->page_sizes = ours.page_size_cap;
  return 0;
}

// ---- events ----------------------------------------------------------------------------------------

namespace {

// The socket that they come on, asked for at the first need. -1: errno.
int events_of(Context& context) {
  int place = load(context.direct_events, std::memory_order_acquire);
  if (place != 0) return place - 1;
  pthread_mutex_lock(&context.objects);
  place = context.direct_events;
  int error = 0;
  if (place == 0) {
    Descriptors fds{};
    const rnic_nothing nothing{};
    error = context.control.call(RNIC_DIRECT_EVENTS, &nothing, 0, nullptr, 0, -1, &fds);
    const int reader = error == 0 ? fds.take() : -1;
    fds.close_rest();
    if (reader >= 0) {
      place = reader + 1;
      store(context.direct_events, place, std::memory_order_release);
    } else if (error == 0) {
      error = EMFILE;
    }
  }
  pthread_mutex_unlock(&context.objects);
  if (error != 0) errno = error;
  return place - 1;
}

}  // namespace

int event_fd(ibv_context* ibv) { return events_of(context_of(ibv)); }

int get_event(ibv_context* ibv, rnicdv_event* event) {
  Context& context = context_of(ibv);
  if (context.control.in_forked_child()) return EPERM;
  const int socket = events_of(context);
  if (socket < 0) return errno;
  struct {  // struct ib_uverbs_async_event_desc
    std::uint64_t element;
    std::uint32_t type;
    std::uint32_t reserved;
  } message{};
  for (;;) {
    const ssize_t got = recv(socket, &message, sizeof message, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno == EWOULDBLOCK ? EAGAIN : errno;
    }
    if (got == 0) return EIO;
    if (got == sizeof message && message.type == RNIC_EVENT_STREAM) {
      rnicdv_stream* const stream = stream_named(context, message.element);
      if (stream == nullptr) continue;
      *event = {};
      event->type = RNICDV_EVENT_STREAM_READY;
      event->stream = stream;
      return 0;
    }
    if (got != sizeof message || message.type != RNIC_EVENT_RECEIVE_LIMIT) continue;
    // One that has gone meanwhile took its events with it.
    auto* const wanted = reinterpret_cast<ibv_qp*>(message.element);
    bool there = false;
    pthread_mutex_lock(&context.objects);
    for (Link* at = context.qp_list.next; at != &context.qp_list && !there; at = at->next)
      there = &static_cast<Qp*>(at->owner)->ibv == wanted;
    pthread_mutex_unlock(&context.objects);
    if (!there) continue;
    *event = {};
    event->type = RNICDV_EVENT_QP_RQ_LIMIT_REACHED;
    event->qp = wanted;
    return 0;
  }
}

// ---- queues ----------------------------------------------------------------------------------------

int query_cq(ibv_cq* cq, rnicdv_cq_attr* attr) {
  *attr = {};
  attr->entries = static_cast<std::uint32_t>(cq->cqe);
  attr->channel = cq->channel;
  return 0;
}

int query_srq(ibv_srq* ibv, rnicdv_srq_attr* attr) {
  Srq& srq = of(ibv);
  rnic_query_srq_reply reply{};
  const int error = srq.context->control.call(RNIC_QUERY_SRQ, rnic_handle{srq.handle, 0}, reply);
  if (error != 0) return error;
  *attr = {};
  attr->max_wr = reply.entries;
  attr->max_sge = reply.sge_max;
  attr->pd_handle = ibv->pd->handle;
  attr->limit = reply.limit_given;
  attr->armed = reply.limit != 0 ? 1 : 0;
  return 0;
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  ibv_srq* const srq = create_limited_srq(pd, init, init->attr.srq_limit);
  if (srq == nullptr) return nullptr;
  // As libibverbs does around the provider's function.
  srq->context = pd->context;
  srq->srq_context = init->srq_context;
  srq->pd = pd;
  srq->events_completed = 0;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  return srq;
}

// ---- queue pairs -----------------------------------------------------------------------------------

ibv_qp* create_qp(ibv_context* ibv, ibv_qp_init_attr_ex* init, const rnicdv_qp_init_attr* given) {
  const rnicdv_qp_init_attr more = given != nullptr ? *given : rnicdv_qp_init_attr{};
  static_assert(RNICDV_QP_PRIVILEGED == RNIC_QP_PRIVILEGED && RNICDV_QP_NO_BIND == RNIC_QP_NO_BIND);
  if ((more.flags & ~(RNICDV_QP_PRIVILEGED | RNICDV_QP_NO_BIND)) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  // Before there can be one.
  if (more.rq_limit != 0 && events_of(context_of(ibv)) < 0) return nullptr;
  return create_qp_with(ibv, init, {more.flags, more.rq_limit});
}

namespace {

// Idle to RTS, on a stream in streaming mode.
int start_iwarp(Qp& qp, const rnicdv_qp_mod& mod, std::uint32_t mask) {
  if ((mask & RNICDV_QP_STATE) == 0 || mod.state != RNICDV_QPS_RTS) return EINVAL;
  static_assert(RNICDV_STREAM_MESSAGE_MAX == RNIC_STREAM_OCTETS_MAX);
  if (mod.message_length > RNICDV_STREAM_MESSAGE_MAX) return EINVAL;
  if (mod.stream != nullptr && mod.stream->context != qp.ibv.context) return ENOTCONN;
  rnic_start_iwarp request{};
  request.qp_number = qp.ibv.qp_num;
  if ((mask & RNICDV_QP_RQ_LIMIT) != 0) request.mask |= RNIC_MODIFY_RECEIVE_LIMIT;
  if ((mask & RNICDV_QP_ORD) != 0) request.mask |= RNIC_MODIFY_ORD;
  if ((mask & RNICDV_QP_IRD) != 0) request.mask |= RNIC_MODIFY_IRD;
  request.ord = mod.ord;
  request.ird = mod.ird;
  request.receive_limit = mod.rq_limit;
  request.stream = mod.stream != nullptr ? handle_of(mod.stream) : 0;
  request.message_length = mod.message_length;
  if (mod.message_length != 0) std::memcpy(request.message, mod.message, mod.message_length);
  const int error = qp.context->control.call(RNIC_START_IWARP, &request, sizeof request, nullptr, 0);
  if (error != 0) return error;
  note_state(qp, RNIC_QP_RTS);
  stream_is_attached(mod.stream);
  return 0;
}

}  // namespace

int modify_qp(ibv_qp* ibv, const rnicdv_qp_mod* mod, std::uint32_t mask) {
  static_assert(RNICDV_QPS_IDLE == int{RNIC_QP_IDLE} && RNICDV_QPS_RTS == int{RNIC_QP_RTS} &&
                RNICDV_QPS_CLOSING == int{RNIC_QP_CLOSING} && RNICDV_QPS_TERMINATE == int{RNIC_QP_TERMINATE} &&
                RNICDV_QPS_ERROR == int{RNIC_QP_ERROR});
  Qp& qp = of(ibv);
  constexpr std::uint32_t kKnown =
      RNICDV_QP_STATE | RNICDV_QP_RQ_LIMIT | RNICDV_QP_ORD | RNICDV_QP_IRD | RNICDV_QP_STREAM;
  if ((mask & ~kKnown) != 0) return EINVAL;
  const auto given = [mask](std::uint32_t attribute) { return (mask & attribute) != 0; };
  rnic_modify_qp request{};
  request.qp_number = ibv->qp_num;
  if (given(RNICDV_QP_STATE)) request.mask |= RNIC_MODIFY_STATE;
  if (given(RNICDV_QP_RQ_LIMIT)) request.mask |= RNIC_MODIFY_RECEIVE_LIMIT;
  if (given(RNICDV_QP_ORD)) request.mask |= RNIC_MODIFY_ORD;
  if (given(RNICDV_QP_IRD)) request.mask |= RNIC_MODIFY_IRD;
  request.state = mod->state;
  const bool named = ibv->state == IBV_QPS_INIT || ibv->state == IBV_QPS_RTR;  // Idle to Idle changes no name
  request.idle_name = named ? static_cast<std::uint32_t>(ibv->state) : static_cast<std::uint32_t>(RNIC_IDLE_RESET);
  request.receive_limit = mod->rq_limit;
  request.ord = mod->ord;
  request.ird = mod->ird;
  if (given(RNICDV_QP_RQ_LIMIT) && events_of(*qp.context) < 0) return errno;
  if (given(RNICDV_QP_STREAM)) return start_iwarp(qp, *mod, mask);
  const int error = qp.context->control.call(RNIC_MODIFY_QP, &request, sizeof request, nullptr, 0);
  if (error == 0 && given(RNICDV_QP_STATE)) note_state(qp, mod->state);
  return error;
}

int query_qp(ibv_qp* ibv, rnicdv_qp_attr* attr) {
  Qp& qp = of(ibv);
  rnic_query_qp_reply reply{};
  const int error = qp.context->control.call(RNIC_QUERY_QP, rnic_handle{ibv->qp_num, 0}, reply);
  if (error != 0) return error;
  const auto has = [&](std::uint32_t right) { return (reply.access & right) != 0 ? 1u : 0u; };
  *attr = {};
  attr->state = reply.state;
  attr->max_write_sge = qp.cap.max_send_sge;
  attr->ord = reply.ord;
  attr->ird = reply.ird;
  attr->read_enabled = has(RNIC_ACCESS_REMOTE_READ);
  attr->write_enabled = has(RNIC_ACCESS_REMOTE_WRITE);
  attr->bind_enabled = has(RNIC_ACCESS_WINDOW_BIND);
  attr->privileged = (reply.flags & RNIC_QP_PRIVILEGED) != 0 ? 1 : 0;
  attr->rq_limit = reply.receive_limit;
  attr->rq_limit_armed = (reply.flags & RNIC_QP_LIMIT_ARMED) != 0 ? 1 : 0;
  attr->stream = reply.stream;
  static_assert(sizeof attr->terminate == sizeof reply.terminate);
  const bool told = reply.state == RNIC_QP_TERMINATE || reply.state == RNIC_QP_ERROR;
  if (told && reply.terminate_origin != 0 && reply.terminate_length <= sizeof attr->terminate) {
    attr->terminate_origin = reply.terminate_origin;
    attr->terminate_length = reply.terminate_length;
    std::memcpy(attr->terminate, reply.terminate, reply.terminate_length);
  }
  return 0;
}

}  // namespace rnic::provider::direct
