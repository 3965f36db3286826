/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// libibverbs' private plugin interface, as far as we use it: numbers (PABI) 34 and newer.
//
// Debian ships no header for it, and upstream's is C only, so this is our own declaration of the
// facts. What has not changed since number 34 is declared as structures; the one thing that moves,
// the order of the slots in the table of operations, is data (kOperations), chosen or refused when
// a context is opened (find_layout).
//
// Included by provider.cpp, and by its test.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#ifndef RNIC_PABI
#define RNIC_PABI 34
#endif

namespace rnic::pabi {

struct ListNode {
  ListNode* next;
  ListNode* previous;
};

// One way to recognise a device. Ends with an entry of kind `sentinel`.
struct MatchEntry {
  void* driver_data;
  union {
    const char* modalias;
    std::uint64_t driver_id;
  } u;
  std::uint16_t vendor;
  std::uint16_t device;
  std::uint8_t kind;
};
inline constexpr std::uint8_t kMatchSentinel = 0;
inline constexpr std::uint8_t kMatchModalias = 2;

struct SysfsDevice;  // libibverbs' own
struct DeviceOps;

struct Device {
  ibv_device device;
  const DeviceOps* ops;
  int reference_count;
  ListNode entry;
  SysfsDevice* sysfs;
  std::uint64_t core_support;
};

struct DeviceOps {
  const char* name;
  std::uint32_t match_min_abi_version;
  std::uint32_t match_max_abi_version;
  const MatchEntry* match_table;
  const DeviceOps** static_providers;
  bool (*match_device)(SysfsDevice* device);
  verbs_context* (*alloc_context)(ibv_device* device, int command_fd, void* private_data);
  verbs_context* (*import_context)(ibv_device* device, int command_fd);
  Device* (*alloc_device)(SysfsDevice* device);
  void (*uninit_device)(Device* device);
};

// What libibverbs expects at the address of an ibv_mr.
struct Mr {
  ibv_mr mr;
  int type;  // 0: made by reg_mr
  int access;
};

// And at the address of an ibv_qp.
struct Qp {
  union {
    ibv_qp qp;
    ibv_qp_ex ex;
  };
  std::uint32_t mask;
  void* xrc_domain;  // where the mask has its bit
};
inline constexpr std::uint32_t kQpHasBuilders = 1 << 1;  // ibv_qp_to_qp_ex() asks for it

extern "C" {
#define RNIC_PABI_JOIN2(name, number) name##number
#define RNIC_PABI_JOIN(name, number) RNIC_PABI_JOIN2(name, number)
void RNIC_PABI_JOIN(verbs_register_driver_, RNIC_PABI)(const DeviceOps* ops);
void* _verbs_init_and_alloc_context(ibv_device* device, int command_fd, std::size_t size, verbs_context* offset,
                                    std::uint32_t driver_id);
void verbs_uninit_context(verbs_context* context);
void verbs_set_ops(verbs_context* context, const void* operations);
}

inline void register_driver(const DeviceOps* ops) { RNIC_PABI_JOIN(verbs_register_driver_, RNIC_PABI)(ops); }

// Every operation a plugin can offer, in the (sorted) order of the table, each with the layout it
// first appeared in. A layout's table has the operations of that layout and of all before it.
// Layouts 0, 1, 2 go by the number 34 (rdma-core 34, 35, 36 to 56; 2 also by 57), 3 and 4 by 59
// (59 to 61; 62, 63), 5 by 64, 6 by 65: slots were added without a new number, hence the check.
// clang-format off
#define RNIC_PABI_OPERATIONS(X) \
  X(advise_mr, 0) \
  X(alloc_buf, 5) \
  X(alloc_dm, 0) \
  X(alloc_dmah, 3) \
  X(alloc_mw, 0) \
  X(alloc_null_mr, 0) \
  X(alloc_parent_domain, 0) \
  X(alloc_pd, 0) \
  X(alloc_td, 0) \
  X(async_event, 0) \
  X(attach_counters_point_flow, 0) \
  X(attach_mcast, 0) \
  X(bind_mw, 0) \
  X(close_xrcd, 0) \
  X(cq_event, 0) \
  X(create_ah, 0) \
  X(create_comp_cntr, 6) \
  X(create_counters, 0) \
  X(create_cq, 0) \
  X(create_cq_ex, 0) \
  X(create_flow, 0) \
  X(create_flow_action_esp, 0) \
  X(create_qp, 0) \
  X(create_qp_ex, 0) \
  X(create_rwq_ind_table, 0) \
  X(create_srq, 0) \
  X(create_srq_ex, 0) \
  X(create_wq, 0) \
  X(dealloc_dmah, 3) \
  X(dealloc_mw, 0) \
  X(dealloc_pd, 0) \
  X(dealloc_td, 0) \
  X(dereg_mr, 0) \
  X(destroy_ah, 0) \
  X(destroy_comp_cntr, 6) \
  X(destroy_counters, 0) \
  X(destroy_cq, 0) \
  X(destroy_flow, 0) \
  X(destroy_flow_action, 0) \
  X(destroy_qp, 0) \
  X(destroy_rwq_ind_table, 0) \
  X(destroy_srq, 0) \
  X(destroy_wq, 0) \
  X(detach_mcast, 0) \
  X(dm_export_dmabuf_fd, 4) \
  X(free_buf, 5) \
  X(free_context, 0) \
  X(free_dm, 0) \
  X(get_srq_num, 0) \
  X(import_dm, 1) \
  X(import_mr, 0) \
  X(import_pd, 0) \
  X(inc_comp_cntr, 6) \
  X(inc_err_comp_cntr, 6) \
  X(modify_cq, 0) \
  X(modify_flow_action_esp, 0) \
  X(modify_qp, 0) \
  X(modify_qp_rate_limit, 0) \
  X(modify_srq, 0) \
  X(modify_wq, 0) \
  X(open_qp, 0) \
  X(open_xrcd, 0) \
  X(poll_cq, 0) \
  X(post_recv, 0) \
  X(post_send, 0) \
  X(post_srq_ops, 0) \
  X(post_srq_recv, 0) \
  X(qp_attach_comp_cntr, 6) \
  X(query_comp_cntr_caps, 6) \
  X(query_device_ex, 0) \
  X(query_ece, 0) \
  X(query_port, 0) \
  X(query_port_speed, 4) \
  X(query_qp, 0) \
  X(query_qp_data_in_order, 2) \
  X(query_rt_values, 0) \
  X(query_srq, 0) \
  X(read_comp_cntr, 6) \
  X(read_counters, 0) \
  X(read_err_comp_cntr, 6) \
  X(reg_dm_mr, 0) \
  X(reg_dmabuf_mr, 0) \
  X(reg_mr, 0) \
  X(reg_mr_ex, 3) \
  X(req_notify_cq, 0) \
  X(rereg_mr, 0) \
  X(resize_cq, 0) \
  X(set_comp_cntr, 6) \
  X(set_ece, 0) \
  X(set_err_comp_cntr, 6) \
  X(unimport_dm, 1) \
  X(unimport_mr, 0) \
  X(unimport_pd, 0)
// clang-format on

inline constexpr int kLayouts = 7;

enum class Operation : std::uint8_t {
#define RNIC_PABI_NAME(name, layout) name,
  RNIC_PABI_OPERATIONS(RNIC_PABI_NAME)
#undef RNIC_PABI_NAME
};

inline constexpr std::array kFirstLayout = {
#define RNIC_PABI_LAYOUT(name, layout) layout,
    RNIC_PABI_OPERATIONS(RNIC_PABI_LAYOUT)
#undef RNIC_PABI_LAYOUT
};

inline constexpr int kNoSlot = -1;

// The slot of an operation in a layout's table.
constexpr int slot_of(Operation operation, int layout) {
  const auto wanted = static_cast<std::size_t>(operation);
  if (kFirstLayout[wanted] > layout) return kNoSlot;
  int slot = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    if (kFirstLayout[i] <= layout) ++slot;
  }
  return slot;
}

constexpr int slot_count(int layout) {
  int count = 0;
  for (const int first : kFirstLayout) count += first <= layout ? 1 : 0;
  return count;
}
static_assert(slot_count(0) == 73 && slot_count(2) == 76 && slot_count(4) == 81);
static_assert(slot_count(5) == 83 && slot_count(6) == 93);

// More than any known table has: libibverbs may read slots we do not know, and finds them empty.
inline constexpr std::size_t kTableSize = 160;
using Table = std::array<const void*, kTableSize>;

// The operations that verbs_set_ops also copies to a place every application can see.
inline constexpr std::array kAnchors = {
    Operation::alloc_mw,      Operation::bind_mw,         Operation::dealloc_mw,      Operation::poll_cq,
    Operation::post_send,     Operation::post_recv,       Operation::req_notify_cq,   Operation::advise_mr,
    Operation::alloc_dm,      Operation::create_counters, Operation::free_dm,         Operation::get_srq_num,
    Operation::modify_cq,     Operation::open_qp,         Operation::query_device_ex, Operation::query_rt_values,
    Operation::read_counters, Operation::reg_dm_mr,
};
using AnchorSlots = std::array<int, kAnchors.size()>;

// The layout in which the anchors lie in these slots, or -1. At most one does (see the test).
constexpr int layout_with(const AnchorSlots& slots) {
  for (int layout = 0; layout < kLayouts; ++layout) {
    bool same = true;
    for (std::size_t i = 0; i < kAnchors.size(); ++i) {
      same = same && slot_of(kAnchors[i], layout) == slots[i];
    }
    if (same) return layout;
  }
  return -1;
}

// Asks the libibverbs of this process for its layout: has it take a table of numbered dummies, and
// looks where they come out. -1: none that we know, and the plugin must refuse to work.
int find_layout();

}  // namespace rnic::pabi
