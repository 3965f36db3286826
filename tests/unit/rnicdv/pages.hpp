// Pages for the tests of page lists, and what a peer does with a region of them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "unit/rnicdv/world.hpp"

namespace rnic::test {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::uint32_t kLocal = RNICDV_LOCAL_READ | RNICDV_LOCAL_WRITE;
inline constexpr std::uint32_t kAll = kLocal | RNICDV_REMOTE_READ | RNICDV_REMOTE_WRITE;

// Pages of memory of its own, shared or not; unmapped when contexts have ended.
struct Pages {
  explicit Pages(std::size_t count, int flags = MAP_SHARED) : size(count * kPage) {
    void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    REQUIRE(made != MAP_FAILED);
    at = static_cast<char*>(made);
  }
  ~Pages() { munmap(at, size); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::uint64_t page(std::size_t i) const { return reinterpret_cast<std::uintptr_t>(at) + i * kPage; }

  std::size_t size;
  char* at = nullptr;
};

inline rnicdv_page_list list_of(const std::vector<std::uint64_t>& pages, std::uint64_t first_offset,
                                std::uint64_t length) {
  rnicdv_page_list list{};
  list.mode = RNICDV_PAGE_MODE;
  list.count = static_cast<std::uint32_t>(pages.size());
  list.pages = pages.data();
  list.page_size = kPage;
  list.first_offset = first_offset;
  list.length = length;
  return list;
}

// a writes octets of this to b's region, and reads as many back.
inline void goes_through(WiredPair& t, std::uint64_t to, std::uint32_t rkey, char octet, std::uint32_t length) {
  std::fill_n(t.end_a.memory.begin(), length, octet);
  REQUIRE(post(t.end_a.qp, {7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {to, rkey}}, {t.end_a.sge(0, length)}) == 0);
  expect(t.end_a.send_cq, 7);
  REQUIRE(post(t.end_a.qp, {8, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {to, rkey}}, {t.end_a.sge(8192, length)}) == 0);
  expect(t.end_a.send_cq, 8);
  const auto from = t.end_a.memory.begin() + 8192;
  CHECK(std::count(from, from + length, octet) == static_cast<std::ptrdiff_t>(length));
}

inline void join_anew(WiredPair& t) {
  REQUIRE(comes_true([&] { return state_of(t.end_a.qp) == IBV_QPS_ERR && state_of(t.end_b.qp) == IBV_QPS_ERR; }));
  t.join_again();
}

// a's Write there ends the connection, and they are connected again.
inline void is_refused(WiredPair& t, std::uint64_t to, std::uint32_t rkey) {
  (void)post(t.end_a.qp, {9, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {to, rkey}}, {t.end_a.sge(0, 8)});
  join_anew(t);
}

}  // namespace rnic::test
