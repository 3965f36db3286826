/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What the provider offers to librnicdv: by its one exported symbol a table of functions, by which the library reaches
// what is in the plugin without a symbol of either standing in the other's way.
//
// Functions are added at the end, and none goes or changes: `size` says how many there are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rnicdv.h"

namespace rnic::direct {

struct Table {
  std::uint32_t size;  // of this structure, as the provider has it
  std::uint32_t reserved;
  bool (*is_ours)(const ibv_context*);

  int (*query_device)(ibv_context*, rnicdv_device_attr*);
  int (*event_fd)(ibv_context*);
  int (*get_event)(ibv_context*, rnicdv_event*);
  int (*query_cq)(ibv_cq*, rnicdv_cq_attr*);
  int (*query_srq)(ibv_srq*, rnicdv_srq_attr*);
  ibv_srq* (*create_srq)(ibv_pd*, ibv_srq_init_attr*);
  ibv_qp* (*create_qp)(ibv_context*, ibv_qp_init_attr_ex*, const rnicdv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, const rnicdv_qp_mod*, std::uint32_t);
  int (*query_qp)(ibv_qp*, rnicdv_qp_attr*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, const rnicdv_mr_init*);
  ibv_mr* (*reg_shared_mr)(ibv_mr*, ibv_pd*, const rnicdv_mr_init*);
  ibv_mr* (*reg_page_list)(ibv_pd*, const rnicdv_page_list*, const rnicdv_mr_init*, rnicdv_list_error*);
  int (*rereg_page_list)(ibv_mr*, ibv_pd*, const rnicdv_page_list*, const rnicdv_mr_init*, rnicdv_list_error*);
  ibv_mr* (*alloc_stag)(ibv_pd*, std::uint32_t*, std::uint32_t);
  int (*query_mr)(ibv_context*, std::uint32_t, rnicdv_mr_attr*);
  int (*query_mw)(ibv_context*, std::uint32_t, rnicdv_mw_attr*);
  void (*wr_rdma_read_inv)(ibv_qp_ex*, std::uint32_t, std::uint64_t);
  void (*wr_fast_register)(ibv_qp_ex*, ibv_mr*, const rnicdv_page_list*, const rnicdv_mr_init*);
  rnicdv_stream* (*stream_connect)(ibv_context*, const sockaddr*, const sockaddr*, void*);
  rnicdv_stream* (*stream_listen)(ibv_context*, const sockaddr*, std::uint32_t, void*);
  rnicdv_stream* (*stream_accept)(rnicdv_stream*, void*);
  int (*stream_send)(rnicdv_stream*, const void*, std::size_t, std::size_t*);
  int (*stream_receive)(rnicdv_stream*, void*, std::size_t, std::size_t*);
  int (*stream_query)(rnicdv_stream*, rnicdv_stream_attr*);
  int (*stream_close)(rnicdv_stream*);
  void (*wr_masked_fetch_add)(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t);
  void (*wr_masked_cmp_swp)(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                            std::uint64_t);
};

// Of the provider's one exported function, which returns its table.
using GetTable = const Table*();
inline constexpr const char* kTableSymbol = "rnic_provider_direct";
inline constexpr const char* kTableVersion = "RNIC_PRIVATE_1";

// The provider's that this context is of; null: it is not rnic's.
const Table* find_table(const ibv_context* context);

}  // namespace rnic::direct
