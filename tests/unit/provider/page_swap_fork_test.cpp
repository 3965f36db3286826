// What a forked child has of swapped pages, and of those that are kept from it.
#include "kit/provider_each_way.hpp"
#include "mappings.hpp"
#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

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

TEST_CASE("a child that no handler of ours runs in shares no page with its parent", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const bool forked_before = GENERATE(false, true);
  Pages pages(300);
  const auto swapped = provider::swap_pages(pages.octets, pages.size);
  REQUIRE(swapped);
  if (forked_before) CHECK(in_child([&] { return pages.intact() ? 0 : 1; }) == 0);
  for (const bool bare : {true, false}) {
    const pid_t child = bare ? static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) : _Fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(is_mapped(pages.octets) || is_mapped(pages.octets + pages.size - kPage) ? 1 : 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  CHECK(pages.intact());
  provider::release_pages(swapped.use);
}

TEST_CASE("a child that can have no copy has nothing there, and its parent goes on", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  CHECK(in_child([] {
          Pages pages(64 * 1024);
          const auto swapped = provider::swap_pages(pages.octets, pages.size);
          if (!swapped) return 2;
          const rlimit no_more{32 << 20, RLIM_INFINITY};
          if (setrlimit(RLIMIT_AS, &no_more) != 0) return 3;
          const pid_t child = fork();
          if (child < 0) return 4;
          if (child == 0) {
            std::signal(SIGSEGV, SIG_DFL);
            pages.octets[0] = 'c';  // ends it
            _exit(0);
          }
          int status = 0;
          if (waitpid(child, &status, 0) != child) return 5;
          return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && pages.intact() ? 0 : 1;
        }) == 0);
}

TEST_CASE("what a child has too is swapped, and the child keeps what it had", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  Pages pages(300);
  int go[2];
  REQUIRE(pipe(go) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char octet;
    close(go[1]);
    _exit(read(go[0], &octet, 1) == 0 && pages.intact() ? 0 : 1);
  }
  const auto swapped = provider::swap_pages(pages.octets, pages.size);
  CHECK(pages.intact());
  View view(swapped, pages.size);
  std::memset(view.octets, 'p', view.size);
  close(go[0]);
  close(go[1]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(pages.octets[pages.size - 1] == 'p');
  provider::release_pages(swapped.use);
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
  CHECK(kept_from_children(region));  // but from those of fork(), who get a copy
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
