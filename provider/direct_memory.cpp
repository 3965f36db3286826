/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The direct verbs of memory: regions with all that the specification has of them, page lists, STags without memory;
// and the work requests that go with these.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "direct.hpp"
#include "page_swap.hpp"
#include "regions.hpp"

namespace rnic::provider::direct {

namespace {

static_assert(RNICDV_LOCAL_READ == RNIC_ACCESS_LOCAL_READ && RNICDV_LOCAL_WRITE == RNIC_ACCESS_LOCAL_WRITE &&
              RNICDV_REMOTE_READ == RNIC_ACCESS_REMOTE_READ && RNICDV_REMOTE_WRITE == RNIC_ACCESS_REMOTE_WRITE &&
              RNICDV_REMOTE_ATOMIC == RNIC_ACCESS_REMOTE_ATOMIC && RNICDV_MW_BIND == RNIC_ACCESS_WINDOW_BIND &&
              RNICDV_ZERO_BASED == RNIC_ACCESS_ZERO_BASED && RNICDV_NO_REMOTE == RNIC_ACCESS_NO_REMOTE);
constexpr std::uint32_t kKnownAccess = RNICDV_LOCAL_READ | RNICDV_LOCAL_WRITE | RNICDV_REMOTE_READ |
                                       RNICDV_REMOTE_WRITE | RNICDV_REMOTE_ATOMIC | RNICDV_MW_BIND | RNICDV_ZERO_BASED |
                                       RNICDV_NO_REMOTE;

// Of verbs_mr: not one of ibv_reg_mr, whose pages libibverbs would let children of fork have again at its end.
constexpr int kNotOfIbverbs = 1;

bool is_good(const rnicdv_mr_init& init) { return (init.access & ~kKnownAccess) == 0 && init.key <= 0xFF; }

ibv_mr* face(Mr* mr) {
  if (mr == nullptr) return nullptr;
  mr->type = kNotOfIbverbs;
  return &mr->ibv;
}

Range range_for(const ibv_pd* pd, void* address, std::size_t length, const rnicdv_mr_init& init) {
  Range range{};
  range.pd = pd->handle;
  range.address = address;
  range.length = length;
  range.iova = init.iova;
  range.access = init.access;
  range.has_key = true;
  range.key = static_cast<std::uint8_t>(init.key);
  return range;
}

// In the order of the specification's checks (V-MR-16), whose last, of rights, is not a list's.
rnicdv_list_error check(const Context& context, const rnicdv_page_list& list, const rnicdv_mr_init& init) {
  const std::uint64_t size = list.page_size;
  if (list.mode != RNICDV_PAGE_MODE) return RNICDV_LIST_MODE;
  if ((size & (size - 1)) != 0 || (size & context.attributes.page_size_cap) == 0) return RNICDV_LIST_PAGE_SIZE;
  if (list.count == 0 || list.count > RNIC_PAGE_LIST_MAX) return RNICDV_LIST_TOO_LONG;
  for (std::uint32_t i = 0; i < list.count; ++i) {
    if (list.pages[i] % size != 0) return RNICDV_LIST_PAGE;
  }
  if (list.first_offset >= size) return RNICDV_LIST_FIRST_OFFSET;
  if (list.length == 0 || list.length > list.count * size - list.first_offset) return RNICDV_LIST_LENGTH;
  if ((init.access & RNICDV_ZERO_BASED) != 0) return RNICDV_LIST_GOOD;
  const bool wraps = init.iova + (list.length - 1) < init.iova;
  return init.iova % size != list.first_offset || wraps ? RNICDV_LIST_ADDRESS : RNICDV_LIST_GOOD;
}

void* first_octet(void* first_page, const rnicdv_page_list& list) {
  return static_cast<char*>(first_page) + list.first_offset;
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, const rnicdv_mr_init* init) {
  errno = is_good(*init) ? 0 : EINVAL;
  if (errno != 0) return nullptr;
  return face(register_range(pd, range_for(pd, address, length, *init)));
}

ibv_mr* reg_shared_mr(ibv_mr* ibv, ibv_pd* pd, const rnicdv_mr_init* init) {
  auto* const source = reinterpret_cast<Mr*>(ibv);
  Context& context = context_of(pd);
  errno = 0;
  if (!is_good(*init) || &context_of(ibv->context) != &context) errno = EINVAL;
  if (context.control.in_forked_child()) errno = EPERM;
  if (errno != 0) return nullptr;
  rnic_reg_shared_mr request{};
  request.mr = ibv->handle;
  request.stag = ibv->rkey;
  request.pd = pd->handle;
  request.access = init->access;
  request.iova = (init->access & RNICDV_ZERO_BASED) != 0 ? 0 : init->iova;
  request.key = init->key;
  rnic_reg_mr_reply reply{};
  const Range now = range_of(*source);
  const int error = context.control.call(RNIC_REG_SHARED_MR, request, reply);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  Mr* const mr = adopt_region(pd, reply, range_for(pd, now.address, now.length, *init));
  if (mr == nullptr) {
    context.control.call(RNIC_DEREG_MR, reply.mr);
    errno = ENOMEM;
    return nullptr;
  }
  // Pages of ours are in use by this one too, and a second mapping of others is to outlive the first region.
  if (source->swapped != nullptr) mr->swapped = swap_pages(now.address, now.length).use;
  mr->ibv.addr = ibv->addr;  // of a region of a work request's, the ranges that are known here are not
  mr->ibv.length = ibv->length;
  if (!share_views(*source, *mr)) {
    (void)dereg_mr(&mr->ibv);
    errno = ENOMEM;
    return nullptr;
  }
  return face(mr);
}

ibv_mr* reg_page_list(ibv_pd* pd, const rnicdv_page_list* list, const rnicdv_mr_init* init, rnicdv_list_error* error) {
  Context& context = context_of(pd);
  const rnicdv_list_error wrong = check(context, *list, *init);
  if (error != nullptr) *error = wrong;
  errno = 0;
  if (wrong != RNICDV_LIST_GOOD || !is_good(*init)) errno = EINVAL;
  if (context.control.in_forked_child()) errno = EPERM;
  if (errno != 0) return nullptr;
  void* first = nullptr;
  PageView* view = nullptr;
  errno = lay_out(list->pages, list->count, list->page_size, first, view);
  if (errno != 0) return nullptr;
  Range range = range_for(pd, first_octet(first, *list), list->length, *init);
  range.pages = list->count;
  Mr* const mr = register_range(pd, range);
  if (mr == nullptr) {
    const int why = errno;
    drop_views(view);
    errno = why;
    return nullptr;
  }
  add_view(mr->views, view);
  return face(mr);
}

int rereg_page_list(ibv_mr* ibv, ibv_pd* pd, const rnicdv_page_list* list, const rnicdv_mr_init* init,
                    rnicdv_list_error* error) {
  auto* const mr = reinterpret_cast<Mr*>(ibv);
  Context& context = context_of(ibv->context);
  if (context.control.in_forked_child()) return EPERM;
  const rnicdv_list_error wrong = check(context, *list, *init);
  if (error != nullptr) *error = wrong;
  int impossible = wrong != RNICDV_LIST_GOOD || !is_good(*init) || &context_of(pd) != &context ? EINVAL : 0;
  void* first = nullptr;
  PageView* view = nullptr;
  if (impossible == 0) impossible = lay_out(list->pages, list->count, list->page_size, first, view);
  Range range{};
  if (impossible == 0) {
    range = range_for(pd, first_octet(first, *list), list->length, *init);
    range.pages = list->count;
  }
  const int failed = reregister_range(*mr, range, impossible);
  if (failed == EBUSY || failed == EIO) {
    drop_views(view);
    return failed;
  }
  drop_views(mr->views);  // of what it was
  add_view(mr->views, view);
  if (failed != 0) return failed;
  change_domain(*mr, pd);
  ibv->addr = range.address;
  ibv->length = range.length;
  return 0;
}

ibv_mr* alloc_stag(ibv_pd* pd, std::uint32_t* pages, std::uint32_t access) {
  Context& context = context_of(pd);
  errno = context.control.in_forked_child() ? EPERM : 0;
  if (errno != 0) return nullptr;
  rnic_alloc_stag request{};
  request.pd = pd->handle;
  request.access = access;
  request.pages = *pages;
  rnic_alloc_stag_reply reply{};
  const int error = context.control.call(RNIC_ALLOC_STAG, request, reply);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  Range nothing{};
  nothing.access = access;
  Mr* const mr = adopt_region(pd, {reply.mr, reply.stag, RNIC_RUNG_REMOTE_COPY, 0}, nothing);
  if (mr == nullptr) {
    context.control.call(RNIC_DEREG_MR, reply.mr);
    errno = ENOMEM;
    return nullptr;
  }
  *pages = reply.pages;
  return face(mr);
}

int query_mr(ibv_context* ibv, std::uint32_t stag, rnicdv_mr_attr* attr) {
  rnic_query_mr_reply reply{};
  const int error = context_of(ibv).control.call(RNIC_QUERY_MR, rnic_handle{stag, 0}, reply);
  if (error != 0) return error;
  *attr = {};
  attr->stag = reply.stag;
  attr->pd_handle = reply.pd;
  attr->access = reply.access;
  attr->remote_access = (reply.access & RNIC_ACCESS_NO_REMOTE) == 0 ? 1 : 0;
  attr->valid = (reply.flags & RNIC_STAG_VALID) != 0 ? 1 : 0;
  attr->shared = (reply.flags & RNIC_STAG_SHARED) != 0 ? 1 : 0;
  attr->max_page_list = reply.pages;
  attr->windows = reply.windows;
  attr->iova = reply.base;
  attr->length = reply.length;
  return 0;
}

int query_mw(ibv_context* ibv, std::uint32_t stag, rnicdv_mw_attr* attr) {
  rnic_query_mw_reply reply{};
  const int error = context_of(ibv).control.call(RNIC_QUERY_MW, rnic_handle{stag, 0}, reply);
  if (error != 0) return error;
  *attr = {};
  attr->stag = reply.stag;
  attr->pd_handle = reply.pd;
  attr->access = reply.access;
  attr->valid = (reply.flags & RNIC_STAG_VALID) != 0 ? 1 : 0;
  attr->qp_num = reply.qp_number;
  attr->iova = reply.base;
  attr->length = reply.length;
  return 0;
}

// ---- work requests ---------------------------------------------------------------------------------

void wr_rdma_read_inv(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr) {
  begin_read_invalidate(ex, rkey, remote_addr);
}

void wr_masked_fetch_add(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr, std::uint64_t add,
                         std::uint64_t mask) {
  begin_masked_fetch_add(ex, rkey, remote_addr, add, mask);
}

void wr_masked_cmp_swp(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t remote_addr, std::uint64_t compare,
                       std::uint64_t compare_mask, std::uint64_t swap, std::uint64_t swap_mask) {
  begin_masked_cmp_swp(ex, rkey, remote_addr, compare, compare_mask, swap, swap_mask);
}

namespace {

// What the list says, whatever that is: what is wrong with it is told by the completion, as the specification wants
// it. Where it is good the view is the pages, laid out.
rnic_fast_register body_of(const rnicdv_page_list& list, const rnicdv_mr_init& init) {
  rnic_fast_register body{};
  for (std::uint32_t i = 0; i < list.count && i < RNIC_PAGE_LIST_MAX; ++i) body.addresses |= list.pages[i];
  body.page_bytes = list.page_size;
  body.first_offset = list.first_offset;
  body.page_count = list.count;
  body.access = init.access;
  return body;
}

}  // namespace

void wr_fast_register(ibv_qp_ex* ex, ibv_mr* ibv, const rnicdv_page_list* list, const rnicdv_mr_init* init) {
  Qp& qp = of(ex);
  auto* const mr = reinterpret_cast<Mr*>(ibv);
  std::byte* const slot = next_entry(*ex);
  if (slot == nullptr) return;
  if (&context_of(ibv->context) != qp.context || list->mode != RNICDV_PAGE_MODE || init->key > 0xFF)
    return fail_batch(*ex, EINVAL);
  rnic_fast_register body = body_of(*list, *init);
  PageView* view = nullptr;
  if (check(*qp.context, *list, *init) == RNICDV_LIST_GOOD) {
    void* first = nullptr;
    const int error = lay_out(list->pages, list->count, list->page_size, first, view);
    if (error != 0) return fail_batch(*ex, error);
    body.view = reinterpret_cast<std::uintptr_t>(first);
  }
  rnic_sqe entry{};
  entry.opcode = RNIC_OP_FAST_REGISTER;
  entry.flags = entry_flags(qp.send, 0, ex->wr_flags);
  entry.rkey = (ibv->rkey & ~0xFFu) | init->key;
  entry.remote_address = (init->access & RNICDV_ZERO_BASED) != 0 ? 0 : init->iova;
  entry.argument = list->length;
  std::memcpy(slot, &entry, sizeof entry);
  std::memcpy(slot + sizeof entry, &body, sizeof body);
  forget_contents(*mr);  // its STag may be the one it had: nothing is to be copied from where that was
  drop_old_views(*mr);
  if (view != nullptr) {
    view->qp_number = qp.ibv.qp_num;
    view->index = next_index(*ex);
    add_view(mr->views, view);
  }
  ibv->lkey = ibv->rkey = entry.rkey;
  ibv->addr = first_octet(reinterpret_cast<void*>(body.view), *list);
  ibv->length = list->length;
  entry_written(*ex, ex->wr_id, RNIC_OP_FAST_REGISTER);
}

}  // namespace rnic::provider::direct
