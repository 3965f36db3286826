/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The face of the plugin: how libibverbs finds us, and which operations it gets.
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "context.hpp"
#include "direct.hpp"
#include "pabi/pabi.hpp"

namespace rnic::provider {

namespace {

static_assert(offsetof(Context, verbs) == 0);
static_assert(offsetof(Mr, type) == offsetof(pabi::Mr, type));
static_assert(offsetof(Mr, access) == offsetof(pabi::Mr, access));
static_assert(offsetof(QpFace, mask) == offsetof(pabi::Qp, mask) && kQpHasBuilders == pabi::kQpHasBuilders);

int dereg_verbs_mr(pabi::Mr* mr) { return dereg_mr(&mr->mr); }

int rereg_verbs_mr(pabi::Mr* mr, int flags, ibv_pd* pd, void* at, std::size_t length, int access) {
  return rereg_mr(&mr->mr, flags, pd, at, length, access);
}

void free_context(ibv_context* ibv) {
  Context& context = context_of(ibv);
  close_context(context);
  pabi::verbs_uninit_context(&context.verbs);  // closes the command and async descriptors
  std::free(&context);
}

template <typename Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

struct Offer {
  pabi::Operation operation;
  const void* function;
};

void offer_operations(Context& context, int layout) {
  using enum pabi::Operation;
  const Offer offers[] = {
      {alloc_mw, address(provider::alloc_mw)},
      {alloc_parent_domain, address(provider::alloc_parent_domain)},
      {alloc_pd, address(provider::alloc_pd)},
      {alloc_td, address(provider::alloc_td)},
      {async_event, address(provider::async_event)},
      {bind_mw, address(provider::bind_mw)},
      {cq_event, address(provider::cq_event)},
      {create_cq, address(provider::create_cq)},
      {create_cq_ex, address(provider::create_cq_ex)},
      {create_qp, address(provider::create_qp)},
      {create_qp_ex, address(provider::create_qp_ex)},
      {create_srq, address(provider::create_srq)},
      {dealloc_mw, address(provider::dealloc_mw)},
      {dealloc_pd, address(provider::dealloc_pd)},
      {dealloc_td, address(provider::dealloc_td)},
      {dereg_mr, address(dereg_verbs_mr)},
      {destroy_cq, address(provider::destroy_cq)},
      {destroy_qp, address(provider::destroy_qp)},
      {destroy_srq, address(provider::destroy_srq)},
      {free_context, address(provider::free_context)},
      {modify_qp, address(provider::modify_qp)},
      {modify_srq, address(provider::modify_srq)},
      {poll_cq, address(provider::poll_cq)},
      {post_recv, address(provider::post_recv)},
      {post_send, address(provider::post_send)},
      {post_srq_recv, address(provider::post_srq_recv)},
      {query_device_ex, address(provider::query_device_ex)},
      {query_port, address(provider::query_port)},
      {query_qp, address(provider::query_qp)},
      {query_rt_values, address(provider::query_rt_values)},
      {query_srq, address(provider::query_srq)},
      {reg_mr, address(provider::reg_mr)},
      {req_notify_cq, address(provider::req_notify_cq)},
      {rereg_mr, address(rereg_verbs_mr)},
      {resize_cq, address(provider::resize_cq)},
  };
  // Without them libibverbs says by itself that there are none.
  const Offer offers_of_datagrams[] = {
      {attach_mcast, address(provider::attach_mcast)},
      {create_ah, address(provider::create_ah)},
      {destroy_ah, address(provider::destroy_ah)},
      {detach_mcast, address(provider::detach_mcast)},
  };
  pabi::Table table{};
  const auto set = [&](const Offer& offer) {
    table[static_cast<std::size_t>(pabi::slot_of(offer.operation, layout))] = offer.function;
  };
  for (const Offer& offer : offers) set(offer);
  if (has_datagrams(context))
    for (const Offer& offer : offers_of_datagrams) set(offer);
  pabi::verbs_set_ops(&context.verbs, table.data());
}

// Takes over `command_fd`, which is connected to the daemon and has said HELLO.
verbs_context* alloc_context(ibv_device* device, int command_fd, void* /*private_data*/) {
  auto* context =
      static_cast<Context*>(pabi::_verbs_init_and_alloc_context(device, command_fd, sizeof(Context), nullptr, 0));
  if (context == nullptr) return nullptr;  // the descriptor has been closed

  const int layout = pabi::find_layout();
  const int error = layout < 0 ? ENOTSUP : open_context(*context, command_fd, device->name);
  if (error != 0) {
    pabi::verbs_uninit_context(&context->verbs);
    std::free(context);
    errno = error;
    return nullptr;
  }
  offer_operations(*context, layout);
  return &context->verbs;
}

pabi::Device* alloc_device(pabi::SysfsDevice* /*device*/) {
  return static_cast<pabi::Device*>(std::calloc(1, sizeof(pabi::Device)));
}

void uninit_device(pabi::Device* device) { std::free(device); }

// There is no driver number for us in rdma-core, so we go by the device's name.
const pabi::MatchEntry kMatches[] = {
    {nullptr, {"rdma_device:*Nrnic*"}, 0, 0, pabi::kMatchModalias},
    {nullptr, {nullptr}, 0, 0, pabi::kMatchSentinel},
};

const pabi::DeviceOps kDeviceOps = {
    .name = "rnic",
    .match_min_abi_version = 0,
    .match_max_abi_version = UINT32_MAX,
    .match_table = kMatches,
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = alloc_context,
    .import_context = nullptr,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

[[gnu::constructor]] void register_with_libibverbs() { pabi::register_driver(&kDeviceOps); }

}  // namespace

}  // namespace rnic::provider

// For librnicdv (rnicdv/table.hpp).
extern "C" [[gnu::visibility("default")]] const rnic::direct::Table* rnic_provider_direct() {
  return &rnic::provider::direct::kTable;
}
