/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// librnicdv: each function goes to the provider that its object is of.
#include "rnicdv.h"

#include <cerrno>

#include "table.hpp"

namespace {

using rnic::direct::Table;

// The function that stands there in the context's provider; null: it has none.
template <typename Function>
Function offered(const ibv_context* context, Function Table::*at) {
  const Table* const table = rnic::direct::find_table(context);
  if (table == nullptr) return nullptr;
  const auto* const place = reinterpret_cast<const char*>(&(table->*at));
  const auto end = place + sizeof(Function) - reinterpret_cast<const char*>(table);
  return static_cast<std::size_t>(end) <= table->size ? table->*at : nullptr;
}

template <typename... Parameters, typename... Arguments>
int ask(const ibv_context* context, int (*Table::*at)(Parameters...), Arguments... arguments) {
  const auto function = offered(context, at);
  return function != nullptr ? function(arguments...) : EOPNOTSUPP;
}

template <typename Object, typename... Parameters, typename... Arguments>
Object* make(const ibv_context* context, Object* (*Table::*at)(Parameters...), Arguments... arguments) {
  const auto function = offered(context, at);
  if (function != nullptr) return function(arguments...);
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace

ibv_context* rnicdv_open_device(ibv_device* device, rnicdv_buffer_mode mode) {
  if (mode != RNICDV_PAGE_MODE) {  // V-RNIC-05: nothing is opened
    errno = mode == RNICDV_BLOCK_MODE ? EOPNOTSUPP : EINVAL;
    return nullptr;
  }
  ibv_context* const context = ibv_open_device(device);
  if (context == nullptr || rnic::direct::find_table(context) != nullptr) return context;
  ibv_close_device(context);
  errno = EOPNOTSUPP;
  return nullptr;
}

int rnicdv_query_device(ibv_context* context, rnicdv_device_attr* attr) {
  return ask(context, &Table::query_device, context, attr);
}

int rnicdv_event_fd(ibv_context* context) {
  const auto function = offered(context, &Table::event_fd);
  if (function != nullptr) return function(context);
  errno = EOPNOTSUPP;
  return -1;
}

int rnicdv_get_event(ibv_context* context, rnicdv_event* event) {
  return ask(context, &Table::get_event, context, event);
}

int rnicdv_query_cq(ibv_cq* cq, rnicdv_cq_attr* attr) { return ask(cq->context, &Table::query_cq, cq, attr); }

int rnicdv_query_srq(ibv_srq* srq, rnicdv_srq_attr* attr) { return ask(srq->context, &Table::query_srq, srq, attr); }

ibv_srq* rnicdv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  return make(pd->context, &Table::create_srq, pd, init);
}

ibv_qp* rnicdv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* init, const rnicdv_qp_init_attr* direct) {
  return make(context, &Table::create_qp, context, init, direct);
}

int rnicdv_modify_qp(ibv_qp* qp, const rnicdv_qp_mod* mod, uint32_t mask) {
  return ask(qp->context, &Table::modify_qp, qp, mod, mask);
}

int rnicdv_query_qp(ibv_qp* qp, rnicdv_qp_attr* attr) { return ask(qp->context, &Table::query_qp, qp, attr); }

rnicdv_stream* rnicdv_stream_connect(ibv_context* context, const sockaddr* local, const sockaddr* remote,
                                     void* stream_context) {
  return make(context, &Table::stream_connect, context, local, remote, stream_context);
}

rnicdv_stream* rnicdv_stream_listen(ibv_context* context, const sockaddr* local, uint32_t backlog,
                                    void* stream_context) {
  return make(context, &Table::stream_listen, context, local, backlog, stream_context);
}

rnicdv_stream* rnicdv_stream_accept(rnicdv_stream* listener, void* stream_context) {
  return make(listener->context, &Table::stream_accept, listener, stream_context);
}

int rnicdv_stream_send(rnicdv_stream* stream, const void* octets, size_t length, size_t* sent) {
  return ask(stream->context, &Table::stream_send, stream, octets, length, sent);
}

int rnicdv_stream_receive(rnicdv_stream* stream, void* room, size_t length, size_t* received) {
  return ask(stream->context, &Table::stream_receive, stream, room, length, received);
}

int rnicdv_stream_query(rnicdv_stream* stream, rnicdv_stream_attr* attr) {
  return ask(stream->context, &Table::stream_query, stream, attr);
}

int rnicdv_stream_close(rnicdv_stream* stream) { return ask(stream->context, &Table::stream_close, stream); }

ibv_mr* rnicdv_reg_mr(ibv_pd* pd, void* address, size_t length, const rnicdv_mr_init* init) {
  return make(pd->context, &Table::reg_mr, pd, address, length, init);
}

ibv_mr* rnicdv_reg_shared_mr(ibv_mr* mr, ibv_pd* pd, const rnicdv_mr_init* init) {
  return make(pd->context, &Table::reg_shared_mr, mr, pd, init);
}

ibv_mr* rnicdv_reg_page_list(ibv_pd* pd, const rnicdv_page_list* list, const rnicdv_mr_init* init,
                             rnicdv_list_error* error) {
  return make(pd->context, &Table::reg_page_list, pd, list, init, error);
}

int rnicdv_rereg_page_list(ibv_mr* mr, ibv_pd* pd, const rnicdv_page_list* list, const rnicdv_mr_init* init,
                           rnicdv_list_error* error) {
  return ask(mr->context, &Table::rereg_page_list, mr, pd, list, init, error);
}

ibv_mr* rnicdv_alloc_stag(ibv_pd* pd, uint32_t* pages, uint32_t access) {
  return make(pd->context, &Table::alloc_stag, pd, pages, access);
}

int rnicdv_query_mr(ibv_context* context, uint32_t stag, rnicdv_mr_attr* attr) {
  return ask(context, &Table::query_mr, context, stag, attr);
}

int rnicdv_query_mw(ibv_context* context, uint32_t stag, rnicdv_mw_attr* attr) {
  return ask(context, &Table::query_mw, context, stag, attr);
}

void rnicdv_wr_rdma_read_inv(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  const auto function = offered(qp->qp_base.context, &Table::wr_rdma_read_inv);
  if (function != nullptr) function(qp, rkey, remote_addr);
}

void rnicdv_wr_fast_register(ibv_qp_ex* qp, ibv_mr* mr, const rnicdv_page_list* list, const rnicdv_mr_init* init) {
  const auto function = offered(qp->qp_base.context, &Table::wr_fast_register);
  if (function != nullptr) function(qp, mr, list, init);
}

void rnicdv_wr_masked_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add, uint64_t mask) {
  const auto function = offered(qp->qp_base.context, &Table::wr_masked_fetch_add);
  if (function != nullptr) function(qp, rkey, remote_addr, add, mask);
}

void rnicdv_wr_masked_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                              uint64_t compare_mask, uint64_t swap, uint64_t swap_mask) {
  const auto function = offered(qp->qp_base.context, &Table::wr_masked_cmp_swp);
  if (function != nullptr) function(qp, rkey, remote_addr, compare, compare_mask, swap, swap_mask);
}
