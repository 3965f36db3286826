/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The start-up check of the slots of libibverbs' operation table.
#include <cstdlib>
#include <cstring>

#include "pabi/pabi.hpp"

namespace rnic::pabi {

namespace {

// A dummy "function" of the slot. Never called: only its value is looked at.
const void* dummy(std::size_t slot) { return reinterpret_cast<const void*>(0x1000 + slot * 16); }

template <typename Function>
int slot_in(Function* function) {
  const auto value = reinterpret_cast<std::uintptr_t>(function);
  if (value < 0x1000 || (value - 0x1000) % 16 != 0) return kNoSlot;
  const std::uintptr_t slot = (value - 0x1000) / 16;
  return slot < kTableSize ? static_cast<int>(slot) : kNoSlot;
}

// libibverbs' private part of a context holds its copy of the table and little else: far less
// than this in every version up to 65.
constexpr std::size_t kPrivateBytes = 16384;

}  // namespace

int find_layout() {
  Table table;
  for (std::size_t i = 0; i < kTableSize; ++i) table[i] = dummy(i);

  auto* scratch = static_cast<verbs_context*>(std::calloc(1, sizeof(verbs_context)));
  void* private_part = std::calloc(1, kPrivateBytes);
  if (scratch == nullptr || private_part == nullptr) {
    std::free(scratch);
    std::free(private_part);
    return -1;
  }
  scratch->priv = static_cast<verbs_ex_private*>(private_part);
  verbs_set_ops(scratch, table.data());

  const ibv_context_ops& ops = scratch->context.ops;
  const AnchorSlots slots = {
      slot_in(ops.alloc_mw),
      slot_in(ops.bind_mw),
      slot_in(ops.dealloc_mw),
      slot_in(ops.poll_cq),
      slot_in(ops.post_send),
      slot_in(ops.post_recv),
      slot_in(ops.req_notify_cq),
      slot_in(scratch->advise_mr),
      slot_in(scratch->alloc_dm),
      slot_in(scratch->create_counters),
      slot_in(scratch->free_dm),
      slot_in(scratch->get_srq_num),
      slot_in(scratch->modify_cq),
      slot_in(scratch->open_qp),
      slot_in(scratch->query_device_ex),
      slot_in(scratch->query_rt_values),
      slot_in(scratch->read_counters),
      slot_in(scratch->reg_dm_mr),
  };
  std::free(private_part);
  std::free(scratch);
  return layout_with(slots);
}

}  // namespace rnic::pabi
