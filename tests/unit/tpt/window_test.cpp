// Memory windows, type 2: V-MW, V-ACC-02, V-ACC-04, V-SEC-03; and type 1, which are of a PD.
#include "kit/tpt_world.hpp"

namespace {
using namespace rnic;
using namespace rnic::test;

Stag fresh_window(TptWorld& w) { return *w.table.allocate_window(kPd, 0); }

}  // namespace

TEST_CASE("V-ACC-02: only the combinations of the table of rights bind", "[tpt][V-ACC-02][V-MW-05]") {
  TptWorld w;
  const Rights locals[] = {Rights::local_read, Rights::local_write, kLocal};
  const Rights remotes[] = {Rights::remote_read, Rights::remote_write, kReadWrite, Rights::none};
  const bool allowed[3][4] = {
      {true, false, false, false},
      {false, true, false, false},
      {true, true, true, false},
  };
  for (std::size_t l = 0; l < 3; ++l) {
    const Stag region = w.region(locals[l] | Rights::window_bind);
    for (std::size_t r = 0; r < 4; ++r) {
      const auto bound = w.table.bind(fresh_window(w), kKey, region, kPd, kQp, remotes[r], kBase, kSize);
      REQUIRE(bound.has_value() == allowed[l][r]);
      if (!bound) CHECK(bound.error() == Refusal::access_rights);
    }
  }
}

TEST_CASE("V-ACC-04, V-MW-11: a window's rights do not stand on the region's remote rights",
          "[tpt][V-ACC-04][V-MW-11]") {
  TptWorld w;
  const Stag region = w.region(kLocal | Rights::window_bind);
  check_refused(w.write(region), Refusal::access_rights);
  const Stag window = w.window(region, Rights::remote_write);
  CHECK(w.write(window));
  check_refused(w.read(window), Refusal::access_rights);
}

TEST_CASE("V-MW-04: a bind needs a window, a Valid region, one PD and the right to bind", "[tpt][V-MW-04]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = fresh_window(w);
  const auto bind = [&w](Stag a, Stag b, PdId pd = kPd) {
    return w.table.bind(a, kKey, b, pd, kQp, kReadWrite, kBase, kSize);
  };
  check_refused(bind(region, region), Refusal::invalid_region);
  check_refused(bind(w.region(), region), Refusal::invalid_window);
  check_refused(bind({0xABCDEF00}, region), Refusal::invalid_window);
  check_refused(bind(window, window), Refusal::invalid_region);
  check_refused(bind(window, fresh_window(w)), Refusal::invalid_region);
  check_refused(bind(window, with_key(region, 0)), Refusal::invalid_region);
  check_refused(bind(window, region, kOtherPd), Refusal::not_associated);
  const Stag foreign = *w.table.allocate_window(kOtherPd, 0);
  check_refused(bind(foreign, region), Refusal::not_associated);
  check_refused(bind(window, w.region(kLocal | kReadWrite)), Refusal::access_rights);
  const Stag invalid = w.region();
  REQUIRE(w.table.invalidate_local(invalid, kPd, kQp));
  check_refused(bind(window, invalid), Refusal::invalid_region);
  CHECK(bind(window, region));
  // Bound already.
  check_refused(bind(window, region), Refusal::not_invalid);
}

TEST_CASE("V-MW-02: no window binds to a zero-based region", "[tpt][V-MW-02]") {
  TptWorld w;
  const Stag region = w.region(kEverything | Rights::zero_based);
  check_refused(w.table.bind(fresh_window(w), kKey, region, kPd, kQp, kReadWrite, 0, 8), Refusal::invalid_region);
}

TEST_CASE("V-MW-04: a window lies within its region, to the octet", "[tpt][V-MW-04]") {
  TptWorld w;
  const Stag region = w.region();
  const auto bind = [&](std::uint64_t address, std::uint64_t length) {
    return w.table.bind(fresh_window(w), kKey, region, kPd, kQp, kReadWrite, address, length);
  };
  CHECK(bind(kBase, 64));
  CHECK(bind(kBase + 63, 1));
  check_refused(bind(kBase, 65), Refusal::base_or_bounds);
  check_refused(bind(kBase - 1, 2), Refusal::base_or_bounds);
  check_refused(bind(kBase + 64, 1), Refusal::base_or_bounds);
  check_refused(bind(kBase + 63, UINT64_MAX), Refusal::to_wrap);
}

TEST_CASE("V-MW-06: a window's TOs are the region's, or begin at 0", "[tpt][V-MW-06]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag by_address = fresh_window(w);
  REQUIRE(w.table.bind(by_address, kKey, region, kPd, kQp, kReadWrite, kBase + 16, 8));
  CHECK(w.write(with_key(by_address, kKey), kBase + 16, 8)->address == 0x500010);
  check_refused(w.write(with_key(by_address, kKey), kBase + 15, 1), Refusal::base_or_bounds);
  check_refused(w.write(with_key(by_address, kKey), kBase + 24, 1), Refusal::base_or_bounds);
  const Stag zero_based = fresh_window(w);
  REQUIRE(w.table.bind(zero_based, kKey, region, kPd, kQp, kReadWrite | Rights::zero_based, kBase + 16, 8));
  CHECK(w.write(with_key(zero_based, kKey), 0, 8)->address == 0x500010);
  check_refused(w.write(with_key(zero_based, kKey), 8, 1), Refusal::base_or_bounds);
  check_refused(w.write(with_key(zero_based, kKey), kBase + 16, 1), Refusal::base_or_bounds);
}

TEST_CASE("V-MW-07: a bound window is Valid, with its QP, key and region", "[tpt][V-MW-07]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = w.window(region);
  const auto info = w.table.query(window);
  REQUIRE(info);
  CHECK(info->valid);
  CHECK(info->stag == window);
  CHECK(info->qp == kQp);
  CHECK(info->rights == kReadWrite);
  CHECK(w.table.query(region)->windows_bound == 1);
}

TEST_CASE("V-MW-08: after a rebind the earlier key is refused", "[tpt][V-MW-08]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag first = w.window(region);
  REQUIRE(w.table.invalidate_local(first, kPd, kQp));
  REQUIRE(w.table.bind(first, kKey + 1, region, kPd, kQp, kReadWrite, kBase, kSize));
  check_refused(w.write(first), Refusal::invalid_stag);
  CHECK(w.write(with_key(first, kKey + 1)));
}

TEST_CASE("V-MW-09: a refused bind changes nothing", "[tpt][V-MW-09]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = fresh_window(w);
  CHECK_FALSE(w.table.bind(window, kKey, region, kPd, kQp, kReadWrite, kBase, kSize + 1));
  CHECK(w.table.query(region)->windows_bound == 0);
  CHECK_FALSE(w.table.query(window)->valid);
  CHECK_FALSE(w.table.window_bound_to(kQp));
  CHECK(w.table.deregister(region));
}

TEST_CASE("V-MW-10, V-SEC-03: a window is its QP's alone, in the same PD too", "[tpt][V-MW-10][V-SEC-03]") {
  TptWorld w;
  const Stag window = w.window(w.region());
  CHECK(w.write(window, kBase, 1, kPd, kQp));
  check_refused(w.write(window, kBase, 1, kPd, kOtherQp), Refusal::not_associated);
}

TEST_CASE("V-MW-10: an unbound window refuses access, even with QP number 0", "[tpt][V-MW-10][V-STATE-02]") {
  TptWorld w;
  const Stag window = *w.table.allocate_window(kPd, kKey);
  check_refused(w.write(window, 0, 1, kPd, QpNumber{0}), Refusal::invalid_stag);
}

TEST_CASE("V-MW-03, V-MW-13: all windows may lie on one region, overlapping, with other rights",
          "[tpt][V-MW-03][V-MW-13]") {
  TptWorld w;
  const Stag region = w.region();
  std::uint32_t count = 0;
  for (; w.table.used() < 64; ++count) w.window(region, count % 2 == 0 ? Rights::remote_read : kReadWrite);
  CHECK(count == 63);
  CHECK(w.table.query(region)->windows_bound == 63);
}

TEST_CASE("V-MW-14: a region with a window is neither deregistered nor invalidated", "[tpt][V-MW-14][V-INV-05]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = w.window(region);
  check_refused(w.table.deregister(region), Refusal::cannot_invalidate);
  check_refused(w.table.invalidate_local(region, kPd, kQp), Refusal::cannot_invalidate);
  check_refused(w.table.invalidate_remote(region, kPd, kQp, kReadWrite), Refusal::cannot_invalidate);
  CHECK(w.write(region));
  REQUIRE(w.table.invalidate_local(window, kPd, kQp));
  CHECK(w.table.invalidate_local(region, kPd, kQp));
  CHECK(w.table.deregister(region));
}

TEST_CASE("V-MW-15: a window is deallocated Valid or Invalid, and lets go of region and QP", "[tpt][V-MW-15]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag bound = w.window(region);
  const Stag unbound = fresh_window(w);
  CHECK(w.table.window_bound_to(kQp));
  CHECK(w.table.deallocate_window(bound));
  CHECK(w.table.deallocate_window(unbound));
  check_refused(w.write(bound), Refusal::invalid_stag);
  CHECK_FALSE(w.table.window_bound_to(kQp));
  CHECK(w.table.query(region)->windows_bound == 0);
  CHECK(w.table.deregister(region));
}

TEST_CASE("V-QP-15: a QP knows whether a window is bound to it, not to one with a like number", "[tpt][V-QP-15]") {
  TptWorld w;
  const Stag window = w.window(w.region());
  CHECK(w.table.window_bound_to(kQp));
  CHECK_FALSE(w.table.window_bound_to(kOtherQp));
  CHECK_FALSE(w.table.window_bound_to(QpNumber{kQp.value + 4096}));
  REQUIRE(w.table.invalidate_remote(window, kPd, kQp, kReadWrite));
  CHECK_FALSE(w.table.window_bound_to(kQp));
}

// ---- windows of a PD ----

namespace {

// Bound on kQp to all of `region`.
Stag domain_window(TptWorld& w, Stag region) {
  const Stag window = *w.table.allocate_window(kPd, 0, tpt::WindowScope::pd);
  REQUIRE(w.table.bind(window, kKey, region, kPd, kQp, kReadWrite, kBase, kSize));
  return with_key(window, kKey);
}

}  // namespace

TEST_CASE("a window of a PD is open to its queue pairs, and to no other's", "[tpt][windows]") {
  TptWorld w;
  const Stag window = domain_window(w, w.region());
  CHECK(w.write(window, kBase, 1, kPd, kQp));
  CHECK(w.write(window, kBase, 1, kPd, kOtherQp));
  CHECK(w.read(window, kBase, 1, kPd, kOtherQp));
  check_refused(w.write(window, kBase, 1, kOtherPd, kQp), Refusal::not_associated);
  CHECK_FALSE(w.table.window_bound_to(kQp));
  const auto info = w.table.query(window);
  REQUIRE(info);
  CHECK(info->scope == tpt::WindowScope::pd);
  CHECK(info->qp == QpNumber{});
}

TEST_CASE("a window of a PD is bound anew while it is bound, or stays as it was", "[tpt][windows][V-MW-14]") {
  TptWorld w;
  const Stag first = w.region(), second = w.region();
  const Stag window = domain_window(w, first);
  const auto anew = [&](Stag region, std::uint64_t length) {
    return w.table.bind(window, kKey + 1, region, kPd, kOtherQp, kReadWrite, kBase, length);
  };
  check_refused(anew(second, kSize + 1), Refusal::base_or_bounds);
  check_refused(anew(w.region(kLocal), kSize), Refusal::access_rights);
  check_refused(anew(window, kSize), Refusal::invalid_region);
  CHECK(w.write(window));
  CHECK(w.table.query(first)->windows_bound == 1);
  CHECK(w.table.query(second)->windows_bound == 0);

  REQUIRE(anew(second, kSize));
  check_refused(w.write(window), Refusal::invalid_stag);
  CHECK(w.write(with_key(window, kKey + 1)));
  CHECK(w.table.query(first)->windows_bound == 0);
  CHECK(w.table.query(second)->windows_bound == 1);
  // To the same region again.
  REQUIRE(w.table.bind(window, kKey + 2, second, kPd, kQp, kReadWrite, kBase, 8));
  CHECK(w.table.query(second)->windows_bound == 1);
  check_refused(w.write(with_key(window, kKey + 2), kBase + 8), Refusal::base_or_bounds);
}

TEST_CASE("a window of a PD that is bound to no octets is bound to nothing", "[tpt][windows]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = domain_window(w, region);
  const auto to_nothing = [&](PdId pd) {
    return w.table.bind(window, kKey + 1, Stag{}, pd, kOtherQp, Rights::none, 0, 0);
  };
  check_refused(to_nothing(kOtherPd), Refusal::not_associated);
  CHECK(w.write(window));
  REQUIRE(to_nothing(kPd));
  REQUIRE(to_nothing(kPd));
  CHECK(w.table.query(region)->windows_bound == 0);
  check_refused(w.write(window), Refusal::invalid_stag);
  check_refused(w.write(with_key(window, kKey + 1)), Refusal::invalid_stag);
  CHECK(w.table.deregister(region));
  CHECK(w.table.deallocate_window(window));
}

TEST_CASE("no work request and no peer invalidates a window of a PD", "[tpt][windows]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = domain_window(w, region);
  check_refused(w.table.invalidate_local(window, kPd, kQp), Refusal::cannot_invalidate);
  check_refused(w.table.invalidate_remote(window, kPd, kQp, kReadWrite), Refusal::cannot_invalidate);
  check_refused(w.table.invalidate_local(window, kOtherPd, kQp), Refusal::not_associated);
  CHECK(w.write(window));
  check_refused(w.table.deregister(region), Refusal::cannot_invalidate);
  REQUIRE(w.table.deallocate_window(window));
  CHECK(w.table.deregister(region));
}
