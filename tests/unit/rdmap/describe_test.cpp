// A Terminate in words.
#include "rdmap/describe.hpp"

#include "kit/catch.hpp"
#include "kit/hex.hpp"

using namespace rnic;
using rdmap::describe_terminate;
using rdmap::Origin;
using test::hex;

TEST_CASE("W-RDMAP-34: a Terminate that came is told in both readings of its fields", "[rdmap][W-RDMAP-34]") {
  // siw's "insufficient IRD", its fields from the other end (wire.md s6, 11).
  CHECK(describe_terminate(hex("02060000"), Origin::remote) ==
        "0/2/06 (RDMAP operation: unexpected opcode); or, from a little-endian siw, 2/0/06 (LLP: insufficient IRD)");
  // A DDP error of an untagged segment with M and D, as siw says it.
  CHECK(describe_terminate(hex("21030300 0030 0143000000000000000000000001 00000000"), Origin::remote) ==
        "2/1/03 (no registered error); or, from a little-endian siw, 1/2/03 (DDP untagged: MSN out of range), "
        "segment of 48 octets, untagged");
  // A Read's protection error with M, D and R, as siw says it.
  CHECK(describe_terminate(hex("10020700 002e 4141 00000000 00000001 00000001 00000000"
                               "00000001 0000000000000002 00000003 00000004 0000000000000005"),
                           Origin::remote) ==
        "1/0/02 (no registered error); or, from a little-endian siw, 0/1/02 (RDMAP protection: access rights), "
        "segment of 46 octets, untagged, with its Read Request");
  // Where both mean the same there is one.
  CHECK(describe_terminate(hex("00000000"), Origin::remote) == "0/0/00 (RDMAP: local catastrophic error)");
  CHECK(describe_terminate(hex("11010000"), Origin::remote) == "1/1/01 (DDP tagged: base or bounds)");
}

TEST_CASE("W-RDMAP-34: our own is told in one reading, with what it carries", "[rdmap][W-RDMAP-34]") {
  CHECK(describe_terminate(hex("20060000"), Origin::local) == "2/0/06 (LLP: insufficient IRD)");
  CHECK(describe_terminate(hex("1101c000 002e c140dead0001 0000000000009000"), Origin::local) ==
        "1/1/01 (DDP tagged: base or bounds), segment of 46 octets, tagged");
  CHECK(describe_terminate(hex("0102e000 002e 4141 00000000 00000001 00000001 00000000"
                               "00000001 0000000000000002 00000003 00000004 0000000000000005"),
                           Origin::local) ==
        "0/1/02 (RDMAP protection: access rights), segment of 46 octets, untagged, with its Read Request");
}

TEST_CASE("W-RDMAP-33: of a Terminate that is cut off as much is told as is there", "[rdmap][W-RDMAP-33][W-RDMAP-34]") {
  CHECK(describe_terminate({}, Origin::remote) == "a Terminate that is cut off");
  CHECK(describe_terminate(hex("110100"), Origin::remote) == "a Terminate that is cut off");
  CHECK(describe_terminate(hex("ffff0000"), Origin::remote) == "15/15/ff (no registered error)");
  CHECK(describe_terminate(hex("1101c000"), Origin::local) == "1/1/01 (DDP tagged: base or bounds)");
}
