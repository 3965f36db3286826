// Pages to swap, and what is seen of them: from the other side, from children, in the kernel's files.
#pragma once

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/descriptors.hpp"
#include "page_swap.hpp"

namespace rnic::test {

inline constexpr std::size_t kPage = 4096;

inline bool may_swap() {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (fd >= 0) close(fd);
  return fd >= 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0;
}

#define SKIP_WITHOUT_USERFAULTFD()                                         \
  if (!may_swap()) {                                                       \
    std::printf("SKIPPED page swap: this user may not use userfaultfd\n"); \
    return;                                                                \
  }                                                                        \
  static_assert(true)

// Private memory of so many pages.
struct Pages {
  explicit Pages(std::size_t count) : size(count * kPage) {
    octets = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(octets != MAP_FAILED);
    for (std::size_t i = 0; i < size; ++i) octets[i] = static_cast<char>(i * 7 + i / kPage);
  }
  ~Pages() { munmap(octets, size); }
  bool intact() const {
    for (std::size_t i = 0; i < size; ++i)
      if (octets[i] != static_cast<char>(i * 7 + i / kPage)) return false;
    return true;
  }
  std::size_t size;
  char* octets;
};

// The other side's view of what was swapped.
struct View {
  View(const provider::SwappedPages& swapped, std::size_t length) : size(length) {
    REQUIRE(swapped);
    octets = static_cast<char*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, swapped.fd, static_cast<off_t>(swapped.offset)));
    REQUIRE(octets != MAP_FAILED);
  }
  ~View() { munmap(octets, size); }
  std::size_t size;
  char* octets;
};

inline bool stays(const void* address, std::size_t length) {
  const provider::SwappedPages swapped = provider::swap_pages(address, length);
  provider::release_pages(swapped.use);
  return !swapped;
}

// What a forked child finds; 0 is what the parent expects.
template <typename Look>
int in_child(Look look) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(look());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

inline bool is_mapped(const void* page) {
  unsigned char there = 0;
  return mincore(const_cast<void*>(page), kPage, &there) == 0;  // ENOMEM: nothing is mapped
}

inline std::size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// As smaps has it of the mapping that holds this address.
inline bool kept_from_children(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long start = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2 && line.find(':') > line.find('-'))
      inside = reinterpret_cast<std::uintptr_t>(address) >= start && reinterpret_cast<std::uintptr_t>(address) < end;
    else if (inside && line.rfind("VmFlags:", 0) == 0)
      return line.find(" dc") != std::string::npos;
  }
  return false;
}

}  // namespace rnic::test
