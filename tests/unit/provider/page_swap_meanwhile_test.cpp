// What threads, signals and others do while pages are swapped.
#include "kit/provider_each_way.hpp"
#include "mappings.hpp"
#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

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

TEST_CASE("nothing that the kernel stores is lost while pages are swapped, and no read fails", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  constexpr std::size_t kParts = 150;
  constexpr std::size_t kPart = 32 * kPage;
  constexpr std::size_t kAtOnce = 8 * kPage;  // fits into a pipe
  Pages pages(kParts * kPart / kPage);
  std::vector<char> sent(kAtOnce);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::atomic<std::size_t> part{0};  // the one that is swapped next
  std::atomic<std::uint64_t> rounds{0};
  std::uint64_t wrong = 0;
  // `before`: what the kernel stored there last.
  const auto passes = [&](char* at, std::size_t size, char before, unsigned char octet) {
    if (at[0] != before || at[size - 1] != before) return false;
    std::memset(sent.data(), octet, size);
    if (write(ends[1], sent.data(), size) != static_cast<ssize_t>(size)) return false;
    if (read(ends[0], at, size) != static_cast<ssize_t>(size)) return false;
    if (at[0] != static_cast<char>(octet) || at[size - 1] != static_cast<char>(octet)) return false;
    if (write(ends[1], at, size) != static_cast<ssize_t>(size)) return false;
    if (read(ends[0], sent.data(), size) != static_cast<ssize_t>(size)) return false;
    return std::all_of(sent.begin(), sent.end(), [&](char c) { return c == static_cast<char>(octet); });
  };
  std::thread other([&] {
    for (std::size_t i = 0; i < kParts; ++i) {
      char* const at = pages.octets + i * kPart;
      std::memset(at, 0, kPart);
      unsigned char round = 1;
      for (; part == i; ++round, ++rounds)
        for (std::size_t done = 0; done < kPart; done += kAtOnce)
          if (!passes(at + done, kAtOnce, static_cast<char>(round - 1), round)) ++wrong;
      if (!std::all_of(at, at + kPart, [&](char c) { return c == static_cast<char>(round - 1); })) ++wrong;
    }
  });
  for (std::size_t i = 0; i < kParts; ++i) {
    for (const std::uint64_t seen = rounds; rounds < seen + 2;) std::this_thread::yield();
    CHECK(!stays(pages.octets + i * kPart, kPart));
    ++part;
  }
  other.join();
  CHECK(wrong == 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("an application may be killed at any step of a swap", "[provider][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Pages pages(600);
      std::thread other([&] {
        for (std::size_t i = 0;; ++i) pages.octets[i % pages.size] = 'o';
      });
      for (;;)
        if (stays(pages.octets, pages.size)) _exit(1);
    }
    usleep(5000 + 331 * static_cast<unsigned>(round));
    REQUIRE(kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
  }
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
  CHECK(in_child([&] {
          for (std::size_t i = 0; i <= 2 * kCount; i += 50)
            if (is_mapped(pages.octets + i * kPage) == kept) return 1;
          return 0;
        }) == 0);
  for (auto* use : uses) provider::release_pages(use);
}
