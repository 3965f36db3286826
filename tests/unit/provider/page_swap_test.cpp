// The page swap, in this very process: what a region's pages hold, before and after.
#include "kit/provider_each_way.hpp"
#include "mappings.hpp"
#include "unit/provider/pages.hpp"

using namespace rnic;
using namespace rnic::test;

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
