// Memory that page swap made shared is, to the application, the private memory that it was: mremap and madvise do to it
// what they do to any other.
#include "kit/catch.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "kit/provider_each_way.hpp"
#include "rnic_control.h"
#include "sysfs.hpp"

namespace {

constexpr std::size_t kPage = RNIC_SWAP_PAGE_BYTES;
constexpr int kRights = PROT_READ | PROT_WRITE;
constexpr int kDontUnmap = 4;  // not in the headers of older C libraries

// As `rnic run --fast-memory` has it.
struct FastMemory : rnic::test::EachWay {
  FastMemory() { set("1"); }
  ~FastMemory() { set("0"); }
  static void set(const char* value) {
    setenv("RNIC_FAST_MEMORY", value, 1);
    rnic::preload::configure();
  }
};

char* plain(std::size_t pages, char octet) {
  void* memory = mmap(nullptr, pages * kPage, kRights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  std::memset(memory, octet, pages * kPage);
  return static_cast<char*>(memory);
}

// As the provider makes them: parts of one file, one behind another.
struct File {
  explicit File(const char* name = RNIC_SWAP_FILE_NAME) : fd(memfd_create(name, MFD_CLOEXEC)) {
    REQUIRE(ftruncate(fd, 64 * kPage) == 0);
  }
  ~File() { close(fd); }
  void swap(char* at, std::size_t pages) {
    REQUIRE(pwrite(fd, at, pages * kPage, filled) == static_cast<ssize_t>(pages * kPage));
    REQUIRE(mmap(at, pages * kPage, kRights, MAP_SHARED | MAP_FIXED, fd, filled) == at);
    filled += static_cast<off_t>(pages * kPage);
  }
  char octet(std::size_t page) const {
    char value = 0;
    REQUIRE(pread(fd, &value, 1, static_cast<off_t>(page * kPage)) == 1);
    return value;
  }
  std::size_t octets_there() const {
    struct stat status {};
    REQUIRE(fstat(fd, &status) == 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
  int fd;
  off_t filled = 0;
};

bool holds(const char* memory, std::size_t pages, char octet) {
  for (std::size_t i = 0; i < pages * kPage; ++i)
    if (memory[i] != octet) return false;
  return true;
}

char* remapped(char* memory, std::size_t pages, std::size_t to, int flags = MREMAP_MAYMOVE, char* wanted = nullptr) {
  void* moved = mremap(memory, pages * kPage, to * kPage, flags, wanted);
  return moved == MAP_FAILED ? nullptr : static_cast<char*>(moved);
}

// A place with something behind it, so that nothing grows where it is.
char* hemmed(std::size_t pages, char octet) {
  char* memory = plain(pages + 1, octet);
  REQUIRE(mprotect(memory + pages * kPage, kPage, PROT_READ) == 0);
  return memory;
}

}  // namespace

TEST_CASE("swapped memory that grows has zeros behind it, not its neighbour's octets", "[preload][swapped]") {
  const FastMemory on;
  File file;
  const bool in_place = GENERATE(false, true);
  char* a = in_place ? plain(3, 'a') : hemmed(2, 'a');
  if (in_place) REQUIRE(munmap(a + 2 * kPage, kPage) == 0);
  char* b = plain(2, 'b');
  file.swap(a, 2);
  file.swap(b, 2);
  char* moved = remapped(a, 2, 3);
  REQUIRE(moved != nullptr);
  CHECK(holds(moved, 2, 'a'));
  CHECK(holds(moved + 2 * kPage, 1, 0));
  std::memset(moved, 'A', 3 * kPage);
  CHECK(holds(b, 2, 'b'));
  CHECK(file.octet(0) == 'A');  // what was registered sees it yet, as it would a pinned page

  SECTION("and grows again, of two mappings") {
    moved = remapped(moved, 3, 40);
    REQUIRE(moved != nullptr);
    CHECK(holds(moved, 3, 'A'));
    CHECK(holds(moved + 3 * kPage, 37, 0));
    CHECK(file.octet(0) == 'A');
  }
  SECTION("and where it was there is nothing of it") {
    if (!in_place) CHECK(mmap(a, 2 * kPage, kRights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == a);
  }
}

TEST_CASE("swapped memory grows to the place that was asked for", "[preload][swapped]") {
  const FastMemory on;
  File file;
  char* memory = plain(4, 'm');
  file.swap(memory + kPage, 1);
  char* place = plain(8, 'p');
  CHECK(remapped(memory, 4, 6, MREMAP_MAYMOVE | MREMAP_FIXED, place) - place == 0);
  CHECK(holds(place, 4, 'm'));
  CHECK(holds(place + 4 * kPage, 2, 0));
  CHECK(holds(place + 6 * kPage, 2, 'p'));
}

TEST_CASE("swapped memory of two mappings moves as one", "[preload][swapped]") {
  const FastMemory on;
  File file;
  char* memory = plain(4, 'm');
  file.swap(memory + kPage, 1);
  char* place = plain(4, 'p');
  const std::size_t pages = GENERATE(4, 3);
  CHECK(remapped(memory, 4, pages, MREMAP_MAYMOVE | MREMAP_FIXED, place) - place == 0);
  CHECK(holds(place, pages, 'm'));
  CHECK(holds(place + pages * kPage, 4 - pages, 'p'));
  CHECK(mmap(memory, 4 * kPage, kRights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory);
}

TEST_CASE("growth of swapped memory is refused where that of private memory is", "[preload][swapped]") {
  const FastMemory on;
  File file;
  char* memory = hemmed(2, 'm');
  file.swap(memory, 2);
  const auto refusal = [&](std::size_t from, std::size_t to, int flags, char* wanted = nullptr) {
    errno = 0;
    CHECK(remapped(memory, from, to, flags, wanted) == nullptr);
    return errno;
  };
  CHECK(refusal(2, 3, 0) == ENOMEM);
  CHECK(refusal(0, 2, MREMAP_MAYMOVE) == EINVAL);
  CHECK(refusal(2, 3, MREMAP_FIXED, memory + 64 * kPage) == EINVAL);
  CHECK(refusal(2, 3, MREMAP_MAYMOVE | MREMAP_FIXED, memory + kPage) == EINVAL);
  CHECK(refusal(2, 3, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 64 * kPage + 1) == EINVAL);
  CHECK(refusal(2, 3, MREMAP_MAYMOVE | kDontUnmap) == EINVAL);
  CHECK(refusal(3, 4, MREMAP_MAYMOVE) == EFAULT);  // other rights
  CHECK(refusal(2, std::size_t{1} << 50, MREMAP_MAYMOVE) == ENOMEM);
  CHECK(holds(memory, 3, 'm'));
}

TEST_CASE("swapped memory keeps its rights when it grows", "[preload][swapped]") {
  const FastMemory on;
  File file;
  char* memory = hemmed(2, 'm');
  file.swap(memory, 2);
  REQUIRE(mprotect(memory, 2 * kPage, PROT_NONE) == 0);
  char* moved = remapped(memory, 2, 3);
  REQUIRE(moved != nullptr);
  CHECK(write(file.fd, moved, 1) == -1);
  CHECK(write(file.fd, moved + 2 * kPage, 1) == -1);
  REQUIRE(mprotect(moved, 3 * kPage, PROT_READ) == 0);
  CHECK(holds(moved, 2, 'm'));
}

TEST_CASE("swapped memory that moves and leaves its place mapped leaves zeros there", "[preload][swapped]") {
  const FastMemory on;
  File file;
  char* memory = plain(2, 'm');
  file.swap(memory, 2);
  char* moved = remapped(memory, 2, 2, MREMAP_MAYMOVE | kDontUnmap);
  REQUIRE(moved != nullptr);
  CHECK(holds(moved, 2, 'm'));
  CHECK(holds(memory, 2, 0));
  std::memset(memory, 'x', 2 * kPage);
  CHECK(holds(moved, 2, 'm'));
}

TEST_CASE("swapped memory that is not needed is zeros, and the system's again", "[preload][swapped]") {
  const FastMemory on;
  File file;
  char* memory = plain(6, 'm');
  file.swap(memory + kPage, 2);
  file.swap(memory + 4 * kPage, 1);
  const int advice = GENERATE(MADV_DONTNEED, MADV_FREE);
  SECTION("with plain memory around it") {
    REQUIRE(madvise(memory, 5 * kPage, advice) == 0);
    CHECK(file.octets_there() == 0);
    CHECK(holds(memory, 5, 0));
    CHECK(holds(memory + 5 * kPage, 1, 'm'));
  }
  SECTION("in part") {
    REQUIRE(madvise(memory + 2 * kPage, 1, advice) == 0);
    CHECK(file.octets_there() == 2 * kPage);
    CHECK(holds(memory, 2, 'm'));
    CHECK(holds(memory + 2 * kPage, 1, 0));
    CHECK(holds(memory + 3 * kPage, 3, 'm'));
  }
  SECTION("with a hole, of which the caller is told") {
    REQUIRE(munmap(memory + 3 * kPage, kPage) == 0);
    CHECK(madvise(memory, 6 * kPage, advice) == -1);
    CHECK(errno == ENOMEM);
    CHECK(holds(memory, 3, 0));
    CHECK(holds(memory + 4 * kPage, 2, 0));
  }
  SECTION("and may not be written") {
    REQUIRE(mprotect(memory, 6 * kPage, PROT_READ) == 0);
    REQUIRE(madvise(memory, 6 * kPage, advice) == 0);
    CHECK(holds(memory, 6, 0));
  }
}

TEST_CASE("others' shared memory is what the kernel makes of it", "[preload][swapped]") {
  const FastMemory on;
  File file("another");
  char* memory = plain(2, 'm');
  file.swap(memory, 2);
  REQUIRE(pwrite(file.fd, "n", 1, 2 * kPage) == 1);
  REQUIRE(madvise(memory, 2 * kPage, MADV_DONTNEED) == 0);
  CHECK(holds(memory, 2, 'm'));
  char* moved = remapped(memory, 2, 3);
  REQUIRE(moved != nullptr);
  CHECK(moved[2 * kPage] == 'n');
}
