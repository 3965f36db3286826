#include "core/nap.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using core::Nap;

namespace {

constexpr Instant kStart{1'000'000'000};

}  // namespace

TEST_CASE("A worker naps where the last ring came from its own core, and was not long ago") {
  Nap nap;
  CHECK_FALSE(nap.pays(kStart));
  nap.on_rung(false, kStart);
  CHECK_FALSE(nap.pays(kStart));
  nap.on_rung(true, kStart);
  CHECK(nap.pays(kStart + Nap::kNear - nanoseconds(1)));
  CHECK_FALSE(nap.pays(kStart + Nap::kNear));
  nap.on_rung(false, kStart);
  CHECK_FALSE(nap.pays(kStart));
}

TEST_CASE("After a nap that brought few posts there is none for a while") {
  Nap nap;
  nap.on_rung(true, kStart);
  nap.begin();
  nap.on_posts(Nap::kPostsMin, kStart);
  CHECK(nap.pays(kStart));
  nap.begin();
  nap.on_posts(Nap::kPostsMin - 1, kStart);
  const Instant again = kStart + Nap::kPause;
  nap.on_rung(true, again);
  CHECK_FALSE(nap.pays(again - nanoseconds(1)));
  CHECK(nap.pays(again));
}

TEST_CASE("Turns that follow no nap say nothing of naps") {
  Nap nap;
  nap.on_rung(true, kStart);
  nap.on_posts(0, kStart);
  CHECK(nap.pays(kStart));
}
