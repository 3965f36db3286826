// Which memory is not swapped.
#include <filesystem>

#include "kit/provider_each_way.hpp"
#include "mappings.hpp"
#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("memory that is not plain and private is not swapped", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(1, 2, 16);
  const std::size_t size = count * kPage;
  {
    Pages no_page(2);
    CHECK(stays(no_page.octets + 1, 2 * kPage - 2));
  }
  {
    Pages read_only(count);
    REQUIRE(mprotect(read_only.octets, size, PROT_READ) == 0);
    CHECK(stays(read_only.octets, size));
  }
  {
    Pages code(count);  // what takes its place could not be executed
    if (mprotect(code.octets, size, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) CHECK(stays(code.octets, size));
  }
  {
    Pages holed(count + 2);
    REQUIRE(munmap(holed.octets + count * kPage, kPage) == 0);
    CHECK(stays(holed.octets, holed.size));
    CHECK(stays(holed.octets, (count + 1) * kPage));
  }
  {
    Pages hidden(count + 2);
    REQUIRE(mprotect(hidden.octets + count * kPage, kPage, PROT_NONE) == 0);
    CHECK(stays(hidden.octets, hidden.size));
  }
  {
    void* shared = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    CHECK(stays(shared, size));
    munmap(shared, size);
  }
  {
    // By the name of ours, but not ours.
    const int fd = memfd_create("rnic-fast-memory", MFD_CLOEXEC);
    REQUIRE(ftruncate(fd, static_cast<off_t>(size)) == 0);
    void* theirs = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(stays(theirs, size));
    munmap(theirs, size);
    close(fd);
  }
  {
    const int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    void* device = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    REQUIRE(device != MAP_FAILED);
    CHECK(stays(device, size));
    munmap(device, size);
    close(fd);
  }
  {
    // A file whose name is longer than we ask for.
    std::string path = std::filesystem::temp_directory_path() / ("rnic-swap-" + std::to_string(getpid()));
    const std::string top = path;
    for (int i = 0; i < 4; ++i) path += "/" + std::string(200, 'n');
    std::filesystem::create_directories(path);
    const int fd = open((path + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, static_cast<off_t>(size)) == 0);
    void* file = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    REQUIRE(file != MAP_FAILED);
    CHECK(stays(file, size));
    munmap(file, size);
    close(fd);
    std::filesystem::remove_all(top);
  }
  {
    char on_stack[4 * kPage] = {};
    CHECK(stays(on_stack, sizeof on_stack));
  }
}

TEST_CASE("locked memory is not swapped, in whole or in part", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(1, 2, 16);
  const std::size_t locked = GENERATE(1, 2, 16);
  if (locked > count) return;
  Pages pages(count);
  REQUIRE(mlock(pages.octets + (count - locked) * kPage, locked * kPage) == 0);
  CHECK(stays(pages.octets, pages.size));
  REQUIRE(munlock(pages.octets, pages.size) == 0);
  CHECK(!stays(pages.octets, pages.size));
}

TEST_CASE("huge pages of their own are not swapped", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  // Nobody touches it: no huge page need be free.
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  void* huge =
      mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (huge == MAP_FAILED) {
    std::printf("SKIPPED huge pages: this kernel has none\n");
    return;
  }
  CHECK(stays(huge, kHuge));
  CHECK(stays(huge, 2 * kPage));
  munmap(huge, kHuge);
}

TEST_CASE("memory that a device's driver or the kernel maps is not swapped", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const auto vdso = getauxval(AT_SYSINFO_EHDR);
  if (vdso != 0) {
    CHECK(stays(reinterpret_cast<void*>(vdso), kPage));
    CHECK(stays(reinterpret_cast<void*>(vdso - kPage), kPage));  // its data: page frames without pages
  }
  const int memory = open("/dev/mem", O_RDONLY | O_CLOEXEC);
  if (memory < 0) return;
  void* frames = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0);
  if (frames != MAP_FAILED) {
    CHECK(stays(frames, kPage));
    munmap(frames, kPage);
  }
  close(memory);
}

TEST_CASE("a huge page that the kernel made of small ones may be swapped in part", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  Pages pages(3 * kHuge / kPage);
  madvise(pages.octets, pages.size, MADV_HUGEPAGE);
  madvise(pages.octets, pages.size, 25 /* MADV_COLLAPSE */);
  char* middle = pages.octets + kHuge + 5 * kPage;
  const std::size_t count = GENERATE(1, 2, 40);
  const auto swapped = provider::swap_pages(middle + 1, (count + 1) * kPage);
  REQUIRE(swapped);
  CHECK(pages.intact());
  View view(swapped, count * kPage);
  view.octets[3] = 'h';
  CHECK(middle[kPage + 3] == 'h');
  provider::release_pages(swapped.use);
}
