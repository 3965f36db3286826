/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// A context's operations are functions of its provider's plugin, which is a file that is loaded; and ours has a symbol
// that no other plugin has.
#include <dlfcn.h>

#include <atomic>

#include "table.hpp"

namespace rnic::direct {

namespace {

// There is one plugin of ours in a process, and it stays (-z nodelete).
std::atomic<const Table*> g_found{nullptr};

const Table* look_up(const ibv_context* context) {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(context->ops.poll_cq), &where) == 0 || where.dli_fname == nullptr) return nullptr;
  void* const plugin = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (plugin == nullptr) return nullptr;
  auto* const get = reinterpret_cast<GetTable*>(dlvsym(plugin, kTableSymbol, kTableVersion));
  dlclose(plugin);
  return get != nullptr ? get() : nullptr;
}

}  // namespace

const Table* find_table(const ibv_context* context) {
  if (context == nullptr) return nullptr;
  const Table* table = g_found.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = look_up(context);
    if (table == nullptr) return nullptr;
    g_found.store(table, std::memory_order_release);
  }
  return table->is_ours(context) ? table : nullptr;
}

}  // namespace rnic::direct
