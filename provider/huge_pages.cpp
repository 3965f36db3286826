/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "huge_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "mappings.hpp"

namespace rnic::provider {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE: not in the headers of older C libraries
// A piece takes 0.2 to 5 ms, most of it to find and clear the huge page.
constexpr std::int64_t kCallNs = 100'000'000;
constexpr std::int64_t kProcessNs = 1'000'000'000;

std::atomic<std::int64_t> time_left_ns{kProcessNs};

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// What a file of the kernel's says, cut off where it is longer; nothing: there is none.
template <std::size_t kSize>
const char* read_words(const char* path, char (&words)[kSize]) {
  words[0] = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return words;
  const ssize_t got = read(fd, words, kSize - 1);
  words[std::max<ssize_t>(got, 0)] = '\0';
  close(fd);
  return words;
}

std::size_t find_size() {
  char words[64];
  if (std::strstr(read_words("/sys/kernel/mm/transparent_hugepage/enabled", words), "[never]") != nullptr) return 0;
  const std::size_t size =
      std::strtoul(read_words("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", words), nullptr, 10);
  return (size & (size - 1)) == 0 ? size : 0;
}

struct Work {
  std::uintptr_t start;
  std::uintptr_t end;
  std::size_t piece;
  std::int64_t until_ns;
};

// False: no more of it.
bool collapse(const Mapping& mapping, void* context) {
  const Work& work = *static_cast<const Work*>(context);
  if (!mapping.is_plain()) return true;
  const std::uintptr_t first = (std::max(mapping.start, work.start) + work.piece - 1) & ~(work.piece - 1);
  const std::uintptr_t end = std::min(mapping.end, work.end);
  for (std::uintptr_t at = first; at < end && end - at >= work.piece; at += work.piece) {
    if (now_ns() >= work.until_ns) return false;
    if (madvise(reinterpret_cast<void*>(at), work.piece, kCollapse) == 0) continue;
    if (errno == EINVAL) return true;   // not of this mapping, or not by this kernel
    if (errno != EAGAIN) return false;  // there are none now; else: somebody holds a page of this piece
  }
  return true;
}

}  // namespace

std::size_t huge_page_bytes() {
  static const std::size_t bytes = find_size();
  return bytes;
}

std::int64_t time_for_huge_pages_ns() { return time_left_ns.load(std::memory_order_relaxed); }
void set_time_for_huge_pages(std::int64_t ns) { time_left_ns.store(ns, std::memory_order_relaxed); }

void make_huge(const void* address, std::size_t length) {
  const std::size_t piece = huge_page_bytes();
  const std::int64_t left_ns = time_left_ns.load(std::memory_order_relaxed);
  if (piece == 0 || length < piece || left_ns <= 0) return;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::int64_t began_ns = now_ns();
  Work work{start, start + length, piece, began_ns + std::min(kCallNs, left_ns)};
  visit_mappings(work.start, work.end, collapse, &work);
  time_left_ns.fetch_sub(now_ns() - began_ns, std::memory_order_relaxed);
}

}  // namespace rnic::provider
