/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Protection domains, and what stands for one: parent domains, with a thread domain perhaps.
//
// A parent domain bears the handle of its protection domain, and so does for the daemon. What it adds are wishes, and
// both are none of ours: the queues lie in memory of the daemon's, so no allocator of the application's is called; the
// locks of queues stay, as the watcher and other queues' pollers take them, too.
#include <cerrno>
#include <cstdlib>

#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

// libibverbs fills in what it makes by alloc_pd alone.
template <typename Object>
Object* make(ibv_context* ibv) {
  auto* object = static_cast<Object*>(std::calloc(1, sizeof(Object)));
  if (object != nullptr) object->ibv.context = ibv;
  return object;
}

void count(std::uint32_t& uses, int change) { std::atomic_ref(uses).fetch_add(static_cast<std::uint32_t>(change)); }
bool used(const std::uint32_t& uses) { return load(uses, std::memory_order_acquire) != 0; }

bool good(const ibv_context* ibv, const ibv_parent_domain_init_attr& init) {
  constexpr std::uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  const bool allocators = (init.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  return (init.comp_mask & ~kKnown) == 0 && init.pd != nullptr && init.pd->context == ibv &&
         (init.td == nullptr || init.td->context == ibv) &&
         (!allocators || (init.alloc != nullptr && init.free != nullptr));
}

}  // namespace

void enter_unknown(ibv_pd* pd) { count(of(pd).uses, 1); }
void leave_unknown(ibv_pd* pd) { count(of(pd).uses, -1); }
void enter_domain(ibv_pd* pd) {
  if (of(pd).stands_for != nullptr) enter_unknown(pd);
}
void leave_domain(ibv_pd* pd) {
  if (of(pd).stands_for != nullptr) leave_unknown(pd);
}

ibv_pd* alloc_pd(ibv_context* ibv) {
  auto* pd = make<Pd>(ibv);
  if (pd == nullptr) return nullptr;
  rnic_handle_reply reply{};
  const int error = context_of(ibv).control.call(RNIC_ALLOC_PD, nullptr, 0, &reply, sizeof reply);
  if (error != 0) {
    std::free(pd);
    errno = error;
    return nullptr;
  }
  pd->ibv.handle = reply.handle;
  return &pd->ibv;
}

ibv_pd* alloc_parent_domain(ibv_context* ibv, ibv_parent_domain_init_attr* init) {
  if (!good(ibv, *init)) {
    errno = EINVAL;
    return nullptr;
  }
  auto* pd = make<Pd>(ibv);
  if (pd == nullptr) return nullptr;
  pd->ibv.handle = init->pd->handle;
  pd->stands_for = &of(init->pd);
  pd->thread_domain = init->td == nullptr ? nullptr : &of(init->td);
  count(pd->stands_for->uses, 1);
  if (pd->thread_domain != nullptr) count(pd->thread_domain->uses, 1);
  return &pd->ibv;
}

int dealloc_pd(ibv_pd* ibv) {
  Pd& pd = of(ibv);
  if (used(pd.uses)) return EBUSY;
  if (pd.stands_for == nullptr) {
    const int error = destroyed(context_of(ibv).control.call(RNIC_DEALLOC_PD, ibv->handle));
    if (error != 0) return error;
  } else {
    count(pd.stands_for->uses, -1);
    if (pd.thread_domain != nullptr) count(pd.thread_domain->uses, -1);
  }
  std::free(&pd);
  return 0;
}

ibv_td* alloc_td(ibv_context* ibv, ibv_td_init_attr* init) {
  if (init->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto* td = make<Td>(ibv);
  return td == nullptr ? nullptr : &td->ibv;
}

int dealloc_td(ibv_td* ibv) {
  Td& td = of(ibv);
  if (used(td.uses)) return EBUSY;
  std::free(&td);
  return 0;
}

}  // namespace rnic::provider
