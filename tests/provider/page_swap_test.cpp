// The page swap, in this very process: what a region's pages hold, before and after.
#include "page_swap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace rnic;

namespace {

constexpr std::size_t kPage = 4096;

bool may_swap() {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (fd >= 0) close(fd);
  return fd >= 0 || access("/dev/userfaultfd", R_OK | W_OK) == 0;
}

#define SKIP_WITHOUT_USERFAULTFD()                                               \
  if (!may_swap()) {                                                             \
    std::printf("SKIPPED page swap: this user may not use userfaultfd\n");       \
    return;                                                                      \
  }                                                                              \
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
  View(int fd, std::size_t length) : size(length) {
    octets = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    REQUIRE(octets != MAP_FAILED);
  }
  ~View() { munmap(octets, size); }
  std::size_t size;
  char* octets;
};

}  // namespace

TEST_CASE("only the pages that lie inside a range are its own", "[provider][swap]") {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
  CHECK(provider::whole_pages(at(0x10000), 2 * kPage).start == 0x10000);
  CHECK(provider::whole_pages(at(0x10000), 2 * kPage).end == 0x12000);
  CHECK(provider::whole_pages(at(0x10001), 2 * kPage).start == 0x11000);
  CHECK(provider::whole_pages(at(0x10001), 2 * kPage).end == 0x12000);
  CHECK(provider::whole_pages(at(0x10001), kPage).size() == 0);
  CHECK(provider::whole_pages(at(0x10000), kPage - 1).size() == 0);
  CHECK(provider::whole_pages(at(UINTPTR_MAX - 10), 5).size() == 0);
}

TEST_CASE("swapped pages hold what they held, and both sides see each other's stores", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(20);
  std::uint64_t offset = 99;
  // Not the first and the last page: something else lives there.
  const int fd = provider::swap_pages(pages.octets + 100, 19 * kPage, offset);
  REQUIRE(fd >= 0);
  CHECK(offset == 0);
  CHECK(pages.intact());
  View view(fd, 18 * kPage);
  CHECK(std::memcmp(view.octets, pages.octets + kPage, 18 * kPage) == 0);
  view.octets[5] = 'd';
  CHECK(pages.octets[kPage + 5] == 'd');
  pages.octets[18 * kPage] = 'a';
  CHECK(view.octets[17 * kPage] == 'a');
  provider::release_pages(pages.octets + 100, 19 * kPage);
  CHECK(pages.octets[kPage + 5] == 'd');
}

TEST_CASE("a range is swapped once for all regions over it, and again when none is left", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(32);
  std::uint64_t offset = 0;
  const int first = provider::swap_pages(pages.octets, pages.size, offset);
  REQUIRE(first >= 0);
  const int second = provider::swap_pages(pages.octets + 4 * kPage, 16 * kPage, offset);
  REQUIRE(second >= 0);
  CHECK(offset == 4 * kPage);
  {
    View a(first, pages.size);
    View b(second, pages.size);
    a.octets[7] = 'x';
    CHECK(b.octets[7] == 'x');
  }
  provider::release_pages(pages.octets, pages.size);
  provider::release_pages(pages.octets + 4 * kPage, 16 * kPage);
  // Shared memory it is already, but nobody has its descriptor any more.
  const int third = provider::swap_pages(pages.octets, pages.size, offset);
  REQUIRE(third >= 0);
  View c(third, pages.size);
  CHECK(c.octets[7] == 'x');
  c.octets[8] = 'y';
  CHECK(pages.octets[8] == 'y');
  provider::release_pages(pages.octets, pages.size);
}

TEST_CASE("a range that goes beyond swapped pages in use stays as it is", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(32);
  std::uint64_t offset = 0;
  const int fd = provider::swap_pages(pages.octets, 16 * kPage, offset);
  REQUIRE(fd >= 0);
  CHECK(provider::swap_pages(pages.octets, 32 * kPage, offset) < 0);
  View view(fd, 16 * kPage);
  view.octets[0] = 'z';
  CHECK(pages.octets[0] == 'z');
  provider::release_pages(pages.octets, 16 * kPage);
}

TEST_CASE("memory that is not plain and private is not swapped", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  std::uint64_t offset = 0;
  Pages few(7);
  CHECK(provider::swap_pages(few.octets, few.size, offset) < 0);

  Pages read_only(16);
  REQUIRE(mprotect(read_only.octets, read_only.size, PROT_READ) == 0);
  CHECK(provider::swap_pages(read_only.octets, read_only.size, offset) < 0);

  Pages holed(16);
  REQUIRE(munmap(holed.octets + 8 * kPage, kPage) == 0);
  CHECK(provider::swap_pages(holed.octets, holed.size, offset) < 0);

  Pages locked(16);
  if (mlock(locked.octets, locked.size) == 0) CHECK(provider::swap_pages(locked.octets, locked.size, offset) < 0);

  void* shared = mmap(nullptr, 16 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  CHECK(provider::swap_pages(shared, 16 * kPage, offset) < 0);
  munmap(shared, 16 * kPage);
}

TEST_CASE("no store of another thread is lost while pages are swapped", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(64);
  auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(pages.octets);
  constexpr std::size_t kStride = kPage / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < 64; ++i) words[i * kStride] = 0;
  std::atomic<bool> stop{false};
  std::vector<std::uint64_t> stored(64, 0);
  std::thread other([&] {
    while (!stop)
      for (std::size_t i = 0; i < 64; ++i) words[i * kStride].store(++stored[i], std::memory_order_relaxed);
  });
  for (int round = 0; round < 300; ++round) {
    std::uint64_t offset = 0;
    const int fd = provider::swap_pages(pages.octets, pages.size, offset);
    REQUIRE(fd >= 0);
    close(fd);
    provider::release_pages(pages.octets, pages.size);
  }
  stop = true;
  other.join();
  for (std::size_t i = 0; i < 64; ++i) CHECK(words[i * kStride].load() == stored[i]);
}

TEST_CASE("a forked child has swapped pages of its own", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(40);
  std::uint64_t offset = 0;
  const int fd = provider::swap_pages(pages.octets, pages.size, offset);
  REQUIRE(fd >= 0);
  close(fd);
  Pages released(40);
  const int gone = provider::swap_pages(released.octets, released.size, offset);
  REQUIRE(gone >= 0);
  close(gone);
  provider::release_pages(released.octets, released.size);

  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool same = pages.intact() && released.intact();
    std::memset(pages.octets, 'c', pages.size);
    std::memset(released.octets, 'c', released.size);
    _exit(same ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(pages.intact());
  CHECK(released.intact());
  provider::release_pages(pages.octets, pages.size);
}

TEST_CASE("what a child is not to have it has not after a swap either", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(16);
  REQUIRE(madvise(pages.octets, pages.size, MADV_DONTFORK) == 0);
  std::uint64_t offset = 0;
  const int fd = provider::swap_pages(pages.octets, pages.size, offset);
  REQUIRE(fd >= 0);
  close(fd);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    unsigned char there = 0;
    _exit(mincore(pages.octets, kPage, &there) != 0 ? 0 : 1);  // ENOMEM: nothing is mapped
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  provider::release_pages(pages.octets, pages.size);
}
