// Huge pages under regions that are reached by remote copy: where they come, and what stays as it was.
#include "huge_pages.hpp"

#include <sys/uio.h>

#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

struct TimeAgain {
  ~TimeAgain() { provider::set_time_for_huge_pages(std::int64_t{1} << 30); }
};

// Private memory of so many pieces, that begins with a whole one and lies in it alone.
struct Pieces {
  explicit Pieces(std::size_t count) : piece(provider::huge_page_bytes()), size(count * piece), all(size + 2 * piece) {
    base = static_cast<char*>(mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(base != MAP_FAILED);
    octets = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(base) + piece - 1) & ~(piece - 1));
    REQUIRE(mprotect(octets, size, PROT_READ | PROT_WRITE) == 0);
  }
  ~Pieces() { munmap(base, all); }
  void touch(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) octets[i] = static_cast<char>(i * 7 + i / kPage);
  }
  bool holds(std::size_t from, std::size_t to) const {
    for (std::size_t i = from; i < to; ++i)
      if (octets[i] != static_cast<char>(i * 7 + i / kPage)) return false;
    return true;
  }
  // Of the mapping, in octets: what smaps says.
  std::size_t says(const std::string& of) const {
    char begins[32];
    std::snprintf(begins, sizeof begins, "%lx-", reinterpret_cast<unsigned long>(octets));
    std::ifstream smaps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(smaps, line);) {
      if (line.find(" kB") == std::string::npos && line.find('-') != std::string::npos)
        here = line.compare(0, std::strlen(begins), begins) == 0;
      if (here && line.compare(0, of.size() + 1, of + ":") == 0)
        return std::strtoul(line.c_str() + of.size() + 1, nullptr, 10) * 1024;
    }
    FAIL("no such mapping");
    return 0;
  }
  std::size_t huge() const { return says("AnonHugePages") + says("ShmemPmdMapped"); }

  std::size_t piece, size, all;
  char* base;
  char* octets;
};

#define SKIP_WITHOUT_HUGE_PAGES()                                                   \
  if (provider::huge_page_bytes() == 0) {                                           \
    std::printf("SKIPPED huge pages: this kernel or its administrator has none\n"); \
    return;                                                                         \
  }                                                                                 \
  Pieces probe(1);                                                                  \
  probe.touch(0, probe.size);                                                       \
  if (madvise(probe.octets, probe.size, 25) != 0) {                                 \
    std::printf("SKIPPED huge pages: this kernel makes none on request\n");         \
    return;                                                                         \
  }                                                                                 \
  const TimeAgain again;                                                            \
  provider::set_time_for_huge_pages(std::int64_t{1} << 40)

}  // namespace

TEST_CASE("whole pieces of a range become huge pages, and hold what they held", "[provider][huge]") {
  SKIP_WITHOUT_HUGE_PAGES();
  Pieces p(4);
  p.touch(0, p.size);
  REQUIRE(p.huge() == 0);
  SECTION("all of it") {
    provider::make_huge(p.octets, p.size);
    CHECK(p.huge() == p.size);
  }
  SECTION("the pieces at its ends are not whole") {
    provider::make_huge(p.octets + 1, p.size - 2);
    CHECK(p.huge() == 2 * p.piece);
  }
  SECTION("less than one") {
    provider::make_huge(p.octets, p.piece - 1);
    provider::make_huge(p.octets + kPage, p.piece);
    CHECK(p.huge() == 0);
  }
  SECTION("once more") {
    provider::make_huge(p.octets, p.size);
    provider::make_huge(p.octets, p.size);
    CHECK(p.huge() == p.size);
  }
  CHECK(p.holds(0, p.size));
}

TEST_CASE("memory beside a range is left as it is, and takes none", "[provider][huge]") {
  SKIP_WITHOUT_HUGE_PAGES();
  Pieces p(4);
  p.touch(p.piece, 2 * p.piece + kPage);
  const std::size_t before = p.says("Rss");
  provider::make_huge(p.octets + p.piece, p.piece + kPage);
  CHECK(p.huge() == p.piece);
  CHECK(p.says("Rss") == before);
  CHECK(p.holds(p.piece, 2 * p.piece + kPage));
}

TEST_CASE("who wants no huge pages, or shares the memory, has none", "[provider][huge]") {
  SKIP_WITHOUT_HUGE_PAGES();
  Pieces p(2);
  SECTION("by MADV_NOHUGEPAGE") { REQUIRE(madvise(p.octets, p.size, MADV_NOHUGEPAGE) == 0); }
  SECTION("a shared mapping") {
    REQUIRE(mmap(p.octets, p.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p.octets);
  }
  SECTION("the time that a process has for it is over") { provider::set_time_for_huge_pages(0); }
  p.touch(0, p.size);
  provider::make_huge(p.octets, p.size);
  CHECK(p.huge() == 0);
  CHECK(p.holds(0, p.size));
}

TEST_CASE("a piece with a page that somebody holds stays as it is, and the others do not", "[provider][huge]") {
  SKIP_WITHOUT_HUGE_PAGES();
  Pieces p(3);
  p.touch(0, p.size);
  // A pipe holds the page that was given to it.
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  iovec page{p.octets + p.piece + 5 * kPage, kPage};
  REQUIRE(vmsplice(ends[1], &page, 1, 0) == static_cast<ssize_t>(kPage));
  provider::make_huge(p.octets, p.size);
  CHECK(p.huge() == 2 * p.piece);
  p.octets[p.piece + 5 * kPage] = 'x';
  char first = 0;
  REQUIRE(read(ends[0], &first, 1) == 1);
  CHECK(first == 'x');  // it is the same page still
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("what huge pages take of the time of a process is used up", "[provider][huge]") {
  SKIP_WITHOUT_HUGE_PAGES();
  Pieces p(2);
  p.touch(0, p.size);
  const std::int64_t before = provider::time_for_huge_pages_ns();
  provider::make_huge(p.octets, p.size);
  CHECK(p.huge() == p.size);
  CHECK(provider::time_for_huge_pages_ns() < before);
  // Less than a piece is not even looked at.
  const std::int64_t after = provider::time_for_huge_pages_ns();
  provider::make_huge(p.octets, p.piece - 1);
  CHECK(provider::time_for_huge_pages_ns() == after);
}
