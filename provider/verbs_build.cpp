/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// ibv_wr_*: posting to a send queue by calls instead of lists. See ibv_wr_post(3).
//
// A builder says what is to be done, the setter after it with which data. Only then is the entry written, by the one
// function that ibv_post_send uses, so that both mean the same; or, where no setter comes, with the next builder or at
// the end. Entries are shown to the data plane together, by wr_complete(), with one doorbell.
#include <cerrno>
#include <cstring>
#include <iterator>

#include "context.hpp"
#include "datagrams.hpp"

namespace rnic::provider {

namespace {

// The most that any queue of ours takes.
constexpr std::size_t kInlineMax = 512;

void fail(Batch& batch, int error) {
  if (batch.error == 0) batch.error = error;
  batch.waits = false;
}

// In a forked child, which may have been born between wr_start() and wr_complete(): the entries are its parent's, which
// goes on with them.
bool is_inherited(Qp& qp) {
  if (!is_forked_child(*qp.context)) return false;
  qp.batch.waits = false;
  qp.batch.error = EPERM;
  return true;
}

// The entry that has just been written, of an atomic operation, gets its masks: nobody sees it yet.
void write_masks(Qp& qp, std::uint32_t index) {
  const Batch& batch = qp.batch;
  const bool adds = batch.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  std::byte* slot = qp.send.slot(index);
  const auto opcode = static_cast<std::uint8_t>(adds ? RNIC_OP_MASKED_FETCH_ADD : RNIC_OP_MASKED_COMPARE_SWAP);
  const rnic_atomic_masks masks{adds ? 0 : batch.wr.wr.atomic.swap, batch.data_mask, batch.compare_mask};
  std::memcpy(slot + offsetof(rnic_sqe, opcode), &opcode, sizeof opcode);
  std::memcpy(slot + sizeof(rnic_sqe) + sizeof(rnic_sge), &masks, sizeof masks);
}

// The work request that waits gets its data.
void write_entry(Qp& qp, const ibv_sge* sges, std::size_t count, unsigned data_flags) {
  Batch& batch = qp.batch;
  if (is_inherited(qp)) return;
  if (!batch.waits || count > qp.send.sge_max) return fail(batch, EINVAL);
  batch.waits = false;
  batch.wr.sg_list = const_cast<ibv_sge*>(sges);
  batch.wr.num_sge = static_cast<int>(count);
  batch.wr.send_flags |= data_flags;
  const int error = write_send_entry(qp, batch.end, batch.wr);
  if (error != 0) return fail(batch, error);
  if (batch.masked) write_masks(qp, batch.end);
  ++batch.end;
  batch.wants_address = is_datagram(qp) && batch.wr.wr.ud.ah == nullptr;
}

void end_entry(Qp& qp) {
  if (qp.batch.waits) write_entry(qp, nullptr, 0, 0);
  if (qp.batch.wants_address) fail(qp.batch, EINVAL);
  qp.batch.wants_address = false;
}

// What every builder does: ends the one before, and begins its own.
ibv_send_wr& begin(ibv_qp_ex* ex, ibv_wr_opcode opcode) {
  Qp& qp = of(ex);
  end_entry(qp);
  Batch& batch = qp.batch;
  batch.waits = batch.error == 0;
  batch.masked = false;
  batch.wr.wr_id = ex->wr_id;
  batch.wr.opcode = opcode;
  batch.wr.wr.ud.ah = nullptr;
  batch.wr.send_flags = ex->wr_flags & ~unsigned{IBV_SEND_INLINE};  // the setter says so
  return batch.wr;
}

ibv_send_wr& begin_remote(ibv_qp_ex* ex, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr& wr = begin(ex, opcode);
  wr.wr.rdma = {address, rkey};
  return wr;
}

ibv_send_wr& begin_atomic(ibv_qp_ex* ex, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr& wr = begin(ex, opcode);
  wr.wr.atomic.remote_addr = address;
  wr.wr.atomic.rkey = rkey;
  return wr;
}

// ---- Builders --------------------------------------------------------------------------------------

void wr_send(ibv_qp_ex* ex) { begin(ex, IBV_WR_SEND); }

void wr_send_imm(ibv_qp_ex* ex, __be32 immediate) { begin(ex, IBV_WR_SEND_WITH_IMM).imm_data = immediate; }

void wr_send_inv(ibv_qp_ex* ex, std::uint32_t rkey) { begin(ex, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey; }

void wr_rdma_read(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(ex, IBV_WR_RDMA_READ, rkey, address);
}

void wr_rdma_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(ex, IBV_WR_RDMA_WRITE, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  begin_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address).imm_data = immediate;
}

void wr_atomic_cmp_swp(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
  ibv_send_wr& wr = begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
  wr.wr.atomic.compare_add = compare;
  wr.wr.atomic.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address).wr.atomic.compare_add = add;
}

void wr_local_inv(ibv_qp_ex* ex, std::uint32_t rkey) { begin(ex, IBV_WR_LOCAL_INV).invalidate_rkey = rkey; }

void wr_bind_mw(ibv_qp_ex* ex, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info* bind) {
  begin(ex, IBV_WR_BIND_MW).bind_mw = {window, rkey, *bind};
}

// No queue pair of ours has these: who calls them all the same hears of it from wr_complete().
void wr_atomic_write(ibv_qp_ex* ex, std::uint32_t /*rkey*/, std::uint64_t /*address*/, const void* /*value*/) {
  begin(ex, IBV_WR_ATOMIC_WRITE);
}
void wr_send_tso(ibv_qp_ex* ex, void* /*header*/, std::uint16_t /*size*/, std::uint16_t /*mss*/) {
  begin(ex, IBV_WR_TSO);
}
// Before the data, or after it.
void wr_set_ud_addr(ibv_qp_ex* ex, ibv_ah* ah, std::uint32_t qp_number, std::uint32_t q_key) {
  Qp& qp = of(ex);
  Batch& batch = qp.batch;
  if (is_inherited(qp)) return;
  if (!is_datagram(qp) || ah == nullptr || is_anothers(qp, ah) || (!batch.waits && !batch.wants_address))
    return fail(batch, EINVAL);
  batch.wr.wr.ud = {ah, qp_number, q_key};
  if (batch.waits) return;
  write_address(qp, batch.end - 1, batch.wr);
  batch.wants_address = false;
}
void wr_set_xrc_srqn(ibv_qp_ex* ex, std::uint32_t /*number*/) { fail(of(ex).batch, EINVAL); }

// ---- Setters ---------------------------------------------------------------------------------------

void wr_set_sge(ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  write_entry(of(ex), &sge, 1, 0);
}

void wr_set_sge_list(ibv_qp_ex* ex, std::size_t count, const ibv_sge* sges) { write_entry(of(ex), sges, count, 0); }

void write_inline(Qp& qp, const void* data, std::size_t size) {
  if (size > qp.send.inline_max) return fail(qp.batch, EINVAL);
  const ibv_sge sge{reinterpret_cast<std::uintptr_t>(data), static_cast<std::uint32_t>(size), 0};
  write_entry(qp, &sge, 1, IBV_SEND_INLINE);
}

void wr_set_inline_data(ibv_qp_ex* ex, void* data, std::size_t size) { write_inline(of(ex), data, size); }

void wr_set_inline_data_list(ibv_qp_ex* ex, std::size_t count, const ibv_data_buf* pieces) {
  Qp& qp = of(ex);
  std::byte joined[kInlineMax];  // there may be more pieces than SGEs
  const std::size_t room = qp.send.inline_max < sizeof joined ? qp.send.inline_max : sizeof joined;
  std::size_t size = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (pieces[i].length > room - size) return fail(qp.batch, EINVAL);
    if (pieces[i].length != 0) std::memcpy(joined + size, pieces[i].addr, pieces[i].length);
    size += pieces[i].length;
  }
  write_inline(qp, joined, size);
}

}  // namespace

// ---- Builders of the direct verbs ------------------------------------------------------------------

void begin_read_invalidate(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(ex, kReadInvalidate, rkey, address);
}

void begin_masked_fetch_add(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::uint64_t add,
                            std::uint64_t mask) {
  wr_atomic_fetch_add(ex, rkey, address, add);
  Batch& batch = of(ex).batch;
  batch.masked = true;
  batch.data_mask = mask;
  batch.compare_mask = 0;
}

void begin_masked_cmp_swp(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                          std::uint64_t compare_mask, std::uint64_t swap, std::uint64_t swap_mask) {
  wr_atomic_cmp_swp(ex, rkey, address, compare, swap);
  Batch& batch = of(ex).batch;
  batch.masked = true;
  batch.data_mask = swap_mask;
  batch.compare_mask = compare_mask;
}

std::byte* next_entry(ibv_qp_ex& ex) {
  Qp& qp = of(&ex);
  end_entry(qp);
  Batch& batch = qp.batch;
  if (is_inherited(qp)) return nullptr;
  if (batch.error == 0 && qp.send.full_at(batch.end)) fail(batch, ENOMEM);
  return batch.error == 0 ? qp.send.slot(batch.end) : nullptr;
}

void entry_written(ibv_qp_ex& ex, std::uint64_t wr_id, std::uint8_t opcode) {
  Qp& qp = of(&ex);
  qp.send.note(qp.batch.end, wr_id, opcode);
  ++qp.batch.end;
}

void fail_batch(ibv_qp_ex& ex, int error) { fail(of(&ex).batch, error); }

std::uint32_t next_index(ibv_qp_ex& ex) { return of(&ex).batch.end; }

namespace {

// ---- The batch -------------------------------------------------------------------------------------

void wr_start(ibv_qp_ex* ex) {
  Qp& qp = of(ex);
  SendQueue& queue = qp.send;
  lock_to_post(queue.lock, *qp.context);
  Batch& batch = qp.batch;
  batch.waits = batch.wants_address = false;
  batch.end = queue.head;
  batch.error = cannot_post(*qp.context);
  batch.last_read = queue.last_read;
  batch.any_read = queue.any_read;
}

void discard(const Batch& batch, SendQueue& queue) {
  queue.last_read = batch.last_read;
  queue.any_read = batch.any_read;
}

int wr_complete(ibv_qp_ex* ex) {
  Qp& qp = of(ex);
  SendQueue& queue = qp.send;
  end_entry(qp);
  (void)is_inherited(qp);
  const int error = qp.batch.error;
  if (error != 0)
    discard(qp.batch, queue);  // all or nothing, unlike a list of ibv_post_send
  else if (qp.batch.end != queue.head)
    queue.publish(qp.batch.end, qp.context->doorbells);
  queue.lock.unlock();
  after_post(qp);
  return error;
}

void wr_abort(ibv_qp_ex* ex) {
  SendQueue& queue = of(ex).send;
  discard(of(ex).batch, queue);
  queue.lock.unlock();
}

struct Asked {
  std::uint64_t flag;
  ibv_wr_opcode opcode;
};
constexpr Asked kAsked[] = {
    {IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE},
    {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
    {IBV_QP_EX_WITH_SEND, IBV_WR_SEND},
    {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM},
    {IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ},
    {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP},
    {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
    {IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV},
    {IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW},
    {IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV},
};

}  // namespace

bool has_builders_of(Context& context, std::uint64_t operations, bool datagrams) {
  for (const Asked& each : kAsked) {
    if ((operations & each.flag) != 0 && check_postable(context, each.opcode, datagrams) == 0) operations &= ~each.flag;
  }
  return operations == 0;
}

void set_builders(ibv_qp_ex& qp) {
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = wr_send_tso;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_atomic_write = wr_atomic_write;
}

}  // namespace rnic::provider
