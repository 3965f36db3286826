// What the worker hands to control.
#include "core/ring.hpp"
#include "kit/catch.hpp"

using namespace rnic::core;

TEST_CASE("a ring that is full loses nothing: the rest follows in order when there is room", "[core]") {
  PatientRing<int> ring(4);
  int next = 0;
  for (; next < 4; ++next) ring.push(next);
  CHECK(ring.waiting() == 0);
  ring.push(next++);
  CHECK(ring.waiting() == 1);
  CHECK_FALSE(ring.hand_over());
  int got = -1;
  for (int expected = 0; expected < 2; ++expected) {
    REQUIRE(ring.pop(got));
    CHECK(got == expected);
  }
  // There is room, but what came before goes first.
  ring.push(next++);
  CHECK(ring.waiting() == 2);
  CHECK(ring.hand_over());
  CHECK(ring.waiting() == 0);
  ring.push(next++);
  CHECK(ring.waiting() == 1);
  for (int expected = 2; expected < 7; ++expected) {
    if (!ring.pop(got)) REQUIRE((ring.hand_over() && ring.pop(got)));
    CHECK(got == expected);
  }
  CHECK_FALSE(ring.hand_over());
  CHECK_FALSE(ring.pop(got));
}
