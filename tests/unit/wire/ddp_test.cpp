// DDP headers.
#include "wire/ddp.hpp"

#include "kit/catch.hpp"
#include "kit/hex.hpp"

namespace {

using namespace rnic;
using test::hex;

}  // namespace

TEST_CASE("W-DDP-01: segments are sent with DDP version 1", "[wire][W-DDP-01]") {
  std::vector<std::byte> tagged(14), untagged(18);
  emit(wire::TaggedHeader{}, tagged);
  emit(wire::UntaggedHeader{}, untagged);
  CHECK(tagged[0] == std::byte{0x81});
  CHECK(untagged[0] == std::byte{0x01});
}

TEST_CASE("W-DDP-01: another DDP version is seen, tagged and untagged", "[wire][W-DDP-01]") {
  auto tagged = hex("c140 00012305 0000000000007000");
  CHECK(wire::parse_tagged(tagged));
  tagged[0] = std::byte{0xC2};
  CHECK_FALSE(wire::parse_tagged(tagged));
  CHECK(wire::parse_ddp(tagged)->version == 2);
  CHECK(wire::parse_ddp(tagged)->tagged);
  auto untagged = hex("4143 00000000 00000000 00000001 00000000");
  untagged[0] = std::byte{0x40};
  CHECK_FALSE(wire::parse_untagged(untagged));
  CHECK(wire::parse_ddp(untagged)->version == 0);
}

TEST_CASE("W-DDP-02: reserved bits of the control octet are not looked at", "[wire][W-DDP-02]") {
  const auto plain = hex("c140 00012305 0000000000007000");
  const auto noisy = hex("fd40 00012305 0000000000007000");
  CHECK(wire::parse_tagged(plain) == wire::parse_tagged(noisy));
}

TEST_CASE("W-DDP-03: L is its own bit", "[wire][W-DDP-03]") {
  CHECK(wire::parse_ddp(hex("c140 00012305 0000000000007000"))->last);
  CHECK_FALSE(wire::parse_ddp(hex("8140 00012305 0000000000007000"))->last);
}

TEST_CASE("W-DDP-04: each field of a header is where the figure has it", "[wire][W-DDP-04][W-DDP-05][W-DDP-06]") {
  const auto tagged = *wire::parse_ddp(hex("8142 01020304 05060708090a0b0c"));
  CHECK(tagged == wire::DdpHeader{.tagged = true,
                                  .last = false,
                                  .version = 1,
                                  .rdmap_control = 0x42,
                                  .stag = {0x01020304},
                                  .tagged_offset = 0x05060708090A0B0C});
  const auto untagged = *wire::parse_ddp(hex("4144 01020304 05060708 090a0b0c 0d0e0f10"));
  CHECK(untagged == wire::DdpHeader{.tagged = false,
                                    .last = true,
                                    .version = 1,
                                    .rdmap_control = 0x44,
                                    .stag = {0x01020304},
                                    .queue = 0x05060708,
                                    .msn = 0x090A0B0C,
                                    .message_offset = 0x0D0E0F10});
  CHECK(tagged.size() == 14);
  CHECK(untagged.size() == 18);
}

TEST_CASE("W-MPA-55: a segment shorter than its header is none", "[wire][W-MPA-55]") {
  const auto tagged = hex("c140 00012305 0000000000007000");
  CHECK(wire::parse_ddp(tagged));
  CHECK_FALSE(wire::parse_ddp(Bytes{tagged}.first(13)));
  const auto untagged = hex("4143 00000000 00000000 00000001 00000000");
  CHECK(wire::parse_ddp(untagged));
  CHECK_FALSE(wire::parse_ddp(Bytes{untagged}.first(17)));
  CHECK_FALSE(wire::parse_ddp({}));
}
