// Local and remote invalidation: V-INV, W-RDMAP-16, -17.
#include "kit/tpt_world.hpp"

namespace {
using namespace rnic;
using namespace rnic::test;
}  // namespace

TEST_CASE("V-INV-01: a region is invalidated by a QP of its PD only", "[tpt][V-INV-01]") {
  TptWorld w;
  const Stag stag = w.region();
  check_refused(w.table.invalidate_local(stag, kOtherPd, kQp), Refusal::not_associated);
  check_refused(w.table.invalidate_remote(stag, kOtherPd, kQp, kReadWrite), Refusal::not_associated);
  CHECK(w.write(stag));
  CHECK(w.table.invalidate_local(stag, kPd, kOtherQp));
}

TEST_CASE("V-INV-02, V-INV-03: the key counts while Valid, and invalidating again succeeds",
          "[tpt][V-INV-02][V-INV-03][V-STAG-04][W-RDMAP-16]") {
  TptWorld w;
  const Stag stag = w.region();
  check_refused(w.table.invalidate_local(with_key(stag, 0), kPd, kQp), Refusal::invalid_stag);
  CHECK(w.write(stag));
  CHECK(w.table.invalidate_local(stag, kPd, kQp));
  CHECK(w.table.invalidate_local(stag, kPd, kQp));
  CHECK(w.table.invalidate_local(with_key(stag, 0), kPd, kQp));
  CHECK(w.table.invalidate_remote(stag, kPd, kQp, kReadWrite));
  // The association still counts.
  check_refused(w.table.invalidate_local(stag, kOtherPd, kQp), Refusal::not_associated);
}

TEST_CASE("whether a peer may invalidate is known before it does, and asking changes nothing", "[tpt][V-INV-04]") {
  TptWorld w;
  const Stag stag = w.region();
  CHECK(w.table.may_invalidate_remote(stag, kPd, kQp, kReadWrite));
  CHECK(w.write(stag));
  CHECK_FALSE(w.table.may_invalidate_remote(stag, kOtherPd, kQp, kReadWrite));
  CHECK_FALSE(w.table.may_invalidate_remote(stag, kPd, kQp, Rights::none));
  CHECK_FALSE(w.table.may_invalidate_remote(with_key(stag, 0), kPd, kQp, kReadWrite));
  CHECK_FALSE(w.table.may_invalidate_remote(Stag{0x777700}, kPd, kQp, kReadWrite));
  CHECK_FALSE(w.table.may_invalidate_remote(w.region(kLocal), kPd, kQp, kReadWrite));
  CHECK(w.table.invalidate_remote(stag, kPd, kQp, kReadWrite));
  CHECK(w.table.may_invalidate_remote(stag, kPd, kQp, kReadWrite));
}

TEST_CASE("V-INV-04, W-RDMAP-17: a peer needs an enable of the QP and a right of the STag, either one",
          "[tpt][V-INV-04][W-RDMAP-17]") {
  TptWorld w;
  const Rights rights[] = {Rights::remote_read, Rights::remote_write};
  for (const Rights enable : rights) {
    for (const Rights right : rights) {
      const Stag stag = w.region(kLocal | right);
      CHECK(w.table.invalidate_remote(stag, kPd, kQp, enable));
      check_refused(w.read(stag), Refusal::invalid_stag);
    }
  }
  const Stag disabled = w.region();
  check_refused(w.table.invalidate_remote(disabled, kPd, kQp, Rights::none), Refusal::access_rights);
  check_refused(w.table.invalidate_remote(disabled, kPd, kQp, Rights::window_bind), Refusal::access_rights);
  CHECK(w.write(disabled));
  const Stag local = w.region(kLocal);
  check_refused(w.table.invalidate_remote(local, kPd, kQp, kReadWrite), Refusal::access_rights);
  CHECK(w.table.check_local(local, kPd, kLocal, kBase, 1));
  // The owner needs neither.
  CHECK(w.table.invalidate_local(local, kPd, kQp));
}

TEST_CASE("V-INV-05, W-RDMAP-17: a shared region cannot be invalidated", "[tpt][V-INV-05][V-MR-13][W-RDMAP-17]") {
  TptWorld w;
  const Stag first = w.region();
  const Stag second = *w.table.register_shared(first, TptWorld::options());
  for (const Stag stag : {first, second}) {
    check_refused(w.table.invalidate_remote(stag, kPd, kQp, kReadWrite), Refusal::cannot_invalidate);
    check_refused(w.table.invalidate_local(stag, kPd, kQp), Refusal::cannot_invalidate);
    CHECK(w.write(stag));
  }
}

TEST_CASE("V-INV-05: a deregistered STag is not there to invalidate", "[tpt][V-INV-05]") {
  TptWorld w;
  const Stag stag = w.region();
  REQUIRE(w.table.deregister(stag));
  check_refused(w.table.invalidate_local(stag, kPd, kQp), Refusal::invalid_stag);
  check_refused(w.table.invalidate_remote(stag, kPd, kQp, kReadWrite), Refusal::invalid_stag);
}

TEST_CASE("V-INV-07: a refused invalidation leaves the STag as it was", "[tpt][V-INV-07]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = w.window(region);
  CHECK_FALSE(w.table.invalidate_local(region, kPd, kQp));
  CHECK_FALSE(w.table.invalidate_local(window, kPd, kOtherQp));
  CHECK_FALSE(w.table.invalidate_remote(with_key(window, 0), kPd, kQp, kReadWrite));
  CHECK(w.write(region));
  CHECK(w.write(window));
}

TEST_CASE("V-INV-08: a Valid window is invalidated by its QP, an Invalid one by its PD", "[tpt][V-INV-08]") {
  TptWorld w;
  const Stag window = w.window(w.region());
  check_refused(w.table.invalidate_local(window, kPd, kOtherQp), Refusal::not_associated);
  check_refused(w.table.invalidate_remote(window, kPd, kOtherQp, kReadWrite), Refusal::not_associated);
  CHECK(w.table.invalidate_local(window, kPd, kQp));
  CHECK(w.table.invalidate_local(window, kPd, kOtherQp));
  CHECK(w.table.invalidate_remote(window, kPd, kOtherQp, kReadWrite));
  check_refused(w.table.invalidate_local(window, kOtherPd, kQp), Refusal::not_associated);
}

TEST_CASE("V-INV-09: an invalidated window goes back to its PD and can be bound again", "[tpt][V-INV-09]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = w.window(region);
  REQUIRE(w.table.invalidate_remote(window, kPd, kQp, Rights::remote_read));
  CHECK_FALSE(w.table.window_bound_to(kQp));
  CHECK(w.table.query(region)->windows_bound == 0);
  check_refused(w.write(window), Refusal::invalid_stag);
  CHECK(w.table.bind(window, kKey, region, kPd, kOtherQp, kReadWrite, kBase, kSize));
  CHECK(w.write(window, kBase, 1, kPd, kOtherQp));
  check_refused(w.write(window, kBase, 1, kPd, kQp), Refusal::not_associated);
}

TEST_CASE("V-INV-10, W-RDMAP-21: from the invalidation on every access is refused", "[tpt][V-INV-10][W-RDMAP-21]") {
  TptWorld w;
  const Stag region = w.region();
  const Stag window = w.window(region);
  REQUIRE(w.table.invalidate_remote(window, kPd, kQp, kReadWrite));
  REQUIRE(w.table.invalidate_remote(region, kPd, kQp, kReadWrite));
  for (const Stag stag : {window, region}) {
    check_refused(w.write(stag, kBase, 64), Refusal::invalid_stag);
    check_refused(w.read(stag, kBase, 64), Refusal::invalid_stag);
  }
}
