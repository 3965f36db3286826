// The page swap, in this very process: what a region's pages hold, before and after.
#include "page_swap.hpp"

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
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/provider_each_way.hpp"
#include "mappings.hpp"

using namespace rnic;
using rnic::test::EachWay;

namespace {

constexpr std::size_t kPage = 4096;

bool may_swap() {
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

bool stays(const void* address, std::size_t length) {
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

bool is_mapped(const void* page) {
  unsigned char there = 0;
  return mincore(const_cast<void*>(page), kPage, &there) == 0;  // ENOMEM: nothing is mapped
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// As smaps has it of the mapping that holds this address.
bool kept_from_children(const void* address) {
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
  const EachWay way;
  // One page, as many as share a file, and more.
  const std::size_t count = GENERATE(1, 2, 16, 18, 300);
  Pages pages(count + 2);
  // Not the first and the last page: something else lives there.
  const auto swapped = provider::swap_pages(pages.octets + 100, (count + 1) * kPage);
  REQUIRE(swapped);
  CHECK(pages.intact());
  View view(swapped, count * kPage);
  CHECK(std::memcmp(view.octets, pages.octets + kPage, count * kPage) == 0);
  view.octets[5] = 'd';
  CHECK(pages.octets[kPage + 5] == 'd');
  pages.octets[count * kPage] = 'a';
  CHECK(view.octets[(count - 1) * kPage] == 'a');
  // Nothing of what lies beside it became shared.
  provider::Mapping edge{};
  REQUIRE(provider::find_mapping(reinterpret_cast<std::uintptr_t>(pages.octets), edge));
  CHECK(!edge.shared);
  REQUIRE(provider::find_mapping(reinterpret_cast<std::uintptr_t>(pages.octets) + (count + 1) * kPage, edge));
  CHECK(!edge.shared);
  provider::release_pages(swapped.use);
  CHECK(pages.octets[kPage + 5] == 'd');
}

TEST_CASE("a range is swapped once for all regions over it, and again when none is left", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(16, 32);  // a shared file; one of its own
  Pages pages(count);
  const auto first = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(first);
  const auto second = provider::swap_pages(pages.octets + 4 * kPage, 8 * kPage);
  REQUIRE(second);
  CHECK(second.fd == first.fd);
  CHECK(second.offset == first.offset + 4 * kPage);
  {
    View a(first, pages.size);
    View b(second, 8 * kPage);
    a.octets[4 * kPage + 7] = 'x';
    CHECK(b.octets[7] == 'x');
    CHECK(pages.octets[4 * kPage + 7] == 'x');
  }
  // In any order.
  const bool backwards = GENERATE(false, true);
  provider::release_pages(backwards ? second.use : first.use);
  if (backwards) {
    View still(first, pages.size);
    CHECK(still.octets[4 * kPage + 7] == 'x');
  } else {
    View still(second, 8 * kPage);
    CHECK(still.octets[7] == 'x');
  }
  provider::release_pages(backwards ? first.use : second.use);
  // Shared memory it is already, and its descriptor may be gone.
  const auto third = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(third);
  View c(third, pages.size);
  CHECK(c.octets[4 * kPage + 7] == 'x');
  c.octets[8] = 'y';
  CHECK(pages.octets[8] == 'y');
  provider::release_pages(third.use);
}

TEST_CASE("a range that registers again is not copied again, where it is not large", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(2, 256, 1100);
  Pages pages(count);
  provider::Mapping first{};
  provider::Mapping second{};
  for (provider::Mapping* mapping : {&first, &second}) {
    const auto swapped = provider::swap_pages(pages.octets, pages.size);
    REQUIRE(swapped);
    REQUIRE(provider::find_mapping(reinterpret_cast<std::uintptr_t>(pages.octets), *mapping));
    CHECK(pages.intact());
    provider::release_pages(swapped.use);
  }
  CHECK(second.is_file(first.inode, first.major, first.minor) == (count <= 256));
  CHECK((second.offset == first.offset || count > 256));
}

TEST_CASE("of what is registered no more, a few files stay open", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    Pages pages(20 + static_cast<std::size_t>(i) * 10);
    CHECK(!stays(pages.octets, pages.size));
  }
  CHECK(open_descriptors() <= before + 10);
}

TEST_CASE("ranges that share a file share no octet", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages a(2);
  Pages b(3);
  const auto of_a = provider::swap_pages(a.octets, a.size);
  const auto of_b = provider::swap_pages(b.octets, b.size);
  REQUIRE(of_a);
  REQUIRE(of_b);
  CHECK(of_a.fd == of_b.fd);
  CHECK((of_a.offset + a.size <= of_b.offset || of_b.offset + b.size <= of_a.offset));
  std::memset(a.octets, 'a', a.size);
  CHECK(b.intact());
  provider::release_pages(of_a.use);
  View view(of_b, b.size);
  view.octets[0] = 'b';
  CHECK(b.octets[0] == 'b');
  provider::release_pages(of_b.use);
}

TEST_CASE("a range that goes beyond swapped pages in use stays as it is", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t used = GENERATE(1, 16, 17);
  const std::size_t from = GENERATE(0, 3, 15);
  Pages pages(32);
  const auto swapped = provider::swap_pages(pages.octets + from * kPage, used * kPage);
  REQUIRE(swapped);
  CHECK(stays(pages.octets, 32 * kPage));
  View view(swapped, used * kPage);
  view.octets[0] = 'z';
  CHECK(pages.octets[from * kPage] == 'z');
  provider::release_pages(swapped.use);
  // Nobody's any more: as any other memory.
  const auto all = provider::swap_pages(pages.octets, 32 * kPage);
  REQUIRE(all);
  View of_all(all, 32 * kPage);
  CHECK(of_all.octets[from * kPage] == 'z');
  CHECK(std::memcmp(of_all.octets, pages.octets, 32 * kPage) == 0);
  of_all.octets[31 * kPage] = 'q';
  CHECK(pages.octets[31 * kPage] == 'q');
  provider::release_pages(all.use);
}

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

TEST_CASE("no store of another thread is lost while pages are swapped", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  // The same range again and again, which is copied each time; and small ranges, each once.
  const bool small = GENERATE(false, true);
  const std::size_t kRounds = small ? 300 : 60;
  constexpr std::size_t kStride = kPage / sizeof(std::uint64_t);
  const std::size_t count = small ? 2 * kRounds : 1100;
  Pages pages(count);
  auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(pages.octets);
  for (std::size_t i = 0; i < count; ++i) words[i * kStride] = 0;
  std::atomic<bool> stop{false};
  std::vector<std::uint64_t> stored(count, 0);
  std::uint64_t lost = 0;
  std::thread other([&] {
    while (!stop)
      for (std::size_t i = 0; i < count; ++i) {
        if (words[i * kStride].load(std::memory_order_relaxed) != stored[i]) ++lost;
        words[i * kStride].store(++stored[i], std::memory_order_relaxed);
      }
  });
  std::vector<provider::PagesUse*> uses;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const auto swapped = small ? provider::swap_pages(pages.octets + 2 * round * kPage, 2 * kPage)
                               : provider::swap_pages(pages.octets, pages.size);
    REQUIRE(swapped);
    if (small)
      uses.push_back(swapped.use);
    else
      provider::release_pages(swapped.use);
  }
  stop = true;
  other.join();
  CHECK(lost == 0);
  for (std::size_t i = 0; i < count; ++i) CHECK(words[i * kStride].load() == stored[i]);
  for (auto* use : uses) provider::release_pages(use);
}

namespace {
std::atomic<std::uint64_t*> handler_stores_to;
std::uint64_t handler_stored;
}  // namespace

TEST_CASE("a signal's handler that stores into a range finds no swap halfway", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(1100);
  handler_stored = 0;
  handler_stores_to = reinterpret_cast<std::uint64_t*>(pages.octets + 700 * kPage);
  const auto handler = [](int) { *handler_stores_to.load() = ++handler_stored; };
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGALRM, &action, &before) == 0);
  const itimerval often{{0, 200}, {0, 200}};
  REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);
  for (int round = 0; round < 40; ++round) CHECK(!stays(pages.octets, pages.size));
  const itimerval never{};
  REQUIRE(setitimer(ITIMER_REAL, &never, nullptr) == 0);
  CHECK(handler_stored > 0);
  CHECK(*handler_stores_to.load() == handler_stored);
  REQUIRE(sigaction(SIGALRM, &before, nullptr) == 0);
}

TEST_CASE("a program that may make no large files is not ended by a swap", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const rlim_t most = GENERATE(0, 100 * 1024);
  const bool file_is_open = GENERATE(false, true);
  Pages pages(60);
  CHECK(in_child([&] {
          if (file_is_open) stays(pages.octets, kPage);
          const rlimit limit{most, most};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
          return stays(pages.octets + kPage, 2 * kPage) && stays(pages.octets + 3 * kPage, 50 * kPage) ? 0 : 1;
        }) == 0);
}

TEST_CASE("threads swap at once, overlapping ranges too", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kOwn = 40;
  Pages pages(kThreads * kOwn);
  Pages common(8);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      char* own = pages.octets + t * kOwn * kPage;
      for (std::size_t round = 0; round < 100; ++round) {
        const std::size_t length = (1 + round % 5) * kPage;
        char* at = own + (round * 7 % (kOwn - 5)) * kPage;
        const auto mine = provider::swap_pages(at, length);
        const auto shared = provider::swap_pages(common.octets + round % 4 * kPage, 4 * kPage);
        if (mine) {
          char octet = 0;
          if (pread(mine.fd, &octet, 1, static_cast<off_t>(mine.offset)) != 1 || octet != *at) ++wrong;
        }
        if (shared) {
          char octet = 0;
          if (pread(shared.fd, &octet, 1, static_cast<off_t>(shared.offset)) != 1 ||
              octet != common.octets[round % 4 * kPage])
            ++wrong;
        }
        provider::release_pages(shared.use);
        provider::release_pages(mine.use);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(pages.intact());
  CHECK(common.intact());
}

TEST_CASE("what the application has mapped in place of swapped pages is swapped anew", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(1, 2, 16, 17);
  const bool registered = GENERATE(true, false);
  Pages pages(count);
  const auto before = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(before);
  if (!registered) provider::release_pages(before.use);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  REQUIRE(mmap(pages.octets, pages.size, PROT_READ | PROT_WRITE, flags, -1, 0) == pages.octets);
  pages.octets[0] = 'n';
  const auto after = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(after);
  {
    View view(after, pages.size);
    CHECK(view.octets[0] == 'n');
    view.octets[1] = 'o';
    CHECK(pages.octets[1] == 'o');
  }
  if (registered) {
    View old(before, pages.size);
    CHECK(old.octets[1] != 'o');
    provider::release_pages(before.use);
    View view(after, pages.size);  // whose release that was is known
    view.octets[2] = 'p';
    CHECK(pages.octets[2] == 'p');
  }
  provider::release_pages(after.use);
}

TEST_CASE("swapped pages that were unmapped, moved or cut are what they are now", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(4, 20);
  Pages pages(count);
  const auto swapped = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(swapped);
  SECTION("unmapped") {
    REQUIRE(munmap(pages.octets + kPage, kPage) == 0);
    CHECK(stays(pages.octets, pages.size));
    const auto rest = provider::swap_pages(pages.octets + 2 * kPage, 2 * kPage);
    REQUIRE(rest);
    CHECK(rest.offset == swapped.offset + 2 * kPage);
    provider::release_pages(rest.use);
  }
  SECTION("moved") {
    Pages place(count);
    REQUIRE(mremap(pages.octets, pages.size, pages.size, MREMAP_MAYMOVE | MREMAP_FIXED, place.octets) == place.octets);
    CHECK(stays(pages.octets, pages.size));
    const auto there = provider::swap_pages(place.octets + kPage, 2 * kPage);
    REQUIRE(there);
    CHECK(there.fd == swapped.fd);
    CHECK(there.offset == swapped.offset + kPage);
    provider::release_pages(there.use);
  }
  SECTION("pages exchanged") {
    // The first page's file part lies at the second, too: not one part of the file.
    REQUIRE(mmap(pages.octets + kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, swapped.fd,
                 static_cast<off_t>(swapped.offset)) == pages.octets + kPage);
    CHECK(stays(pages.octets, 2 * kPage));
  }
  SECTION("protected") {
    REQUIRE(mprotect(pages.octets, kPage, PROT_READ) == 0);
    CHECK(stays(pages.octets, pages.size));
    CHECK(!stays(pages.octets + kPage, pages.size - kPage));
  }
  provider::release_pages(swapped.use);
}

TEST_CASE("descriptors that the application closed are not taken for ours", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(2);
  const auto swapped = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(swapped);
  // The number belongs to a file of the application's now.
  const int theirs = memfd_create("theirs", MFD_CLOEXEC);
  REQUIRE(dup2(theirs, swapped.fd) == swapped.fd);
  Pages more(2);
  const auto next = provider::swap_pages(more.octets, more.size);
  REQUIRE(next);
  CHECK(next.fd != swapped.fd);
  CHECK(stays(pages.octets, pages.size));  // in use, and its descriptor is lost
  CHECK(lseek(theirs, 0, SEEK_END) == 0);
  provider::release_pages(next.use);
  provider::release_pages(swapped.use);
  CHECK(fcntl(swapped.fd, F_GETFD) >= 0);
  close(swapped.fd);
  close(theirs);
}

TEST_CASE("a forked child has swapped pages of its own", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(1, 2, 40);
  Pages pages(count);
  const auto swapped = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(swapped);
  Pages released(count);
  const auto gone = provider::swap_pages(released.octets, released.size);
  REQUIRE(gone);
  provider::release_pages(gone.use);

  const int result = in_child([&] {
    const bool same = pages.intact() && released.intact();
    std::memset(pages.octets, 'c', pages.size);
    std::memset(released.octets, 'c', released.size);
    provider::release_pages(swapped.use);
    // It may swap for itself, too.
    const auto own = provider::swap_pages(pages.octets, pages.size);
    if (!own) return 2;
    char octet = 0;
    if (pread(own.fd, &octet, 1, static_cast<off_t>(own.offset)) != 1 || octet != 'c') return 3;
    return same ? 0 : 1;
  });
  CHECK(result == 0);
  CHECK(pages.intact());
  CHECK(released.intact());
  View view(swapped, pages.size);
  view.octets[0] = 'p';
  CHECK(pages.octets[0] == 'p');
  provider::release_pages(swapped.use);
}

TEST_CASE("a child has what its parent had when it forked, also where no descriptor is left", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 2 * open_descriptors() + 100;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  Pages pages(16 * 1024);
  const auto swapped = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(swapped);
  std::vector<int> taken;
  while (taken.empty() || taken.back() >= 0) taken.push_back(fcntl(0, F_DUPFD_CLOEXEC, 0));
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(pages.intact() ? 0 : 1);
    // At once, where the child would come to last.
    char& last = pages.octets[pages.size - 1];
    last = static_cast<char>(last + 1);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    last = static_cast<char>(last - 1);
  }
  for (const int fd : taken)
    if (fd >= 0) close(fd);
  provider::release_pages(swapped.use);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

// Such a child inherits every descriptor of ours and runs no handler of libc's; it may live for ever.
TEST_CASE("a fork waits for its own child only, not for one that was made by a bare clone", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  CHECK(in_child([] {
          alarm(20);  // ends it where the wait would not
          Pages pages(2);
          const auto swapped = provider::swap_pages(pages.octets, pages.size);
          if (!swapped) return 2;
          const pid_t bare = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
          if (bare == 0)
            for (;;) pause();
          const int result = in_child([&] { return pages.intact() ? 0 : 1; });
          kill(bare, SIGKILL);
          waitpid(bare, nullptr, 0);
          provider::release_pages(swapped.use);
          return result;
        }) == 0);
}

TEST_CASE("what a child is not to have it has not after a swap either", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(1, 2, 16, 20);
  Pages pages(count + 2);
  char* region = pages.octets + kPage;
  const std::size_t size = count * kPage;
  SECTION("all of the mapping") { REQUIRE(madvise(pages.octets, pages.size, MADV_DONTFORK) == 0); }
  SECTION("the region alone") { REQUIRE(madvise(region, size, MADV_DONTFORK) == 0); }
  SECTION("its last page") { REQUIRE(madvise(region + size - kPage, kPage, MADV_DONTFORK) == 0); }
  const bool around = kept_from_children(pages.octets);
  const auto swapped = provider::swap_pages(region, size);
  REQUIRE(swapped);
  CHECK(kept_from_children(region));
  CHECK(kept_from_children(pages.octets) == around);
  CHECK(kept_from_children(region + size) == around);
  CHECK(in_child([&] { return is_mapped(region + size - kPage) ? 1 : 0; }) == 0);
  provider::release_pages(swapped.use);
  // And what was asked for when it had been swapped.
  REQUIRE(madvise(region, size, MADV_DOFORK) == 0);
  CHECK(in_child([&] { return is_mapped(region) && region[0] == static_cast<char>(kPage * 7 + 1) ? 0 : 1; }) == 0);
}

TEST_CASE("what a child is to have it has after a swap", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  const std::size_t count = GENERATE(1, 2, 16);
  Pages pages(count + 2);
  // Beside it what a child has not.
  const bool beside = GENERATE(true, false);
  if (beside) REQUIRE(madvise(pages.octets, kPage, MADV_DONTFORK) == 0);
  if (beside) REQUIRE(madvise(pages.octets + (count + 1) * kPage, kPage, MADV_DONTFORK) == 0);
  char* region = pages.octets + kPage;
  const auto swapped = provider::swap_pages(region, count * kPage);
  REQUIRE(swapped);
  CHECK(!kept_from_children(region));
  CHECK(kept_from_children(pages.octets) == beside);
  CHECK(in_child([&] { return is_mapped(region) ? 0 : 1; }) == 0);
  provider::release_pages(swapped.use);
}

TEST_CASE("memory kept from children is told from other, a page by itself too", "[provider][swap]") {
  const EachWay way;
  Pages pages(6);
  const auto at = [&](std::size_t page) { return reinterpret_cast<std::uintptr_t>(pages.octets) + page * kPage; };
  REQUIRE(madvise(pages.octets + kPage, kPage, MADV_DONTFORK) == 0);
  REQUIRE(madvise(pages.octets + 3 * kPage, 3 * kPage, MADV_DONTFORK) == 0);
  for (std::size_t page = 0; page < 6; ++page) {
    provider::Mapping mapping{};
    REQUIRE(provider::find_mapping(at(page), mapping));
    const bool kept = page == 1 || page >= 3;
    CHECK(provider::forks_of(at(page), mapping) == (kept ? provider::Forks::kept_back : provider::Forks::inherited));
    CHECK(kept_from_children(pages.octets + page * kPage) == kept);
  }
}

// As libibverbs leaves separate small regions when forks are to be safe: every third page is kept from children.
struct KeptPages {
  explicit KeptPages(std::size_t of) : count(of), pages(3 * of) {
    for (std::size_t i = 0; i < count; ++i) REQUIRE(madvise(at(i), kPage, MADV_DONTFORK) == 0);
  }
  char* at(std::size_t i) const { return pages.octets + 3 * i * kPage; }
  std::size_t count;
  Pages pages;
};

TEST_CASE("small regions that no child is to have are not looked for in all of smaps", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  provider::limit_smaps(0);
  KeptPages regions(600);
  std::vector<provider::PagesUse*> uses;
  std::size_t most = 0;
  const std::size_t before = provider::smaps_octets_read();
  for (std::size_t i = 0; i < regions.count; ++i) {
    const std::size_t read = provider::smaps_octets_read();
    if (const auto swapped = provider::swap_pages(regions.at(i), kPage)) uses.push_back(swapped.use);
    most = std::max(most, provider::smaps_octets_read() - read);
  }
  // Forty mappings, and what was read beyond them; by as many regions as lie among them, and a few later.
  CHECK(most <= 40 * 1024);
  CHECK(provider::smaps_octets_read() - before <= 50 * 40 * 1024);
  CHECK(uses.size() < regions.count);
  // Swapped or not, it is as it was.
  CHECK(regions.pages.intact());
  for (std::size_t i = 0; i < regions.count; i += 5) CHECK(kept_from_children(regions.at(i)));
  CHECK(!kept_from_children(regions.at(300) + kPage));
  for (auto* use : uses) provider::release_pages(use);
  provider::limit_smaps(0);
}

TEST_CASE("a page that was too far is looked for again, and found when what lay before it is gone",
          "[provider][swap]") {
  KeptPages regions(200);
  char* last = regions.at(regions.count - 1);
  const auto forks = [&] {
    provider::Mapping mapping{};
    REQUIRE(provider::find_mapping(reinterpret_cast<std::uintptr_t>(last), mapping));
    return provider::forks_of(reinterpret_cast<std::uintptr_t>(last), mapping);
  };
  provider::limit_smaps(SIZE_MAX);
  const std::size_t before = provider::smaps_octets_read();
  CHECK(forks() == provider::Forks::kept_back);
  const std::size_t whole_way = provider::smaps_octets_read() - before;
  provider::limit_smaps(whole_way - 50 * 1024);
  CHECK(forks() == provider::Forks::far);
  const std::size_t read = provider::smaps_octets_read();
  for (int i = 0; i < 100; ++i) CHECK(forks() == provider::Forks::far);
  CHECK(provider::smaps_octets_read() == read);
  REQUIRE(munmap(regions.pages.octets, static_cast<std::size_t>(last - regions.pages.octets)) == 0);
  int asked = 0;
  while (forks() == provider::Forks::far && asked < 1000) ++asked;
  CHECK(asked < 1000);
  CHECK(forks() == provider::Forks::kept_back);
  provider::limit_smaps(0);
}

TEST_CASE("forks_of() says nothing of a mapping that others change meanwhile", "[provider][swap]") {
  const EachWay way;
  const bool kept = GENERATE(false, true);
  Pages pages(8);
  provider::Mapping mapping{};
  if (kept) REQUIRE(madvise(pages.octets, pages.size, MADV_DONTFORK) == 0);
  REQUIRE(provider::find_mapping(reinterpret_cast<std::uintptr_t>(pages.octets), mapping));
  // As if they had done so since we asked.
  REQUIRE(mprotect(pages.octets + 6 * kPage, kPage, PROT_READ) == 0);
  const auto page = reinterpret_cast<std::uintptr_t>(pages.octets) + 2 * kPage;
  CHECK(provider::forks_of(page, mapping) == provider::Forks::unknown);
  for (std::size_t i = 0; i < 6; ++i) CHECK(kept_from_children(pages.octets + i * kPage) == kept);
}

TEST_CASE("ranges are swapped while others change what lies beside them", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const bool kept = GENERATE(false, true);
  constexpr std::size_t kCount = 300;
  Pages pages(2 * kCount + 1);
  if (kept) REQUIRE(madvise(pages.octets, pages.size, MADV_DONTFORK) == 0);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (bool readable = false; !stop; readable = !readable) {
      mprotect(pages.octets + 2 * kCount * kPage, kPage, readable ? PROT_READ | PROT_WRITE : PROT_READ);
      usleep(50);
    }
  });
  std::vector<provider::PagesUse*> uses;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto swapped = provider::swap_pages(pages.octets + 2 * i * kPage, 2 * kPage);
    CHECK(swapped);
    uses.push_back(swapped.use);
  }
  stop = true;
  other.join();
  CHECK(pages.intact());
  for (std::size_t i = 0; i <= 2 * kCount; i += 50) CHECK(kept_from_children(pages.octets + i * kPage) == kept);
  for (auto* use : uses) provider::release_pages(use);
}

TEST_CASE("thousands of small ranges leave the application most descriptors and mappings", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 1024;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  constexpr std::size_t kCount = 5000;
  // A page between each two: no mapping of ours joins another.
  Pages pages(3 * kCount);
  const std::size_t files_before = open_descriptors();
  std::vector<provider::SwappedPages> all;
  for (std::size_t i = 0; i < kCount; ++i) all.push_back(provider::swap_pages(pages.octets + 3 * i * kPage, 2 * kPage));
  std::size_t swapped = 0;
  for (const auto& each : all) swapped += each ? 1 : 0;
  CHECK(swapped == kCount);
  CHECK(open_descriptors() <= files_before + 1024 / 4);
  CHECK(provider::swap_counts().descriptors <= 1024 / 4);
  // It opens files, maps memory, forks, and its child has all of that memory.
  std::vector<int> opened;
  for (int i = 0; i < 600; ++i) opened.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(opened.back() >= 0);
  for (const int fd : opened) close(fd);
  Pages another(100);
  CHECK(in_child([&] { return pages.intact() && (std::memset(pages.octets, 'c', pages.size), true) ? 0 : 1; }) == 0);
  CHECK(pages.intact());
  for (const auto& each : all) provider::release_pages(each.use);
  CHECK(open_descriptors() <= files_before + 10);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("large ranges stay as they are when a quarter of the descriptors is ours", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 2 * open_descriptors() + 100;
  const std::size_t quarter = few.rlim_cur / 4;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  constexpr std::size_t kLarge = 17;
  Pages pages((quarter + 10) * kLarge);
  std::vector<provider::PagesUse*> uses;
  for (std::size_t i = 0; i < quarter + 10; ++i)
    if (const auto swapped = provider::swap_pages(pages.octets + i * kLarge * kPage, kLarge * kPage))
      uses.push_back(swapped.use);
  CHECK(uses.size() >= quarter - 8);
  CHECK(uses.size() <= quarter);
  CHECK(provider::swap_counts().descriptors <= quarter);
  CHECK(pages.intact());
  for (auto* use : uses) provider::release_pages(use);
  // Room again.
  CHECK(!stays(pages.octets, kLarge * kPage));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("ranges stay as they are when a quarter of the mappings is ours, until some are gone", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  // What other tests left is counted too, if it is there still.
  provider::assume_mappings_max(8);
  Pages few(3);
  stays(few.octets, kPage);  // room for this one, at most
  CHECK(stays(few.octets + 2 * kPage, kPage));
  const std::size_t already = provider::swap_counts().ranges;
  const std::size_t most = already + 100;
  provider::assume_mappings_max(8 * most);
  const std::size_t mappings_before = mapping_count();
  std::size_t swapped = 0;
  {
    Pages pages(3 * 300);
    for (std::size_t i = 0; i < 300; ++i)
      if (const auto each = provider::swap_pages(pages.octets + 3 * i * kPage, kPage)) {
        ++swapped;
        provider::release_pages(each.use);  // that leaves the mapping
      }
    CHECK(swapped == 100);
    CHECK(mapping_count() <= mappings_before + 2 * 100 + 2);
  }
  Pages fresh(3 * 300);
  std::size_t again = 0;
  for (std::size_t i = 0; i < 300; ++i) again += stays(fresh.octets + 3 * i * kPage, kPage) ? 0 : 1;
  CHECK(again == 100);
  provider::assume_mappings_max(0);
}
