/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Device and port queries, and the life of CQs, SRQs and QPs: the control path. Each is a request
// to the daemon, and the private memory that goes with what it made.
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "context.hpp"

namespace rnic::provider {

namespace {

int clamp_int(std::uint32_t value) { return value > INT32_MAX ? INT32_MAX : static_cast<int>(value); }

std::uint64_t pointer_value(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool is_power_of_two(std::uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

std::uint32_t log2_of(std::uint32_t power) { return static_cast<std::uint32_t>(__builtin_ctz(power)); }

ibv_mtu mtu_name(std::uint32_t octets) {
  if (octets >= 4096) return IBV_MTU_4096;
  if (octets >= 2048) return IBV_MTU_2048;
  if (octets >= 1024) return IBV_MTU_1024;
  return octets >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

// What ibv_port_attr can say of a speed: lanes, and a lane's.
struct LinkSpeed {
  std::uint32_t mbps;
  std::uint8_t width;  // 1: one lane, 2: four
  std::uint8_t speed;  // 1: 2.5, 4: 10, 32: 25, 64: 50, 128: 100 Gb/s
};
constexpr LinkSpeed kLinkSpeeds[] = {
    {400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {50000, 1, 64},
    {40000, 2, 4},    {25000, 1, 32},  {10000, 1, 4},   {0, 1, 1},
};

}  // namespace

int query_device_ex(ibv_context* ibv, const ibv_query_device_ex_input* /*input*/, ibv_device_attr_ex* attributes,
                    std::size_t size) {
  const rnic_device_attributes& ours = context_of(ibv).attributes;
  std::memset(attributes, 0, size);
  ibv_device_attr& to = attributes->orig_attr;
  static_assert(sizeof to.fw_ver > sizeof ours.firmware);
  std::memcpy(to.fw_ver, ours.firmware, sizeof ours.firmware);
  to.node_guid = ours.node_guid;
  to.sys_image_guid = ours.node_guid;
  to.max_mr_size = ours.max_mr_size;
  to.page_size_cap = ours.page_size_cap;
  to.vendor_id = ours.vendor_id;
  to.vendor_part_id = ours.vendor_part_id;
  to.hw_ver = ours.hw_version;
  to.max_qp = clamp_int(ours.max_qp);
  to.max_qp_wr = clamp_int(ours.max_qp_wr);
  if ((ours.capabilities & RNIC_CAP_INVALIDATE) != 0) {
    to.device_cap_flags |= IBV_DEVICE_MEM_MGT_EXTENSIONS;
  }
  to.max_sge = clamp_int(ours.max_sge);
  to.max_sge_rd = clamp_int(ours.max_sge_read);
  to.max_cq = clamp_int(ours.max_cq);
  to.max_cqe = clamp_int(ours.max_cqe);
  to.max_mr = clamp_int(ours.max_mr);
  to.max_pd = clamp_int(ours.max_pd);
  to.max_qp_rd_atom = clamp_int(ours.max_read_in);
  to.max_qp_init_rd_atom = clamp_int(ours.max_read_out);
  const std::uint64_t reads = std::uint64_t{ours.max_qp} * ours.max_read_in;
  to.max_res_rd_atom = reads > INT32_MAX ? INT32_MAX : static_cast<int>(reads);
  to.atomic_cap = ours.atomics != 0 ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  to.max_srq = clamp_int(ours.max_srq);
  to.max_srq_wr = clamp_int(ours.max_srq_wr);
  to.max_srq_sge = clamp_int(ours.max_srq_sge);
  to.phys_port_cnt = 1;
  if (size >= offsetof(ibv_device_attr_ex, phys_port_cnt_ex) + sizeof(std::uint32_t)) {
    attributes->phys_port_cnt_ex = 1;
  }
  return 0;
}

int query_port(ibv_context* ibv, std::uint8_t port, ibv_port_attr* attributes) {
  if (port != 1) return EINVAL;
  const Context& context = context_of(ibv);
  const bool up = context.device.link_up != 0 && !is_dead(context);
  attributes->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->active_mtu = mtu_name(context.attributes.mtu);
  attributes->gid_tbl_len = std::size(rnic_device_info{}.addresses);
  attributes->pkey_tbl_len = 0;
  attributes->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP;
  attributes->max_msg_sz = UINT32_MAX;  // V-SR-04
  attributes->max_vl_num = 1;
  for (const LinkSpeed& row : kLinkSpeeds) {
    if (context.attributes.speed_mbps < row.mbps) continue;
    attributes->active_width = row.width;
    attributes->active_speed = row.speed;
    break;
  }
  attributes->phys_state = up ? 5 : 3;  // LinkUp, Disabled
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

// ---- Events that name an object about to go ------------------------------------------------------

namespace {

std::uint64_t cookie_of(const ibv_comp_channel* channel) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (channel == nullptr) return 0;
  return getsockopt(channel->fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

// Blocks, as every provider does, until the application has acknowledged the events it was given.
void await_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& cond, const std::uint32_t& completed,
                            const std::uint32_t& taken) {
  pthread_mutex_lock(&mutex);
  while (completed != load(taken, std::memory_order_acquire)) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

void forget_async_events(Context& context, const void* object, pthread_mutex_t& mutex, pthread_cond_t& cond,
                         const std::uint32_t& completed, const std::uint32_t& taken) {
  if (context.control.in_forked_child()) return;
  drop_events(context, {context.async_fd, context.async_writer, 0}, object);
  await_acknowledgements(mutex, cond, completed, taken);
}

std::uint32_t drop_completion_events(Cq& cq) {
  const ibv_comp_channel* channel = cq.ibv.channel;
  return drop_events(context_of(cq.ibv.context), {channel->fd, cq.channel_writer, cookie_of(channel)}, &cq.ibv);
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

void count_event(std::uint32_t& counter) { std::atomic_ref(counter).fetch_add(1); }

}  // namespace

void cq_event(ibv_cq* cq) { count_event(of(cq).events_taken); }

void async_event(ibv_context* /*context*/, ibv_async_event* event) {
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

// ---- Completion queues ---------------------------------------------------------------------------

namespace {

bool take_ring(Cq& cq, char* at, std::uint32_t entries, std::uint64_t length) {
  if (at == nullptr || !is_power_of_two(entries)) return false;
  if (length < sizeof(rnic_cq_control) + std::uint64_t{entries} * sizeof(rnic_cqe)) return false;
  cq.control = reinterpret_cast<rnic_cq_control*>(at);
  cq.entries = reinterpret_cast<rnic_cqe*>(at + sizeof(rnic_cq_control));
  cq.shift = log2_of(entries);
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

ibv_cq* create_cq(ibv_context* ibv, int entries, ibv_comp_channel* channel, int vector) {
  Context& context = context_of(ibv);
  rnic_create_cq request{};
  request.channel_cookie = cookie_of(channel);
  if (entries <= 0 || vector < 0 || (channel != nullptr && request.channel_cookie == 0)) {
    errno = EINVAL;
    return nullptr;
  }
  auto* cq = static_cast<Cq*>(allocate_zeroed(sizeof(Cq)));
  if (cq == nullptr) return nullptr;
  request.entries_min = static_cast<std::uint32_t>(entries);
  request.vector = static_cast<std::uint32_t>(vector);
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
  return &cq->ibv;
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
    // Without a daemon nobody knows how many it had sent: all unread ones are dropped.
    const std::uint32_t sent = error == 0 ? reply.events_sent + cq.events_sent : UINT32_MAX;
    if (ibv->channel != nullptr && sent != UINT32_MAX) forget_completion_events(cq, sent);
    if (ibv->channel != nullptr && sent == UINT32_MAX) {
      drop_completion_events(cq);
      await_acknowledgements(ibv->mutex, ibv->cond, ibv->comp_events_completed, cq.events_taken);
    }
    forget_async_events(context, ibv, ibv->mutex, ibv->cond, ibv->async_events_completed, cq.async_taken);
  }
  if (cq.channel_writer >= 0) close(cq.channel_writer);
  std::free(&cq);
  return 0;
}

// ---- Shared receive queues -----------------------------------------------------------------------

namespace {

// The private memory beside the slots of a receive queue.
bool allocate_receives(ReceiveQueue& queue) {
  if (queue.size == 0) return true;
  queue.work = static_cast<ReceiveSlot*>(std::calloc(queue.size, sizeof(ReceiveSlot)));
  queue.sges = static_cast<rnic_sge*>(std::calloc(std::size_t{queue.size} * (queue.sge_max + 1), sizeof(rnic_sge)));
  return queue.work != nullptr && queue.sges != nullptr;
}

void free_receives(ReceiveQueue& queue) {
  std::free(queue.work);
  std::free(queue.sges);
}

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
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // V-QRN-20: not advertised
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

// ---- Queue pairs ---------------------------------------------------------------------------------

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

bool set_up_send(SendQueue& queue, char* at, const rnic_create_qp_reply& reply) {
  if (!set_up_queue(queue, at, reply.send_area, reply.send_entries, reply.send_stride, reply.send_sge_max,
                    reply.send_doorbell)) {
    return false;
  }
  const std::uint64_t sges = std::uint64_t{reply.send_sge_max} * sizeof(rnic_sge);
  const std::uint64_t body = sges > reply.inline_max ? sges : reply.inline_max;
  if (queue.size != 0 && queue.stride < sizeof(rnic_sqe) + body) return false;
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
  if (error == 0 && set_up_send(qp.send, send, reply) &&
      (request.srq != 0 || set_up_receive(qp.receive, receive, reply))) {
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

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  Context& context = context_of(pd);
  if (init->qp_type != IBV_QPT_RC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (init->send_cq == nullptr || init->recv_cq == nullptr) {
    errno = EINVAL;  // V-QP-01
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
  request.user_pointer = pointer_value(&qp->ibv);

  qp->context = &context;
  qp->srq = init->srq != nullptr ? &of(init->srq) : nullptr;
  qp->send.signal_all = init->sq_sig_all != 0;
  fill_in(qp->ibv, pd, *init);
  const int error = ask_for_qp(context, *qp, request);
  if (error != 0) {
    free_qp(*qp);
    errno = error;
    return nullptr;
  }
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

namespace {

// What an application calls Idle travels as it is.
static_assert(int{IBV_QPS_RESET} == RNIC_IDLE_RESET && int{IBV_QPS_INIT} == RNIC_IDLE_INIT &&
              int{IBV_QPS_RTR} == RNIC_IDLE_RTR);

int modify(Qp& qp, std::uint32_t mask, std::uint32_t state, const ibv_qp_attr& attributes) {
  rnic_modify_qp request{};
  request.qp_number = qp.ibv.qp_num;
  request.mask = mask;
  request.state = state;
  // There is no bind enable in ibverbs, so it is on.
  request.access = to_rnic_access(attributes.qp_access_flags) | RNIC_ACCESS_WINDOW_BIND;
  request.ord = attributes.max_rd_atomic;
  request.ird = attributes.max_dest_rd_atomic;
  if (state == RNIC_QP_IDLE && (mask & RNIC_MODIFY_STATE) != 0) request.idle_name = attributes.qp_state;
  return qp.context->control.call(RNIC_MODIFY_QP, &request, sizeof request, nullptr, 0);
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

// V-MOD-10: from RTS by way of Error; from Error, as soon as all has been flushed.
int reset(Qp& qp, const ibv_qp_attr& attributes) {
  rnic_query_qp_reply now{};
  int error = ask_state(qp, now);
  if (error == 0 && now.state == RNIC_QP_RTS) {
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

// RTS comes with the connection, by the connection manager alone. After it, this is a change of
// attributes (V-RTS-04).
int stay_in_rts(Qp& qp, std::uint32_t mask, const ibv_qp_attr& attributes) {
  rnic_query_qp_reply now{};
  const int error = ask_state(qp, now);
  if (error != 0) return error;
  if (now.state != RNIC_QP_RTS) return EINVAL;
  mask &= RNIC_MODIFY_ORD | RNIC_MODIFY_IRD;
  return mask == 0 ? 0 : modify(qp, mask, RNIC_QP_RTS, attributes);
}

}  // namespace

int modify_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int mask) {
  Qp& qp = of(ibv);
  std::uint32_t changes = 0;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) changes |= RNIC_MODIFY_ACCESS;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) changes |= RNIC_MODIFY_ORD;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) changes |= RNIC_MODIFY_IRD;
  if ((mask & IBV_QP_STATE) == 0) {
    return changes == 0 ? 0 : modify(qp, changes, 0, *attributes);
  }

  int error = 0;
  switch (attributes->qp_state) {
    case IBV_QPS_RESET:
      return reset(qp, *attributes);
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
      return modify(qp, changes | RNIC_MODIFY_STATE, RNIC_QP_IDLE, *attributes);
    case IBV_QPS_RTS:
      return stay_in_rts(qp, changes, *attributes);
    case IBV_QPS_SQD:
      error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_CLOSING, *attributes);
      return error == 0 ? 0 : already_down(qp, error, true);
    case IBV_QPS_SQE:
      return modify(qp, RNIC_MODIFY_STATE, RNIC_QP_TERMINATE, *attributes);
    case IBV_QPS_ERR:
      error = modify(qp, RNIC_MODIFY_STATE, RNIC_QP_ERROR, *attributes);
      return error == 0 ? 0 : already_down(qp, error, false);
    default:
      return EINVAL;
  }
}

namespace {

ibv_qp_state state_name(const rnic_query_qp_reply& now) {
  switch (now.state) {
    case RNIC_QP_IDLE:
      return static_cast<ibv_qp_state>(now.idle_name);
    case RNIC_QP_RTS:
      return IBV_QPS_RTS;
    case RNIC_QP_CLOSING:
      return IBV_QPS_SQD;
    case RNIC_QP_TERMINATE:
      return IBV_QPS_SQE;
    default:
      return IBV_QPS_ERR;
  }
}

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
  attributes->qp_state = state_name(reply);
  attributes->cur_qp_state = attributes->qp_state;
  attributes->path_mtu = mtu_name(qp.context->attributes.mtu);
  attributes->qp_access_flags = to_ibv_access(reply.access);
  attributes->cap = qp.cap;
  attributes->max_rd_atomic = clamp_octet(reply.ord);
  attributes->max_dest_rd_atomic = clamp_octet(reply.ird);
  attributes->port_num = 1;
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
  free_qp(qp);
  return 0;
}

}  // namespace rnic::provider
