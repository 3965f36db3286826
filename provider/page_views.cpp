/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Second mappings of shared pages: a page list becomes a range of this process's addresses, and is reached as any
// other.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "mappings.hpp"
#include "regions.hpp"

namespace rnic::provider {

namespace {

// Pages from `first` on that lie one behind the other.
std::uint32_t run_length(const std::uint64_t* pages, std::uint32_t count, std::uint64_t page_size) {
  std::uint32_t length = 1;
  while (length < count && pages[length] == pages[length - 1] + page_size) ++length;
  return length;
}

// Maps [from, +size) once more, to `to`: of each mapping that it lies in, its part.
int map_again(std::uintptr_t from, std::size_t size, std::uintptr_t to) {
  while (size != 0) {
    Mapping mapping{};
    if (!find_mapping(from, mapping)) return EFAULT;
    if (!mapping.shared) return EOPNOTSUPP;
    const std::size_t part = size < mapping.end - from ? size : mapping.end - from;
    if (const int error = remap_to(from, 0, part, to); error != 0) return error == ENOMEM ? ENOMEM : EOPNOTSUPP;
    from += part;
    to += part;
    size -= part;
  }
  return 0;
}

PageView* new_view(std::size_t size) {
  auto* view = static_cast<PageView*>(std::calloc(1, sizeof(PageView)));
  auto* second = static_cast<SecondMapping*>(std::calloc(1, sizeof(SecondMapping)));
  if (view == nullptr || second == nullptr) {
    std::free(view);
    std::free(second);
    return nullptr;
  }
  second->uses = 1;
  second->size = size;
  view->of = second;
  return view;
}

}  // namespace

int lay_out(const std::uint64_t* pages, std::uint32_t count, std::uint64_t page_size, void*& first, PageView*& made) {
  made = nullptr;
  first = reinterpret_cast<void*>(pages[0]);
  if (run_length(pages, count, page_size) == count) return 0;

  PageView* view = new_view(count * page_size);
  if (view == nullptr) return ENOMEM;
  SecondMapping& second = *view->of;
  // Huge pages want a place at a multiple of theirs.
  const std::size_t room = second.size + page_size;
  void* const place = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    second.size = 0;
    drop_views(view);
    return ENOMEM;
  }
  const auto start = reinterpret_cast<std::uintptr_t>(place);
  const std::uintptr_t at = (start + page_size - 1) & ~(page_size - 1);
  second.at = reinterpret_cast<void*>(at);
  if (at != start) munmap(place, at - start);
  if (const std::size_t behind = start + room - (at + second.size); behind != 0)
    munmap(reinterpret_cast<void*>(at + second.size), behind);

  int error = 0;
  std::uint32_t done = 0;
  while (done < count && error == 0) {
    const std::uint32_t run = run_length(pages + done, count - done, page_size);
    error = map_again(pages[done], run * page_size, at + done * page_size);
    done += run;
  }
  if (error != 0) {
    drop_views(view);
    return error;
  }
  madvise(second.at, second.size, MADV_DONTFORK);  // nobody in a child knows of it
  first = second.at;
  made = view;
  return 0;
}

void drop_views(PageView*& views) {
  while (views != nullptr) {
    PageView* const next = views->next;
    SecondMapping& second = *views->of;
    if (std::atomic_ref(second.uses).fetch_sub(1) == 1) {
      if (second.size != 0) munmap(second.at, second.size);
      std::free(&second);
    }
    std::free(views);
    views = next;
  }
}

void add_view(PageView*& views, PageView* view) {
  if (view == nullptr) return;
  view->next = views;
  views = view;
}

bool share_views(const Mr& from, Mr& to) {
  for (const PageView* each = from.views; each != nullptr; each = each->next) {
    auto* view = static_cast<PageView*>(std::calloc(1, sizeof(PageView)));
    if (view == nullptr) return false;
    view->of = each->of;
    std::atomic_ref(view->of->uses).fetch_add(1);
    add_view(to.views, view);
  }
  return true;
}

namespace {

constexpr std::size_t kViewsKept = 8;

std::size_t count_of(const PageView* views) {
  std::size_t count = 0;
  for (; views != nullptr; views = views->next) ++count;
  return count;
}

// Its work request is done, or never will be.
bool is_done(Context& context, const PageView& view) {
  if (view.qp_number == 0) return true;
  Qp** const entry = context.qps.find(view.qp_number);
  const Qp* const qp = entry == nullptr ? nullptr : load(*entry, std::memory_order_acquire);
  return qp == nullptr || !qp->send.outstanding(view.index);
}

}  // namespace

// Which of them the region is of, only the daemon knows: a request that is done may have failed.
void drop_old_views(Mr& mr) {
  if (count_of(mr.views) <= kViewsKept) return;
  Context& context = context_of(mr.ibv.context);
  rnic_query_mr_reply now{};
  if (context.control.call(RNIC_QUERY_MR, rnic_handle{mr.ibv.rkey, 0}, now) != 0) return;
  for (PageView** at = &mr.views; *at != nullptr;) {
    PageView* view = *at;
    const auto start = reinterpret_cast<std::uintptr_t>(view->of->at);
    const bool current = now.address >= start && now.address - start < view->of->size;
    if (current || !is_done(context, *view)) {
      at = &view->next;
      continue;
    }
    *at = view->next;
    view->next = nullptr;
    drop_views(view);
  }
}

}  // namespace rnic::provider
