// Completion queues, shared receive queues and queue pairs of a context.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "control/async_events.hpp"
#include "control/batches.hpp"
#include "control/context.hpp"
#include "control/limits.hpp"

namespace rnic::control {
namespace {

constexpr std::uint32_t rounded_to_line(std::uint32_t n) {
  return (n + RNIC_CACHE_LINE - 1) / RNIC_CACHE_LINE * RNIC_CACHE_LINE;
}

constexpr std::uint32_t receive_stride_of(std::uint32_t sges) {
  return rounded_to_line(static_cast<std::uint32_t>(sizeof(rnic_rqe) + sges * sizeof(rnic_sge)));
}

static_assert(ud::kGrhBytes == RNIC_UD_HEADER_BYTES);
static_assert(RNIC_DOORBELLS_MAX >= 2 * kQpsMax + kSrqsMax, "V-RNIC-08: no other limit is met before these");

// Of a send queue's entry, with a datagram's address.
constexpr std::uint32_t header_of(std::uint32_t type) {
  return static_cast<std::uint32_t>(sizeof(rnic_sqe) + (type == RNIC_QP_UD ? sizeof(rnic_ud_address) : 0));
}

// Header, then SGEs or inline data, whichever is longer; COMPARE_SWAP and BIND have 8 octets more.
constexpr std::uint32_t send_stride_of(std::uint32_t header, std::uint32_t sges, std::uint32_t inline_bytes) {
  const std::uint32_t body = std::max(sges * static_cast<std::uint32_t>(sizeof(rnic_sge)) + 8, inline_bytes);
  return std::max(rounded_to_line(header + body), kSendStrideMin);
}

std::uint32_t at_least_one(std::uint32_t n) { return std::max(n, 1u); }

// What Query says of one of type UD: enum rnic_qp_state, enum rnic_idle_name.
std::pair<std::uint32_t, std::uint32_t> names_of(ud::State state) {
  switch (state) {
    case ud::State::reset:
      return {RNIC_QP_IDLE, RNIC_IDLE_RESET};
    case ud::State::init:
      return {RNIC_QP_IDLE, RNIC_IDLE_INIT};
    case ud::State::rtr:
      return {RNIC_QP_IDLE, RNIC_IDLE_RTR};
    case ud::State::rts:
      return {RNIC_QP_RTS, RNIC_IDLE_RTS};
    case ud::State::sqe:
      return {RNIC_QP_TERMINATE, RNIC_IDLE_RESET};
    case ud::State::error:
      return {RNIC_QP_ERROR, RNIC_IDLE_RESET};
  }
  return {RNIC_QP_ERROR, RNIC_IDLE_RESET};
}

int errno_of(qp::ModifyError error) {
  switch (error) {
    case qp::ModifyError::invalid_state:
      return EINVAL;  // V-IS-24
    case qp::ModifyError::invalid_attribute:
      return EOPNOTSUPP;  // V-IS-23
    case qp::ModifyError::still_flushing:
      return EBUSY;  // V-IS-26
  }
  return EINVAL;
}

}  // namespace

// ---- completion queues ---------------------------------------------------------------------------

Reply Context::create_cq(const rnic_create_cq& request, std::shared_ptr<EventSocket> channel) {
  if (request.entries_min == 0 || request.entries_min > kCqesMax) return Reply::error(EINVAL);  // V-CQ-02
  if (request.vector >= kCompletionVectors) return Reply::error(EINVAL);                        // V-CQ-03
  if ((request.flags & ~RNIC_CQ_TIMES) != 0) return Reply::error(EINVAL);
  Share share = device_.cqs.take(holder_);
  if (!share) return Reply::error(ENOMEM);
  const std::uint32_t entries = std::bit_ceil(request.entries_min);
  auto piece = allocate(shm::CompletionQueue::area_bytes(entries));
  if (!piece) return Reply::error(piece.error());

  auto cq = std::make_unique<Cq>();
  cq->share = std::move(share);
  cq->handle = new_handle();
  cq->cookie = machine_.next_cookie++;
  cq->user_pointer = request.user_pointer;
  cq->context = this;
  cq->piece = std::move(*piece);
  const bool timed = (request.flags & RNIC_CQ_TIMES) != 0;
  using Producers = shm::CompletionQueue::Producers;
  cq->queue = std::make_unique<shm::CompletionQueue>(cq->piece.bytes(), entries, cq->cookie, timed,
                                                     static_cast<std::uint32_t>(machine_.workers.size()),
                                                     device_.shards.size() > 1 ? Producers::several : Producers::one);
  cq->channel = std::move(channel);
  machine_.cqs_by_cookie[cq->cookie] = cq.get();
  ++device_.counts.cqs;

  Reply reply;
  rnic_create_cq_reply body{};
  body.cq = cq->handle;
  body.entries = entries;
  describe(reply, body.area, cq->piece);
  if (cq->channel != nullptr) reply.add(cq->channel->writer());
  reply.append(&body, sizeof body);
  cqs_.emplace(cq->handle, std::move(cq));
  return reply;
}

// The provider holds the CQ's lock, so that nobody polls; the producers are stopped where the queue asks for it.
Reply Context::resize_cq(const rnic_resize_cq& request) {
  Cq* cq = find(cqs_, request.cq);
  if (cq == nullptr || request.entries_min == 0 || request.entries_min > kCqesMax) return Reply::error(EINVAL);
  const std::uint32_t entries = std::bit_ceil(request.entries_min);
  auto piece = allocate(shm::CompletionQueue::area_bytes(entries));
  if (!piece) return Reply::error(piece.error());
  Reply reply;
  rnic_resize_cq_reply body{};
  if (!arenas_[piece->arena()].announced) {
    // Whether the application can take its descriptor is seen before there is no way back.
    describe(reply, body.area, *piece);
    reply.append(&body, sizeof body);
    return reply;
  }
  std::optional<shm::CompletionQueue::Resize> resize;
  bool done = false;
  machine_.with_all_stopped([&](Instant) { resize = cq->queue->begin_resize(piece->bytes(), entries); });
  if (!resize) return Reply::error(EINVAL);  // V-CQ-08
  cq->queue->copy(*resize);
  machine_.with_all_stopped([&](Instant) { done = cq->queue->finish_resize(*resize); });
  if (!done) return Reply::error(EINVAL);
  cq->piece = std::move(*piece);
  body.entries = entries;
  describe(reply, body.area, cq->piece);
  reply.append(&body, sizeof body);
  return reply;
}

void Context::forget(Cq& cq) {
  machine_.cqs_by_cookie.erase(cq.cookie);
  if (cq.channel != nullptr) cq.channel->forget(cq.completions);
  async_->forget(cq.events);
}

Reply Context::destroy_cq(std::uint32_t handle) {
  Cq* cq = find(cqs_, handle);
  if (cq == nullptr) return Reply::error(EINVAL);
  if (cq->uses != 0) return Reply::error(EBUSY);  // V-CQ-09
  device_.on_each([&](Shard& shard, Instant) { shard.worker->forget(*cq->queue); });
  forget(*cq);
  const rnic_destroy_cq_reply reply{cq->completions.sent, 0};
  cqs_.erase(handle);
  --device_.counts.cqs;
  return Reply::with(reply);
}

// ---- events that the provider sorts --------------------------------------------------------------

Reply Context::hold_events(std::shared_ptr<EventSocket> channel) {
  if (held_) return Reply::error(EBUSY);
  held_.emplace(channel != nullptr ? std::move(channel) : async_);
  return {};
}

Reply Context::release_events() {
  if (!held_) return Reply::error(EINVAL);
  held_.reset();
  return {};
}

// ---- shared receive queues -----------------------------------------------------------------------

Reply Context::create_srq(const rnic_create_srq& request) {
  Pd* pd = find(pds_, request.pd);
  if (pd == nullptr) return Reply::error(EINVAL);
  if (request.wr_min > kSrqWorkRequestsMax || request.sge_max > kSgesMax) return Reply::error(EINVAL);
  const std::uint32_t entries = std::bit_ceil(at_least_one(request.wr_min));
  if (request.limit > entries) return Reply::error(EINVAL);  // V-LIM-04
  Share share = device_.srqs.take(holder_);
  if (!share) return Reply::error(ENOMEM);
  const std::uint32_t sges = at_least_one(request.sge_max);
  const std::uint32_t stride = receive_stride_of(sges);
  auto doorbell = doorbells_.take();
  if (!doorbell) return Reply::error(ENOMEM);
  auto piece = allocate(shm::SharedReceiveQueue::area_bytes(entries, stride));
  if (!piece) return Reply::error(piece.error());

  auto srq = std::make_unique<Srq>();
  srq->share = std::move(share);
  srq->handle = new_handle();
  srq->cookie = machine_.next_cookie++;
  srq->user_pointer = request.user_pointer;
  srq->context = this;
  srq->pd = pd;
  srq->entries = entries;
  srq->sge_max = sges;
  srq->doorbell = std::move(doorbell);
  srq->piece = std::move(*piece);
  srq->queue =
      std::make_unique<shm::SharedReceiveQueue>(srq->piece.bytes(), entries, stride, sges, device_.shards.size() > 1);
  srq->queue->cookie = srq->cookie;
  core::Worker& worker = *device_.first().worker;
  srq->queue->set_worker(worker.index());
  worker.call([&](Instant) { worker.doorbells().bind_shared(*memory_, srq->doorbell.number(), *srq->queue); });
  srq->queue->arm_limit(request.limit);  // V-LIM-01
  srq->limit_given = request.limit;
  machine_.srqs_by_cookie[srq->cookie] = srq.get();
  ++pd->uses;
  ++device_.counts.srqs;

  Reply reply;
  rnic_create_srq_reply body{};
  body.srq = srq->handle;
  body.entries = entries;
  body.stride = stride;
  body.sge_max = sges;
  body.doorbell = srq->doorbell.number();
  describe(reply, body.area, srq->piece);
  reply.append(&body, sizeof body);
  srqs_.emplace(srq->handle, std::move(srq));
  return reply;
}

Reply Context::modify_srq(const rnic_modify_srq& request) {
  Srq* srq = find(srqs_, request.srq);
  if (srq == nullptr || (request.set & ~(RNIC_SRQ_LIMIT | RNIC_SRQ_ENTRIES)) != 0) return Reply::error(EINVAL);
  const bool limits = (request.set & RNIC_SRQ_LIMIT) != 0, resizes = (request.set & RNIC_SRQ_ENTRIES) != 0;
  if (resizes && (request.wr_min == 0 || request.wr_min > kSrqWorkRequestsMax)) return Reply::error(EINVAL);
  const std::uint32_t entries = resizes ? std::bit_ceil(request.wr_min) : srq->entries;
  const std::uint32_t limit = limits ? request.limit : srq->queue->limit();
  if (limit > entries) return Reply::error(EINVAL);  // V-LIM-04
  if (resizes) return resize_srq(*srq, request, entries);
  if (limits) device_.first().worker->call([&](Instant) { srq->queue->arm_limit(request.limit); });  // V-LIM-03
  if (limits) srq->limit_given = request.limit;
  return Reply::with(rnic_modify_srq_reply{});
}

// The provider holds the queue's lock, so that nobody posts; who takes is stopped for the last step.
Reply Context::resize_srq(Srq& srq, const rnic_modify_srq& request, std::uint32_t entries) {
  if (request.in_use > entries) return Reply::error(EINVAL);  // V-SRZ-02
  auto piece = allocate(shm::SharedReceiveQueue::area_bytes(entries, receive_stride_of(srq.sge_max)));
  if (!piece) return Reply::error(piece.error());
  Reply reply;
  rnic_modify_srq_reply body{};
  if (!arenas_[piece->arena()].announced) {  // as in resize_cq()
    describe(reply, body.area, *piece);
    reply.append(&body, sizeof body);
    return reply;
  }
  const auto resize = srq.queue->begin_resize(piece->bytes(), entries);
  if (!resize) return Reply::error(EINVAL);
  srq.queue->copy(*resize);
  bool done = false;
  const auto finish = [&](Instant) {
    done = srq.queue->finish_resize(*resize);
    if (done && (request.set & RNIC_SRQ_LIMIT) != 0) srq.queue->arm_limit(request.limit);
  };
  if (device_.shards.size() == 1)
    device_.first().worker->call(finish);
  else
    machine_.with_all_stopped(finish);
  if (!done) return Reply::error(EINVAL);
  srq.piece = std::move(*piece);
  srq.entries = body.entries = entries;
  if ((request.set & RNIC_SRQ_LIMIT) != 0) srq.limit_given = request.limit;
  describe(reply, body.area, srq.piece);
  reply.append(&body, sizeof body);
  return reply;
}

Reply Context::query_srq(std::uint32_t handle) {
  const Srq* srq = find(srqs_, handle);
  if (srq == nullptr) return Reply::error(EINVAL);
  return Reply::with(
      rnic_query_srq_reply{srq->entries, srq->sge_max, srq->queue->limit(), srq->limit_given});  // V-SRA-02
}

void Context::forget(Srq& srq) {
  machine_.srqs_by_cookie.erase(srq.cookie);
  async_->forget(srq.events);
}

Reply Context::destroy_srq(std::uint32_t handle) {
  Srq* srq = find(srqs_, handle);
  if (srq == nullptr) return Reply::error(EINVAL);
  if (srq->uses != 0) return Reply::error(EBUSY);  // V-SRQ-21
  device_.on_each([&](Shard& shard, Instant) { shard.worker->doorbells().unbind(*memory_, srq->doorbell.number()); });
  forget(*srq);
  --srq->pd->uses;
  --device_.counts.srqs;
  srqs_.erase(handle);
  return {};
}

// ---- queue pairs ---------------------------------------------------------------------------------

// The rings of a queue pair, as they are made of what was asked for. Of the receive queue all is 0 with an SRQ.
struct Context::QpSizes {
  std::uint32_t send_entries, send_stride, send_sges, send_header;
  std::uint32_t recv_entries, recv_stride, recv_sges;
  bool shared_receive;

  // None where more is asked for than there is.
  static std::optional<QpSizes> of(const rnic_create_qp& request);
};

std::optional<Context::QpSizes> Context::QpSizes::of(const rnic_create_qp& request) {
  const bool shared = request.srq != 0;
  // V-QP-11: with a shared receive queue the depth of one of its own is not looked at.
  const std::uint32_t recv_wr = shared ? 0 : at_least_one(request.recv_wr_min);
  const std::uint32_t recv_sges = shared ? 0 : at_least_one(request.recv_sge_max);
  const std::uint32_t send_sges = at_least_one(request.send_sge_max);
  if (request.send_wr_min > kWorkRequestsMax || recv_wr > kWorkRequestsMax) return std::nullopt;  // V-IS-15
  if (send_sges > kSgesMax || recv_sges > kSgesMax) return std::nullopt;                          // V-IS-16
  if (request.inline_max > kInlineMax) return std::nullopt;
  return QpSizes{.send_entries = std::bit_ceil(at_least_one(request.send_wr_min)),
                 .send_stride = send_stride_of(header_of(request.type), send_sges, request.inline_max),
                 .send_sges = send_sges,
                 .send_header = header_of(request.type),
                 .recv_entries = shared ? 0 : std::bit_ceil(recv_wr),
                 .recv_stride = shared ? 0 : receive_stride_of(recv_sges),
                 .recv_sges = recv_sges,
                 .shared_receive = shared};
}

Reply Context::create_qp(const rnic_create_qp& request) {
  Pd* pd = find(pds_, request.pd);
  Cq* send_cq = find(cqs_, request.send_cq);
  Cq* recv_cq = find(cqs_, request.recv_cq);
  Srq* srq = find(srqs_, request.srq);
  if (pd == nullptr || send_cq == nullptr || recv_cq == nullptr) return Reply::error(EINVAL);
  if (request.srq != 0 && srq == nullptr) return Reply::error(EINVAL);
  if ((request.flags & ~(RNIC_QP_PRIVILEGED | RNIC_QP_NO_BIND)) != 0) return Reply::error(EINVAL);
  // V-QP-05: root, or whoever the daemon belongs to.
  const bool privileged = (request.flags & RNIC_QP_PRIVILEGED) != 0;
  if (privileged && peer_.uid != 0 && peer_.uid != geteuid()) return Reply::error(EPERM);
  // V-MOD-08, V-IS-27.
  if (request.receive_limit > (srq != nullptr ? srq->entries : 0)) return Reply::error(EINVAL);
  const auto sizes = QpSizes::of(request);
  if (!sizes) return Reply::error(EINVAL);
  const bool ud = request.type == RNIC_QP_UD;
  if (ud && device_.face() != Face::roce) return Reply::error(EOPNOTSUPP);
  if (ud && (request.flags != 0 || request.receive_limit != 0)) return Reply::error(EOPNOTSUPP);
  // A datagram that is too long for a receive gives it back, and of several workers another may have the next already.
  if (ud && srq != nullptr && device_.shards.size() > 1) return Reply::error(EOPNOTSUPP);
  if (!ud && request.type != RNIC_QP_RC) return Reply::error(EINVAL);

  auto qp = std::make_unique<Qp>();
  qp->share = device_.qps.take(holder_);
  if (!qp->share) return Reply::error(ENOMEM);
  if (const int error = carve(*qp, *sizes); error != 0) return Reply::error(error);
  qp->number = machine_.new_qp_number();
  qp->cookie = machine_.next_cookie++;
  qp->user_pointer = request.user_pointer;
  qp->context = this;
  qp->pd = pd;
  qp->send_cq = send_cq;
  qp->recv_cq = recv_cq;
  qp->srq = srq;
  qp->shard = ud ? &device_.first() : &device_.next_shard();
  if (ud)
    start_ud(*qp);
  else
    start(*qp, *sizes, request);

  machine_.qps[qp->number.value] = qp.get();
  machine_.qps_by_cookie[qp->cookie] = qp.get();
  ++pd->uses;
  ++send_cq->uses;
  ++recv_cq->uses;
  if (srq != nullptr) ++srq->uses;
  ++device_.counts.qps;
  Reply reply = described(*qp, *sizes);
  qps_.emplace(qp->number.value, std::move(qp));
  return reply;
}

// What it needs of the memory that the application shares with us. 0, or an errno: all is given back with the Qp.
int Context::carve(Qp& qp, const QpSizes& sizes) {
  qp.send_doorbell = doorbells_.take();
  if (!qp.send_doorbell) return ENOMEM;
  if (!sizes.shared_receive) {
    qp.recv_doorbell = doorbells_.take();
    if (!qp.recv_doorbell) return ENOMEM;
  }
  auto piece = allocate(shm::SendQueue::area_bytes(sizes.send_entries, sizes.send_stride));
  if (!piece) return piece.error();
  qp.send_piece = std::move(*piece);
  qp.send =
      std::make_unique<shm::SendQueue>(qp.send_piece.bytes(), sizes.send_entries, sizes.send_stride, sizes.send_sges);
  if (sizes.shared_receive) return 0;
  piece = allocate(shm::SendQueue::area_bytes(sizes.recv_entries, sizes.recv_stride));
  if (!piece) return piece.error();
  qp.recv_piece = std::move(*piece);
  qp.recv = std::make_unique<shm::ReceiveQueue>(qp.recv_piece.bytes(), sizes.recv_entries, sizes.recv_stride,
                                                sizes.recv_sges);
  return 0;
}

Reply Context::transmit_memory(const rnic_transmit_memory& request) {
  Qp* qp = find(qps_, request.qp);
  const bool good = std::has_single_bit(request.length) && request.length <= RNIC_TRANSMIT_MEMORY_MAX;
  if (qp == nullptr || qp->transmit_piece.length() != 0 || !good) return Reply::error(EINVAL);
  Shares& all = machine_.transmit_memory;
  if (all.used_by(holder_) + request.length > kTransmitMemoryMax || !all.may_take(holder_, request.length))
    return Reply::error(ENOMEM);  // and no news: what is not staged is gathered by remote copy
  auto piece = allocate(request.length);
  if (!piece) return Reply::error(piece.error());
  qp->transmit_share = all.take(holder_, request.length);
  qp->transmit_piece = std::move(*piece);
  qp->shard->worker->call([&](Instant) { qp->send->set_transmit_memory(qp->transmit_piece.bytes()); });
  Reply reply;
  rnic_area area{};
  describe(reply, area, qp->transmit_piece);
  reply.append(&area, sizeof area);
  return reply;
}

// The application's side of it, for its worker.
void Context::make_host(Qp& qp) {
  core::Worker& worker = *qp.shard->worker;
  shm::QueueHost::Parts parts;
  parts.send = qp.send.get();
  parts.receive = qp.recv.get();
  parts.shared = qp.srq != nullptr ? qp.srq->queue.get() : nullptr;
  parts.send_cq = qp.send_cq->queue.get();
  parts.receive_cq = qp.recv_cq->queue.get();
  parts.qp_number = qp.number.value;
  parts.user_pointer = qp.user_pointer;
  parts.cookie = qp.cookie;
  qp.host = std::make_unique<shm::QueueHost>(parts, worker);
  qp.host->set_worker(worker.index(), worker);
}

void Context::start_ud(Qp& qp) {
  make_host(qp);
  const ud::Config config{.number = qp.number,
                          .pd = qp.pd->id,
                          .receive_pd = qp.srq != nullptr ? qp.srq->pd->id : qp.pd->id,  // V-SRQ-15
                          .space = space_,
                          .shared_receive = qp.srq != nullptr};
  core::Worker& worker = *qp.shard->worker;
  core::Device& device = *qp.shard->device;
  worker.call([&](Instant) {
    qp.ud = std::make_unique<ud::QueuePair>(config, *qp.host, *device_.table, worker.mover());
    device.datagrams().add(*qp.ud);
    worker.doorbells().bind_send(*memory_, qp.send_doorbell.number(), device, *qp.ud, *qp.send);
    if (qp.srq == nullptr)
      worker.doorbells().bind_receive(*memory_, qp.recv_doorbell.number(), device, *qp.ud, *qp.recv);
  });
}

// The queue pair itself, on its worker.
void Context::start(Qp& qp, const QpSizes& sizes, const rnic_create_qp& request) {
  make_host(qp);
  qp::Config config = device_.queue_pairs;
  config.number = qp.number;
  config.pd = qp.pd->id;
  config.space = space_;
  config.receive_pd = qp.srq != nullptr ? qp.srq->pd->id : qp.pd->id;                    // V-SRQ-15
  if ((request.flags & RNIC_QP_NO_BIND) == 0) config.access = tpt::Rights::window_bind;  // on for ibverbs (s1.5)
  config.privileged = (request.flags & RNIC_QP_PRIVILEGED) != 0;
  config.send_depth = sizes.send_entries;
  config.ird_max = kReadDepthMax;
  config.ord_max = kReadDepthMax;
  config.shared_receive = qp.srq != nullptr;
  make_on_worker(qp, config, nullptr);
  if (qp.srq != nullptr)
    qp.shard->worker->call([&](Instant) { (void)qp.qp->set_receive_limit(request.receive_limit); });  // V-LIM-05
}

// On its shard, where its queues tell of what is posted from now on. With `before`, what that was.
void Context::make_on_worker(Qp& qp, const qp::Config& config, const qp::QueuePair* before) {
  core::Worker& worker = *qp.shard->worker;
  core::Device& device = *qp.shard->device;
  worker.call([&](Instant) {
    qp.qp = std::make_unique<qp::QueuePair>(config, *qp.host, *device_.table, worker.mover(), device.data_pool(),
                                            device.scratch());
    if (before != nullptr) qp.qp->succeed(*before);
    worker.doorbells().bind_send(*memory_, qp.send_doorbell.number(), device, *qp.qp, *qp.send);
    if (qp.srq != nullptr)
      worker.doorbells().bind_shared_receive(*memory_, qp.srq->doorbell.number(), device, *qp.qp);
    else
      worker.doorbells().bind_receive(*memory_, qp.recv_doorbell.number(), device, *qp.qp, *qp.recv);
  });
  if (qp.srq == nullptr || &worker == device_.first().worker) return;
  core::Worker& rung = *device_.first().worker;
  rung.call([&](Instant) { rung.doorbells().relay_shared(*memory_, qp.srq->doorbell.number(), worker.index()); });
}

// What was posted meanwhile is found when it is connected, and what is posted then rings where it is: `worker` of its
// rings is stored before that, and read behind a fence by who posts.
bool Context::move(Qp& qp, Shard& to) {
  if (qp.shard == &to) return true;
  if (qp.qp == nullptr) return false;
  Shard& from = *qp.shard;
  std::unique_ptr<qp::QueuePair> before;
  from.worker->call([&](Instant now) {
    if (qp.qp->state() != qp::State::idle || from.device->has_stream(*qp.qp) || qp.qp->has_begun_work()) return;
    unbind(qp);
    from.device->release(*qp.qp, now);
    before = std::move(qp.qp);
  });
  if (before == nullptr) return false;
  qp.shard = &to;
  qp.host->set_worker(to.worker->index(), *to.worker);
  make_on_worker(qp, before->config(), before.get());
  from.worker->call([&](Instant) { before.reset(); });
  return true;
}

Reply Context::described(const Qp& qp, const QpSizes& sizes) {
  Reply reply;
  rnic_create_qp_reply body{};
  body.qp_number = qp.number.value;
  body.send_entries = sizes.send_entries;
  body.send_stride = sizes.send_stride;
  body.send_sge_max = sizes.send_sges;
  body.send_doorbell = qp.send_doorbell.number();
  body.recv_entries = sizes.recv_entries;
  body.recv_stride = sizes.recv_stride;
  body.recv_sge_max = sizes.recv_sges;
  body.recv_doorbell = qp.recv_doorbell.number();
  body.inline_max = std::min(sizes.send_stride - sizes.send_header, kInlineMax);
  describe(reply, body.send_area, qp.send_piece);
  if (qp.srq == nullptr) describe(reply, body.recv_area, qp.recv_piece);
  reply.append(&body, sizeof body);
  return reply;
}

// V-MOD-01: attributes change in Idle and RTS, not on the way to another state; nothing changes on
// an error (V-IMM-01).
Reply Context::modify_qp(const rnic_modify_qp& request) {
  Qp* qp = find(qps_, request.qp_number);
  constexpr std::uint32_t kMeets = RNIC_MODIFY_PEER | RNIC_MODIFY_PSN;
  constexpr std::uint32_t kKnown = RNIC_MODIFY_STATE | RNIC_MODIFY_ACCESS | RNIC_MODIFY_ORD | RNIC_MODIFY_IRD |
                                   RNIC_MODIFY_PATIENCE | RNIC_MODIFY_RECEIVE_LIMIT | kMeets;
  if (qp != nullptr && qp->ud != nullptr) return modify_ud(*qp, request);
  if (qp == nullptr || (request.mask & ~kKnown) != 0) return Reply::error(EINVAL);
  if ((request.mask & RNIC_MODIFY_ORD) != 0 && request.ord > kReadDepthMax) return Reply::error(EINVAL);  // V-IS-20
  if ((request.mask & RNIC_MODIFY_IRD) != 0 && request.ird > kReadDepthMax) return Reply::error(EINVAL);  // V-IS-21
  const bool limits = (request.mask & RNIC_MODIFY_RECEIVE_LIMIT) != 0;
  if (limits && qp->srq == nullptr) return Reply::error(EOPNOTSUPP);                    // V-MOD-08
  if (limits && request.receive_limit > qp->srq->entries) return Reply::error(EINVAL);  // V-IS-27
  const bool changes_state = (request.mask & RNIC_MODIFY_STATE) != 0;
  if (changes_state && request.state > RNIC_QP_ERROR) return Reply::error(EINVAL);
  const bool names_idle = changes_state && request.state == RNIC_QP_IDLE;
  if (names_idle && request.idle_name > RNIC_IDLE_RTS) return Reply::error(EINVAL);
  const bool counts = names_idle && request.idle_name == RNIC_IDLE_RTS;
  if (limits && ((request.mask & kMeets) != 0 || counts)) return Reply::error(EINVAL);
  if ((request.mask & kMeets) != 0 || counts) {
    if (const int error = check_meeting(*qp, request); error != 0) return Reply::error(error);
  }
  if ((request.mask & RNIC_MODIFY_PATIENCE) != 0) {
    const bool known = request.timeout < 32 && request.retry_count < 8 && request.rnr_retry < 8;
    if (device_.face() != Face::roce || !known || request.min_rnr_timer > 31) return Reply::error(EINVAL);
  }
  constexpr std::uint32_t kEnables =
      RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC | RNIC_ACCESS_WINDOW_BIND;
  int error = 0;
  const auto change = [&](qp::QueuePair& machine, Instant now) {
    const auto wanted = static_cast<qp::State>(request.state);
    const bool attributes = (request.mask & ~(RNIC_MODIFY_STATE | RNIC_MODIFY_PATIENCE | kMeets)) != 0;
    if (counts && machine.state() == qp::State::rts) {  // connected while it was in RTR
      if ((request.mask & RNIC_MODIFY_ACCESS) != 0) {
        const auto done = machine.set_access(static_cast<tpt::Rights>(request.access & kEnables));
        if (!done) error = errno_of(done.error());
      }
      if (error == 0 && (request.mask & RNIC_MODIFY_ORD) != 0)
        (void)machine.set_depths(machine.config().ird, std::min(request.ord, machine.config().ord));
      return;
    }
    if (counts && machine.state() != qp::State::idle) {  // it has gone down meanwhile
      error = EINVAL;
      return;
    }
    if ((request.mask & RNIC_MODIFY_PEER) != 0 &&
        (machine.state() != qp::State::idle || machine.idle_name() != qp::IdleName::init ||
         qp->shard->device->has_stream(machine) || machine.has_begun_work())) {
      error = EINVAL;
      return;
    }
    if (changes_state && wanted == qp::State::rts && machine.state() != qp::State::rts) {
      error = EINVAL;  // the connection manager's
      return;
    }
    if (changes_state && wanted != machine.state()) {
      if (attributes) {
        error = EINVAL;
        return;
      }
      if (const auto done = machine.modify_state(wanted, now); !done) error = errno_of(done.error());
      qp->shard->device->touch(machine);
      return;
    }
    if (changes_state && wanted != qp::State::idle && wanted != qp::State::rts) {
      error = EINVAL;  // on its way down already (V-ERRST-02, V-TERM-04, V-CLS-01)
      return;
    }
    // Outside Idle the first changes nothing; in Idle the second cannot fail any more. So it is all or nothing.
    if ((request.mask & RNIC_MODIFY_ACCESS) != 0) {
      if (const auto done = machine.set_access(static_cast<tpt::Rights>(request.access & kEnables)); !done) {
        error = errno_of(done.error());
        return;
      }
    }
    if ((request.mask & (RNIC_MODIFY_ORD | RNIC_MODIFY_IRD)) != 0) {
      const std::uint32_t ird = (request.mask & RNIC_MODIFY_IRD) != 0 ? request.ird : machine.config().ird;
      const std::uint32_t ord = (request.mask & RNIC_MODIFY_ORD) != 0 ? request.ord : machine.config().ord;
      if (const auto done = machine.set_depths(ird, ord); !done) error = errno_of(done.error());
    }
    if (error == 0 && limits) {
      if (const auto done = machine.set_receive_limit(request.receive_limit); !done) error = errno_of(done.error());
    }
  };
  qp->shard->worker->call([&](Instant now) {
    change(*qp->qp, now);
    if (names_idle && error == 0 && qp->qp->state() == qp::State::idle)
      qp->qp->set_idle_name(static_cast<qp::IdleName>(request.idle_name));
    if (error == 0 && (request.mask & RNIC_MODIFY_PATIENCE) != 0)
      qp->qp->set_patience({.timeout = request.timeout,
                            .retry_count = request.retry_count,
                            .rnr_retry = request.rnr_retry,
                            .min_rnr_timer = request.min_rnr_timer});
  });
  if (error != 0) return Reply::error(error);
  if ((request.mask & RNIC_MODIFY_PEER) != 0) {
    std::array<std::uint8_t, 16> peer_gid;
    std::memcpy(peer_gid.data(), request.peer_gid, peer_gid.size());
    qp->meets.emplace();
    qp->meets->meeting = {.own_gid = *device_.gid(request.gid_index),
                          .peer_gid = wire::IpAddress::from_octets(peer_gid),
                          .own_number = qp->number,
                          .peer_number = {request.peer_number},
                          .own_psn = std::nullopt,
                          .due_psn = request.psn};
    qp->meets->traffic_class = static_cast<std::uint8_t>(request.traffic_class);
  } else if (counts) {
    qp->meets->counts = true;
    qp->meets->meeting.own_psn = request.psn;
  } else if (names_idle) {
    qp->meets.reset();
  }
  return Reply::error(error);
}

// Of one of type UD.
Reply Context::modify_ud(Qp& qp, const rnic_modify_qp& request) {
  if ((request.mask & ~(RNIC_MODIFY_STATE | RNIC_MODIFY_Q_KEY)) != 0) return Reply::error(EINVAL);
  std::optional<ud::State> wanted;
  if ((request.mask & RNIC_MODIFY_STATE) != 0) {
    constexpr std::array kOfIdle{ud::State::reset, ud::State::init, ud::State::rtr};
    if (request.state == RNIC_QP_IDLE && request.idle_name < kOfIdle.size())
      wanted = kOfIdle[request.idle_name];
    else if (request.state == RNIC_QP_RTS)
      wanted = ud::State::rts;
    else if (request.state == RNIC_QP_ERROR)
      wanted = ud::State::error;
    else
      return Reply::error(EINVAL);
  }
  std::optional<std::uint32_t> q_key;
  if ((request.mask & RNIC_MODIFY_Q_KEY) != 0) q_key = request.q_key;
  int error = 0;
  qp.shard->worker->call([&](Instant) {
    if (const auto done = qp.ud->modify(wanted, q_key); !done)
      error = done.error() == ud::ModifyError::still_flushing ? EBUSY : EINVAL;
    qp.shard->device->touch(*qp.ud);
  });
  return Reply::error(error);
}

bool Context::names_nobody(const rnic_modify_qp& request) {
  if ((request.mask & RNIC_MODIFY_PEER) == 0) return false;
  std::array<std::uint8_t, 16> gid;
  std::memcpy(gid.data(), request.peer_gid, gid.size());
  return request.has_route == 0 || wire::IpAddress::from_octets(gid).is_unspecified();
}

// What a Modify says of a peer, and of what is counted toward it. 0, or an errno.
int Context::check_meeting(const Qp& qp, const rnic_modify_qp& request) const {
  constexpr std::uint32_t kNumberMax = wire::Meeting::kNumberMask;
  if (!device_.options().oob_connect || request.state != RNIC_QP_IDLE) return EINVAL;
  if ((request.mask & RNIC_MODIFY_STATE) == 0 || request.psn > kNumberMax) return EINVAL;
  if ((request.mask & RNIC_MODIFY_PSN) != 0) {
    const bool once = qp.meets && !qp.meets->counts;
    return once && (request.mask & RNIC_MODIFY_PEER) == 0 && request.idle_name == RNIC_IDLE_RTS ? 0 : EINVAL;
  }
  if ((request.mask & RNIC_MODIFY_PEER) == 0 || request.idle_name != RNIC_IDLE_RTR) return EINVAL;
  if (names_nobody(request) || !device_.gid(request.gid_index)) return EINVAL;
  // Those that InfiniBand gives to nobody.
  if (request.peer_number < 2 || request.peer_number >= kNumberMax || request.traffic_class > 0xFF) return EINVAL;
  return 0;
}

Reply Context::query_qp(std::uint32_t number) {
  Qp* qp = find(qps_, number);
  if (qp == nullptr) return Reply::error(EINVAL);
  rnic_query_qp_reply reply{};
  if (qp->ud != nullptr) {
    ud::State state{};
    qp->shard->worker->call([&](Instant) { state = qp->ud->state(); });
    std::tie(reply.state, reply.idle_name) = names_of(state);
    return Reply::with(reply);
  }
  qp->shard->worker->call([&](Instant) {
    const qp::QueuePair& machine = *qp->qp;
    reply.state = static_cast<std::uint32_t>(machine.state());
    reply.idle_name = static_cast<std::uint32_t>(machine.idle_name());
    if (qp->meets && machine.state() <= qp::State::rts)
      reply.idle_name = qp->meets->counts ? RNIC_IDLE_RTS : RNIC_IDLE_RTR;
    else if (machine.state() == qp::State::rts)
      reply.idle_name = RNIC_IDLE_RTS;
    reply.access = static_cast<std::uint32_t>(machine.config().access);
    reply.ord = machine.config().ord;
    reply.ird = machine.config().ird;
    const qp::TerminateRecord& record = machine.terminate_record();
    reply.terminate_length = record.length;
    reply.terminate_origin = static_cast<std::uint32_t>(record.origin);
    std::memcpy(reply.terminate, record.octets, sizeof reply.terminate);
    const rdmap::ReceiveLimit& limit = machine.receive_limit();
    reply.receive_limit = limit.limit;
    if (limit.armed) reply.flags |= RNIC_QP_LIMIT_ARMED;
    if (machine.config().privileged) reply.flags |= RNIC_QP_PRIVILEGED;
    if (!tpt::permits(machine.config().access, tpt::Rights::window_bind)) reply.flags |= RNIC_QP_NO_BIND;
    if (const auto stream = qp->shard->device->stream_of(machine)) reply.stream = stream->value;
  });
  reply.local = qp->local;
  reply.remote = qp->remote;
  return Reply::with(reply);
}

void Context::unbind(Qp& qp) {
  core::Doorbells& doorbells = qp.shard->worker->doorbells();
  doorbells.unbind(*memory_, qp.send_doorbell.number());
  if (qp.srq == nullptr)
    doorbells.unbind(*memory_, qp.recv_doorbell.number());
  else if (qp.ud == nullptr)
    doorbells.unbind_shared_receive(*memory_, qp.srq->doorbell.number(), *qp.qp);
}

void Context::destroy_on_worker(Qp& qp, Instant now) {
  unbind(qp);
  release(qp, now);
}

void Context::release(Qp& qp, Instant now) {
  if (qp.ud != nullptr)
    qp.shard->device->release(*qp.ud);
  else
    qp.shard->device->release(*qp.qp, now);
  qp.ud.reset();
  qp.qp.reset();
}

void Context::forget(Qp& qp) {
  machine_.qps.erase(qp.number.value);
  machine_.qps_by_cookie.erase(qp.cookie);
  while (!qp.groups.empty()) leave(qp, wire::IpAddress(qp.groups.begin()->first));
  async_->forget(qp.events);
  if (direct_ != nullptr) direct_->forget(qp.direct_events);
}

Reply Context::destroy_qp(std::uint32_t number) {
  Qp* qp = find(qps_, number);
  if (qp == nullptr) return Reply::error(EINVAL);
  bool bound = false;
  bool stuck = false;
  core::Worker& worker = *qp->shard->worker;
  worker.call([&](Instant now) {
    // Its buffers are the application's again when we answer.
    stuck = worker.mover().is_stuck(space_);
    if (stuck) return;
    bound = device_.table->window_bound_to(qp->number);  // V-QP-15
    if (!bound) destroy_on_worker(*qp, now);
  });
  if (stuck) return Reply::not_yet();
  if (bound) return Reply::error(EBUSY);
  forget(*qp);
  --qp->pd->uses;
  --qp->send_cq->uses;
  --qp->recv_cq->uses;
  if (qp->srq != nullptr) --qp->srq->uses;
  --device_.counts.qps;
  qps_.erase(number);
  return {};
}

// ---- multicast groups ----------------------------------------------------------------------------

namespace {
wire::IpAddress group_of(const rnic_mcast& request) {
  std::array<std::uint8_t, 16> octets;
  std::memcpy(octets.data(), request.gid, octets.size());
  return wire::IpAddress::from_octets(octets);
}
}  // namespace

Reply Context::attach_mcast(const rnic_mcast& request) {
  Qp* qp = find(qps_, request.qp_number);
  const wire::IpAddress group = group_of(request);
  if (qp == nullptr || qp->ud == nullptr || !group.is_multicast()) return Reply::error(EINVAL);
  if (qp->groups.contains(group)) return {};
  const auto [found, is_new] = device_.in_groups.try_emplace(group);
  ServedGroup& served = found->second;
  if (is_new) {
    served.places.tell_by(machine_.refusals);
    served.share = device_.groups.take(holder_);
    served.payer = holder_;
  }
  // Whoever comes to a group that is there takes none of the device's.
  Share place = is_new && !served.share ? Share{} : served.places.take(holder_);
  bool done = false;
  Shard& shard = *qp->shard;
  if (place) shard.worker->call([&](Instant now) { done = shard.device->datagrams().attach(*qp->ud, group, now); });
  if (done) {
    qp->groups.emplace(group, std::move(place));
    return {};
  }
  place = {};
  if (is_new) device_.in_groups.erase(found);
  return Reply::error(ENOMEM);
}

Reply Context::detach_mcast(const rnic_mcast& request) {
  Qp* qp = find(qps_, request.qp_number);
  if (qp == nullptr || qp->ud == nullptr) return Reply::error(EINVAL);
  bool done = false;
  const wire::IpAddress group = group_of(request);
  Shard& shard = *qp->shard;
  shard.worker->call([&](Instant) { done = shard.device->datagrams().detach(*qp->ud, group); });
  if (done) leave(*qp, group);
  return Reply::error(done ? 0 : EINVAL);
}

void Context::leave(Qp& qp, const wire::IpAddress& group) {
  qp.groups.erase(group);
  const auto found = device_.in_groups.find(group);
  ServedGroup& served = found->second;
  if (served.places.used() == 0)
    device_.in_groups.erase(found);
  else if (served.places.used_by(served.payer) == 0)
    served.share = {};
}

// ---- workers' news -------------------------------------------------------------------------------

void Context::on_qp_event(Qp& qp, qp::Event event) {
  if (event == qp::Event::receive_limit && direct_ != nullptr)
    direct_->send_async(qp.direct_events, qp.user_pointer, RNIC_EVENT_RECEIVE_LIMIT);
  if (const auto type = ibv_event(event, device_.face()))
    async_->send_async(qp.events, qp.user_pointer, static_cast<std::uint32_t>(*type));
}

void Context::on_srq_limit(Srq& srq) {
  async_->send_async(srq.events, srq.user_pointer, static_cast<std::uint32_t>(IbvEvent::srq_limit_reached));
}

// The queue takes nothing more: whoever reports to it can do no more work (architecture.md s9).
void Context::on_cq_overflow(Cq& cq) {
  async_->send_async(cq.events, cq.user_pointer, static_cast<std::uint32_t>(IbvEvent::cq_error));  // V-AE-37
  for_qps([&](const Qp& qp, Instant now) {
    if (qp.send_cq != &cq && qp.recv_cq != &cq) return;
    if (qp.ud != nullptr) {
      (void)qp.ud->modify(ud::State::error, std::nullopt);
      qp.shard->device->touch(*qp.ud);
      return;
    }
    (void)qp.qp->modify_state(qp::State::error, now);
    qp.shard->device->touch(*qp.qp);
  });
}

void Context::on_port_event(IbvEvent event) {
  constexpr std::uint64_t kPort = 1;
  async_->send_async(port_events_, kPort, static_cast<std::uint32_t>(event));
}

void Context::on_completions(Cq& cq) {
  if (cq.channel != nullptr) cq.channel->send_completion(cq.completions, cq.user_pointer);
}

}  // namespace rnic::control
