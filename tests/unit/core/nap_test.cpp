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

namespace {

// So many naps, each of which brings so many posts.
void take_naps(Nap& nap, int count, std::uint32_t posts) {
  while (count-- > 0) {
    nap.begin();
    nap.on_posts(posts, kStart);
  }
}

Nap rung(bool only_core) {
  Nap nap;
  nap.set_only_core(only_core);
  nap.on_rung(true, kStart);
  return nap;
}

}  // namespace

TEST_CASE("A worker that has other cores naps no more for a while after a nap that brought few posts") {
  Nap nap = rung(false);
  take_naps(nap, 100, Nap::kPostsMin);
  CHECK(nap.pays(kStart));
  CHECK(nap.length() == Nap::kShortest);
  take_naps(nap, 1, Nap::kPostsMin - 1);
  CHECK(nap.length() == Nap::kShortest);
  const Instant again = kStart + Nap::kOfMany.pause;
  nap.on_rung(true, again);
  CHECK_FALSE(nap.pays(again - nanoseconds(1)));
  CHECK(nap.pays(again));
}

TEST_CASE("A worker that has one core takes longer naps where they bring few posts, and none for a while after some") {
  Nap nap = rung(true);
  take_naps(nap, 100, Nap::kPostsMin);
  CHECK(nap.length() == Nap::kShortest);
  // An application that waits for each answer: one post in each.
  for (const Duration expected : {Nap::kShortest * 2, Nap::kShortest * 4, Nap::kOfOne.longest, Nap::kOfOne.longest}) {
    take_naps(nap, 1, 1);
    CHECK(nap.length() == expected);
    CHECK(nap.pays(kStart));
  }
  take_naps(nap, 1, 1);
  const Instant again = kStart + Nap::kOfOne.pause;
  nap.on_rung(true, again);
  CHECK_FALSE(nap.pays(again - nanoseconds(1)));
  CHECK(nap.pays(again));
  CHECK(nap.length() == Nap::kShortest);
  // No longer than it takes.
  take_naps(nap, 2, 1);
  CHECK(nap.length() == Nap::kShortest * 4);
  take_naps(nap, 1, Nap::kPostsMany - 1);
  CHECK(nap.length() == Nap::kShortest * 4);
  take_naps(nap, 1, Nap::kPostsMany);
  CHECK(nap.length() == Nap::kShortest);
}

TEST_CASE("A nap that brought many posts pays for others that bring none, but not for any number of them") {
  for (const std::uint32_t burst : {100u, 4'000'000'000u}) {
    Nap nap = rung(true);
    take_naps(nap, 1, burst);
    take_naps(nap, (Nap::kOfOne.credit_max + Nap::kOfOne.debt_max) / static_cast<int>(Nap::kPostsMin), 0);
    CHECK(nap.pays(kStart));
    take_naps(nap, 1, 0);
    CHECK_FALSE(nap.pays(kStart));
  }
}

TEST_CASE("Turns that follow no nap say nothing of naps") {
  Nap nap;
  nap.on_rung(true, kStart);
  nap.on_posts(0, kStart);
  CHECK(nap.pays(kStart));
}
