// Who may reach which octets: V-ACC, and V-SEC where it concerns the table.
#include <array>
#include <vector>

#include "kit/tpt_world.hpp"
#include "rnic_shm.h"

namespace {
using namespace rnic;
using namespace rnic::test;
constexpr std::uint64_t kTop = UINT64_MAX;
}  // namespace

TEST_CASE("V-ACC-01: only the combinations of the table of rights register", "[tpt][V-ACC-01]") {
  TptWorld w;
  const Rights locals[] = {Rights::none, Rights::local_read, Rights::local_write, kLocal};
  const Rights remotes[] = {Rights::none, Rights::remote_read, Rights::remote_write, kReadWrite};
  const bool allowed[4][4] = {
      {false, false, false, false},  // local: none
      {true, true, false, false},    // read
      {true, false, true, false},    // write
      {true, true, true, true},      // both
  };
  for (std::size_t l = 0; l < 4; ++l) {
    for (std::size_t r = 0; r < 4; ++r) {
      const auto stag = w.table.register_region(TptWorld::options(locals[l] | remotes[r]));
      REQUIRE(stag.has_value() == allowed[l][r]);
      if (!stag) CHECK(stag.error() == RegisterError::bad_rights);
    }
  }
}

TEST_CASE("V-ACC-01: an atomic operation reads and writes, and needs both rights", "[tpt][V-ACC-01]") {
  TptWorld w;
  CHECK(w.table.register_region(TptWorld::options(kLocal | Rights::remote_atomic)));
  CHECK_FALSE(w.table.register_region(TptWorld::options(Rights::local_read | Rights::remote_atomic)));
  CHECK_FALSE(w.table.register_region(TptWorld::options(Rights::local_write | Rights::remote_atomic)));
}

TEST_CASE("V-ACC-01: a right that nobody knows does not register", "[tpt][V-ACC-01]") {
  TptWorld w;
  CHECK_FALSE(w.table.register_region(TptWorld::options(kLocal | static_cast<Rights>(0x100))));
}

TEST_CASE("V-ACC-03: each use needs its right", "[tpt][V-ACC-03][V-SEC-05]") {
  TptWorld w;
  const Stag local_only = w.region(kLocal);
  const Stag readable = w.region(kLocal | Rights::remote_read);
  const Stag writable = w.region(kLocal | Rights::remote_write);
  CHECK(w.read(readable));
  check_refused(w.write(readable), Refusal::access_rights);
  CHECK(w.write(writable));
  check_refused(w.read(writable), Refusal::access_rights);
  check_refused(w.read(local_only), Refusal::access_rights);
  check_refused(w.write(local_only), Refusal::access_rights);
  check_refused(w.table.check_remote(readable, kPd, kQp, Rights::remote_atomic, kBase, 8), Refusal::access_rights);
  const Stag read_only = w.region(Rights::local_read);
  CHECK(w.table.check_local(read_only, kPd, Rights::local_read, kBase, 1));
  check_refused(w.table.check_local(read_only, kPd, Rights::local_write, kBase, 1), Refusal::access_rights);
}

TEST_CASE(
    "V-MRA-02: a region has a right for each use, to bind too, and a remote one is what lets a peer invalidate it",
    "[tpt][V-MRA-02][V-ACC-03]") {
  TptWorld w;
  int registered = 0;
  for (std::uint32_t bits = 0; bits < 0x40; ++bits) {
    const auto rights = static_cast<Rights>(bits & 0x0f) | ((bits & 0x10) != 0 ? Rights::window_bind : Rights::none) |
                        ((bits & 0x20) != 0 ? Rights::remote_atomic : Rights::none);
    const auto stag = w.table.register_region(TptWorld::options(rights));
    if (!stag) continue;  // V-ACC-01
    ++registered;
    for (const Rights local : {Rights::local_read, Rights::local_write})
      CHECK(w.table.check_local(*stag, kPd, local, kBase, 8).has_value() == permits(rights, local));
    for (const Rights remote : {Rights::remote_read, Rights::remote_write, Rights::remote_atomic})
      CHECK(w.table.check_remote(*stag, kPd, kQp, remote, kBase, 8).has_value() == permits(rights, remote));
    const Stag window = *w.table.allocate_window(kPd, 0);
    const Rights through = permits(rights, Rights::local_read) ? Rights::remote_read : Rights::remote_write;
    CHECK(w.table.bind(window, kKey, *stag, kPd, kQp, through, kBase, 8).has_value() ==
          permits(rights, Rights::window_bind));
    REQUIRE(w.table.deallocate_window(window));
    const bool any_remote = (rights & (kReadWrite | Rights::remote_atomic)) != Rights::none;
    CHECK(w.table.invalidate_remote(*stag, kPd, kQp, kReadWrite).has_value() == any_remote);
    REQUIRE(w.table.deregister(*stag));
  }
  CHECK(registered > 16);
}

TEST_CASE("V-ACC-05: the first and the last octet of a region can be written", "[tpt][V-ACC-05][W-RDMAP-21]") {
  TptWorld w;
  const Stag stag = w.region();
  CHECK(w.write(stag, kBase, 1));
  CHECK(w.write(stag, kBase + 63, 1));
  CHECK(w.write(stag, kBase, 64));
}

TEST_CASE("V-ACC-05: one octet outside is refused as base or bounds, at both ends", "[tpt][V-ACC-05][V-SEC-04]") {
  TptWorld w;
  const Stag stag = w.region();
  check_refused(w.write(stag, kBase + 63, 2), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase + 64, 1), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase - 1, 1), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase - 1, 65), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase, 65), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase - 4096, 4096), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase + 4096, 1), Refusal::base_or_bounds);
  check_refused(w.read(stag, 0, UINT32_MAX), Refusal::base_or_bounds);
  check_refused(w.table.check_local(stag, kPd, Rights::local_read, kBase + 63, 2), Refusal::base_or_bounds);
}

TEST_CASE("V-ACC-05: an access names the octets that its TO names", "[tpt][V-ACC-05][V-PBL-05]") {
  TptWorld w;
  std::array<std::byte, kSize> here;
  auto options = TptWorld::options();
  options.memory.direct = here.data();
  const Stag stag = w.region(options);
  const auto access = w.write(stag, kBase + 5, 9);
  REQUIRE(access);
  CHECK(access->space == SpaceId{3});
  CHECK(access->address == 0x500005);
  CHECK(access->direct == here.data() + 5);
  CHECK(access->length == 9);
  CHECK(access->stag == stag);
  // Where there is no mapping there is none of an offset either.
  CHECK(w.write(w.region(), kBase + 5, 9)->direct == nullptr);
}

TEST_CASE("of a region with swapped pages only what lies in whole pages is mapped here", "[tpt][swap]") {
  TptWorld w;
  std::vector<std::byte> here(4 * 4096);
  auto options = TptWorld::options();
  options.base = 0;
  options.size = 3 * 4096;
  // From 0x500100 to 0x503100: two whole pages.
  options.memory = {.space = {3}, .address = 0x500100, .direct = here.data() + 0x100, .whole_pages = true};
  const Stag stag = w.region(options);
  const auto direct = [&](Stag of, std::uint64_t to, std::uint32_t length) { return w.write(of, to, length)->direct; };
  CHECK(direct(stag, 0xF00, 1) == here.data() + 0x1000);
  CHECK(direct(stag, 0xEFF, 1) == nullptr);
  CHECK(direct(stag, 0xF00, 2 * 4096) == here.data() + 0x1000);
  CHECK(direct(stag, 0xF00, 2 * 4096 + 1) == nullptr);
  CHECK(direct(stag, 0x2EFF, 1) == here.data() + 0x2FFF);
  CHECK(direct(stag, 0x2F00, 1) == nullptr);
  CHECK(w.write(stag, 0x2F00, 1)->address == 0x503000);

  // A window's octets are the region's, and so are its pages.
  const Stag window = *w.table.allocate_window(kPd, 0);
  REQUIRE(w.table.bind(window, kKey, stag, kPd, kQp, kReadWrite, 0x100, 2 * 4096));
  const Stag bound = with_key(window, kKey);
  CHECK(direct(bound, 0x1000, 16) == here.data() + 0x1100);
  CHECK(direct(bound, 0x100, 16) == nullptr);
  CHECK(w.write(bound, 0x100, 16)->address == 0x500200);
}

TEST_CASE("V-PBL-04, V-PBL-05: a zero-based region begins at TO 0", "[tpt][V-PBL-04][V-PBL-05]") {
  TptWorld w;
  const Stag stag = w.region(kEverything | Rights::zero_based);
  CHECK(w.write(stag, 0, 64)->address == 0x500000);
  check_refused(w.write(stag, 64, 1), Refusal::base_or_bounds);
  check_refused(w.write(stag, kBase, 1), Refusal::base_or_bounds);
}

TEST_CASE("V-ACC-06: a TO that wraps is refused as a wrap", "[tpt][V-ACC-06][V-SEC-04]") {
  TptWorld w;
  const Stag stag = w.region();
  check_refused(w.write(stag, kTop, 2), Refusal::to_wrap);
  check_refused(w.write(stag, kTop - 7, 9), Refusal::to_wrap);
  // Up to the last octet there is it does not wrap.
  check_refused(w.write(stag, kTop, 1), Refusal::base_or_bounds);
  check_refused(w.write(stag, kTop - 7, 8), Refusal::base_or_bounds);
  check_refused(w.table.check_local(stag, kPd, Rights::local_read, kTop, 2), Refusal::to_wrap);
}

TEST_CASE("V-ACC-06: a region may end with the last octet of all TOs, not after it", "[tpt][V-ACC-06]") {
  TptWorld w;
  auto options = TptWorld::options();
  options.base = kTop - 63;
  const Stag stag = w.region(options);
  CHECK(w.write(stag, kTop, 1));
  CHECK(w.write(stag, kTop - 63, 64));
  check_refused(w.write(stag, kTop, 2), Refusal::to_wrap);
  options.base = kTop - 62;
  const auto refused = w.table.register_region(options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == RegisterError::bad_range);
  options = TptWorld::options();
  options.memory.address = kTop - 62;
  CHECK_FALSE(w.table.register_region(options));
}

TEST_CASE("V-ACC-06: what has no octets does not wrap, wherever it begins", "[tpt][V-ACC-06]") {
  TptWorld w;
  auto options = TptWorld::options();
  options.base = kTop;
  options.size = 0;
  const Stag stag = w.region(options);
  check_refused(w.write(stag, kTop, 1), Refusal::base_or_bounds);
  options.size = 1;
  CHECK(w.write(w.region(options), kTop, 1));
}

TEST_CASE("V-ACC-07: a segment of no octets is allowed under any STag", "[tpt][V-ACC-07][V-MW-12]") {
  TptWorld w;
  const auto access = w.table.check_remote({0xDEADBE00}, kOtherPd, kOtherQp, Rights::remote_write, kTop, 0);
  REQUIRE(access);
  CHECK(access->length == 0);
  CHECK(access->address == 0);
  CHECK(access->direct == nullptr);
  CHECK(access->stag == Stag{0xDEADBE00});
  CHECK(w.table.check_local({0}, kOtherPd, Rights::local_write, kTop, 0));
}

TEST_CASE("V-ACC-08: of several errors the first in order is told", "[tpt][V-ACC-08]") {
  TptWorld w;
  const Stag stag = w.region(kLocal | Rights::remote_read);
  check_refused(w.write(with_key(stag, kKey + 1), kTop, 2, kOtherPd), Refusal::invalid_stag);
  check_refused(w.write(stag, kTop, 2, kOtherPd), Refusal::not_associated);
  check_refused(w.write(stag, kTop, 2), Refusal::access_rights);
  check_refused(w.read(stag, kTop, 2), Refusal::to_wrap);
  check_refused(w.read(stag, kTop, 1), Refusal::base_or_bounds);
}

TEST_CASE("V-SEC-02: a region of one PD is refused on a QP of another", "[tpt][V-SEC-02][V-ACC-06]") {
  TptWorld w;
  const Stag stag = w.region();
  CHECK(w.write(stag, kBase, 1, kPd, kOtherQp));
  check_refused(w.write(stag, kBase, 1, kOtherPd), Refusal::not_associated);
  check_refused(w.table.check_local(stag, kOtherPd, Rights::local_read, kBase, 1), Refusal::not_associated);
}

TEST_CASE("V-SEC-06: each wrong key is refused, for access and for invalidation", "[tpt][V-SEC-06][V-STAG-05]") {
  TptWorld w;
  const Stag stag = w.region();
  for (unsigned key = 0; key < 256; ++key) {
    const Stag guess = with_key(stag, static_cast<std::uint8_t>(key));
    const bool right = key == kKey;
    REQUIRE(w.write(guess).has_value() == right);
    REQUIRE(w.table.check_local(guess, kPd, Rights::local_read, kBase, 1).has_value() == right);
    if (!right) check_refused(w.table.invalidate_remote(guess, kPd, kQp, kReadWrite), Refusal::invalid_stag);
  }
  CHECK(w.write(stag));
}

TEST_CASE("V-SGL-04: a window is not for local SGEs", "[tpt][V-SGL-04]") {
  TptWorld w;
  const Stag window = w.window(w.region());
  check_refused(w.table.check_local(window, kPd, Rights::local_read, kBase, 1), Refusal::window);
  check_refused(w.table.check_local(window, kPd, Rights::none, kBase, 1), Refusal::window);
}

TEST_CASE("V-ACC-01: the rights have the values of the boundary", "[tpt][V-ACC-01]") {
  CHECK(static_cast<unsigned>(Rights::local_read) == RNIC_ACCESS_LOCAL_READ);
  CHECK(static_cast<unsigned>(Rights::local_write) == RNIC_ACCESS_LOCAL_WRITE);
  CHECK(static_cast<unsigned>(Rights::remote_read) == RNIC_ACCESS_REMOTE_READ);
  CHECK(static_cast<unsigned>(Rights::remote_write) == RNIC_ACCESS_REMOTE_WRITE);
  CHECK(static_cast<unsigned>(Rights::remote_atomic) == RNIC_ACCESS_REMOTE_ATOMIC);
  CHECK(static_cast<unsigned>(Rights::window_bind) == RNIC_ACCESS_WINDOW_BIND);
  CHECK(static_cast<unsigned>(Rights::zero_based) == RNIC_ACCESS_ZERO_BASED);
}

TEST_CASE("whole pages are those that begin and end inside", "[tpt][swap]") {
  const auto pages = [](std::uint64_t address, std::uint64_t size) {
    const tpt::PageRange range = tpt::whole_pages(address, size);
    return std::vector<std::uint64_t>{range.start, range.end};
  };
  CHECK(pages(0x4000, 0x1000) == std::vector<std::uint64_t>{0x4000, 0x5000});
  CHECK(pages(0x4001, 0x1FFF) == std::vector<std::uint64_t>{0x5000, 0x6000});
  CHECK(pages(0x3FFF, 0x2000) == std::vector<std::uint64_t>{0x4000, 0x5000});
  CHECK(pages(0x3FFF, 0x1001) == std::vector<std::uint64_t>{0x4000, 0x5000});
  // None.
  CHECK(pages(0x4001, 0x1000) == std::vector<std::uint64_t>{0x5000, 0x5000});
}
