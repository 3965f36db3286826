/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The life of queue pairs, and their states as ibverbs names them.
#include <time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "datagrams.hpp"
#include "modify_rules.hpp"
#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

bool set_up_queue(WorkQueue& queue, char* at, const rnic_area& area, std::uint32_t entries, std::uint32_t stride,
                  std::uint32_t sge_max, std::uint32_t doorbell) {
  const std::uint64_t needed = sizeof(rnic_ring_control) + std::uint64_t{entries} * stride;
  if (at == nullptr || area.length < needed) return false;
  if (entries != 0 && !is_power_of_two(entries)) return false;
  if (doorbell >= RNIC_DOORBELLS_MAX) return false;
  queue.size = entries;
  queue.stride = stride;
  queue.sge_max = sge_max;
  queue.doorbell = doorbell;
  queue.control = reinterpret_cast<rnic_ring_control*>(at);
  queue.slots = reinterpret_cast<std::byte*>(at + sizeof(rnic_ring_control));
  return true;
}

bool set_up_send(Qp& qp, char* at, const rnic_create_qp_reply& reply) {
  SendQueue& queue = qp.send;
  if (!set_up_queue(queue, at, reply.send_area, reply.send_entries, reply.send_stride, reply.send_sge_max,
                    reply.send_doorbell)) {
    return false;
  }
  const std::uint64_t sges = std::uint64_t{reply.send_sge_max} * sizeof(rnic_sge);
  std::uint64_t body = sges > reply.inline_max ? sges : reply.inline_max;
  constexpr std::uint64_t kAtomic = sizeof(rnic_sge) + sizeof(rnic_atomic_masks);
  if (!is_datagram(qp) && body < kAtomic) body = kAtomic;
  if (queue.size != 0 && queue.stride < send_header_of(qp) + body) return false;
  queue.inline_max = reply.inline_max;
  queue.work = static_cast<SendSlot*>(std::calloc(queue.size + 1, sizeof(SendSlot)));
  return queue.work != nullptr;
}

bool set_up_receive(ReceiveQueue& queue, char* at, const rnic_create_qp_reply& reply) {
  if (!set_up_queue(queue, at, reply.recv_area, reply.recv_entries, reply.recv_stride, reply.recv_sge_max,
                    reply.recv_doorbell)) {
    return false;
  }
  const std::uint64_t sges = std::uint64_t{reply.recv_sge_max} * sizeof(rnic_sge);
  if (queue.size != 0 && queue.stride < sizeof(rnic_rqe) + sges) return false;
  return allocate_receives(queue);
}

void free_qp(Qp& qp) {
  std::free(qp.send.work);
  free_receives(qp.receive);
  std::free(&qp);
}

int ask_for_qp(Context& context, Qp& qp, const rnic_create_qp& request) {
  rnic_create_qp_reply reply{};
  Descriptors fds{};
  const ArenaGuard guard(context);
  int error = context.control.call(RNIC_CREATE_QP, request, reply, &fds);
  if (error != 0) return error;
  char* send = nullptr;
  char* receive = nullptr;
  error = map_area(context, reply.send_area, fds, send);
  const int second = reply.recv_area.length != 0 ? map_area(context, reply.recv_area, fds, receive) : 0;
  if (error == 0) error = second;
  fds.close_rest();

  Qp** entry = nullptr;
  if (error == 0 && set_up_send(qp, send, reply) && (request.srq != 0 || set_up_receive(qp.receive, receive, reply))) {
    pthread_mutex_lock(&context.objects);
    entry = context.qps.make(reply.qp_number);
    pthread_mutex_unlock(&context.objects);
  }
  if (entry == nullptr) {
    context.control.call(RNIC_DESTROY_QP, reply.qp_number);
    return error != 0 ? error : ENOMEM;
  }
  qp.ibv.handle = reply.qp_number;
  qp.ibv.qp_num = reply.qp_number;
  qp.cap = {reply.send_entries, reply.recv_entries, reply.send_sge_max, reply.recv_sge_max, reply.inline_max};
  store(*entry, &qp, std::memory_order_release);
  return 0;
}

void attach(Cq& cq, Attachment& attachment, Qp& qp, bool is_send) {
  attachment.qp = &qp;
  attachment.is_send = is_send;
  const SpinGuard guard(cq.lock);
  attachment.link.insert_after(cq.attached, &attachment);
}

void detach(Cq& cq, Attachment& attachment, const Qp& qp) {
  remove_completions(cq, qp);
  const SpinGuard guard(cq.lock);
  attachment.link.remove();
}

// libibverbs leaves these to the provider, and itself uses them.
void fill_in(ibv_qp& to, ibv_pd* pd, const ibv_qp_init_attr& init) {
  to.context = pd->context;
  to.qp_context = init.qp_context;
  to.pd = pd;
  to.send_cq = init.send_cq;
  to.recv_cq = init.recv_cq;
  to.srq = init.srq;
  to.state = IBV_QPS_RESET;
  to.qp_type = init.qp_type;
  pthread_mutex_init(&to.mutex, nullptr);
  pthread_cond_init(&to.cond, nullptr);
}

// With builders, where `operations` says of which IBV_QP_EX_WITH_*.
ibv_qp* make_qp(ibv_pd* pd, ibv_qp_init_attr* init, const std::uint64_t* operations,
                const DirectAttributes& direct = {}) {
  Context& context = context_of(pd);
  const bool datagrams = init->qp_type == IBV_QPT_UD && has_datagrams(context);
  if (init->qp_type != IBV_QPT_RC && !datagrams) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  // V-QP-01; and a number says nothing of an object in another context.
  const auto ours = [pd](const auto* object) { return object != nullptr && object->context == pd->context; };
  if (!ours(init->send_cq) || !ours(init->recv_cq) || (init->srq != nullptr && !ours(init->srq))) {
    errno = EINVAL;
    return nullptr;
  }
  if (operations != nullptr && !has_builders_of(context, *operations, datagrams)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto* qp = static_cast<Qp*>(allocate_zeroed(sizeof(Qp)));
  if (qp == nullptr) return nullptr;
  rnic_create_qp request{};
  request.pd = pd->handle;
  request.send_cq = init->send_cq->handle;
  request.recv_cq = init->recv_cq->handle;
  request.srq = init->srq != nullptr ? of(init->srq).handle : 0;
  request.send_wr_min = init->cap.max_send_wr;
  request.send_sge_max = init->cap.max_send_sge;
  if (init->srq == nullptr) {  // V-QP-11
    request.recv_wr_min = init->cap.max_recv_wr;
    request.recv_sge_max = init->cap.max_recv_sge;
  }
  request.inline_max = init->cap.max_inline_data;
  request.type = datagrams ? RNIC_QP_UD : RNIC_QP_RC;
  request.user_pointer = pointer_value(&qp->ibv);
  request.flags = direct.flags;
  request.receive_limit = direct.receive_limit;

  qp->binds = (direct.flags & RNIC_QP_NO_BIND) == 0;
  qp->context = &context;
  qp->srq = init->srq != nullptr ? &of(init->srq) : nullptr;
  qp->send.signal_all = init->sq_sig_all != 0;
  fill_in(qp->ibv, pd, *init);
  if (operations != nullptr) {
    qp->mask = kQpHasBuilders;
    set_builders(qp->ex);
  }
  // A libibverbs whose ibv_qp_ex is another than the one that this was built with does not find it.
  const bool agreed = operations == nullptr || ibv_qp_to_qp_ex(&qp->ibv) == &qp->ex;
  const int error = agreed ? ask_for_qp(context, *qp, request) : EOPNOTSUPP;
  if (error != 0) {
    free_qp(*qp);
    errno = error;
    return nullptr;
  }
  enter_domain(pd);
  attach(of(init->send_cq), qp->send_attachment, *qp, true);
  attach(of(init->recv_cq), qp->receive_attachment, *qp, false);
  pthread_mutex_lock(&context.objects);
  qp->in_context.insert_after(context.qp_list, qp);
  pthread_mutex_unlock(&context.objects);

  init->cap.max_send_wr = qp->cap.max_send_wr;
  init->cap.max_send_sge = qp->cap.max_send_sge;
  init->cap.max_inline_data = qp->cap.max_inline_data;
  if (init->srq == nullptr) {
    init->cap.max_recv_wr = qp->cap.max_recv_wr;
    init->cap.max_recv_sge = qp->cap.max_recv_sge;
  }
  return &qp->ibv;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) { return make_qp(pd, init, nullptr); }

ibv_qp* create_qp_ex(ibv_context* ibv, ibv_qp_init_attr_ex* init) { return create_qp_with(ibv, init, {}); }

ibv_qp* create_qp_with(ibv_context* ibv, ibv_qp_init_attr_ex* init, const DirectAttributes& direct) {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                   IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  const auto given = [init](std::uint32_t attribute) { return (init->comp_mask & attribute) != 0; };
  if ((init->comp_mask & ~kKnown) != 0 || (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags != 0) ||
      (given(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && init->max_tso_header != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (!given(IBV_QP_INIT_ATTR_PD) || init->pd == nullptr || init->pd->context != ibv) {
    errno = EINVAL;
    return nullptr;
  }
  // It begins as the shorter one does; libibverbs relies on that, too.
  static_assert(offsetof(ibv_qp_init_attr_ex, sq_sig_all) == offsetof(ibv_qp_init_attr, sq_sig_all));
  return make_qp(init->pd, reinterpret_cast<ibv_qp_init_attr*>(init),
                 given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ? &init->send_ops_flags : nullptr, direct);
}

namespace {

// What an application calls Idle travels as it is.
static_assert(int{IBV_QPS_RESET} == RNIC_IDLE_RESET && int{IBV_QPS_INIT} == RNIC_IDLE_INIT &&
              int{IBV_QPS_RTR} == RNIC_IDLE_RTR && int{IBV_QPS_RTS} == RNIC_IDLE_RTS);

rnic_modify_qp modification(const Qp& qp, std::uint32_t mask, std::uint32_t state, const ibv_qp_attr& attributes) {
  rnic_modify_qp request{};
  request.qp_number = qp.ibv.qp_num;
  request.mask = mask;
  request.state = state;
  // What the mask does not name, the application may have left as it found it. There is no bind enable in ibverbs: it
  // stays as the queue pair was made with.
  if ((mask & RNIC_MODIFY_ACCESS) != 0) {
    request.access = to_rnic_access(attributes.qp_access_flags) & ~RNIC_ACCESS_WINDOW_BIND;
    if (qp.binds) request.access |= RNIC_ACCESS_WINDOW_BIND;
  }
  if ((mask & RNIC_MODIFY_ORD) != 0) request.ord = attributes.max_rd_atomic;
  if ((mask & RNIC_MODIFY_IRD) != 0) request.ird = attributes.max_dest_rd_atomic;
  if ((mask & RNIC_MODIFY_PATIENCE) != 0) {
    request.timeout = attributes.timeout;
    request.retry_count = attributes.retry_cnt;
    request.rnr_retry = attributes.rnr_retry;
    request.min_rnr_timer = attributes.min_rnr_timer;
  }
  if (state == RNIC_QP_IDLE && (mask & RNIC_MODIFY_STATE) != 0) request.idle_name = attributes.qp_state;
  return request;
}

int ask_for(Qp& qp, const rnic_modify_qp& request) {
  return qp.context->control.call(RNIC_MODIFY_QP, &request, sizeof request, nullptr, 0);
}

int modify(Qp& qp, std::uint32_t mask, std::uint32_t state, const ibv_qp_attr& attributes) {
  return ask_for(qp, modification(qp, mask, state, attributes));
}

int ask_state(Qp& qp, rnic_query_qp_reply& reply) {
  return qp.context->control.call(RNIC_QUERY_QP, rnic_handle{qp.ibv.qp_num, 0}, reply);
}

// A way down that the QP is already on, or has behind it, is no error to an ibverbs application
// (V-MOD-09): librdmacm shuts a QP down whether or not its peer was first. Nor is it where the
// daemon has gone and taken every QP with it.
int already_down(Qp& qp, int error, bool idle_too) {
  if (error == EIO) return 0;
  if (error == EPERM) return error;
  rnic_query_qp_reply now{};
  if (ask_state(qp, now) != 0) return error;
  if (now.state == RNIC_QP_RTS) return error;
  return now.state == RNIC_QP_IDLE && !idle_too ? error : 0;
}

// V-MOD-10: from RTS by way of Error; from Error, as soon as all has been flushed. So does one in Idle where queue
// pairs meet without rdma_cm: what was posted for one peer is not the next one's.
int reset(Qp& qp, const ibv_qp_attr& attributes) {
  rnic_query_qp_reply now{};
  int error = ask_state(qp, now);
  if (error == 0 && (now.state == RNIC_QP_RTS || (connects_oob(*qp.context) && now.state == RNIC_QP_IDLE))) {
    error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_ERROR, attributes);
    if (error == EINVAL) error = 0;  // it has gone down by itself meanwhile
  }
  const timespec moment{0, 1000000};
  constexpr int kTries = 5000;
  for (int i = 0; error == 0; ++i) {
    error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_IDLE, attributes);
    if (error == 0) break;
    // Terminate and Closing end by themselves; until then there is no way to Idle from them.
    const bool passing =
        error == EBUSY ||
        (error == EINVAL && ask_state(qp, now) == 0 &&
         (now.state == RNIC_QP_TERMINATE || now.state == RNIC_QP_CLOSING || now.state == RNIC_QP_ERROR));
    if (!passing || i == kTries) break;
    error = 0;
    nanosleep(&moment, nullptr);
  }
  return error;
}

// What was posted has been flushed, and nobody is to hear of it, nor of what had completed: InfiniBand's RESET.
void discard_work(Qp& qp) {
  remove_completions(of(qp.ibv.send_cq), qp);
  remove_completions(of(qp.ibv.recv_cq), qp);
  for (WorkQueue* queue : {static_cast<WorkQueue*>(&qp.send), static_cast<WorkQueue*>(&qp.receive)}) {
    const SpinGuard guard(queue->lock);
    store(queue->tail, queue->head, std::memory_order_release);
  }
}

// RTS comes with the connection, by the connection manager alone. After it, this is a change of
// attributes (V-RTS-04).
int stay_in_rts(Qp& qp, std::uint32_t mask, const ibv_qp_attr& attributes) {
  rnic_query_qp_reply now{};
  const int error = ask_state(qp, now);
  if (error != 0) return error;
  // The daemon refuses, and its log says what would help.
  if (now.state == RNIC_QP_IDLE && !connects_oob(*qp.context))
    (void)modify(qp, RNIC_MODIFY_STATE, RNIC_QP_IDLE, attributes);
  if (now.state != RNIC_QP_RTS) return EINVAL;
  return mask == 0 ? 0 : modify(qp, mask, RNIC_QP_RTS, attributes);
}

// ---- connection without rdma_cm ------------------------------------------------------------------

constexpr int kOfPatience = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER;
constexpr int kOfPeer = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

// Of the attributes that are only kept. 0 or EINVAL, as a RoCE device would say.
int check_kept(const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) != 0 && (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > IBV_MTU_4096))
    return EINVAL;
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attributes.path_mig_state != IBV_MIG_MIGRATED) return EINVAL;
  if ((mask & IBV_QP_TIMEOUT) != 0 && attributes.timeout > 31) return EINVAL;
  if ((mask & IBV_QP_RETRY_CNT) != 0 && attributes.retry_cnt > 7) return EINVAL;
  if ((mask & IBV_QP_RNR_RETRY) != 0 && attributes.rnr_retry > 7) return EINVAL;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attributes.min_rnr_timer > 31) return EINVAL;
  return 0;
}

void keep(Qp& qp, const ibv_qp_attr& from, int mask) {
  ibv_qp_attr& to = qp.asked;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) to.qp_access_flags = from.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) to.pkey_index = from.pkey_index;
  if ((mask & IBV_QP_QKEY) != 0) to.qkey = from.qkey;
  if ((mask & IBV_QP_AV) != 0) to.ah_attr = from.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) to.path_mtu = from.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) to.timeout = from.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) to.retry_cnt = from.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) to.rnr_retry = from.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) to.rq_psn = from.rq_psn;
  if ((mask & IBV_QP_SQ_PSN) != 0) to.sq_psn = from.sq_psn;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) to.min_rnr_timer = from.min_rnr_timer;
  if ((mask & IBV_QP_DEST_QPN) != 0) to.dest_qp_num = from.dest_qp_num;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) to.max_rd_atomic = from.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  qp.asked_mask |= mask;
}

void fill_in_kept(const Qp& qp, ibv_qp_attr& to) {
  const ibv_qp_attr& from = qp.asked;
  const int mask = qp.asked_mask;
  to.pkey_index = from.pkey_index;
  to.qkey = from.qkey;
  to.ah_attr = from.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) to.path_mtu = from.path_mtu;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.min_rnr_timer = from.min_rnr_timer;
  to.dest_qp_num = from.dest_qp_num;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) to.max_rd_atomic = from.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
}

// Modify to RTR with what InfiniBand needs for it: the daemon looks for the peer from now on.
int name_peer(Qp& qp, std::uint32_t changes, const ibv_qp_attr& attributes, int mask) {
  if ((mask & kOfPeer) != kOfPeer) return EINVAL;
  const ibv_ah_attr& route = attributes.ah_attr;
  rnic_modify_qp request = modification(qp, changes | RNIC_MODIFY_STATE | RNIC_MODIFY_PEER, RNIC_QP_IDLE, attributes);
  request.psn = attributes.rq_psn;
  request.peer_number = attributes.dest_qp_num;
  request.has_route = route.is_global;
  if (route.is_global != 0) {
    request.gid_index = route.grh.sgid_index;
    request.traffic_class = route.grh.traffic_class;
    std::memcpy(request.peer_gid, route.grh.dgid.raw, sizeof request.peer_gid);
  }
  const int error = ask_for(qp, request);
  if (error == 0) qp.meets = true;
  return error;
}

int count_from(Qp& qp, std::uint32_t changes, const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_SQ_PSN) == 0) return EINVAL;
  rnic_modify_qp request =
      modification(qp, (changes & ~RNIC_MODIFY_IRD) | RNIC_MODIFY_STATE | RNIC_MODIFY_PSN, RNIC_QP_IDLE, attributes);
  request.psn = attributes.sq_psn;
  return ask_for(qp, request);
}

ibv_qp_state state_name(const Qp& qp, const rnic_query_qp_reply& now) {
  const bool as_infiniband = is_roce(*qp.context) && !is_datagram(qp);
  switch (now.state) {
    case RNIC_QP_IDLE:
      return static_cast<ibv_qp_state>(now.idle_name);
    case RNIC_QP_RTS:
      return now.idle_name == RNIC_IDLE_RTR ? IBV_QPS_RTR : IBV_QPS_RTS;
    case RNIC_QP_CLOSING:  // InfiniBand knows of no peer that goes
      return as_infiniband ? IBV_QPS_RTS : IBV_QPS_SQD;
    case RNIC_QP_TERMINATE:
      return as_infiniband ? IBV_QPS_ERR : IBV_QPS_SQE;
    default:
      return IBV_QPS_ERR;
  }
}

// Of one of type UD.
int modify_datagrams(Qp& qp, const ibv_qp_attr& attributes, int mask) {
  rnic_query_qp_reply now{};
  rnic_modify_qp request{};
  int error = ask_state(qp, now);
  if (error == 0) error = change_datagrams(qp, state_name(qp, now), attributes, mask, request);
  if (error != 0) return error == EIO && (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR ? 0 : error;
  const bool resets = (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RESET;
  if (!resets) {
    error = ask_for(qp, request);
  } else if (state_name(qp, now) != IBV_QPS_RESET) {
    // By way of Error, where all is flushed.
    error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_ERROR, attributes);
    if (error == 0) error = reset(qp, attributes);
  }
  // What may be posted goes by it.
  if (error == 0 && (mask & IBV_QP_STATE) != 0) qp.ibv.state = attributes.qp_state;
  return error;
}

int change(Qp& qp, const ibv_qp_attr& attributes, int mask) {
  if (is_datagram(qp)) return modify_datagrams(qp, attributes, mask);
  if ((mask & IBV_QP_CAP) != 0) return EOPNOTSUPP;  // V-QRN-20: not advertised
  std::uint32_t changes = 0;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) changes |= RNIC_MODIFY_ACCESS;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) changes |= RNIC_MODIFY_ORD;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) changes |= RNIC_MODIFY_IRD;
  if (is_roce(*qp.context) && (mask & kOfPatience) != 0) changes |= RNIC_MODIFY_PATIENCE;
  if ((mask & IBV_QP_STATE) == 0) {
    return changes == 0 ? 0 : modify(qp, changes, 0, attributes);
  }

  const ibv_qp_state wanted = attributes.qp_state;
  if (changes != 0 && wanted != IBV_QPS_INIT && wanted != IBV_QPS_RTR && wanted != IBV_QPS_RTS)
    return EINVAL;  // V-MOD-01
  int error = 0;
  switch (wanted) {
    case IBV_QPS_RESET:
      return reset(qp, attributes);
    case IBV_QPS_RTR:
      if (connects_oob(*qp.context) && (mask & kOfPeer) != 0) return name_peer(qp, changes, attributes, mask);
      [[fallthrough]];
    case IBV_QPS_INIT:
      return modify(qp, changes | RNIC_MODIFY_STATE, RNIC_QP_IDLE, attributes);
    case IBV_QPS_RTS:
      if (qp.meets && qp.ibv.state == IBV_QPS_RTR) return count_from(qp, changes, attributes, mask);
      return stay_in_rts(qp, changes, attributes);
    case IBV_QPS_SQD:
      if (qp.meets) return EINVAL;
      error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_CLOSING, attributes);
      return error == 0 ? 0 : already_down(qp, error, true);
    case IBV_QPS_SQE:
      return modify(qp, RNIC_MODIFY_STATE, RNIC_QP_TERMINATE, attributes);
    case IBV_QPS_ERR:
      error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_ERROR, attributes);
      return error == 0 ? 0 : already_down(qp, error, false);
    default:
      return EINVAL;
  }
}

}  // namespace

namespace {

// One whose peer is just leaving goes to Idle first: it is in Error all the same when this returns.
int fail(Qp& qp, const ibv_qp_attr& attributes) {
  const timespec moment{0, 1000000};
  constexpr int kTries = 5000;
  for (int i = 0;; ++i) {
    const int error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_ERROR, attributes);
    rnic_query_qp_reply now{};
    if (error != EINVAL || i == kTries || ask_state(qp, now) != 0) return error == EIO ? 0 : error;
    if (now.state == RNIC_QP_ERROR) return 0;
    if (now.state != RNIC_QP_IDLE && now.state != RNIC_QP_RTS) nanosleep(&moment, nullptr);
  }
}

// On the RoCE face: as InfiniBand has it of what state it is in now.
int change_as_infiniband(Qp& qp, const ibv_qp_attr& attributes, int mask) {
  rnic_query_qp_reply now{};
  if (const int error = ask_state(qp, now); error != 0) return error;
  const ibv_qp_state from = state_name(qp, now);
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from) return EINVAL;
  if (!may_modify(from, to, mask)) return EINVAL;
  if ((mask & IBV_QP_AV) != 0 && attributes.ah_attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) != 0 && attributes.path_mtu > mtu_name(qp.context->attributes.mtu)) return EINVAL;
  qp.ibv.state = from;  // what libibverbs remembers may be long ago
  if (to == IBV_QPS_ERR) return fail(qp, attributes);
  // The daemon takes the four of patience together; each stays what it was until it is named.
  ibv_qp_attr whole = attributes;
  if ((mask & IBV_QP_TIMEOUT) == 0) whole.timeout = qp.asked.timeout;
  if ((mask & IBV_QP_RETRY_CNT) == 0) whole.retry_cnt = qp.asked.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) == 0) whole.rnr_retry = qp.asked.rnr_retry;
  if ((mask & IBV_QP_MIN_RNR_TIMER) == 0) whole.min_rnr_timer = qp.asked.min_rnr_timer;
  return change(qp, whole, from == IBV_QPS_RTS && to == IBV_QPS_RTS ? mask & ~IBV_QP_STATE : mask);
}

// Nothing is left of what its application has said of a peer.
void forget_peer(Qp& qp) {
  qp.asked = {};
  qp.asked_mask = 0;
  qp.meets = false;
}

}  // namespace

void note_state(Qp& qp, std::uint32_t state) {
  const bool was_idle = qp.ibv.state == IBV_QPS_INIT || qp.ibv.state == IBV_QPS_RTR;
  if (state == RNIC_QP_IDLE && was_idle) return;
  rnic_query_qp_reply now{};
  now.state = state;
  qp.ibv.state = state_name(qp, now);
  if (state == RNIC_QP_IDLE) forget_peer(qp);
}

int modify_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int mask) {
  Qp& qp = of(ibv);
  if (!connects_oob(*qp.context)) return change(qp, *attributes, mask);
  if (const int error = check_kept(*attributes, mask); error != 0) return error;
  const bool as_infiniband = is_roce(*qp.context) && !is_datagram(qp);
  const int error = as_infiniband ? change_as_infiniband(qp, *attributes, mask) : change(qp, *attributes, mask);
  if (error != 0) return error;
  if ((mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_RESET) {
    discard_work(qp);
    forget_peer(qp);
    store(qp.told_last_wqe, false, std::memory_order_relaxed);
  } else {
    keep(qp, *attributes, mask);
  }
  return 0;
}

namespace {

std::uint8_t clamp_octet(std::uint32_t value) {
  return value > UINT8_MAX ? UINT8_MAX : static_cast<std::uint8_t>(value);
}

}  // namespace

int query_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* init) {
  Qp& qp = of(ibv);
  rnic_query_qp_reply reply{};
  const int error = ask_state(qp, reply);
  if (error != 0) return error;
  *attributes = {};
  attributes->qp_state = state_name(qp, reply);
  attributes->cur_qp_state = attributes->qp_state;
  attributes->path_mtu = mtu_name(qp.context->attributes.mtu);
  // The daemon keeps no right to the queue pair's own memory: that is the regions'.
  attributes->qp_access_flags = is_roce(*qp.context)
                                    ? qp.asked.qp_access_flags
                                    : to_ibv_access(reply.access) | (qp.asked.qp_access_flags & IBV_ACCESS_LOCAL_WRITE);
  attributes->cap = qp.cap;
  attributes->max_rd_atomic = clamp_octet(reply.ord);
  attributes->max_dest_rd_atomic = clamp_octet(reply.ird);
  attributes->port_num = 1;
  if (qp.asked_mask != 0) fill_in_kept(qp, *attributes);
  *init = {};
  init->qp_context = ibv->qp_context;
  init->send_cq = ibv->send_cq;
  init->recv_cq = ibv->recv_cq;
  init->srq = ibv->srq;
  init->cap = qp.cap;
  init->qp_type = ibv->qp_type;
  init->sq_sig_all = qp.send.signal_all ? 1 : 0;
  return 0;
}

int destroy_qp(ibv_qp* ibv) {
  Qp& qp = of(ibv);
  Context& context = *qp.context;
  const int error = destroyed(context.control.call(RNIC_DESTROY_QP, ibv->qp_num));
  if (error != 0) return error;

  // From here on the number may be another QP's (V-QP-16), in the table too.
  detach(of(ibv->send_cq), qp.send_attachment, qp);
  detach(of(ibv->recv_cq), qp.receive_attachment, qp);
  pthread_mutex_lock(&context.objects);
  qp.in_context.remove();
  Qp** entry = context.qps.find(ibv->qp_num);
  if (entry != nullptr && *entry == &qp) {
    store(*entry, static_cast<Qp*>(nullptr), std::memory_order_release);
  }
  pthread_mutex_unlock(&context.objects);
  forget_async_events(context, ibv, ibv->mutex, ibv->cond, ibv->events_completed, qp.async_taken);
  leave_domain(ibv->pd);
  free_qp(qp);
  return 0;
}

}  // namespace rnic::provider
