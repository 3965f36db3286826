// What the page swap leaves to the application: descriptors and mappings.
#include "kit/provider_each_way.hpp"
#include "mappings.hpp"
#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

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
