/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "region_table.hpp"

#include <cstdlib>
#include <utility>

namespace rnic::provider {

namespace {
constexpr std::uint32_t kListsMin = 64;

void push(Region*& head, Region* region) {
  store(region->next, head, std::memory_order_release);
  store(head, region, std::memory_order_release);
}
}  // namespace

Region* RegionTable::make(std::uint32_t index) {
  if (Region* known = find(index); known != nullptr) return known;
  if ((lists_ == nullptr || count_ > lists_->mask) && !grow() && lists_ == nullptr) return nullptr;
  Region* region = free_;
  if (region != nullptr)
    free_ = region->next;
  else
    region = static_cast<Region*>(std::calloc(1, sizeof(Region)));
  if (region == nullptr) return nullptr;
  store(region->index, index, std::memory_order_relaxed);
  put(region);
  return region;
}

Region* RegionTable::take(std::uint32_t index) {
  if (lists_ == nullptr) return nullptr;
  Region** at = &lists_->heads[index & lists_->mask];
  while (*at != nullptr && (*at)->index != index) at = &(*at)->next;
  Region* region = *at;
  if (region == nullptr) return nullptr;
  store(*at, region->next, std::memory_order_release);
  --count_;
  return region;
}

void RegionTable::put(Region* region) {
  push(lists_->heads[region->index & lists_->mask], region);
  ++count_;
}

void RegionTable::forget(Region* region) { push(free_, region); }

// False: out of memory; lists become longer then.
bool RegionTable::grow() {
  const std::uint32_t size = lists_ == nullptr ? kListsMin : (lists_->mask + 1) * 2;
  auto* lists = static_cast<Lists*>(std::calloc(1, sizeof(Lists) + size * sizeof(Region*)));
  if (lists == nullptr) return false;
  lists->mask = size - 1;
  lists->older = lists_;
  for (std::uint32_t i = 0; lists_ != nullptr && i <= lists_->mask; ++i) {
    for (Region* region = lists_->heads[i]; region != nullptr;) {
      Region* next = region->next;
      push(lists->heads[region->index & lists->mask], region);
      region = next;
    }
  }
  store(lists_, lists, std::memory_order_release);
  return true;
}

void RegionTable::clear() {
  for (std::uint32_t i = 0; lists_ != nullptr && i <= lists_->mask; ++i)
    for (Region* region = lists_->heads[i]; region != nullptr;) std::free(std::exchange(region, region->next));
  while (free_ != nullptr) std::free(std::exchange(free_, free_->next));
  while (lists_ != nullptr) std::free(std::exchange(lists_, lists_->older));
  count_ = 0;
}

}  // namespace rnic::provider
