#include "core/shared_core.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using core::SharedCoreDetector;

namespace {

// Looks every 10 us, and now and then somebody else has the core for a time slice.
struct Looks {
  SharedCoreDetector detector;
  Instant now{1'000'000'000};
  bool look() {
    now = now + microseconds(10);
    return detector.polls(now);
  }
  bool look_after_slice(Duration slice) {
    now = now + slice;
    return detector.polls(now);
  }
  // Shares its core with another poller.
  void share() {
    for (unsigned i = 0; i < SharedCoreDetector::kGapsMax; ++i) {
      look();
      look_after_slice(milliseconds(4));
    }
  }
  Duration until_it_polls() {
    const Instant start = now;
    while (!detector.polls(now)) now = now + milliseconds(1);
    return now - start;
  }
};

}  // namespace

TEST_CASE("one that polls always does so while nobody else runs on its core") {
  Looks looks;
  for (int i = 0; i < 100'000; ++i) REQUIRE(looks.look());
  // Interrupts, of whatever number.
  for (int i = 0; i < 1000; ++i) REQUIRE(looks.look_after_slice(SharedCoreDetector::kGap - microseconds(1)));
}

TEST_CASE(
    "it sleeps like any other when somebody else has its core again and again, and tries once more a second later") {
  Looks looks;
  REQUIRE(looks.look());
  REQUIRE(looks.look_after_slice(SharedCoreDetector::kGap));
  REQUIRE(looks.look_after_slice(milliseconds(4)));
  REQUIRE_FALSE(looks.detector.shares(looks.now));
  CHECK_FALSE(looks.look_after_slice(milliseconds(4)));
  CHECK(looks.detector.shares(looks.now));
  CHECK(looks.until_it_polls() == SharedCoreDetector::kSharedFirst);
  CHECK(looks.look());
}

TEST_CASE("now and then is no sharing, and time that work took is not missing") {
  Looks looks;
  for (int i = 0; i < 20; ++i) {
    REQUIRE(looks.look_after_slice(milliseconds(4)));
    REQUIRE(looks.look_after_slice(milliseconds(4)));
    looks.now = looks.now + SharedCoreDetector::kWithin;
    looks.detector.on_work();
    REQUIRE(looks.look());
  }
  for (int i = 0; i < 20; ++i) {
    REQUIRE(looks.look());
    looks.detector.on_work();
    REQUIRE(looks.look_after_slice(milliseconds(4)));
  }
}

TEST_CASE(
    "it tries ever more rarely while the core is shared, once a minute at last, and begins anew after a good time") {
  Looks looks;
  for (const std::int64_t span_s : {1, 2, 4, 8, 16, 32, 60, 60}) {
    looks.share();
    CHECK(looks.until_it_polls() == seconds(span_s));
  }
  for (int i = 0; i < 61'000'000 / 500; ++i) looks.look_after_slice(microseconds(500));
  looks.share();
  CHECK(looks.until_it_polls() == SharedCoreDetector::kSharedFirst);
}
