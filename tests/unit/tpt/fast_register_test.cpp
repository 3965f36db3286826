// Fast-Register in the table: what it makes of an STag, and each thing that it refuses (V-MR-15, V-MR-16).
#include "kit/tpt_world.hpp"

namespace {

using namespace rnic;
using namespace rnic::test;
using tpt::FastRefusal;

constexpr std::uint64_t kPage = 4096;
constexpr Rights kRights = kLocal | kReadWrite;

tpt::PageList list_of(std::uint32_t count) {
  tpt::PageList list;
  list.rights = kRights;
  list.base = 0x10'0000 + 16;
  list.size = count * kPage - 16;
  list.page_bytes = kPage;
  list.first_offset = 16;
  list.addresses = 0x7000;
  list.count = count;
  list.space = {3};
  list.view = 0x50'0000;
  return list;
}

}  // namespace

TEST_CASE("V-MR-15: an Invalid region's STag becomes Valid, of a page list", "[tpt][V-MR-03][V-MR-15][V-STATE-03]") {
  TptWorld w;
  Stag stag;
  SECTION("of Allocate") { stag = *w.table.allocate_region(kPd, Rights::none, 3); }
  SECTION("of Register") {
    auto options = TptWorld::options();
    options.size = 4 * kPage;
    stag = w.region(options);
    REQUIRE(w.table.invalidate_local(stag, kPd, kQp).has_value());
  }
  check_refused(w.write(stag, 0x10'0000 + 16), Refusal::invalid_stag);
  const Stag named = with_key(stag, 0x3C);
  REQUIRE(w.table.fast_register(named, kPd, list_of(4)).has_value());
  const auto access = w.write(named, 0x10'0000 + 16, 8);
  REQUIRE(access.has_value());
  CHECK(access->address == 0x50'0000 + 16);
  CHECK(access->direct == nullptr);
  CHECK(w.write(named, 0x10'0000 + 4 * kPage - 1, 1).has_value());
  check_refused(w.write(named, 0x10'0000 + 4 * kPage, 1), Refusal::base_or_bounds);
  check_refused(w.write(named, 0x10'0000 + 15, 1), Refusal::base_or_bounds);
  const auto info = *w.table.query(stag);
  CHECK(info.valid);
  CHECK(info.stag == named);
  CHECK(info.pages == 4);
}

TEST_CASE("V-MR-16: a Fast-Register is refused by the first thing that is wrong, and changes nothing",
          "[tpt][V-MR-16][V-MR-17]") {
  TptWorld w;
  Stag stag = *w.table.allocate_region(kPd, Rights::none, 4);
  auto list = list_of(4);
  PdId pd = kPd;
  auto expected = FastRefusal::invalid_stag;
  SECTION("a window") { stag = *w.table.allocate_window(kPd, 0); }
  SECTION("no STag") { stag = {stag.value ^ 0x80000000}; }
  SECTION("STag 0") { stag = {}; }
  SECTION("another domain, before all else") {
    pd = kOtherPd;
    list.page_bytes = 0;
    expected = FastRefusal::not_associated;
  }
  SECTION("Valid, before what is wrong with the list") {
    stag = w.region();
    list.page_bytes = 0;
    expected = FastRefusal::not_invalid;
  }
  SECTION("a page of no octets") {
    list.page_bytes = 0;
    expected = FastRefusal::page_size;
  }
  SECTION("of two sizes at once") {
    list.page_bytes = 3 * kPage;
    expected = FastRefusal::page_size;
  }
  SECTION("larger than there are") {
    list.page_bytes = std::uint64_t{1} << 32;
    expected = FastRefusal::page_size;
  }
  SECTION("one page too many") {
    list = list_of(5);
    expected = FastRefusal::list_too_long;
  }
  SECTION("a page that begins elsewhere") {
    list.addresses |= 1;
    expected = FastRefusal::list_entry;
  }
  SECTION("beyond the first page") {
    list.first_offset = kPage;
    expected = FastRefusal::first_offset;
  }
  SECTION("an octet too many") {
    ++list.size;
    expected = FastRefusal::length;
  }
  SECTION("no octets") {
    list.size = 0;
    expected = FastRefusal::length;
  }
  SECTION("no pages") {
    list.count = 0;
    expected = FastRefusal::length;
  }
  SECTION("an address of another offset") {
    ++list.base;
    expected = FastRefusal::address;
  }
  SECTION("an address that wraps") {
    list.base = ~std::uint64_t{0} - kPage + 17;
    expected = FastRefusal::address;
  }
  SECTION("memory that wraps") {
    list.view = ~std::uint64_t{0} - kPage + 1;
    expected = FastRefusal::address;
  }
  SECTION("no local right") {
    list.rights = kReadWrite;
    expected = FastRefusal::access_rights;
  }
  SECTION("no right that there is") {
    list.rights = kLocal | static_cast<Rights>(0x100);
    expected = FastRefusal::access_rights;
  }
  SECTION("the flag, which is the STag's") {
    list.rights = kLocal | Rights::no_remote;
    expected = FastRefusal::access_rights;
  }
  SECTION("a remote right, against the flag") {
    stag = *w.table.allocate_region(kPd, Rights::no_remote, 4);
    expected = FastRefusal::access_rights;
  }
  const auto before = w.table.query(stag);
  const auto done = w.table.fast_register(stag, pd, list);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error() == expected);
  const auto after = w.table.query(stag);
  REQUIRE(before.has_value() == after.has_value());
  if (after) CHECK(after->valid == before->valid);
}

TEST_CASE("V-MR-17: the Remote Access Flag stays through Fast-Registers, and goes with a reregistration",
          "[tpt][V-MR-17][V-MR-18]") {
  TptWorld w;
  const Stag stag = *w.table.allocate_region(kPd, Rights::no_remote, 1);
  auto list = list_of(1);
  list.rights = kLocal;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(w.table.fast_register(stag, kPd, list).has_value());
    CHECK(tpt::permits(w.table.query(stag)->rights, Rights::no_remote));
    check_refused(w.write(stag, list.base), Refusal::access_rights);
    REQUIRE(w.table.invalidate_local(stag, kPd, kQp).has_value());
  }
  const auto anew = w.table.reregister(stag, TptWorld::options());
  REQUIRE(anew.has_value());
  CHECK(w.write(*anew).has_value());
  auto off = TptWorld::options(kEverything | Rights::no_remote);
  REQUIRE_FALSE(w.table.register_region(off).has_value());
  CHECK(w.table.register_region(off).error() == RegisterError::bad_rights);
}

TEST_CASE("V-PBL-09: how long a list there is room for is a power of two, of a range what it takes of pages",
          "[tpt][V-PBL-09][V-MRA-03]") {
  TptWorld w;
  for (const auto& [asked, given] :
       {std::pair{1u, 1u}, {2u, 2u}, {3u, 4u}, {4u, 4u}, {5u, 8u}, {tpt::kPageListMax, tpt::kPageListMax}})
    CHECK(w.table.query(*w.table.allocate_region(kPd, Rights::none, asked))->pages == given);
  auto options = TptWorld::options();
  for (const auto& [size, given] :
       {std::pair{kPage, 1u}, {kPage + 1, 2u}, {std::uint64_t{1} << 40, tpt::kPageListMax}}) {
    options.size = size;
    CHECK(w.table.query(w.region(options))->pages == given);
  }
  options.pages = 7;
  CHECK(w.table.query(w.region(options))->pages == 8);
}

TEST_CASE("V-MR-15: a page list may begin at the first octet of its first page", "[tpt][V-MR-15]") {
  TptWorld w;
  const Stag stag = *w.table.allocate_region(kPd, Rights::none, 4);
  auto list = list_of(4);
  list.first_offset = 0;
  list.base = 0x10'0000;
  REQUIRE(w.table.fast_register(with_key(stag, 1), kPd, list).has_value());
  CHECK(w.write(with_key(stag, 1), 0x10'0000, 1)->address == 0x50'0000);
}
