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

Nap rung(bool crowded) {
  Nap nap(crowded);
  nap.on_rung(true, kStart);
  return nap;
}

}  // namespace

TEST_CASE("Where cores are without a worker there is no nap for a while after one that brought few posts") {
  Nap nap = rung(false);
  take_naps(nap, 100, Nap::kPostsMin);
  CHECK(nap.pays(kStart));
  CHECK(nap.length() == Nap::kShortest);
  take_naps(nap, 1, Nap::kPostsMin - 1);
  CHECK(nap.length() == Nap::kShortest);
  const Instant again = kStart + Nap::kAtEase.pause;
  nap.on_rung(true, again);
  CHECK_FALSE(nap.pays(again - nanoseconds(1)));
  CHECK(nap.pays(again));
}

TEST_CASE(
    "Where no core is without a worker naps that bring few posts become longer, and after some there is none for a "
    "while") {
  Nap nap = rung(true);
  take_naps(nap, 100, Nap::kPostsMin);
  CHECK(nap.length() == Nap::kShortest);
  // An application that waits for each answer: one post in each.
  for (const Duration expected :
       {Nap::kShortest * 2, Nap::kShortest * 4, Nap::kCrowded.longest, Nap::kCrowded.longest}) {
    take_naps(nap, 1, 1);
    CHECK(nap.length() == expected);
    CHECK(nap.pays(kStart));
  }
  take_naps(nap, 1, 1);
  const Instant again = kStart + Nap::kCrowded.pause;
  nap.on_rung(true, again);
  CHECK_FALSE(nap.pays(again - nanoseconds(1)));
  CHECK(nap.pays(again));
  CHECK(nap.length() == Nap::kShortest);
  // No longer than it takes.
  take_naps(nap, 2, 1);
  CHECK(nap.length() == Nap::kShortest * 4);
  take_naps(nap, 1, Nap::kPostsMin);
  CHECK(nap.length() == Nap::kShortest * 2);
  take_naps(nap, 1, 1);
  take_naps(nap, 1, Nap::kPostsMany);
  CHECK(nap.length() == Nap::kShortest);
}

TEST_CASE("A nap that brought many posts pays for others that bring none, but not for any number of them") {
  for (const std::uint32_t burst : {100u, 4'000'000'000u}) {
    Nap nap = rung(true);
    take_naps(nap, 1, burst);
    take_naps(nap, (Nap::kCrowded.credit_max + Nap::kCrowded.debt_max) / static_cast<int>(Nap::kPostsMin), 0);
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
