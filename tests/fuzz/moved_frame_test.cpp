// Found by tools/fuzz conversation: a device asked a received frame whether its checksums were known
// to be good in the same call that gave the frame away. Arguments have no order: clang's gave it
// away first, and every IPv4 frame was read through null; g++'s happened not to.
#include "fuzz/target.hpp"
#include "kit/catch.hpp"
#include "kit/hex.hpp"

using namespace rnic;

TEST_CASE("a frame is looked at before it is given away", "[issue][fuzz]") {
  const fuzz::Target* target = fuzz::find("conversation");
  REQUIRE(target != nullptr);
  target->run(test::hex("00001201000300012001010201 00"));
  SUCCEED("it came to its end");
}
