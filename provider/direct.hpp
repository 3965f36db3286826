/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The direct verbs (rnicdv/rnicdv.h) as the provider has them, by the same names without their prefix. librnicdv finds
// them by the table.
#pragma once

#include "context.hpp"
#include "rnicdv/table.hpp"

namespace rnic::provider::direct {

bool is_ours(const ibv_context* context);

int query_device(ibv_context* context, rnicdv_device_attr* attr);
int event_fd(ibv_context* context);
int get_event(ibv_context* context, rnicdv_event* event);
int query_cq(ibv_cq* cq, rnicdv_cq_attr* attr);
int query_srq(ibv_srq* srq, rnicdv_srq_attr* attr);
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init);
ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* init, const rnicdv_qp_init_attr* more);
int modify_qp(ibv_qp* qp, const rnicdv_qp_mod* mod, std::uint32_t mask);
int query_qp(ibv_qp* qp, rnicdv_qp_attr* attr);
rnicdv_stream* stream_connect(ibv_context* context, const sockaddr* local, const sockaddr* remote,
                              void* stream_context);
rnicdv_stream* stream_listen(ibv_context* context, const sockaddr* local, std::uint32_t backlog, void* stream_context);
rnicdv_stream* stream_accept(rnicdv_stream* listener, void* stream_context);
int stream_send(rnicdv_stream* stream, const void* octets, std::size_t length, std::size_t* sent);
int stream_receive(rnicdv_stream* stream, void* room, std::size_t length, std::size_t* received);
int stream_query(rnicdv_stream* stream, rnicdv_stream_attr* attr);
int stream_close(rnicdv_stream* stream);
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, const rnicdv_mr_init* init);
ibv_mr* reg_shared_mr(ibv_mr* mr, ibv_pd* pd, const rnicdv_mr_init* init);
ibv_mr* reg_page_list(ibv_pd* pd, const rnicdv_page_list* list, const rnicdv_mr_init* init, rnicdv_list_error* error);
int rereg_page_list(ibv_mr* mr, ibv_pd* pd, const rnicdv_page_list* list, const rnicdv_mr_init* init,
                    rnicdv_list_error* error);
ibv_mr* alloc_stag(ibv_pd* pd, std::uint32_t* pages, std::uint32_t access);
int query_mr(ibv_context* context, std::uint32_t stag, rnicdv_mr_attr* attr);
int query_mw(ibv_context* context, std::uint32_t stag, rnicdv_mw_attr* attr);
void wr_rdma_read_inv(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr);
void wr_fast_register(ibv_qp_ex* qp, ibv_mr* mr, const rnicdv_page_list* list, const rnicdv_mr_init* init);
void wr_masked_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr, std::uint64_t add,
                         std::uint64_t mask);
void wr_masked_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr, std::uint64_t compare,
                       std::uint64_t compare_mask, std::uint64_t swap, std::uint64_t swap_mask);

// ---- direct_streams.cpp, for the other files ----
// The one that an event is about; null: it has gone.
rnicdv_stream* stream_named(Context& context, std::uint64_t element);
// By which the daemon knows it.
std::uint32_t handle_of(rnicdv_stream* stream);
// A queue pair has it: it is gone.
void stream_is_attached(rnicdv_stream* stream);

extern const rnic::direct::Table kTable;

}  // namespace rnic::provider::direct
