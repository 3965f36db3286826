/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// post_send, post_recv, poll_cq, req_notify: the data path. A system call is made
//   to wake a worker that sleeps, or may as far as we know: with the first ring after 10 ms
//   once of each kind, to tell the daemon what was refused
//   once a queue, to ask the daemon for transmit memory
// and none else. Nothing is allocated, and no memory that is shared with the data plane is trusted for credit.
#include <cerrno>
#include <cstring>

#include "context.hpp"
#include "datagrams.hpp"
#include "memory_windows.hpp"
#include "wc.hpp"

namespace rnic::provider {

namespace {

constexpr std::uint64_t kStagedMax = 256 * 1024;

static_assert(sizeof(ibv_sge) == sizeof(rnic_sge));
static_assert(offsetof(ibv_sge, length) == offsetof(rnic_sge, length));
static_assert(offsetof(ibv_sge, lkey) == offsetof(rnic_sge, lkey));

// ---- Posting to a send queue ---------------------------------------------------------------------

// One row per ibv_wr_opcode. What a flag means depends on the opcode, and flags not meant for one
// are ignored (V-WR-09).
struct SendRow {
  std::uint8_t opcode;
  bool known;
  bool gathers;  // its SGL is a source: may be inline, or copied at post
  bool remote;
  bool invalidates;
  std::uint8_t flags;  // those of RNIC_SQE_* that it listens to
  bool atomic = false;
};
constexpr std::uint8_t kSendFlags = RNIC_SQE_FENCE | RNIC_SQE_SOLICITED;

constexpr SendRow send_row(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
      return {RNIC_OP_SEND, true, true, false, false, kSendFlags};
    case IBV_WR_SEND_WITH_INV:
      return {RNIC_OP_SEND_INVALIDATE, true, true, false, true, kSendFlags};
    case IBV_WR_SEND_WITH_IMM:
      return {RNIC_OP_SEND_IMMEDIATE, true, true, false, false, kSendFlags};
    case IBV_WR_RDMA_WRITE:
      return {RNIC_OP_WRITE, true, true, true, false, RNIC_SQE_FENCE};
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return {RNIC_OP_WRITE_IMMEDIATE, true, true, true, false, kSendFlags};
    case IBV_WR_RDMA_READ:
      return {RNIC_OP_READ, true, false, true, false, 0};
    case kReadInvalidate:
      return {RNIC_OP_READ_INVALIDATE, true, false, true, false, 0};
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return {RNIC_OP_FETCH_ADD, true, false, false, false, RNIC_SQE_FENCE, true};
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return {RNIC_OP_COMPARE_SWAP, true, false, false, false, RNIC_SQE_FENCE, true};
    case IBV_WR_LOCAL_INV:
      return {RNIC_OP_LOCAL_INVALIDATE, true, false, false, true, RNIC_SQE_FENCE};
    case IBV_WR_BIND_MW:
      return {RNIC_OP_BIND, true, false, false, false, 0};
    default:
      return {};
  }
}

// RFC 7306's operations are those of devices that have them (W-EXT-14), Send with Immediate of RoCE faces.
bool offered(const Context& context, const SendRow& row) {
  if (row.atomic) return context.attributes.atomics != 0;
  if (row.opcode == RNIC_OP_WRITE_IMMEDIATE) return (context.attributes.capabilities & RNIC_CAP_IMMEDIATE) != 0;
  if (row.opcode == RNIC_OP_SEND_IMMEDIATE) return (context.attributes.capabilities & RNIC_CAP_ROCE) != 0;
  return true;
}

// A refusal. Of what a key would allow, the daemon's log says the first of each kind, and which key.
int not_offered(Context& context, const SendRow& row) {
  if (row.opcode == RNIC_OP_SEND_IMMEDIATE) return EOPNOTSUPP;  // a matter of the face
  const std::uint32_t extension = row.atomic ? RNIC_EXTENSION_ATOMICS : RNIC_EXTENSION_IMMEDIATE;
  if ((std::atomic_ref(context.not_offered).fetch_or(extension) & extension) == 0) {
    const rnic_not_offered told{extension, 0};
    context.control.call(RNIC_NOT_OFFERED, &told, sizeof told, nullptr, 0);
  }
  return EOPNOTSUPP;
}

// Which regions an SGE is to be of: what the daemon has mapped it need not have copied.
enum class Of { any_region, unmapped_region };

// Where an SGE's octets lie, for a copy on the application's own behalf. Nothing unless the whole
// SGE lies in a region we know, VA-based, that may be read.
const char* memory_of(const Context& context, const ibv_sge& sge, Of which) {
  const Region* region = context.regions.find(sge.lkey >> 8);
  if (region == nullptr || sge.lkey == 0) return nullptr;
  if (load(region->stag, std::memory_order_acquire) != sge.lkey) return nullptr;
  if ((region->access & RNIC_ACCESS_LOCAL_READ) == 0 || (region->access & RNIC_ACCESS_ZERO_BASED) != 0) {
    return nullptr;
  }
  if (which == Of::unmapped_region && region->mapped) return nullptr;
  const std::uint64_t offset = sge.addr - region->base;
  if (sge.addr < region->base || offset > region->length) return nullptr;
  if (sge.length > region->length - offset) return nullptr;
  return region->memory + offset;
}

std::uint64_t octets_of(const ibv_send_wr& wr) {
  std::uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  return total;
}

// Copies what the SGEs name, one behind the other. False: one of them may not be read here and now.
bool copy_from(const Context& context, const ibv_send_wr& wr, Of which, std::byte* to) {
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length == 0) continue;
    const char* from = memory_of(context, sge, which);
    if (from == nullptr) return false;
    std::memcpy(to, from, sge.length);
    to += sge.length;
  }
  return true;
}

// Is a Read before this index not complete?
bool read_outstanding(const SendQueue& queue, std::uint32_t index) {
  const std::uint32_t tail = load(queue.tail, std::memory_order_relaxed);
  return queue.any_read && queue.last_read - tail < index - tail;
}

// Gather at post: copies the data behind the SGEs, if all of it may be read here and now, and
// there is room. Not while a Read is outstanding, whose sink this may be the source of.
bool gather(Qp& qp, std::uint32_t index, const ibv_send_wr& wr, std::byte* room, std::size_t size,
            std::uint32_t& length) {
  Context& context = *qp.context;
  if (*context.not_forked != kMayPost || read_outstanding(qp.send, index)) return false;
  const std::uint64_t total = octets_of(wr);
  if (total == 0 || total > size || !copy_from(context, wr, Of::any_region, room)) return false;
  length = static_cast<std::uint32_t>(total);
  return true;
}

// The same for data of up to kStagedMax octets that does not fit the entry, and that the daemon would have to fetch by
// remote copy: into the queue's transmit memory. Returns the octets taken of it; 0: none.
std::uint32_t stage(Qp& qp, std::uint32_t index, const ibv_send_wr& wr, rnic_sqe& entry) {
  Context& context = *qp.context;
  SendQueue& queue = qp.send;
  TransmitMemory& memory = queue.transmit;
  if (memory.base == nullptr && load(memory.state, std::memory_order_relaxed) != TransmitMemory::kNone) return 0;
  if (*context.not_forked != kMayPost || read_outstanding(queue, index)) return 0;
  const std::uint64_t total = octets_of(wr);
  if (total == 0 || total > kStagedMax) return 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length != 0 && memory_of(context, sge, Of::unmapped_region) == nullptr) return 0;
  }
  if (memory.base == nullptr) {
    memory.message = static_cast<std::uint32_t>(total);
    store(memory.state, +TransmitMemory::kMissed, std::memory_order_release);
    return 0;
  }
  // Free is what was staged for entries that are. In one piece: else from the ring's beginning on.
  const auto length = static_cast<std::uint32_t>(total);
  const std::uint32_t end = queue.work_at(index - 1).staged;
  const std::uint32_t used = end - queue.work_at(load(queue.tail, std::memory_order_acquire) - 1).staged;
  std::uint32_t offset = end & (memory.size - 1);
  std::uint32_t taken = (length + RNIC_CACHE_LINE - 1) & ~(RNIC_CACHE_LINE - 1);
  if (taken > memory.size - offset) {
    taken += memory.size - offset;
    offset = 0;
  }
  if (used > memory.size || taken > memory.size - used) return 0;
  if (!copy_from(context, wr, Of::unmapped_region, memory.base + offset)) return 0;  // one has gone meanwhile
  entry.length = length;
  entry.argument = offset;
  return taken;
}

// V-WR-16: inline data is read at post, from wherever it is.
int copy_inline(const SendQueue& queue, const ibv_send_wr& wr, std::byte* room, std::uint32_t& length) {
  const std::uint64_t total = octets_of(wr);
  if (total > queue.inline_max) return EINVAL;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length == 0) continue;
    std::memcpy(room, reinterpret_cast<const void*>(sge.addr), sge.length);
    room += sge.length;
  }
  length = static_cast<std::uint32_t>(total);
  return 0;
}

}  // namespace

std::uint8_t entry_flags(const SendQueue& queue, std::uint8_t flags, unsigned send_flags) {
  unsigned given = 0;
  if (queue.signal_all || (send_flags & IBV_SEND_SIGNALED) != 0) given |= RNIC_SQE_SIGNALED;
  if ((send_flags & IBV_SEND_FENCE) != 0) given |= RNIC_SQE_FENCE & flags;
  if ((send_flags & IBV_SEND_SOLICITED) != 0) given |= RNIC_SQE_SOLICITED & flags;
  return static_cast<std::uint8_t>(given);
}

int check_postable(Context& context, ibv_wr_opcode opcode, bool datagrams) {
  if (datagrams) return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? 0 : EOPNOTSUPP;
  const SendRow row = send_row(opcode);
  if (!row.known) return EOPNOTSUPP;
  return offered(context, row) ? 0 : not_offered(context, row);
}

namespace {

// Octets of the longest message of datagrams, and so of the port's MTU.
std::uint64_t longest_datagram(const Context& context) { return context.attributes.mtu; }

// An entry of a queue pair of type UD: a Send, its address behind the header.
int write_datagram_entry(Qp& qp, std::uint32_t index, const ibv_send_wr& wr) {
  SendQueue& queue = qp.send;
  if (qp.ibv.state < IBV_QPS_RTS) return EINVAL;
  if (check_postable(*qp.context, wr.opcode, true) != 0) return wr.opcode > IBV_WR_DRIVER1 ? EINVAL : EOPNOTSUPP;
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > queue.sge_max) return EINVAL;
  if (is_anothers(qp, wr.wr.ud.ah)) return EINVAL;
  if (queue.full_at(index)) return ENOMEM;  // V-WR-07
  if (octets_of(wr) > longest_datagram(*qp.context)) return EMSGSIZE;

  std::byte* slot = queue.slot(index);
  std::byte* body = slot + send_header_of(qp);
  rnic_sqe entry{};
  entry.opcode = RNIC_OP_SEND;
  entry.flags = entry_flags(queue, kSendFlags, wr.send_flags);
  if (wr.opcode == IBV_WR_SEND_WITH_IMM) {
    entry.flags |= RNIC_SQE_IMMEDIATE;
    entry.invalidate = wr.imm_data;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    const int error = copy_inline(queue, wr, body, entry.length);
    if (error != 0) return error;
    entry.flags |= RNIC_SQE_INLINE;
  } else if (wr.num_sge > 0) {
    const std::size_t sge_bytes = static_cast<std::size_t>(wr.num_sge) * sizeof(rnic_sge);
    entry.sge_count = static_cast<std::uint8_t>(wr.num_sge);
    std::memcpy(body, wr.sg_list, sge_bytes);
    const std::size_t room = queue.stride - send_header_of(qp) - sge_bytes;
    if (gather(qp, index, wr, body + sge_bytes, room, entry.length)) entry.flags |= RNIC_SQE_COPIED;
  }
  std::memcpy(slot, &entry, sizeof entry);
  write_address(qp, index, wr);
  queue.note(index, wr.wr_id, RNIC_OP_SEND);
  return 0;
}

}  // namespace

void write_address(Qp& qp, std::uint32_t index, const ibv_send_wr& wr) {
  rnic_ud_address address{};
  if (wr.wr.ud.ah != nullptr) address = of(wr.wr.ud.ah).address;
  address.qp_number = wr.wr.ud.remote_qpn;
  address.q_key = wr.wr.ud.remote_qkey;
  std::memcpy(qp.send.slot(index) + sizeof(rnic_sqe), &address, sizeof address);
}

int write_send_entry(Qp& qp, std::uint32_t index, const ibv_send_wr& wr) {
  if (is_datagram(qp)) return write_datagram_entry(qp, index, wr);
  SendQueue& queue = qp.send;
  const SendRow row = send_row(wr.opcode);
  if (!row.known) {  // V-WR-11, V-IS-38
    return wr.opcode > IBV_WR_DRIVER1 && wr.opcode != IBV_WR_ATOMIC_WRITE ? EINVAL : EOPNOTSUPP;
  }
  if (!offered(*qp.context, row)) return not_offered(*qp.context, row);
  const bool local_invalidate = row.opcode == RNIC_OP_LOCAL_INVALIDATE;
  const bool reads_into_one =
      row.opcode == RNIC_OP_READ_INVALIDATE || (row.opcode == RNIC_OP_READ && !is_roce(*qp.context));
  const std::uint32_t sge_max = reads_into_one || row.atomic ? 1 : queue.sge_max;
  const bool bind = row.opcode == RNIC_OP_BIND;
  const int sge_count = local_invalidate || bind ? 0 : wr.num_sge;
  if (sge_count < 0 || static_cast<std::uint32_t>(sge_count) > sge_max) return EINVAL;
  if (row.atomic && sge_count != 1) return EINVAL;  // its result has to go somewhere
  if (queue.full_at(index)) return ENOMEM;          // V-WR-07

  std::byte* slot = queue.slot(index);
  std::byte* body = slot + sizeof(rnic_sqe);
  std::uint32_t staged = 0;
  rnic_sqe entry{};
  entry.opcode = row.opcode;
  entry.flags = entry_flags(queue, row.flags, wr.send_flags);
  if (row.remote) {
    entry.remote_address = wr.wr.rdma.remote_addr;
    entry.rkey = wr.wr.rdma.rkey;
  }
  if (row.atomic) {
    entry.remote_address = wr.wr.atomic.remote_addr;
    entry.rkey = wr.wr.atomic.rkey;
    entry.argument = wr.wr.atomic.compare_add;
  }
  if (bind) {
    const auto& [window, rkey, info] = wr.bind_mw;
    const int error = check_bind(qp, IBV_MW_TYPE_2, window, rkey, info);
    if (error != 0) return error;
    write_bind(entry, body, rkey, info);
  }
  if (row.opcode == RNIC_OP_WRITE_IMMEDIATE || row.opcode == RNIC_OP_SEND_IMMEDIATE) entry.invalidate = wr.imm_data;
  if (row.invalidates) (local_invalidate ? entry.rkey : entry.invalidate) = wr.invalidate_rkey;

  if (row.gathers && (wr.send_flags & IBV_SEND_INLINE) != 0) {
    const int error = copy_inline(queue, wr, body, entry.length);
    if (error != 0) return error;
    entry.flags |= RNIC_SQE_INLINE;
  } else if (sge_count > 0) {
    const std::size_t sge_bytes = static_cast<std::size_t>(sge_count) * sizeof(rnic_sge);
    entry.sge_count = static_cast<std::uint8_t>(sge_count);
    std::memcpy(body, wr.sg_list, sge_bytes);
    const std::size_t room = queue.stride - sizeof(rnic_sqe) - sge_bytes;
    if (row.gathers && (entry.flags & RNIC_SQE_FENCE) == 0) {
      if (gather(qp, index, wr, body + sge_bytes, room, entry.length))
        entry.flags |= RNIC_SQE_COPIED;
      else if (staged = stage(qp, index, wr, entry); staged != 0)
        entry.flags |= RNIC_SQE_STAGED;
    }
  }
  if (row.opcode == RNIC_OP_COMPARE_SWAP)
    std::memcpy(body + sizeof(rnic_sge), &wr.wr.atomic.swap, sizeof wr.wr.atomic.swap);
  std::memcpy(slot, &entry, sizeof entry);

  queue.note(index, wr.wr_id, row.opcode);
  queue.work_at(index).staged += staged;
  if (row.opcode == RNIC_OP_READ || row.opcode == RNIC_OP_READ_INVALIDATE || row.atomic) {
    queue.last_read = index;
    queue.any_read = true;
  }
  return 0;
}

namespace {

int post_locked(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  SendQueue& queue = qp.send;
  const PostGuard guard(queue.lock, *qp.context);
  int error = cannot_post(*qp.context);
  const std::uint32_t before = queue.head;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    error = write_send_entry(qp, queue.head, *wr);
    if (error == 0 && is_datagram(qp) && wr->wr.ud.ah == nullptr) error = EINVAL;
    if (error != 0) break;
    store(queue.head, queue.head + 1, std::memory_order_release);
  }
  if (error != 0) *bad = wr;  // V-WR-03: what came before it is queued
  if (queue.head != before) queue.publish(queue.head, qp.context->doorbells);
  return error;
}

// As many messages as the queue holds, as long as that is not too much.
std::uint64_t transmit_memory_for(const SendQueue& queue) {
  constexpr std::uint64_t kLeast = 4 * kStagedMax;
  std::uint64_t length = kLeast;
  while (length < std::uint64_t{queue.size} * queue.transmit.message && length < RNIC_TRANSMIT_MEMORY_MAX) length *= 2;
  return length;
}

}  // namespace

void get_missed_transmit_memory(Qp& qp) {
  TransmitMemory& memory = qp.send.transmit;
  std::uint32_t missed = TransmitMemory::kMissed;
  if (!std::atomic_ref(memory.state).compare_exchange_strong(missed, TransmitMemory::kAsked)) return;
  Context& context = *qp.context;
  const rnic_transmit_memory request{qp.ibv.qp_num, 0, transmit_memory_for(qp.send)};
  rnic_area area{};
  Descriptors fds{};
  char* at = nullptr;
  {
    const ArenaGuard guard(context);
    if (context.control.call(RNIC_TRANSMIT_MEMORY, request, area, &fds) != 0) return;
    if (map_area(context, area, fds, at) != 0 || area.length < request.length) at = nullptr;
    fds.close_rest();
  }
  const SpinGuard guard(qp.send.lock);
  memory.size = static_cast<std::uint32_t>(request.length);
  memory.base = reinterpret_cast<std::byte*>(at);
}

int post_send(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp& qp = of(ibv);
  const int error = post_locked(qp, wr, bad);
  after_post(qp);
  return error;
}

// ---- Posting to a receive queue ------------------------------------------------------------------

namespace {

int check_receive(const ReceiveQueue& queue, const ibv_recv_wr& wr) {
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > queue.sge_max) return EINVAL;
  return 0;
}

void write_receive_entry(std::byte* slot, const ibv_recv_wr& wr, std::uint32_t id = 0) {
  rnic_rqe entry{};
  entry.sge_count = static_cast<std::uint32_t>(wr.num_sge);
  entry.id = id;
  std::memcpy(slot, &entry, sizeof entry);
  const std::size_t bytes = entry.sge_count * sizeof(rnic_sge);
  if (bytes != 0) std::memcpy(slot + sizeof entry, wr.sg_list, bytes);
}

}  // namespace

int post_recv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp& qp = of(ibv);
  ReceiveQueue& queue = qp.receive;
  const bool too_early = is_datagram(qp) && qp.ibv.state == IBV_QPS_RESET;  // as InfiniBand has it
  if (qp.srq != nullptr || too_early) {                                     // V-SRQ-04
    *bad = wr;
    return EINVAL;
  }
  const PostGuard guard(queue.lock, *qp.context);
  int error = cannot_post(*qp.context);
  const std::uint32_t before = queue.head;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    error = check_receive(queue, *wr);
    if (error == 0 && queue.full()) error = ENOMEM;
    if (error != 0) break;
    write_receive_entry(queue.slot(queue.head), *wr);
    queue.wr_ids[queue.head & (queue.size - 1)] = wr->wr_id;
    store(queue.head, queue.head + 1, std::memory_order_release);
  }
  if (error != 0) *bad = wr;
  if (queue.head != before) queue.publish(queue.head, qp.context->doorbells);
  return error;
}

int post_srq_recv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Srq& srq = of(ibv);
  ReceiveQueue& queue = srq.queue;
  const PostGuard guard(queue.lock, *srq.context);
  int error = cannot_post(*srq.context);
  std::uint32_t head = queue.head;
  for (; wr != nullptr && error == 0; wr = wr->next) {
    error = check_receive(queue, *wr);
    if (error == 0 && srq.id_count - srq.free_count >= queue.size) error = ENOMEM;  // V-SRQ-06
    if (error != 0) break;
    const std::uint32_t id = srq.free_ids[--srq.free_count];
    write_receive_entry(queue.slot(head), *wr, id);
    queue.wr_ids[id] = wr->wr_id;
    ++head;
  }
  if (error != 0) *bad = wr;
  if (head != queue.head) queue.publish(head, srq.context->doorbells);
  return error;
}

// ---- Polling -------------------------------------------------------------------------------------

namespace {

// False: there is no such receive.
bool take_shared(Srq& srq, std::uint32_t id, std::uint64_t& wr_id) {
  const SpinGuard guard(srq.queue.lock);
  if (id >= srq.id_count || srq.free_count == srq.id_count) return false;
  wr_id = srq.queue.wr_ids[id];
  srq.free_ids[srq.free_count++] = id;
  return true;
}

// Finds the WR a completion is of, and frees its slot. False: there is no such WR, and the entry is passed over.
bool take_work(Qp& qp, const rnic_cqe& cqe, std::uint64_t& wr_id) {
  if ((cqe.flags & RNIC_CQE_SEND_QUEUE) != 0) {
    SendQueue& queue = qp.send;
    if (!queue.outstanding(cqe.slot)) return false;
    wr_id = queue.work[cqe.slot & (queue.size - 1)].wr_id;
    queue.free_through(cqe.slot);
    return true;
  }
  if ((cqe.flags & RNIC_CQE_SHARED) != 0) return qp.srq != nullptr && take_shared(*qp.srq, cqe.slot, wr_id);
  ReceiveQueue& queue = qp.receive;
  if (!queue.outstanding(cqe.slot)) return false;
  wr_id = queue.wr_ids[cqe.slot & (queue.size - 1)];
  queue.free_through(cqe.slot);
  return true;
}

void fill(ibv_wc& wc, std::uint64_t wr_id, const rnic_cqe& cqe) {
  wc.wr_id = wr_id;
  wc.status = wc_status(cqe.status, cqe.opcode, cqe.detail);
  wc.opcode = wc_opcode(cqe.opcode);
  wc.vendor_err = cqe.status;
  wc.byte_len = cqe.length;
  wc.invalidated_rkey = cqe.word;
  wc.qp_num = cqe.qp_number;  // V-POLL-09
  wc.src_qp = cqe.source_qp;
  wc.wc_flags = (cqe.flags & RNIC_CQE_DATAGRAM) != 0 ? IBV_WC_GRH : 0;
  if ((cqe.flags & RNIC_CQE_INVALIDATED) != 0) wc.wc_flags |= IBV_WC_WITH_INV;
  if ((cqe.flags & RNIC_CQE_IMMEDIATE) != 0) wc.wc_flags |= IBV_WC_WITH_IMM;
  wc.pkey_index = 0;
  wc.slid = 0;
  wc.sl = service_level(cqe.flags);
  wc.dlid_path_bits = 0;
}

// A number may belong to a new QP while completions of the old one are not removed yet: the cookie
// tells them apart.
bool is_of(const rnic_cqe& cqe, const Qp& qp) {
  const auto cookie = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(&qp.ibv));
  return cqe.qp_number == qp.ibv.qp_num && (cqe.qp_cookie == cookie || cqe.qp_cookie == 0);
}

Qp* find_qp(Context& context, Cq& cq, const rnic_cqe& cqe) {
  if (cqe.qp_number == 0) return nullptr;
  if (cq.last_qp != nullptr && is_of(cqe, *cq.last_qp)) return cq.last_qp;
  Qp** entry = context.qps.find(cqe.qp_number);
  Qp* qp = entry == nullptr ? nullptr : load(*entry, std::memory_order_acquire);
  if (qp == nullptr || !is_of(cqe, *qp)) {
    qp = nullptr;
    for (Link* at = cq.attached.next; at != &cq.attached && qp == nullptr; at = at->next) {
      Qp& attached = *static_cast<Attachment*>(at->owner)->qp;
      if (is_of(cqe, attached)) qp = &attached;
    }
  }
  if (qp != nullptr) cq.last_qp = qp;
  return qp;
}

std::uint32_t phase_at(const Cq& cq, std::uint64_t index) {
  return static_cast<std::uint32_t>((index >> cq.shift) + 1);
}

rnic_cqe& entry_at(const Cq& cq, std::uint64_t index) {
  return cq.entries[index & ((std::uint64_t{1} << cq.shift) - 1)];
}

// Pairs with the release of `phase` by the data plane.
bool published(const Cq& cq, std::uint64_t index) {
  return load(entry_at(cq, index).phase, std::memory_order_acquire) == phase_at(cq, index);
}

// Where completions go. Of a single one that is asked for its time, that as well.
struct Room {
  int count;
  ibv_wc* completions;
  std::uint64_t* time;

  Room after(int used) const { return {count - used, completions + used, time}; }
};

int poll_ring(Context& context, Cq& cq, const Room& room) {
  const std::uint64_t before = cq.consumer;
  int found = 0;
  while (found < room.count && published(cq, cq.consumer)) {
    const rnic_cqe& cqe = entry_at(cq, cq.consumer);
    __builtin_prefetch(&entry_at(cq, cq.consumer + 1));
    Qp* qp = find_qp(context, cq, cqe);
    std::uint64_t wr_id = 0;
    if (qp != nullptr && take_work(*qp, cqe, wr_id)) {
      fill(room.completions[found++], wr_id, cqe);
      if (room.time != nullptr) *room.time = cqe.time;
    }
    ++cq.consumer;
  }
  if (cq.consumer != before) {
    store(cq.control->consumed, static_cast<std::uint32_t>(cq.consumer), std::memory_order_release);
  }
  return found;
}

// The flush of one work queue, as the daemon would have done it: all that is outstanding, in post
// order, signaled or not (V-ERRST-03).
int flush_queue(Qp& qp, bool is_send, int count, ibv_wc* completions) {
  WorkQueue& queue = is_send ? static_cast<WorkQueue&>(qp.send) : qp.receive;
  int found = 0;
  while (found < count && queue.outstanding(queue.tail)) {
    const std::uint32_t index = queue.tail;
    const std::uint32_t masked = index & (queue.size - 1);
    rnic_cqe cqe{};
    cqe.qp_number = qp.ibv.qp_num;
    cqe.status = RNIC_WC_FLUSHED;
    cqe.opcode =
        is_send ? static_cast<std::uint8_t>(qp.send.work[masked].opcode) : static_cast<std::uint8_t>(RNIC_OP_RECEIVE);
    const std::uint64_t wr_id = is_send ? qp.send.work[masked].wr_id : qp.receive.wr_ids[masked];
    fill(completions[found++], wr_id, cqe);
    queue.free_through(index);
  }
  return found;
}

int flush_all(Cq& cq, int count, ibv_wc* completions) {
  int found = 0;
  for (Link* at = cq.attached.next; at != &cq.attached && found < count; at = at->next) {
    Attachment& attachment = *static_cast<Attachment*>(at->owner);
    if (!attachment.is_send && attachment.qp->srq != nullptr) continue;  // V-SRQ-19
    found += flush_queue(*attachment.qp, attachment.is_send, count - found, completions + found);
  }
  return found;
}

// The ring is empty and the daemon is no more. What it published before its end comes first.
int poll_dead(Context& context, Cq& cq, const Room& room) {
  if (load(context.dead, std::memory_order_acquire) == 0) report_death(context);
  int found = 0;
  if (!cq.flushing) {
    found = poll_ring(context, cq, room);
    if (found == room.count) return found;
    cq.flushing = true;
  }
  return found + flush_all(cq, room.count - found, room.completions + found);
}

bool anything_outstanding(const Cq& cq) {
  if (!cq.flushing && published(cq, cq.consumer)) return true;
  for (Link* at = cq.attached.next; at != &cq.attached; at = at->next) {
    const Attachment& attachment = *static_cast<Attachment*>(at->owner);
    const Qp& qp = *attachment.qp;
    if (!attachment.is_send && qp.srq != nullptr) continue;
    const WorkQueue& queue = attachment.is_send ? static_cast<const WorkQueue&>(qp.send) : qp.receive;
    if (queue.outstanding(queue.tail)) return true;
  }
  return false;
}

int poll_into(Cq& cq, const Room& room) {
  Context& context = context_of(cq.ibv.context);
  bool yield = false;
  const auto look = [&] {
    const SpinGuard guard(cq.lock);
    int found = 0;
    if (!cq.flushing) found = poll_ring(context, cq, room);
    if (found < room.count && is_dead(context)) found += poll_dead(context, cq, room.after(found));
    yield = cq.courtesy.after_poll(found);
    return found;
  };
  const int found = look();
  if (!yield) return found;
  // Away for milliseconds, perhaps: what came meanwhile is not to be called nothing. Who hears next that
  // the connection has ended would take it that all it brought had been polled (libfabric's rxm does).
  cq.courtesy.yield();
  return look();
}

}  // namespace

int poll_cq(ibv_cq* ibv, int count, ibv_wc* completions) { return poll_into(of(ibv), {count, completions, nullptr}); }

bool poll_one(Cq& cq, ibv_wc& completion, std::uint64_t& time) {
  time = 0;
  return poll_into(cq, {1, &completion, &time}) == 1;
}

int req_notify_cq(ibv_cq* ibv, int solicited_only) {
  Cq& cq = of(ibv);
  Context& context = context_of(ibv->context);
  const SpinGuard guard(cq.lock);
  const std::uint32_t fired = load(cq.control->fired, std::memory_order_acquire);
  std::uint32_t kind = solicited_only != 0 ? RNIC_ARM_SOLICITED : RNIC_ARM_NEXT;
  // V-NTF-06: an arming for any completion that has not fired yet is not weakened.
  if (cq.arm_kind == RNIC_ARM_NEXT && cq.arm_sequence != fired) kind = RNIC_ARM_NEXT;
  constexpr std::uint32_t kSequences = (1U << 30) - 1;
  cq.arm_sequence = (cq.arm_sequence + 1) & kSequences;
  if (cq.arm_sequence == fired || cq.arm_sequence == 0) {
    cq.arm_sequence = (cq.arm_sequence + 1) & kSequences;
  }
  cq.arm_kind = kind;
  store(cq.control->arm, cq.arm_sequence << 2 | kind, std::memory_order_seq_cst);
  // V-NTF-07: the poll that follows an arming must not look at the ring before it is armed.
  std::atomic_thread_fence(std::memory_order_seq_cst);

  // There is no daemon to fire it; the watcher may have made its round already.
  if (is_dead(context) && anything_outstanding(cq)) fire_completion_event(cq);
  return 0;
}

void remove_completions(Cq& cq, const Qp& qp) {
  const SpinGuard guard(cq.lock);
  if (cq.last_qp == &qp) cq.last_qp = nullptr;
  const std::uint64_t size = std::uint64_t{1} << cq.shift;
  for (std::uint64_t i = cq.consumer; i - cq.consumer < size && published(cq, i); ++i) {
    rnic_cqe& cqe = entry_at(cq, i);
    if (!is_of(cqe, qp)) continue;
    std::uint64_t wr_id = 0;
    if ((cqe.flags & RNIC_CQE_SHARED) != 0 && qp.srq != nullptr) take_shared(*qp.srq, cqe.slot, wr_id);  // V-SRQ-07
    cqe.qp_number = 0;
  }
  while (published(cq, cq.consumer) && entry_at(cq, cq.consumer).qp_number == 0) ++cq.consumer;
  store(cq.control->consumed, static_cast<std::uint32_t>(cq.consumer), std::memory_order_release);
}

}  // namespace rnic::provider
