/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Polling an extended CQ: ibv_start_poll, ibv_next_poll, ibv_end_poll, and the fields of the completion between them.
// See ibv_create_cq_ex(3).
//
// Each step takes one completion, as ibv_poll_cq would, and keeps a copy: its slot is free. So the application may do
// all that it likes between two steps, arm the queue and destroy queue pairs too; a second thread that iterates waits
// for the end, one that calls ibv_poll_cq does not.
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cerrno>

#include "context.hpp"

namespace rnic::provider {

namespace {

bool step(Cq& cq) {
  if (!poll_one(cq, cq.current, cq.current_time)) return false;
  cq.ex.wr_id = cq.current.wr_id;
  cq.ex.status = cq.current.status;
  return true;
}

void set_iterates(Cq& cq, pthread_t thread) { std::atomic_ref(cq.iterates).store(thread, std::memory_order_relaxed); }

void leave(Cq& cq) {
  set_iterates(cq, 0);
  if (!cq.single_threaded) cq.iteration.unlock();
}

int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attributes) {
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  Cq& cq = of(ex);
  if (!cq.single_threaded) cq.iteration.lock();
  set_iterates(cq, pthread_self());
  if (step(cq)) return 0;
  leave(cq);
  return ENOENT;
}

int next_poll(ibv_cq_ex* ex) { return step(of(ex)) ? 0 : ENOENT; }

// Some call it after a start that found nothing, too; another thread may iterate by then.
void end_poll(ibv_cq_ex* ex) {
  Cq& cq = of(ex);
  if (std::atomic_ref(cq.iterates).load(std::memory_order_relaxed) == pthread_self()) leave(cq);
}

const ibv_wc& current(ibv_cq_ex* ex) { return of(ex).current; }

ibv_wc_opcode read_opcode(ibv_cq_ex* ex) { return current(ex).opcode; }
std::uint32_t read_vendor_err(ibv_cq_ex* ex) { return current(ex).vendor_err; }
std::uint32_t read_byte_len(ibv_cq_ex* ex) { return current(ex).byte_len; }
__be32 read_imm_data(ibv_cq_ex* ex) { return current(ex).imm_data; }  // or the invalidated rkey
std::uint32_t read_qp_num(ibv_cq_ex* ex) { return current(ex).qp_num; }
std::uint32_t read_src_qp(ibv_cq_ex* ex) { return current(ex).src_qp; }
unsigned read_wc_flags(ibv_cq_ex* ex) { return current(ex).wc_flags; }
std::uint32_t read_slid(ibv_cq_ex* ex) { return current(ex).slid; }
std::uint8_t read_sl(ibv_cq_ex* ex) { return current(ex).sl; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex* ex) { return current(ex).dlid_path_bits; }

// What we flush ourselves after the daemon's end is made now.
std::uint64_t read_completion_ts(ibv_cq_ex* ex) {
  Cq& cq = of(ex);
  if (cq.current_time == 0) cq.current_time = raw_clock();
  return cq.current_time;
}

std::uint64_t read_completion_wallclock_ns(ibv_cq_ex* ex) {
  const std::uint64_t made = read_completion_ts(ex);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::uint64_t age = raw_clock() - made;
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec) - age;
}

}  // namespace

void set_iterators(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_slid;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_dlid_path_bits;
  cq.read_completion_ts = read_completion_ts;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

}  // namespace rnic::provider
